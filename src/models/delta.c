/* The gated delta rule of Qwen3-Next and Qwen3.5: a short convolution of queries, keys and values, a scan that corrects
 * what its states return for a key, and a gated norm of each head (Yang et al., Gated Delta Networks, 2024). */
#include "checkpoint/kv_size.h"
#include "models/decoder.h"

#include <math.h>

/* x [T, n * size] -> [T, n, size] */
static ht_array *heads_of(ht_ctx *c, ht_array *x, int64_t n, int64_t size) {
    return ht_reshape(c->s, x, (int64_t[]){-1, n, size}, 3);
}

/* Columns of x from `first` on as n heads of the key size, each of L2 norm `length`: x / sqrt(sum x^2 + 1e-6), as an RMS
 * norm. */
static ht_array *unit_heads(ht_ctx *c, const ht_recurrence_spec *r, ht_array *x, int64_t first, double length) {
    const double size = (double)r->key_dim;
    x = heads_of(c, ht_decoder_columns(c, x, first, r->key_heads * r->key_dim), r->key_heads, r->key_dim);
    return ht_scale(c->s, ht_rms_norm(c->s, x, HT_NONE, (float)(1e-6 / size), 0), (float)(length / sqrt(size)));
}

ht_array *ht_gated_delta(ht_ctx *c, const ht_config *cfg, const ht_recurrence_weights *w, int index, ht_array *x) {
    const ht_recurrence_spec *r = &cfg->recurrence;
    const int64_t n_keys = r->key_heads * r->key_dim, n_values = r->heads * r->value_dim;
    ht_scope *s = c->s;
    ht_array *qkv = ht_linear(c, x, &w->qkv), *gate = ht_linear(c, x, &w->gate); /* [T, channels], [T, n_values] */
    ht_array *rate = ht_sigmoid(s, ht_linear(c, x, &w->rate));                   /* [T, heads] */
    ht_array *time = ht_softplus(s, ht_add(s, ht_linear(c, x, &w->decay), w->time_bias));
    ht_array *decay = ht_exp(s, ht_multiply(s, time, w->a)); /* [T, heads] */
    qkv = ht_silu(s, ht_decoder_convolved(c, cfg, w, index, qkv));
    ht_array *q = unit_heads(c, r, qkv, 0, 1 / sqrt((double)r->key_dim)), *k = unit_heads(c, r, qkv, n_keys, 1);
    ht_array *v = heads_of(c, ht_decoder_columns(c, qkv, 2 * n_keys, n_values), r->heads, r->value_dim);
    const ht_state_scan_params how = {.layer = (int32_t)ht_cache_layer_of(cfg, index, true),
                                      .first = (r->taps - 1) * ht_conv_channels(cfg)};
    ht_array *o = ht_state_scan(c, q, k, v, decay, rate, &how); /* [T, heads, value_dim] */
    o = ht_rms_norm(s, o, w->norm.weight, cfg->norm_eps, 0);
    o = ht_reshape(s, o, (int64_t[]){-1, n_values}, 2);
    return ht_linear(c, ht_multiply(s, o, ht_silu(s, gate)), &w->out);
}
