/* Conversation builder: messages, added one by one or read from JSON. */
#include "base/checked.h"
#include "base/error.h"
#include "base/text.h"
#include "formats/json.h"
#include "generate/chat.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { FIRST_MESSAGES = 8 };

ht_status ht_chat_new(ht_chat **out, ht_error *err) {
    *out = calloc(1, sizeof **out);
    return *out ? HT_OK : ht_fail_memory(err, sizeof **out, "a conversation");
}

void ht_chat_free(ht_chat *chat) {
    if (!chat) return;
    for (size_t i = 0; i < chat->n; i++) {
        free(chat->messages[i].role);
        free(chat->messages[i].content);
    }
    free(chat->messages);
    free(chat);
}

size_t ht_chat_length(const ht_chat *chat) { return chat->n; }

/* The beginning of a text, as far as a message shows it. */
static const char *beginning(const char *text, char out[44]) {
    snprintf(out, 44, "%.40s", text);
    ht_utf8_trim(out);
    return out;
}

static ht_status check_message(const char *role, const char *content, size_t i, ht_error *err) {
    static const char *const roles[] = {"system", "user", "assistant"};
    char shown[44];
    if (!role || !content) return ht_fail(err, HT_ERR_ARGUMENT, "message %zu has no role or no content", i);
    for (size_t r = 0; r < sizeof roles / sizeof *roles; r++)
        if (strcmp(role, roles[r]) == 0) return HT_OK;
    return ht_fail(err, HT_ERR_ARGUMENT, "message %zu has the role \"%s\", expected system, user or assistant", i,
                   beginning(role, shown));
}

static bool make_room(ht_chat *chat) {
    if (chat->n < chat->capacity) return true;
    size_t capacity = chat->capacity ? 2 * chat->capacity : FIRST_MESSAGES;
    ht_chat_message *larger = realloc(chat->messages, capacity * sizeof *larger);
    if (!larger) return false;
    chat->messages = larger;
    chat->capacity = capacity;
    return true;
}

ht_status ht_chat_add(ht_chat *chat, const char *role, const char *content, ht_error *err) {
    ht_status status = check_message(role, content, chat->n, err);
    if (status) return status;
    ht_chat_message m = {strdup(role), strdup(content)};
    if (m.role && m.content && make_room(chat)) {
        chat->messages[chat->n++] = m;
        return HT_OK;
    }
    free(m.role);
    free(m.content);
    return ht_fail_memory(err, strlen(content), "a message");
}

/* ---- from JSON ---- */

/* Members but for two known ones have to be null. */
static ht_status refuse_others(const json_t *object, const char *known, const char *also, const char *of,
                               ht_error *err) {
    const char *key;
    json_t *value;
    char shown[44];
    json_object_foreach((json_t *)(uintptr_t)object, key, value) {
        if (strcmp(key, known) == 0 || strcmp(key, also) == 0 || json_is_null(value)) continue;
        return ht_fail(err, HT_ERR_UNSUPPORTED, "the conversation: %s has `%s`, which this version cannot use", of,
                       beginning(key, shown));
    }
    return HT_OK;
}

static ht_status wrong(const json_t *value, size_t i, const char *what, const char *expected, ht_error *err) {
    char found[80];
    return ht_fail(err, HT_ERR_FORMAT, "the conversation: %s of message %zu is %s, expected %s", what, i,
                   value ? ht_json_describe(value, found, sizeof found) : "missing", expected);
}

static ht_status read_part(const json_t *part, size_t i, ht_text *out, ht_error *err) {
    const json_t *type = json_object_get(part, "type"), *text = json_object_get(part, "text");
    if (!json_is_string(type)) return wrong(type, i, "the type of a part", "a string", err);
    char shown[44];
    if (strcmp(json_string_value(type), "text") != 0)
        return ht_fail(err, HT_ERR_UNSUPPORTED,
                       "the conversation: a part of message %zu is of the type \"%s\", of which there is only text", i,
                       beginning(json_string_value(type), shown));
    if (!json_is_string(text)) return wrong(text, i, "the text of a part", "a string", err);
    ht_text_append_str(out, json_string_value(text));
    return refuse_others(part, "type", "text", "a part", err);
}

static ht_status read_content(const json_t *content, size_t i, ht_text *out, ht_error *err) {
    ht_status status = HT_OK;
    ht_text_append_str(out, "");
    if (json_is_null(content)) return HT_OK;
    if (json_is_string(content))
        ht_text_append_str(out, json_string_value(content));
    else if (json_is_array(content))
        for (size_t p = 0; p < json_array_size(content) && !status; p++)
            status = read_part(json_array_get(content, p), i, out, err);
    else
        status = wrong(content, i, "the content", "a string or a list of parts", err);
    return status;
}

static ht_status read_message(const json_t *m, ht_chat *chat, ht_error *err) {
    const size_t i = chat->n;
    const json_t *role = json_object_get(m, "role");
    if (!json_is_string(role)) return wrong(role, i, "the role", "a string", err);
    ht_text content = {0};
    ht_status status = refuse_others(m, "role", "content", "a message", err);
    if (!status) status = read_content(json_object_get(m, "content"), i, &content, err);
    if (!status && content.failed) status = ht_fail_memory(err, content.len, "a message");
    if (!status) status = ht_chat_add(chat, json_string_value(role), content.data, err);
    ht_text_discard(&content);
    return status;
}

ht_status ht_chat_from_json(const char *json, size_t n, ht_chat **out, ht_error *err) {
    *out = NULL;
    json_t *document;
    ht_status status = ht_json_parse_strict(json, n, "the conversation", &document, err);
    if (status) return status;
    ht_chat *chat = NULL;
    const json_t *messages = json_object_get(document, "messages");
    if (!json_is_array(messages)) {
        char found[80];
        status = ht_fail(err, HT_ERR_FORMAT, "the conversation: `messages` is %s, expected a list",
                         messages ? ht_json_describe(messages, found, sizeof found) : "missing");
    }
    if (!status) status = refuse_others(document, "messages", "messages", "it", err);
    if (!status) status = ht_chat_new(&chat, err);
    for (size_t i = 0; !status && i < json_array_size(messages); i++)
        status = read_message(json_array_get(messages, i), chat, err);
    json_decref(document);
    if (status)
        ht_chat_free(chat);
    else
        *out = chat;
    return status;
}
