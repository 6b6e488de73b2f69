/* GGUF metadata made from a directory: the model, its configuration in the keys that config_gguf.c and the families
 * read, and its tokenizer with chat templates. The configuration is read back, so that what the keys cannot express is
 * refused. */
#include "base/checked.h"
#include "base/error.h"
#include "base/file.h"
#include "base/grow.h"
#include "base/log.h"
#include "base/plural.h"
#include "base/text.h"
#include "checkpoint/chat_detection.h"
#include "checkpoint/convert_metadata.h"
#include "checkpoint/family.h"
#include "checkpoint/modules.h"
#include "checkpoint/sampling.h"
#include "checkpoint/stored_weights.h"
#include "formats/gguf_write.h"
#include "tokenizer/save.h"

#include <ctype.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { JSON_LIMIT = 16 << 20 };

typedef struct writer {
    ht_document metadata;
    const ht_config *config;
    const ht_tokenizer *t;                 /* NULL: the directory has none */
    ht_json *tokenizer_file, *config_file; /* tokenizer_config.json, NULL when it does not exist; config.json */
} writer;

/* ---- configuration ---- */

/* Sets architecture.name to a value and takes ownership of it. */
static void set(writer *w, const char *name, ht_json *value) { ht_gguf_put(&w->metadata, w->config, name, value); }

static void set_i64(writer *w, const char *name, int64_t value) { set(w, name, ht_gguf_u32(value)); }
static void set_f64(writer *w, const char *name, double value) { set(w, name, ht_gguf_f32(value)); }

static void refuse(ht_document *d, const ht_config *c, const char *what) {
    if (!d->status)
        d->status = ht_fail(d->err, HT_ERR_UNSUPPORTED, "config.json: GGUF's %s cannot express that %s",
                            ht_gguf_architecture_of(c), what);
}

typedef int64_t layer_value(const ht_config *config, int64_t layer);

static int64_t kv_heads_of(const ht_config *c, int64_t i) { return c->layer[i].n_kv_heads; }
static int64_t slides(const ht_config *c, int64_t i) { return c->layer[i].slides; }
static int64_t shares_kv(const ht_config *c, int64_t i) { return c->layer[i].kv_layer != i; }
static int64_t rotates(const ht_config *c, int64_t i) { return !c->layer[i].no_rope; }

/* Layers with only experts have no dense feed-forward size; that of other layers or the model's is used. */
static int64_t feed_forward_of(const ht_config *c, int64_t i) {
    if (c->family->one_block) return c->layer[i].has_experts ? c->expert_feed_forward : c->layer[i].feed_forward;
    for (int64_t k = -1; k < c->n_layers; k++) {
        const int64_t size = c->layer[k < 0 ? i : k].feed_forward;
        if (size > 0) return size;
    }
    return c->feed_forward;
}

static int64_t sum_of(const ht_config *c, layer_value *value) {
    int64_t sum = 0;
    for (int64_t i = 0; i < c->n_layers; i++) sum += value(c, i);
    return sum;
}

/* A list of the values of all layers: i32 or bool. */
static void set_list(writer *w, const char *name, const char *dtype, layer_value *value) {
    ht_json *list = ht_json_new_array();
    for (int64_t i = 0; i < w->config->n_layers; i++) {
        const int64_t x = value(w->config, i);
        ht_list_append(&list, strcmp(dtype, "bool") ? ht_json_integer(x) : ht_json_boolean(x));
    }
    set(w, name, ht_json_pack("{s:s, s:o}", "dtype", dtype, "value", list));
}

/* Writes one number if all layers have the same, else a list. */
static void set_layers(writer *w, const char *name, layer_value *value) {
    const ht_config *c = w->config;
    bool uniform = true;
    for (int64_t i = 1; i < c->n_layers; i++) uniform &= value(c, i) == value(c, 0);
    if (uniform)
        set_i64(w, name, value(c, 0));
    else
        set_list(w, name, "i32", value);
}

