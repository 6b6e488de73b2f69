/* Input of the Responses interface: its items as messages of OpenAI's chat, and its tools in the form of the chat's. */
#include "serve/messages.h"
#include "serve/responses.h"

#include <stdlib.h>
#include <string.h>

/* An input that is being read. */
typedef struct reader {
    serve_call *c;
    serve_messages to;
    size_t item;  /* where it is, for messages of failures */
    bool leading; /* nothing but instructions has come so far */
    bool begun;   /* the message has text already */
} reader;

static bool wrong(reader *r, const char *what) {
    return serve_fail(&r->c->failure, 400, "input", "\"input\": item %zu %s", r->item, what);
}

static bool refuse_type(reader *r, const char *what, const char *type, const char *expected) {
    char text[224];
    snprintf(text, sizeof text, "%s of the type \"%.64s\": this server reads %s", what, type, expected);
    ht_utf8_trim(text);
    return wrong(r, text);
}

/* A text that an item has to have. */
static bool item_text(reader *r, const json_t *item, const char *name, const char **text) {
    *text = json_string_value(json_object_get(item, name));
    if (*text) return true;
    char what[96];
    snprintf(what, sizeof what, "has no \"%s\", or one that is no text", name);
    return wrong(r, what);
}

/* ---- parts of text ---- */

/* The text of a part; NULL, with a failure, for one that is something else. */
static const char *part_text(reader *r, const json_t *part) {
    static const char *const types[][2] = {
        {"input_text", "text"}, {"output_text", "text"}, {"text", "text"}, {"refusal", "refusal"}};
    const char *type = json_string_value(json_object_get(part, "type")), *text = NULL;
    for (size_t i = 0; type && i < sizeof types / sizeof *types; i++)
        if (strcmp(type, types[i][0]) == 0) return item_text(r, part, types[i][1], &text) ? text : NULL;
    refuse_type(r, "has a part", type ? type : "", "input_text, output_text and refusal");
    return NULL;
}

/* Parts of one message follow each other as they are; what was another message is set apart. */
static void add_text(reader *r, const char *role, const char *text) {
    serve_add_text(&r->to, role, r->begun ? "" : "\n\n", text);
    r->begun = true;
}

static bool read_message(reader *r, const json_t *item) {
    static const char *const roles[] = {"user", "assistant", "system", "developer"};
    const json_t *content = serve_member(item, "content"), *part;
    int word = -1;
    size_t i;
    if (!serve_read_word(item, "role", roles, 4, &word, &r->c->failure)) return false;
    if (word < 0) return wrong(r, "is a message without a \"role\"");
    /* Templates have one place for instructions, before all else. */
    if (word < 2) r->leading = false;
    const char *role = word >= 2 && r->leading ? "system" : roles[word];
    r->begun = false;
    if (json_is_string(content)) {
        add_text(r, role, json_string_value(content));
        return true;
    }
    if (!json_is_array(content)) return wrong(r, "has a \"content\" that is neither text nor a list of parts");
    json_array_foreach((json_t *)content, i, part) {
        const char *text = part_text(r, part);
        if (!text) return false;
        add_text(r, role, text);
    }
    return true;
}

/* ---- calls and results ---- */

static bool read_call(reader *r, const json_t *item) {
    const char *id, *name, *arguments, *namespace = json_string_value(json_object_get(item, "namespace"));
    if (!item_text(r, item, "call_id", &id) || !item_text(r, item, "name", &name) ||
        !item_text(r, item, "arguments", &arguments))
        return false;
    char *joined = namespace ? serve_namespace_join(namespace, name) : NULL;
    if (namespace && !joined) return serve_fail_memory(&r->c->failure);
    serve_add_call(&r->to, id, joined ? joined : name, json_object_get(item, "arguments"));
    free(joined);
    return true;
}

/* The input of a custom tool is any text; templates take the arguments of calls for objects. */
static bool read_custom_call(reader *r, const json_t *item) {
    const char *id, *name, *input;
    if (!item_text(r, item, "call_id", &id) || !item_text(r, item, "name", &name) ||
        !item_text(r, item, "input", &input))
        return false;
    json_t *arguments = json_pack("{ss}", "input", input);
    serve_add_call(&r->to, id, name, arguments);
    json_decref(arguments);
    return true;
}

static bool add_part(reader *r, const json_t *part, ht_text *text) {
    static const char *const unseen[][2] = {{"input_image", "image"}, {"input_file", "attached file"}};
    const char *type = json_string_value(json_object_get(part, "type"));
    for (size_t i = 0; type && i < sizeof unseen / sizeof *unseen; i++)
        if (strcmp(type, unseen[i][0]) == 0) {
            serve_append_unseen(r->c, unseen[i][1], text);
            return true;
        }
    const char *piece = part_text(r, part);
    if (piece) ht_text_append_str(text, piece);
    return piece;
}

