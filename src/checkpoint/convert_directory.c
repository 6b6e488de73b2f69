/* The JSON documents of a directory made from a GGUF file: config.json, generation_config.json and the tokenizer's.
 * config.json uses the spelling of transformers that mlx-lm reads too: rope_theta with rope_scaling. It is read back
 * before it is returned, so that what it cannot express is refused. */
#include "base/error.h"
#include "base/log.h"
#include "checkpoint/chat_detection.h"
#include "checkpoint/convert_metadata.h"
#include "checkpoint/family.h"
#include "checkpoint/modules.h"
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
} writer;

static void set(writer *w, const char *key, ht_json *value) { ht_document_set(&w->d, key, value); }
static void set_i64(writer *w, const char *key, int64_t value) { set(w, key, ht_json_integer(value)); }
static void set_bool(writer *w, const char *key, bool value) { set(w, key, ht_json_boolean(value)); }
static ht_json *short_number(double value) { return ht_json_real(ht_short_decimal(value)); }
static void set_number(writer *w, const char *key, double value) { set(w, key, short_number(value)); }

/* Two lists of divisors, and their factors under the names of Phi-3.5 MoE, or the one for both. */
static void set_longrope(ht_document *d, const ht_rope_spec *r) {
    static const char *const keys[][2] = {{"short_factor", "short_mscale"}, {"long_factor", "long_mscale"}};
    const bool one = r->length_factor[HT_ROPE_OF_SHORT] == r->length_factor[HT_ROPE_OF_LONG];
    if (one) ht_document_set(d, "attention_factor", short_number(r->length_factor[0]));
    for (int k = 0; k < HT_ROPE_LENGTHS; k++) {
        ht_json *list = ht_json_new_array();
        for (int32_t i = 0; i < r->n_divisors; i++) ht_list_append(&list, short_number((double)r->divisor[k][i]));
        ht_document_set(d, keys[k][0], list);
        ht_document_set(d, keys[k][1], short_number(r->length_factor[k]));
    }
}

/* One RoPE object; NULL when out of memory. */
static ht_json *rope_object(const ht_rope_spec *r, bool has_theta, ht_error *err) {
    static const char *const names[] = {[HT_ROPE_PLAIN] = "default",
                                        [HT_ROPE_LINEAR] = "linear",
                                        [HT_ROPE_LLAMA3] = "llama3",
                                        [HT_ROPE_YARN] = "yarn",
                                        [HT_ROPE_PROPORTIONAL] = "proportional",
                                        [HT_ROPE_LONG] = "longrope"};
    ht_document d = {ht_json_new_object(), "config.json", HT_OK, err};
    ht_document_set(&d, "rope_type", ht_json_string(names[r->kind]));
    if (r->kind == HT_ROPE_LONG) ht_document_set(&d, "type", ht_json_string(names[r->kind])); /* mlx-lm reads this */
    if (r->kind != HT_ROPE_PLAIN && r->factor > 0) ht_document_set(&d, "factor", short_number(r->factor));
    if (r->kind == HT_ROPE_LLAMA3 || r->kind == HT_ROPE_YARN || r->kind == HT_ROPE_LONG)
        ht_document_set(&d, "original_max_position_embeddings", ht_json_integer((int64_t)r->original_context));
    if (r->kind == HT_ROPE_LLAMA3) {
        ht_document_set(&d, "low_freq_factor", ht_json_real(r->low_freq_factor));
        ht_document_set(&d, "high_freq_factor", ht_json_real(r->high_freq_factor));
    }
    if (r->kind == HT_ROPE_YARN) {
        ht_document_set(&d, "beta_fast", short_number(r->beta_fast));
        ht_document_set(&d, "beta_slow", short_number(r->beta_slow));
        if (r->no_truncate) ht_document_set(&d, "truncate", ht_json_boolean(false));
        if (r->attention_factor > 0) ht_document_set(&d, "attention_factor", short_number(r->attention_factor));
        if (r->mscale_all_dim != 0) {
            ht_document_set(&d, "mscale", short_number(r->mscale));
            ht_document_set(&d, "mscale_all_dim", short_number(r->mscale_all_dim));
        }
    }
    if (r->kind == HT_ROPE_PROPORTIONAL)
        ht_document_set(&d, "partial_rotary_factor", ht_json_real(r->share > 0 ? r->share : 1));
    if (r->kind == HT_ROPE_LONG) set_longrope(&d, r);
    if (has_theta) ht_document_set(&d, "rope_theta", short_number(r->theta));
    return ht_document_take(&d);
}

