/* A configuration as config.json, in the spelling of transformers that mlx-lm reads as well: rope_theta with rope_scaling,
 * and Gemma 4's rope_parameters. */
#include "base/error.h"
#include "checkpoint/convert_metadata.h"
#include "checkpoint/family.h"

#include <float.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* An object with a sticky error. */
typedef struct writer {
    ht_json *object;
    const ht_config *config;
    const ht_rope_spec *rope; /* of full-attention layers, with what the tensor of divisors says */
    ht_status status;
    ht_error *err;
} writer;

/* Sets a member to a value, which is taken over. */
static void set(writer *w, const char *key, ht_json *value) {
    if (w->status)
        ht_json_decref(value);
    else if (!value || ht_json_object_set_new(w->object, key, value))
        w->status = ht_fail_memory(w->err, 0, "config.json");
}

static void set_i64(writer *w, const char *key, int64_t value) { set(w, key, ht_json_integer((int64_t)value)); }
static void set_bool(writer *w, const char *key, bool value) { set(w, key, ht_json_boolean(value)); }
static void set_text(writer *w, const char *key, const char *value) { set(w, key, ht_json_string(value)); }

static void refuse(writer *w, const char *what) {
    if (!w->status)
        w->status = ht_fail(w->err, HT_ERR_UNSUPPORTED, "config.json of %s models cannot express that %s",
                            w->config->family->architecture, what);
}

/* A number that came as f32, with the fewest digits that are it there: 1e-6, not 9.99999997e-07. */
static ht_json *short_number(double value) {
    char text[32];
    if ((double)(float)value != value) return ht_json_real(value);
    for (int digits = 1; digits <= 9; digits++) {
        snprintf(text, sizeof text, "%.*g", digits, value);
        if ((float)strtod(text, NULL) == (float)value) return ht_json_real(strtod(text, NULL));
    }
    return ht_json_real(value);
}

static void set_number(writer *w, const char *key, double value) { set(w, key, short_number(value)); }

/* A cap, which is null when there is none. */
static void set_cap(writer *w, const char *key, float cap) {
    set(w, key, cap > 0 ? short_number((double)cap) : ht_json_null());
}

/* ---- RoPE ---- */

static bool put(ht_json *object, const char *key, ht_json *value) {
    return object && value && !ht_json_object_set_new(object, key, value);
}

/* One RoPE object without its theta; NULL when memory ran out. */
static ht_json *rope_object(const ht_rope_spec *r) {
    static const char *const names[] = {[HT_ROPE_PLAIN] = "default",
                                        [HT_ROPE_LINEAR] = "linear",
                                        [HT_ROPE_LLAMA3] = "llama3",
                                        [HT_ROPE_YARN] = "yarn",
                                        [HT_ROPE_PROPORTIONAL] = "proportional"};
    ht_json *o = ht_json_new_object();
    bool good = put(o, "rope_type", ht_json_string(names[r->kind]));
    if (good && r->kind != HT_ROPE_PLAIN && r->factor > 0) good = put(o, "factor", short_number(r->factor));
    if (good && (r->kind == HT_ROPE_LLAMA3 || r->kind == HT_ROPE_YARN))
        good = put(o, "original_max_position_embeddings", ht_json_integer((int64_t)r->original_context));
    if (good && r->kind == HT_ROPE_LLAMA3)
        good = put(o, "low_freq_factor", ht_json_real(r->low_freq_factor)) &&
               put(o, "high_freq_factor", ht_json_real(r->high_freq_factor));
    if (good && r->kind == HT_ROPE_YARN)
        good = put(o, "beta_fast", short_number(r->beta_fast)) && put(o, "beta_slow", short_number(r->beta_slow)) &&
               (!(r->attention_factor > 0) || put(o, "attention_factor", short_number(r->attention_factor))) &&
               (r->mscale_all_dim == 0 || (put(o, "mscale", short_number(r->mscale)) &&
                                           put(o, "mscale_all_dim", short_number(r->mscale_all_dim))));
    if (good && r->kind == HT_ROPE_PROPORTIONAL)
        good = put(o, "partial_rotary_factor", ht_json_real(r->share > 0 ? r->share : 1));
    if (good) return o;
    ht_json_decref(o);
    return NULL;
}

