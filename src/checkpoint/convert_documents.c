/* The JSON documents of a directory for a GGUF file's configuration and tokenizer. */
#include "base/error.h"
#include "checkpoint/chat_detection.h"
#include "checkpoint/convert_metadata.h"
#include "checkpoint/family.h"
#include "checkpoint/sampling.h"
#include "tokenizer/save.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct converter {
    const ht_checkpoint_files *c;
    const ht_config *config;
    const char *dtype;
    ht_tokenizer *t;            /* NULL: the file has none */
    int32_t bos, eos, pad, unk; /* -1: none */
    int32_t *stops;             /* [n_stops]: ids that end an answer */
    int n_stops;
    ht_directory_documents *out;
    ht_error *err;
} converter;

static ht_status out_of_memory(ht_error *err) { return ht_fail_memory(err, 0, "the documents of a directory"); }

/* Sets a member to a value, which is taken over; false when memory ran out. */
static bool set(ht_json *object, const char *key, ht_json *value) {
    return value && !ht_json_object_set_new(object, key, value);
}

/* Adds a document whose text is taken over. */
static ht_status add_text(converter *v, const char *name, char *text) {
    if (!text) return out_of_memory(v->err);
    v->out->document[v->out->n].name = name;
    v->out->document[v->out->n++].text = text;
    return HT_OK;
}

/* Adds a document and releases it. All numbers have at most 9 digits, or are whole. */
static ht_status add_json(converter *v, const char *name, ht_json *root) {
    char *text = root ? ht_json_dump(root, HT_JSON_INDENT(2) | HT_JSON_REAL_PRECISION(15)) : NULL;
    ht_json_decref(root);
    return add_text(v, name, text);
}

/* ---- RoPE ---- */

