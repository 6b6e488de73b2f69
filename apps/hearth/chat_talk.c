#include "chat_talk.h"

#include "chat/reader.h"
#include "fail.h"
#include "input.h"
#include "json.h"
#include "terminal.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { EXPECTED_POSITIONS = 4096 /* expected length of a conversation, for the memory check */ };

static ht_status out_of_memory(ht_error *err) { return fail_memory(err, "the conversation"); }

/* ---- messages ---- */

static const char *role_of(const ht_json *message) {
    const char *role = ht_json_string_value(ht_json_object_get(message, "role"));
    return role ? role : "";
}

static bool is_system(const ht_json *message) {
    return strcmp(role_of(message), "system") == 0 || strcmp(role_of(message), "developer") == 0;
}

/* Index of the first message after the system prompt. */
static size_t first_of(const talk *t) { return is_system(ht_json_array_get(t->messages, 0)) ? 1 : 0; }

const char *talk_system(const talk *t) {
    return first_of(t) ? ht_json_string_value(ht_json_object_get(ht_json_array_get(t->messages, 0), "content")) : NULL;
}

static ht_json *message_of(const char *role, const char *text, size_t n) {
    return ht_json_pack("{ss so}", "role", role, "content", ht_json_stringn(text, n));
}

ht_status talk_set_system(talk *t, const char *text, ht_error *err) {
    ht_json *message = message_of("system", text, strlen(text));
    if (!message) return ht_fail(err, HT_ERR_ARGUMENT, "the instructions are not UTF-8");
    if (first_of(t)) ht_json_array_remove(t->messages, 0);
    int failed = 0;
    if (*text)
        failed = ht_json_array_insert_new(t->messages, 0, message);
    else
        ht_json_decref(message);
    return failed ? out_of_memory(err) : HT_OK;
}

size_t talk_length(const talk *t) { return ht_json_array_size(t->messages) - first_of(t); }

void talk_clear(talk *t) {
    while (talk_length(t)) ht_json_array_remove(t->messages, ht_json_array_size(t->messages) - 1);
}

bool talk_is_answered(const talk *t) {
    const size_t n = ht_json_array_size(t->messages);
    return n == 0 || strcmp(role_of(ht_json_array_get(t->messages, n - 1)), "user") != 0;
}

char *talk_undo(talk *t) {
    while (talk_length(t)) {
        const size_t last = ht_json_array_size(t->messages) - 1;
        const ht_json *message = ht_json_array_get(t->messages, last);
        const bool asked = strcmp(role_of(message), "user") == 0;
        const char *text = ht_json_string_value(ht_json_object_get(message, "content"));
        char *copy = asked ? strdup(text ? text : "") : NULL;
        ht_json_array_remove(t->messages, last);
        if (asked) return copy;
    }
    return NULL;
}

bool talk_forget_oldest(talk *t) {
    const size_t first = first_of(t), n = ht_json_array_size(t->messages);
    size_t next = first + 1; /* becomes the user's second message */
    while (next < n && strcmp(role_of(ht_json_array_get(t->messages, next)), "user") != 0) next++;
    if (next >= n) return false;
    for (size_t i = first; i < next; i++) ht_json_array_remove(t->messages, first);
    return true;
}

ht_status talk_say(talk *t, const char *text, ht_error *err) {
    ht_json *message = message_of("user", text, strlen(text));
    t->regenerated = 0;
    if (!message) return ht_fail(err, HT_ERR_ARGUMENT, "the message is not UTF-8");
    return ht_json_array_append_new(t->messages, message) ? out_of_memory(err) : HT_OK;
}

