/* Requests of the Responses interface, whose items become OpenAI chat messages, and the endpoints. */
#include "serve/messages.h"
#include "serve/responses/responses.h"
#include "serve/sampling.h"

#include <stdlib.h>
#include <string.h>

/* ---- fields ---- */

#define FULL SERVE_IS_TEXT, .required = true
static const serve_field text_part[] = {{"text", .is = FULL}, {0}}, refusal_part[] = {{"refusal", .is = FULL}, {0}};
#define TEXT_PARTS                                                                                                     \
    {"input_text", text_part}, {"output_text", text_part}, {"text", text_part}, { "refusal", refusal_part }
static const serve_kind parts[] = {TEXT_PARTS, {0}};
static const serve_kind result_parts[] = {
    TEXT_PARTS, {"input_image", SERVE_NO_FIELDS}, {"input_file", SERVE_NO_FIELDS}, {0}};
static const serve_shape part_shape = {.types = SERVE_JSON_OBJECT, .kinds = parts, .lenient = true},
                         result_part = {.types = SERVE_JSON_OBJECT, .kinds = result_parts, .lenient = true};

static const char *const roles[] = {"user", "assistant", "system", "developer", NULL};
static const serve_field message[] = {
    {"role", .is = SERVE_IS_WORD(roles), .required = true},
    {"content", .is = {.types = SERVE_JSON_TEXT | SERVE_JSON_LIST, .item = &part_shape}, .required = true},
    {0}};
static const serve_field reasoning[] = {{"content", .is = {.types = SERVE_JSON_LIST}},
                                        {"summary", .is = {.types = SERVE_JSON_LIST}},
                                        {"encrypted_content", .is = SERVE_IS_TEXT},
                                        {0}};
static const serve_field call[] = {
    {"call_id", .is = FULL}, {"name", .is = FULL}, {"arguments", .is = FULL}, {"namespace", .is = SERVE_IS_TEXT}, {0}};
static const serve_field custom_call[] = {{"call_id", .is = FULL}, {"name", .is = FULL}, {"input", .is = FULL}, {0}};
static const serve_field result[] = {
    {"call_id", .is = FULL},
    {"output", .is = {.types = SERVE_JSON_TEXT | SERVE_JSON_LIST, .item = &result_part}, .required = true},
    {0}};
static const serve_field reference[] = {
    {"id", .class = SERVE_LACKED, .instead = "this server stores no items; send the item itself"}, {0}};
static const serve_kind items[] = {{"message", message},
                                   {"reasoning", reasoning},
                                   {"function_call", call},
                                   {"function_call_output", result},
                                   {"custom_tool_call", custom_call},
                                   {"custom_tool_call_output", result},
                                   {"item_reference", reference},
                                   {"web_search_call", SERVE_NO_FIELDS},
                                   {"file_search_call", SERVE_NO_FIELDS},
                                   {"code_interpreter_call", SERVE_NO_FIELDS},
                                   {"image_generation_call", SERVE_NO_FIELDS},
                                   {0}};
static const serve_shape item_shape = {.types = SERVE_JSON_OBJECT, .kinds = items, .first_kind = true, .lenient = true};

static const serve_field tool_members[] = {{"name", .is = SERVE_IS_TEXT},
                                           {"description", .is = SERVE_IS_TEXT},
                                           {"parameters", .is = {.types = SERVE_JSON_OBJECT}},
                                           {"strict", .is = SERVE_IS_FLAG},
                                           {"function", .is = SERVE_IS_PART(serve_function_fields)},
                                           {0}};
static const serve_kind inner_tools[] = {{"function", tool_members}, {0}};
static const serve_shape tool_in_namespace = {
    .types = SERVE_JSON_OBJECT, .kinds = inner_tools, .first_kind = true, .other_kinds = true, .lenient = true};
static const serve_field of_namespace[] = {
    {"name", .is = FULL}, {"tools", .is = SERVE_IS_LIST(&tool_in_namespace)}, {0}};
static const serve_kind tool_kinds[] = {{"function", tool_members}, {"namespace", of_namespace}, {0}};
static const serve_shape tool_shape = {
    .types = SERVE_JSON_OBJECT, .kinds = tool_kinds, .first_kind = true, .other_kinds = true, .lenient = true};

