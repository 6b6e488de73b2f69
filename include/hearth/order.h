/* Sorting and selection along an axis, of any dtype: ascending, with NaN after all numbers. A negative axis counts
 * from the end. Indices are u32. */
#ifndef HEARTH_ORDER_H
#define HEARTH_ORDER_H

#include <hearth/array.h>

#ifdef __cplusplus
extern "C" {
#endif

/* x sorted along the axis. */
HT_API ht_array *ht_sort(ht_scope *s, ht_array *x, int axis);
/* Indices that sort x along the axis; equal elements keep their order. */
HT_API ht_array *ht_argsort(ht_scope *s, ht_array *x, int axis);
/* x reordered along the axis, so that index kth (from the end when negative) has the element of the sorted array, no
 * larger element precedes it and no smaller one follows. */
HT_API ht_array *ht_partition(ht_scope *s, ht_array *x, int64_t kth, int axis);
/* Indices that partition x as ht_partition does. */
HT_API ht_array *ht_argpartition(ht_scope *s, ht_array *x, int64_t kth, int axis);
/* The k largest elements along the axis: the smallest of them first, the others in no order. */
HT_API ht_array *ht_topk(ht_scope *s, ht_array *x, int64_t k, int axis);

#ifdef __cplusplus
}
#endif
#endif