static bool read_result(reader *r, const json_t *item) {
    const json_t *output = serve_member(item, "output");
    const char *id;
    ht_text text = {0};
    if (!item_text(r, item, "call_id", &id)) return false;
    if (!json_is_array(output) && !json_is_string(output))
        return wrong(r, "has an \"output\" that is neither text nor a list of parts");
    if (json_is_string(output)) ht_text_append_str(&text, json_string_value(output));
    bool good = true;
    for (size_t i = 0; i < json_array_size(output) && good; i++) {
        if (i) ht_text_append_str(&text, "\n");
        good = add_part(r, json_array_get(output, i), &text);
    }
    if (text.failed) r->to.failed = true;
    if (good) serve_add_result(&r->to, id, text.data ? text.data : "");
    ht_text_discard(&text);
    return good;
}

/* ---- thoughts ---- */

static bool add_thoughts(reader *r, const json_t *list) {
    bool any = false;
    for (size_t i = 0; i < json_array_size(list); i++) {
        const char *text = json_string_value(json_object_get(json_array_get(list, i), "text"));
        if (!text || !*text) continue;
        serve_add_thoughts(&r->to, text);
        any = true;
    }
    return any;
}

/* The thoughts themselves; else what was sealed for those that do not show them; else their summary. */
static bool read_reasoning(reader *r, const json_t *item) {
    const char *sealed = json_string_value(json_object_get(item, "encrypted_content"));
    if (add_thoughts(r, json_object_get(item, "content"))) return true;
    if (sealed && serve_add_sealed_thoughts(&r->to, sealed)) return true;
    add_thoughts(r, json_object_get(item, "summary"));
    return true;
}

/* ---- items ---- */

static bool refuse_reference(reader *r, const json_t *item) {
    (void)item;
    return wrong(r, "is an item_reference, and this server keeps nothing: send the item itself");
}

/* What tools of other services have done; their answers are in the messages behind. */
static bool pass_over(reader *r, const json_t *item) {
    char what[96];
    snprintf(what, sizeof what, "items of type %.64s", json_string_value(json_object_get(item, "type")));
    serve_call_ignore(r->c, what);
    return true;
}

static bool read_item(reader *r, const json_t *item) {
    static const struct {
        const char *type;
        bool (*read)(reader *r, const json_t *item);
    } kinds[] = {{"message", read_message},
                 {"reasoning", read_reasoning},
                 {"function_call", read_call},
                 {"function_call_output", read_result},
                 {"custom_tool_call", read_custom_call},
                 {"custom_tool_call_output", read_result},
                 {"item_reference", refuse_reference},
                 {"web_search_call", pass_over},
                 {"file_search_call", pass_over},
                 {"code_interpreter_call", pass_over},
                 {"image_generation_call", pass_over}};
    const char *type = json_string_value(json_object_get(item, "type"));
    if (!type && serve_member(item, "role")) type = "message";
    for (size_t i = 0; type && i < sizeof kinds / sizeof *kinds; i++)
        if (strcmp(type, kinds[i].type) == 0) return kinds[i].read(r, item);
    return refuse_type(r, "is", type ? type : "",
                       "message, reasoning, function_call, custom_tool_call and the outputs of calls");
}

static bool read_items(reader *r, const json_t *input) {
    const char *instructions = NULL;
    if (!serve_read_text(r->c->body, "instructions", &instructions, &r->c->failure)) return false;
    if (instructions && *instructions) serve_add_text(&r->to, "system", "", instructions);
    if (json_is_string(input)) {
        serve_add_text(&r->to, "user", "", json_string_value(input));
        return true;
    }
    if (!json_array_size(input))
        return serve_fail(&r->c->failure, 400, "input", "\"input\" is to be a text or a list of one item or more");
    for (; r->item < json_array_size(input); r->item++) {
        const json_t *item = json_array_get(input, r->item);
        if (!read_item(r, item)) return false;
        const char *type = json_string_value(json_object_get(item, "type"));
        if (type && strcmp(type, "message") != 0) r->leading = false;
    }
    return true;
}

bool serve_responses_read_input(serve_call *c, serve_responses_request *to) {
    reader r = {.c = c, .leading = true};
    bool good = read_items(&r, serve_member(c->body, "input"));
    if (!serve_messages_end(&r.to)) good = serve_fail_memory(&c->failure);
    if (good && !json_array_size(r.to.list))
        good = serve_fail(&c->failure, 400, "input", "\"input\" has no text, call or result");
    if (good) to->messages = json_incref(r.to.list);
    to->conversation.messages = to->messages;
    serve_messages_free(&r.to);
    return good;
}

