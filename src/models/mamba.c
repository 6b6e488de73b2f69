#include "models/mamba.h"

#include "checkpoint/convert_metadata.h"
#include "checkpoint/kv_size.h"

#include <stdio.h>
#include <string.h>

bool ht_mamba_has_conv_bias(const ht_config *c, int64_t layer) {
    return c->layer[layer].recurrent && c->recurrence.conv_bias;
}
bool ht_mamba_has_norm(const ht_config *c, int64_t layer) { return c->layer[layer].recurrent && c->recurrence.normed; }

/* ---- the forward function ---- */

/* A segment of the input projection's result `all`. */
static ht_array *segment(ht_ctx *c, const ht_config *cfg, ht_array *all, int which) {
    return ht_decoder_columns(c, all, ht_ssm_rows_before(cfg, which), ht_ssm_rows(cfg, which));
}

/* x [T, n * size] -> [T, n, size] */
static ht_array *split(ht_ctx *c, ht_array *x, int64_t n, int64_t size) {
    return ht_reshape(c->s, x, (int64_t[]){-1, n, size}, 3);
}

/* The norm of each key head's values: y [T, heads * value_dim]. */
static ht_array *normed(ht_ctx *c, const ht_config *cfg, const ht_recurrence_weights *w, ht_array *y) {
    const ht_recurrence_spec *r = &cfg->recurrence;
    const int64_t all = r->heads * r->value_dim, of_group[] = {r->key_heads, all / r->key_heads};
    if (!r->normed) return y;
    y = ht_rms_norm(c->s, split(c, y, of_group[0], of_group[1]), HT_NONE, cfg->norm_eps, 0);
    y = ht_multiply(c->s, y, ht_reshape(c->s, w->norm.weight, of_group, 2));
    return ht_reshape(c->s, y, (int64_t[]){-1, all}, 2);
}

ht_array *ht_mamba2(ht_ctx *c, const ht_config *cfg, const ht_recurrence_weights *w, int index, ht_array *x) {
    ht_scope *s = c->s;
    const ht_recurrence_spec *r = &cfg->recurrence;
    const int64_t n_values = r->heads * r->value_dim, n_keys = r->key_heads * r->key_dim,
                  channels = ht_conv_channels(cfg);
    const ht_state_scan_params how = {.layer = (int32_t)ht_cache_layer_of(cfg, index, true),
                                      .first = (r->taps - 1) * channels};
    ht_array *all = ht_linear(c, x, &w->in); /* the segments: [T, 2 n_values + 2 n_keys + heads] */
    ht_array *gate = ht_silu(s, segment(c, cfg, all, HT_SSM_Z));
    ht_array *xbc = ht_decoder_columns(c, all, ht_ssm_rows_before(cfg, HT_SSM_X), channels);
    ht_array *time = ht_softplus(s, ht_add(s, segment(c, cfg, all, HT_SSM_DT), w->time_bias)); /* steps [T, heads] */
    xbc = ht_silu(s, ht_decoder_convolved(c, cfg, w, index, xbc));
    ht_array *v = split(c, ht_decoder_columns(c, xbc, 0, n_values), r->heads, r->value_dim);
    ht_array *k = split(c, ht_decoder_columns(c, xbc, n_values, n_keys), r->key_heads, r->key_dim);
    ht_array *q = split(c, ht_decoder_columns(c, xbc, n_values + n_keys, n_keys), r->key_heads, r->key_dim);
    ht_array *decay = ht_exp(s, ht_multiply(s, time, w->a));
    ht_array *y = ht_state_scan(c, q, k, ht_multiply(s, v, ht_expand_dims(s, time, 2)), decay, HT_NONE, &how);
    y = ht_add(s, y, ht_multiply(s, v, ht_expand_dims(s, w->skip, 1))); /* [T, heads, value_dim] */
    y = ht_reshape(s, y, (int64_t[]){-1, n_values}, 2);
    y = r->norm_before_gate ? ht_multiply(s, normed(c, cfg, w, y), gate) : normed(c, cfg, w, ht_multiply(s, y, gate));
    return ht_linear(c, y, &w->out);
}

