/* Operations on arrays. Each returns a new lazy array of the scope, or NULL (see array.h). Shapes are written [a, b];
 * `...` stands for any leading axes. Binary operations broadcast as NumPy does; their operands have one dtype. Axes may
 * be negative. Floating-point operations compute f16 and bf16 in f32. */
#ifndef HEARTH_OPS_H
#define HEARTH_OPS_H

#include <hearth/array.h>

#ifdef __cplusplus
extern "C" {
#endif

/* ---- make ---- */
HT_API ht_array *ht_full(ht_scope *s, double value, ht_dtype dtype, const int64_t *shape, int n_dims);
/* start + i * step, i < n */
HT_API ht_array *ht_arange(ht_scope *s, double start, double step, int64_t n, ht_dtype dtype);
HT_API ht_array *ht_cast(ht_scope *s, ht_array *x, ht_dtype dtype);
/* Row-contiguous copy, or x itself when it is contiguous already. */
HT_API ht_array *ht_contiguous(ht_scope *s, ht_array *x);

/* ---- views: share the operand's memory ---- */
/* Same elements, new shape; one axis may be -1. Copies only when the strides do not allow a view. */
HT_API ht_array *ht_reshape(ht_scope *s, ht_array *x, const int64_t *shape, int n_dims);
/* axes[i] is the axis of x that becomes axis i; NULL reverses all. */
HT_API ht_array *ht_transpose(ht_scope *s, ht_array *x, const int *axes);
/* Elements at offset + sum(index * stride), in elements of x's row-major order; x is made contiguous first. */
HT_API ht_array *ht_as_strided(ht_scope *s, ht_array *x, const int64_t *shape, const int64_t *stride, int n_dims,
                               int64_t offset);
/* start[i] <= index < stop[i] in steps of step[i] (NULL: 1; negative steps walk down from start to above stop). */
HT_API ht_array *ht_slice(ht_scope *s, ht_array *x, const int64_t *start, const int64_t *stop, const int64_t *step);
HT_API ht_array *ht_broadcast_to(ht_scope *s, ht_array *x, const int64_t *shape, int n_dims);
HT_API ht_array *ht_expand_dims(ht_scope *s, ht_array *x, int axis);
HT_API ht_array *ht_squeeze(ht_scope *s, ht_array *x, int axis);

/* ---- elementwise: f32 arithmetic takes and gives zero for a denormal; neg and abs change the sign bit alone ---- */
HT_API ht_array *ht_neg(ht_scope *s, ht_array *x);
HT_API ht_array *ht_abs(ht_scope *s, ht_array *x);
HT_API ht_array *ht_square(ht_scope *s, ht_array *x);
HT_API ht_array *ht_sqrt(ht_scope *s, ht_array *x);
HT_API ht_array *ht_rsqrt(ht_scope *s, ht_array *x);
HT_API ht_array *ht_exp(ht_scope *s, ht_array *x);
HT_API ht_array *ht_log(ht_scope *s, ht_array *x);
HT_API ht_array *ht_sin(ht_scope *s, ht_array *x);
HT_API ht_array *ht_cos(ht_scope *s, ht_array *x);
HT_API ht_array *ht_tanh(ht_scope *s, ht_array *x);
HT_API ht_array *ht_sigmoid(ht_scope *s, ht_array *x);
HT_API ht_array *ht_silu(ht_scope *s, ht_array *x);               /* x * sigmoid(x) */
HT_API ht_array *ht_gelu_tanh(ht_scope *s, ht_array *x);          /* 0.5 x (1 + tanh(sqrt(2/pi) (x + 0.044715 x^3))) */
HT_API ht_array *ht_scale(ht_scope *s, ht_array *x, float value); /* x * value */
HT_API ht_array *ht_softcap(ht_scope *s, ht_array *x, float value); /* value * tanh(x / value) */
HT_API ht_array *ht_add(ht_scope *s, ht_array *a, ht_array *b);
HT_API ht_array *ht_sub(ht_scope *s, ht_array *a, ht_array *b);
HT_API ht_array *ht_mul(ht_scope *s, ht_array *a, ht_array *b);
HT_API ht_array *ht_div(ht_scope *s, ht_array *a, ht_array *b);
HT_API ht_array *ht_minimum(ht_scope *s, ht_array *a, ht_array *b);
HT_API ht_array *ht_maximum(ht_scope *s, ht_array *a, ht_array *b);

/* ---- over the last axis ---- */
HT_API ht_array *ht_sum(ht_scope *s, ht_array *x); /* [..., n] -> [...] */
HT_API ht_array *ht_mean(ht_scope *s, ht_array *x);
HT_API ht_array *ht_max(ht_scope *s, ht_array *x);
HT_API ht_array *ht_argmax(ht_scope *s, ht_array *x); /* i32; the lowest index on ties */
HT_API ht_array *ht_softmax(ht_scope *s, ht_array *x);
/* Indices of the k largest of f32 [..., n] -> i32 [..., k], the largest first; the lowest index first among equals, and a
 * NaN before all numbers. */
HT_API ht_array *ht_top_k(ht_scope *s, ht_array *x, int32_t k);
/* Values of x [..., n] at index i32 [..., m] -> [..., m]; an index outside is an error of evaluation. */
HT_API ht_array *ht_take_along(ht_scope *s, ht_array *x, ht_array *index);

/* ---- products and gathers ---- */
/* a [..., m, k] by b [..., k, n], or b [..., n, k] when transpose_b; leading axes broadcast; f32 sums. */
HT_API ht_array *ht_matmul(ht_scope *s, ht_array *a, ht_array *b, bool transpose_b);
/* Rows of x [n, ...] at index i32 [m] -> [m, ...]; an index outside is an error of evaluation. */
HT_API ht_array *ht_take(ht_scope *s, ht_array *x, ht_array *index);

/* ---- fused; each equals a composition of the above ---- */
/* x / sqrt(mean(x^2) + eps) * (weight_offset + weight), over the last axis; weight f32 [n] or HT_NONE. */
HT_API ht_array *ht_rms_norm(ht_scope *s, ht_array *x, ht_array *weight, float eps, float weight_offset);

typedef struct ht_rope_config {
    float theta;      /* base of the frequencies */
    float scale;      /* factor on positions; 1 for none */
    float magnitude;  /* factor on cos and sin; 1 for none */
    int32_t dims;     /* leading dimensions of a head that are rotated */
    bool interleaved; /* pairs (2 i, 2 i + 1) instead of (i, i + dims / 2) */
} ht_rope_config;

/* Rotary position embedding of x f32 [T, heads, head_dim] at positions i32 [T]: pair i is turned by
 * pos * scale * theta^(-2 i / dims) / freq_factors[i]; freq_factors f32 [dims / 2] or HT_NONE. */
HT_API ht_array *ht_rope(ht_scope *s, ht_array *x, ht_array *pos, ht_array *freq_factors, const ht_rope_config *how);

#ifdef __cplusplus
}
#endif
#endif