/* Writes the sizes of a head of layers with or without a sliding window, and of its part that is rotated. */
static void set_head(writer *w, bool sliding) {
    static const char *const names[][3] = {
        {"attention.key_length", "attention.value_length", "rope.dimension_count"},
        {"attention.key_length_swa", "attention.value_length_swa", "rope.dimension_count_swa"}};
    const ht_config *c = w->config;
    const int64_t dim = ht_config_head_dim(c, sliding), rotated = sliding ? c->local_rope.dims : c->rope.dims;
    set_i64(w, names[sliding][0], dim);
    set_i64(w, names[sliding][1], dim);
    if (sum_of(c, rotates)) set_i64(w, names[sliding][2], rotated ? rotated : dim);
}

static void set_sizes(writer *w) {
    const ht_config *c = w->config;
    set_i64(w, "context_length", c->context);
    set_i64(w, "block_count", c->n_layers);
    set_i64(w, "embedding_length", c->hidden);
    set_layers(w, "feed_forward_length", feed_forward_of);
    set_i64(w, "attention.head_count", c->n_heads);
    if (c->recurrence.kind == HT_RECURRENCE_DELTA) /* these families list the recurrent layers */
        set_i64(w, "attention.head_count_kv", c->n_kv_heads);
    else
        set_layers(w, "attention.head_count_kv", kv_heads_of);
    set_head(w, false);
    if (c->has_local_rope) set_head(w, true);
    if (c->has_local_rope) set_i64(w, "attention.shared_kv_layers", sum_of(c, shares_kv));
    set_f64(w, c->layer_norm ? "attention.layer_norm_epsilon" : "attention.layer_norm_rms_epsilon",
            (double)c->norm_eps);
    set_i64(w, "vocab_size", c->vocab);
    /* Readers derive the scale of Gemma's largest models from their number of layers. */
    if (!c->latent.rank &&
        (c->attention_scale != (float)(1 / sqrt((double)c->head_dim)) || c->family->scaled_embedding))
        set_f64(w, "attention.scale", (double)c->attention_scale);
}

static void set_experts(writer *w) {
    const ht_config *c = w->config;
    const ht_routing *r = &c->routing;
    const int64_t n_dense = ht_config_leading_dense(c);
    int64_t step = 1;
    set_i64(w, "expert_count", c->n_experts);
    set_i64(w, "expert_used_count", c->experts_used);
    set_i64(w, "expert_feed_forward_length", c->expert_feed_forward);
    if (n_dense) set_i64(w, "leading_dense_block_count", n_dense);
    while (n_dense + step < c->n_layers && !c->layer[n_dense + step].has_experts) step++;
    set_i64(w, "interleave_moe_layer_step", step);
    if (r->scores == HT_ROUTER_SIGMOID) set_i64(w, "expert_gating_func", 2);
    if (c->shared_feed_forward) {
        set_i64(w, "expert_shared_count", c->shared_feed_forward / c->expert_feed_forward);
        set_i64(w, "expert_shared_feed_forward_length", c->shared_feed_forward);
    }
    if (c->family->defaults.routing.scale == 0) return; /* a family without these settings */
    set(w, "expert_weights_norm", ht_gguf_bool(r->normalized));
    set_f64(w, "expert_weights_scale", r->scale != 0 ? (double)r->scale : 1);
    set_i64(w, "expert_group_count", r->groups ? r->groups : 1);
    set_i64(w, "expert_group_used_count", r->groups ? r->groups_used : 1);
}

/* Writes yarn's magnitude if the factor does not imply it. */
static void set_yarn(writer *w) {
    const ht_rope_spec *r = &w->config->rope;
    ht_rope_spec bare = *r;
    ht_rope_config how, implied;
    float factors[2];
    bare.attention_factor = bare.mscale = bare.mscale_all_dim = 0;
    (void)ht_rope_prepare(r, HT_ROPE_OF_SHORT, 2, &how, factors);
    (void)ht_rope_prepare(&bare, HT_ROPE_OF_SHORT, 2, &implied, factors);
    set_i64(w, "rope.scaling.original_context_length", (int64_t)r->original_context);
    set_f64(w, "rope.scaling.yarn_beta_fast", r->beta_fast);
    set_f64(w, "rope.scaling.yarn_beta_slow", r->beta_slow);
    if (w->config->latent.rank && r->attention_factor == 0 && r->mscale == r->mscale_all_dim) {
        if (r->mscale != 0) set_f64(w, "rope.scaling.yarn_log_multiplier", r->mscale / 10); /* also of the scores */
        return;
    }
    if (how.magnitude == implied.magnitude) return;
    if (r->attention_factor == 0 && r->mscale == 1)
        set_f64(w, "rope.scaling.yarn_log_multiplier", r->mscale_all_dim);
    else
        set_f64(w, "rope.scaling.yarn_attn_factor", (double)how.magnitude);
}

