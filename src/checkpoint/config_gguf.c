/* Configuration from GGUF metadata; missing fields come from the tensors or the family's defaults. */
#include "base/checked.h"
#include "base/error.h"
#include "checkpoint/family.h"
#include "formats/name_index.h"
#include "tokenizer/vocab.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

/* ---- typed fields ---- */

void ht_meta_fail(ht_meta *m, ht_status status, const char *fmt, ...) {
    if (m->status) return;
    char text[512];
    va_list args;
    va_start(args, fmt);
    vsnprintf(text, sizeof text, fmt, args);
    va_end(args);
    m->status = ht_fail(m->err, status, "%s: %s", m->file, text);
}

const ht_gguf_value *ht_meta_value(ht_meta *m, const char *name) {
    snprintf(m->key, sizeof m->key, "%s.%s", m->architecture, name);
    return ht_gguf_find(m->gguf, m->key);
}

const ht_gguf_tensor *ht_meta_tensor(const ht_meta *m, int64_t layer, const char *name) {
    char whole[64];
    snprintf(whole, sizeof whole, "blk.%lld.%s", (long long)layer, name);
    return ht_gguf_find_tensor(m->gguf, whole);
}

bool ht_meta_has(ht_meta *m, const char *name) { return ht_meta_value(m, name) != NULL; }

static void wrong_type(ht_meta *m, const ht_gguf_value *v, const char *expected) {
    ht_meta_fail(m, HT_ERR_FORMAT, "`%s` is of type %s, expected %s", m->key, ht_gguf_type_name(v->type), expected);
}

int64_t ht_meta_i64(ht_meta *m, const char *name, int64_t fallback) {
    const ht_gguf_value *v = ht_meta_value(m, name);
    if (!v) return fallback;
    int64_t value;
    if (v->type != HT_GGUF_ARRAY && ht_gguf_item_i64(v, 0, &value)) return value;
    wrong_type(m, v, "an integer");
    return fallback;
}

bool ht_meta_bool(ht_meta *m, const char *name, bool fallback) {
    const ht_gguf_value *v = ht_meta_value(m, name);
    bool value = fallback;
    if (v && !ht_gguf_get_bool(m->gguf, m->key, &value)) wrong_type(m, v, "a boolean");
    return value;
}

double ht_meta_f64(ht_meta *m, const char *name, double fallback) {
    const ht_gguf_value *v = ht_meta_value(m, name);
    if (!v) return fallback;
    double value;
    int64_t whole;
    if (v->type != HT_GGUF_ARRAY) {
        if (ht_gguf_item_f64(v, 0, &value) && isfinite(value)) return value;
        if (ht_gguf_item_i64(v, 0, &whole)) return (double)whole;
    }
    wrong_type(m, v, "a finite number");
    return fallback;
}

int64_t ht_meta_uniform_i64(ht_meta *m, const char *name, int64_t fallback) {
    const ht_gguf_value *v = ht_meta_value(m, name);
    if (!v || v->type != HT_GGUF_ARRAY) return ht_meta_i64(m, name, fallback);
    int64_t first = fallback, value;
    for (uint64_t i = 0; i < v->n_items; i++) {
        if (!ht_gguf_item_i64(v, i, &value)) {
            wrong_type(m, v, "integers");
            return fallback;
        }
        if (i == 0) first = value;
        if (value != first) {
            ht_meta_fail(m, HT_ERR_UNSUPPORTED,
                         "`%s` differs between layers (%lld and %lld); %s models with one value for all layers work",
                         m->key, (long long)first, (long long)value, m->architecture);
            return fallback;
        }
    }
    return first;
}

int64_t ht_meta_layer_i64(ht_meta *m, const char *name, int64_t layer, int64_t fallback) {
    const ht_gguf_value *v = ht_meta_value(m, name);
    if (!v || v->type != HT_GGUF_ARRAY) return ht_meta_i64(m, name, fallback);
    int64_t value;
    if (ht_gguf_item_i64(v, (uint64_t)layer, &value)) return value;
    ht_meta_fail(m, HT_ERR_FORMAT, "`%s` has no whole number for layer %lld", m->key, (long long)layer);
    return fallback;
}

