/* The JSON documents of a directory made from a GGUF file: config.json, generation_config.json and the tokenizer's.
 * config.json uses the spelling of transformers that mlx-lm reads too: rope_theta with rope_scaling, and Gemma 4's
 * rope_parameters. */
#include "base/error.h"
#include "checkpoint/chat_detection.h"
#include "checkpoint/convert_metadata.h"
#include "checkpoint/family.h"
#include "checkpoint/sampling.h"
#include "tokenizer/save.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- config.json ---- */

typedef struct writer {
    ht_document d;
    const ht_config *config;
    const ht_rope_spec *rope; /* of full-attention layers, with the tensor of divisors applied */
} writer;

static void set(writer *w, const char *key, ht_json *value) { ht_document_set(&w->d, key, value); }
static void set_i64(writer *w, const char *key, int64_t value) { set(w, key, ht_json_integer(value)); }
static void set_bool(writer *w, const char *key, bool value) { set(w, key, ht_json_boolean(value)); }
static void set_text(writer *w, const char *key, const char *value) { set(w, key, ht_json_string(value)); }

static void refuse(writer *w, const char *what) {
    if (!w->d.status)
        w->d.status = ht_fail(w->d.err, HT_ERR_UNSUPPORTED, "config.json of %s models cannot express that %s",
                              w->config->family->architecture, what);
}

static ht_json *short_number(double value) { return ht_json_real(ht_short_decimal(value)); }

static void set_number(writer *w, const char *key, double value) { set(w, key, short_number(value)); }

/* Sets a softcap; null without one. */
static void set_cap(writer *w, const char *key, float cap) {
    set(w, key, cap > 0 ? short_number((double)cap) : ht_json_null());
}

/* One RoPE object; NULL when out of memory. Gemma 4 requires one object, including theta, per layer type. */
static ht_json *rope_object(const writer *w, const ht_rope_spec *r, bool has_theta) {
    static const char *const names[] = {[HT_ROPE_PLAIN] = "default",
                                        [HT_ROPE_LINEAR] = "linear",
                                        [HT_ROPE_LLAMA3] = "llama3",
                                        [HT_ROPE_YARN] = "yarn",
                                        [HT_ROPE_PROPORTIONAL] = "proportional"};
    ht_document d = {ht_json_new_object(), "config.json", HT_OK, w->d.err};
    ht_document_set(&d, "rope_type", ht_json_string(names[r->kind]));
    if (r->kind != HT_ROPE_PLAIN && r->factor > 0) ht_document_set(&d, "factor", short_number(r->factor));
    if (r->kind == HT_ROPE_LLAMA3 || r->kind == HT_ROPE_YARN)
        ht_document_set(&d, "original_max_position_embeddings", ht_json_integer((int64_t)r->original_context));
    if (r->kind == HT_ROPE_LLAMA3) {
        ht_document_set(&d, "low_freq_factor", ht_json_real(r->low_freq_factor));
        ht_document_set(&d, "high_freq_factor", ht_json_real(r->high_freq_factor));
    }
    if (r->kind == HT_ROPE_YARN) {
        ht_document_set(&d, "beta_fast", short_number(r->beta_fast));
        ht_document_set(&d, "beta_slow", short_number(r->beta_slow));
        if (r->attention_factor > 0) ht_document_set(&d, "attention_factor", short_number(r->attention_factor));
        if (r->mscale_all_dim != 0) {
            ht_document_set(&d, "mscale", short_number(r->mscale));
            ht_document_set(&d, "mscale_all_dim", short_number(r->mscale_all_dim));
        }
    }
    if (r->kind == HT_ROPE_PROPORTIONAL)
        ht_document_set(&d, "partial_rotary_factor", ht_json_real(r->share > 0 ? r->share : 1));
    if (has_theta) ht_document_set(&d, "rope_theta", short_number(r->theta));
    return ht_document_take(&d);
}

