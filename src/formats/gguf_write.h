/* GGUF writer, version 3: metadata and tensors, written atomically. Source of the layout: the `gguf` Python package. */
#ifndef HT_FORMATS_GGUF_WRITE_H
#define HT_FORMATS_GGUF_WRITE_H

#include "formats/gguf.h"
#include "formats/json.h"
#include "formats/safetensors_write.h"

/* Writes tensors of 1 to 4 axes, none of them empty. `metadata` is an object of strings, lists of strings, and
 * {"dtype": "u32", "value": ...} with a number or a list of numbers; the writer sets general.alignment. */
ht_status ht_gguf_write(const char *path, const ht_tensor_output *tensors, int n, ht_json *metadata,
                        ht_tensor_values *values, void *user, ht_error *err);

/* Writes tensors of any ggml type, `dtype` being its name ("Q4_K"), with the metadata and the alignment of another
 * file. Fields of `changes`, in the form above, replace the values of their keys; null removes a key; new keys come
 * last. */
ht_status ht_gguf_rewrite(const char *path, const ht_gguf *from, ht_json *changes, const ht_tensor_output *tensors,
                          int n, ht_tensor_values *values, void *user, ht_error *err);

/* Writes a later part of a model, with `metadata` in the form above and the alignment of `first`, the file whose
 * metadata the first part has; NULL: ht_gguf_write wrote the first part. */
ht_status ht_gguf_write_part(const char *path, const ht_gguf *first, ht_json *metadata, const ht_tensor_output *tensors,
                             int n, ht_tensor_values *values, void *user, ht_error *err);

/* A file of ht_gguf_write in memory, whose values are all 0. The caller frees *out. */
ht_status ht_gguf_write_zeros(const ht_tensor_output *tensors, int n, ht_json *metadata, unsigned char **out,
                              size_t *size, ht_error *err);

/* The bytes before the tensors' entries of a file that ht_gguf_rewrite writes with these changes, or ht_gguf_write with `metadata`
 * where `from` is NULL, or ht_gguf_write_part where `is_part`. */
ht_status ht_gguf_metadata_bytes(const ht_gguf *from, ht_json *metadata, bool is_part, size_t *out, ht_error *err);
/* Bytes that a tensor adds to such a file: its entry, its values and their padding. SIZE_MAX on overflow. */
size_t ht_gguf_bytes_of(const ht_tensor_output *t, size_t alignment);
/* Alignment of the tensors in a file that ht_gguf_rewrite writes; NULL: in one of ht_gguf_write. */
size_t ht_gguf_alignment(const ht_gguf *from);

#endif