bool ht_meta_text(const ht_gguf *g, const char *key, char *out, size_t size) {
    ht_bytes text = {"", 0};
    const bool found = ht_gguf_get_string(g, key, &text);
    snprintf(out, size, "%.*s", (int)(text.len < size ? text.len : size - 1), text.data);
    return found;
}

void ht_meta_string(ht_meta *m, const char *name, char *out, size_t size) {
    const ht_gguf_value *v = ht_meta_value(m, name);
    if (!ht_meta_text(m->gguf, m->key, out, size) && v) wrong_type(m, v, "a string");
}

void ht_gguf_file_type(const char *path, char out[16]) {
    ht_file *file = NULL;
    ht_gguf *gguf = NULL;
    *out = '\0';
    if (!ht_file_open(path, &file, NULL) && !ht_gguf_read(file, path, &gguf, NULL))
        (void)ht_meta_text(gguf, "general.type", out, 16);
    ht_gguf_free(gguf);
    ht_file_close(file);
}

void ht_meta_sizes(ht_meta *m, ht_config *c) {
    /* The last layers of multi-token prediction are not the model's. */
    const int64_t n_blocks = ht_meta_i64(m, "block_count", 0), n_prediction = ht_meta_i64(m, "nextn_predict_layers", 0);
    c->n_layers = n_blocks;
    if (n_prediction < 0 || n_prediction > HT_MAX_LAYERS)
        ht_meta_fail(m, HT_ERR_FORMAT, "`%s.nextn_predict_layers` is %lld, expected 0 to %d", m->architecture,
                     (long long)n_prediction, HT_MAX_LAYERS);
    else if (n_blocks > 0)
        c->n_layers -= n_prediction;
    c->hidden = ht_meta_i64(m, "embedding_length", 0);
    c->n_heads = ht_meta_uniform_i64(m, "attention.head_count", 0);
    c->n_kv_heads = ht_meta_layer_i64(m, "attention.head_count_kv", 0, c->n_heads);
    c->feed_forward = ht_meta_layer_i64(m, "feed_forward_length", 0, 0);
    c->context = ht_meta_i64(m, "context_length", 0);
    c->head_dim = ht_meta_i64(m, "attention.key_length", 0);
    int64_t value_length = ht_meta_i64(m, "attention.value_length", c->head_dim);
    if (c->head_dim == 0 && c->n_heads > 0 && c->hidden % c->n_heads == 0) c->head_dim = c->hidden / c->n_heads;
    if (value_length != 0 && value_length != c->head_dim && !ht_meta_has(m, "attention.kv_lora_rank"))
        ht_meta_fail(m, HT_ERR_UNSUPPORTED,
                     "heads of K have %lld values and heads of V %lld; only equal sizes are supported",
                     (long long)c->head_dim, (long long)value_length);
    c->rope.dims = ht_meta_i64(m, "rope.dimension_count", c->head_dim);
    if (c->rope.dims == c->head_dim) c->rope.dims = 0;
    if (!m->status && (c->n_layers < 1 || c->n_layers > HT_MAX_LAYERS))
        ht_meta_fail(m, HT_ERR_FORMAT, "`%s.block_count` is %lld, expected 1 to %d", m->architecture,
                     (long long)c->n_layers, HT_MAX_LAYERS);
    c->n_experts = ht_meta_i64(m, "expert_count", 0);
    c->experts_used = ht_meta_i64(m, "expert_used_count", 0);
    c->expert_feed_forward = ht_meta_layer_i64(m, "expert_feed_forward_length", 0, 0);
    if (c->n_experts > 0 && c->family && !c->family->routed && !c->family->defaults.n_experts)
        ht_meta_fail(m, HT_ERR_UNSUPPORTED, "`%s.expert_count` is %lld, but %s models are run without experts",
                     m->architecture, (long long)c->n_experts, m->architecture);
    const ht_gguf_value *tokens = ht_gguf_find(m->gguf, "tokenizer.ggml.tokens");
    int64_t n_tokens = tokens && tokens->type == HT_GGUF_ARRAY ? (int64_t)tokens->n_items : 0;
    const ht_gguf_tensor *embedding = ht_gguf_find_tensor(m->gguf, "token_embd.weight");
    c->vocab = embedding && embedding->n_dims == 2 ? embedding->dims[1] : ht_meta_i64(m, "vocab_size", n_tokens);
    if (n_tokens > c->vocab)
        ht_meta_fail(m, HT_ERR_FORMAT, "the tokenizer has %lld tokens, the embedding only %lld rows",
                     (long long)n_tokens, (long long)c->vocab);
}