/* ---- tools ---- */

/* A tool in the form of the chat's. Those that a service would run have types of their own, by which they are passed over. */
static json_t *tool_from(const json_t *tool) {
    static const char *const copied[] = {"name", "description", "parameters", "strict"};
    const char *type = json_string_value(json_object_get(tool, "type"));
    if (type && strcmp(type, "function") != 0) return json_pack("{ss}", "type", type);
    if (json_is_object(json_object_get(tool, "function"))) return json_incref((json_t *)tool);
    json_t *function = json_object();
    for (size_t i = 0; i < sizeof copied / sizeof *copied; i++) {
        const json_t *value = serve_member(tool, copied[i]);
        if (value) json_object_set(function, copied[i], (json_t *)value);
    }
    return json_pack("{ss so}", "type", "function", "function", function);
}

/* Whether a choice allows a tool; NULL: all are. */
static bool allows(const json_t *allowed, const json_t *tool) {
    const char *name = json_string_value(json_object_get(json_object_get(tool, "function"), "name"));
    bool found = !allowed;
    for (size_t i = 0; name && i < json_array_size(allowed) && !found; i++) {
        const char *one = json_string_value(json_object_get(json_array_get(allowed, i), "name"));
        found = one && strcmp(one, name) == 0;
    }
    return found;
}

/* Takes the tool; false: memory ran out. */
static bool add_tool(json_t *to, json_t *tool, const json_t *allowed) {
    if (tool && !allows(allowed, tool)) {
        json_decref(tool);
        return true;
    }
    return json_array_append_new(to, tool) == 0;
}

static bool add_namespace(json_t *to, const json_t *namespace, const json_t *allowed) {
    const json_t *tools = json_object_get(namespace, "tools");
    bool good = true;
    for (size_t i = 0; i < json_array_size(tools) && good; i++) {
        json_t *tool = serve_namespace_tool(namespace, json_array_get(tools, i));
        good = tool && add_tool(to, tool_from(tool), allowed);
        json_decref(tool);
    }
    return good;
}

static bool read_named_choice(serve_call *c, const json_t *choice, serve_conversation *k, const json_t **allowed) {
    static const char *const types[] = {"function", "allowed_tools"}, *const modes[] = {"auto", "required"};
    const char *type = json_string_value(json_object_get(choice, "type"));
    int mode = 0;
    if (type && strcmp(type, types[1]) == 0) {
        if (!serve_read_word(choice, "mode", modes, 2, &mode, &c->failure) ||
            !serve_read_array(choice, "tools", allowed, &c->failure))
            return false;
        k->choice = mode ? SERVE_TOOLS_REQUIRED : SERVE_TOOLS_AUTO;
        return true;
    }
    k->tool = json_string_value(json_object_get(choice, "name"));
    if (!type || strcmp(type, types[0]) != 0 || !k->tool)
        return serve_fail(
            &c->failure, 400, "tool_choice",
            "\"tool_choice\" is to be \"auto\", \"none\", \"required\", {\"type\": \"function\", \"name\": "
            "...} or {\"type\": \"allowed_tools\", ...}");
    k->choice = SERVE_TOOLS_NAMED;
    return true;
}

static bool read_choice(serve_call *c, serve_conversation *k, const json_t **allowed) {
    static const char *const words[] = {"auto", "none", "required"};
    static const serve_tool_choice choices[] = {SERVE_TOOLS_AUTO, SERVE_TOOLS_NONE, SERVE_TOOLS_REQUIRED};
    const json_t *choice = serve_member(c->body, "tool_choice");
    int word = 0;
    if (choice && !json_is_string(choice)) return read_named_choice(c, choice, k, allowed);
    if (!serve_read_word(c->body, "tool_choice", words, 3, &word, &c->failure)) return false;
    k->choice = choices[word];
    return true;
}

bool serve_responses_read_tools(serve_call *c, serve_responses_request *r) {
    const json_t *tools = NULL, *allowed = NULL;
    bool parallel = true;
    if (!serve_read_array(c->body, "tools", &tools, &c->failure) ||
        !serve_read_flag(c->body, "parallel_tool_calls", &parallel, &c->failure) ||
        !read_choice(c, &r->conversation, &allowed))
        return false;
    r->conversation.one_call = !parallel;
    if (!tools) return true;
    r->tools = json_array();
    bool good = r->tools != NULL;
    for (size_t i = 0; i < json_array_size(tools) && good; i++) {
        const json_t *tool = json_array_get(tools, i);
        good = serve_is_namespace(tool) ? add_namespace(r->tools, tool, allowed)
                                        : add_tool(r->tools, tool_from(tool), allowed);
    }
    r->conversation.tools = r->tools;
    return good ? true : serve_fail_memory(&c->failure);
}
