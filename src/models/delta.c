/* The gated delta rule of Qwen3-Next and Qwen3.5: a short convolution of queries, keys and values, a scan that corrects
 * what its states return for a key, and a gated norm of each head (Yang et al., Gated Delta Networks, 2024). */
#include "checkpoint/kv_size.h"
#include "models/decoder.h"

#include <math.h>

/* Projections of a layer's input. */
typedef struct inputs {
    ht_array *qkv;          /* [T, channels] before the convolution */
    ht_array *gate;         /* [T, heads * value_dim] */
    ht_array *rate, *decay; /* [T, heads], before their functions */
} inputs;

/* x [T, n * size] -> [T, n, size] */
static ht_array *heads_of(ht_ctx *c, ht_array *x, int64_t n, int64_t size) {
    return ht_reshape(c->s, x, (int64_t[]){-1, n, size}, 3);
}

/* Elements [first, first + n) of all rows of x [T, key_heads, *] -> [T, key_heads * n] */
static ht_array *share(ht_ctx *c, const ht_recurrence_spec *r, ht_array *x, int64_t first, int64_t n) {
    const int64_t from[] = {0, 0, first}, to[] = {HT_OPEN, HT_OPEN, first + n};
    return ht_reshape(c->s, ht_slice(c->s, x, from, to, NULL), (int64_t[]){-1, r->key_heads * n}, 2);
}

/* The joined projection's outputs, key head by key head: its query, its key, the values and the gates of its heads. */
static void part(ht_ctx *c, const ht_recurrence_spec *r, ht_array *joined, inputs *out) {
    const int64_t n = r->key_dim, values = r->heads / r->key_heads * r->value_dim;
    ht_array *x = heads_of(c, joined, r->key_heads, 2 * (n + values));
    ht_array *qkv[] = {share(c, r, x, 0, n), share(c, r, x, n, n), share(c, r, x, 2 * n, values)};
    out->qkv = ht_concatenate(c->s, qkv, 3, 1);
    out->gate = share(c, r, x, 2 * n + values, values);
}

/* The same outputs from those of two matrices, to which an adapter of the joined projection is added. */
static void adapt(ht_ctx *c, const ht_recurrence_spec *r, const ht_recurrence_weights *w, ht_array *x, inputs *io) {
    const int64_t n = r->key_heads * r->key_dim, values = r->heads / r->key_heads * r->value_dim;
    ht_array *all[] = {heads_of(c, ht_decoder_columns(c, io->qkv, 0, n), r->key_heads, r->key_dim),
                       heads_of(c, ht_decoder_columns(c, io->qkv, n, n), r->key_heads, r->key_dim),
                       heads_of(c, ht_decoder_columns(c, io->qkv, 2 * n, r->key_heads * values), r->key_heads, values),
                       heads_of(c, io->gate, r->key_heads, values)};
    ht_array *joined = ht_concatenate(c->s, all, 4, 2);
    joined = ht_reshape(c->s, joined, (int64_t[]){-1, 2 * (n + r->key_heads * values)}, 2);
    part(c, r, ht_adapted(c, joined, x, w->qkv.slot), io);
}

/* Qwen3-Next: the rates and decays of a key head's heads follow each other. */
static void project_joined(ht_ctx *c, const ht_recurrence_spec *r, const ht_recurrence_weights *w, ht_array *x,
                           inputs *out) {
    const int64_t per_key = r->heads / r->key_heads;
    ht_array *both = heads_of(c, ht_linear(c, x, &w->rate_decay), r->key_heads, 2 * per_key);
    out->rate = share(c, r, both, 0, per_key);
    out->decay = share(c, r, both, per_key, per_key);
    if (w->in.matrix) {
        part(c, r, ht_linear(c, x, &w->in), out);
        return;
    }
    if (!ht_observe_input(c, x, w->qkv.slot)) x = NULL;
    out->qkv = ht_linear_base(c, x, &w->qkv);
    out->gate = ht_linear_base(c, x, &w->gate);
    if (ht_is_adapted(c, w->qkv.slot)) adapt(c, r, w, x, out);
}

static inputs project(ht_ctx *c, const ht_recurrence_spec *r, const ht_recurrence_weights *w, ht_array *x) {
    inputs in;
    if (w->rate_decay.matrix) {
        project_joined(c, r, w, x, &in);
        return in;
    }
    in = (inputs){ht_linear(c, x, &w->qkv), ht_linear(c, x, &w->gate), ht_linear(c, x, &w->rate),
                  ht_linear(c, x, &w->decay)};
    return in;
}

/* As an RMS norm. */
ht_array *ht_unit_heads(ht_ctx *c, const ht_recurrence_spec *r, ht_array *x, double length) {
    const double size = (double)r->key_dim;
    x = heads_of(c, x, r->key_heads, r->key_dim);
    return ht_scale(c->s, ht_rms_norm(c->s, x, HT_NONE, (float)(1e-6 / size), 0), (float)(length / sqrt(size)));
}

ht_array *ht_gated_delta(ht_ctx *c, const ht_config *cfg, const ht_recurrence_weights *w, int index, ht_array *x) {
    const ht_recurrence_spec *r = &cfg->recurrence;
    const int64_t n_keys = r->key_heads * r->key_dim, n_values = r->heads * r->value_dim;
    ht_scope *s = c->s;
    const inputs in = project(c, r, w, x);
    ht_array *time = ht_softplus(s, ht_add(s, in.decay, w->time_bias));
    ht_array *rate = ht_sigmoid(s, in.rate), *decay = ht_exp(s, ht_multiply(s, time, w->a)); /* [T, heads] */
    ht_array *qkv = ht_silu(s, ht_decoder_convolved(c, cfg, w, index, in.qkv));
    ht_array *q = ht_unit_heads(c, r, ht_decoder_columns(c, qkv, 0, n_keys), 1 / sqrt((double)r->key_dim));
    ht_array *k = ht_unit_heads(c, r, ht_decoder_columns(c, qkv, n_keys, n_keys), 1);
    ht_array *v = heads_of(c, ht_decoder_columns(c, qkv, 2 * n_keys, n_values), r->heads, r->value_dim);
    const ht_state_scan_params how = {.layer = (int32_t)ht_cache_layer_of(cfg, index, true),
                                      .first = (r->taps - 1) * ht_conv_channels(cfg)};
    ht_array *o = ht_state_scan(c, q, k, v, decay, rate, &how); /* [T, heads, value_dim] */
    o = ht_reshape(s, ht_rms_norm(s, o, w->norm.weight, cfg->norm_eps, 0), (int64_t[]){-1, n_values}, 2);
    return ht_linear(c, ht_multiply(s, o, ht_silu(s, in.gate)), &w->out);
}
