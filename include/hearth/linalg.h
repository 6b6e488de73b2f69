/* Tensor contractions: products of arrays summed over one axis, over several, or in Einstein notation. Operands meet in
 * the dtype that ht_dtype_promote gives, which has to be of floating point wherever elements are summed. Axes may be
 * negative. All is built of ht_matmul (ops.h), or of ht_multiply where nothing is summed. */
#ifndef HEARTH_LINALG_H
#define HEARTH_LINALG_H

#include <hearth/array.h>

#ifdef __cplusplus
extern "C" {
#endif

/* alpha * (a by b) + beta * c; c stretches to the shape of the product. */
HT_API ht_array *ht_addmm(ht_scope *s, ht_array *c, ht_array *a, ht_array *b, float alpha, float beta);
/* [..., k] with [..., k]: over the last axis of both, whose other axes follow one another; a scalar multiplies. */
HT_API ht_array *ht_inner(ht_scope *s, ht_array *a, ht_array *b);
/* Every element of a, flat, times every element of b: [a's size, b's size]. */
HT_API ht_array *ht_outer(ht_scope *s, ht_array *a, ht_array *b);
/* Summed over axis axes_a[i] of a together with axis axes_b[i] of b, for i < n; what is left of a, then of b. */
HT_API ht_array *ht_tensordot(ht_scope *s, ht_array *a, ht_array *b, const int *axes_a, const int *axes_b, int n);

/* The sum of products that `subscripts` writes: a letter names an axis, operands are separated by commas, "..." stands for
 * the axes that have no letter and broadcast. "ij,jk->ik" is a product of matrices, "ii->i" a diagonal, "ij->" a sum.
 * Letters that are missing behind the arrow are summed over; without an arrow the result has the letters that occur
 * once, in their order, behind the axes of "...". Three operands and more are taken two by two, first those whose product
 * is smallest beside them. */
HT_API ht_array *ht_einsum(ht_scope *s, const char *subscripts, ht_array *const *operands, int n);

/* Matrix left[i] of a [..., m, k] by matrix right[i] of b [..., k, n], for every i: matrices are counted over all leading
 * axes. The indices, of any integers, broadcast, and HT_NONE counts up over the leading axes; -> [i..., m, n]. An index
 * outside is an error of evaluation. */
HT_API ht_array *ht_gather_mm(ht_scope *s, ht_array *a, ht_array *b, ht_array *left, ht_array *right);

/* (sum |x|^order)^(1 / order) over axes together (NULL: all); the largest |x| for infinity, the smallest for minus infinity,
 * the number of elements that are not 0 for 0. */
HT_API ht_array *ht_norm(ht_scope *s, ht_array *x, double order, const int *axis, int n_axes, bool keepdims);

#ifdef __cplusplus
}
#endif
#endif
