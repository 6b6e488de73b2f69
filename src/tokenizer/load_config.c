#include "tokenizer/load_config.h"

#include "base/error.h"
#include "formats/json.h"

#include <stdlib.h>
#include <string.h>

ht_status ht_merge_added(ht_tokenizer *t, ht_added token, int32_t id, const char *text, size_t n, ht_error *err) {
    if (n == 0) return HT_OK;
    if (n > 4096)
        return ht_fail(err, HT_ERR_LIMIT, "added_tokens: a token of %zu bytes; at most 4096 are supported", n);
    int32_t known = ht_vocab_find(&t->vocab, text, n);
    if (known < 0 && !ht_vocab_has(&t->vocab, id)) {
        ht_status st = ht_vocab_set(&t->vocab, id, text, n, err);
        if (st) return st;
    } else if (known < 0 && (t->vocab.length[id] != n || memcmp(ht_vocab_text(&t->vocab, id), text, n) != 0))
        return ht_fail(err, HT_ERR_FORMAT, "added_tokens: `%.64s` has the id %d, which is `%.64s` in the vocabulary",
                       text, (int)id, ht_vocab_text(&t->vocab, id));
    else if (known >= 0 && known != id)
        return ht_fail(err, HT_ERR_FORMAT, "added_tokens: `%.64s` has the id %d, but %d in the vocabulary", text,
                       (int)id, (int)known);
    token.id = id;
    return ht_add_added(t, token, text, n, err);
}

static ht_status read_added(ht_tokenizer *t, ht_json_reader *r, const json_t *config, ht_error *err) {
    const json_t *list = ht_json_object(r, config, "added_tokens_decoder");
    const char *key;
    const json_t *item;
    json_object_foreach((json_t *)(uintptr_t)list, key, item) {
        char *end;
        long id = strtol(key, &end, 10);
        const char *content = NULL;
        ht_added token = {.normalized = true};
        if (*end || end == key || id < 0 || id >= HT_MAX_VOCAB)
            return ht_fail(err, HT_ERR_FORMAT, "tokenizer_config.json: added_tokens_decoder has the id `%.32s`", key);
        ht_json_bool(r, item, "special", &token.special);
        ht_json_bool(r, item, "normalized", &token.normalized);
        ht_json_bool(r, item, "lstrip", &token.lstrip);
        ht_json_bool(r, item, "rstrip", &token.rstrip);
        ht_json_bool(r, item, "single_word", &token.single_word);
        if (!ht_json_str(r, item, "content", &content)) ht_json_missing(r, "added_tokens_decoder.content", "a text");
        if (r->status) return r->status;
        ht_status st = ht_merge_added(t, token, (int32_t)id, content, strlen(content), err);
        if (st) return st;
    }
    return r->status;
}

/* Reads a special token: a string, or an object with `content`. *id is unchanged when it is null or not in the
 * vocabulary. */
static void read_special(const ht_tokenizer *t, const json_t *config, const char *key, int32_t *id) {
    const json_t *value = json_object_get(config, key);
    if (json_is_object(value)) value = json_object_get(value, "content");
    if (json_is_string(value)) *id = ht_vocab_find(&t->vocab, json_string_value(value), json_string_length(value));
}

/* Reads chat_template: a string, or a list of named ones, of which "default" is used. */
static ht_status read_template(ht_tokenizer *t, const json_t *config, ht_error *err) {
    const json_t *value = json_object_get(config, "chat_template");
    if (json_is_array(value)) {
        const json_t *list = value;
        value = json_object_get(json_array_get(list, 0), "template");
        for (size_t i = 0; i < json_array_size(list); i++) {
            const json_t *item = json_array_get(list, i);
            const char *name = json_string_value(json_object_get(item, "name"));
            if (name && strcmp(name, "default") == 0) value = json_object_get(item, "template");
        }
    }
    if (!json_is_string(value)) return HT_OK;
    t->chat_template = ht_copy_text(json_string_value(value), json_string_length(value));
    return t->chat_template ? HT_OK : ht_fail_memory(err, json_string_length(value), "chat template");
}

ht_status ht_load_tokenizer_config(ht_tokenizer *t, const char *text, size_t n, ht_error *err) {
    json_t *config;
    ht_status st = ht_json_parse(text, n, "tokenizer_config.json", &config, err);
    if (st) return st;
    ht_json_reader r = {.file = "tokenizer_config.json", .err = err};
    st = read_added(t, &r, config, err);
    if (!st) st = ht_vocab_index(&t->vocab, err);
    if (!st) {
        read_special(t, config, "bos_token", &t->bos);
        read_special(t, config, "eos_token", &t->eos);
        st = read_template(t, config, err);
    }
    json_decref(config);
    return st;
}

ht_status ht_load_template(ht_tokenizer *t, const char *text, size_t n, const char *name, ht_error *err) {
    json_t *document;
    if (t->chat_template) return HT_OK;
    ht_status st = ht_json_parse(text, n, name, &document, err);
    if (st) return st;
    st = read_template(t, document, err);
    json_decref(document);
    return st;
}
