/* Stored tensor reader, in the form that ht_dequantize and packing take, wherever the parts of a tensor lie. */
#ifndef HT_MODELS_TENSOR_READ_H
#define HT_MODELS_TENSOR_READ_H

#include "models/checkpoint.h"

/* Columns that are read whole: `first` and `n` below are multiples of it. */
int64_t ht_tensor_unit(const ht_stored_tensor *t);
/* Bytes of n columns in stored form, and what joining them needs besides, which may be 0. */
size_t ht_tensor_size(const ht_stored_tensor *t, int64_t n);
size_t ht_tensor_read_scratch(const ht_stored_tensor *t, int64_t n);

/* Elements [first, first + n), counted over all rows, to `out`; `room` as said above. Thread-safe. */
ht_status ht_tensor_read(const ht_stored_tensor *t, int64_t first, int64_t n, void *out, void *room, ht_error *err);

/* Rows [first, first + n) of a tensor of two or more dimensions, all but the last counted as one, as a tensor [n, k]. */
ht_stored_tensor ht_tensor_rows(const ht_stored_tensor *t, int64_t first, int64_t n);

#endif