static void set_rope(writer *w) {
    set_number(w, "rope_theta", w->rope->theta);
    set(w, "rope_scaling", w->rope->kind == HT_ROPE_PLAIN ? ht_json_null() : rope_object(w, w->rope, false));
    if (w->rope->original_context != floor(w->rope->original_context) || w->rope->original_context > 1e15)
        refuse(w, "RoPE is scaled for a context of no whole number of positions");
    if (w->rope->kind == HT_ROPE_PROPORTIONAL) refuse(w, "some pairs of a head are not rotated");
    if (w->config->has_local_rope) set_number(w, "rope_local_base_freq", w->config->local_rope.theta);
}

static void set_sizes(writer *w) {
    const ht_config *c = w->config;
    set_i64(w, "vocab_size", c->vocab);
    set_i64(w, "hidden_size", c->hidden);
    set_i64(w, "num_hidden_layers", c->n_layers);
    set_i64(w, "num_attention_heads", c->n_heads);
    set_i64(w, "intermediate_size", c->feed_forward);
    set_i64(w, "max_position_embeddings", c->context);
    set_number(w, "rms_norm_eps", (double)c->norm_eps);
    set_text(w, c->family->defaults.activation_field, c->family->defaults.activation);
    set_bool(w, "tie_word_embeddings", c->tied_head);
    set_bool(w, "use_cache", true);
    set_number(w, "attention_dropout", 0);
    set_number(w, "initializer_range", 0.02);
}

/* Writes the model's sizes; all layers must have them. */
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
    for (int64_t i = 0; i < c->n_layers; i++)
        ht_list_append(&types, ht_json_string(c->layer[i].slides ? "sliding_attention" : "full_attention"));
    set(w, "layer_types", types);
}

/* One field for all attention biases, in families where they are optional. */
static void set_attention_bias(writer *w) {
    if (w->config->q_bias != w->config->out_bias)
        refuse(w, w->config->q_bias ? "queries have a bias, but attention outputs none"
                                    : "attention outputs have a bias, but queries none");
    set_bool(w, "attention_bias", w->config->q_bias);
}

static void refuse_scale(writer *w) {
    const ht_config *c = w->config;
    if (c->attention_scale != (float)(1 / sqrt((double)c->head_dim)))
        refuse(w, "the attention scale is not 1 / sqrt(head_dim)");
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
    for (int64_t i = 0; i < c->n_layers; i++)
        if (!c->layer[i].has_experts) ht_list_append(&dense, ht_json_integer(i));
    set_qwen(w);
    set_i64(w, "num_experts", c->n_experts);
    set_i64(w, "num_experts_per_tok", c->experts_used);
    set_i64(w, "moe_intermediate_size", c->expert_feed_forward);
    set_bool(w, "norm_topk_prob", c->routing.normalized);
    set_i64(w, "decoder_sparse_step", 1);
    set_bool(w, "output_router_logits", false);
    set(w, "mlp_only_layers", dense);
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

/* n if only every n-th layer has full attention; else 0. */
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

/* A layer that represents the sliding layers, or the others; NULL if there are none. */
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
    set(w, "num_global_key_value_heads", v_is_k ? ht_json_integer(full->n_kv_heads) : ht_json_null());
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
    set(w, "num_experts", n_experts ? ht_json_integer(c->n_experts) : ht_json_null());
    set(w, "top_k_experts", n_experts ? ht_json_integer(c->experts_used) : ht_json_null());
    set(w, "moe_intermediate_size", n_experts ? ht_json_integer(c->expert_feed_forward) : ht_json_null());
    set_i64(w, "hidden_size_per_layer_input", c->layer_input);
    set_i64(w, "vocab_size_per_layer_input", c->layer_input ? c->layer_input_vocab : c->vocab);
}

static void set_gemma4(writer *w) {
    set_text(w, "model_type", w->config->family->model_types[0]);
    set(w, "rope_parameters",
        ht_json_pack("{s:o, s:o}", "full_attention", rope_object(w, w->rope, true), "sliding_attention",
                     rope_object(w, &w->config->local_rope, true)));
    set_gemma4_attention(w);
    set_gemma4_mlp(w);
    set_cap(w, "final_logit_softcapping", w->config->final_softcap);
    set(w, "use_bidirectional_attention", ht_json_null());
}