static void set_rope(writer *w) {
    set_number(w, "rope_theta", w->rope->theta);
    set(w, "rope_scaling", w->rope->kind == HT_ROPE_PLAIN ? ht_json_null() : rope_object(w->rope));
    if (w->rope->original_context != floor(w->rope->original_context) || w->rope->original_context > 1e15)
        refuse(w, "RoPE is scaled for a context of no whole number of positions");
    if (w->rope->kind == HT_ROPE_PROPORTIONAL) refuse(w, "some pairs of a head are not rotated");
    if (w->config->family->defaults.local_rope_theta > 0)
        set_number(w, "rope_local_base_freq", w->config->local_rope.theta);
}

/* Gemma 4 has no other spelling than one object per layer type. */
static void set_rope_parameters(writer *w) {
    ht_json *full = rope_object(w->rope), *local = rope_object(&w->config->local_rope);
    const bool good = put(full, "rope_theta", short_number(w->rope->theta)) &&
                      put(local, "rope_theta", short_number(w->config->local_rope.theta));
    set(w, "rope_parameters",
        good ? ht_json_pack("{s:O, s:O}", "full_attention", full, "sliding_attention", local) : NULL);
    ht_json_decref(full);
    ht_json_decref(local);
}

/* ---- parts ---- */

static void set_sizes(writer *w) {
    const ht_config *c = w->config;
    set_i64(w, "vocab_size", c->vocab);
    set_i64(w, "hidden_size", c->hidden);
    set_i64(w, "num_hidden_layers", c->n_layers);
    set_i64(w, "num_attention_heads", c->n_heads);
    set_i64(w, "intermediate_size", c->feed_forward);
    set_i64(w, "max_position_embeddings", c->context);
    set_number(w, "rms_norm_eps", (double)c->rms_eps);
    set_text(w, c->family->defaults.activation_field, c->family->defaults.activation);
    set_bool(w, "tie_word_embeddings", c->tied_head);
    set_bool(w, "use_cache", true);
    set_number(w, "attention_dropout", 0);
    set_number(w, "initializer_range", 0.02);
}

/* All layers with the sizes of the model. */
static void set_uniform(writer *w) {
    const ht_config *c = w->config;
    set_i64(w, "num_key_value_heads", c->n_kv_heads);
    set_i64(w, "head_dim", c->head_dim);
    for (int64_t i = 0; i < c->n_layers; i++) {
        const ht_layer_config *l = &c->layer[i];
        if (l->n_kv_heads != c->n_kv_heads || l->head_dim != c->head_dim)
            refuse(w, "layers have different attention heads");
        if (l->feed_forward != c->feed_forward && !(l->has_experts && l->feed_forward == 0))
            refuse(w, "layers have feed-forwards of different sizes");
    }
}

static void set_layer_types(writer *w) {
    const ht_config *c = w->config;
    ht_json *types = ht_json_new_array();
    bool good = types;
    for (int64_t i = 0; i < c->n_layers && good; i++)
        good = !ht_json_array_append_new(types,
                                         ht_json_string(c->layer[i].slides ? "sliding_attention" : "full_attention"));
    if (good)
        set(w, "layer_types", types);
    else {
        ht_json_decref(types);
        set(w, "layer_types", NULL);
    }
}

/* One member for all attention biases, where a family has them by choice. */
static void set_attention_bias(writer *w) {
    if (w->config->q_bias != w->config->out_bias)
        refuse(w, w->config->q_bias ? "queries have a bias, but attention outputs none"
                                    : "attention outputs have a bias, but queries none");
    set_bool(w, "attention_bias", w->config->q_bias);
}

static void refuse_scale(writer *w) {
    const ht_config *c = w->config;
    if (c->attention_scale != (float)(1 / sqrt((double)c->head_dim))) refuse(w, "attention has a scale of its own");
}

/* ---- families ---- */

static void set_llama(writer *w) {
    set_text(w, "model_type", "llama");
    set_uniform(w);
    set_rope(w);
    set_attention_bias(w);
    set_bool(w, "mlp_bias", w->config->mlp_bias);
    refuse_scale(w);
}