static void set_rope(writer *w) {
    const ht_rope_spec *r = &w->config->rope;
    if (!sum_of(w->config, rotates)) return;
    set_f64(w, "rope.freq_base", r->theta);
    if (r->kind == HT_ROPE_LINEAR || r->kind == HT_ROPE_YARN) {
        set(w, "rope.scaling.type", ht_json_string(r->kind == HT_ROPE_YARN ? "yarn" : "linear"));
        set_f64(w, "rope.scaling.factor", r->factor);
    }
    if (r->kind == HT_ROPE_YARN) set_yarn(w);
    if (r->kind == HT_ROPE_LONG) { /* the tensors of divisors say the rest */
        set_i64(w, "rope.scaling.original_context_length", (int64_t)r->original_context);
        set_f64(w, "rope.scaling.attn_factor", r->length_factor[HT_ROPE_OF_SHORT]);
    }
    if (w->config->has_local_rope) set_f64(w, "rope.freq_base_swa", w->config->local_rope.theta);
    if (r->dims && w->config->family->gguf_interleaves)
        refuse(&w->metadata, w->config, "a part of each head is rotated (`partial_rotary_factor`)");
}

/* The family's own fields; a number 0 means none. */
static void set_fields(writer *w) {
    for (const ht_config_field *f = w->config->family->fields; f && (f->json || f->gguf); f++) {
        const double value = ht_config_get_field(w->config, f);
        if (!f->gguf || (value == 0 && f->fallback == 0 && f->type != HT_FIELD_BOOL)) continue;
        if (f->type == HT_FIELD_F32)
            set_f64(w, f->gguf, value);
        else if (f->type == HT_FIELD_I64)
            set_i64(w, f->gguf, (int64_t)value);
        else
            set(w, f->gguf, ht_gguf_bool(value != 0));
    }
}

static bool has_window(const ht_config *c) {
    const ht_config_field *f = c->family->fields;
    while (f && (f->json || f->gguf) && (f->offset != offsetof(ht_config, window) || !f->gguf)) f++;
    return f && f->gguf;
}

/* A text encoder. */
static void set_encoder(writer *w) {
    const ht_config *c = w->config;
    set(w, "attention.causal", ht_gguf_bool(false));
    if (c->n_token_types) ht_document_set(&w->metadata, HT_GGUF_TOKEN_TYPES, ht_gguf_u32(c->n_token_types));
    if (c->n_labels) set_i64(w, "classifier.pooling_type", c->label_mean ? 1 : 2);
}

static void set_config(writer *w) {
    ht_document_set(&w->metadata, "general.architecture", ht_json_string(ht_gguf_architecture_of(w->config)));
    set_sizes(w);
    if (w->config->n_experts) set_experts(w);
    set_rope(w);
    set_fields(w);
    if (has_window(w->config) && w->config->window > 0) set_list(w, "attention.sliding_window_pattern", "bool", slides);
    if (w->config->two_sided) set_encoder(w);
    if (w->config->family->write_gguf) w->config->family->write_gguf(w->config, &w->metadata);
}

/* ---- check ---- */

/* Tensors of one element with the names of the model's. */
typedef struct name_list {
    ht_tensor_output *tensor; /* [n] */
    int n;
    bool failed;
} name_list;

static void add_name(const char *name, void *user) {
    static const int64_t one = 1;
    name_list *l = user;
    char *copy = strdup(name);
    l->failed = l->failed || !copy || !HT_GROW_ONE(l->tensor, l->n);
    if (l->failed)
        free(copy);
    else
        l->tensor[l->n++] = (ht_tensor_output){copy, "F32", 1, &one, sizeof(float)};
}

