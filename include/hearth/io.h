/* Arrays in files: npy, npz, safetensors and GGUF.
 *
 * Reading: files are read, not mapped, so that truncation by another process is an error, not a signal. Every size that
 * a file claims is checked before memory is allocated. Writing is atomic: the file appears complete or not at all.
 * Every function that writes evaluates its arrays first. */
#ifndef HEARTH_IO_H
#define HEARTH_IO_H

#include <hearth/array.h>

#include <stddef.h>

#ifdef __cplusplus
extern "C" {
#endif

/* ---- one array: NumPy's npy, versions 1 to 3 ---- */

/* Reads a file of any NumPy dtype except structures, strings and complex numbers, in either byte order. The void dtype
 * 'V2' is read as bfloat16, as MLX writes it. */
HT_API ht_array *ht_npy_load(ht_scope *s, const char *path);
/* ht_npy_load from `size` bytes in memory, which are copied; `name` appears in error messages. */
HT_API ht_array *ht_npy_parse(ht_scope *s, const void *data, size_t size, const char *name);
/* Writes an array, row-major, in format version 1. */
HT_API ht_status ht_npy_save(ht_scope *s, const char *path, ht_array *a, ht_error *err);

/* ---- arrays by name ---- */

/* An open file of named arrays. */
typedef struct ht_array_file ht_array_file;

/* Opens a safetensors file, a single GGUF file, or an npz (a ZIP archive of npy files, stored or deflated); the first
 * bytes identify the format. Reads names and metadata only. The caller frees *out. */
HT_API ht_status ht_array_file_open(const char *path, ht_array_file **out, ht_error *err);
HT_API void ht_array_file_free(ht_array_file *f);          /* NULL is fine; arrays read from the file stay valid */
HT_API size_t ht_array_file_count(const ht_array_file *f); /* number of arrays */
HT_API const char *ht_array_file_name(const ht_array_file *f, size_t i); /* lent; in an npz, without ".npy" */
/* Reads array i, i < count, and verifies its checksum in an npz. 8-bit floats, which have no dtype, are read as u8.
 * GGUF blocks of type Q4_0, Q4_1 and Q8_0 are converted to affine groups of 32 (quantize.h): u32 words under the
 * tensor's name, f16 scales and biases as separate arrays. Other GGUF block types are converted to f16. */
HT_API ht_array *ht_array_file_read(ht_scope *s, ht_array_file *f, size_t i);
/* Metadata as a JSON object, lent. Values are strings, lists of strings, or {"dtype": "u32", "value": ...} with a
 * number or a list of numbers. */
HT_API const char *ht_array_file_metadata(const ht_array_file *f);

/* Writes n named arrays as npz, compressed with `deflate`, else stored. */
HT_API ht_status ht_npz_save(ht_scope *s, const char *path, const char *const *names, ht_array *const *arrays, int n,
                             bool deflate, ht_error *err);

/* An entry of a safetensors file's metadata. */
typedef struct ht_metadata_pair {
    const char *key, *value;
} ht_metadata_pair;

/* Writes n named arrays as safetensors, with n_pairs metadata entries; `pairs` may be NULL when n_pairs is 0. */
HT_API ht_status ht_safetensors_save(ht_scope *s, const char *path, const char *const *names, ht_array *const *arrays,
                                     int n, const ht_metadata_pair *pairs, int n_pairs, ht_error *err);

/* Writes n named arrays as GGUF version 3, without quantisation. Arrays have 1 to 4 axes and are f32, f16, bf16, f64 or
 * signed integers. `metadata` is NULL or a JSON object in the form of ht_array_file_metadata, without
 * general.alignment. */
HT_API ht_status ht_gguf_save(ht_scope *s, const char *path, const char *const *names, ht_array *const *arrays, int n,
                              const char *metadata, ht_error *err);

#ifdef __cplusplus
}
#endif
#endif
