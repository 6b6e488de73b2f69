/* Indexing: elements and slices gathered from an array by index, and scattered into one.
 *
 * Indices are integers of any dtype; negative ones count from the end of the axis. One outside the axis is an error of
 * evaluation that names it. Arrays are immutable: what "puts" gives a new array, which takes over the memory of the old one
 * where nobody else holds that. Where several values go to one place they count in row-major order of the indices, so that
 * the last one stays, whatever the number of threads. Axes may be negative. */
#ifndef HEARTH_INDEX_H
#define HEARTH_INDEX_H

#include <hearth/array.h>

#ifdef __cplusplus
extern "C" {
#endif

/* ---- along one axis ---- */
/* Slices of x at index [...] of an axis: that axis becomes the axes of the index. */
HT_API ht_array *ht_take(ht_scope *s, ht_array *x, ht_array *index, int axis);
/* Each element's own place along an axis: x and index have as many axes and broadcast along all others. */
HT_API ht_array *ht_take_along_axis(ht_scope *s, ht_array *x, ht_array *index, int axis);
/* x with values, which broadcast to the index and become of x's dtype, put to those places, or added to what is there. The
 * index broadcasts to x along the other axes. */
HT_API ht_array *ht_put_along_axis(ht_scope *s, ht_array *x, ht_array *index, ht_array *values, int axis);
HT_API ht_array *ht_scatter_add_axis(ht_scope *s, ht_array *x, ht_array *index, ht_array *values, int axis);
/* [...] -> [..., n]: 1 at the place that the index names, which may not be negative, 0 elsewhere; an index outside gives no 1. */
HT_API ht_array *ht_one_hot(ht_scope *s, ht_array *index, int64_t n, ht_dtype dtype);

/* ---- along several axes ---- */
/* Slices [size[0], size[1], ...] of x that begin at index[k] along axis[k] and at 0 along others: the n indices broadcast to
 * one shape, which the sizes, one for each axis of x, follow in the result. A slice has to lie within x; the size
 * HT_OPEN (ops.h) is that of the axis. */
HT_API ht_array *ht_gather(ht_scope *s, ht_array *x, ht_array *const *index, const int *axis, int n,
                           const int64_t *size);

typedef enum ht_scatter_mode {
    HT_SCATTER_SET,
    HT_SCATTER_ADD,
    HT_SCATTER_PROD,
    HT_SCATTER_MIN,
    HT_SCATTER_MAX
} ht_scatter_mode;

/* x with `updates` [the shape of the indices, sizes of a slice for each axis of x] put to where ht_gather would take them
 * from, or joined with what is there. They become of x's dtype. */
HT_API ht_array *ht_scatter(ht_scope *s, ht_array *x, ht_array *const *index, const int *axis, int n, ht_array *updates,
                            ht_scatter_mode mode);

/* ---- a window ---- */
/* x with `update`, which broadcasts and becomes of x's dtype, in the place of ht_slice(s, x, start, stop, step). */
HT_API ht_array *ht_slice_update(ht_scope *s, ht_array *x, ht_array *update, const int64_t *start, const int64_t *stop,
                                 const int64_t *step);
/* The same in the place of ht_slice_range(s, x, start, stop, step). */
HT_API ht_array *ht_slice_update_range(ht_scope *s, ht_array *x, ht_array *update, const int64_t *start,
                                       const int64_t *stop, const int64_t *step);

#ifdef __cplusplus
}
#endif
#endif