/* A share of the head of which transformers rotates `dims` values, rounding down; of few digits if they suffice. */
static double share_of(int64_t dims, int64_t head_dim) {
    const double share = round(1e9 * (double)dims / (double)head_dim) / 1e9;
    return (int64_t)(share * (double)head_dim) == dims ? share : ((double)dims + 0.5) / (double)head_dim;
}

/* The share of a head's `head_dim` values that is rotated, `dims`, and the pairs of each axis. */
static void set_sections(ht_document *d, int64_t dims, int64_t head_dim) {
    int64_t pairs[HT_ROPE_AXES];
    ht_rope_sections(dims, pairs);
    ht_document_set(d, "partial_rotary_factor", ht_json_real(share_of(dims, head_dim)));
    ht_document_set(d, "mrope_interleaved", ht_json_boolean(true));
    ht_document_set(d, "mrope_section", ht_json_pack("[I, I, I]", pairs[0], pairs[1], pairs[2]));
}

static void set_rope(writer *w) {
    const ht_config *c = w->config;
    const ht_rope_spec *r = &c->rope;
    /* A temperature that config.json has no field for is among the settings of RoPE (Ministral 3). */
    const ht_config_field *beta = ht_config_field_of(c->family, offsetof(ht_config, query_beta));
    const bool is_tempered = beta && !beta->json;
    if (c->family->rope_by_type) {
        set(w, "rope_parameters",
            ht_json_pack("{s:o, s:o}", "full_attention", rope_object(r, true, w->d.err), "sliding_attention",
                         rope_object(&c->local_rope, true, w->d.err)));
        return;
    }
    if (is_tempered || c->family->rope_sections) { /* these families came after rope_scaling */
        ht_document d = {rope_object(r, true, w->d.err), "config.json", HT_OK, w->d.err};
        if (c->family->rope_sections) set_sections(&d, r->dims ? r->dims : c->head_dim, c->head_dim);
        if (is_tempered) ht_document_set(&d, "llama_4_scaling_beta", short_number((double)c->query_beta));
        if (is_tempered)
            ht_document_set(&d, "original_max_position_embeddings",
                            ht_json_integer(c->query_beta != 0 ? c->query_period : c->context));
        if (c->latent.rank)
            ht_document_set(&d, "partial_rotary_factor",
                            ht_json_real(share_of(r->dims, c->latent.key_dim + c->latent.rope_dim)));
        set(w, "rope_parameters", ht_document_take(&d));
    } else {
        set_number(w, "rope_theta", r->theta);
        set(w, "rope_scaling", r->kind == HT_ROPE_PLAIN ? ht_json_null() : rope_object(r, false, w->d.err));
    }
    /* Phi-3's own field overrides the one of rope_scaling, even by its default. */
    if (r->kind == HT_ROPE_LONG) set_i64(w, "original_max_position_embeddings", (int64_t)r->original_context);
    if (r->dims && !c->latent.rank && !c->family->rope_sections)
        set(w, "partial_rotary_factor", ht_json_real(share_of(r->dims, c->head_dim)));
    if (c->family->defaults.local_rope_theta > 0) set_number(w, "rope_local_base_freq", c->local_rope.theta);
}

static void set_sizes(writer *w) {
    const ht_config *c = w->config;
    const ht_config_defaults *d = &c->family->defaults;
    set_i64(w, "vocab_size", c->vocab);
    set_i64(w, "hidden_size", c->hidden);
    set_i64(w, "num_hidden_layers", c->n_layers);
    set_i64(w, "num_attention_heads", c->n_heads);
    set_i64(w, "num_key_value_heads", c->latent.rank ? c->n_heads : c->n_kv_heads);
    if (!c->latent.rank) set_i64(w, "head_dim", c->head_dim);
    set_i64(w, "intermediate_size", d->n_experts && !d->expert_feed_forward ? c->expert_feed_forward : c->feed_forward);
    set_i64(w, "max_position_embeddings", c->context);
    set_number(w, d->norm_eps_field ? d->norm_eps_field : "rms_norm_eps", (double)c->norm_eps);
    set(w, d->activation_field, ht_json_string(c->silu ? "silu" : d->activation));
    set_bool(w, "tie_word_embeddings", c->tied_head);
    set_bool(w, "use_cache", true);
    if (!ht_config_field_of(c->family, offsetof(ht_config, q_bias))) set_bool(w, "attention_bias", c->q_bias);
    if (!ht_config_field_of(c->family, offsetof(ht_config, mlp_bias))) set_bool(w, "mlp_bias", c->mlp_bias);
}