static void set_qwen(writer *w) {
    const ht_config *c = w->config;
    const bool is_qwen2 = c->family->form == HT_CONFIG_QWEN2;
    set_text(w, "model_type", c->family->model_types[0]);
    set_uniform(w);
    set_rope(w);
    set_bool(w, "use_sliding_window", false);
    set(w, "sliding_window", ht_json_null());
    set_i64(w, "max_window_layers", c->n_layers);
    if (!is_qwen2) set_attention_bias(w);
    if (is_qwen2 && (!c->q_bias || c->out_bias)) refuse(w, "queries have no bias, or attention outputs have one");
    if (c->mlp_bias) refuse(w, "feed-forwards have biases");
    refuse_scale(w);
}

static void set_qwen3_moe(writer *w) {
    const ht_config *c = w->config;
    ht_json *dense = ht_json_new_array();
    bool good = dense;
    for (int64_t i = 0; i < c->n_layers && good; i++)
        if (!c->layer[i].has_experts) good = !ht_json_array_append_new(dense, ht_json_integer((int64_t)i));
    set_qwen(w);
    set_i64(w, "num_experts", c->n_experts);
    set_i64(w, "num_experts_per_tok", c->experts_used);
    set_i64(w, "moe_intermediate_size", c->expert_feed_forward);
    set_bool(w, "norm_topk_prob", c->scaled_routing);
    set_i64(w, "decoder_sparse_step", 1);
    set_bool(w, "output_router_logits", false);
    if (good)
        set(w, "mlp_only_layers", dense);
    else {
        ht_json_decref(dense);
        set(w, "mlp_only_layers", NULL);
    }
}

/* query_pre_attn_scalar is 1 / scale^2: a whole number in all models. */
static void set_query_scalar(writer *w) {
    const float scale = w->config->attention_scale;
    const double exact = 1 / ((double)scale * (double)scale), whole = round(exact);
    if ((float)(1 / sqrt(whole)) == scale)
        set_i64(w, "query_pre_attn_scalar", (int64_t)whole);
    else
        set(w, "query_pre_attn_scalar", ht_json_real(exact));
}

static void set_gemma(writer *w) {
    const ht_config *c = w->config;
    set_text(w, "model_type", c->family->model_types[0]);
    set_uniform(w);
    set_rope(w);
    set_text(w, "hidden_act", c->family->defaults.activation);
    set_query_scalar(w);
    set_i64(w, "sliding_window", c->window > 0 ? c->window : c->context);
    set_layer_types(w);
    set_attention_bias(w);
    set_cap(w, "final_logit_softcapping", c->final_softcap);
    set_cap(w, "attn_logit_softcapping", c->attention_softcap);
    if (c->mlp_bias) refuse(w, "feed-forwards have biases");
}

/* The number n of which every n-th layer alone has full attention; 0 when there is none. */
static int64_t pattern_of(const ht_config *c) {
    int64_t pattern = 1;
    while (pattern <= c->n_layers && c->layer[pattern - 1].slides) pattern++;
    for (int64_t i = 0; i < c->n_layers; i++)
        if (c->layer[i].slides != ((i + 1) % pattern != 0)) return 0;
    return pattern;
}

static void set_gemma3(writer *w) {
    const int64_t pattern = pattern_of(w->config);
    set_gemma(w);
    if (pattern) set_i64(w, "sliding_window_pattern", pattern);
    set_bool(w, "use_bidirectional_attention", false);
}

/* ---- Gemma 4 ---- */

/* The layer that shows how sliding layers are, or the others; NULL when there is none. */
static const ht_layer_config *example_of(const ht_config *c, bool slides) {
    for (int64_t i = 0; i < c->n_layers; i++)
        if (c->layer[i].slides == slides) return &c->layer[i];
    return NULL;
}

