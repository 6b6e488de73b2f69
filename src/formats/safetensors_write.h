/* Safetensors writer: header and tensors, written atomically. A callback supplies the values of one tensor at a
 * time. */
#ifndef HT_FORMATS_SAFETENSORS_WRITE_H
#define HT_FORMATS_SAFETENSORS_WRITE_H

#include <hearth/io.h>

#include <stddef.h>
#include <stdint.h>

typedef struct ht_tensor_output {
    const char *name;
    const char *dtype; /* the format's spelling: "F32" */
    int rank;
    const int64_t *shape; /* outermost dimension first */
    size_t n_bytes;
} ht_tensor_output;

/* Callback that returns the bytes of tensor i, lent until the next call. Called once per tensor, in order. */
typedef ht_status ht_tensor_values(void *user, int i, const void **bytes, ht_error *err);

ht_status ht_safetensors_write(const char *path, const ht_tensor_output *tensors, int n, const ht_metadata_pair *pairs,
                               int n_pairs, ht_tensor_values *values, void *user, ht_error *err);

/* Maximum bytes that a tensor adds to a file, including its header entry; SIZE_MAX on overflow. */
size_t ht_safetensors_bytes_of(const ht_tensor_output *t);
/* Maximum bytes of a file without tensors. */
size_t ht_safetensors_metadata_bytes(const ht_metadata_pair *pairs, int n_pairs);

#endif