/* Reads metadata as a file's, with the tensors that the configuration implies. */
static ht_status read_metadata(const ht_config *config, ht_json *metadata, ht_config *out, ht_error *err) {
    name_list list = {0};
    unsigned char *bytes = NULL;
    size_t size;
    ht_gguf *gguf = NULL;
    ht_gguf_names_visit(config, add_name, &list);
    for (int k = 0; k < HT_ROPE_LENGTHS && config->rope.kind == HT_ROPE_LONG; k++)
        add_name(ht_rope_length_factors[k], &list);
    ht_status status = list.failed ? ht_fail_memory(err, 0, "GGUF metadata") : HT_OK;
    if (!status) status = ht_gguf_write_zeros(list.tensor, list.n, metadata, &bytes, &size, err);
    if (!status) status = ht_gguf_parse(bytes, size, "GGUF metadata", &gguf, err);
    if (!status) status = ht_config_from_gguf(gguf, "GGUF metadata", out, err);
    ht_gguf_free(gguf);
    free(bytes);
    for (int i = 0; i < list.n; i++) free((char *)(uintptr_t)list.tensor[i].name);
    free(list.tensor);
    return status;
}

static void check_written(ht_document *d, const ht_config *config) {
    char difference[HT_CONFIG_DIFFERENCE];
    ht_config *both = calloc(2, sizeof *both), *wanted = both, *read = both + 1;
    if (!both) {
        d->status = ht_fail_memory(d->err, 2 * sizeof *both, d->name);
        return;
    }
    *wanted = *config;
    if (wanted->rope.kind == HT_ROPE_LLAMA3 || wanted->rope.kind == HT_ROPE_PROPORTIONAL)
        wanted->rope.kind = HT_ROPE_PLAIN; /* the tensor of divisors says the rest */
    wanted->rope.n_divisors = 0;
    d->status = read_metadata(config, d->object, read, d->err);
    if (!d->status && *ht_config_difference(wanted, read, difference)) refuse(d, config, difference);
    free(both);
}

/* A family without a key for the window: limiting the context to the window gives the same attention. */
static void limit_context(ht_config *c) {
    if (has_window(c) || !sum_of(c, slides)) return;
    if (c->window < c->context)
        ht_log_write(
            HT_LOG_WARNING,
            "config.json: GGUF's %s has no sliding window; the context is the window of %lld position%s, not %lld",
            ht_gguf_architecture_of(c), (long long)c->window, ht_plural(c->window), (long long)c->context);
    c->context = ht_min_i64(c->window, c->context);
    for (int64_t i = 0; i < c->n_layers; i++) c->layer[i].slides = false;
}

ht_status ht_convert_fold_multipliers(ht_config *c, ht_error *err) {
    if (!c->family->multiplier) return HT_OK;
    if (c->tied_head && (c->embedding_scale != 1 || c->logit_scale != 1))
        return ht_fail(
            err, HT_ERR_UNSUPPORTED,
            "config.json: `embedding_multiplier` and `lm_head_multiplier` cannot both be in the one matrix of "
            "a tied head");
    ht_multipliers_clear(&c->multipliers);
    c->embedding_scale = c->logit_scale = 1;
    return HT_OK;
}

ht_status ht_convert_config_to_gguf(const ht_config *config, ht_json *metadata, ht_error *err) {
    ht_config *limited = malloc(sizeof *limited);
    if (!limited) return ht_fail_memory(err, sizeof *limited, "GGUF metadata");
    *limited = *config;
    limited->is_gguf = true;
    limit_context(limited);
    if (limited->layer_input_vocab < limited->vocab) limited->layer_input_vocab = limited->vocab; /* rows are added */
    writer w = {.metadata = {metadata, "GGUF metadata", HT_OK, err}, .config = limited};
    w.metadata.status = ht_convert_fold_multipliers(limited, err);
    if (!w.metadata.status) set_config(&w);
    if (!w.metadata.status) check_written(&w.metadata, limited);
    free(limited);
    return w.metadata.status;
}

/* ---- special tokens ---- */