/* Mixtures of experts. Layers have experts where they have a router. */
static void read_experts(ht_config *c, ht_meta *m) {
    ht_routing *r = &c->routing;
    if (!c->family->defaults.n_experts) return;
    if (c->expert_feed_forward == 0) c->expert_feed_forward = c->feed_forward;
    const int64_t n_shared = ht_meta_i64(m, "expert_shared_count", 0);
    if (!ht_mul_i64(n_shared, c->expert_feed_forward, &c->shared_feed_forward)) c->shared_feed_forward = -1;
    c->shared_feed_forward = ht_meta_i64(m, "expert_shared_feed_forward_length", c->shared_feed_forward);
    const int64_t gating = ht_meta_i64(m, "expert_gating_func", 0);
    if (gating == 1 || gating == 2) r->scores = gating == 2 ? HT_ROUTER_SIGMOID : HT_ROUTER_SOFTMAX;
    r->normalized = ht_meta_bool(m, "expert_weights_norm", r->normalized);
    r->scale = (float)ht_meta_f64(m, "expert_weights_scale", 1);
    r->groups = ht_meta_i64(m, "expert_group_count", 0);
    r->groups_used = ht_meta_i64(m, "expert_group_used_count", 0);
    for (int64_t i = 0; i < c->n_layers; i++) {
        c->layer[i].has_experts = ht_meta_tensor(m, i, "ffn_gate_inp.weight") != NULL;
        if (c->layer[i].has_experts) c->layer[i].feed_forward = 0;
        /* The size of the shared expert is not in all files, and in some it is another one's. */
        const ht_gguf_tensor *shared = ht_meta_tensor(m, i, "ffn_up_shexp.weight");
        if (shared && shared->n_dims == 2) c->shared_feed_forward = shared->dims[1];
    }
}

static void read_layers(ht_config *c, ht_meta *m) {
    ht_config_fill_layers(c);
    for (int64_t i = 0; i < c->n_layers && !m->status; i++) {
        c->layer[i].n_kv_heads = ht_meta_layer_i64(m, "attention.head_count_kv", i, c->n_heads);
        if (c->n_kv_heads == 0) c->n_kv_heads = c->layer[i].n_kv_heads;
        if (c->layer[i].n_kv_heads == 0 && c->family->recurrence) ht_config_make_recurrent(c, i);
        c->layer[i].feed_forward = ht_meta_layer_i64(m, "feed_forward_length", i, 0);
        if (c->feed_forward == 0) c->feed_forward = c->layer[i].feed_forward;
    }
}

static void read_rope(ht_config *c, ht_meta *m) {
    ht_rope_spec *r = &c->rope;
    r->theta = ht_meta_f64(m, "rope.freq_base", c->family->defaults.rope_theta);
    char kind[48];
    ht_meta_string(m, "rope.scaling.type", kind, sizeof kind);
    r->factor = ht_meta_f64(m, "rope.scaling.factor", 0);
    if (!*kind && ht_meta_has(m, "rope.scale_linear")) { /* older spelling */
        snprintf(kind, sizeof kind, "linear");
        r->factor = ht_meta_f64(m, "rope.scale_linear", 0);
    }
    if (*kind && !ht_rope_kind_from_name(kind, &r->kind))
        ht_meta_fail(m, HT_ERR_UNSUPPORTED, "RoPE scaling `%s` is not supported; none, linear, yarn and longrope are",
                     kind);
    r->original_context = ht_meta_f64(m, "rope.scaling.original_context_length", (double)c->context);
    r->beta_fast = ht_meta_f64(m, "rope.scaling.yarn_beta_fast", 32);
    r->beta_slow = ht_meta_f64(m, "rope.scaling.yarn_beta_slow", 1);
    r->attention_factor = ht_meta_f64(m, "rope.scaling.yarn_attn_factor", 0);
    r->mscale_all_dim = ht_meta_f64(m, "rope.scaling.yarn_log_multiplier", 0);
    r->mscale = 1;
    static const char *const ones[] = {"rope.scaling.attn_factor", "rope.scaling.yarn_ext_factor"};
    if (ht_gguf_find_tensor(m->gguf, ht_rope_length_factors[HT_ROPE_OF_LONG]))
        r->kind = HT_ROPE_LONG;
    else if (r->kind == HT_ROPE_LONG)
        ht_meta_fail(m, HT_ERR_FORMAT, "RoPE scaling `%s` without a tensor `%s`", kind,
                     ht_rope_length_factors[HT_ROPE_OF_LONG]);
    for (int k = 0; k < HT_ROPE_LENGTHS; k++) r->length_factor[k] = ht_meta_f64(m, ones[0], 1);
    for (int i = r->kind == HT_ROPE_LONG; i < 2; i++) {
        double value = ht_meta_f64(m, ones[i], 1);
        if (value != 1)
            ht_meta_fail(m, HT_ERR_UNSUPPORTED, "`%s.%s` is %g, expected 1", m->architecture, ones[i], value);
    }
    /* llama3 scaling is a tensor in GGUF: rope_freqs.weight, one divisor per frequency. The values of longrope's two
     * tensors are read with the other tensors (checkpoint.c). */
    double local_theta = c->family->defaults.local_rope_theta;
    c->local_rope.theta = ht_meta_f64(m, "rope.freq_base_swa", local_theta > 0 ? local_theta : r->theta);
}

