/* Tensor reader: blocks as ht_dequantize and packing expect them, joined from a weight's components where these are
 * separate tensors. */
#ifndef HT_CHECKPOINT_TENSOR_READ_H
#define HT_CHECKPOINT_TENSOR_READ_H

#include "checkpoint/checkpoint.h"

/* Columns per block or unit; column counts below are multiples of it. */
int64_t ht_tensor_unit(const ht_stored_tensor *t);
/* Bytes of n columns as blocks. */
size_t ht_tensor_size(const ht_stored_tensor *t, int64_t n);
/* Scratch bytes for reading n columns; 0 for a contiguous tensor. */
size_t ht_tensor_read_scratch(const ht_stored_tensor *t, int64_t n);

/* Reads elements [first, first + n) of the row-major tensor to `out`; `scratch` has ht_tensor_read_scratch bytes.
 * Thread-safe. */
ht_status ht_tensor_read(const ht_stored_tensor *t, int64_t first, int64_t n, void *out, void *scratch, ht_error *err);

/* Rows [first, first + n) as a tensor [n, k]; leading dimensions count as rows. */
ht_stored_tensor ht_tensor_rows(const ht_stored_tensor *t, int64_t first, int64_t n);

/* A stored vector, or matrix row by row, as f32: n values, which is what the tensor holds. */
ht_status ht_tensor_read_f32(const ht_stored_tensor *t, int64_t n, float *out, ht_error *err);

/* Where row r of the canonical order lies among the stored rows. */
static inline int64_t ht_interleaved_row(int64_t r, int64_t head_rows) {
    int64_t within = r % head_rows, half = head_rows / 2;
    return r - within + (within < half ? 2 * within : 2 * (within - half) + 1);
}

#endif
