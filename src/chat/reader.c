#include "chat/reader.h"

#include "base/error.h"
#include "chat/conversation.h"
#include "template/eval.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

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

static bool is_null(const ht_json *v) { return !v || ht_json_is_null(v); }

/* ---- messages ---- */

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
    if (!is_null(calls) && !ht_json_is_array(calls)) return wrong(r, "`tool_calls`", calls, message, "a list");
    for (size_t i = 0; i < ht_json_array_size(calls); i++) {
        const ht_json *call = ht_json_array_get(calls, i), *function = ht_json_object_get(call, "function");
        if (!function) function = call; /* a bare one: name and arguments */
        if (!ht_json_is_object(function)) return wrong(r, "a call", function, message, "an object");
        const ht_json *name = ht_json_object_get(function, "name");
        if (!ht_json_is_string(name)) return wrong(r, "the name of a call", name, function, "a string");
    }
    return HT_OK;
}

static ht_status check_role(const reader *r, const ht_json *message) {
    const ht_json *role = ht_json_object_get(message, "role");
    ht_error why = {0};
    if (!ht_json_is_string(role)) return wrong(r, "the role", role, message, "a string");
    const ht_status status = ht_chat_check_role(ht_json_string_value(role), r->i, &why);
    return status ? fail(r, status, role, "%s", why.message) : HT_OK;
}

/* An empty list of calls is as none: templates test whether the field is defined. */
static ht_status read_message(const reader *r, const ht_json *message) {
    bool has_calls, has_content = false;
    ht_jinja_value content;
    if (!ht_json_is_object(message))
        return fail(r, HT_ERR_FORMAT, message, "message %zu is %s, expected an object", r->i, describe(message));
    ht_status status = check_role(r, message);
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
    return kept(r) ? kept(r) : ht_chat_append(r->chat, d);
}

/* ---- other fields ---- */

/* "none", "auto", "required", or {"type": "function", "function": {"name": ...}}. */
static ht_status read_tool_choice(const reader *r, const ht_json *v) {
    static const char *const names[] = {"", "none", "auto", "required"};
    const char *word = ht_json_string_value(v);
    for (int i = HT_TOOL_CHOICE_NONE; i <= HT_TOOL_CHOICE_REQUIRED; i++)
        if (word && strcmp(word, names[i]) == 0)
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
    return kept(r) ? kept(r) : ht_chat_set_value(r->chat, name, value);
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
    r.a = ht_chat_begin(r.chat, err);
    status = read_document(&r, document);
    if (status)
        ht_chat_free(r.chat);
    else
        *out = r.chat;
    return status;
}

ht_status ht_chat_set_from_value(ht_chat *chat, const char *variable, const ht_json *value, const char *name,
                                 ht_error *err) {
    const reader r = {.chat = chat, .a = ht_chat_begin(chat, err), .name = name, .err = err};
    return set_variable(&r, variable, value);
}

/* ---- from a text ---- */

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
