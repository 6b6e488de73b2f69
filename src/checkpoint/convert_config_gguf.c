/* A configuration as GGUF metadata, the keys that config_gguf.c and the families read. */
#include "base/error.h"
#include "base/log.h"
#include "base/plural.h"
#include "checkpoint/convert_metadata.h"
#include "checkpoint/family.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

/* Metadata of one architecture with a sticky error. */
typedef struct writer {
    ht_json *metadata;
    const ht_config *config;
    const char *architecture;
    ht_status status;
    ht_error *err;
} writer;

/* Sets architecture.name to a value, which is taken over. */
static void set(writer *w, const char *name, ht_json *value) {
    char key[160];
    snprintf(key, sizeof key, "%s.%s", w->architecture, name);
    if (w->status)
        ht_json_decref(value);
    else if (!value || ht_json_object_set_new(w->metadata, key, value))
        w->status = ht_fail_memory(w->err, 0, "GGUF metadata");
}

static void set_i64(writer *w, const char *name, int64_t value) {
    set(w, name, ht_json_pack("{s:s, s:I}", "dtype", "u32", "value", (int64_t)value));
}

static void set_f64(writer *w, const char *name, double value) {
    set(w, name, ht_json_pack("{s:s, s:f}", "dtype", "f32", "value", value));
}

static void refuse(writer *w, const char *what) {
    if (!w->status)
        w->status =
            ht_fail(w->err, HT_ERR_UNSUPPORTED, "config.json: GGUF's %s cannot express that %s", w->architecture, what);
}

typedef int64_t layer_value(const ht_config *config, int64_t layer);

/* One number where all layers have it, else a list. */
static void set_layers(writer *w, const char *name, layer_value *value) {
    const ht_config *c = w->config;
    bool uniform = true;
    for (int64_t i = 1; i < c->n_layers; i++) uniform &= value(c, i) == value(c, 0);
    if (uniform) {
        set_i64(w, name, value(c, 0));
        return;
    }
    ht_json *list = ht_json_new_array();
    bool good = list;
    for (int64_t i = 0; i < c->n_layers && good; i++)
        good = !ht_json_array_append_new(list, ht_json_integer((int64_t)value(c, i)));
    set(w, name, good ? ht_json_pack("{s:s, s:O}", "dtype", "i32", "value", list) : NULL);
    ht_json_decref(list);
}

static int64_t kv_heads_of(const ht_config *c, int64_t i) { return c->layer[i].n_kv_heads; }

/* Layers whose only feed-forward are experts have none of their own. */
static int64_t feed_forward_of(const ht_config *c, int64_t i) {
    return c->layer[i].feed_forward > 0 ? c->layer[i].feed_forward : c->feed_forward;
}

/* Head size of the layers with or without a sliding window; of all, when there are none. */
static int64_t head_dim_of(writer *w, bool slides) {
    const ht_config *c = w->config;
    int64_t found = 0;
    for (int64_t i = 0; i < c->n_layers; i++) {
        if (c->layer[i].slides != slides) continue;
        if (found && c->layer[i].head_dim != found) refuse(w, "layers of one type have heads of different sizes");
        found = c->layer[i].head_dim;
    }
    return found ? found : c->layer[0].head_dim;
}

/* ---- parts ---- */

static void set_sizes(writer *w) {
    const ht_config *c = w->config;
    const int64_t head_dim = head_dim_of(w, false);
    set_i64(w, "block_count", c->n_layers);
    set_i64(w, "embedding_length", c->hidden);
    set_layers(w, "feed_forward_length", feed_forward_of);
    set_i64(w, "attention.head_count", c->n_heads);
    set_layers(w, "attention.head_count_kv", kv_heads_of);
    set_i64(w, "attention.key_length", head_dim);
    set_i64(w, "attention.value_length", head_dim);
    set_f64(w, "attention.layer_norm_rms_epsilon", (double)c->rms_eps);
    set_i64(w, "vocab_size", c->vocab);
    set_i64(w, "rope.dimension_count", head_dim);
}

static void set_experts(writer *w) {
    const ht_config *c = w->config;
    if (c->n_experts == 0) return;
    set_i64(w, "expert_count", c->n_experts);
    set_i64(w, "expert_used_count", c->experts_used);
    set_i64(w, "expert_feed_forward_length", c->expert_feed_forward);
    if (!c->scaled_routing) refuse(w, "the weights of the chosen experts stay unscaled (`norm_topk_prob` is false)");
}

/* yarn's magnitude, when it is not what the factor implies. */
static void set_yarn(writer *w) {
    const ht_rope_spec *r = &w->config->rope;
    ht_rope_spec bare = *r;
    ht_rope_config how, implied;
    float factors[2];
    bare.attention_factor = bare.mscale = bare.mscale_all_dim = 0;
    (void)ht_rope_prepare(r, 2, &how, factors);
    (void)ht_rope_prepare(&bare, 2, &implied, factors);
    set_i64(w, "rope.scaling.original_context_length", (int64_t)r->original_context);
    if (r->original_context != floor(r->original_context) || r->original_context > INT32_MAX)
        refuse(w, "yarn's `original_max_position_embeddings` is no whole number of positions");
    set_f64(w, "rope.scaling.yarn_beta_fast", r->beta_fast);
    set_f64(w, "rope.scaling.yarn_beta_slow", r->beta_slow);
    if (how.magnitude != implied.magnitude) set_f64(w, "rope.scaling.yarn_attn_factor", (double)how.magnitude);
    if (r->no_truncate) refuse(w, "the bounds of yarn's ramp are not rounded (`truncate` is false)");
}

