#include "tokenizer/load_config.h"

#include "base/error.h"
#include "base/grow.h"
#include "base/log.h"
#include "formats/json.h"
#include "formats/name_index.h"

#include <stdlib.h>
#include <string.h>

/* ---- added tokens ---- */

ht_status ht_list_added(ht_listed_tokens *list, ht_added token, const char *text, size_t n, ht_error *err) {
    if (n == 0) return HT_OK;
    if (n > 4096)
        return ht_fail(err, HT_ERR_LIMIT, "added_tokens: a token of %zu bytes; at most 4096 are supported", n);
    if (!HT_GROW_ONE(list->token, list->n))
        return ht_fail_memory(err, (list->n + 1) * sizeof *list->token, "added tokens");
    token.text = (char *)(uintptr_t)text;
    token.n_text = n;
    list->token[list->n++] = token;
    return HT_OK;
}

void ht_listed_tokens_free(ht_listed_tokens *list) {
    free(list->token);
    *list = (ht_listed_tokens){0};
}

/* Ids of added tokens, while some are added. */
typedef struct added_ids {
    ht_name_index known; /* text to place in t->added */
    int32_t next;        /* id of the next token outside the vocabulary */
    size_t n_moved;      /* tokens that get another id than the listed one, of which this is the first */
    const ht_added *moved;
    int32_t moved_to;
} added_ids;

static ht_status index_added(added_ids *ids, const ht_tokenizer *t, size_t i, ht_error *err) {
    size_t first;
    const ht_added *token = &t->added[i];
    if (ht_name_index_add(&ids->known, token->text, token->n_text, i, &first) == HT_NAME_CROWDED)
        return ht_fail(err, HT_ERR_FORMAT, "added_tokens: texts were made to collide; the file is not honest");
    return HT_OK;
}

static ht_status merge_one(added_ids *ids, ht_tokenizer *t, const ht_added *listed, ht_error *err) {
    ht_added token = *listed;
    const size_t known = ht_name_index_find(&ids->known, token.text, token.n_text);
    token.id = known != SIZE_MAX ? t->added[known].id : ht_vocab_find(&t->vocab, token.text, token.n_text);
    const bool is_new = token.id < 0;
    if (is_new) token.id = ids->next++;
    if (token.id != listed->id && !ids->n_moved++) {
        ids->moved = listed;
        ids->moved_to = token.id;
    }
    if (known != SIZE_MAX) {
        ht_added *old = &t->added[known];
        token.special = token.special || old->special; /* a token once special is left out of texts */
        token.control = token.special || old->control;
        token.text = old->text;
        *old = token;
        return HT_OK;
    }
    if (is_new && ht_vocab_has(&t->vocab, token.id))
        return ht_fail(err, HT_ERR_FORMAT, "added_tokens: `%.64s` gets the id %d, which is `%.64s` in the vocabulary",
                       token.text, (int)token.id, ht_vocab_text(&t->vocab, token.id));
    ht_status st = is_new ? ht_vocab_set(&t->vocab, token.id, token.text, token.n_text, err) : HT_OK;
    if (!st) st = ht_add_added(t, token, token.text, token.n_text, err);
    return st ? st : index_added(ids, t, t->n_added - 1, err);
}

ht_status ht_merge_added(ht_tokenizer *t, const ht_listed_tokens *list, const char *file, ht_error *err) {
    added_ids ids = {.next = t->n_model_tokens};
    if (!list->n) return HT_OK;
    if (!ht_name_index_init(&ids.known, t->n_added + list->n))
        return ht_fail_memory(err, list->n * sizeof(ht_indexed_name), "added tokens");
    ht_status st = HT_OK;
    for (size_t i = 0; !st && i < t->n_added; i++) {
        if (t->added[i].id >= ids.next) ids.next = t->added[i].id + 1;
        st = index_added(&ids, t, i, err);
    }
    for (size_t i = 0; !st && i < list->n; i++) st = merge_one(&ids, t, &list->token[i], err);
    ht_name_index_free(&ids.known);
    if (!st && ids.n_moved)
        ht_log_write(
            HT_LOG_WARNING,
            "%s: %zu added token%s another id than listed, as in the tokenizers library: `%.64s` is %d, not %d", file,
            ids.n_moved, ids.n_moved == 1 ? " has" : "s have", ids.moved->text, (int)ids.moved_to, (int)ids.moved->id);
    return st;
}

static int by_id(const void *a, const void *b) {
    const ht_added *x = a, *y = b;
    return (x->id > y->id) - (x->id < y->id);
}

/* ---- tokenizer_config.json ---- */