static void set_id(writer *w, const char *key, int64_t id) {
    if (id >= 0 && id < w->config->vocab) ht_document_set(&w->metadata, key, ht_gguf_u32(id));
}

/* The id of a special token; the text in tokenizer_config.json overrides the id in config.json. -1: neither exists. */
static int64_t find_id(const writer *w, const char *token_key, const char *id_key) {
    const ht_json *token = ht_json_object_get(w->tokenizer_file, token_key);
    if (ht_json_is_object(token)) token = ht_json_object_get(token, "content");
    int64_t id = -1;
    if (ht_json_is_string(token) && w->t)
        id = ht_vocab_find(&w->t->vocab, ht_json_string_value(token), ht_json_string_length(token));
    if (id >= 0) return id;
    const ht_json *text = ht_json_object_get(w->config_file, "text_config");
    if (ht_json_whole(ht_json_object_get(w->config_file, id_key), &id)) return id;
    return ht_json_whole(ht_json_object_get(text, id_key), &id) ? id : -1;
}

/* GGUF has three keys for stop ids; the tokenizer's comes first. */
static void set_endings(writer *w) {
    static const char *const keys[] = {"tokenizer.ggml.eos_token_id", "tokenizer.ggml.eot_token_id",
                                       "tokenizer.ggml.eom_token_id"};
    const ht_config *c = w->config;
    size_t n = 0;
    int32_t first = w->t && w->t->eos >= 0 && w->t->eos < c->vocab ? w->t->eos : -1;
    if (first >= 0) set_id(w, keys[n++], first);
    /* The token that ends a text encoder's texts stays. */
    if (first < 0 && ht_json_object_get(w->metadata.object, keys[0])) return;
    for (int i = 0; i < c->n_eos && n < sizeof keys / sizeof *keys; i++)
        if (c->eos[i] != first) set_id(w, keys[n++], c->eos[i]);
}

static void set_specials(writer *w) {
    const ht_tokenizer *t = w->t;
    set_id(w, "tokenizer.ggml.bos_token_id", t && t->bos >= 0 ? t->bos : find_id(w, "bos_token", "bos_token_id"));
    set_endings(w);
    set_id(w, "tokenizer.ggml.unknown_token_id", t && t->unk >= 0 ? t->unk : find_id(w, "unk_token", "unk_token_id"));
    set_id(w, "tokenizer.ggml.padding_token_id", find_id(w, "pad_token", "pad_token_id"));
    set_id(w, "tokenizer.ggml.mask_token_id", find_id(w, "mask_token", "mask_token_id"));
}

/* The names of a head's scores, which readers count. */
static void set_labels(writer *w) {
    const ht_json *names = ht_json_object_get(w->config_file, "id2label");
    ht_json *labels = ht_json_new_array();
    for (int64_t i = 0; i < w->config->n_labels; i++) {
        char key[24], label[32];
        snprintf(key, sizeof key, "%lld", (long long)i);
        snprintf(label, sizeof label, "LABEL_%lld", (long long)i);
        const char *name = ht_json_string_value(ht_json_object_get(names, key));
        ht_list_append(&labels, ht_json_string(name ? name : label));
    }
    set(w, "classifier.output_labels", labels);
}

/* ---- chat templates ---- */

/* Sets tokenizer.chat_template.NAME; names in GGUF consist of letters, digits and underscores. */
static void set_named(writer *w, const char *given, ht_json *template, ht_json **names) {
    char name[64], key[96];
    if (!given || !*given || !strcmp(given, "default") || !ht_json_is_string(template)) return;
    snprintf(name, sizeof name, "%s", given);
    for (char *c = name; *c; c++)
        if (!isalnum((unsigned char)*c)) *c = '_';
    snprintf(key, sizeof key, "tokenizer.chat_template.%s", name);
    if (ht_json_object_get(w->metadata.object, key)) return; /* two names may differ only in other characters */
    ht_document_set(&w->metadata, key, ht_json_incref(template));
    ht_list_append(names, ht_json_string(name));
}