static const serve_kind choices[] = {
    {"function", SERVE_FIELDS({"name", .is = FULL})}, {"allowed_tools", serve_allowed_fields}, {0}};

static const serve_field effort[] = {
    {"effort", .is = SERVE_IS_WORD(serve_efforts)}, SERVE_NOTED_FIELDS("summary", "generate_summary"), {0}};
static const serve_field format[] = {{"format", .is = SERVE_IS_FORMAT}, SERVE_NOTED_FIELDS("verbosity"), {0}};
static const char *const truncations[] = {"disabled", "auto", NULL};

#define KEEPS_NOTHING "this server stores no conversations; send the whole conversation in \"input\""
const serve_field serve_responses_fields[] = {
    {"model", .is = SERVE_IS_TEXT},
    {"input", .is = {.types = SERVE_JSON_TEXT | SERVE_JSON_LIST, .fewest = 1, .item = &item_shape}, .required = true},
    {"instructions", .is = SERVE_IS_TEXT},
    {"max_output_tokens", .is = SERVE_IS_INTEGER(1, INT64_MAX)},
    {"stream", .is = SERVE_IS_FLAG},
    {"tools", .is = SERVE_IS_LIST(&tool_shape)},
    {"tool_choice",
     .is = {.types = SERVE_JSON_TEXT | SERVE_JSON_OBJECT, .words = serve_tool_choices, .kinds = choices}},
    {"parallel_tool_calls", .is = SERVE_IS_FLAG},
    {"reasoning", .is = SERVE_IS_OBJECT(effort)},
    {"text", .is = SERVE_IS_OBJECT(format)},
    {"top_logprobs", .is = SERVE_IS_INTEGER(0, SERVE_MOST_LOGPROBS)},
    {"include", .is = SERVE_IS_LIST(&serve_any_text)},
    {"previous_response_id", .class = SERVE_LACKED, .instead = KEEPS_NOTHING},
    {"conversation", .class = SERVE_LACKED, .instead = KEEPS_NOTHING},
    {"background", .class = SERVE_LACKED, .instead = "responses are sent to the client that requested them"},
    {"truncation", .is = SERVE_IS_WORD(truncations)},
    {"context_management", .is = {.types = SERVE_JSON_LIST}},
    {"chat_template_kwargs", .is = {.types = SERVE_JSON_OBJECT}},
    {"stop", .is = SERVE_IS_STOP},
    {"metadata", .is = {.types = SERVE_JSON_OBJECT}},
    {"prompt", .class = SERVE_LACKED, .instead = "this server stores no prompt templates; send \"input\""},
    SERVE_MORE(serve_thinking_fields),
    SERVE_MORE(serve_sampling_fields),
    SERVE_MORE(serve_structure_fields),
    SERVE_MORE(serve_noted_fields),
    SERVE_NOTED_FIELDS("stream_options", "max_tool_calls", "client_metadata", "background_options", "access_programs",
                       "personality", "image"),
    {0}};

/* A translated request: lists in the form of OpenAI's chat, and the conversation that borrows them. */
typedef struct request {
    ht_json *messages, *tools; /* owned */
    serve_conversation conversation;
} request;

/* ---- namespaces of tools ---- */

/* Templates have one flat list of functions: namespaces become name prefixes, which are split off again from calls. */

/* Whether a tool is a group of tools, {"type": "namespace", "name", "tools"}. */
static bool is_namespace(const ht_json *tool) {
    const char *type = serve_text(tool, "type");
    return type && strcmp(type, "namespace") == 0;
}

/* The joined name in a prompt, valid in every tool-call format; the caller frees it. */
static char *join(const char *namespace, const char *name) {
    ht_text text = {0};
    ht_text_printf(&text, "%s__%s", namespace, name);
    return ht_text_take(&text);
}

