#include "serve/messages.h"

#include "base/base64.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Consumes the message; NULL, from a failed allocation, sets `failed`. */
static void put(serve_messages *m, ht_json *message) {
    if (!m->list) m->list = ht_json_new_array();
    if (ht_json_array_append_new(m->list, message)) m->failed = true;
}

static void set_text(serve_messages *m, ht_json *message, const char *name, const ht_text *text) {
    if (ht_json_object_set_new(message, name, ht_json_stringn(text->data ? text->data : "", text->len)))
        m->failed = true;
}

/* Completes the open message. */
static void flush(serve_messages *m) {
    if (!m->role) return;
    ht_json *message = ht_json_pack("{ss}", "role", m->role);
    if (m->text.len || !m->calls) set_text(m, message, "content", &m->text);
    if (m->thoughts.len) set_text(m, message, "reasoning_content", &m->thoughts);
    if (m->calls && ht_json_object_set(message, "tool_calls", m->calls)) m->failed = true;
    put(m, message);
    m->failed = m->failed || m->text.failed || m->thoughts.failed;
    ht_json_decref(m->calls);
    m->calls = NULL;
    m->role = NULL;
    ht_text_clear(&m->text);
    ht_text_clear(&m->thoughts);
}

static void take_turn(serve_messages *m, const char *role) {
    if (m->role && strcmp(m->role, role) == 0) return;
    flush(m);
    m->role = role;
}

void serve_add_text(serve_messages *m, const char *role, const char *text) {
    take_turn(m, role);
    if (m->text.len && !m->begun) ht_text_append_str(&m->text, "\n\n");
    ht_text_append_str(&m->text, text);
    m->begun = true;
}

void serve_add_thoughts(serve_messages *m, const char *text) {
    take_turn(m, "assistant");
    if (m->thoughts.len) ht_text_append_str(&m->thoughts, "\n\n");
    ht_text_append_str(&m->thoughts, text);
}

static const char seal[] = "hearth.";

ht_json *serve_seal_thoughts(const ht_text *thoughts) {
    ht_text text = {0};
    ht_text_append_str(&text, seal);
    ht_base64_encode(thoughts->data, thoughts->len, &text);
    ht_json *sealed = text.failed || thoughts->failed ? NULL : ht_json_stringn(text.data, text.len);
    ht_text_discard(&text);
    return sealed;
}

bool serve_add_sealed_thoughts(serve_messages *m, const char *sealed) {
    ht_text text = {0};
    if (strncmp(sealed, seal, sizeof seal - 1) != 0) return false;
    sealed += sizeof seal - 1;
    const bool good = ht_base64_decode(sealed, strlen(sealed), &text) && !text.failed && text.len &&
                      ht_utf8_valid(text.data, text.len) && !memchr(text.data, 0, text.len);
    if (text.failed) m->failed = true;
    if (good) serve_add_thoughts(m, text.data);
    ht_text_discard(&text);
    return good;
}

void serve_add_call(serve_messages *m, const char *id, const char *name, const ht_json *arguments) {
    take_turn(m, "assistant");
    if (!m->calls) m->calls = ht_json_new_array();
    if (!m->names) m->names = ht_json_new_object();
    ht_json *call = ht_json_pack("{ss ss s{ss sO}}", "id", id, "type", "function", "function", "name", name,
                                 "arguments", arguments);
    if (ht_json_array_append_new(m->calls, call) || ht_json_object_set_new(m->names, id, ht_json_string(name)))
        m->failed = true;
}

void serve_add_result(serve_messages *m, const char *id, const char *text) {
    flush(m);
    ht_json *name = ht_json_object_get(m->names, id);
    ht_json *message = ht_json_pack("{ss ss ss}", "role", "tool", "tool_call_id", id, "content", text);
    if (name && ht_json_object_set(message, "name", name)) m->failed = true;
    put(m, message);
}

void serve_append_unseen(serve_call *c, const char *what, ht_text *text) {
    char note[64];
    snprintf(note, sizeof note, "%ss of results", what);
    serve_call_ignore(c, note);
    ht_text_printf(text, "[Here is an %s, which you cannot see: you read text alone.]", what);
}

ht_json *serve_messages_end(serve_messages *m, serve_call *c, const char *member, const char *verb) {
    flush(m);
    if (m->failed) serve_fail_memory(&c->failure);
    if (!ht_json_array_size(m->list))
        serve_fail(&c->failure, 400, member, "\"%s\" %s no text, call or result", member, verb);
    ht_json *list = c->failure.status ? NULL : ht_json_incref(m->list);
    ht_json_decref(m->list);
    ht_json_decref(m->names);
    ht_json_decref(m->calls);
    ht_text_discard(&m->text);
    ht_text_discard(&m->thoughts);
    return list;
}