static void set_gemma4_attention(writer *w) {
    const ht_config *c = w->config;
    const ht_layer_config *local = example_of(c, true), *full = example_of(c, false);
    if (!full) full = local;
    if (!local) local = full;
    int64_t n_shared = 0;
    bool v_is_k = false;
    for (int64_t i = 0; i < c->n_layers; i++) {
        const ht_layer_config *l = &c->layer[i], *like = l->slides ? local : full;
        n_shared += l->kv_layer != i;
        v_is_k |= l->v_is_k;
        if (l->n_kv_heads != like->n_kv_heads || l->head_dim != like->head_dim)
            refuse(w, "layers of one type have different attention heads");
        if (l->v_is_k && l->slides) refuse(w, "keys are values in a sliding layer");
    }
    for (int64_t i = 0; i < c->n_layers; i++)
        if (v_is_k && !c->layer[i].slides && c->layer[i].kv_layer == i && !c->layer[i].v_is_k)
            refuse(w, "keys are values in some layers of full attention alone");
    if (!v_is_k && full->n_kv_heads != local->n_kv_heads)
        refuse(w, "layers of full attention have other K/V heads, but values of their own");
    if (c->layer[c->n_layers - 1].slides) refuse(w, "the last layer has a sliding window");
    set_i64(w, "num_key_value_heads", local->n_kv_heads);
    set_i64(w, "head_dim", local->head_dim);
    set_i64(w, "global_head_dim", full->head_dim);
    set(w, "num_global_key_value_heads", v_is_k ? ht_json_integer((int64_t)full->n_kv_heads) : ht_json_null());
    set_bool(w, "attention_k_eq_v", v_is_k);
    set_i64(w, "num_kv_shared_layers", n_shared);
    set_i64(w, "sliding_window", c->window);
    set_layer_types(w);
    set_attention_bias(w);
}

static void set_gemma4_mlp(writer *w) {
    const ht_config *c = w->config;
    int64_t n_wide = 0, n_shared = 0, n_experts = 0;
    const int64_t narrow = c->layer[0].feed_forward;
    for (int64_t i = 0; i < c->n_layers; i++) {
        const ht_layer_config *l = &c->layer[i];
        const bool wide = l->kv_layer != i && l->feed_forward == 2 * narrow;
        n_wide += wide;
        n_shared += l->kv_layer != i;
        n_experts += l->has_experts;
        if (!wide && l->feed_forward != narrow) refuse(w, "layers have feed-forwards of different sizes");
    }
    if (n_wide && n_wide != n_shared) refuse(w, "some layers alone have a feed-forward of twice the size");
    if (n_experts && n_experts != c->n_layers) refuse(w, "some layers alone have experts");
    set_bool(w, "use_double_wide_mlp", n_wide > 0);
    set_bool(w, "enable_moe_block", n_experts > 0);
    set(w, "num_experts", n_experts ? ht_json_integer((int64_t)c->n_experts) : ht_json_null());
    set(w, "top_k_experts", n_experts ? ht_json_integer((int64_t)c->experts_used) : ht_json_null());
    set(w, "moe_intermediate_size", n_experts ? ht_json_integer((int64_t)c->expert_feed_forward) : ht_json_null());
    set_i64(w, "hidden_size_per_layer_input", c->layer_input);
    set_i64(w, "vocab_size_per_layer_input", c->layer_input ? c->layer_input_vocab : c->vocab);
}

static void set_gemma4(writer *w) {
    set_text(w, "model_type", w->config->family->model_types[0]);
    set_rope_parameters(w);
    set_gemma4_attention(w);
    set_gemma4_mlp(w);
    set_cap(w, "final_logit_softcapping", w->config->final_softcap);
    set(w, "use_bidirectional_attention", ht_json_null());
}

/* ---- the document ---- */

ht_status ht_convert_config_to_json(const ht_config *config, const ht_rope_spec *rope, ht_json **out, ht_error *err) {
    static void (*const set_form[])(writer * w) = {
        [HT_CONFIG_LLAMA] = set_llama,         [HT_CONFIG_QWEN2] = set_qwen,   [HT_CONFIG_QWEN3] = set_qwen,
        [HT_CONFIG_QWEN3_MOE] = set_qwen3_moe, [HT_CONFIG_GEMMA2] = set_gemma, [HT_CONFIG_GEMMA3] = set_gemma3,
        [HT_CONFIG_GEMMA4] = set_gemma4};
    const ht_family *f = config->family;
    *out = NULL;
    if (f->form == HT_CONFIG_NONE)
        return ht_fail(err, HT_ERR_UNSUPPORTED, "a config.json of %s models cannot be written", f->architecture);
    writer w = {.object = ht_json_new_object(), .config = config, .rope = rope, .err = err};
    if (!w.object) w.status = ht_fail_memory(err, 0, "config.json");
    set(&w, "architectures", ht_json_pack("[s]", f->class_name));
    set_sizes(&w);
    set_form[f->form](&w);
    if (w.status)
        ht_json_decref(w.object);
    else
        *out = w.object;
    return w.status;
}
