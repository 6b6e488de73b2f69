/* GGUF writer, version 3: metadata and tensors, written atomically. Source of the layout: the `gguf` Python package. */
#ifndef HT_FORMATS_GGUF_WRITE_H
#define HT_FORMATS_GGUF_WRITE_H

#include "formats/gguf.h"
#include "formats/safetensors_write.h"

#include <jansson.h>

/* ggml's number of a dense type, in safetensors' spelling of it; -1 when GGUF has no such type. */
int ht_gguf_dense_type(const char *dtype);

/* Writes tensors of 1 to 4 axes, none of them empty. `metadata` is an object of strings, lists of strings, and {"dtype":
 * "u32", "value": ...} with a number or a list of numbers; general.alignment is the writer's to choose. */
ht_status ht_gguf_write(const char *path, const ht_tensor_output *tensors, int n, json_t *metadata,
                        ht_tensor_values *values, void *user, ht_error *err);

/* Writes tensors of any ggml type, `dtype` being its name ("Q4_K"), with the metadata and the alignment of another file.
 * Members of `changes`, in the form above, take the place of values of their key, null that of none; other keys come last. */
ht_status ht_gguf_rewrite(const char *path, const ht_gguf *from, json_t *changes, const ht_tensor_output *tensors,
                          int n, ht_tensor_values *values, void *user, ht_error *err);

#endif
