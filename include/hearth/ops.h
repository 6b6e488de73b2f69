/* Operations on arrays: elementwise functions, shapes and views, reductions and scans, matrix products. Each returns a
 * new lazy array of the scope, or NULL (see array.h). Shapes are written [a, b]; `...` stands for any leading axes.
 * Names and dtypes are MLX's where both have the operation. Axes may be negative. Floating-point operations compute f16
 * and bf16 in f32. */
#ifndef HEARTH_OPS_H
#define HEARTH_OPS_H

#include <hearth/array.h>

#ifdef __cplusplus
extern "C" {
#endif

/* ---- make ---- */
/* Of a shape, filled with one value converted to the dtype, with 0 or with 1. */
HT_API ht_array *ht_full(ht_scope *s, double value, ht_dtype dtype, const int64_t *shape, int n_dims);
HT_API ht_array *ht_zeros(ht_scope *s, ht_dtype dtype, const int64_t *shape, int n_dims);
HT_API ht_array *ht_ones(ht_scope *s, ht_dtype dtype, const int64_t *shape, int n_dims);
/* Of the shape of x. */
HT_API ht_array *ht_full_like(ht_scope *s, ht_array *x, double value, ht_dtype dtype);
HT_API ht_array *ht_zeros_like(ht_scope *s, ht_array *x);
HT_API ht_array *ht_ones_like(ht_scope *s, ht_array *x);
/* How many elements x has along axis[0 .. n_axes) together, NULL: all; one number without axes. As an array it follows the
 * sizes with which a compiled function is called. */
HT_API ht_array *ht_number_of_elements(ht_scope *s, ht_array *x, const int *axis, int n_axes, ht_dtype dtype);
/* start, start + step, ... before stop. */
HT_API ht_array *ht_arange(ht_scope *s, double start, double stop, double step, ht_dtype dtype);
/* n values from start to stop, both among them. */
HT_API ht_array *ht_linspace(ht_scope *s, double start, double stop, int64_t n, ht_dtype dtype);
/* [n, m]: 1 on the diagonal that begins k columns to the right (k < 0: -k rows down), or on it and to the left of it,
 * else 0. */
HT_API ht_array *ht_eye(ht_scope *s, int64_t n, int64_t m, int64_t k, ht_dtype dtype);
HT_API ht_array *ht_tri(ht_scope *s, int64_t n, int64_t m, int64_t k, ht_dtype dtype);
/* x [..., n, m] with zeros to the right of that diagonal, or to the left. */
HT_API ht_array *ht_tril(ht_scope *s, ht_array *x, int64_t k);
HT_API ht_array *ht_triu(ht_scope *s, ht_array *x, int64_t k);
/* Converted: to bool whether it is not 0; to integers cut off towards 0, integers wrapping around. x itself where it has
 * the dtype. */
HT_API ht_array *ht_astype(ht_scope *s, ht_array *x, ht_dtype dtype);
/* Row-contiguous copy, or x itself when it is contiguous already. */
HT_API ht_array *ht_contiguous(ht_scope *s, ht_array *x);

/* ---- views: share the operand's memory ---- */
/* Same elements, new shape; one axis may be -1. Copies only when the strides do not allow a view. */
HT_API ht_array *ht_reshape(ht_scope *s, ht_array *x, const int64_t *shape, int n_dims);
/* To the shape of another array, of as many elements. */
HT_API ht_array *ht_reshape_like(ht_scope *s, ht_array *x, ht_array *like);
/* axes[i] is the axis of x that becomes axis i; NULL reverses all. */
HT_API ht_array *ht_transpose(ht_scope *s, ht_array *x, const int *axes);
/* Elements at offset + sum(index * stride), in elements of x's row-major order; x is made contiguous first. */
HT_API ht_array *ht_as_strided(ht_scope *s, ht_array *x, const int64_t *shape, const int64_t *stride, int n_dims,
                               int64_t offset);
/* start[i] <= index < stop[i] in steps of step[i] (NULL: 1; negative steps walk down from start to above stop). HT_OPEN as
 * a bound is where the axis begins or ends, seen in the direction of the steps, whatever its size. */
HT_API ht_array *ht_slice(ht_scope *s, ht_array *x, const int64_t *start, const int64_t *stop, const int64_t *step);
#define HT_OPEN INT64_MIN
/* The same, read as Python reads x[start:stop:step]: bounds below 0 count from the end of the axis, those outside are moved to
 * the nearest possible place. */
HT_API ht_array *ht_slice_range(ht_scope *s, ht_array *x, const int64_t *start, const int64_t *stop,
                                const int64_t *step);
/* Stretched as NumPy does it: new axes in front, axes of length 1 repeated without being copied; to the shape of another
 * array. */
HT_API ht_array *ht_broadcast_to(ht_scope *s, ht_array *x, const int64_t *shape, int n_dims);
HT_API ht_array *ht_broadcast_like(ht_scope *s, ht_array *x, ht_array *like);
/* With an axis of length 1 at `axis` of the result, or without such an axis of x, whose length has to be 1. */
HT_API ht_array *ht_expand_dims(ht_scope *s, ht_array *x, int axis);
HT_API ht_array *ht_squeeze(ht_scope *s, ht_array *x, int axis);
/* Two axes change places; one axis is taken out and put in elsewhere. */
HT_API ht_array *ht_swapaxes(ht_scope *s, ht_array *x, int axis1, int axis2);
HT_API ht_array *ht_moveaxis(ht_scope *s, ht_array *x, int from, int to);
/* Axes first .. last as one; copies where strides do not allow a view, as unflatten, which makes several of one (-1 once). */
HT_API ht_array *ht_flatten(ht_scope *s, ht_array *x, int first, int last);
HT_API ht_array *ht_unflatten(ht_scope *s, ht_array *x, int axis, const int64_t *shape, int n_dims);
/* The same bytes as elements of another dtype, of which the last axis has more or fewer where the sizes differ; copies where
 * elements to be joined or cut do not lie behind each other. Constant to derivatives. */
HT_API ht_array *ht_view_as(ht_scope *s, ht_array *x, ht_dtype dtype);
/* Elements (i, i + offset) of two axes, as the last axis of the result. */
HT_API ht_array *ht_diagonal(ht_scope *s, ht_array *x, int64_t offset, int axis1, int axis2);
/* parts[0 .. n] are the pieces of an axis between the places at[0 .. n); false, and all NULL, on failure. */
HT_API bool ht_split(ht_scope *s, ht_array *x, const int64_t *at, int n, int axis, ht_array **parts);
/* parts[0 .. n): the axis in n pieces of one size. */
HT_API bool ht_split_equally(ht_scope *s, ht_array *x, int n, int axis, ht_array **parts);

/* ---- from several, or from one several times ---- */
/* n > 0 arrays behind each other along an axis, or along a new one, in the dtype in which all of them meet. */
HT_API ht_array *ht_concatenate(ht_scope *s, ht_array *const *arrays, int n, int axis);
HT_API ht_array *ht_stack(ht_scope *s, ht_array *const *arrays, int n, int axis);
/* grids[i]: arrays[i], flat, along axis i of n, repeated along the others unless `sparse`. With `swap` the first two axes
 * change places ("xy" indexing). False, and all NULL, on failure. */
HT_API bool ht_meshgrid(ht_scope *s, ht_array *const *arrays, int n, bool sparse, bool swap, ht_array **grids);
/* The whole of x times[i] times along each of the last n axes; new axes come first where x has fewer. */
HT_API ht_array *ht_tile(ht_scope *s, ht_array *x, const int64_t *times, int n);
/* Each element of an axis so many times. */
HT_API ht_array *ht_repeat(ht_scope *s, ht_array *x, int64_t times, int axis);
/* widths[i] elements before and behind axis i: the value, an array without axes, or with HT_NONE the edge. */
HT_API ht_array *ht_pad(ht_scope *s, ht_array *x, const int64_t (*widths)[2], ht_array *value);
/* Those before and behind axis i are its elements mirrored at the end, which is not repeated, or with `edge_again` is; as
 * often as the widths ask for. */
HT_API ht_array *ht_pad_mirrored(ht_scope *s, ht_array *x, const int64_t (*widths)[2], bool edge_again);
/* Elements `shift` places on along an axis, those that leave the end coming in at the beginning. */
HT_API ht_array *ht_roll(ht_scope *s, ht_array *x, int64_t shift, int axis);

/* ---- of one element ---- */
/* f32 arithmetic takes and gives zero for a denormal; negative and abs change the sign bit alone. Results keep the dtype;
 * integers wrap around. */
HT_API ht_array *ht_negative(ht_scope *s, ht_array *x); /* not of bool */
HT_API ht_array *ht_abs(ht_scope *s, ht_array *x);      /* the smallest integer stays as it is */
HT_API ht_array *ht_sign(ht_scope *s, ht_array *x);     /* -1, 0 or 1; 0 for NaN */
HT_API ht_array *ht_square(ht_scope *s, ht_array *x);   /* x * x */
HT_API ht_array *ht_floor(ht_scope *s, ht_array *x);    /* integers are whole already, here and in ceil and round */
HT_API ht_array *ht_ceil(ht_scope *s, ht_array *x);
/* To the nearest value of so many decimals, which may be negative; halves to the even one. */
HT_API ht_array *ht_round(ht_scope *s, ht_array *x, int decimals);
/* NaN becomes `nan`, infinities `posinf` and `neginf`, which are the dtype's largest finite values where NAN is given. */
HT_API ht_array *ht_nan_to_num(ht_scope *s, ht_array *x, double nan, double posinf, double neginf);
HT_API ht_array *ht_bitwise_invert(ht_scope *s, ht_array *x); /* integers and bool */
HT_API ht_array *ht_relu(ht_scope *s, ht_array *x);           /* maximum(x, 0) */
HT_API ht_array *ht_softplus(ht_scope *s, ht_array *x);       /* log(1 + e^x) */

/* To floating point: integers and bool become f32 first. NaN where the function has no value; angles are in radians. */
HT_API ht_array *ht_sqrt(ht_scope *s, ht_array *x);
HT_API ht_array *ht_rsqrt(ht_scope *s, ht_array *x);      /* 1 / sqrt(x) */
HT_API ht_array *ht_reciprocal(ht_scope *s, ht_array *x); /* 1 / x */
HT_API ht_array *ht_exp(ht_scope *s, ht_array *x);        /* e^x */
HT_API ht_array *ht_expm1(ht_scope *s, ht_array *x);      /* e^x - 1, exact near 0 */
HT_API ht_array *ht_log(ht_scope *s, ht_array *x);        /* natural */
HT_API ht_array *ht_log2(ht_scope *s, ht_array *x);
HT_API ht_array *ht_log10(ht_scope *s, ht_array *x);
HT_API ht_array *ht_log1p(ht_scope *s, ht_array *x); /* log(1 + x), exact near 0 */
HT_API ht_array *ht_sin(ht_scope *s, ht_array *x);
HT_API ht_array *ht_cos(ht_scope *s, ht_array *x);
HT_API ht_array *ht_tan(ht_scope *s, ht_array *x);
HT_API ht_array *ht_arcsin(ht_scope *s, ht_array *x); /* -pi/2 to pi/2 */
HT_API ht_array *ht_arccos(ht_scope *s, ht_array *x); /* 0 to pi */
HT_API ht_array *ht_arctan(ht_scope *s, ht_array *x); /* -pi/2 to pi/2 */
HT_API ht_array *ht_sinh(ht_scope *s, ht_array *x);
HT_API ht_array *ht_cosh(ht_scope *s, ht_array *x);
HT_API ht_array *ht_tanh(ht_scope *s, ht_array *x);
HT_API ht_array *ht_erf(ht_scope *s, ht_array *x);       /* 2 / sqrt(pi) times the integral of e^(-t^2) from 0 to x */
HT_API ht_array *ht_erfinv(ht_scope *s, ht_array *x);    /* the y of which erf(y) is x, -1 <= x <= 1 */
HT_API ht_array *ht_sigmoid(ht_scope *s, ht_array *x);   /* 1 / (1 + e^-x) */
HT_API ht_array *ht_silu(ht_scope *s, ht_array *x);      /* x * sigmoid(x) */
HT_API ht_array *ht_gelu(ht_scope *s, ht_array *x);      /* 0.5 x (1 + erf(x / sqrt(2))) */
HT_API ht_array *ht_gelu_tanh(ht_scope *s, ht_array *x); /* 0.5 x (1 + tanh(sqrt(2/pi) (x + 0.044715 x^3))) */

/* To bool. */
HT_API ht_array *ht_isnan(ht_scope *s, ht_array *x);
HT_API ht_array *ht_isinf(ht_scope *s, ht_array *x);
HT_API ht_array *ht_isfinite(ht_scope *s, ht_array *x);
HT_API ht_array *ht_logical_not(ht_scope *s, ht_array *x);

/* With a constant; of floating point alone. */
HT_API ht_array *ht_scale(ht_scope *s, ht_array *x, float value);   /* x * value */
HT_API ht_array *ht_softcap(ht_scope *s, ht_array *x, float value); /* value * tanh(x / value) */

/* ---- of two elements ---- */
/* Operands broadcast as NumPy does it and meet in the dtype that ht_dtype_promote gives, which the result has. Of bools,
 * add is or, subtract is exclusive or, multiply is and. */
HT_API ht_array *ht_add(ht_scope *s, ht_array *a, ht_array *b);
HT_API ht_array *ht_subtract(ht_scope *s, ht_array *a, ht_array *b);
HT_API ht_array *ht_multiply(ht_scope *s, ht_array *a, ht_array *b);
HT_API ht_array *ht_minimum(ht_scope *s, ht_array *a, ht_array *b); /* NaN when either is, as maximum */
HT_API ht_array *ht_maximum(ht_scope *s, ht_array *a, ht_array *b);
/* a / b rounded down, and what is left, a - b * floor(a / b), which has the sign of b. Of integers, 0 for b = 0. */
HT_API ht_array *ht_floor_divide(ht_scope *s, ht_array *a, ht_array *b);
HT_API ht_array *ht_remainder(ht_scope *s, ht_array *a, ht_array *b);
HT_API ht_array *ht_power(ht_scope *s, ht_array *a, ht_array *b); /* a^b; of integers without a fraction */

/* To floating point: integers and bool become f32 first. */
HT_API ht_array *ht_divide(ht_scope *s, ht_array *a, ht_array *b);    /* a / b */
HT_API ht_array *ht_logaddexp(ht_scope *s, ht_array *a, ht_array *b); /* log(e^a + e^b) */
HT_API ht_array *ht_arctan2(ht_scope *s, ht_array *a, ht_array *b);   /* the angle of the point (b, a) */

/* To bool; the logical ones ask whether an element is not 0. */
HT_API ht_array *ht_equal(ht_scope *s, ht_array *a, ht_array *b);
HT_API ht_array *ht_not_equal(ht_scope *s, ht_array *a, ht_array *b);
HT_API ht_array *ht_less(ht_scope *s, ht_array *a, ht_array *b);
HT_API ht_array *ht_less_equal(ht_scope *s, ht_array *a, ht_array *b);
HT_API ht_array *ht_greater(ht_scope *s, ht_array *a, ht_array *b);
HT_API ht_array *ht_greater_equal(ht_scope *s, ht_array *a, ht_array *b);
HT_API ht_array *ht_logical_and(ht_scope *s, ht_array *a, ht_array *b);
HT_API ht_array *ht_logical_or(ht_scope *s, ht_array *a, ht_array *b);

/* |a - b| <= atol + rtol |b|, or both the same infinity, or with `equal_nan` both NaN. */
HT_API ht_array *ht_isclose(ht_scope *s, ht_array *a, ht_array *b, double rtol, double atol, bool equal_nan);
/* One bool: whether all are; and whether shapes and all elements are equal. */
HT_API ht_array *ht_allclose(ht_scope *s, ht_array *a, ht_array *b, double rtol, double atol, bool equal_nan);
HT_API ht_array *ht_array_equal(ht_scope *s, ht_array *a, ht_array *b, bool equal_nan);

/* Integers and bool; a shift makes bool u8, and by as many bits as the dtype has leaves nothing but the sign. */
HT_API ht_array *ht_bitwise_and(ht_scope *s, ht_array *a, ht_array *b);
HT_API ht_array *ht_bitwise_or(ht_scope *s, ht_array *a, ht_array *b);
HT_API ht_array *ht_bitwise_xor(ht_scope *s, ht_array *a, ht_array *b);
HT_API ht_array *ht_left_shift(ht_scope *s, ht_array *a, ht_array *b);
HT_API ht_array *ht_right_shift(ht_scope *s, ht_array *a, ht_array *b);

/* a where condition is not 0, else b; all three broadcast. */
HT_API ht_array *ht_where(ht_scope *s, ht_array *condition, ht_array *a, ht_array *b);
/* minimum(maximum(x, low), high); one of the bounds may be HT_NONE. */
HT_API ht_array *ht_clip(ht_scope *s, ht_array *x, ht_array *low, ht_array *high);

/* ---- over axes ---- */
/* axis[0 .. n_axes) are taken together; NULL: all. keepdims leaves them, of length 1. Floating-point sums are taken in more
 * digits than the result has. */
/* Of no elements 0 and 1; integers of fewer than 64 bits are summed in i32 or u32. */
HT_API ht_array *ht_sum(ht_scope *s, ht_array *x, const int *axis, int n_axes, bool keepdims);
HT_API ht_array *ht_prod(ht_scope *s, ht_array *x, const int *axis, int n_axes, bool keepdims);
/* Of no elements an error, like all that follow but all and any. A NaN is both the largest and the smallest element. */
HT_API ht_array *ht_mean(ht_scope *s, ht_array *x, const int *axis, int n_axes, bool keepdims); /* floating point */
HT_API ht_array *ht_max(ht_scope *s, ht_array *x, const int *axis, int n_axes, bool keepdims);
HT_API ht_array *ht_min(ht_scope *s, ht_array *x, const int *axis, int n_axes, bool keepdims);
/* The mean square distance from the mean and its root, with n - ddof in the place of n; floating point. */
HT_API ht_array *ht_var(ht_scope *s, ht_array *x, const int *axis, int n_axes, bool keepdims, int ddof);
HT_API ht_array *ht_std(ht_scope *s, ht_array *x, const int *axis, int n_axes, bool keepdims, int ddof);
HT_API ht_array *ht_logsumexp(ht_scope *s, ht_array *x, const int *axis, int n_axes, bool keepdims); /* log(sum(e^x)) */
/* bool: whether all elements, or any, are not 0. */
HT_API ht_array *ht_all(ht_scope *s, ht_array *x, const int *axis, int n_axes, bool keepdims);
HT_API ht_array *ht_any(ht_scope *s, ht_array *x, const int *axis, int n_axes, bool keepdims);
/* u32: the place of the largest or smallest element along one axis, or, with NULL, among all in row-major order; the first
 * on ties. */
HT_API ht_array *ht_argmax(ht_scope *s, ht_array *x, const int *axis, bool keepdims);
HT_API ht_array *ht_argmin(ht_scope *s, ht_array *x, const int *axis, bool keepdims);

/* ---- along one axis: the same shape ---- */
/* e^x / sum(e^x), the largest x taken off all first; floating point. */
HT_API ht_array *ht_softmax(ht_scope *s, ht_array *x, int axis);
/* What the elements up to a place give together: from the end when `reverse`; with the one at the place when `inclusive`,
 * else without it, the first being what no elements give (0, 1, the lowest, the highest, minus infinity). */
HT_API ht_array *ht_cumsum(ht_scope *s, ht_array *x, int axis, bool reverse, bool inclusive);
HT_API ht_array *ht_cumprod(ht_scope *s, ht_array *x, int axis, bool reverse, bool inclusive);
HT_API ht_array *ht_cummax(ht_scope *s, ht_array *x, int axis, bool reverse, bool inclusive);
HT_API ht_array *ht_cummin(ht_scope *s, ht_array *x, int axis, bool reverse, bool inclusive);
HT_API ht_array *ht_logcumsumexp(ht_scope *s, ht_array *x, int axis, bool reverse, bool inclusive);

/* ---- over the last axis ---- */
/* Indices of the k largest of f32 [..., n] -> i32 [..., k], the largest first; the lowest index first among equals, and a
 * NaN before all numbers. */
HT_API ht_array *ht_argtopk(ht_scope *s, ht_array *x, int32_t k);

/* ---- products ---- */
/* a [..., m, k] by b [..., k, n], or b [..., n, k] when transpose_b; leading axes broadcast; f32 sums. A vector [k] is a row
 * on the left, a column on the right, and its result lacks that axis. Floating point, as ht_dtype_promote gives it. */
HT_API ht_array *ht_matmul(ht_scope *s, ht_array *a, ht_array *b, bool transpose_b);

#ifdef __cplusplus
}
#endif
#endif