/* The family's own fields. */
static void read_fields(ht_config *c, ht_meta *m) {
    for (const ht_config_field *f = c->family->fields; f && (f->json || f->gguf); f++) {
        double value;
        if (!f->gguf) continue;
        if (f->type == HT_FIELD_I64)
            value = (double)ht_meta_i64(m, f->gguf, (int64_t)f->fallback);
        else if (f->type == HT_FIELD_BOOL)
            value = ht_meta_bool(m, f->gguf, f->fallback != 0);
        else
            value = ht_meta_f64(m, f->gguf, f->fallback);
        ht_config_set_field(c, f, value);
    }
}

/* Reads fields of embedding models. */
static void read_embedding(ht_config *c, ht_meta *m) {
    static const char *const poolings[] = {"none", "mean", "cls", "last", "rank"};
    const int64_t n = sizeof poolings / sizeof *poolings, type = ht_meta_i64(m, "pooling_type", -1);
    c->pooling = type == -1 ? "" : type >= 0 && type < n ? poolings[type] : "unknown";
    if (!ht_meta_bool(m, "attention.causal", true) && !c->two_sided)
        ht_meta_fail(m, HT_ERR_UNSUPPORTED,
                     "`%s.attention.causal` is false: attention in both directions is not supported", m->architecture);
}

/* EOS ids outside the vocabulary are reported by the tokenizer loader. */
static void read_eos(ht_config *c, ht_meta *m) {
    static const char *const keys[] = {"tokenizer.ggml.eos_token_id", "tokenizer.ggml.eot_token_id",
                                       "tokenizer.ggml.eom_token_id"};
    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++) {
        int64_t id;
        if (!ht_gguf_find(m->gguf, keys[i])) continue;
        if (!ht_gguf_get_i64_saturated(m->gguf, keys[i], &id)) {
            ht_meta_fail(m, HT_ERR_FORMAT, "`%s` is no token id", keys[i]);
            continue;
        }
        ht_config_add_eos(c, id);
        if (i > 0 && (id < 0 || id >= c->vocab)) ht_vocab_warn_outside(m->file, keys[i], id, c->vocab);
    }
}

/* Whether any layer has this tensor. */
static bool layers_have(const ht_config *c, const ht_meta *m, const char *tensor) {
    bool found = false;
    for (int64_t i = 0; i < ht_min_i64(c->n_layers, HT_MAX_LAYERS) && !found; i++)
        found = ht_meta_tensor(m, i, tensor) != NULL;
    return found;
}

