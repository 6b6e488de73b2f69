/* Index resolution: checked conversion of indices to element offsets. */
#ifndef HT_CPU_REFERENCE_INDEX_CHECK_H
#define HT_CPU_REFERENCE_INDEX_CHECK_H

#include "base/pool.h"
#include "device/kernel.h"

/* Reads n indices of dtype t, `by` elements apart, unchecked. */
void ht_read_indices(ht_dtype t, const void *index, int64_t by, int64_t n, int64_t *out);

/* Valid indices of an axis of `size` elements: 0 <= i < length; a negative index counts from the end of the axis. */
typedef struct ht_index_bounds {
    int64_t size, length;
    int64_t stride; /* of the axis, in elements */
} ht_index_bounds;

/* Replaces n indices by offsets, index * stride. Returns false if one is out of bounds; its offset is 0. */
bool ht_resolve_indices(ht_index_bounds bounds, bool is_unsigned, int64_t n, int64_t *at);

/* Offsets of all indices in row-major order, stored to `out` or added to it. The error names the first index out of
 * bounds. */
ht_status ht_index_offsets(ht_pool *pool, const char *op, const ht_view *index, int axis, ht_index_bounds bounds,
                           bool add, int64_t *out, ht_error *err);
/* The out-of-bounds error of ht_index_offsets, for kernels that call ht_resolve_indices. */
ht_status ht_fail_index_bounds(const char *op, const ht_view *index, int axis, ht_index_bounds bounds, ht_error *err);

#endif