ht_status ht_convert_config_to_json(const ht_config *config, const ht_rope_spec *rope, ht_json **out, ht_error *err) {
    static void (*const set_form[])(writer * w) = {
        [HT_CONFIG_LLAMA] = set_llama,         [HT_CONFIG_QWEN2] = set_qwen,   [HT_CONFIG_QWEN3] = set_qwen,
        [HT_CONFIG_QWEN3_MOE] = set_qwen3_moe, [HT_CONFIG_GEMMA2] = set_gemma, [HT_CONFIG_GEMMA3] = set_gemma3,
        [HT_CONFIG_GEMMA4] = set_gemma4};
    const ht_family *f = config->family;
    *out = NULL;
    if (f->form == HT_CONFIG_NONE)
        return ht_fail(err, HT_ERR_UNSUPPORTED, "a config.json of %s models cannot be written", f->architecture);
    writer w = {{ht_json_new_object(), "config.json", HT_OK, err}, config, rope};
    set(&w, "architectures", ht_json_pack("[s]", f->class_name));
    set_sizes(&w);
    set_form[f->form](&w);
    *out = ht_document_take(&w.d);
    return w.d.status;
}

/* ---- documents ---- */

static const char documents[] = "the documents of a directory";

typedef struct converter {
    const ht_checkpoint_files *c;
    const ht_config *config;
    ht_tokenizer *t;            /* NULL: the file has none */
    int32_t bos, eos, pad, unk; /* -1: none */
    int32_t *stops;             /* [n_stops] stop ids */
    int n_stops;
    ht_directory_documents *out;
    ht_error *err;
} converter;

/* Adds a document and takes ownership of its text. */
static ht_status add_text(converter *v, const char *name, char *text) {
    if (!text) return ht_fail_memory(v->err, 0, documents);
    v->out->document[v->out->n].name = name;
    v->out->document[v->out->n++].text = text;
    return HT_OK;
}

/* Adds a document and releases it. All numbers are integers or have at most 9 digits. */
static ht_status add_document(converter *v, const char *name, ht_document *d) {
    ht_json *root = ht_document_take(d);
    char *text = root ? ht_json_dump(root, HT_JSON_INDENT(2) | HT_JSON_REAL_PRECISION(15)) : NULL;
    ht_json_decref(root);
    return d->status ? d->status : add_text(v, name, text);
}

/* ---- special tokens ---- */

static int32_t id_in(const converter *v, const char *key) {
    int64_t id;
    return ht_gguf_get_i64_saturated(v->c->gguf, key, &id) && id >= 0 && id < v->config->vocab ? (int32_t)id : -1;
}

static ht_status find_specials(converter *v) {
    v->bos = v->t ? v->t->bos : id_in(v, "tokenizer.ggml.bos_token_id");
    v->eos = v->t ? v->t->eos : id_in(v, "tokenizer.ggml.eos_token_id");
    v->pad = id_in(v, "tokenizer.ggml.padding_token_id");
    v->unk = v->t && v->t->unk >= 0 ? v->t->unk : id_in(v, "tokenizer.ggml.unknown_token_id");
    return ht_chat_detect_stop_ids(v->config, v->t, &v->stops, &v->n_stops, v->err);
}

static ht_json *id_or_null(int32_t id) { return id >= 0 ? ht_json_integer(id) : ht_json_null(); }

/* One EOS id, or a list of several. */
static void set_ids(const converter *v, ht_document *d) {
    ht_json *stops = v->n_stops < 2 ? id_or_null(v->n_stops ? v->stops[0] : -1) : ht_json_new_array();
    for (int i = 0; v->n_stops > 1 && i < v->n_stops; i++) ht_list_append(&stops, ht_json_integer(v->stops[i]));
    ht_document_set(d, "bos_token_id", id_or_null(v->bos));
    ht_document_set(d, "eos_token_id", stops);
    ht_document_set(d, "pad_token_id", id_or_null(v->pad));
}

/* ---- config.json, generation_config.json ---- */