ht_status ht_config_from_gguf(const ht_gguf *g, const char *file, ht_config *out, ht_error *err) {
    *out = (ht_config){0};
    ht_meta m = {.gguf = g, .file = file, .err = err};
    ht_bytes name;
    if (!ht_meta_text(g, "general.architecture", m.architecture, sizeof m.architecture)) {
        if (ht_gguf_get_string(g, "general.type", &name) && name.len && !ht_name_problem(name.data, name.len))
            return ht_fail(err, HT_ERR_FORMAT,
                           "%s: there is no `general.architecture`, and `general.type` is `%.*s`: this is no model",
                           file, ht_name_shown(name.data, name.len), name.data);
        return ht_fail(err, HT_ERR_FORMAT, "%s: there is no `general.architecture`", file);
    }
    snprintf(out->architecture, sizeof out->architecture, "%s", m.architecture);
    out->family = ht_family_of_architecture(m.architecture);
    if (out->family == &ht_family_llama && ht_meta_i64(&m, "expert_count", 0) > 0) out->family = &ht_family_mixtral;
    /* Granite 4 without recurrent layers has the architecture of Granite 3, and says whether it has RoPE. */
    if (ht_family_has_architecture(&ht_family_granitehybrid, m.architecture) &&
        ht_meta_has(&m, "rope.scaling.finetuned"))
        out->family = &ht_family_granitehybrid;
    if (!out->family) return ht_family_unknown(file, m.architecture, err);
    (void)ht_meta_text(g, "general.name", out->name, sizeof out->name);
    ht_meta_sizes(&m, out);
    if (!m.status) read_layers(out, &m);
    /* Some files have both: that of the family's kind of norm counts. */
    static const char *const keys[] = {"attention.layer_norm_rms_epsilon", "attention.layer_norm_epsilon"};
    const bool subtracts = out->family->layer_norm;
    const double eps = ht_meta_f64(&m, keys[!subtracts], out->family->defaults.norm_eps);
    out->norm_eps = (float)ht_meta_f64(&m, keys[subtracts], eps);
    ht_config_begin(out);
    out->norm_offset = 0; /* GGUF stores the sum */
    out->two_sided = out->two_sided || ht_family_is_encoder(out->family, m.architecture);
    double scale = out->head_dim > 0 ? 1 / sqrt((double)out->head_dim) : 0;
    out->attention_scale = (float)ht_meta_f64(&m, "attention.scale", scale);
    out->tied_head = !ht_gguf_find_tensor(g, "output.weight");
    const ht_gguf_tensor *types = ht_gguf_find_tensor(g, "token_types.weight");
    if (types && out->two_sided) {
        int64_t n_types = 1;
        (void)ht_gguf_get_i64_saturated(g, HT_GGUF_TOKEN_TYPES, &n_types);
        out->n_token_types = types->n_dims == 2 ? types->dims[1] : n_types;
    }
    const ht_gguf_tensor *labels = ht_gguf_find_tensor(g, "cls.output.weight");
    if (labels && out->two_sided) out->n_labels = labels->n_dims == 1 ? 1 : labels->dims[1];
    out->head_bias = ht_gguf_find_tensor(g, "output.bias") != NULL;
    out->norm_bias = ht_gguf_find_tensor(g, "output_norm.bias") || ht_gguf_find_tensor(g, "token_embd_norm.bias");
    out->head_norms = layers_have(out, &m, "attn_q_norm.weight");
    out->q_bias = layers_have(out, &m, "attn_q.bias") || layers_have(out, &m, "attn_qkv.bias");
    out->out_bias = layers_have(out, &m, "attn_output.bias");
    out->mlp_bias = layers_have(out, &m, "ffn_up.bias");
    read_rope(out, &m);
    read_embedding(out, &m);
    read_eos(out, &m);
    out->is_gguf = true;
    if (!m.status) read_experts(out, &m);
    read_fields(out, &m);
    if (out->family->recurrence && !ht_config_field_of(out->family, offsetof(ht_config, window)) &&
        ht_meta_i64(&m, "attention.sliding_window", 0) > 0)
        ht_meta_fail(&m, HT_ERR_UNSUPPORTED,
                     "`%s.attention.sliding_window` is set; models of this architecture without a window are supported",
                     m.architecture);
    /* The code below indexes layers. */
    if (!m.status && out->family->slides_everywhere) ht_config_slide_by_pattern(out, out->n_layers + 1);
    if (!m.status && out->family->read_gguf) out->family->read_gguf(out, &m);
    if (!m.status) ht_config_end(out);
    return m.status ? m.status : ht_config_check(out, file, err);
}