/* The settings of full-attention layers, those of the tensor of divisors among them. */
static ht_status find_rope(const converter *v, ht_rope_spec *rope) {
    ht_stored_tensor t;
    *rope = v->config->rope;
    if (!ht_checkpoint_find(v->c, HT_ROPE_FACTORS, &t)) return HT_OK;
    int64_t dims = v->config->head_dim;
    for (int64_t i = v->config->n_layers - 1; i >= 0; i--)
        if (!v->config->layer[i].slides) dims = v->config->layer[i].head_dim;
    if (t.n_dims != 1 || t.dims[0] != dims / 2)
        return ht_fail(v->err, HT_ERR_FORMAT,
                       "`" HT_ROPE_FACTORS "` has %lld values, expected half the head size of %lld",
                       (long long)t.dims[0], (long long)dims);
    float *values = malloc((size_t)t.dims[0] * sizeof *values);
    if (!values) return ht_fail_memory(v->err, (size_t)t.dims[0] * sizeof *values, HT_ROPE_FACTORS);
    ht_status st = ht_tensor_read_f32(&t, t.dims[0], values, v->err);
    if (!st) st = ht_rope_from_factors(values, t.dims[0], rope, v->err);
    free(values);
    return st;
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

/* One number, or a list of several; null for none. */
static ht_json *ids_of(const int32_t *ids, int n) {
    if (n < 2) return id_or_null(n ? ids[0] : -1);
    ht_json *list = ht_json_new_array();
    for (int i = 0; i < n && list; i++)
        if (ht_json_array_append_new(list, ht_json_integer(ids[i]))) {
            ht_json_decref(list);
            list = NULL;
        }
    return list;
}

/* ---- config.json, generation_config.json ---- */

static ht_status add_config(converter *v) {
    ht_rope_spec rope;
    ht_json *root = NULL;
    ht_status st = find_rope(v, &rope);
    if (!st) st = ht_convert_config_to_json(v->config, &rope, &root, v->err);
    if (st) return st;
    /* `dtype` is the newer spelling; both are read. */
    const bool good =
        set(root, "torch_dtype", ht_json_string(v->dtype)) && set(root, "bos_token_id", id_or_null(v->bos)) &&
        set(root, "eos_token_id", ids_of(v->stops, v->n_stops)) && set(root, "pad_token_id", id_or_null(v->pad));
    if (good) return add_json(v, "config.json", root);
    ht_json_decref(root);
    return out_of_memory(v->err);
}

static ht_status add_generation(converter *v) {
    ht_sampling sampling;
    const ht_status st = ht_sampling_read(v->c, &sampling, v->err);
    if (st) return st;
    ht_json *root = ht_json_new_object();
    const bool good = root && set(root, "bos_token_id", id_or_null(v->bos)) &&
                      set(root, "eos_token_id", ids_of(v->stops, v->n_stops)) &&
                      set(root, "pad_token_id", id_or_null(v->pad)) && ht_sampling_to_json(&sampling, root);
    if (good) return add_json(v, "generation_config.json", root);
    ht_json_decref(root);
    return out_of_memory(v->err);
}

/* ---- the tokenizer ---- */

/* The text of a token; null when there is none. */
static ht_json *token_or_null(const converter *v, int32_t id) {
    if (!ht_vocab_has(&v->t->vocab, id)) return ht_json_null();
    return ht_json_stringn(ht_vocab_text(&v->t->vocab, id), v->t->vocab.length[id]);
}

/* transformers makes special what it reads under such a key: a token that is none in the GGUF stays none. */
static ht_json *special_or_null(const converter *v, int32_t id) {
    return token_or_null(v, ht_tokenizer_is_special(v->t, id) ? id : -1);
}

static ht_json *added_decoder(const ht_tokenizer *t) {
    ht_json *all = ht_json_new_object();
    bool good = all;
    for (size_t i = 0; i < t->n_added && good; i++) {
        const ht_added *a = &t->added[i];
        char key[16];
        snprintf(key, sizeof key, "%d", (int)a->id);
        good = set(all, key,
                   ht_json_pack("{s:o, s:b, s:b, s:b, s:b, s:b}", "content", ht_json_stringn(a->text, a->n_text),
                                "lstrip", a->lstrip, "normalized", a->normalized, "rstrip", a->rstrip, "single_word",
                                a->single_word, "special", a->special));
    }
    if (good) return all;
    ht_json_decref(all);
    return NULL;
}

/* Adds {"name", "template"} to a list; false when memory ran out. */
static bool push_template(ht_json *list, const char *name, size_t n, const char *text, size_t n_text) {
    ht_json *item =
        ht_json_pack("{s:o, s:o}", "name", ht_json_stringn(name, n), "template", ht_json_stringn(text, n_text));
    return item && !ht_json_array_append_new(list, item);
}

/* The named templates of the metadata, with the default one among them; an empty list when there are none. NULL when memory
 * ran out. */
static ht_json *named_templates(const converter *v) {
    const ht_gguf_value *names = ht_gguf_find(v->c->gguf, "tokenizer.chat_templates");
    const char *own = ht_tokenizer_chat_template(v->t), *tools = ht_tokenizer_tool_template(v->t);
    ht_json *list = ht_json_new_array();
    bool good = list, has_tools = false;
    size_t offset = 0;
    ht_bytes name, text;
    while (good && names && names->type == HT_GGUF_ARRAY && ht_gguf_next_string(names, &offset, &name)) {
        char key[128];
        snprintf(key, sizeof key, "tokenizer.chat_template.%.*s", (int)(name.len % 64), name.data);
        if (ht_gguf_get_string(v->c->gguf, key, &text) && ht_utf8_valid(text.data, text.len) &&
            ht_utf8_valid(name.data, name.len)) {
            good = push_template(list, name.data, name.len, text.data, text.len);
            has_tools = has_tools || (name.len == 8 && memcmp(name.data, "tool_use", 8) == 0);
        }
    }
    /* A file may have the template without naming it in the list. */
    if (good && tools && !has_tools && ht_utf8_valid(tools, strlen(tools)))
        good = push_template(list, "tool_use", 8, tools, strlen(tools));
    if (good && own && ht_json_array_size(list)) good = push_template(list, "default", 7, own, strlen(own));
    if (good) return list;
    ht_json_decref(list);
    return NULL;
}

/* chat_template of tokenizer_config.json, and chat_template.jinja, which is taken before it and has no names. */
static ht_status add_templates(converter *v, ht_json *root) {
    const char *own = ht_tokenizer_chat_template(v->t);
    ht_json *named = named_templates(v);
    if (!named) return out_of_memory(v->err);
    if (ht_json_array_size(named)) return set(root, "chat_template", named) ? HT_OK : out_of_memory(v->err);
    ht_json_decref(named);
    if (!own) return HT_OK;
    if (!ht_utf8_valid(own, strlen(own)))
        return ht_fail(v->err, HT_ERR_FORMAT, "`tokenizer.chat_template` is not valid UTF-8");
    if (!set(root, "chat_template", ht_json_string(own))) return out_of_memory(v->err);
    return add_text(v, "chat_template.jinja", strdup(own));
}

static ht_status add_tokenizer_config(converter *v) {
    const ht_tokenizer *t = v->t;
    ht_json *root = ht_json_new_object();
    /* The class that takes its stages from tokenizer.json as they are. */
    const bool good =
        root && set(root, "tokenizer_class", ht_json_string("PreTrainedTokenizerFast")) &&
        set(root, "bos_token", token_or_null(v, v->bos)) && set(root, "eos_token", token_or_null(v, v->eos)) &&
        set(root, "unk_token", special_or_null(v, v->unk)) && set(root, "pad_token", special_or_null(v, v->pad)) &&
        set(root, "add_bos_token", ht_json_boolean(t->n_prefix > 0)) &&
        set(root, "add_eos_token", ht_json_boolean(t->n_suffix > 0)) &&
        set(root, "clean_up_tokenization_spaces", ht_json_boolean(false)) &&
        set(root, "model_max_length", ht_json_integer((int64_t)v->config->context)) &&
        set(root, "added_tokens_decoder", added_decoder(t));
    ht_status st = good ? add_templates(v, root) : out_of_memory(v->err);
    if (!st) return add_json(v, "tokenizer_config.json", root);
    ht_json_decref(root);
    return st;
}

static ht_status add_tokenizer(converter *v) {
    char *text;
    ht_status st = ht_tokenizer_save_json(v->t, &text, v->err);
    if (!st) st = add_text(v, "tokenizer.json", text);
    return st ? st : add_tokenizer_config(v);
}

/* ---- the whole ---- */

ht_status ht_directory_documents_of(const ht_checkpoint_files *c, const ht_config *config, const char *dtype,
                                    ht_directory_documents *out, ht_error *err) {
    *out = (ht_directory_documents){0};
    if (!c->gguf) return ht_fail(err, HT_ERR_ARGUMENT, "%s: is a directory already", c->path);
    converter v = {.c = c, .config = config, .dtype = dtype, .out = out, .err = err};
    ht_status st = ht_chat_detect_tokenizer(c, &v.t, err);
    if (st) return st; /* names the file */
    st = find_specials(&v);
    if (!st) st = add_config(&v);
    if (!st) st = add_generation(&v);
    if (!st && v.t) st = add_tokenizer(&v);
    free(v.stops);
    ht_tokenizer_free(v.t);
    return st ? ht_fail_in(err, st, "%s", c->name) : HT_OK;
}

void ht_directory_documents_free(ht_directory_documents *d) {
    for (int i = 0; i < d->n; i++) free(d->document[i].text);
    *d = (ht_directory_documents){0};
}
