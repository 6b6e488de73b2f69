/* Grammars for a model's answers: those of programs (hearth/grammar.h), after reasoning, and those of tools. */
#include "base/error.h"
#include "base/options.h"
#include "base/text.h"
#include "chat/conversation.h"
#include "chat/response_rules.h"
#include "chat/tools.h"
#include "grammar/grammar.h"
#include "grammar/regex_syntax.h"
#include "models/model.h"

#include <stdlib.h>
#include <string.h>

/* The grammar of finished rules, which it takes over. `spelled`: texts that special tokens may spell; NULL: none. */
static ht_status make(ht_model *m, ht_rules *rules, const char *spelled, ht_model *holds, ht_grammar **out,
                      ht_error *err) {
    const ht_token_trie *trie;
    ht_status status = ht_model_token_trie(m, &trie, err);
    *out = NULL;
    if (status)
        ht_rules_free(rules);
    else
        status = ht_grammar_new(rules, trie, m->stop_ids, m->n_stop_ids, holds, out, err);
    if (!status && spelled) status = ht_grammar_spell(*out, m->tokenizer, spelled, err);
    if (!status) return HT_OK;
    ht_grammar_free(*out);
    *out = NULL;
    return status;
}

/* ---- grammars that programs give ---- */

static ht_status for_model(ht_model *m, ht_rules *rules, ht_grammar **out, ht_error *err) {
    const ht_answer_marks marks = ht_answer_marks_of(m->chat.template);
    ht_text spelled = {0};
    ht_rules_add_reasoning(rules, &marks, true);
    ht_answer_marks_note(&marks, &spelled);
    ht_status status = spelled.failed ? ht_fail_memory(err, 0, "a grammar") : ht_rules_status(rules, err);
    if (status)
        ht_rules_free(rules);
    else
        status = make(m, rules, spelled.data, m, out, err);
    ht_text_discard(&spelled);
    return status;
}

ht_status ht_grammar_from_gbnf(ht_model *m, const char *text, size_t n, ht_grammar **out, ht_error *err) {
    ht_rules *rules;
    *out = NULL;
    const ht_status status = ht_gbnf_parse(text, n, &rules, err);
    return status ? status : for_model(m, rules, out, err);
}

static const ht_schema_options schema_defaults = {.size = sizeof schema_defaults, .ordered = true, .closed = true};

void ht_schema_options_init(ht_schema_options *options, size_t size) {
    ht_options_init(options, size, &schema_defaults, sizeof schema_defaults);
}

ht_status ht_grammar_from_json_schema(ht_model *m, const char *json, size_t n, const ht_schema_options *options,
                                      ht_grammar **out, ht_error *err) {
    ht_schema_options o;
    ht_rules *rules;
    *out = NULL;
    ht_status status = ht_options_read(&o, options, &schema_defaults, sizeof schema_defaults, "ht_schema_options", err);
    if (!status && (o.space < HT_SCHEMA_SPACE_LINES || o.space > HT_SCHEMA_SPACE_ANY))
        status = ht_fail(err, HT_ERR_ARGUMENT, "unknown kind of white space: %d", (int)o.space);
    if (!status) status = ht_schema_compile(json, n, &o, &rules, err);
    return status ? status : for_model(m, rules, out, err);
}

static ht_status regex_rules(const char *pattern, size_t n, ht_rules **out, ht_error *err) {
    ht_rules *r = ht_rules_new();
    ht_re re;
    bool has_text = false;
    *out = NULL;
    if (!r) return ht_fail_memory(err, sizeof *r, "a grammar");
    ht_status status = ht_regex_parse(r->re, pattern, n, &(ht_regex_syntax){0}, &re, err);
    if (!status) {
        const ht_symbol whole = ht_rules_rule(r), text = ht_rules_text(r, re);
        ht_rules_add(r, whole, &text, 1);
        ht_rules_finish(r, whole, &has_text);
        status = ht_rules_status(r, err);
    }
    if (!status && !has_text) status = ht_fail(err, HT_ERR_FORMAT, "the regular expression matches no text");
    if (status)
        ht_rules_free(r);
    else
        *out = r;
    return status;
}

ht_status ht_grammar_from_regex(ht_model *m, const char *pattern, size_t n, ht_grammar **out, ht_error *err) {
    ht_rules *rules;
    *out = NULL;
    const ht_status status = regex_rules(pattern, n, &rules, err);
    return status ? status : for_model(m, rules, out, err);
}

/* ---- grammars of tools: an LRU cache ---- */

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
    ht_rules *rules;
    ht_text spelled = {0};
    *out = NULL;
    ht_status status = ht_response_rules_new(&q, &rules, &spelled, err);
    /* The model is not retained: it owns the cache. */
    if (!status && rules) status = make(m, rules, spelled.data, NULL, out, err);
    if (!status && *out) ht_grammar_set_budget(*out, BUDGET);
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