static void set_rope(writer *w) {
    const ht_rope_spec *r = &w->config->rope;
    set_f64(w, "rope.freq_base", r->theta);
    if (r->kind == HT_ROPE_LINEAR || r->kind == HT_ROPE_YARN) {
        set(w, "rope.scaling.type", ht_json_string(r->kind == HT_ROPE_YARN ? "yarn" : "linear"));
        set_f64(w, "rope.scaling.factor", r->factor);
    }
    if (r->kind == HT_ROPE_YARN) set_yarn(w);
    if (w->config->family->defaults.local_rope_theta > 0) {
        set_f64(w, "rope.freq_base_swa", w->config->local_rope.theta);
        if (w->config->local_rope.kind != HT_ROPE_PLAIN) refuse(w, "sliding layers have a RoPE scaling");
    }
}

static bool any_slides(const ht_config *c) {
    for (int64_t i = 0; i < c->n_layers; i++)
        if (c->layer[i].slides) return true;
    return false;
}

/* Of the families here Gemma's alone have keys for a window. Others attend alike as long as the context fits into it. */
static void set_context(writer *w, bool has_window) {
    const ht_config *c = w->config;
    const bool limits = !has_window && any_slides(c) && c->window < c->context;
    if (limits)
        ht_log_write(
            HT_LOG_WARNING,
            "config.json: GGUF's %s has no sliding window; the context is the window of %lld position%s, not %lld",
            w->architecture, (long long)c->window, ht_plural(c->window), (long long)c->context);
    set_i64(w, "context_length", limits ? c->window : c->context);
}

static void set_window(writer *w) {
    const ht_config *c = w->config;
    ht_json *pattern = ht_json_new_array();
    bool good = pattern;
    for (int64_t i = 0; i < c->n_layers && good; i++)
        good = !ht_json_array_append_new(pattern, ht_json_boolean(c->layer[i].slides));
    set_i64(w, "attention.sliding_window", c->window);
    set(w, "attention.sliding_window_pattern",
        good ? ht_json_pack("{s:s, s:O}", "dtype", "bool", "value", pattern) : NULL);
    ht_json_decref(pattern);
}

/* ---- families ---- */

static void set_gemma2(writer *w) {
    set_f64(w, "attention.scale", (double)w->config->attention_scale);
    set_f64(w, "attn_logit_softcapping", (double)w->config->attention_softcap);
    set_f64(w, "final_logit_softcapping", (double)w->config->final_softcap);
}

static void set_gemma3(writer *w) {
    set_f64(w, "attention.scale", (double)w->config->attention_scale);
    if (w->config->final_softcap > 0) set_f64(w, "final_logit_softcapping", (double)w->config->final_softcap);
}

static void set_gemma4(writer *w) {
    const ht_config *c = w->config;
    const int64_t local = head_dim_of(w, true);
    int64_t n_shared = 0;
    for (int64_t i = 0; i < c->n_layers; i++) n_shared += c->layer[i].kv_layer != i;
    set_i64(w, "attention.key_length_swa", local);
    set_i64(w, "attention.value_length_swa", local);
    set_i64(w, "rope.dimension_count_swa", local);
    set_i64(w, "attention.shared_kv_layers", n_shared);
    set_i64(w, "embedding_length_per_layer_input", c->layer_input);
    if (c->final_softcap > 0) set_f64(w, "final_logit_softcapping", (double)c->final_softcap);
    if (c->layer_input && c->layer_input_vocab != c->vocab)
        refuse(w, "`vocab_size_per_layer_input` is another number than `vocab_size`");
}

static void set_family(writer *w) {
    const ht_config *c = w->config;
    const bool is_gemma2 = c->family->form == HT_CONFIG_GEMMA2, is_gemma3 = c->family->form == HT_CONFIG_GEMMA3,
               is_gemma4 = c->family->form == HT_CONFIG_GEMMA4, has_window = is_gemma2 || is_gemma3 || is_gemma4;
    set_context(w, has_window);
    if (has_window) set_window(w);
    if (is_gemma2) set_gemma2(w);
    if (is_gemma3) set_gemma3(w);
    if (is_gemma4) set_gemma4(w);
    if (!is_gemma2 && c->attention_softcap > 0) refuse(w, "attention scores are capped");
    if (!has_window && c->attention_scale != (float)(1 / sqrt((double)c->head_dim)))
        set_f64(w, "attention.scale", (double)c->attention_scale);
}

ht_status ht_convert_config_to_gguf(const ht_config *config, ht_json *metadata, ht_error *err) {
    const ht_family *f = config->family;
    writer w = {.metadata = metadata,
                .config = config,
                .architecture = f->gguf_architecture ? f->gguf_architecture : f->architecture,
                .err = err};
    set_sizes(&w);
    set_experts(&w);
    set_rope(&w);
    set_family(&w);
    return w.status;
}
