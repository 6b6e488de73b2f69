/* The tokenizer of a directory as GGUF metadata: that of tokenizer.json, the ids of special tokens, and the chat templates
 * of the files beside it. */
#include "base/error.h"
#include "base/file.h"
#include "checkpoint/chat_detection.h"
#include "checkpoint/convert_metadata.h"
#include "checkpoint/family.h"
#include "tokenizer/save.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { JSON_LIMIT = 16 << 20 };

typedef struct converter {
    const ht_config *config;
    const ht_tokenizer *t;   /* NULL: the directory has none */
    ht_json *tokenizer_file; /* tokenizer_config.json; NULL when there is none */
    ht_json *config_file;
    ht_json *metadata;
    ht_status status;
    ht_error *err;
} converter;

static void set(converter *v, const char *key, ht_json *value) {
    if (v->status)
        ht_json_decref(value);
    else if (!value || ht_json_object_set_new(v->metadata, key, value))
        v->status = ht_fail_memory(v->err, 0, "GGUF metadata");
}

static void set_id(converter *v, const char *key, int64_t id) {
    if (id >= 0 && id < v->config->vocab) set(v, key, ht_json_pack("{s:s, s:I}", "dtype", "u32", "value", (int64_t)id));
}

/* ---- special tokens ---- */

/* The id of a special token: the text in tokenizer_config.json counts before the id in config.json. -1: neither is there. */
static int64_t find_id(const converter *v, const char *token_key, const char *id_key) {
    const ht_json *token = ht_json_object_get(v->tokenizer_file, token_key);
    if (ht_json_is_object(token)) token = ht_json_object_get(token, "content");
    int64_t id = -1;
    if (ht_json_is_string(token) && v->t)
        id = ht_vocab_find(&v->t->vocab, ht_json_string_value(token), ht_json_string_length(token));
    if (id >= 0) return id;
    const ht_json *text = ht_json_object_get(v->config_file, "text_config");
    if (ht_json_whole(ht_json_object_get(v->config_file, id_key), &id)) return id;
    return ht_json_whole(ht_json_object_get(text, id_key), &id) ? id : -1;
}

/* GGUF has three places for ids that end an answer; the tokenizer's own comes first. */
static void set_endings(converter *v) {
    static const char *const keys[] = {"tokenizer.ggml.eos_token_id", "tokenizer.ggml.eot_token_id",
                                       "tokenizer.ggml.eom_token_id"};
    const ht_config *c = v->config;
    size_t n = 0;
    int32_t first = v->t && v->t->eos >= 0 && v->t->eos < c->vocab ? v->t->eos : -1;
    if (first >= 0) set_id(v, keys[n++], first);
    for (int i = 0; i < c->n_eos && n < sizeof keys / sizeof *keys; i++)
        if (c->eos[i] != first) set_id(v, keys[n++], c->eos[i]);
}

static void set_specials(converter *v) {
    const ht_tokenizer *t = v->t;
    set_id(v, "tokenizer.ggml.bos_token_id", t && t->bos >= 0 ? t->bos : find_id(v, "bos_token", "bos_token_id"));
    set_endings(v);
    set_id(v, "tokenizer.ggml.unknown_token_id", t && t->unk >= 0 ? t->unk : find_id(v, "unk_token", "unk_token_id"));
    set_id(v, "tokenizer.ggml.padding_token_id", find_id(v, "pad_token", "pad_token_id"));
    set_id(v, "tokenizer.ggml.mask_token_id", find_id(v, "mask_token", "mask_token_id"));
}

/* ---- chat templates ---- */

/* tokenizer.chat_template.NAME of a named template; names are of letters, digits and underscores in GGUF. */
static bool set_named(converter *v, const char *given, ht_json *template, ht_json *names) {
    char name[64], key[96];
    if (!given || !*given || !strcmp(given, "default") || !ht_json_is_string(template)) return true;
    snprintf(name, sizeof name, "%s", given);
    for (char *c = name; *c; c++)
        if (!isalnum((unsigned char)*c)) *c = '_';
    snprintf(key, sizeof key, "tokenizer.chat_template.%s", name);
    if (ht_json_object_get(v->metadata, key)) return true; /* two names that differ in other characters */
    set(v, key, ht_json_incref(template));
    return !ht_json_array_append_new(names, ht_json_string(name));
}

