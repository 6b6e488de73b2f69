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

/* A call's own failures: an earlier one's are past. */
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

static const char *const roles[] = {"system", "developer", "user", "assistant", "tool"};

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

/* The object that a text of JSON is; the text itself when it is none. */
static ht_jinja_value arguments_of(ht_jinja_arena *a, ht_jinja_value text) {
    if (!ht_jinja_is_string(text) || a->status) return text;
    ht_error *const err = a->err;
    a->err = NULL;
    ht_jinja_value v = ht_jinja_json_value(a, text.string->text, text.string->n, "the arguments");
    const bool memory = a->status == HT_ERR_MEMORY, object = !a->status && v.kind == HT_VALUE_DICT;
    a->status = HT_OK;
    a->err = err;
    if (memory) ht_jinja_arena_fail_as(a, HT_ERR_MEMORY, "out of memory for the arguments of a call");
    return object ? v : text;
}

static ht_jinja_value call_value(ht_jinja_arena *a, const ht_tool_call *call) {
    ht_jinja_dict *d = ht_jinja_dict_new(a), *function = ht_jinja_dict_new(a);
    set_input(a, d, "id", call->id);
    ht_jinja_dict_set_text(a, d, "type", ht_jinja_text_value(a, "function"));
    ht_jinja_dict_set_text(a, d, "function", (ht_jinja_value){.kind = HT_VALUE_DICT, .dict = function});
    set_input(a, function, "name", call->name);
    ht_jinja_dict_set_text(a, function, "arguments", arguments_of(a, input(a, call->arguments)));
    return (ht_jinja_value){.kind = HT_VALUE_DICT, .dict = d};
}