static void set_templates(writer *w) {
    const char *own = w->t ? ht_tokenizer_chat_template(w->t) : NULL;
    const char *tools = w->t ? ht_tokenizer_tool_template(w->t) : NULL;
    if (own) ht_document_set(&w->metadata, "tokenizer.chat_template", ht_json_string(own));
    const ht_json *list = ht_json_object_get(w->tokenizer_file, "chat_template");
    ht_json *names = ht_json_new_array(), *used = tools ? ht_json_string(tools) : NULL;
    if (tools && !used) ht_list_append(&names, NULL);
    /* A file in additional_chat_templates overrides the list. */
    set_named(w, "tool_use", used, &names);
    ht_json_decref(used);
    for (size_t i = 0; i < ht_json_array_size(list); i++) {
        const ht_json *item = ht_json_array_get(list, i);
        const char *name = ht_json_string_value(ht_json_object_get(item, "name"));
        set_named(w, name, ht_json_object_get(item, "template"), &names);
    }
    if (!names || ht_json_array_size(names))
        ht_document_set(&w->metadata, "tokenizer.chat_templates", names);
    else
        ht_json_decref(names);
}

/* ---- tokenizer ---- */

/* Reads tokenizer_config.json, which may not exist. */
static ht_status read_tokenizer_config(const char *directory, ht_json **out, ht_error *err) {
    char *path = ht_path_join(directory, "tokenizer_config.json");
    if (!path) return ht_fail_memory(err, strlen(directory), "a path");
    ht_status status = ht_path_exists(path) ? ht_json_read(path, JSON_LIMIT, out, err) : HT_OK;
    free(path);
    return status;
}

/* Fails if the directory has a tokenizer only in another format than tokenizer.json. */
static ht_status check_missing(const ht_checkpoint_files *c, ht_error *err) {
    static const char *const others[] = {"tokenizer.model", "vocab.json", "tekken.json"};
    for (size_t i = 0; i < sizeof others / sizeof *others; i++) {
        char *path = ht_path_join(c->path, others[i]);
        const bool exists = path && ht_path_exists(path);
        free(path);
        if (!path) return ht_fail_memory(err, strlen(c->path), "a path");
        if (exists)
            return ht_fail(
                err, HT_ERR_UNSUPPORTED,
                "%s: has no tokenizer.json, and its %s is not read; transformers makes the one from the other "
                "(AutoTokenizer.from_pretrained(DIRECTORY).save_pretrained(DIRECTORY))",
                c->path, others[i]);
    }
    return HT_OK;
}

static ht_status set_tokenizer(writer *w, const ht_checkpoint_files *c, const ht_tokenizer *t, ht_error *err) {
    ht_status status = t ? HT_OK : check_missing(c, err);
    w->t = t;
    if (!status) status = read_tokenizer_config(c->path, &w->tokenizer_file, err);
    if (!status) status = ht_json_parse(c->config_text, c->config_size, "config.json", &w->config_file, err);
    if (!status && t)
        status = ht_tokenizer_save_gguf(t, w->config->vocab, !strcmp(w->config->family->architecture, "gemma4"),
                                        w->metadata.object, err);
    if (status) return status;
    set_specials(w);
    if (w->config->n_labels) set_labels(w);
    set_templates(w);
    return w->metadata.status;
}

/* ---- metadata ---- */

/* The model's name: the last component of the name in config.json, which may be a path, else the directory's name,
 * which may be invalid UTF-8. */
static ht_json *name_of(const ht_checkpoint_files *c, const ht_config *config) {
    const char *source = *config->name ? config->name : c->path;
    size_t n = strlen(source);
    while (n > 0 && source[n - 1] == '/') n--;
    size_t begin = n;
    while (begin > 0 && source[begin - 1] != '/') begin--;
    const bool says = begin + strspn(source + begin, "./") < n; /* not `.` or `..` */
    return says && ht_utf8_valid(source + begin, n - begin) ? ht_json_stringn(source + begin, n - begin)
                                                            : ht_json_string(config->family->architecture);
}

