/* Histories of Anthropic's interface: messages of content blocks, translated into OpenAI's messages. */
#include "serve/anthropic.h"
#include "serve/messages.h"

#include <string.h>
#include <strings.h>

/* A history that is being read. */
typedef struct reader {
    serve_call *c;
    serve_failure *f; /* the call's */
    serve_anthropic_request *request;
    serve_messages to;
    size_t message, block; /* where it is, for messages of failures */
    bool begun;            /* the message has text already */
} reader;

static bool wrong(reader *r, const char *what) {
    return serve_fail(r->f, 400, "messages", "\"messages\": content %zu of message %zu %s", r->block, r->message, what);
}

/* A text that a block has to have. */
static bool block_text(reader *r, const json_t *block, const char *name, const char **text) {
    *text = json_string_value(json_object_get(block, name));
    if (*text) return true;
    char what[96];
    snprintf(what, sizeof what, "has no \"%s\", or one that is no text", name);
    return wrong(r, what);
}

static bool refuse_type(reader *r, const char *type, const char *where) {
    char what[224];
    snprintf(what, sizeof what, "has a block of the type \"%.64s\"%s: this server reads %s", type, where,
             *where ? "text, image, document and tool_reference there" : "text, tool_use, tool_result and thinking");
    ht_utf8_trim(what);
    return wrong(r, what);
}

/* Blocks of one message follow each other as they are; what was another message is set apart. */
static void add_text(reader *r, const char *role, const char *text) {
    serve_add_text(&r->to, role, r->begun ? "" : "\n\n", text);
    r->begun = true;
}

/* ---- results ---- */

static bool result_text(reader *r, const json_t *block, ht_text *text) {
    const char *piece;
    if (!block_text(r, block, "text", &piece)) return false;
    ht_text_append_str(text, piece);
    return true;
}

static bool result_reference(reader *r, const json_t *block, ht_text *text) {
    const char *name;
    if (!block_text(r, block, "tool_name", &name)) return false;
    return serve_anthropic_refer(serve_member(r->c->body, "tools"), name, &r->request->referred, text)
               ? true
               : serve_fail_memory(r->f);
}

static bool result_picture(reader *r, const json_t *block, ht_text *text) {
    (void)block;
    serve_append_unseen(r->c, "image", text);
    return true;
}

/* Plain text, or a file of another format. */
static bool result_document(reader *r, const json_t *block, ht_text *text) {
    const json_t *source = json_object_get(block, "source");
    const char *type = json_string_value(json_object_get(source, "type"));
    if (type && strcmp(type, "text") == 0) {
        const char *data;
        if (!block_text(r, source, "data", &data)) return false;
        ht_text_append_str(text, data);
    } else {
        serve_append_unseen(r->c, "attached file", text);
    }
    return true;
}

static bool result_block(reader *r, const json_t *block, ht_text *text) {
    static const struct {
        const char *type;
        bool (*read)(reader *r, const json_t *block, ht_text *text);
    } kinds[] = {{"text", result_text},
                 {"tool_reference", result_reference},
                 {"image", result_picture},
                 {"document", result_document}};
    const char *type = json_string_value(json_object_get(block, "type"));
    for (size_t i = 0; type && i < sizeof kinds / sizeof *kinds; i++)
        if (strcmp(type, kinds[i].type) == 0) return kinds[i].read(r, block, text);
    return refuse_type(r, type ? type : "", " in its result");
}

static bool result_blocks(reader *r, const json_t *blocks, ht_text *text) {
    for (size_t i = 0; i < json_array_size(blocks); i++) {
        if (i) ht_text_append_str(text, "\n");
        if (!result_block(r, json_array_get(blocks, i), text)) return false;
    }
    return true;
}

/* A result's failure is told in words, as tools tell it themselves. */
static bool read_result(reader *r, const json_t *block) {
    const json_t *content = serve_member(block, "content");
    const char *id;
    ht_text text = {0};
    if (!block_text(r, block, "tool_use_id", &id)) return false;
    bool good = true;
    if (json_is_array(content))
        good = result_blocks(r, content, &text);
    else if (json_is_string(content))
        ht_text_append_str(&text, json_string_value(content));
    else if (content)
        good = wrong(r, "has a \"content\" that is neither text nor a list");
    const char *said = text.data ? text.data : "";
    if (good && json_is_true(json_object_get(block, "is_error")) && strncasecmp(said, "error", 5) != 0) {
        ht_text marked = {0};
        ht_text_append_str(&marked, "Error: ");
        ht_text_append(&marked, said, text.len);
        ht_text_discard(&text);
        text = marked;
    }
    if (text.failed) good = serve_fail_memory(r->f);
    if (good) serve_add_result(&r->to, id, text.data ? text.data : "");
    ht_text_discard(&text);
    return good;
}

/* ---- messages ---- */