/* Appends the answer as a message, under the field names that chat templates use. */
static ht_status add_answer(talk *t, const answer *a, ht_error *err) {
    ht_json *message = message_of("assistant", a->text.data ? a->text.data : "", a->text.len);
    /* Tool calls without text need a null content: with an empty string some templates omit the calls. */
    if (message && !a->text.len && ht_json_array_size(a->calls))
        ht_json_object_set_new(message, "content", ht_json_null());
    if (message && a->thinking.len)
        ht_json_object_set_new(message, "reasoning_content", ht_json_stringn(a->thinking.data, a->thinking.len));
    for (size_t i = 0; message && i < ht_json_array_size(a->calls); i++) {
        ht_json *calls = ht_json_object_get(message, "tool_calls");
        if (!calls) ht_json_object_set_new(message, "tool_calls", calls = ht_json_new_array());
        ht_json_array_append_new(
            calls, ht_json_pack("{ss sO}", "type", "function", "function", ht_json_array_get(a->calls, i)));
    }
    return !message || ht_json_array_append_new(t->messages, message) ? out_of_memory(err) : HT_OK;
}

/* ---- as a document ---- */

static ht_json *document_of(const talk *t) {
    ht_json *document = ht_json_copy(t->more);
    if (document) ht_json_object_set(document, "messages", t->messages);
    return document;
}

/* name: the conversation's file, for error messages; NULL: none. */
static ht_status chat_of(const talk *t, const char *name, ht_chat **chat, ht_error *err) {
    *chat = NULL;
    ht_json *document = document_of(t);
    if (!document) return out_of_memory(err);
    ht_status st = ht_chat_from_value(document, name, chat, err);
    ht_json_decref(document);
    if (!st) st = options_chat_variables(&t->o, *chat, err);
    if (!st && t->thinking != THINKING_BY_TEMPLATE) st = ht_chat_set_thinking(*chat, t->thinking == THINKING_ON, err);
    return st;
}

/* Accepts a list of messages or an object with one; the library reports anything else. */
static ht_status take_document(talk *t, const char *path, const char *text, size_t n, ht_error *err) {
    ht_json *document;
    ht_status st = ht_json_load(text, n, &(ht_json_options){.name = path, .any_value = true}, &document, err);
    if (st) return st;
    if (ht_json_is_array(document)) document = ht_json_pack("{so}", "messages", document);
    ht_json *messages = ht_json_incref(ht_json_object_get(document, "messages"));
    ht_json_object_del(document, "messages");
    talk other = *t;
    other.messages = messages;
    other.more = document;
    ht_chat *chat = NULL;
    st = ht_json_is_object(document) && ht_json_is_array(messages)
             ? chat_of(&other, path, &chat, err)
             : ht_fail(err, HT_ERR_FORMAT, "%s: expected a list of messages, or an object with \"messages\"", path);
    ht_chat_free(chat);
    if (st) {
        ht_json_decref(messages);
        ht_json_decref(document);
        return st;
    }
    ht_json_decref(t->messages);
    ht_json_decref(t->more);
    t->messages = messages;
    t->more = document;
    return HT_OK;
}

ht_status talk_load(talk *t, const char *path, ht_error *err) {
    char *text;
    size_t n;
    ht_status st = input_read_file(path, &text, &n, err);
    if (!st) st = take_document(t, path, text, n, err);
    free(text);
    return st;
}

ht_status talk_save(const talk *t, const char *path, ht_error *err) {
    ht_json *document = document_of(t);
    const ht_status st = json_write(path, document, HT_JSON_INDENT(2), true, err);
    ht_json_decref(document);
    return st;
}

/* ---- answers ---- */

static int32_t max_tokens(const talk *t) { return t->o.max_tokens > 0 ? (int32_t)t->o.max_tokens : INT32_MAX; }

static ht_generate_options how_of(const talk *t, const ht_sampler_options *sampler) {
    ht_generate_options how;
    ht_generate_options_init(&how, sizeof how);
    how.max_tokens = max_tokens(t);
    how.sampler = sampler;
    how.stop = t->o.stop.items;
    how.n_stop = t->o.stop.n;
    how.cancel = interrupt_flag();
    how.max_thinking_tokens = (int32_t)t->o.thinking_budget;
    how.parse_special = t->o.parse_special;
    how.lookup = options_lookup(&t->o);
    how.draft = t->e.draft;
    how.draft_tokens = (int32_t)t->o.draft_tokens;
    return how;
}

