/* Input of the Responses interface: its items as messages of OpenAI's chat, and its tools in the form of the chat's. */
#include "serve/messages.h"
#include "serve/responses/responses.h"

#include <stdlib.h>
#include <string.h>

/* An input that is being read. */
typedef struct reader {
    serve_call *c;
    serve_messages to;
    bool leading; /* nothing but instructions has come so far */
    bool begun;   /* the message has text already */
} reader;

/* ---- parts of text ---- */

static const char *part_text(const ht_json *part) {
    const char *text = serve_text(part, "text");
    return text ? text : serve_text(part, "refusal");
}

/* Parts of one message follow each other as they are; what was another message is set apart. */
static void add_text(reader *r, const char *role, const char *text) {
    serve_add_text(&r->to, role, r->begun ? "" : "\n\n", text);
    r->begun = true;
}

static void read_message(reader *r, const ht_json *item) {
    const ht_json *content = serve_member(item, "content"), *part;
    const char *role = serve_text(item, "role");
    const bool instructs = strcmp(role, "system") == 0 || strcmp(role, "developer") == 0;
    size_t i;
    /* Templates have one place for instructions, before all else. */
    if (!instructs) r->leading = false;
    if (instructs && r->leading) role = "system";
    r->begun = false;
    if (ht_json_is_string(content)) add_text(r, role, ht_json_string_value(content));
    ht_json_array_foreach((ht_json *)content, i, part) add_text(r, role, part_text(part));
}

/* ---- calls and results ---- */

static void read_call(reader *r, const ht_json *item) {
    const char *name = serve_text(item, "name"), *namespace = serve_text(item, "namespace");
    char *joined = namespace ? serve_namespace_join(namespace, name) : NULL;
    if (namespace && !joined) r->to.failed = true;
    serve_add_call(&r->to, serve_text(item, "call_id"), joined ? joined : name, ht_json_object_get(item, "arguments"));
    free(joined);
}

/* The input of a custom tool is any text; templates take the arguments of calls for objects. */
static void read_custom_call(reader *r, const ht_json *item) {
    ht_json *arguments = ht_json_pack("{ss}", "input", serve_text(item, "input"));
    serve_add_call(&r->to, serve_text(item, "call_id"), serve_text(item, "name"), arguments);
    ht_json_decref(arguments);
}

static void append_result_part(reader *r, const ht_json *part, ht_text *text) {
    static const char *const unseen[][2] = {{"input_image", "image"}, {"input_file", "attached file"}};
    const char *type = serve_text(part, "type"), *what = NULL;
    for (size_t i = 0; i < sizeof unseen / sizeof *unseen; i++)
        if (strcmp(type, unseen[i][0]) == 0) what = unseen[i][1];
    if (what)
        serve_append_unseen(r->c, what, text);
    else
        ht_text_append_str(text, part_text(part));
}

static void read_result(reader *r, const ht_json *item) {
    const ht_json *output = serve_member(item, "output"), *part;
    size_t i;
    ht_text text = {0};
    if (ht_json_is_string(output)) ht_text_append_str(&text, ht_json_string_value(output));
    ht_json_array_foreach((ht_json *)output, i, part) {
        if (i) ht_text_append_str(&text, "\n");
        append_result_part(r, part, &text);
    }
    if (text.failed) r->to.failed = true;
    serve_add_result(&r->to, serve_text(item, "call_id"), text.data ? text.data : "");
    ht_text_discard(&text);
}

/* ---- thoughts ---- */

static bool add_thoughts(reader *r, const ht_json *list) {
    bool any = false;
    for (size_t i = 0; i < ht_json_array_size(list); i++) {
        const char *text = ht_json_string_value(ht_json_object_get(ht_json_array_get(list, i), "text"));
        if (!text || !*text) continue;
        serve_add_thoughts(&r->to, text);
        any = true;
    }
    return any;
}

/* The thoughts themselves; else what was sealed for those that do not show them; else their summary. */
static void read_reasoning(reader *r, const ht_json *item) {
    const char *sealed = serve_text(item, "encrypted_content");
    if (add_thoughts(r, ht_json_object_get(item, "content"))) return;
    if (sealed && serve_add_sealed_thoughts(&r->to, sealed)) return;
    add_thoughts(r, ht_json_object_get(item, "summary"));
}

/* ---- items ---- */