static bool read_call(reader *r, const json_t *block) {
    const char *id, *name;
    if (!block_text(r, block, "id", &id) || !block_text(r, block, "name", &name)) return false;
    const json_t *input = serve_member(block, "input");
    json_t *none = input ? NULL : json_object();
    serve_add_call(&r->to, id, name, input ? input : none);
    json_decref(none);
    return true;
}

static bool read_assistant_block(reader *r, const char *type, const json_t *block) {
    const char *text;
    if (strcmp(type, "tool_use") == 0) return read_call(r, block);
    if (strcmp(type, "redacted_thinking") == 0) return true; /* nobody but its author can read it */
    if (strcmp(type, "thinking") == 0) {
        const char *sealed = json_string_value(json_object_get(block, "signature"));
        if (!block_text(r, block, "thinking", &text)) return false;
        if (*text)
            serve_add_thoughts(&r->to, text);
        else if (sealed) /* it was not shown */
            serve_add_sealed_thoughts(&r->to, sealed);
        return true;
    }
    return refuse_type(r, type, "");
}

static bool read_block(reader *r, const char *role, const json_t *block) {
    const char *type = json_string_value(json_object_get(block, "type")), *text;
    if (!type) return wrong(r, "is no block with a \"type\"");
    if (strcmp(type, "text") == 0) {
        if (!block_text(r, block, "text", &text)) return false;
        add_text(r, role, text);
        return true;
    }
    if (strcmp(role, "user") == 0 && strcmp(type, "tool_result") == 0) return true; /* read before */
    return strcmp(role, "assistant") == 0 ? read_assistant_block(r, type, block) : refuse_type(r, type, "");
}

/* Results come before the user's text, as templates have them behind the calls. */
static bool read_results(reader *r, const json_t *blocks) {
    json_t *block;
    json_array_foreach((json_t *)blocks, r->block, block) {
        const char *type = json_string_value(json_object_get(block, "type"));
        if (type && strcmp(type, "tool_result") == 0 && !read_result(r, block)) return false;
    }
    return true;
}

static bool read_message(reader *r, const json_t *message) {
    static const char *const roles[] = {"user", "assistant", "system"};
    int role = -1;
    const json_t *content = serve_member(message, "content"), *block;
    if (!serve_read_word(message, "role", roles, 3, &role, r->f)) return false;
    if (role < 0)
        return serve_fail(r->f, 400, "messages", "\"messages\": message %zu is no object with a \"role\"", r->message);
    r->begun = false;
    if (json_is_string(content)) {
        add_text(r, roles[role], json_string_value(content));
        return true;
    }
    if (!json_is_array(content))
        return serve_fail(r->f, 400, "messages",
                          "\"messages\": the \"content\" of message %zu is to be a text or a list of blocks",
                          r->message);
    if (role == 0 && !read_results(r, content)) return false;
    json_array_foreach((json_t *)content, r->block, block) if (!read_block(r, roles[role], block)) return false;
    return true;
}

/* ---- the system prompt ---- */

/* Claude Code begins it with a block that is another one in each request: no prefix would ever be found again. */
static bool changes_always(const char *text) {
    static const char mark[] = "x-anthropic-billing-header:";
    return strncmp(text, mark, sizeof mark - 1) == 0;
}

static bool read_system(reader *r, const json_t *system) {
    if (!system) return true;
    if (json_is_string(system)) {
        if (json_string_length(system)) add_text(r, "system", json_string_value(system));
        return true;
    }
    if (!json_is_array(system))
        return serve_fail(r->f, 400, "system", "\"system\" is to be a text or a list of text blocks");
    const json_t *block;
    json_array_foreach((json_t *)system, r->block, block) {
        const char *type = json_string_value(json_object_get(block, "type"));
        const char *text = json_string_value(json_object_get(block, "text"));
        if (!type || strcmp(type, "text") != 0 || !text)
            return serve_fail(r->f, 400, "system", "\"system\": block %zu is of the type \"%.64s\", expected text",
                              r->block, type ? type : "");
        if (!changes_always(text)) add_text(r, "system", text);
    }
    return true;
}

bool serve_anthropic_read_messages(serve_call *c, serve_anthropic_request *a) {
    reader r = {.c = c, .f = &c->failure, .request = a};
    const json_t *messages = NULL, *message;
    if (!serve_read_array(c->body, "messages", &messages, &c->failure)) return false;
    if (!json_array_size(messages))
        return serve_fail(&c->failure, 400, "messages", "\"messages\" is to be a list of one message or more");
    bool good = read_system(&r, serve_member(c->body, "system"));
    for (; good && r.message < json_array_size(messages); r.message++) {
        message = json_array_get(messages, r.message);
        good = read_message(&r, message);
    }
    if (!serve_messages_end(&r.to)) good = serve_fail_memory(&c->failure);
    if (good && !json_array_size(r.to.list))
        good = serve_fail(&c->failure, 400, "messages", "\"messages\" have no text, call or result");
    if (good) a->messages = json_incref(r.to.list);
    serve_messages_free(&r.to);
    return good;
}
