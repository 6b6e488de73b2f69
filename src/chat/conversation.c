/* Conversation builder: messages, tools and variables, added one by one or read from JSON. */
#include "chat/conversation.h"

#include "base/error.h"
#include "base/options.h"
#include "base/text.h"
#include "template/eval.h"
#include "tokenizer/unicode.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

ht_status ht_chat_new(ht_chat **out, ht_error *err) {
    ht_chat *chat = *out = calloc(1, sizeof *chat);
    if (!chat) return ht_fail_memory(err, sizeof *chat, "a conversation");
    atomic_init(&chat->refs, 1);
    chat->arena = (ht_jinja_arena){.limit = SIZE_MAX / 4, .name = "the conversation", .err = err};
    chat->messages = ht_jinja_list_new(&chat->arena, 8);
    chat->variables = ht_jinja_dict_new(&chat->arena);
    chat->tools = ht_jinja_none();
    chat->parallel_calls = true;
    ht_status status = chat->arena.status;
    if (status) {
        ht_chat_free(chat);
        *out = NULL;
    }
    return status;
}

ht_chat *ht_chat_retain(const ht_chat *chat) {
    ht_chat *c = (ht_chat *)(uintptr_t)chat;
    atomic_fetch_add_explicit(&c->refs, 1, memory_order_relaxed);
    return c;
}

void ht_chat_free(ht_chat *chat) {
    if (!chat || atomic_fetch_sub_explicit(&chat->refs, 1, memory_order_acq_rel) != 1) return;
    ht_jinja_arena_free(&chat->arena);
    free(chat);
}

size_t ht_chat_length(const ht_chat *chat) { return chat->messages->n; }

ht_jinja_arena *ht_chat_begin(ht_chat *chat, ht_error *err) {
    chat->arena.status = HT_OK;
    chat->arena.err = err;
    return &chat->arena;
}

/* ---- messages ---- */

/* The beginning of a text, as far as a message shows it. */
static const char *beginning(const char *text, char out[44]) {
    snprintf(out, 44, "%.40s", text);
    ht_utf8_trim(out);
    return out;
}

static const char *const roles[] = {"system", "developer", "user", "assistant", "tool"};

ht_status ht_chat_check_role(const char *role, size_t i, ht_error *err) {
    char shown[44];
    for (size_t r = 0; r < sizeof roles / sizeof *roles; r++)
        if (strcmp(role, roles[r]) == 0) return HT_OK;
    return ht_fail(err, HT_ERR_ARGUMENT,
                   "message %zu has the role \"%s\", expected system, developer, user, assistant or tool", i,
                   beginning(role, shown));
}

/* A caller's text; what is no UTF-8 becomes U+FFFD. */
static ht_jinja_value input(ht_jinja_arena *a, const char *text) {
    const size_t n = strlen(text);
    if (ht_utf8_valid(text, n)) return ht_jinja_string_value(ht_jinja_string_new(a, text, n, true));
    ht_text repaired = {0};
    ht_unicode_repair(text, n, &repaired);
    ht_jinja_value v = ht_jinja_undefined();
    if (repaired.failed)
        ht_jinja_arena_fail_as(a, HT_ERR_MEMORY, "out of memory for a message");
    else
        v = ht_jinja_string_value(ht_jinja_string_new(a, repaired.data, repaired.len, true));
    ht_text_discard(&repaired);
    return v;
}

static void set_input(ht_jinja_arena *a, ht_jinja_dict *d, const char *key, const char *text) {
    if (text) ht_jinja_dict_set_text(a, d, key, input(a, text));
}

static ht_jinja_value call_value(ht_jinja_arena *a, const ht_tool_call *call) {
    ht_jinja_dict *d = ht_jinja_dict_new(a), *function = ht_jinja_dict_new(a);
    set_input(a, d, "id", call->id);
    ht_jinja_dict_set_text(a, d, "type", ht_jinja_text_value(a, "function"));
    ht_jinja_dict_set_text(a, d, "function", (ht_jinja_value){.kind = HT_VALUE_DICT, .dict = function});
    set_input(a, function, "name", call->name);
    ht_jinja_dict_set_text(a, function, "arguments", input(a, call->arguments));
    return (ht_jinja_value){.kind = HT_VALUE_DICT, .dict = d};
}

static const ht_jinja_string *text_field(const ht_jinja_dict *d, const char *key) {
    const ht_jinja_value *v = d ? ht_jinja_dict_find_text(d, key, strlen(key)) : NULL;
    return v && ht_jinja_is_string(*v) ? v->string : NULL;
}