static void set_templates(converter *v) {
    const char *own = v->t ? ht_tokenizer_chat_template(v->t) : NULL;
    if (own) set(v, "tokenizer.chat_template", ht_json_string(own));
    const ht_json *list = ht_json_object_get(v->tokenizer_file, "chat_template");
    ht_json *names = ht_json_new_array();
    bool good = names;
    /* First as it is used: a file in additional_chat_templates goes before the list. */
    ht_json *tools = v->t && ht_tokenizer_tool_template(v->t) ? ht_json_string(ht_tokenizer_tool_template(v->t)) : NULL;
    if (good && tools) good = set_named(v, "tool_use", tools, names);
    ht_json_decref(tools);
    for (size_t i = 0; i < ht_json_array_size(list) && good; i++) {
        const ht_json *item = ht_json_array_get(list, i);
        const char *name = ht_json_string_value(ht_json_object_get(item, "name"));
        good = set_named(v, name, ht_json_object_get(item, "template"), names);
    }
    if (ht_json_array_size(names) || !good) set(v, "tokenizer.chat_templates", good ? ht_json_incref(names) : NULL);
    ht_json_decref(names);
}

/* ---- the whole ---- */

/* tokenizer_config.json, or nothing when there is none. */
static ht_status read_tokenizer_config(const char *directory, ht_json **out, ht_error *err) {
    *out = NULL;
    char *path = ht_path_join(directory, "tokenizer_config.json");
    if (!path) return ht_fail_memory(err, strlen(directory), "a path");
    ht_status st = ht_path_exists(path) ? ht_json_read(path, JSON_LIMIT, out, err) : HT_OK;
    free(path);
    return st;
}

/* Without a tokenizer.json there is no tokenizer, unless other files say that there is one. */
static ht_status check_missing(const ht_checkpoint_files *c, ht_error *err) {
    static const char *const others[] = {"tokenizer.model", "vocab.json", "tekken.json"};
    for (size_t i = 0; i < sizeof others / sizeof *others; i++) {
        char *path = ht_path_join(c->path, others[i]);
        const bool there = path && ht_path_exists(path);
        free(path);
        if (!path) return ht_fail_memory(err, strlen(c->path), "a path");
        if (there)
            return ht_fail(
                err, HT_ERR_UNSUPPORTED,
                "%s: has no tokenizer.json, and its %s is not read; transformers makes the one from the other "
                "(AutoTokenizer.from_pretrained(DIRECTORY).save_pretrained(DIRECTORY))",
                c->path, others[i]);
    }
    return HT_OK;
}

ht_status ht_convert_tokenizer_to_gguf(const ht_checkpoint_files *c, const ht_config *config, ht_json *metadata,
                                       ht_error *err) {
    ht_tokenizer *t = NULL;
    converter v = {.config = config, .metadata = metadata, .err = err};
    v.status = ht_chat_detect_tokenizer(c, &t, err);
    if (!v.status && !t) v.status = check_missing(c, err);
    v.t = t;
    if (!v.status) v.status = read_tokenizer_config(c->path, &v.tokenizer_file, err);
    if (!v.status) v.status = ht_json_parse(c->config_text, c->config_size, "config.json", &v.config_file, err);
    if (!v.status && t)
        v.status =
            ht_tokenizer_save_gguf(t, config->vocab, !strcmp(config->family->architecture, "gemma4"), metadata, err);
    if (!v.status) set_specials(&v);
    if (!v.status) set_templates(&v);
    ht_json_decref(v.tokenizer_file);
    ht_json_decref(v.config_file);
    ht_tokenizer_free(t);
    return v.status;
}
