/* Histories of Anthropic's interface: messages of content blocks, translated into OpenAI's messages. */
#include "serve/anthropic/anthropic.h"
#include "serve/messages.h"

#include <string.h>
#include <strings.h>

/* A history that is being read. */
typedef struct reader {
    serve_call *c;
    serve_anthropic_request *request;
    serve_messages to;
    bool begun; /* the message has text already */
} reader;

/* Blocks of one message follow each other as they are; what was another message is set apart. */
static void add_text(reader *r, const char *role, const char *text) {
    serve_add_text(&r->to, role, r->begun ? "" : "\n\n", text);
    r->begun = true;
}

/* ---- results ---- */

/* Plain text, or a file of another format. */
static void append_document(reader *r, const json_t *block, ht_text *text) {
    const json_t *source = serve_member(block, "source");
    const char *type = serve_text(source, "type");
    if (type && strcmp(type, "text") == 0)
        ht_text_append_str(text, serve_text(source, "data"));
    else
        serve_append_unseen(r->c, "attached file", text);
}

static void read_result_block(reader *r, const json_t *block, ht_text *text) {
    const char *type = serve_text(block, "type");
    if (strcmp(type, "text") == 0) ht_text_append_str(text, serve_text(block, "text"));
    if (strcmp(type, "image") == 0) serve_append_unseen(r->c, "image", text);
    if (strcmp(type, "document") == 0) append_document(r, block, text);
    if (strcmp(type, "tool_reference") != 0) return;
    const json_t *tools = serve_member(r->c->body, "tools");
    if (!serve_anthropic_refer(tools, serve_text(block, "tool_name"), &r->request->referred, text)) r->to.failed = true;
}

/* A result's failure is told in words, as tools tell it themselves. */
static void read_result(reader *r, const json_t *block) {
    const json_t *content = serve_member(block, "content"), *one;
    ht_text text = {0};
    size_t i;
    if (json_is_string(content)) ht_text_append_str(&text, json_string_value(content));
    json_array_foreach((json_t *)content, i, one) {
        if (i) ht_text_append_str(&text, "\n");
        read_result_block(r, one, &text);
    }
    const char *said = text.data ? text.data : "";
    if (serve_flag(block, "is_error", false) && strncasecmp(said, "error", 5) != 0) {
        ht_text marked = {0};
        ht_text_append_str(&marked, "Error: ");
        ht_text_append(&marked, said, text.len);
        marked.failed = marked.failed || text.failed;
        ht_text_discard(&text);
        text = marked;
    }
    if (text.failed) r->to.failed = true;
    serve_add_result(&r->to, serve_text(block, "tool_use_id"), text.data ? text.data : "");
    ht_text_discard(&text);
}

/* Results come before the user's text, as templates have them behind the calls. */
static void read_results(reader *r, const json_t *blocks) {
    for (size_t i = 0; i < json_array_size(blocks); i++) {
        const json_t *block = json_array_get(blocks, i);
        if (strcmp(serve_text(block, "type"), "tool_result") == 0) read_result(r, block);
    }
}

/* ---- messages ---- */

static void read_call(reader *r, const json_t *block) {
    const json_t *input = serve_member(block, "input");
    json_t *none = input ? NULL : json_object();
    serve_add_call(&r->to, serve_text(block, "id"), serve_text(block, "name"), input ? input : none);
    json_decref(none);
}

static void read_thought(reader *r, const json_t *block) {
    const char *text = serve_filled_text(block, "thinking"), *sealed = serve_text(block, "signature");
    if (text)
        serve_add_thoughts(&r->to, text);
    else if (sealed) /* it was not shown */
        serve_add_sealed_thoughts(&r->to, sealed);
}

/* Results have been read before; redacted thoughts nobody but their author can read. */
static void read_block(reader *r, const char *role, const json_t *block) {
    const char *type = serve_text(block, "type");
    if (strcmp(type, "text") == 0) add_text(r, role, serve_text(block, "text"));
    if (strcmp(type, "tool_use") == 0) read_call(r, block);
    if (strcmp(type, "thinking") == 0) read_thought(r, block);
}

static void read_message(reader *r, const json_t *message) {
    const json_t *content = serve_member(message, "content");
    const char *role = serve_text(message, "role");
    r->begun = false;
    if (json_is_string(content)) {
        add_text(r, role, json_string_value(content));
        return;
    }
    read_results(r, content);
    for (size_t i = 0; i < json_array_size(content); i++) read_block(r, role, json_array_get(content, i));
}

/* ---- the system prompt ---- */

/* Claude Code begins it with a block that is another one in each request: no prefix would ever be found again. */
static bool changes_always(const char *text) {
    static const char mark[] = "x-anthropic-billing-header:";
    return strncmp(text, mark, sizeof mark - 1) == 0;
}

static void read_system(reader *r, const json_t *system) {
    if (json_string_length(system)) add_text(r, "system", json_string_value(system));
    for (size_t i = 0; i < json_array_size(system); i++) {
        const char *text = serve_text(json_array_get(system, i), "text");
        if (!changes_always(text)) add_text(r, "system", text);
    }
}

bool serve_anthropic_read_messages(serve_call *c, serve_anthropic_request *a) {
    reader r = {.c = c, .request = a};
    const json_t *messages = serve_member(c->body, "messages");
    read_system(&r, serve_member(c->body, "system"));
    for (size_t i = 0; i < json_array_size(messages); i++) read_message(&r, json_array_get(messages, i));
    bool good = serve_messages_end(&r.to) ? true : serve_fail_memory(&c->failure);
    if (good && !json_array_size(r.to.list))
        good = serve_fail(&c->failure, 400, "messages", "\"messages\" have no text, call or result");
    if (good) a->messages = json_incref(r.to.list);
    serve_messages_free(&r.to);
    return good;
}