/* ---- configuration ---- */

/* A bound of time steps: 0, or without an end, which transformers 5 writes as an object. */
static bool is_bound(const ht_json *value, bool is_end) {
    if (!is_end) return ht_json_is_number(value) && ht_json_number_value(value) == 0;
    const ht_json *spelled = ht_json_object_get(value, "__float__");
    const char *text = spelled ? ht_json_string_value(spelled) : NULL;
    if (!spelled && value && ht_json_typeof(value) == HT_JSON_NOT_FINITE) text = ht_json_spelling(value);
    return text && strcmp(text, "NaN") && *text != '-';
}

int64_t ht_mamba_head_size(const ht_config *c, int64_t expand) {
    const bool in_range = expand > 0 && expand <= 1 << 10 && c->hidden > 0 && c->hidden <= 1 << 24;
    return in_range && c->recurrence.heads > 0 ? expand * c->hidden / c->recurrence.heads : 0;
}

void ht_mamba_read_json(ht_config *c, ht_json_reader *r, const ht_json *object, const char *head_key, int64_t size) {
    static const char *const biases[] = {"mamba_proj_bias", "projectors_bias", "use_bias"};
    const ht_json *limit = ht_json_array(r, object, "time_step_limit"), *head = ht_json_object_get(object, head_key);
    const char *automatic = ht_json_string_value(head);
    const char *activation = "silu";
    ht_recurrence_spec *of = &c->recurrence;
    ht_json_str(r, object, "mamba_hidden_act", &activation);
    if (strcmp(activation, "silu"))
        ht_json_fail(r, HT_ERR_UNSUPPORTED, "`mamba_hidden_act` is `%.40s`; silu is supported", activation);
    of->value_dim = size;
    if (!automatic || strcmp(automatic, "auto")) ht_json_i64(r, object, head_key, &of->value_dim);
    for (size_t i = 0; i < sizeof biases / sizeof *biases; i++) {
        bool is_biased = false;
        if (ht_json_bool(r, object, biases[i], &is_biased) && is_biased)
            ht_json_fail(r, HT_ERR_UNSUPPORTED,
                         "`%s` is true; projections of recurrent layers without biases are supported", biases[i]);
    }
    if (limit && !(ht_json_array_size(limit) == 2 && is_bound(ht_json_array_get(limit, 0), false) &&
                   is_bound(ht_json_array_get(limit, 1), true)))
        ht_json_fail(r, HT_ERR_UNSUPPORTED,
                     "`time_step_limit` is not from 0 to Infinity; only time steps without limits are "
                     "supported");
}

void ht_mamba_read_gguf(ht_config *c, ht_meta *m) {
    ht_recurrence_spec *r = &c->recurrence;
    const int64_t inner = ht_meta_i64(m, "ssm.inner_size", 0);
    r->value_dim = r->heads > 0 ? inner / r->heads : 0;
    if (r->value_dim * r->heads != inner)
        ht_meta_fail(m, HT_ERR_FORMAT, "`%s.ssm.inner_size` is %lld, which %lld heads cannot share evenly",
                     m->architecture, (long long)inner, (long long)r->heads);
    r->conv_bias = r->normed = false;
    for (int64_t i = 0; i < c->n_layers; i++) {
        r->conv_bias = r->conv_bias || ht_meta_tensor(m, i, "ssm_conv1d.bias");
        r->normed = r->normed || ht_meta_tensor(m, i, "ssm_norm.weight");
    }
}

void ht_mamba_write_gguf(const ht_config *c, ht_document *d) {
    if (c->recurrence.kind)
        ht_gguf_put(d, c, "ssm.inner_size", ht_gguf_u32(c->recurrence.heads * c->recurrence.value_dim));
}
