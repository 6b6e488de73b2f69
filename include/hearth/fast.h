/* Fused transformer operations: normalisation, rotary embedding and attention, each computed in one pass. Each equals
 * a composition of operations of ops.h, which also defines its derivatives. Operands are floating point and are
 * converted to their promoted dtype (ht_dtype_promote), the result's dtype; sums and angles are computed in f32 or
 * better. */
#ifndef HEARTH_FAST_H
#define HEARTH_FAST_H

#include <hearth/array.h>

#ifdef __cplusplus
extern "C" {
#endif

/* RMSNorm (Zhang and Sennrich, 2019) over the last axis of x [..., n]: x / sqrt(mean(x^2) + eps) * (weight_offset +
 * weight). weight [n] or HT_NONE; weight_offset is 1 for checkpoints that store weight - 1 (Gemma), else 0. */
HT_API ht_array *ht_rms_norm(ht_scope *s, ht_array *x, ht_array *weight, float eps, float weight_offset);
/* LayerNorm (Ba et al., 2016) over the last axis of x [..., n]: (x - mean(x)) / sqrt(var(x) + eps) * weight + bias.
 * weight [n] and bias [n] may be HT_NONE. */
HT_API ht_array *ht_layer_norm(ht_scope *s, ht_array *x, ht_array *weight, ht_array *bias, float eps);

typedef struct ht_rope_config {
    float theta;      /* base of the frequencies, such as 10000 */
    float scale;      /* factor on positions (linear scaling: 1 / factor); 1 for none */
    float magnitude;  /* factor on cos and sin (YaRN); 1 for none */
    int32_t dims;     /* rotated leading dimensions of a head, even; the others are copied */
    bool interleaved; /* pairs (2 i, 2 i + 1) instead of (i, i + dims / 2) */
} ht_rope_config;

/* Rotary position embedding (Su et al., RoFormer, 2021) of x [..., heads, head_dim] at positions `pos` i32 [...]:
 * pair i is rotated by the angle pos * scale * theta^(-2 i / dims) / freq_factors[i]; freq_factors f32 [dims / 2] or
 * HT_NONE. */
HT_API ht_array *ht_rope(ht_scope *s, ht_array *x, ht_array *pos, ht_array *freq_factors, const ht_rope_config *how);
/* ht_rope of x [batch, ..., rows, head_dim], row t being at position offset + t; `offset` is an integer scalar or
 * [batch]. */
HT_API ht_array *ht_rope_rows(ht_scope *s, ht_array *x, ht_array *offset, ht_array *freq_factors,
                              const ht_rope_config *how);

typedef struct ht_attention_config {
    float scale;    /* factor on q k^T, usually 1 / sqrt(d) */
    bool causal;    /* query i attends to keys 0 .. i + n_keys - n_queries: the last query to all keys */
    int64_t window; /* sliding window: with `causal`, only the newest `window` of these keys; 0: all */
} ht_attention_config;

/* softmax(scale * q k^T + mask) v of q [batch, heads, n_queries, d], k [batch, kv_heads, n_keys, d] and v [batch,
 * kv_heads, n_keys, dv] -> [batch, heads, n_queries, dv]. Query head h attends to key and value head h / (heads /
 * kv_heads) (grouped-query attention).
 *
 * `mask` is HT_NONE or broadcasts to [batch, heads, n_queries, n_keys]: a bool mask hides keys where it is false, any
 * other mask is added to the scores. A query whose keys are all hidden weights all keys equally. `sinks`, HT_NONE or
 * [heads], are scores that enter the denominator of the softmax without a value (attention sinks). Scratch memory
 * does not grow with n_queries * n_keys, nor does that of the gradients of q, k and v. */
HT_API ht_array *ht_scaled_dot_product_attention(ht_scope *s, ht_array *q, ht_array *k, ht_array *v, ht_array *mask,
                                                 ht_array *sinks, const ht_attention_config *how);

#ifdef __cplusplus
}
#endif
#endif
