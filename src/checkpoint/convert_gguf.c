/* GGUF metadata made from a directory: the model, its configuration in the keys that config_gguf.c and the families
 * read, and its tokenizer with chat templates. */
#include "base/error.h"
#include "base/file.h"
#include "base/log.h"
#include "base/plural.h"
#include "base/text.h"
#include "checkpoint/chat_detection.h"
#include "checkpoint/convert_metadata.h"
#include "checkpoint/family.h"
#include "checkpoint/sampling.h"
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
    const char *architecture;
    const ht_tokenizer *t;                 /* NULL: the directory has none */
    ht_json *tokenizer_file, *config_file; /* tokenizer_config.json, NULL when it does not exist; config.json */
} writer;

/* ---- configuration ---- */

/* Sets architecture.name to a value and takes ownership of it. */
static void set(writer *w, const char *name, ht_json *value) {
    char key[160];
    snprintf(key, sizeof key, "%s.%s", w->architecture, name);
    ht_document_set(&w->metadata, key, value);
}

static void set_i64(writer *w, const char *name, int64_t value) { set(w, name, ht_gguf_u32(value)); }
static void set_f64(writer *w, const char *name, double value) { set(w, name, ht_gguf_f32(value)); }

static void refuse(writer *w, const char *what) {
    ht_document *d = &w->metadata;
    if (!d->status)
        d->status =
            ht_fail(d->err, HT_ERR_UNSUPPORTED, "config.json: GGUF's %s cannot express that %s", w->architecture, what);
}

typedef int64_t layer_value(const ht_config *config, int64_t layer);

static int64_t kv_heads_of(const ht_config *c, int64_t i) { return c->layer[i].n_kv_heads; }
static int64_t slides(const ht_config *c, int64_t i) { return c->layer[i].slides; }
static int64_t shares_kv(const ht_config *c, int64_t i) { return c->layer[i].kv_layer != i; }

/* Layers with only experts have no dense feed-forward size; the model's is used. */
static int64_t feed_forward_of(const ht_config *c, int64_t i) {
    return c->layer[i].feed_forward > 0 ? c->layer[i].feed_forward : c->feed_forward;
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

/* Head size of the layers with or without a sliding window. */
static int64_t head_dim_of(writer *w, bool sliding) {
    const int64_t dim = ht_config_head_dim(w->config, sliding);
    for (int64_t i = 0; i < w->config->n_layers; i++)
        if (w->config->layer[i].slides == sliding && w->config->layer[i].head_dim != dim)
            refuse(w, "layers of one type have heads of different sizes");
    return dim;
}

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
    set_f64(w, "attention.layer_norm_rms_epsilon", (double)c->norm_eps);
    set_i64(w, "vocab_size", c->vocab);
    set_i64(w, "rope.dimension_count", head_dim);
    if (c->n_experts == 0) return;
    set_i64(w, "expert_count", c->n_experts);
    set_i64(w, "expert_used_count", c->experts_used);
    set_i64(w, "expert_feed_forward_length", c->expert_feed_forward);
    if (!c->routing.normalized)
        refuse(w, "the weights of the chosen experts stay unscaled (`norm_topk_prob` is false)");
}

/* Writes yarn's magnitude if the factor does not imply it. */
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
    if (w->config->has_local_rope) {
        set_f64(w, "rope.freq_base_swa", w->config->local_rope.theta);
        if (w->config->local_rope.kind != HT_ROPE_PLAIN) refuse(w, "sliding layers have a RoPE scaling");
    }
}

/* Only Gemma has keys for a window. For other families, limiting the context to the window gives the same attention. */
static void set_context(writer *w, bool has_window) {
    const ht_config *c = w->config;
    const bool limits = !has_window && sum_of(c, slides) && c->window < c->context;
    if (limits)
        ht_log_write(
            HT_LOG_WARNING,
            "config.json: GGUF's %s has no sliding window; the context is the window of %lld position%s, not %lld",
            w->architecture, (long long)c->window, ht_plural(c->window), (long long)c->context);
    set_i64(w, "context_length", limits ? c->window : c->context);
    if (!has_window) return;
    set_i64(w, "attention.sliding_window", c->window);
    set_list(w, "attention.sliding_window_pattern", "bool", slides);
}

