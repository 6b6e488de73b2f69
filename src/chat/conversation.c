/* Conversation builder: messages, tools and variables, added one by one or read from JSON. */
#include "chat/conversation.h"

#include "base/error.h"
#include "base/options.h"
#include "base/text.h"
#include "chat/reader.h"
#include "chat/tools.h"
#include "template/eval.h"
#include "tokenizer/unicode.h"

#include <stdarg.h>
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

/* The chat's arena, which reports failures to `err` from now on. */
static ht_jinja_arena *begin(ht_chat *chat, ht_error *err) {
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

static const char *const choices[] = {"", "none", "auto", "required"};
static const char *const roles[] = {"system", "developer", "user", "assistant", "tool"};

/* Whether a role exists; i: the message's index, for the error. */
static ht_status check_role(const char *role, size_t i, ht_error *err) {
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

/* The fields {"type": "function", "function": {}}; returns the inner object. */
static ht_jinja_dict *set_function(ht_jinja_arena *a, ht_jinja_dict *d) {
    ht_jinja_dict *function = ht_jinja_dict_new(a);
    ht_jinja_dict_set_text(a, d, "type", ht_jinja_text_value(a, "function"));
    ht_jinja_dict_set_text(a, d, "function", (ht_jinja_value){.kind = HT_VALUE_DICT, .dict = function});
    return function;
}

static ht_jinja_value call_value(ht_jinja_arena *a, const ht_tool_call *call) {
    ht_jinja_dict *d = ht_jinja_dict_new(a);
    set_input(a, d, "id", call->id);
    ht_jinja_dict *function = set_function(a, d);
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

/* The index of a new last message. Results are in the order of their calls: templates that write no ids rely on it. */
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

/* Takes a message that lies in the chat's arena. */
static ht_status append(ht_chat *chat, ht_jinja_dict *message) {
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
    status = check_role(m.role, n, err);
    if (status) return status;
    ht_jinja_arena *a = begin(chat, err);
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
    return append(chat, d);
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

/* Sets a variable to a value in the chat's arena. Tools, a list or None, are kept by themselves, as answers are read by them. */
static ht_status set_value(ht_chat *chat, const char *name, ht_jinja_value v) {
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
    ht_jinja_arena *a = begin(chat, err);
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
    ht_jinja_arena *a = begin(chat, err);
    const ht_jinja_value copy = name ? input(a, name) : ht_jinja_none();
    if (a->status) return a->status;
    chat->tool_choice = choice;
    chat->tool_name = name ? copy.string : NULL;
    chat->parallel_calls = parallel;
    return HT_OK;
}

void ht_chat_set_continue(ht_chat *chat, bool on) { chat->continues = on; }

void ht_chat_set_time(ht_chat *chat, int64_t seconds) { chat->time = seconds; }

/* ---- from JSON that is parsed already ---- */

typedef struct reader {
    ht_chat *chat;
    ht_jinja_arena *a;
    const char *name;
    ht_error *err;
    size_t i; /* of the message */
} reader;

/* An error about a value, with its place. */
static ht_status fail(const reader *r, ht_status status, const ht_json *at, const char *fmt, ...) HT_PRINTF(4, 5);
static ht_status fail(const reader *r, ht_status status, const ht_json *at, const char *fmt, ...) {
    char why[400], place[64] = "";
    va_list args;
    va_start(args, fmt);
    vsnprintf(why, sizeof why, fmt, args);
    va_end(args);
    if (at && at->line) snprintf(place, sizeof place, "line %u, column %u: ", at->line, at->column);
    return ht_fail(r->err, status, "%s%s%s%s", r->name ? r->name : "", r->name ? ": " : "", place, why);
}

/* Failures of the arena, such as of memory. */
static ht_status kept(const reader *r) { return r->a->status; }

static const char *describe(const ht_json *v) {
    if (!v) return "missing";
    switch (ht_json_typeof(v)) {
    case HT_JSON_NULL: return "null";
    case HT_JSON_TRUE:
    case HT_JSON_FALSE: return "a boolean";
    case HT_JSON_STRING: return "a string";
    case HT_JSON_ARRAY: return "a list";
    case HT_JSON_OBJECT: return "an object";
    default: return "a number";
    }
}

/* `within`: the value that lacks v, for the place. */
static ht_status wrong(const reader *r, const char *what, const ht_json *v, const ht_json *within,
                       const char *expected) {
    return fail(r, HT_ERR_FORMAT, v ? v : within, "%s of message %zu is %s, expected %s", what, r->i, describe(v),
                expected);
}

/* Parts of text as one. */
static ht_status join_parts(const reader *r, const ht_json *parts, ht_jinja_value *out) {
    ht_jinja_builder b = {.arena = r->a};
    for (size_t p = 0; p < ht_json_array_size(parts); p++) {
        const ht_json *part = ht_json_array_get(parts, p), *type = ht_json_object_get(part, "type"),
                      *text = ht_json_object_get(part, "text");
        if (!ht_json_is_string(type)) return wrong(r, "the type of a part", type, part, "a string");
        if (strcmp(ht_json_string_value(type), "text") != 0)
            return fail(r, HT_ERR_UNSUPPORTED, type,
                        "a part of message %zu is of the type \"%.40s\", of which there is only text", r->i,
                        ht_json_string_value(type));
        if (!ht_json_is_string(text)) return wrong(r, "the text of a part", text, part, "a string");
        ht_jinja_put(&b, ht_json_string_value(text), ht_json_string_length(text), true);
    }
    *out = ht_jinja_string_value(ht_jinja_built(&b));
    return kept(r);
}

/* Null stays, for templates that distinguish it from an empty text. */
static ht_status read_content(const reader *r, const ht_json *message, bool has_calls, ht_jinja_value *out) {
    const ht_json *content = ht_json_object_get(message, "content");
    *out = ht_jinja_none();
    if (ht_json_is_array(content)) return join_parts(r, content, out);
    if (ht_json_is_string(content))
        *out = ht_jinja_of_json(r->a, content);
    else if (content ? !ht_json_is_null(content) : !has_calls)
        return wrong(r, "the content", content, message, "a string or a list of parts");
    return kept(r);
}

static ht_status check_calls(const reader *r, const ht_json *message, bool *has_calls) {
    const ht_json *calls = ht_json_object_get(message, "tool_calls");
    *has_calls = ht_json_array_size(calls) > 0;
    if (calls && !ht_json_is_null(calls) && !ht_json_is_array(calls))
        return wrong(r, "`tool_calls`", calls, message, "a list");
    for (size_t i = 0; i < ht_json_array_size(calls); i++) {
        const ht_json *call = ht_json_array_get(calls, i), *function = ht_json_object_get(call, "function");
        if (!function) function = call; /* a bare one: name and arguments */
        if (!ht_json_is_object(function)) return wrong(r, "a call", function, message, "an object");
        const ht_json *name = ht_json_object_get(function, "name");
        if (!ht_json_is_string(name)) return wrong(r, "the name of a call", name, function, "a string");
    }
    return HT_OK;
}

static ht_status read_role(const reader *r, const ht_json *message) {
    const ht_json *role = ht_json_object_get(message, "role");
    ht_error why = {0};
    if (!ht_json_is_string(role)) return wrong(r, "the role", role, message, "a string");
    const ht_status status = check_role(ht_json_string_value(role), r->i, &why);
    return status ? fail(r, status, role, "%s", why.message) : HT_OK;
}

/* An empty list of calls is as none: templates test whether the field is defined. */
static ht_status read_message(const reader *r, const ht_json *message) {
    bool has_calls, has_content = false;
    ht_jinja_value content;
    if (!ht_json_is_object(message))
        return fail(r, HT_ERR_FORMAT, message, "message %zu is %s, expected an object", r->i, describe(message));
    ht_status status = read_role(r, message);
    if (!status) status = check_calls(r, message, &has_calls);
    if (!status) status = read_content(r, message, has_calls, &content);
    if (status) return status;
    ht_jinja_dict *d = ht_jinja_dict_new(r->a);
    const char *key;
    ht_json *value;
    ht_json_object_foreach(message, key, value) {
        ht_jinja_value v;
        if (strcmp(key, "tool_calls") == 0 && !has_calls) continue;
        if (strcmp(key, "role") == 0)
            v = ht_jinja_text_value(r->a, ht_json_string_value(value));
        else if (strcmp(key, "content") == 0)
            v = content, has_content = true;
        else
            v = ht_jinja_of_json(r->a, value);
        ht_jinja_dict_set(r->a, d, ht_jinja_string_value(ht_jinja_string_new(r->a, key, strlen(key), true)), v);
    }
    if (!has_content) ht_jinja_dict_set_text(r->a, d, "content", content);
    return kept(r) ? kept(r) : append(r->chat, d);
}

/* "none", "auto", "required", or {"type": "function", "function": {"name": ...}}. */
static ht_status read_tool_choice(const reader *r, const ht_json *v) {
    const char *word = ht_json_string_value(v);
    for (int i = HT_TOOL_CHOICE_NONE; i <= HT_TOOL_CHOICE_REQUIRED; i++)
        if (word && strcmp(word, choices[i]) == 0)
            return ht_chat_set_tool_choice(r->chat, (ht_tool_choice)i, NULL, r->chat->parallel_calls, r->err);
    const char *name = ht_json_string_value(ht_json_object_get(ht_json_object_get(v, "function"), "name"));
    if (!name)
        return fail(r, HT_ERR_FORMAT, v,
                    "`tool_choice` is %s, expected \"none\", \"auto\", \"required\" or {\"type\": \"function\", "
                    "\"function\": {\"name\": ...}}",
                    word ? "another word" : describe(v));
    return ht_chat_set_tool_choice(r->chat, HT_TOOL_CHOICE_NAMED, name, r->chat->parallel_calls, r->err);
}

static ht_status set_variable(const reader *r, const char *name, const ht_json *v) {
    if (strcmp(name, "messages") == 0)
        return fail(r, HT_ERR_ARGUMENT, v, "`messages` is no variable to set: messages are added");
    if (strcmp(name, "tools") == 0 && !ht_json_is_array(v) && !ht_json_is_null(v))
        return fail(r, HT_ERR_FORMAT, v, "`tools` is %s, expected a list", describe(v));
    const ht_jinja_value value = ht_jinja_of_json(r->a, v);
    return kept(r) ? kept(r) : set_value(r->chat, name, value);
}

static ht_status read_field(const reader *r, const char *key, const ht_json *v) {
    const char *name;
    ht_json *value;
    ht_status status = HT_OK;
    if (strcmp(key, "messages") == 0 || ht_json_is_null(v)) return HT_OK;
    if (strcmp(key, "tools") == 0) return set_variable(r, key, v);
    if (strcmp(key, "tool_choice") == 0) return read_tool_choice(r, v);
    bool *flag = strcmp(key, "parallel_tool_calls") == 0      ? &r->chat->parallel_calls
                 : strcmp(key, "continue_final_message") == 0 ? &r->chat->continues
                                                              : NULL;
    const bool opens = strcmp(key, "add_generation_prompt") == 0;
    if ((flag || opens) && !ht_json_is_boolean(v))
        return fail(r, HT_ERR_FORMAT, v, "`%s` is %s, expected a boolean", key, describe(v));
    if (opens) return set_variable(r, key, v);
    if (flag) *flag = ht_json_is_true(v);
    if (flag) return HT_OK;
    if (strcmp(key, "chat_template_kwargs") != 0)
        return fail(r, HT_ERR_UNSUPPORTED, v, "it has `%.40s`, which this version cannot use", key);
    if (!ht_json_is_object(v)) return fail(r, HT_ERR_FORMAT, v, "`%s` is %s, expected an object", key, describe(v));
    ht_json_object_foreach(v, name, value) if (!status) status = set_variable(r, name, value);
    return status;
}

static ht_status read_document(reader *r, const ht_json *document) {
    const ht_json *messages = ht_json_is_array(document) ? document : ht_json_object_get(document, "messages");
    const char *key;
    ht_json *value;
    ht_status status = HT_OK;
    if (!ht_json_is_array(document) && !ht_json_is_object(document))
        return fail(r, HT_ERR_FORMAT, document, "it is %s, expected an object, or a list of messages",
                    describe(document));
    if (!ht_json_is_array(messages))
        return fail(r, HT_ERR_FORMAT, messages ? messages : document, "`messages` is %s, expected a list",
                    describe(messages));
    if (ht_json_is_object(document))
        ht_json_object_foreach(document, key, value) if (!status) status = read_field(r, key, value);
    for (r->i = 0; !status && r->i < ht_json_array_size(messages); r->i++)
        status = read_message(r, ht_json_array_get(messages, r->i));
    return status;
}

ht_status ht_chat_from_value(const ht_json *document, const char *name, ht_chat **out, ht_error *err) {
    reader r = {.name = name, .err = err};
    *out = NULL;
    ht_status status = ht_chat_new(&r.chat, err);
    if (status) return status;
    r.a = begin(r.chat, err);
    status = read_document(&r, document);
    if (status)
        ht_chat_free(r.chat);
    else
        *out = r.chat;
    return status;
}

ht_status ht_chat_set_from_value(ht_chat *chat, const char *variable, const ht_json *value, const char *name,
                                 ht_error *err) {
    const reader r = {.chat = chat, .a = begin(chat, err), .name = name, .err = err};
    return set_variable(&r, variable, value);
}

/* ---- from JSON texts ---- */

/* As deep as JSON is read anywhere: a conversation has been wrapped by ht_chat_to_json, or by its reader. */
static ht_status load(const char *json, size_t n, const char *name, ht_json **out, ht_error *err) {
    return ht_json_load(json, n, &(ht_json_options){.name = name, .any_value = true, .depth_max = HT_JSON_DEPTH_MAX},
                        out, err);
}

ht_status ht_chat_set_variable(ht_chat *chat, const char *name, const char *json, size_t n, ht_error *err) {
    ht_json *value;
    ht_status status = load(json, n, name, &value, err);
    if (status) return status;
    status = ht_chat_set_from_value(chat, name, value, name, err);
    ht_json_decref(value);
    return status;
}

ht_status ht_chat_set_tools(ht_chat *chat, const char *json, size_t n, ht_error *err) {
    return ht_chat_set_variable(chat, "tools", json, n, err);
}

ht_status ht_chat_from_json(const char *json, size_t n, ht_chat **out, ht_error *err) {
    ht_json *document;
    *out = NULL;
    ht_status status = load(json, n, NULL, &document, err);
    if (status) return status;
    status = ht_chat_from_value(document, NULL, out, err);
    ht_json_decref(document);
    return status;
}

/* ---- as JSON ---- */

/* In the form of ht_chat_from_json. */
static ht_jinja_value tool_choice_value(ht_jinja_arena *a, const ht_chat *chat) {
    if (chat->tool_choice != HT_TOOL_CHOICE_NAMED) return ht_jinja_text_value(a, choices[chat->tool_choice]);
    ht_jinja_dict *d = ht_jinja_dict_new(a);
    ht_jinja_dict_set_text(a, set_function(a, d), "name", ht_jinja_string_value(chat->tool_name));
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
    const ht_jinja_value document = {.kind = HT_VALUE_DICT, .dict = document_of(&a, chat)};
    const ht_jinja_string *text = a.status ? NULL : ht_tool_json(&a, document);
    *json = a.status || !text ? NULL : strdup(text->text);
    ht_status status = a.status;
    if (!status && !*json) status = ht_fail_memory(err, 0, "the conversation as JSON");
    ht_jinja_arena_free(&a);
    return status;
}
