/* Stored tensor reader, in the form that ht_dequantize and packing take, wherever the parts of a tensor lie. */
#ifndef HT_MODELS_STORED_H
#define HT_MODELS_STORED_H

#include "models/checkpoint.h"

/* Columns that are read whole: `first` and `n` below are multiples of it. */
int64_t ht_stored_unit(const ht_stored *t);
/* Bytes of n columns in stored form, and what joining them needs besides, which may be 0. */
size_t ht_stored_size(const ht_stored *t, int64_t n);
size_t ht_stored_room(const ht_stored *t, int64_t n);

/* Elements [first, first + n), counted over all rows, to `out`; `room` as said above. Thread-safe. */
ht_status ht_stored_read(const ht_stored *t, int64_t first, int64_t n, void *out, void *room, ht_error *err);

/* Rows [first, first + n) of a tensor of two or more dimensions, all but the last counted as one, as a tensor [n, k]. */
ht_stored ht_stored_rows(const ht_stored *t, int64_t first, int64_t n);

#endif
