/* Index resolution: indices as checked offsets into the indexed array. */
#ifndef HT_CPU_REFERENCE_INDEX_CHECK_H
#define HT_CPU_REFERENCE_INDEX_CHECK_H

#include "device/kernel.h"

/* n indices of dtype t, `by` elements apart, as they are. */
void ht_read_indices(ht_dtype t, const void *index, int64_t by, int64_t n, int64_t *out);

/* What an index may say: 0 <= i < length, or from the end of `size` elements when negative. */
typedef struct ht_place_limit {
    int64_t size, length;
    int64_t stride; /* elements from one to the next */
} ht_place_limit;

/* Replaces n indices by index * stride, counted from the front. False when one is outside. */
bool ht_find_places(ht_place_limit limit, bool is_unsigned, int64_t n, int64_t *at);

/* Places of all entries of `index`, in row-major order, put or added to `out`. An error names the first that is outside
 * the axis. */
ht_status ht_places(ht_pool *pool, const char *op, const ht_view *index, int axis, ht_place_limit limit, bool add,
                    int64_t *out, ht_error *err);
/* The same message for a kernel that found out by itself. */
ht_status ht_fail_outside(const char *op, const ht_view *index, int axis, ht_place_limit limit, ht_error *err);

#endif
