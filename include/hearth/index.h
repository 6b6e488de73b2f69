/* Indexing: gather and scatter of elements and slices, and updates of slices.
 *
 * Indices are integers of any dtype; a negative index counts from the end of the axis, an index outside the axis is an
 * error of evaluation that names it. Negative axes count from the last one. Arrays are immutable: a scatter or an
 * update returns a new array, which reuses the buffer of x when nothing else refers to it (buffer donation). Values
 * scattered to one position are applied in row-major order of the indices, for any number of threads: with
 * HT_SCATTER_SET the last one wins. */
#ifndef HEARTH_INDEX_H
#define HEARTH_INDEX_H

#include <hearth/array.h>

#ifdef __cplusplus
extern "C" {
#endif

/* ---- along one axis ---- */
/* Slices of x at the given indices of an axis. The axis is replaced by the axes of `index`: for axis 0, x [n, ...] and
 * index [a, b] give [a, b, ...]. */
HT_API ht_array *ht_take(ht_scope *s, ht_array *x, ht_array *index, int axis);
/* Elements of x at one index each along an axis: out[i][j] = x[index[i][j]][j] for axis 0. x and index have the same
 * number of axes and broadcast along all but `axis`. */
HT_API ht_array *ht_take_along_axis(ht_scope *s, ht_array *x, ht_array *index, int axis);
/* x with the elements that ht_take_along_axis(s, x, index, axis) reads replaced by `values`. `values` broadcasts to the
 * shape of `index` and is converted to x's dtype; `index` broadcasts to x along all axes but `axis`. */
HT_API ht_array *ht_put_along_axis(ht_scope *s, ht_array *x, ht_array *index, ht_array *values, int axis);
/* ht_put_along_axis, adding `values` to the elements of x instead of replacing them. */
HT_API ht_array *ht_scatter_add_axis(ht_scope *s, ht_array *x, ht_array *index, ht_array *values, int axis);
/* One-hot encoding, [...] -> [..., n]: 1 at the index, 0 elsewhere. An index outside 0 .. n - 1, negative ones
 * included, gives a row of zeros. */
HT_API ht_array *ht_one_hot(ht_scope *s, ht_array *index, int64_t n, ht_dtype dtype);

/* ---- along several axes ---- */
/* Slices of x, each of shape size[0 .. n_dims of x). A slice begins at index[k] along axis[k], k < n, and at 0 along
 * all other axes. The n indices broadcast to one shape; the result has that shape followed by the sizes. A slice that
 * does not lie within x is an error of evaluation. The size HT_OPEN (ops.h) is that of the axis. */
HT_API ht_array *ht_gather(ht_scope *s, ht_array *x, ht_array *const *index, const int *axis, int n,
                           const int64_t *size);

typedef enum ht_scatter_mode {
    HT_SCATTER_SET,
    HT_SCATTER_ADD,
    HT_SCATTER_PROD,
    HT_SCATTER_MIN,
    HT_SCATTER_MAX
} ht_scatter_mode;

/* x with `updates` written to the positions that ht_gather reads for the same indices, or combined with the elements
 * there by `mode`. `updates` has the shape of ht_gather's result (the shape of the indices, then the size of a slice
 * along each axis of x) and is converted to x's dtype. */
HT_API ht_array *ht_scatter(ht_scope *s, ht_array *x, ht_array *const *index, const int *axis, int n, ht_array *updates,
                            ht_scatter_mode mode);

/* ---- slices ---- */
/* x with the slice ht_slice(s, x, start, stop, step) replaced by `update`, which broadcasts to the slice's shape and is
 * converted to x's dtype. */
HT_API ht_array *ht_slice_update(ht_scope *s, ht_array *x, ht_array *update, const int64_t *start, const int64_t *stop,
                                 const int64_t *step);
/* ht_slice_update with bounds read as by ht_slice_range. */
HT_API ht_array *ht_slice_update_range(ht_scope *s, ht_array *x, ht_array *update, const int64_t *start,
                                       const int64_t *stop, const int64_t *step);

#ifdef __cplusplus
}
#endif
#endif