/* A copy of a namespace's tool with the joined name; NULL when memory ran out. */
static ht_json *tool_of(const ht_json *namespace, const ht_json *tool) {
    const char *outer = serve_text(namespace, "name");
    const char *name = serve_text(tool, "name");
    ht_json *copy = ht_json_copy((ht_json *)tool);
    if (!copy || !outer || !name) return copy;
    char *joined = join(outer, name);
    const bool good = joined && ht_json_object_set_new(copy, "name", ht_json_string(joined)) == 0;
    free(joined);
    if (good) return copy;
    ht_json_decref(copy);
    return NULL;
}

static bool is_joined(const char *joined, const char *namespace, const char *name) {
    const size_t n = strlen(namespace);
    return strncmp(joined, namespace, n) == 0 && strncmp(joined + n, "__", 2) == 0 && strcmp(joined + n + 2, name) == 0;
}

const char *serve_namespace_split(const ht_json *tools, const char *joined, const char **namespace) {
    *namespace = NULL;
    for (size_t i = 0; i < ht_json_array_size(tools); i++) {
        const ht_json *outer = ht_json_array_get(tools, i), *list = ht_json_object_get(outer, "tools");
        const char *in = serve_text(outer, "name");
        for (size_t k = 0; in && is_namespace(outer) && k < ht_json_array_size(list); k++) {
            const char *name = serve_text(ht_json_array_get(list, k), "name");
            if (!name || !is_joined(joined, in, name)) continue;
            *namespace = in;
            return name;
        }
    }
    return joined;
}

/* ---- the input ---- */

/* The input under construction. */
typedef struct reader {
    serve_call *c;
    serve_messages to;
    bool leading; /* only instructions so far */
} reader;

static const char *part_text(const ht_json *part) {
    const char *text = serve_text(part, "text");
    return text ? text : serve_text(part, "refusal");
}

static void read_message(reader *r, const ht_json *item) {
    const ht_json *content = serve_member(item, "content"), *part;
    const char *role = serve_text(item, "role");
    const bool instructs = strcmp(role, "system") == 0 || strcmp(role, "developer") == 0;
    size_t i;
    /* Templates accept instructions only at the start. */
    if (!instructs) r->leading = false;
    if (instructs && r->leading) role = "system";
    r->to.begun = false;
    if (ht_json_is_string(content)) serve_add_text(&r->to, role, ht_json_string_value(content));
    ht_json_array_foreach((ht_json *)content, i, part) serve_add_text(&r->to, role, part_text(part));
}

static void read_call(reader *r, const ht_json *item) {
    const char *name = serve_text(item, "name"), *namespace = serve_text(item, "namespace");
    char *joined = namespace ? join(namespace, name) : NULL;
    if (namespace && !joined) r->to.failed = true;
    serve_add_call(&r->to, serve_text(item, "call_id"), joined ? joined : name, ht_json_object_get(item, "arguments"));
    free(joined);
}

/* The input of a custom tool is any text, but templates expect arguments as an object. */
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

/* Reads the reasoning text; without it, the sealed text of clients that hide reasoning; else the summary. */
static void read_reasoning(reader *r, const ht_json *item) {
    const char *sealed = serve_text(item, "encrypted_content");
    if (add_thoughts(r, ht_json_object_get(item, "content"))) return;
    if (sealed && serve_add_sealed_thoughts(&r->to, sealed)) return;
    add_thoughts(r, ht_json_object_get(item, "summary"));
}

/* Calls of service-side tools are ignored; the messages after them contain their results. */
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
    if (instructions) serve_add_text(&r->to, "system", instructions);
    if (ht_json_is_string(input)) serve_add_text(&r->to, "user", ht_json_string_value(input));
    for (size_t i = 0; i < ht_json_array_size(input); i++) read_item(r, ht_json_array_get(input, i));
}

static bool read_input(serve_call *c, request *to) {
    reader r = {.c = c, .leading = true};
    read_items(&r, serve_member(c->body, "input"));
    to->conversation.messages = to->messages = serve_messages_end(&r.to, c, "input", "has");
    return to->messages != NULL;
}

/* ---- tools ---- */

/* Converts a tool to the chat form, which it may already have. */
static ht_json *tool_from(const ht_json *tool) {
    const char *type = serve_text(tool, "type");
    const bool is_function = !type || strcmp(type, "function") == 0;
    if (is_function && ht_json_is_object(ht_json_object_get(tool, "function"))) return ht_json_incref(tool);
    return serve_tool_from(tool, "function", "parameters");
}