static ht_status list_added(ht_listed_tokens *tokens, ht_json_reader *r, const ht_json *config, ht_error *err) {
    const ht_json *list = ht_json_object(r, config, "added_tokens_decoder");
    const char *key;
    const ht_json *item;
    ht_json_object_foreach((ht_json *)(uintptr_t)list, key, item) {
        char *end;
        long id = strtol(key, &end, 10);
        const char *content = NULL;
        ht_added token = {.normalized = true};
        if (*end || end == key || id < 0 || id >= HT_MAX_VOCAB)
            return ht_fail(err, HT_ERR_FORMAT, "tokenizer_config.json: added_tokens_decoder has the id `%.32s`", key);
        token.id = (int32_t)id;
        ht_json_bool(r, item, "special", &token.special);
        ht_json_bool(r, item, "normalized", &token.normalized);
        ht_json_bool(r, item, "lstrip", &token.lstrip);
        ht_json_bool(r, item, "rstrip", &token.rstrip);
        ht_json_bool(r, item, "single_word", &token.single_word);
        if (!ht_json_str(r, item, "content", &content)) ht_json_missing(r, "added_tokens_decoder.content", "a text");
        if (r->status) return r->status;
        ht_status st = ht_list_added(tokens, token, content, strlen(content), err);
        if (st) return st;
    }
    return r->status;
}

/* Adds the tokens of added_tokens_decoder, by their ids. */
static ht_status read_added(ht_tokenizer *t, ht_json_reader *r, const ht_json *config, ht_error *err) {
    ht_listed_tokens tokens = {0};
    ht_status st = list_added(&tokens, r, config, err);
    if (tokens.n) qsort(tokens.token, tokens.n, sizeof *tokens.token, by_id);
    if (!st) st = ht_merge_added(t, &tokens, "tokenizer_config.json", err);
    ht_listed_tokens_free(&tokens);
    return st;
}

/* Reads a special token: a string, or an object with `content`. *id is unchanged when it is null or not in the
 * vocabulary. */
static void read_special(const ht_tokenizer *t, const ht_json *config, const char *key, int32_t *id) {
    const ht_json *value = ht_json_object_get(config, key);
    if (ht_json_is_object(value)) value = ht_json_object_get(value, "content");
    if (ht_json_is_string(value))
        *id = ht_vocab_find(&t->vocab, ht_json_string_value(value), ht_json_string_length(value));
}

/* Copies a template's text, unless there is one already. */
static ht_status copy_template(const ht_json *text, char **to, ht_error *err) {
    if (*to || !ht_json_is_string(text)) return HT_OK;
    *to = ht_copy_text(ht_json_string_value(text), ht_json_string_length(text));
    return *to ? HT_OK : ht_fail_memory(err, ht_json_string_length(text), "chat template");
}

/* The text of a named template in a list of {"name", "template"}, or NULL. */
static const ht_json *find_named(const ht_json *list, const char *wanted) {
    const ht_json *found = NULL;
    for (size_t i = 0; i < ht_json_array_size(list); i++) {
        const ht_json *item = ht_json_array_get(list, i);
        const char *name = ht_json_string_value(ht_json_object_get(item, "name"));
        if (name && strcmp(name, wanted) == 0) found = ht_json_object_get(item, "template");
    }
    return found;
}

/* Reads chat_template: a string, or a list of named ones, of which "default" (else the first) and "tool_use" are used. */
static ht_status read_template(ht_tokenizer *t, const ht_json *config, ht_error *err) {
    const ht_json *value = ht_json_object_get(config, "chat_template"), *named = find_named(value, "default");
    if (ht_json_is_array(value) && !named) named = ht_json_object_get(ht_json_array_get(value, 0), "template");
    ht_status st = copy_template(ht_json_is_array(value) ? named : value, &t->chat_template, err);
    return st ? st : copy_template(find_named(value, "tool_use"), &t->tool_template, err);
}

ht_status ht_load_tokenizer_config(ht_tokenizer *t, const char *text, size_t n, ht_error *err) {
    ht_json *config;
    ht_status st = ht_json_parse(text, n, "tokenizer_config.json", &config, err);
    if (st) return st;
    ht_json_reader r = {.file = "tokenizer_config.json", .err = err};
    st = read_added(t, &r, config, err);
    if (!st) st = ht_vocab_index(&t->vocab, err);
    if (!st) {
        read_special(t, config, "bos_token", &t->bos);
        read_special(t, config, "eos_token", &t->eos);
        t->may_add_bos = t->may_add_bos && !ht_json_is_false(ht_json_object_get(config, "add_bos_token"));
        st = read_template(t, config, err);
    }
    ht_json_decref(config);
    return st;
}

ht_status ht_load_template(ht_tokenizer *t, const char *text, size_t n, const char *name, ht_error *err) {
    ht_json *document;
    ht_status st = ht_json_parse(text, n, name, &document, err);
    if (st) return st;
    st = read_template(t, document, err);
    ht_json_decref(document);
    return st;
}
