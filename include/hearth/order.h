/* Sorting and selection: the smallest element first, a NaN after all numbers, of any dtype. Axes may be negative.
 * Places are u32. */
#ifndef HEARTH_ORDER_H
#define HEARTH_ORDER_H

#include <hearth/array.h>

#ifdef __cplusplus
extern "C" {
#endif

/* x with the elements along an axis in order. */
HT_API ht_array *ht_sort(ht_scope *s, ht_array *x, int axis);
/* Where the elements of the sorted array are in x; among equals the first one comes first. */
HT_API ht_array *ht_argsort(ht_scope *s, ht_array *x, int axis);
/* The element at place kth (from the end when negative) is the one that sorting puts there; none before it is larger, none
 * behind it smaller. */
HT_API ht_array *ht_partition(ht_scope *s, ht_array *x, int64_t kth, int axis);
/* Where the elements of such an array are in x. */
HT_API ht_array *ht_argpartition(ht_scope *s, ht_array *x, int64_t kth, int axis);
/* The k largest along an axis, in no order but that the smallest of them comes first. */
HT_API ht_array *ht_topk(ht_scope *s, ht_array *x, int64_t k, int axis);

#ifdef __cplusplus
}
#endif
#endif
