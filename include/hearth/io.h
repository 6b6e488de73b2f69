/* Arrays in files: npy, npz, safetensors and GGUF.
 *
 * Files are read, not mapped: one that another process cuts meanwhile is an error, not a signal. A file that is written
 * appears whole or not at all. Every size a file claims is checked before memory is taken for it. */
#ifndef HEARTH_IO_H
#define HEARTH_IO_H

#include <hearth/array.h>

#include <stddef.h>

#ifdef __cplusplus
extern "C" {
#endif

/* ---- one array: NumPy's npy, versions 1 to 3 ---- */

/* Every dtype but structures, strings and complex numbers, of either byte order; bfloat16 as two bytes without a meaning
 * ('V2'), as MLX writes them. */
HT_API ht_array *ht_npy_load(ht_scope *s, const char *path);
/* The same from `size` bytes in memory; `name` is used in messages. */
HT_API ht_array *ht_npy_parse(ht_scope *s, const void *data, size_t size, const char *name);
/* Evaluates and writes in version 1, row-major. */
HT_API ht_status ht_npy_save(ht_scope *s, const char *path, ht_array *a, ht_error *err);

/* ---- arrays by name ---- */

typedef struct ht_array_file ht_array_file;

/* Opens a safetensors file, one GGUF file, or NumPy's npz (a ZIP archive of npy files, stored or deflated), told apart by how
 * they begin. Reads names and metadata; an array is read when it is asked for, one of an npz through its checksum. */
HT_API ht_status ht_array_file_open(const char *path, ht_array_file **out, ht_error *err);
HT_API void ht_array_file_free(ht_array_file *f);                        /* NULL is fine; arrays stay */
HT_API size_t ht_array_file_count(const ht_array_file *f);               /* arrays in it */
HT_API const char *ht_array_file_name(const ht_array_file *f, size_t i); /* lent; of an npz without its ".npy" */
/* Array i < count. 8-bit floats, which are no dtype, come as u8. Of a GGUF, blocks of Q4_0, Q4_1 and Q8_0 come as MLX's
 * affine groups of 32 columns: `name` of u32 words, and beside it `scales` and `biases` of f16; other blocks as f16. */
HT_API ht_array *ht_array_file_read(ht_scope *s, ht_array_file *f, size_t i);
/* Metadata as a JSON object, lent: strings, lists of strings, and numbers as {"dtype": "u32", "value": ...}, whose value
 * is a list for arrays of numbers. */
HT_API const char *ht_array_file_metadata(const ht_array_file *f);

/* Writes n arrays under their names as npz, each of them deflated or stored. */
HT_API ht_status ht_npz_save(ht_scope *s, const char *path, const char *const *names, ht_array *const *arrays, int n,
                             bool deflate, ht_error *err);

/* Writes n arrays under their names, and n_pairs keys and values (NULL: none), as safetensors. */
HT_API ht_status ht_safetensors_save(ht_scope *s, const char *path, const char *const *names, ht_array *const *arrays,
                                     int n, const char *const *keys, const char *const *values, int n_pairs,
                                     ht_error *err);

/* Writes n arrays of 1 to 4 axes under their names as GGUF, version 3: f32, f16, bf16, f64 or signed integers, not quantised.
 * `metadata` is a JSON object as ht_array_file_metadata gives it, without general.alignment (NULL: none). */
HT_API ht_status ht_gguf_save(ht_scope *s, const char *path, const char *const *names, ht_array *const *arrays, int n,
                              const char *metadata, ht_error *err);

#ifdef __cplusplus
}
#endif
#endif