static void set_layer_types(writer *w) {
    const ht_config *c = w->config;
    const char *recurrent = c->recurrence.kind == HT_RECURRENCE_CONV ? "conv" : "linear_attention";
    ht_json *types = ht_json_new_array();
    for (int64_t i = 0; i < c->n_layers; i++)
        ht_list_append(&types, ht_json_string(c->layer[i].no_attention ? recurrent
                                              : c->layer[i].chunked    ? "chunked_attention"
                                              : c->layer[i].slides     ? "sliding_attention"
                                                                       : "full_attention"));
    set(w, "layer_types", types);
}

static bool lacks_attention(const ht_config *c) {
    bool any = false;
    for (int64_t i = 0; i < c->n_layers; i++) any = any || c->layer[i].no_attention;
    return any;
}

void ht_convert_set_mlp_types(const ht_config *c, ht_document *d) {
    ht_json *types = ht_json_new_array();
    for (int64_t i = 0; i < c->n_layers; i++)
        ht_list_append(&types, ht_json_string(c->layer[i].has_experts ? "sparse" : "dense"));
    ht_document_set(d, "mlp_layer_types", types);
}

/* A mixture of experts; the family's own function lists the layers that have them. */
static void set_experts(writer *w) {
    const ht_config *c = w->config;
    const ht_config_defaults *d = &c->family->defaults;
    const ht_routing *r = &c->routing;
    set_i64(w, d->experts_field ? d->experts_field : "num_experts", c->n_experts);
    set_i64(w, d->experts_used_field ? d->experts_used_field : "num_experts_per_tok", c->experts_used);
    set_bool(w, "norm_topk_prob", r->normalized);
    if (d->expert_feed_forward) set_i64(w, "moe_intermediate_size", c->expert_feed_forward);
    if (d->shared_field && strstr(d->shared_field, "size"))
        set_i64(w, d->shared_field, c->shared_feed_forward);
    else if (d->shared_field)
        set_i64(w, d->shared_field, c->shared_feed_forward / c->expert_feed_forward);
    if (d->n_dense) set_i64(w, "first_k_dense_replace", ht_config_leading_dense(c));
    if (d->routing.scale == 0) return; /* a family without these settings */
    set_number(w, "routed_scaling_factor", (double)r->scale);
    set_i64(w, "n_group", r->groups ? r->groups : 1);
    set_i64(w, "topk_group", r->groups ? r->groups_used : 1);
}

/* The family's own fields; a number 0 means none. */
static void set_fields(writer *w) {
    for (const ht_config_field *f = w->config->family->fields; f && (f->json || f->gguf); f++) {
        const double value = ht_config_get_field(w->config, f);
        if (f->json)
            set(w, f->json,
                f->type == HT_FIELD_BOOL  ? ht_json_boolean(value != 0)
                : value == 0              ? ht_json_null()
                : f->type == HT_FIELD_I64 ? ht_json_integer((int64_t)value)
                                          : short_number(value));
    }
}

/* Reads the written object back: HT_ERR_UNSUPPORTED, with the first difference, if it is another configuration. */
static ht_status check_written(const ht_config *config, const ht_json *object, ht_error *err) {
    static const ht_config_hints no_tensors;
    const char *architecture = config->family->architecture;
    char *text = ht_json_dump(object, HT_JSON_REAL_PRECISION(17)), difference[HT_CONFIG_DIFFERENCE];
    ht_config *read = malloc(sizeof *read);
    ht_status status = text && read ? HT_OK : ht_fail_memory(err, sizeof *read, "config.json");
    if (!status)
        status = ht_config_from_json((ht_json_text){text, strlen(text)}, (ht_json_text){0}, &no_tensors, read, err);
    if (!status && read->family != config->family)
        status = ht_fail(err, HT_ERR_UNSUPPORTED, "a config.json of %s models cannot be written", architecture);
    if (!status && *ht_config_difference(config, read, difference))
        status = ht_fail(err, HT_ERR_UNSUPPORTED, "config.json of %s models cannot express that %s", architecture,
                         difference);
    free(text);
    free(read);
    return status;
}