static void set_gemma4(writer *w) {
    const ht_config *c = w->config;
    const int64_t local = head_dim_of(w, true);
    set_i64(w, "attention.key_length_swa", local);
    set_i64(w, "attention.value_length_swa", local);
    set_i64(w, "rope.dimension_count_swa", local);
    set_i64(w, "attention.shared_kv_layers", sum_of(c, shares_kv));
    set_i64(w, "embedding_length_per_layer_input", c->layer_input);
    if (c->layer_input && c->layer_input_vocab != c->vocab)
        refuse(w, "`vocab_size_per_layer_input` is another number than `vocab_size`");
}

static void set_family(writer *w) {
    const ht_config *c = w->config;
    const bool is_gemma2 = c->family->form == HT_CONFIG_GEMMA2, is_gemma3 = c->family->form == HT_CONFIG_GEMMA3,
               is_gemma4 = c->family->form == HT_CONFIG_GEMMA4, has_window = is_gemma2 || is_gemma3 || is_gemma4;
    set_context(w, has_window);
    if (is_gemma4) set_gemma4(w);
    if (!is_gemma2 && c->attention_softcap > 0) refuse(w, "attention scores are capped");
    if (has_window ? !is_gemma4 : c->attention_scale != (float)(1 / sqrt((double)c->head_dim)))
        set_f64(w, "attention.scale", (double)c->attention_scale);
    if (is_gemma2) set_f64(w, "attn_logit_softcapping", (double)c->attention_softcap);
    if (is_gemma2 || (has_window && c->final_softcap > 0))
        set_f64(w, "final_logit_softcapping", (double)c->final_softcap);
}

static void set_config(writer *w) {
    set_sizes(w);
    set_rope(w);
    set_family(w);
}

ht_status ht_convert_config_to_gguf(const ht_config *config, ht_json *metadata, ht_error *err) {
    writer w = {.metadata = {metadata, "GGUF metadata", HT_OK, err},
                .config = config,
                .architecture = ht_family_gguf_architecture(config->family)};
    set_config(&w);
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

ht_status ht_gguf_metadata_of(const ht_checkpoint_files *c, const ht_config *config, ht_json **out, ht_error *err) {
    *out = NULL;
    if (c->gguf) return ht_fail(err, HT_ERR_ARGUMENT, "%s: is a GGUF file already", c->name);
    ht_tokenizer *t = NULL;
    ht_sampling sampling;
    writer w = {.metadata = {ht_json_new_object(), "GGUF metadata", HT_OK, err},
                .config = config,
                .architecture = ht_family_gguf_architecture(config->family)};
    ht_document *d = &w.metadata;
    ht_document_set(d, "general.architecture", ht_json_string(w.architecture));
    ht_document_set(d, "general.type", ht_json_string("model"));
    ht_document_set(d, "general.name", name_of(c, config));
    if (!d->status) d->status = ht_sampling_read(c, &sampling, err);
    if (!d->status) ht_sampling_to_gguf(&sampling, d);
    if (!d->status) set_config(&w);
    if (!d->status) d->status = ht_chat_detect_tokenizer(c, &t, err);
    if (!d->status) d->status = set_tokenizer(&w, c, t, err);
    ht_json_decref(w.tokenizer_file);
    ht_json_decref(w.config_file);
    ht_tokenizer_free(t);
    *out = ht_document_take(d);
    return d->status ? ht_fail_in(err, d->status, "%s", c->path) : HT_OK;
}

/* ---- RoPE's divisors ---- */

ht_status ht_gguf_rope_factors(const ht_config *config, float **values, int64_t *n, ht_error *err) {
    *values = NULL;
    *n = 0;
    if (config->rope.kind != HT_ROPE_LLAMA3 && config->rope.kind != HT_ROPE_PROPORTIONAL) return HT_OK;
    const int64_t dims = ht_config_head_dim(config, false);
    ht_rope_config how;
    float *factors = malloc((size_t)dims / 2 * sizeof *factors);
    if (!factors) return ht_fail_memory(err, (size_t)dims / 2 * sizeof *factors, HT_ROPE_FACTORS);
    (void)ht_rope_prepare(&config->rope, (int32_t)dims, &how, factors);
    for (int64_t i = 0; i < dims / 2; i++)
        if (isinf(factors[i])) factors[i] = HT_ROPE_NOT_ROTATED;
    *values = factors;
    *n = dims / 2;
    return HT_OK;
}