/* RoPE settings of full-attention layers, including those that the divisors tensor encodes. */
static ht_status find_rope(const converter *v, ht_rope_spec *rope) {
    ht_stored_tensor t;
    *rope = v->config->rope;
    if (!ht_checkpoint_find(v->c, HT_ROPE_FACTORS, &t)) return HT_OK;
    const int64_t n = ht_config_head_dim(v->config, false) / 2;
    float *values = malloc((size_t)n * sizeof *values);
    if (!values) return ht_fail_memory(v->err, (size_t)n * sizeof *values, HT_ROPE_FACTORS);
    ht_status status = ht_checkpoint_need(v->c, HT_ROPE_FACTORS, &n, 1, &t, v->err);
    if (!status) status = ht_tensor_read_f32(&t, n, values, v->err);
    if (!status) status = ht_rope_from_factors(values, n, rope, v->err);
    free(values);
    return status;
}

static ht_status add_config(converter *v, const char *dtype) {
    ht_rope_spec rope;
    ht_document d = {NULL, documents, HT_OK, v->err};
    d.status = find_rope(v, &rope);
    if (!d.status) d.status = ht_convert_config_to_json(v->config, &rope, &d.object, v->err);
    ht_document_set(&d, "torch_dtype", ht_json_string(dtype)); /* readers accept this and the newer `dtype` */
    set_ids(v, &d);
    return add_document(v, "config.json", &d);
}

static ht_status add_generation(converter *v) {
    ht_sampling sampling;
    ht_document d = {ht_json_new_object(), documents, HT_OK, v->err};
    set_ids(v, &d);
    if (!d.status) d.status = ht_sampling_read(v->c, &sampling, v->err);
    if (!d.status) ht_sampling_to_json(&sampling, &d);
    return add_document(v, "generation_config.json", &d);
}

/* ---- tokenizer ---- */

/* The text of a token; null when it does not exist. */
static ht_json *token_or_null(const converter *v, int32_t id) {
    if (!ht_vocab_has(&v->t->vocab, id)) return ht_json_null();
    return ht_json_stringn(ht_vocab_text(&v->t->vocab, id), v->t->vocab.length[id]);
}

/* transformers makes tokens under such keys special; null for tokens that are not special in the GGUF file. */
static ht_json *special_or_null(const converter *v, int32_t id) {
    return token_or_null(v, ht_tokenizer_is_special(v->t, id) ? id : -1);
}

static ht_json *added_decoder(const converter *v) {
    ht_document all = {ht_json_new_object(), documents, HT_OK, v->err};
    for (size_t i = 0; i < v->t->n_added; i++) {
        const ht_added *a = &v->t->added[i];
        char key[16];
        snprintf(key, sizeof key, "%d", (int)a->id);
        ht_document_set(&all, key,
                        ht_json_pack("{s:o, s:b, s:b, s:b, s:b, s:b}", "content", ht_json_stringn(a->text, a->n_text),
                                     "lstrip", a->lstrip, "normalized", a->normalized, "rstrip", a->rstrip,
                                     "single_word", a->single_word, "special", a->special));
    }
    return ht_document_take(&all);
}

static void add_template(ht_json **list, const char *name, size_t n, const char *text, size_t n_text) {
    ht_list_append(list, ht_json_pack("{s:s%, s:s%}", "name", name, n, "template", text, n_text));
}

/* The named templates of the metadata, including the default one; an empty list without any. NULL when out of
 * memory. */