static ht_status append(ht_chat *chat, ht_jinja_dict *message) {
    ht_jinja_list_append(&chat->arena, chat->messages, (ht_jinja_value){.kind = HT_VALUE_DICT, .dict = message});
    return chat->arena.status;
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
    set_input(a, d, "content", m.content ? m.content : "");
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

static bool has_nul(ht_jinja_value v);

/* Tools are kept by themselves, as answers are read by them; messages are added, not set. */
static ht_status set_value(ht_chat *chat, const char *name, ht_jinja_value v) {
    ht_jinja_arena *a = &chat->arena;
    const bool tools = strcmp(name, "tools") == 0;
    if (a->status) return a->status;
    if (has_nul(v))
        ht_jinja_arena_fail(a, "`%s` holds a text with a NUL", name);
    else if (strcmp(name, "messages") == 0)
        ht_jinja_arena_fail_as(a, HT_ERR_ARGUMENT, "`messages` is no variable to set: messages are added");
    else if (tools && v.kind != HT_VALUE_LIST && v.kind != HT_VALUE_NONE)
        ht_jinja_arena_fail(a, "`tools` is %s, expected a list", ht_chat_describe(&v));
    else if (tools)
        chat->tools = v;
    else
        ht_jinja_dict_set_text(a, chat->variables, name, v);
    return a->status;
}

ht_status ht_chat_set_variable(ht_chat *chat, const char *name, const char *json, size_t n, ht_error *err) {
    ht_jinja_arena *a = begin(chat, err);
    return set_value(chat, name, ht_jinja_json_value(a, json, n, name));
}

ht_status ht_chat_set_tools(ht_chat *chat, const char *json, size_t n, ht_error *err) {
    return ht_chat_set_variable(chat, "tools", json, n, err);
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

/* ---- from JSON ---- */

/* How messages name a value. */
const char *ht_chat_describe(const ht_jinja_value *v) {
    if (!v) return "missing";
    switch (v->kind) {
    case HT_VALUE_NONE: return "null";
    case HT_VALUE_BOOL: return "a boolean";
    case HT_VALUE_STRING: return "a string";
    case HT_VALUE_LIST: return "a list";
    case HT_VALUE_DICT: return "an object";
    default: return "a number";
    }
}

static bool is_null(const ht_jinja_value *v) { return !v || v->kind == HT_VALUE_NONE; }

/* What a message is being made of. */
typedef struct source {
    ht_chat *chat;
    ht_jinja_arena *a;
    size_t i; /* of the message */
} source;

static void wrong(source *s, const char *what, const ht_jinja_value *v, const char *expected) {
    ht_jinja_arena_fail(s->a, "%s of message %zu is %s, expected %s", what, s->i, ht_chat_describe(v), expected);
}

/* Parts of text as one. */
static ht_jinja_value join_parts(source *s, const ht_jinja_list *parts) {
    ht_jinja_builder b = {.arena = s->a};
    char shown[44];
    for (size_t p = 0; p < parts->n && !s->a->status; p++) {
        const ht_jinja_dict *part = parts->items[p].kind == HT_VALUE_DICT ? parts->items[p].dict : NULL;
        const ht_jinja_value *type = part ? ht_jinja_dict_find_text(part, "type", 4) : NULL;
        const ht_jinja_value *text = part ? ht_jinja_dict_find_text(part, "text", 4) : NULL;
        if (!type || !ht_jinja_is_string(*type))
            wrong(s, "the type of a part", type, "a string");
        else if (!ht_jinja_string_is(type->string, "text"))
            ht_jinja_arena_fail_as(s->a, HT_ERR_UNSUPPORTED,
                                   "a part of message %zu is of the type \"%s\", of which there is only text", s->i,
                                   beginning(type->string->text, shown));
        else if (!text || !ht_jinja_is_string(*text))
            wrong(s, "the text of a part", text, "a string");
        else
            ht_jinja_put_string(&b, text->string);
    }
    const ht_jinja_string *joined = ht_jinja_built(&b);
    return ht_jinja_string_value(joined);
}

/* Texts end at a NUL where C programs read them. */
static bool has_nul(ht_jinja_value v) {
    if (ht_jinja_is_string(v)) return memchr(v.string->text, 0, v.string->n) != NULL;
    bool found = false;
    if (v.kind == HT_VALUE_LIST)
        for (size_t i = 0; i < v.list->n && !found; i++) found = has_nul(v.list->items[i]);
    if (v.kind == HT_VALUE_DICT)
        for (size_t i = 0; i < v.dict->n && !found; i++) found = has_nul(v.dict->keys[i]) || has_nul(v.dict->values[i]);
    return found;
}

static void read_content(source *s, ht_jinja_dict *message) {
    ht_jinja_value *content = ht_jinja_dict_find_text(message, "content", 7), v = ht_jinja_text_value(s->a, "");
    if (!is_null(content)) {
        if (ht_jinja_is_string(*content)) return;
        if (content->kind == HT_VALUE_LIST)
            v = join_parts(s, content->list);
        else
            wrong(s, "the content", content, "a string or a list of parts");
    } else if (!content && is_null(ht_jinja_dict_find_text(message, "tool_calls", 10)))
        wrong(s, "the content", content, "a string or a list of parts");
    if (!s->a->status) ht_jinja_dict_set_text(s->a, message, "content", v);
}

/* Arguments of calls, which clients send as texts, become the objects that templates expect. */
static void read_calls(source *s, ht_jinja_dict *message) {
    const ht_jinja_value *calls = ht_jinja_dict_find_text(message, "tool_calls", 10);
    if (is_null(calls)) return;
    if (calls->kind != HT_VALUE_LIST) {
        wrong(s, "`tool_calls`", calls, "a list");
        return;
    }
    for (size_t i = 0; i < calls->list->n && !s->a->status; i++) {
        const ht_jinja_value *call = &calls->list->items[i], *function = NULL;
        if (call->kind == HT_VALUE_DICT) function = ht_jinja_dict_find_text(call->dict, "function", 8);
        if (!function) function = call; /* a bare one: name and arguments */
        if (function->kind != HT_VALUE_DICT) {
            wrong(s, "a call", function, "an object");
            return;
        }
        const ht_jinja_value *name = ht_jinja_dict_find_text(function->dict, "name", 4);
        ht_jinja_value *arguments = ht_jinja_dict_find_text(function->dict, "arguments", 9);
        if (!name || !ht_jinja_is_string(*name)) wrong(s, "the name of a call", name, "a string");
        if (arguments) *arguments = arguments_of(s->a, *arguments);
    }
}

static void read_message(source *s, ht_jinja_value m) {
    if (m.kind != HT_VALUE_DICT) {
        ht_jinja_arena_fail(s->a, "message %zu is %s, expected an object", s->i, ht_chat_describe(&m));
        return;
    }
    ht_jinja_value *role = ht_jinja_dict_find_text(m.dict, "role", 4);
    if (!role || !ht_jinja_is_string(*role)) {
        wrong(s, "the role", role, "a string");
        return;
    }
    s->a->status = check_role(role->string->text, s->i, s->a->err);
    if (s->a->status) return;
    *role = ht_jinja_text_value(s->a, role->string->text);
    read_content(s, m.dict);
    read_calls(s, m.dict);
    if (!s->a->status) (void)append(s->chat, m.dict);
}

/* "none", "auto", "required", or {"type": "function", "function": {"name": ...}}. */
static void read_tool_choice(source *s, const ht_jinja_value *v) {
    static const char *const names[] = {"", "none", "auto", "required"};
    ht_chat *chat = s->chat;
    for (int i = HT_TOOL_CHOICE_NONE; i <= HT_TOOL_CHOICE_REQUIRED; i++)
        if (ht_jinja_is_string(*v) && ht_jinja_string_is(v->string, names[i])) {
            chat->tool_choice = (ht_tool_choice)i;
            return;
        }
    const ht_jinja_value *function = v->kind == HT_VALUE_DICT ? ht_jinja_dict_find_text(v->dict, "function", 8) : v;
    const ht_jinja_value *name =
        function && function->kind == HT_VALUE_DICT ? ht_jinja_dict_find_text(function->dict, "name", 4) : NULL;
    if (!name || !ht_jinja_is_string(*name)) {
        ht_jinja_arena_fail(s->a,
                            "`tool_choice` is %s, expected \"none\", \"auto\", \"required\" or {\"type\": "
                            "\"function\", \"function\": {\"name\": ...}}",
                            ht_jinja_is_string(*v) ? "another word" : ht_chat_describe(v));
        return;
    }
    chat->tool_choice = HT_TOOL_CHOICE_NAMED;
    chat->tool_name = name->string;
}

static bool read_flag(source *s, const char *name, const ht_jinja_value *v) {
    if (v->kind != HT_VALUE_BOOL)
        ht_jinja_arena_fail(s->a, "`%s` is %s, expected a boolean", name, ht_chat_describe(v));
    return v->kind == HT_VALUE_BOOL && v->boolean;
}

/* As read_tool_choice reads it. */
static ht_jinja_value tool_choice_value(ht_jinja_arena *a, const ht_chat *chat) {
    static const char *const names[] = {"", "none", "auto", "required"};
    if (chat->tool_choice != HT_TOOL_CHOICE_NAMED) return ht_jinja_text_value(a, names[chat->tool_choice]);
    ht_jinja_dict *d = ht_jinja_dict_new(a), *function = ht_jinja_dict_new(a);
    ht_jinja_dict_set_text(a, d, "type", ht_jinja_text_value(a, "function"));
    ht_jinja_dict_set_text(a, function, "name", ht_jinja_string_value(chat->tool_name));
    ht_jinja_dict_set_text(a, d, "function", (ht_jinja_value){.kind = HT_VALUE_DICT, .dict = function});
    return (ht_jinja_value){.kind = HT_VALUE_DICT, .dict = d};
}

static void read_document(source *s, const ht_jinja_dict *document) {
    const ht_jinja_value *messages = ht_jinja_dict_find_text(document, "messages", 8);
    char shown[44];
    if (!messages || messages->kind != HT_VALUE_LIST)
        ht_jinja_arena_fail(s->a, "`messages` is %s, expected a list", ht_chat_describe(messages));
    for (size_t i = 0; i < document->n && !s->a->status; i++) {
        const char *key = document->keys[i].string->text;
        const ht_jinja_value v = document->values[i];
        if (strcmp(key, "messages") == 0 || v.kind == HT_VALUE_NONE) continue;
        if (strcmp(key, "tools") == 0)
            (void)set_value(s->chat, key, v);
        else if (strcmp(key, "tool_choice") == 0)
            read_tool_choice(s, &v);
        else if (strcmp(key, "parallel_tool_calls") == 0)
            s->chat->parallel_calls = read_flag(s, key, &v);
        else if (strcmp(key, "continue_final_message") == 0)
            s->chat->continues = read_flag(s, key, &v);
        else if (strcmp(key, "add_generation_prompt") == 0)
            (void)set_value(s->chat, key, ht_jinja_boolean(read_flag(s, key, &v)));
        else if (strcmp(key, "chat_template_kwargs") != 0)
            ht_jinja_arena_fail_as(s->a, HT_ERR_UNSUPPORTED, "it has `%s`, which this version cannot use",
                                   beginning(key, shown));
        else if (v.kind != HT_VALUE_DICT)
            ht_jinja_arena_fail(s->a, "`%s` is %s, expected an object", key, ht_chat_describe(&v));
        else
            for (size_t k = 0; k < v.dict->n && !s->a->status; k++)
                (void)set_value(s->chat, v.dict->keys[k].string->text, v.dict->values[k]);
    }
    for (size_t i = 0; !s->a->status && i < messages->list->n; i++) {
        s->i = i;
        read_message(s, messages->list->items[i]);
    }
}

ht_status ht_chat_read(ht_chat *chat, const ht_jinja_dict *document, ht_error *err) {
    source s = {.chat = chat, .a = begin(chat, err)};
    if (has_nul((ht_jinja_value){.kind = HT_VALUE_DICT, .dict = (ht_jinja_dict *)(uintptr_t)document}))
        ht_jinja_arena_fail(s.a, "a text holds a NUL");
    else
        read_document(&s, document);
    return s.a->status;
}

ht_status ht_chat_from_json(const char *json, size_t n, ht_chat **out, ht_error *err) {
    *out = NULL;
    ht_chat *chat;
    ht_status status = ht_chat_new(&chat, err);
    if (status) return status;
    ht_jinja_arena *a = begin(chat, err);
    ht_jinja_value document = ht_jinja_json_value(a, json, n, NULL);
    if (!a->status && document.kind != HT_VALUE_DICT)
        ht_jinja_arena_fail(a, "it is %s, expected an object", ht_chat_describe(&document));
    status = a->status ? a->status : ht_chat_read(chat, document.dict, err);
    if (status)
        ht_chat_free(chat);
    else
        *out = chat;
    return status;
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
