/* Fused transformer operations: norms, rotary embedding and attention, each computed in one pass. Each equals a
 * composition of those in ops.h, which is also what their derivatives are taken of; that of a rotary embedding is one
 * that turns back. Floating point of any dtype, operands meet in the dtype that ht_dtype_promote gives; sums and angles
 * are computed in f32 or better. */
#ifndef HEARTH_FAST_H
#define HEARTH_FAST_H

#include <hearth/array.h>

#ifdef __cplusplus
extern "C" {
#endif

/* x / sqrt(mean(x^2) + eps) * (weight_offset + weight), over the last axis; weight [n] or HT_NONE. */
HT_API ht_array *ht_rms_norm(ht_scope *s, ht_array *x, ht_array *weight, float eps, float weight_offset);
/* (x - mean(x)) / sqrt(var(x) + eps) * weight + bias, over the last axis; weight and bias [n] or HT_NONE. */
HT_API ht_array *ht_layer_norm(ht_scope *s, ht_array *x, ht_array *weight, ht_array *bias, float eps);

typedef struct ht_rope_config {
    float theta;      /* base of the frequencies */
    float scale;      /* factor on positions; 1 for none */
    float magnitude;  /* factor on cos and sin; 1 for none */
    int32_t dims;     /* leading dimensions of a head that are rotated */
    bool interleaved; /* pairs (2 i, 2 i + 1) instead of (i, i + dims / 2) */
} ht_rope_config;

/* Rotary position embedding (Su et al., RoFormer, 2021) of x [..., heads, head_dim] at positions i32 [...]: pair i is turned by
 * pos * scale * theta^(-2 i / dims) / freq_factors[i]; freq_factors f32 [dims / 2] or HT_NONE. */
HT_API ht_array *ht_rope(ht_scope *s, ht_array *x, ht_array *pos, ht_array *freq_factors, const ht_rope_config *how);
/* The same of x [batch, ..., rows, head_dim], whose row t is at position offset + t; offset is an integer without axes, or
 * one per entry of the batch. */
HT_API ht_array *ht_rope_rows(ht_scope *s, ht_array *x, ht_array *offset, ht_array *freq_factors,
                              const ht_rope_config *how);

typedef struct ht_attention_config {
    float scale;    /* factor on the products of queries and keys */
    bool causal;    /* query i sees the keys up to i + n_keys - n_queries: the last one sees all */
    int64_t window; /* with causal: only so many of them, the newest; 0: all */
} ht_attention_config;

/* softmax(scale * q k^T + mask) v of q [batch, heads, n_queries, d], k [batch, kv_heads, n_keys, d] and
 * v [batch, kv_heads, n_keys, dv] -> [batch, heads, n_queries, dv]; query head h reads head h / (heads / kv_heads).
 * `mask` stretches to [batch, heads, n_queries, n_keys]: of bool, false hides a key, else it is added to the score; or
 * HT_NONE. A query from which everything is hidden sees all keys alike. `sinks` [heads] or HT_NONE are scores of keys
 * without a value. Memory beside the operands does not grow with n_queries * n_keys, here and in the gradient of q, k and
 * v. */
HT_API ht_array *ht_scaled_dot_product_attention(ht_scope *s, ht_array *q, ht_array *k, ht_array *v, ht_array *mask,
                                                 ht_array *sinks, const ht_attention_config *how);

#ifdef __cplusplus
}
#endif
#endif
