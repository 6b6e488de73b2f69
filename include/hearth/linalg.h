/* Tensor contractions: matrix products, inner and outer products, einsum, and norms. Operands are converted to their
 * promoted dtype (ht_dtype_promote), which must be floating point for any contraction. Negative axes count from the
 * last one. The operations are compositions of ht_matmul and ht_multiply (ops.h), except ht_gather_mm. */
#ifndef HEARTH_LINALG_H
#define HEARTH_LINALG_H

#include <hearth/array.h>

#ifdef __cplusplus
extern "C" {
#endif

/* alpha * matmul(a, b) + beta * c; c broadcasts to the shape of the product. */
HT_API ht_array *ht_addmm(ht_scope *s, ht_array *c, ht_array *a, ht_array *b, float alpha, float beta);
/* Inner product over the last axis of a [A..., k] and b [B..., k] -> [A..., B...]; a scalar operand multiplies
 * elementwise. */
HT_API ht_array *ht_inner(ht_scope *s, ht_array *a, ht_array *b);
/* Outer product of the flattened operands -> [size of a, size of b]. */
HT_API ht_array *ht_outer(ht_scope *s, ht_array *a, ht_array *b);
/* Tensor dot product: contracts axis axes_a[i] of a with axis axes_b[i] of b for i < n. The result has the remaining
 * axes of a, then those of b. */
HT_API ht_array *ht_tensordot(ht_scope *s, ht_array *a, ht_array *b, const int *axes_a, const int *axes_b, int n);

/* Einstein summation over n operands. In `subscripts` a letter names an axis, commas separate operands, and "..."
 * stands for unnamed axes, which broadcast: "ij,jk->ik" is a matrix product, "ii->i" a diagonal, "ij->" a sum. Letters
 * absent after the arrow are summed over. Without an arrow the result has the axes of "...", then the letters that
 * occur once, in ASCII order. Three or more operands are contracted pairwise, in greedy order by the size of the result
 * less the sizes of the pair. */
HT_API ht_array *ht_einsum(ht_scope *s, const char *subscripts, ht_array *const *operands, int n);

/* Products of gathered matrices: out[i...] = a[left[i...]] b[right[i...]] of a [..., m, k] and b [..., k, n] -> [i...,
 * m, n]. An index counts matrices over the flattened leading axes of its operand. The integer arrays left and right
 * broadcast to [i...]; HT_NONE stands for 0, 1, ... in the shape of the leading axes. An index out of range is an error
 * of evaluation. */
HT_API ht_array *ht_gather_mm(ht_scope *s, ht_array *a, ht_array *b, ht_array *left, ht_array *right);

/* Vector norm (sum |x|^order)^(1 / order) over the axes axis[0 .. n_axes) together, NULL meaning all. Order INFINITY
 * gives max |x|, -INFINITY min |x|, 0 the number of nonzero elements. */
HT_API ht_array *ht_norm(ht_scope *s, ht_array *x, double order, const int *axis, int n_axes, bool keepdims);

#ifdef __cplusplus
}
#endif
#endif