ht_status ht_convert_config_to_json(const ht_config *config, ht_json **out, ht_error *err) {
    const ht_family *f = config->family;
    writer w = {{ht_json_new_object(), "config.json", HT_OK, err}, config};
    *out = NULL;
    const char *class_name = config->n_labels                             ? f->head_class_name
                             : config->two_sided && f->encoder_class_name ? f->encoder_class_name
                                                                          : f->class_name;
    if (!class_name)
        w.d.status = ht_fail(err, HT_ERR_UNSUPPORTED, "a config.json of %s models cannot be written", f->architecture);
    set(&w, "architectures", ht_json_pack("[s]", class_name ? class_name : ""));
    set(&w, "model_type", ht_json_string(f->model_types[0]));
    set_sizes(&w);
    set_rope(&w);
    if (config->window > 0 || (lacks_attention(config) && !f->one_block) ||
        ht_config_field_of(f, offsetof(ht_config, window)))
        set_layer_types(&w);
    if (f->defaults.n_experts) set_experts(&w);
    set_fields(&w);
    if (f->write_json) f->write_json(config, &w.d);
    if (!w.d.status) w.d.status = check_written(config, w.d.object, err);
    *out = ht_document_take(&w.d);
    return w.d.status;
}

/* ---- documents ---- */

static const char documents[] = "the documents of a directory";

typedef struct converter {
    const ht_checkpoint_files *c;
    const ht_config *config;
    bool for_mlx;               /* the reader is mlx-lm */
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
    /* The configurations of some encoders need a number, which vectors do not depend on. */
    ht_document_set(d, "pad_token_id", id_or_null(v->pad < 0 && v->config->two_sided ? 0 : v->pad));
}

/* ---- config.json, generation_config.json ---- */

/* Applies the settings that the tensor of divisors encodes. */
static ht_status apply_factors(const converter *v, ht_config *config) {
    ht_stored_tensor t;
    if (!ht_checkpoint_find(v->c, HT_ROPE_FACTORS, &t)) return HT_OK;
    const int64_t n = (config->rope.dims ? config->rope.dims : ht_config_head_dim(config, false)) / 2;
    float *values = malloc((size_t)n * sizeof *values);
    if (!values) return ht_fail_memory(v->err, (size_t)n * sizeof *values, HT_ROPE_FACTORS);
    ht_status status = ht_checkpoint_need(v->c, HT_ROPE_FACTORS, &n, 1, &t, v->err);
    if (!status) status = ht_tensor_read_f32(&t, n, values, v->err);
    if (!status) status = ht_rope_from_factors(values, n, &config->rope, v->err);
    free(values);
    return status;
}

/* The names of a head's scores, by which transformers counts them. */
static void set_labels(const converter *v, ht_document *d) {
    const ht_gguf_value *list = ht_modules_labels(v->c);
    ht_document names = {ht_json_new_object(), documents, HT_OK, v->err};
    size_t offset = 0;
    ht_bytes label;
    for (int64_t i = 0; i < v->config->n_labels; i++) {
        char key[24], unnamed[32];
        snprintf(key, sizeof key, "%lld", (long long)i);
        snprintf(unnamed, sizeof unnamed, "LABEL_%lld", (long long)i);
        const bool named = list && ht_gguf_next_string(list, &offset, &label);
        ht_document_set(&names, key, named ? ht_json_stringn(label.data, label.len) : ht_json_string(unnamed));
    }
    ht_document_set(d, "id2label", ht_document_take(&names));
}