static void count_answer(talk *t, const ht_metrics *m) {
    t->last = *m;
    t->answers++;
    t->computed += m->prompt_tokens;
    t->reused += m->reused_tokens;
    t->generated += m->generated_tokens;
}

ht_status talk_sampler(const talk *t, ht_sampler_options *out, ht_error *err) {
    const ht_sampler_options given = options_sampler(&t->o);
    ht_sampler_options_init(out, sizeof *out);
    return ht_sampler_options_resolve(t->e.model, &given, out, err);
}

ht_status talk_answer(talk *t, ht_error *err) {
    ht_sampler_options sampler = options_sampler(&t->o);
    sampler.seed += t->regenerated;
    const ht_generate_options how = how_of(t, &sampler);
    answer a = {.shows = true, .keeps = true};
    ht_metrics metrics = {0};
    ht_chat *chat;
    ht_status st = chat_of(t, NULL, &chat, err);
    if (!st) st = ht_generate_chat(t->e.session, chat, &how, answer_piece, &a, &metrics, err);
    ht_chat_free(chat);
    answer_end(&a);
    const bool some = st == HT_OK || (st == HT_ERR_CANCELLED && metrics.generated_tokens > 0);
    if (a.out_of_memory) st = out_of_memory(err);
    if (some && !a.out_of_memory) {
        count_answer(t, &metrics);
        const ht_status added = add_answer(t, &a, err);
        if (added) st = added;
    }
    if (some && t->shows_statistics) {
        metrics_print(&metrics);
        fputc('\n', stderr);
    }
    if (!st) limit_print(&t->o, &metrics, max_tokens(t), ht_model_context(t->e.model), &a);
    answer_free(&a);
    return st;
}

ht_status talk_count(talk *t, size_t *n, ht_error *err) {
    ht_chat *chat;
    int32_t *ids = NULL;
    *n = 0;
    if (!ht_json_array_size(t->messages)) return HT_OK;
    ht_status st = chat_of(t, NULL, &chat, err);
    if (!st) st = ht_chat_encode(t->e.model, chat, t->o.parse_special ? HT_ENCODE_PARSE_SPECIAL : 0, &ids, n, err);
    ht_ids_free(ids);
    ht_chat_free(chat);
    return st;
}

ht_status talk_set_adapters(talk *t, const char *const *words, int n, ht_error *err) {
    options with = t->o;
    with.adapters = (string_list){(const char **)words, n};
    adapter_list list = {0};
    ht_status st = adapters_load(&with, t->e.model, &list, err);
    if (!st) ht_session_reset(t->e.session); /* its KV cache was computed with other adapters */
    if (!st) st = ht_session_set_adapters(t->e.session, list.adapter, list.scale, list.n, err);
    if (st) {
        adapters_free(&list);
        return st;
    }
    adapters_free(&t->e.adapters);
    t->e.adapters = list;
    return HT_OK;
}

/* ---- opening ---- */

ht_status talk_open(talk *t, const options *o, ht_error *err) {
    *t = (talk){.o = *o};
    t->thinking = o->no_thinking ? THINKING_OFF : THINKING_BY_TEMPLATE;
    t->messages = ht_json_new_array();
    t->more = ht_json_new_object();
    if (!t->messages || !t->more) return out_of_memory(err);
    ht_status st = engine_open(&t->e, o, EXPECTED_POSITIONS, err);
    if (!st && !ht_chat_format_name(t->e.model))
        st = ht_fail(err, HT_ERR_UNSUPPORTED, "%s: has no chat template; hearth run --raw continues a text", o->model);
    if (!st && o->messages) st = talk_load(t, o->messages, err);
    ht_chat *chat = NULL; /* empty, only to check --set */
    if (!st) st = chat_of(t, NULL, &chat, err);
    ht_chat_free(chat);
    if (!st && o->system) st = talk_set_system(t, o->system, err);
    return st;
}

void talk_close(talk *t) {
    ht_json_decref(t->messages);
    ht_json_decref(t->more);
    engine_close(&t->e);
}
