/* Operations on arrays: creation, views, elementwise functions, reductions, scans and matrix products. Every operation
 * returns a new lazy array that belongs to the scope `s`, or NULL after recording an error in the scope (array.h).
 *
 * Shapes are written [a, b]; `...` stands for any number of leading axes. A negative axis counts from the last one.
 * Names and result dtypes are MLX's where MLX has the operation. Operations on f16 and bf16 compute in f32 and round
 * the result. */
#ifndef HEARTH_OPS_H
#define HEARTH_OPS_H

#include <hearth/array.h>

#ifdef __cplusplus
extern "C" {
#endif

/* ---- creation ---- */

/* Array of `shape`, every element equal to `value` converted to `dtype`. */
HT_API ht_array *ht_full(ht_scope *s, double value, ht_dtype dtype, const int64_t *shape, int n_dims);
/* Array of zeros. */
HT_API ht_array *ht_zeros(ht_scope *s, ht_dtype dtype, const int64_t *shape, int n_dims);
/* Array of ones. */
HT_API ht_array *ht_ones(ht_scope *s, ht_dtype dtype, const int64_t *shape, int n_dims);
/* ht_full with the shape of x. */
HT_API ht_array *ht_full_like(ht_scope *s, ht_array *x, double value, ht_dtype dtype);
/* Zeros of the shape and dtype of x. */
HT_API ht_array *ht_zeros_like(ht_scope *s, ht_array *x);
/* Ones of the shape and dtype of x. */
HT_API ht_array *ht_ones_like(ht_scope *s, ht_array *x);
/* Scalar: the product of the sizes of the axes axis[0 .. n_axes) of x; NULL means all axes. Being an array, the number
 * follows the argument sizes of a shapeless compiled function (transform.h). */
HT_API ht_array *ht_number_of_elements(ht_scope *s, ht_array *x, const int *axis, int n_axes, ht_dtype dtype);
/* Values start, start + step, ... up to, but without, stop. */
HT_API ht_array *ht_arange(ht_scope *s, double start, double stop, double step, ht_dtype dtype);
/* n evenly spaced values from start to stop, both included. */
HT_API ht_array *ht_linspace(ht_scope *s, double start, double stop, int64_t n, ht_dtype dtype);
/* [n, m]: 1 on the k-th diagonal, 0 elsewhere. Diagonal 0 is the main one, k > 0 lies above it, k < 0 below. */
HT_API ht_array *ht_eye(ht_scope *s, int64_t n, int64_t m, int64_t k, ht_dtype dtype);
/* [n, m]: 1 on and below the k-th diagonal, 0 above. */
HT_API ht_array *ht_tri(ht_scope *s, int64_t n, int64_t m, int64_t k, ht_dtype dtype);
/* Lower triangle of x [..., n, m]: elements above the k-th diagonal become 0. */
HT_API ht_array *ht_tril(ht_scope *s, ht_array *x, int64_t k);
/* Upper triangle of x [..., n, m]: elements below the k-th diagonal become 0. */
HT_API ht_array *ht_triu(ht_scope *s, ht_array *x, int64_t k);
/* x converted to `dtype`. Conversion to bool gives x != 0, to integers truncates towards 0; integers wrap around.
 * Returns x itself when x has the dtype. */
HT_API ht_array *ht_astype(ht_scope *s, ht_array *x, ht_dtype dtype);
/* Row-contiguous copy of x, or x itself when x is row-contiguous. */
HT_API ht_array *ht_contiguous(ht_scope *s, ht_array *x);

/* ---- views: share the operand's memory ---- */

/* The elements of x, in row-major order, in another shape of as many elements. One entry of `shape` may be -1: its
 * size is inferred. Copies only when the strides of x allow no view. */
HT_API ht_array *ht_reshape(ht_scope *s, ht_array *x, const int64_t *shape, int n_dims);
/* x reshaped to the shape of `like`. */
HT_API ht_array *ht_reshape_like(ht_scope *s, ht_array *x, ht_array *like);
/* Permuted axes: axis i of the result is axis axes[i] of x. NULL reverses the order of the axes. */
HT_API ht_array *ht_transpose(ht_scope *s, ht_array *x, const int *axes);
/* Strided window on x: element (i, j, ...) is element offset + i * stride[0] + j * stride[1] + ... of x in row-major
 * order. x is made contiguous first. */
HT_API ht_array *ht_as_strided(ht_scope *s, ht_array *x, const int64_t *shape, const int64_t *stride, int n_dims,
                               int64_t offset);
/* Slice of every axis i: indices start[i], start[i] + step[i], ... before stop[i]. `step` may be NULL (all 1); with a
 * negative step the indices fall from start[i] and end above stop[i]. Bounds lie within the axis; HT_OPEN is the first
 * or the last possible bound in the direction of the step, for any axis size. */
HT_API ht_array *ht_slice(ht_scope *s, ht_array *x, const int64_t *start, const int64_t *stop, const int64_t *step);
#define HT_OPEN INT64_MIN
/* ht_slice with bounds read as by Python's x[start:stop:step]: a negative bound counts from the end of the axis, a
 * bound outside the axis is clamped. */
HT_API ht_array *ht_slice_range(ht_scope *s, ht_array *x, const int64_t *start, const int64_t *stop,
                                const int64_t *step);
/* x broadcast to `shape` by NumPy's rule: missing axes are added in front, axes of length 1 are repeated (stride 0). */
HT_API ht_array *ht_broadcast_to(ht_scope *s, ht_array *x, const int64_t *shape, int n_dims);
/* x broadcast to the shape of `like`. */
HT_API ht_array *ht_broadcast_like(ht_scope *s, ht_array *x, ht_array *like);
/* x with an axis of length 1 inserted; `axis` is its position in the result. */
HT_API ht_array *ht_expand_dims(ht_scope *s, ht_array *x, int axis);
/* x without the axis `axis`, whose length must be 1. */
HT_API ht_array *ht_squeeze(ht_scope *s, ht_array *x, int axis);
/* x with axis1 and axis2 exchanged. */
HT_API ht_array *ht_swapaxes(ht_scope *s, ht_array *x, int axis1, int axis2);
/* x with axis `from` moved to position `to`; the other axes keep their order. */
HT_API ht_array *ht_moveaxis(ht_scope *s, ht_array *x, int from, int to);
/* x with the axes first .. last (inclusive) merged into one. Copies when the strides of x allow no view. */
HT_API ht_array *ht_flatten(ht_scope *s, ht_array *x, int first, int last);
/* x with one axis split into axes of sizes `shape`, of which one may be -1 (inferred). */
HT_API ht_array *ht_unflatten(ht_scope *s, ht_array *x, int axis, const int64_t *shape, int n_dims);
/* The bytes of x reinterpreted as `dtype`. When the element sizes differ, the last axis grows or shrinks by their
 * ratio. Copies when the last axis of x is not contiguous. Derivatives treat the result as constant. */
HT_API ht_array *ht_view_as(ht_scope *s, ht_array *x, ht_dtype dtype);
/* Diagonal of two axes: elements (i, i + offset) become the last axis of the result; axis1 and axis2 are removed. */
HT_API ht_array *ht_diagonal(ht_scope *s, ht_array *x, int64_t offset, int axis1, int axis2);
/* Splits an axis at the n indices at[0 .. n) into parts[0 .. n], n + 1 arrays. Returns false, with all parts NULL, on
 * failure. */
HT_API bool ht_split(ht_scope *s, ht_array *x, const int64_t *at, int n, int axis, ht_array **parts);
/* Splits an axis into n parts of equal size, parts[0 .. n). Returns false, with all parts NULL, on failure. */
HT_API bool ht_split_equally(ht_scope *s, ht_array *x, int n, int axis, ht_array **parts);

/* ---- joining, repeating, padding ---- */

/* n > 0 arrays joined along an existing axis, in the dtype to which all of them promote (ht_dtype_promote). */
HT_API ht_array *ht_concatenate(ht_scope *s, ht_array *const *arrays, int n, int axis);
/* n > 0 arrays of one shape joined along a new axis at position `axis` of the result, in their promoted dtype. */
HT_API ht_array *ht_stack(ht_scope *s, ht_array *const *arrays, int n, int axis);
/* Coordinate grids: grids[i] is arrays[i], flattened, along axis i of n axes, and broadcast along the others unless
 * `sparse`. `swap` exchanges the first two axes ("xy" indexing). Returns false, with all grids NULL, on failure. */
HT_API bool ht_meshgrid(ht_scope *s, ht_array *const *arrays, int n, bool sparse, bool swap, ht_array **grids);
/* x repeated as a whole times[i] times along each of the last n axes; leading axes of length 1 are added when x has
 * fewer than n. */
HT_API ht_array *ht_tile(ht_scope *s, ht_array *x, const int64_t *times, int n);
/* x with every element of an axis repeated `times` times in a row. */
HT_API ht_array *ht_repeat(ht_scope *s, ht_array *x, int64_t times, int axis);
/* x with widths[i][0] elements added before and widths[i][1] after axis i. Padding is the scalar `value`, or the
 * nearest edge element with HT_NONE. */
HT_API ht_array *ht_pad(ht_scope *s, ht_array *x, const int64_t (*widths)[2], ht_array *value);
/* x padded by reflection at the ends of each axis, repeatedly when a width exceeds the axis. The edge element is
 * mirrored too ("symmetric" in NumPy) with `edge_again`, else not ("reflect"). */
HT_API ht_array *ht_pad_mirrored(ht_scope *s, ht_array *x, const int64_t (*widths)[2], bool edge_again);
/* x rotated by `shift` positions along an axis; elements shifted past the end reappear at the beginning. */
HT_API ht_array *ht_roll(ht_scope *s, ht_array *x, int64_t shift, int axis);

/* ---- unary elementwise ---- */

/* The result has the dtype of x; integers wrap around. f32 arithmetic flushes denormals to zero, except in
 * ht_negative and ht_abs, which change only the sign bit. */
HT_API ht_array *ht_negative(ht_scope *s, ht_array *x); /* -x; bool is an error */
HT_API ht_array *ht_abs(ht_scope *s, ht_array *x);      /* |x|; the smallest signed integer is its own result */
HT_API ht_array *ht_sign(ht_scope *s, ht_array *x);     /* -1, 0 or 1; 0 for NaN */
HT_API ht_array *ht_square(ht_scope *s, ht_array *x);   /* x * x */
HT_API ht_array *ht_floor(ht_scope *s, ht_array *x);    /* rounded down; integers are unchanged */
HT_API ht_array *ht_ceil(ht_scope *s, ht_array *x);     /* rounded up; integers are unchanged */
/* x rounded to `decimals` digits after the point, which may be negative; halves round to even. */
HT_API ht_array *ht_round(ht_scope *s, ht_array *x, int decimals);
/* x with NaN, +infinity and -infinity replaced by `nan`, `posinf` and `neginf`. NAN for `posinf` or `neginf` means
 * the largest or smallest finite value of the dtype. */
HT_API ht_array *ht_nan_to_num(ht_scope *s, ht_array *x, double nan, double posinf, double neginf);
HT_API ht_array *ht_bitwise_invert(ht_scope *s, ht_array *x); /* ~x, of integers and bool */
HT_API ht_array *ht_relu(ht_scope *s, ht_array *x);           /* maximum(x, 0) */
HT_API ht_array *ht_softplus(ht_scope *s, ht_array *x);       /* log(1 + e^x) */

/* The result is floating point: integers and bool are converted to f32. Arguments outside the domain give NaN. Angles
 * are in radians. */
HT_API ht_array *ht_sqrt(ht_scope *s, ht_array *x);
HT_API ht_array *ht_rsqrt(ht_scope *s, ht_array *x);      /* 1 / sqrt(x) */
HT_API ht_array *ht_reciprocal(ht_scope *s, ht_array *x); /* 1 / x */
HT_API ht_array *ht_exp(ht_scope *s, ht_array *x);        /* e^x */
HT_API ht_array *ht_expm1(ht_scope *s, ht_array *x);      /* e^x - 1, accurate near 0 */
HT_API ht_array *ht_log(ht_scope *s, ht_array *x);        /* natural logarithm */
HT_API ht_array *ht_log2(ht_scope *s, ht_array *x);
HT_API ht_array *ht_log10(ht_scope *s, ht_array *x);
HT_API ht_array *ht_log1p(ht_scope *s, ht_array *x); /* log(1 + x), accurate near 0 */
HT_API ht_array *ht_sin(ht_scope *s, ht_array *x);
HT_API ht_array *ht_cos(ht_scope *s, ht_array *x);
HT_API ht_array *ht_tan(ht_scope *s, ht_array *x);
HT_API ht_array *ht_arcsin(ht_scope *s, ht_array *x); /* in [-pi/2, pi/2] */
HT_API ht_array *ht_arccos(ht_scope *s, ht_array *x); /* in [0, pi] */
HT_API ht_array *ht_arctan(ht_scope *s, ht_array *x); /* in [-pi/2, pi/2] */
HT_API ht_array *ht_sinh(ht_scope *s, ht_array *x);
HT_API ht_array *ht_cosh(ht_scope *s, ht_array *x);
HT_API ht_array *ht_tanh(ht_scope *s, ht_array *x);
HT_API ht_array *ht_erf(ht_scope *s, ht_array *x);       /* 2 / sqrt(pi) * integral of e^(-t^2) from 0 to x */
HT_API ht_array *ht_erfinv(ht_scope *s, ht_array *x);    /* inverse of erf, -1 <= x <= 1 */
HT_API ht_array *ht_sigmoid(ht_scope *s, ht_array *x);   /* 1 / (1 + e^-x) */
HT_API ht_array *ht_silu(ht_scope *s, ht_array *x);      /* x * sigmoid(x) */
HT_API ht_array *ht_gelu(ht_scope *s, ht_array *x);      /* 0.5 x (1 + erf(x / sqrt(2))) */
HT_API ht_array *ht_gelu_tanh(ht_scope *s, ht_array *x); /* 0.5 x (1 + tanh(sqrt(2/pi) (x + 0.044715 x^3))) */

/* The result is bool. */
HT_API ht_array *ht_isnan(ht_scope *s, ht_array *x);
HT_API ht_array *ht_isinf(ht_scope *s, ht_array *x);
HT_API ht_array *ht_isfinite(ht_scope *s, ht_array *x);
HT_API ht_array *ht_logical_not(ht_scope *s, ht_array *x); /* x == 0 */

/* x * value; floating point only. */
HT_API ht_array *ht_scale(ht_scope *s, ht_array *x, float value);
/* value * tanh(x / value), which bounds logits smoothly to +-value; floating point only. */
HT_API ht_array *ht_softcap(ht_scope *s, ht_array *x, float value);

/* ---- binary elementwise ---- */

/* Operands broadcast by NumPy's rule and are converted to their promoted dtype (ht_dtype_promote), the result's
 * dtype. For bool, add is or, subtract is exclusive or, multiply is and. */
HT_API ht_array *ht_add(ht_scope *s, ht_array *a, ht_array *b);
HT_API ht_array *ht_subtract(ht_scope *s, ht_array *a, ht_array *b);
HT_API ht_array *ht_multiply(ht_scope *s, ht_array *a, ht_array *b);
HT_API ht_array *ht_minimum(ht_scope *s, ht_array *a, ht_array *b); /* NaN when either operand is NaN */
HT_API ht_array *ht_maximum(ht_scope *s, ht_array *a, ht_array *b); /* NaN when either operand is NaN */
/* floor(a / b); integers give 0 for b = 0. */
HT_API ht_array *ht_floor_divide(ht_scope *s, ht_array *a, ht_array *b);
/* a - b * floor(a / b), of the sign of b; integers give 0 for b = 0. */
HT_API ht_array *ht_remainder(ht_scope *s, ht_array *a, ht_array *b);
/* a^b; integers truncate the result towards 0. */
HT_API ht_array *ht_power(ht_scope *s, ht_array *a, ht_array *b);

/* The result is floating point: integers and bool are converted to f32. */
HT_API ht_array *ht_divide(ht_scope *s, ht_array *a, ht_array *b);    /* a / b */
HT_API ht_array *ht_logaddexp(ht_scope *s, ht_array *a, ht_array *b); /* log(e^a + e^b) */
HT_API ht_array *ht_arctan2(ht_scope *s, ht_array *a, ht_array *b);   /* angle of the point (x = b, y = a) */

/* The result is bool. Logical operations treat every element other than 0 as true. */
HT_API ht_array *ht_equal(ht_scope *s, ht_array *a, ht_array *b);
HT_API ht_array *ht_not_equal(ht_scope *s, ht_array *a, ht_array *b);
HT_API ht_array *ht_less(ht_scope *s, ht_array *a, ht_array *b);
HT_API ht_array *ht_less_equal(ht_scope *s, ht_array *a, ht_array *b);
HT_API ht_array *ht_greater(ht_scope *s, ht_array *a, ht_array *b);
HT_API ht_array *ht_greater_equal(ht_scope *s, ht_array *a, ht_array *b);
HT_API ht_array *ht_logical_and(ht_scope *s, ht_array *a, ht_array *b);
HT_API ht_array *ht_logical_or(ht_scope *s, ht_array *a, ht_array *b);

/* bool, elementwise: |a - b| <= atol + rtol |b|, or a and b are the same infinity, or, with `equal_nan`, both are
 * NaN. */
HT_API ht_array *ht_isclose(ht_scope *s, ht_array *a, ht_array *b, double rtol, double atol, bool equal_nan);
/* Scalar bool: ht_isclose holds for all elements. */
HT_API ht_array *ht_allclose(ht_scope *s, ht_array *a, ht_array *b, double rtol, double atol, bool equal_nan);
/* Scalar bool: a and b have the same shape and equal elements; with `equal_nan`, NaN equals NaN. */
HT_API ht_array *ht_array_equal(ht_scope *s, ht_array *a, ht_array *b, bool equal_nan);

/* Operands are integers or bool. Shifts convert bool to u8; a shift by the width of the dtype or more gives 0, or -1
 * for a negative number shifted right. */
HT_API ht_array *ht_bitwise_and(ht_scope *s, ht_array *a, ht_array *b);
HT_API ht_array *ht_bitwise_or(ht_scope *s, ht_array *a, ht_array *b);
HT_API ht_array *ht_bitwise_xor(ht_scope *s, ht_array *a, ht_array *b);
HT_API ht_array *ht_left_shift(ht_scope *s, ht_array *a, ht_array *b);  /* a << b */
HT_API ht_array *ht_right_shift(ht_scope *s, ht_array *a, ht_array *b); /* a >> b, arithmetic for signed dtypes */

/* Elements of a where `condition` is not 0, of b elsewhere; all three broadcast. */
HT_API ht_array *ht_where(ht_scope *s, ht_array *condition, ht_array *a, ht_array *b);
/* minimum(maximum(x, low), high); either bound may be HT_NONE. */
HT_API ht_array *ht_clip(ht_scope *s, ht_array *x, ht_array *low, ht_array *high);

/* ---- reductions over the axes axis[0 .. n_axes), NULL meaning all; `keepdims` keeps them with length 1 ---- */

/* Sum; 0 of no elements. Floating-point sums are accumulated in higher precision than the result; integers of fewer
 * than 32 bits are summed in i32 or u32. */
HT_API ht_array *ht_sum(ht_scope *s, ht_array *x, const int *axis, int n_axes, bool keepdims);
/* Product; 1 of no elements. Dtypes as for ht_sum. */
HT_API ht_array *ht_prod(ht_scope *s, ht_array *x, const int *axis, int n_axes, bool keepdims);
/* Mean, in floating point; an error for no elements. */
HT_API ht_array *ht_mean(ht_scope *s, ht_array *x, const int *axis, int n_axes, bool keepdims);
/* Largest element; NaN when there is a NaN; an error for no elements. */
HT_API ht_array *ht_max(ht_scope *s, ht_array *x, const int *axis, int n_axes, bool keepdims);
/* Smallest element; NaN when there is a NaN; an error for no elements. */
HT_API ht_array *ht_min(ht_scope *s, ht_array *x, const int *axis, int n_axes, bool keepdims);
/* Variance sum((x - mean(x))^2) / (n - ddof) of n elements, in floating point; an error for no elements. */
HT_API ht_array *ht_var(ht_scope *s, ht_array *x, const int *axis, int n_axes, bool keepdims, int ddof);
/* Standard deviation: the square root of ht_var. */
HT_API ht_array *ht_std(ht_scope *s, ht_array *x, const int *axis, int n_axes, bool keepdims, int ddof);
/* log(sum(e^x)) without overflow, in floating point; an error for no elements. */
HT_API ht_array *ht_logsumexp(ht_scope *s, ht_array *x, const int *axis, int n_axes, bool keepdims);
/* bool: no element is 0; true for no elements. */
HT_API ht_array *ht_all(ht_scope *s, ht_array *x, const int *axis, int n_axes, bool keepdims);
/* bool: some element is not 0; false for no elements. */
HT_API ht_array *ht_any(ht_scope *s, ht_array *x, const int *axis, int n_axes, bool keepdims);
/* u32: index of the largest element along the axis *axis, or in row-major order over all elements with NULL. Ties
 * give the first index; a NaN counts as largest. An error for no elements. */
HT_API ht_array *ht_argmax(ht_scope *s, ht_array *x, const int *axis, bool keepdims);
/* u32: index of the smallest element, as ht_argmax; a NaN counts as smallest. */
HT_API ht_array *ht_argmin(ht_scope *s, ht_array *x, const int *axis, bool keepdims);

/* ---- softmax and scans along one axis: the result has the shape of x ---- */

/* e^(x - max(x)) / sum(e^(x - max(x))), in floating point. */
HT_API ht_array *ht_softmax(ht_scope *s, ht_array *x, int axis);
/* Cumulative sum: element i is the sum of elements 0 .. i, or 0 .. i - 1 when not `inclusive`. `reverse` scans from the
 * end of the axis. The first element of an exclusive scan is 0. */
HT_API ht_array *ht_cumsum(ht_scope *s, ht_array *x, int axis, bool reverse, bool inclusive);
/* Cumulative product, as ht_cumsum; an exclusive scan begins with 1. */
HT_API ht_array *ht_cumprod(ht_scope *s, ht_array *x, int axis, bool reverse, bool inclusive);
/* Cumulative maximum, as ht_cumsum; an exclusive scan begins with the lowest value of the dtype. */
HT_API ht_array *ht_cummax(ht_scope *s, ht_array *x, int axis, bool reverse, bool inclusive);
/* Cumulative minimum, as ht_cumsum; an exclusive scan begins with the highest value of the dtype. */
HT_API ht_array *ht_cummin(ht_scope *s, ht_array *x, int axis, bool reverse, bool inclusive);
/* Cumulative log(sum(e^x)), as ht_cumsum; an exclusive scan begins with minus infinity. */
HT_API ht_array *ht_logcumsumexp(ht_scope *s, ht_array *x, int axis, bool reverse, bool inclusive);

/* ---- selection over the last axis ---- */

/* Indices of the k largest elements of x f32 [..., n] -> i32 [..., k], in descending order of the elements. Ties come
 * in order of their index; a NaN counts as largest. */
HT_API ht_array *ht_argtopk(ht_scope *s, ht_array *x, int32_t k);

/* ---- matrix product ---- */

/* a [..., m, k] times b [..., k, n], or b [..., n, k] with `transpose_b`, -> [..., m, n], accumulated in f32; leading
 * axes broadcast. A vector [k] is a row on the left and a column on the right, and the result lacks that axis. The
 * promoted dtype (ht_dtype_promote) must be floating point. */
HT_API ht_array *ht_matmul(ht_scope *s, ht_array *a, ht_array *b, bool transpose_b);

#ifdef __cplusplus
}
#endif
#endif