/* The index of the call with this id in a message; -1: none. */
static int64_t find_call(const ht_jinja_dict *message, const ht_jinja_string *id) {
    const ht_jinja_value *calls = ht_jinja_dict_find_text(message, "tool_calls", 10);
    for (size_t i = 0; id && calls && calls->kind == HT_VALUE_LIST && i < calls->list->n; i++) {
        const ht_jinja_value call = calls->list->items[i];
        const ht_jinja_string *other = call.kind == HT_VALUE_DICT ? text_field(call.dict, "id") : NULL;
        if (other && other->n == id->n && memcmp(other->text, id->text, id->n) == 0) return (int64_t)i;
    }
    return -1;
}

/* Where a new last message belongs: the result of a call goes before the results of later calls of the same message, as templates that
 * write no ids tell results by their order. */
static size_t place_of(const ht_jinja_list *messages) {
    const size_t last = messages->n - 1;
    const ht_jinja_dict *message = messages->items[last].dict;
    size_t first = last, place = last;
    while (first && ht_jinja_string_is(text_field(messages->items[first].dict, "role"), "tool")) first--;
    const ht_jinja_dict *calls = messages->items[first].dict;
    const int64_t index = find_call(calls, text_field(message, "tool_call_id"));
    if (index < 0) return last;
    while (place > first + 1 && find_call(calls, text_field(messages->items[place - 1].dict, "tool_call_id")) > index)
        place--;
    return place;
}

ht_status ht_chat_append(ht_chat *chat, ht_jinja_dict *message) {
    const ht_jinja_value v = {.kind = HT_VALUE_DICT, .dict = message};
    ht_jinja_list *all = chat->messages;
    ht_jinja_list_append(&chat->arena, all, v);
    if (chat->arena.status) return chat->arena.status;
    const size_t place = place_of(all);
    memmove(&all->items[place + 1], &all->items[place], (all->n - 1 - place) * sizeof *all->items);
    all->items[place] = v;
    return HT_OK;
}

static const ht_chat_message defaults = {.size = sizeof defaults};

void ht_chat_message_init(ht_chat_message *message, size_t size) {
    ht_options_init(message, size, &defaults, sizeof defaults);
}

ht_status ht_chat_add_message(ht_chat *chat, const ht_chat_message *message, ht_error *err) {
    ht_chat_message m;
    ht_status status = ht_options_read(&m, message, &defaults, sizeof defaults, "ht_chat_message", err);
    if (status) return status;
    const size_t n = chat->messages->n;
    if (!m.role) return ht_fail(err, HT_ERR_ARGUMENT, "message %zu has no role", n);
    if (m.n_calls && !m.calls)
        return ht_fail(err, HT_ERR_ARGUMENT, "message %zu: %zu calls were announced and none given", n, m.n_calls);
    for (size_t i = 0; i < m.n_calls; i++)
        if (!m.calls[i].name || !m.calls[i].arguments)
            return ht_fail(err, HT_ERR_ARGUMENT, "call %zu of message %zu has no name or no arguments", i, n);
    status = ht_chat_check_role(m.role, n, err);
    if (status) return status;
    ht_jinja_arena *a = ht_chat_begin(chat, err);
    ht_jinja_dict *d = ht_jinja_dict_new(a);
    ht_jinja_dict_set_text(a, d, "role", ht_jinja_text_value(a, m.role));
    if (m.content || !m.n_calls)
        set_input(a, d, "content", m.content ? m.content : "");
    else
        ht_jinja_dict_set_text(a, d, "content", ht_jinja_none());
    set_input(a, d, "reasoning_content", m.thinking);
    set_input(a, d, "name", m.name);
    set_input(a, d, "tool_call_id", m.call_id);
    if (m.n_calls) {
        ht_jinja_list *calls = ht_jinja_list_new(a, m.n_calls);
        for (size_t i = 0; i < m.n_calls && !a->status; i++) ht_jinja_list_append(a, calls, call_value(a, &m.calls[i]));
        ht_jinja_dict_set_text(a, d, "tool_calls", ht_jinja_list_value(HT_VALUE_LIST, calls));
    }
    return ht_chat_append(chat, d);
}

ht_status ht_chat_add(ht_chat *chat, const char *role, const char *content, ht_error *err) {
    ht_chat_message m = defaults;
    if (!role || !content)
        return ht_fail(err, HT_ERR_ARGUMENT, "message %zu has no role or no content", chat->messages->n);
    m.role = role;
    m.content = content;
    return ht_chat_add_message(chat, &m, err);
}

/* ---- tools and variables ---- */

