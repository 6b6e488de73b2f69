/* Cache of grammars of tools: the least recently used goes. */
#include "chat/tool_cache.h"

#include "base/error.h"
#include "base/text.h"
#include "chat/response_rules.h"
#include "chat/tools.h"
#include "models/model.h"

#include <stdlib.h>
#include <string.h>

/* Grammars that are kept, and what each may find out about texts: together less than a small model. */
enum { KEPT = 8 };
#define BUDGET ((size_t)16 << 20)

typedef struct entry {
    char *key; /* NULL: free */
    ht_grammar *grammar;
    uint64_t used;
} entry;

typedef struct tool_cache {
    pthread_mutex_t
        lock; /* of all that follows; held while one compiles, so that others with the same tools wait for it */
    entry entry[KEPT];
    uint64_t clock;
} tool_cache;

static void clear(entry *e) {
    free(e->key);
    ht_grammar_free(e->grammar);
    *e = (entry){0};
}

static void free_cache(void *kept) {
    tool_cache *c = kept;
    for (int i = 0; i < KEPT; i++) clear(&c->entry[i]);
    pthread_mutex_destroy(&c->lock);
    free(c);
}

static ht_status cache_of(ht_model *m, tool_cache **out, ht_error *err) {
    pthread_mutex_lock(&m->lock);
    if (!m->kept) {
        tool_cache *c = calloc(1, sizeof *c);
        if (c) {
            pthread_mutex_init(&c->lock, NULL);
            m->kept = c;
            m->free_kept = free_cache;
        }
    }
    *out = m->kept;
    pthread_mutex_unlock(&m->lock);
    return *out ? HT_OK : ht_fail_memory(err, sizeof **out, "the tools");
}

/* Everything that the grammar depends on but the model, as a text. */
static ht_status key_of(const ht_chat *chat, bool beside_text, char **key, ht_error *err) {
    ht_jinja_arena a = {.limit = SIZE_MAX / 4, .name = "the tools", .err = err};
    const ht_jinja_string *json = ht_tool_json(&a, chat->tools);
    ht_text text = {0};
    if (json) {
        ht_text_printf(&text, "%d %d %d %s ", (int)chat->tool_choice, beside_text, chat->parallel_calls,
                       chat->tool_name ? chat->tool_name->text : "");
        ht_text_append(&text, json->text, json->n);
    }
    const ht_status status = a.status;
    ht_jinja_arena_free(&a);
    *key = status ? NULL : ht_text_take(&text);
    ht_text_discard(&text);
    return status || *key ? status : ht_fail_memory(err, 0, "the tools");
}

static ht_status compile(ht_model *m, const ht_chat *chat, bool beside_text, ht_grammar **out, ht_error *err) {
    const ht_tool_request q = {.template = ht_chat_template_of(&m->chat, chat),
                               .tools = chat->tools,
                               .choice = chat->tool_choice,
                               .name = chat->tool_name ? chat->tool_name->text : NULL,
                               .parallel = chat->parallel_calls,
                               .beside_text = beside_text};
    const ht_token_trie *trie;
    ht_rules *rules;
    ht_text spelled = {0};
    *out = NULL;
    ht_status status = ht_model_token_trie(m, &trie, err);
    if (!status) status = ht_response_rules_new(&q, &rules, &spelled, err);
    /* The model is not held: it holds the cache. */
    if (!status && rules) status = ht_grammar_new(rules, trie, m->stop_ids, m->n_stop_ids, NULL, out, err);
    if (!status && *out) status = ht_grammar_spell(*out, m->tokenizer, spelled.data, err);
    if (!status && *out) ht_grammar_set_budget(*out, BUDGET);
    if (status) {
        ht_grammar_free(*out);
        *out = NULL;
    }
    ht_text_discard(&spelled);
    return status;
}

ht_status ht_tool_cache_find(ht_model *m, const ht_chat *chat, bool beside_text, ht_grammar **out, ht_error *err) {
    tool_cache *c;
    char *key = NULL;
    *out = NULL;
    ht_status status = cache_of(m, &c, err);
    if (!status) status = key_of(chat, beside_text, &key, err);
    if (status) return status;
    pthread_mutex_lock(&c->lock);
    entry *oldest = &c->entry[0], *found = NULL;
    for (int i = 0; i < KEPT && !found; i++) {
        entry *e = &c->entry[i];
        if (e->key && strcmp(e->key, key) == 0) found = e;
        if (e->used < oldest->used) oldest = e;
    }
    if (!found) {
        ht_grammar *made;
        status = compile(m, chat, beside_text, &made, err);
        if (!status) {
            found = oldest;
            clear(found);
            *found = (entry){.key = key, .grammar = made};
            key = NULL;
        }
    }
    if (found) {
        found->used = ++c->clock;
        if (found->grammar) *out = ht_grammar_retain(found->grammar);
    }
    pthread_mutex_unlock(&c->lock);
    free(key);
    return status;
}