static bool add_namespace(ht_json *to, const ht_json *namespace) {
    const ht_json *tools = ht_json_object_get(namespace, "tools");
    bool good = true;
    for (size_t i = 0; i < ht_json_array_size(tools) && good; i++) {
        ht_json *tool = tool_of(namespace, ht_json_array_get(tools, i));
        good = tool && ht_json_array_append_new(to, tool_from(tool)) == 0;
        ht_json_decref(tool);
    }
    return good;
}

static bool read_tools(serve_call *c, request *r) {
    const ht_json *tools = serve_member(c->body, "tools");
    if (!serve_read_tool_choice(c, &r->conversation)) return false;
    if (!tools) return true;
    r->conversation.tools = r->tools = ht_json_new_array();
    bool good = r->tools;
    for (size_t i = 0; i < ht_json_array_size(tools) && good; i++) {
        const ht_json *tool = ht_json_array_get(tools, i);
        good = is_namespace(tool) ? add_namespace(r->tools, tool)
                                  : ht_json_array_append_new(r->tools, tool_from(tool)) == 0;
    }
    return good ? true : serve_fail_memory(&c->failure);
}

/* ---- requests ---- */

/* Too long an input is rejected, never truncated, so these options are reported as ignored. */
static void tell_of_truncation(serve_call *c) {
    if (serve_word(c->body, "truncation", truncations, 0) == 1) serve_call_ignore(c, "truncation");
    if (ht_json_array_size(serve_member(c->body, "context_management"))) serve_call_ignore(c, "context_management");
}

static bool read_conversation(serve_call *c, request *r) {
    tell_of_truncation(c);
    serve_read_effort(serve_member(c->body, "reasoning"), "effort", &r->conversation);
    r->conversation.variables = serve_member(c->body, "chat_template_kwargs");
    return read_input(c, r) && read_tools(c, r);
}

static void free_request(request *r) {
    ht_json_decref(r->messages);
    ht_json_decref(r->tools);
}

/* Reads "include", the optional parts of a response. Parts of service-side tools are accepted but never sent. */
static void read_include(serve_generation *g) {
    serve_responses_answer *answer = g->extra;
    const ht_json *include = serve_member(g->c->body, "include");
    g->top_logprobs = (int32_t)serve_integer(g->c->body, "top_logprobs", 0);
    g->logprobs = g->top_logprobs > 0;
    for (size_t i = 0; i < ht_json_array_size(include); i++) {
        const char *what = ht_json_string_value(ht_json_array_get(include, i));
        if (strcmp(what, "message.output_text.logprobs") == 0) g->logprobs = true;
        if (strcmp(what, "reasoning.encrypted_content") == 0) answer->seals_thoughts = true;
    }
}

static bool read_request(serve_generation *g) {
    static const serve_option_names names = {
        .max_tokens = {"max_output_tokens"}, .most = INT32_MAX, .stop = "stop", .thinking = true};
    serve_call *c = g->c;
    request r = {0};
    read_include(g);
    const bool good = read_conversation(c, &r) && serve_read_options(g, c->body, &names) &&
                      serve_read_format(g, serve_member(serve_member(c->body, "text"), "format"), "text.format") &&
                      serve_read_structure(g, c->body) && serve_set_conversation(g, &r.conversation);
    free_request(&r);
    return good;
}

bool serve_responses(serve_call *c) {
    serve_generation *g = serve_generation_new(c, &serve_responses_dialect);
    if (!g || !read_request(g)) return false;
    serve_new_id("resp_", g->id);
    return serve_generation_start(g);
}

bool serve_responses_input_tokens(serve_call *c) {
    request r = {0};
    int64_t n = 0;
    const bool good = read_conversation(c, &r) && serve_count_conversation(c, &r.conversation, &n);
    free_request(&r);
    if (good)
        serve_reply_json(c->x, 200,
                         ht_json_pack("{ss sI}", "object", "response.input_tokens", "input_tokens", (int64_t)n),
                         SERVE_OPENAI);
    return good;
}