static ht_status add_config(converter *v, const char *dtype) {
    ht_document d = {NULL, documents, HT_OK, v->err};
    ht_config *config = malloc(sizeof *config);
    if (!config) return ht_fail_memory(v->err, sizeof *config, documents);
    *config = *v->config;
    d.status = apply_factors(v, config);
    if (!d.status) d.status = ht_convert_config_to_json(config, &d.object, v->err);
    free(config);
    if (v->config->n_labels) set_labels(v, &d);
    if (v->for_mlx && v->config->family->mlx_wrapper)
        d.object = ht_json_pack("{s:s, s:o}", "model_type", v->config->family->mlx_wrapper, "text_config", d.object);
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

/* Versions of the class differ in whether a model gets token types. */
static void set_inputs(const converter *v, ht_document *d) {
    ht_json *names = ht_json_pack("[s, s]", "input_ids", "attention_mask");
    if (v->config->n_token_types > 1) ht_list_append(&names, ht_json_string("token_type_ids"));
    ht_document_set(d, "model_input_names", names);
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
    if (v->config->two_sided) set_inputs(v, &d);
    if (!d.status) d.status = add_templates(v, &d);
    return add_document(v, "tokenizer_config.json", &d);
}

static ht_status add_tokenizer(converter *v) {
    char *text;
    ht_status status = ht_tokenizer_save_json(v->t, &text, v->err);
    if (!status) status = add_text(v, "tokenizer.json", text);
    return status ? status : add_tokenizer_config(v);
}

/* ---- modules of sentence-transformers ---- */

static bool has_field(const char *pooling) {
    const char *name;
    for (size_t i = 0; ht_modules_pooling_field(i, &name); i++)
        if (!strcmp(name, pooling)) return true;
    return false;
}

/* A directory has dense layers in folders, which are not written. */
static ht_status check_modules(const ht_checkpoint_files *c, const ht_config *config, ht_error *err) {
    for (size_t i = 0; i < ht_checkpoint_n_tensors(c); i++) {
        ht_stored_tensor t;
        char name[64];
        ht_checkpoint_tensor_at(c, i, &t);
        snprintf(name, sizeof name, "%.*s", (int)(t.name_len < 63 ? t.name_len : 63), t.name);
        if (ht_modules_has(config, name))
            return ht_fail(err, HT_ERR_UNSUPPORTED,
                           "the module `%s` after the transformer cannot be converted to a directory", name);
    }
    /* The pooling of a head is `rank`. */
    if (*config->pooling && !config->n_labels && !has_field(config->pooling))
        ht_log_write(HT_LOG_WARNING, "%s: the directory does not state its pooling, which is `%s`", c->name,
                     config->pooling);
    return HT_OK;
}

static ht_json *list_of_modules(void) {
    static const char *const modules[][2] = {
        {"", "Transformer"}, {"1_Pooling", "Pooling"}, {"2_Normalize", "Normalize"}};
    ht_json *list = ht_json_new_array();
    for (int i = 0; i < 3; i++) {
        char name[8], type[64];
        snprintf(name, sizeof name, "%d", i);
        snprintf(type, sizeof type, "sentence_transformers.models.%s", modules[i][1]);
        ht_list_append(
            &list, ht_json_pack("{sI ss ss ss}", "idx", (int64_t)i, "name", name, "path", modules[i][0], "type", type));
    }
    return list;
}

/* Every field is written, as sentence-transformers adds the mean by default. */
static ht_status add_modules(converter *v) {
    const ht_config *c = v->config;
    const char *field, *name;
    if (!has_field(c->pooling)) return HT_OK;
    ht_json *list = list_of_modules();
    ht_status status = add_text(v, "modules.json", list ? ht_json_dump(list, HT_JSON_INDENT(2)) : NULL);
    ht_json_decref(list);
    if (status) return status;
    ht_document d = {ht_json_new_object(), documents, HT_OK, v->err};
    ht_document_set(&d, "word_embedding_dimension", ht_json_integer(c->hidden));
    for (size_t i = 0; (field = ht_modules_pooling_field(i, &name)); i++)
        ht_document_set(&d, field, ht_json_boolean(!strcmp(name, c->pooling)));
    return add_document(v, "1_Pooling/config.json", &d);
}

/* ---- all ---- */

ht_status ht_directory_documents_of(const ht_checkpoint_files *c, const ht_config *config, bool for_mlx,
                                    const char *dtype, ht_directory_documents *out, ht_error *err) {
    *out = (ht_directory_documents){0};
    if (!c->gguf) return ht_fail(err, HT_ERR_ARGUMENT, "%s: is a directory already", c->path);
    ht_stored_tensor dense;
    if (config->n_labels && !ht_checkpoint_find(c, "cls.weight", &dense))
        return ht_fail(
            err, HT_ERR_UNSUPPORTED,
            "%s: the classification head has no `cls.weight`: llama.cpp's converter leaves out BERT's pooler, "
            "which readers of directories expect",
            c->name);
    converter v = {.c = c, .config = config, .for_mlx = for_mlx, .out = out, .err = err};
    ht_status status = ht_chat_detect_tokenizer(c, &v.t, err);
    if (status) return status; /* the error names the file */
    status = check_modules(c, config, err);
    if (!status) status = find_specials(&v);
    if (!status) status = add_config(&v, dtype);
    if (!status) status = add_generation(&v);
    if (!status && v.t) status = add_tokenizer(&v);
    if (!status) status = add_modules(&v);
    free(v.stops);
    ht_tokenizer_free(v.t);
    return status ? ht_fail_in(err, status, "%s", c->name) : HT_OK;
}

void ht_directory_documents_free(ht_directory_documents *d) {
    for (int i = 0; i < d->n; i++) free(d->document[i].text);
    *d = (ht_directory_documents){0};
}