ht_status ht_chat_set_value(ht_chat *chat, const char *name, ht_jinja_value v) {
    ht_jinja_arena *a = &chat->arena;
    if (a->status) return a->status;
    if (strcmp(name, "tools") == 0)
        chat->tools = v;
    else
        ht_jinja_dict_set_text(a, chat->variables, name, v);
    return a->status;
}

ht_status ht_chat_set_thinking(ht_chat *chat, bool on, ht_error *err) {
    static const char *const names[] = {"enable_thinking", "thinking"};
    ht_jinja_arena *a = ht_chat_begin(chat, err);
    for (int i = 0; i < 2; i++) ht_jinja_dict_set_text(a, chat->variables, names[i], ht_jinja_boolean(on));
    return a->status;
}

ht_status ht_chat_set_tool_choice(ht_chat *chat, ht_tool_choice choice, const char *name, bool parallel,
                                  ht_error *err) {
    if (choice < HT_TOOL_CHOICE_FREE || choice > HT_TOOL_CHOICE_NAMED)
        return ht_fail(err, HT_ERR_ARGUMENT, "%d is no choice of tools", (int)choice);
    if ((choice == HT_TOOL_CHOICE_NAMED) != (name != NULL))
        return ht_fail(err, HT_ERR_ARGUMENT, "a choice of tools %s",
                       name ? "by name has a name alone" : "by name has no name");
    ht_jinja_arena *a = ht_chat_begin(chat, err);
    const ht_jinja_value copy = name ? input(a, name) : ht_jinja_none();
    if (a->status) return a->status;
    chat->tool_choice = choice;
    chat->tool_name = name ? copy.string : NULL;
    chat->parallel_calls = parallel;
    return HT_OK;
}

void ht_chat_set_continue(ht_chat *chat, bool on) { chat->continues = on; }

void ht_chat_set_time(ht_chat *chat, int64_t seconds) { chat->time = seconds; }

/* ---- as JSON ---- */

/* In the form of ht_chat_from_json. */
static ht_jinja_value tool_choice_value(ht_jinja_arena *a, const ht_chat *chat) {
    static const char *const names[] = {"", "none", "auto", "required"};
    if (chat->tool_choice != HT_TOOL_CHOICE_NAMED) return ht_jinja_text_value(a, names[chat->tool_choice]);
    ht_jinja_dict *d = ht_jinja_dict_new(a), *function = ht_jinja_dict_new(a);
    ht_jinja_dict_set_text(a, d, "type", ht_jinja_text_value(a, "function"));
    ht_jinja_dict_set_text(a, function, "name", ht_jinja_string_value(chat->tool_name));
    ht_jinja_dict_set_text(a, d, "function", (ht_jinja_value){.kind = HT_VALUE_DICT, .dict = function});
    return (ht_jinja_value){.kind = HT_VALUE_DICT, .dict = d};
}

/* The object that ht_chat_from_json reads; its values are the chat's own. */
static ht_jinja_dict *document_of(ht_jinja_arena *a, const ht_chat *chat) {
    ht_jinja_dict *document = ht_jinja_dict_new(a);
    const ht_jinja_value messages = {.kind = HT_VALUE_LIST, .list = chat->messages};
    const ht_jinja_value variables = {.kind = HT_VALUE_DICT, .dict = chat->variables};
    if (a->status) return NULL;
    ht_jinja_dict_set_text(a, document, "messages", messages);
    if (chat->tools.kind != HT_VALUE_NONE) ht_jinja_dict_set_text(a, document, "tools", chat->tools);
    if (chat->tool_choice) ht_jinja_dict_set_text(a, document, "tool_choice", tool_choice_value(a, chat));
    if (!chat->parallel_calls) ht_jinja_dict_set_text(a, document, "parallel_tool_calls", ht_jinja_boolean(false));
    if (chat->continues) ht_jinja_dict_set_text(a, document, "continue_final_message", ht_jinja_boolean(true));
    if (chat->variables->n) ht_jinja_dict_set_text(a, document, "chat_template_kwargs", variables);
    return document;
}

ht_status ht_chat_to_json(const ht_chat *chat, char **json, ht_error *err) {
    ht_jinja_arena a = {.limit = SIZE_MAX / 4, .name = "the conversation", .err = err};
    ht_jinja_rendering how = {.a = &a};
    const ht_jinja_value document = {.kind = HT_VALUE_DICT, .dict = document_of(&a, chat)};
    const ht_jinja_string *text = a.status ? NULL : ht_jinja_json_text(&how, document, NULL, NULL, NULL, false, false);
    *json = a.status || !text ? NULL : strdup(text->text);
    ht_status status = a.status;
    if (!status && !*json) status = ht_fail_memory(err, 0, "the conversation as JSON");
    ht_jinja_arena_free(&a);
    return status;
}
