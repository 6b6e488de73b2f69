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
static void append_document(reader *r, const ht_json *block, ht_text *text) {
    const ht_json *source = serve_member(block, "source");
    const char *type = serve_text(source, "type");
    if (type && strcmp(type, "text") == 0)
        ht_text_append_str(text, serve_text(source, "data"));
    else
        serve_append_unseen(r->c, "attached file", text);
}

static void read_result_block(reader *r, const ht_json *block, ht_text *text) {
    const char *type = serve_text(block, "type");
    if (strcmp(type, "text") == 0) ht_text_append_str(text, serve_text(block, "text"));
    if (strcmp(type, "image") == 0) serve_append_unseen(r->c, "image", text);
    if (strcmp(type, "document") == 0) append_document(r, block, text);
    if (strcmp(type, "tool_reference") != 0) return;
    const ht_json *tools = serve_member(r->c->body, "tools");
    if (!serve_anthropic_refer(tools, serve_text(block, "tool_name"), &r->request->referred, text)) r->to.failed = true;
}

/* A result's failure is told in words, as tools tell it themselves. */
static void read_result(reader *r, const ht_json *block) {
    const ht_json *content = serve_member(block, "content"), *one;
    ht_text text = {0};
    size_t i;
    if (ht_json_is_string(content)) ht_text_append_str(&text, ht_json_string_value(content));
    ht_json_array_foreach((ht_json *)content, i, one) {
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
static void read_results(reader *r, const ht_json *blocks) {
    for (size_t i = 0; i < ht_json_array_size(blocks); i++) {
        const ht_json *block = ht_json_array_get(blocks, i);
        if (strcmp(serve_text(block, "type"), "tool_result") == 0) read_result(r, block);
    }
}

/* ---- messages ---- */

static void read_call(reader *r, const ht_json *block) {
    const ht_json *input = serve_member(block, "input");
    ht_json *none = input ? NULL : ht_json_new_object();
    serve_add_call(&r->to, serve_text(block, "id"), serve_text(block, "name"), input ? input : none);
    ht_json_decref(none);
}

static void read_thought(reader *r, const ht_json *block) {
    const char *text = serve_filled_text(block, "thinking"), *sealed = serve_text(block, "signature");
    if (text)
        serve_add_thoughts(&r->to, text);
    else if (sealed) /* it was not shown */
        serve_add_sealed_thoughts(&r->to, sealed);
}

/* Results have been read before; redacted thoughts nobody but their author can read. */
static void read_block(reader *r, const char *role, const ht_json *block) {
    const char *type = serve_text(block, "type");
    if (strcmp(type, "text") == 0) add_text(r, role, serve_text(block, "text"));
    if (strcmp(type, "tool_use") == 0) read_call(r, block);
    if (strcmp(type, "thinking") == 0) read_thought(r, block);
}

static void read_message(reader *r, const ht_json *message) {
    const ht_json *content = serve_member(message, "content");
    const char *role = serve_text(message, "role");
    r->begun = false;
    if (ht_json_is_string(content)) {
        add_text(r, role, ht_json_string_value(content));
        return;
    }
    read_results(r, content);
    for (size_t i = 0; i < ht_json_array_size(content); i++) read_block(r, role, ht_json_array_get(content, i));
}

/* ---- the system prompt ---- */

/* Claude Code begins it with a block that is another one in each request: no prefix would ever be found again. */
static bool changes_always(const char *text) {
    static const char mark[] = "x-anthropic-billing-header:";
    return strncmp(text, mark, sizeof mark - 1) == 0;
}

static void read_system(reader *r, const ht_json *system) {
    if (ht_json_string_length(system)) add_text(r, "system", ht_json_string_value(system));
    for (size_t i = 0; i < ht_json_array_size(system); i++) {
        const char *text = serve_text(ht_json_array_get(system, i), "text");
        if (!changes_always(text)) add_text(r, "system", text);
    }
}

bool serve_anthropic_read_messages(serve_call *c, serve_anthropic_request *a) {
    reader r = {.c = c, .request = a};
    const ht_json *messages = serve_member(c->body, "messages");
    read_system(&r, serve_member(c->body, "system"));
    for (size_t i = 0; i < ht_json_array_size(messages); i++) read_message(&r, ht_json_array_get(messages, i));
    bool good = serve_messages_end(&r.to) ? true : serve_fail_memory(&c->failure);
    if (good && !ht_json_array_size(r.to.list))
        good = serve_fail(&c->failure, 400, "messages", "\"messages\" have no text, call or result");
    if (good) a->messages = ht_json_incref(r.to.list);
    serve_messages_free(&r.to);
    return good;
}