static ht_json *named_templates(const converter *v) {
    const ht_gguf_value *names = ht_gguf_find(v->c->gguf, "tokenizer.chat_templates");
    const char *own = ht_tokenizer_chat_template(v->t), *tools = ht_tokenizer_tool_template(v->t);
    ht_json *list = ht_json_new_array();
    bool has_tools = false;
    size_t offset = 0;
    ht_bytes name, text;
    while (names && names->type == HT_GGUF_ARRAY && ht_gguf_next_string(names, &offset, &name)) {
        char key[128];
        snprintf(key, sizeof key, "tokenizer.chat_template.%.*s", (int)(name.len % 64), name.data);
        if (ht_gguf_get_string(v->c->gguf, key, &text) && ht_utf8_valid(text.data, text.len) &&
            ht_utf8_valid(name.data, name.len)) {
            add_template(&list, name.data, name.len, text.data, text.len);
            has_tools = has_tools || (name.len == 8 && memcmp(name.data, "tool_use", 8) == 0);
        }
    }
    /* The template may be missing in the list of names. */
    if (tools && !has_tools && ht_utf8_valid(tools, strlen(tools)))
        add_template(&list, "tool_use", 8, tools, strlen(tools));
    if (own && ht_json_array_size(list)) add_template(&list, "default", 7, own, strlen(own));
    return list;
}

/* Adds chat_template of tokenizer_config.json and chat_template.jinja, which overrides it and cannot name templates. */
static ht_status add_templates(converter *v, ht_document *d) {
    const char *own = ht_tokenizer_chat_template(v->t);
    ht_json *named = named_templates(v);
    if (!named || ht_json_array_size(named)) {
        ht_document_set(d, "chat_template", named);
        return d->status;
    }
    ht_json_decref(named);
    if (!own) return HT_OK;
    if (!ht_utf8_valid(own, strlen(own)))
        return ht_fail(v->err, HT_ERR_FORMAT, "`tokenizer.chat_template` is not valid UTF-8");
    ht_document_set(d, "chat_template", ht_json_string(own));
    return d->status ? d->status : add_text(v, "chat_template.jinja", strdup(own));
}

static ht_status add_tokenizer_config(converter *v) {
    const ht_tokenizer *t = v->t;
    ht_document d = {ht_json_new_object(), documents, HT_OK, v->err};
    /* This class uses the stages of tokenizer.json unchanged. */
    ht_document_set(&d, "tokenizer_class", ht_json_string("PreTrainedTokenizerFast"));
    ht_document_set(&d, "bos_token", token_or_null(v, v->bos));
    ht_document_set(&d, "eos_token", token_or_null(v, v->eos));
    ht_document_set(&d, "unk_token", special_or_null(v, v->unk));
    ht_document_set(&d, "pad_token", special_or_null(v, v->pad));
    ht_document_set(&d, "add_bos_token", ht_json_boolean(t->n_prefix > 0));
    ht_document_set(&d, "add_eos_token", ht_json_boolean(t->n_suffix > 0));
    ht_document_set(&d, "clean_up_tokenization_spaces", ht_json_boolean(false));
    ht_document_set(&d, "model_max_length", ht_json_integer(v->config->context));
    ht_document_set(&d, "added_tokens_decoder", added_decoder(v));
    if (!d.status) d.status = add_templates(v, &d);
    return add_document(v, "tokenizer_config.json", &d);
}

static ht_status add_tokenizer(converter *v) {
    char *text;
    ht_status status = ht_tokenizer_save_json(v->t, &text, v->err);
    if (!status) status = add_text(v, "tokenizer.json", text);
    return status ? status : add_tokenizer_config(v);
}

/* ---- all ---- */

ht_status ht_directory_documents_of(const ht_checkpoint_files *c, const ht_config *config, const char *dtype,
                                    ht_directory_documents *out, ht_error *err) {
    *out = (ht_directory_documents){0};
    if (!c->gguf) return ht_fail(err, HT_ERR_ARGUMENT, "%s: is a directory already", c->path);
    converter v = {.c = c, .config = config, .out = out, .err = err};
    ht_status status = ht_chat_detect_tokenizer(c, &v.t, err);
    if (status) return status; /* the error names the file */
    status = find_specials(&v);
    if (!status) status = add_config(&v, dtype);
    if (!status) status = add_generation(&v);
    if (!status && v.t) status = add_tokenizer(&v);
    free(v.stops);
    ht_tokenizer_free(v.t);
    return status ? ht_fail_in(err, status, "%s", c->name) : HT_OK;
}

void ht_directory_documents_free(ht_directory_documents *d) {
    for (int i = 0; i < d->n; i++) free(d->document[i].text);
    *d = (ht_directory_documents){0};
}