/* Sets the pooling. Dense layers would be missing in the file; prompts are only for sentence-transformers. */
static ht_status set_modules(writer *w, const ht_checkpoint_files *c, ht_error *err) {
    static const char *const poolings[] = {"none", "mean", "cls", "last", "rank"};
    enum { POOLINGS = sizeof poolings / sizeof *poolings };
    const char *pooling = w->config->pooling;
    int type = 0;
    ht_modules m;
    ht_status status = ht_modules_read(c, w->config, &m, err);
    while (type < POOLINGS && strcmp(poolings[type], pooling) != 0) type++;
    if (!status && *pooling && type == POOLINGS)
        status = ht_fail(err, HT_ERR_UNSUPPORTED, "GGUF has no pooling `%s`", pooling);
    const char *lost = *m.unsupported ? m.unsupported : m.dense.n ? "Dense" : m.skips_prompt ? "include_prompt" : NULL;
    if (!status && lost)
        status = ht_fail(err, HT_ERR_UNSUPPORTED,
                         "its modules after the transformer cannot be converted to GGUF, which has no `%s`", lost);
    if (!status && *pooling) ht_gguf_put(&w->metadata, w->config, "pooling_type", ht_gguf_u32(type));
    if (!status && (m.n_prompts || m.yes_token >= 0))
        ht_log_write(HT_LOG_WARNING, "%s: the GGUF file lacks what modules.json and its prompts say",
                     ht_base_name(c->path));
    ht_modules_free(&m);
    return status ? status : w->metadata.status;
}

ht_status ht_gguf_metadata_of(const ht_checkpoint_files *c, const ht_config *config, ht_json **out, ht_error *err) {
    *out = NULL;
    if (c->gguf) return ht_fail(err, HT_ERR_ARGUMENT, "%s: is a GGUF file already", c->name);
    ht_tokenizer *t = NULL;
    ht_sampling sampling;
    writer w = {.metadata = {ht_json_new_object(), "GGUF metadata", HT_OK, err}, .config = config};
    ht_document *d = &w.metadata;
    ht_document_set(d, "general.architecture", ht_json_string(ht_gguf_architecture_of(config)));
    ht_document_set(d, "general.type", ht_json_string("model"));
    ht_document_set(d, "general.name", name_of(c, config));
    if (!d->status) d->status = ht_sampling_read(c, &sampling, err);
    if (!d->status) ht_sampling_to_gguf(&sampling, d);
    if (!d->status) d->status = ht_convert_config_to_gguf(config, d->object, err);
    if (!d->status) d->status = set_modules(&w, c, err);
    if (!d->status) d->status = ht_chat_detect_tokenizer(c, &t, err);
    if (!d->status) d->status = set_tokenizer(&w, c, t, err);
    ht_json_decref(w.tokenizer_file);
    ht_json_decref(w.config_file);
    ht_tokenizer_free(t);
    *out = ht_document_take(d);
    return d->status ? ht_fail_in(err, d->status, "%s", c->path) : HT_OK;
}

/* ---- RoPE's divisors ---- */

static bool has_rope_factors(const ht_rope_spec *r, bool of_length) {
    if (of_length) return r->kind == HT_ROPE_LONG;
    return r->kind == HT_ROPE_LLAMA3 || r->kind == HT_ROPE_PROPORTIONAL;
}

ht_status ht_gguf_rope_factors(const ht_config *config, const char *name, float **values, int64_t *n, ht_error *err) {
    const bool is_long = !strcmp(name, ht_rope_length_factors[HT_ROPE_OF_LONG]);
    *values = NULL;
    *n = 0;
    if (!has_rope_factors(&config->rope, strcmp(name, HT_ROPE_FACTORS) != 0)) return HT_OK;
    const int64_t dims = config->rope.dims ? config->rope.dims : ht_config_head_dim(config, false);
    ht_rope_config how;
    float *factors = malloc((size_t)dims / 2 * sizeof *factors);
    if (!factors) return ht_fail_memory(err, (size_t)dims / 2 * sizeof *factors, name);
    (void)ht_rope_prepare(&config->rope, is_long ? HT_ROPE_OF_LONG : HT_ROPE_OF_SHORT, (int32_t)dims, &how, factors);
    for (int64_t i = 0; i < dims / 2; i++)
        if (isinf(factors[i])) factors[i] = HT_ROPE_NOT_ROTATED;
    *values = factors;
    *n = dims / 2;
    return HT_OK;
}