/* What tools of other services have done is passed over; their answers are in the messages behind. */
static void read_item(reader *r, const ht_json *item) {
    static const struct {
        const char *type;
        void (*read)(reader *r, const ht_json *item);
    } kinds[] = {{"message", read_message},
                 {"reasoning", read_reasoning},
                 {"function_call", read_call},
                 {"function_call_output", read_result},
                 {"custom_tool_call", read_custom_call},
                 {"custom_tool_call_output", read_result}};
    const char *type = serve_text(item, "type");
    if (!type) type = "message";
    if (strcmp(type, "message") != 0) r->leading = false;
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++)
        if (strcmp(type, kinds[i].type) == 0) {
            kinds[i].read(r, item);
            return;
        }
    char what[96];
    snprintf(what, sizeof what, "items of type %.64s", type);
    serve_call_ignore(r->c, what);
}

static void read_items(reader *r, const ht_json *input) {
    const char *instructions = serve_filled_text(r->c->body, "instructions");
    if (instructions) serve_add_text(&r->to, "system", "", instructions);
    if (ht_json_is_string(input)) serve_add_text(&r->to, "user", "", ht_json_string_value(input));
    for (size_t i = 0; i < ht_json_array_size(input); i++) read_item(r, ht_json_array_get(input, i));
}

bool serve_responses_read_input(serve_call *c, serve_responses_request *to) {
    reader r = {.c = c, .leading = true};
    read_items(&r, serve_member(c->body, "input"));
    bool good = serve_messages_end(&r.to) ? true : serve_fail_memory(&c->failure);
    if (good && !ht_json_array_size(r.to.list))
        good = serve_fail(&c->failure, 400, "input", "\"input\" has no text, call or result");
    if (good) to->messages = ht_json_incref(r.to.list);
    to->conversation.messages = to->messages;
    serve_messages_free(&r.to);
    return good;
}

/* ---- tools ---- */

/* A tool in the form of the chat's. Those that a service would run have types of their own, by which they are passed over. */
static ht_json *tool_from(const ht_json *tool) {
    static const char *const copied[] = {"name", "description", "parameters", "strict"};
    const char *type = ht_json_string_value(ht_json_object_get(tool, "type"));
    if (type && strcmp(type, "function") != 0) return ht_json_pack("{ss}", "type", type);
    if (ht_json_is_object(ht_json_object_get(tool, "function"))) return ht_json_incref((ht_json *)tool);
    ht_json *function = ht_json_new_object();
    for (size_t i = 0; i < sizeof copied / sizeof *copied; i++) {
        const ht_json *value = serve_member(tool, copied[i]);
        if (value) ht_json_object_set(function, copied[i], (ht_json *)value);
    }
    return ht_json_pack("{ss so}", "type", "function", "function", function);
}

static bool add_namespace(ht_json *to, const ht_json *namespace) {
    const ht_json *tools = ht_json_object_get(namespace, "tools");
    bool good = true;
    for (size_t i = 0; i < ht_json_array_size(tools) && good; i++) {
        ht_json *tool = serve_namespace_tool(namespace, ht_json_array_get(tools, i));
        good = tool && ht_json_array_append_new(to, tool_from(tool)) == 0;
        ht_json_decref(tool);
    }
    return good;
}

static void read_choice(serve_call *c, serve_conversation *k) {
    const ht_json *choice = serve_member(c->body, "tool_choice");
    k->choice = serve_read_tool_choice(c->body);
    if (!ht_json_is_object(choice)) return;
    k->tool = serve_text(choice, "name");
    k->choice = SERVE_TOOLS_NAMED;
    if (strcmp(serve_text(choice, "type"), "allowed_tools") == 0) serve_read_allowed(choice, k);
}

bool serve_responses_read_tools(serve_call *c, serve_responses_request *r) {
    const ht_json *tools = serve_member(c->body, "tools");
    read_choice(c, &r->conversation);
    r->conversation.one_call = !serve_flag(c->body, "parallel_tool_calls", true);
    if (!tools) return true;
    r->tools = ht_json_new_array();
    bool good = r->tools;
    for (size_t i = 0; i < ht_json_array_size(tools) && good; i++) {
        const ht_json *tool = ht_json_array_get(tools, i);
        good = serve_is_namespace(tool) ? add_namespace(r->tools, tool)
                                        : ht_json_array_append_new(r->tools, tool_from(tool)) == 0;
    }
    r->conversation.tools = r->tools;
    return good ? true : serve_fail_memory(&c->failure);
}
