/* The Responses interface: what its requests ask for beside their input, and the endpoints. */
#include "serve/responses/responses.h"
#include "serve/sampling.h"

#include <string.h>

/* ---- members ---- */

#define FULL SERVE_IS_TEXT, .required = true
static const serve_field text_part[] = {{"text", .is = FULL}, {0}}, refusal_part[] = {{"refusal", .is = FULL}, {0}};
static const serve_field *const of_others[] = {NULL};
static const serve_field *const of_text_part[] = {text_part, NULL}, *const of_refusal[] = {refusal_part, NULL};
static const serve_kind parts[] = {
    {"input_text", of_text_part}, {"output_text", of_text_part}, {"text", of_text_part}, {"refusal", of_refusal}, {0}};
static const serve_shape part = {.types = SERVE_JSON_OBJECT, .kinds = parts, .lenient = true};
#define PARTS                                                                                                          \
    { .types = SERVE_JSON_TEXT | SERVE_JSON_LIST, .item = &part }

static const serve_kind result_parts[] = {{"input_text", of_text_part},
                                          {"output_text", of_text_part},
                                          {"text", of_text_part},
                                          {"refusal", of_refusal},
                                          {"input_image", of_others},
                                          {"input_file", of_others},
                                          {0}};
static const serve_shape result_part = {.types = SERVE_JSON_OBJECT, .kinds = result_parts, .lenient = true};

static const char *const roles[] = {"user", "assistant", "system", "developer", NULL};
static const serve_field message[] = {
    {"role", .is = SERVE_IS_WORD(roles), .required = true}, {"content", .is = PARTS, .required = true}, {0}};
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
static const serve_field *const of_message[] = {message, NULL}, *const of_reasoning[] = {reasoning, NULL},
                                *const of_call[] = {call, NULL}, *const of_custom_call[] = {custom_call, NULL},
                                *const of_result[] = {result, NULL}, *const of_reference[] = {reference, NULL};
static const serve_kind items[] = {{"message", of_message},
                                   {"reasoning", of_reasoning},
                                   {"function_call", of_call},
                                   {"function_call_output", of_result},
                                   {"custom_tool_call", of_custom_call},
                                   {"custom_tool_call_output", of_result},
                                   {"item_reference", of_reference},
                                   {"web_search_call", of_others},
                                   {"file_search_call", of_others},
                                   {"code_interpreter_call", of_others},
                                   {"image_generation_call", of_others},
                                   {0}};
static const serve_shape item = {.types = SERVE_JSON_OBJECT, .kinds = items, .first_kind = true, .lenient = true};

static const serve_field tool_members[] = {{"name", .is = SERVE_IS_TEXT},
                                           {"description", .is = SERVE_IS_TEXT},
                                           {"parameters", .is = {.types = SERVE_JSON_OBJECT}},
                                           {"strict", .is = SERVE_IS_FLAG},
                                           {"function", .is = SERVE_IS_FUNCTION},
                                           {0}};
static const serve_field *const of_tool[] = {tool_members, NULL};
static const serve_kind inner_tools[] = {{"function", of_tool}, {0}};
static const serve_shape tool_in_namespace = {
    .types = SERVE_JSON_OBJECT, .kinds = inner_tools, .first_kind = true, .other_kinds = true, .lenient = true};
static const serve_field namespace_members[] = {
    {"name", .is = FULL}, {"tools", .is = SERVE_IS_LIST(&tool_in_namespace)}, {0}};
static const serve_field *const of_namespace[] = {namespace_members, NULL};
static const serve_kind tools[] = {{"function", of_tool}, {"namespace", of_namespace}, {0}};
static const serve_shape tool_shape = {
    .types = SERVE_JSON_OBJECT, .kinds = tools, .first_kind = true, .other_kinds = true, .lenient = true};

static const serve_field named[] = {{"name", .is = FULL}, {0}};
static const serve_field *const of_named[] = {named, NULL};
static const serve_kind choices[] = {{"function", of_named}, {"allowed_tools", serve_allowed_fields}, {0}};
#define SERVE_IS_CHOICE                                                                                                \
    { .types = SERVE_JSON_TEXT | SERVE_JSON_OBJECT, .words = serve_tool_choices, .kinds = choices }

static const serve_field effort[] = {{"effort", .is = SERVE_IS_WORD(serve_efforts)},
                                     {"summary", .class = SERVE_NOTED},
                                     {"generate_summary", .class = SERVE_NOTED},
                                     {0}};
static const serve_field format[] = {{"format", .is = SERVE_IS_FORMAT}, {"verbosity", .class = SERVE_NOTED}, {0}};
static const serve_field *const of_effort[] = {effort, NULL}, *const of_format[] = {format, NULL};
static const char *const truncations[] = {"disabled", "auto", NULL};

#define KEEPS_NOTHING "this server stores no conversations; send the whole conversation in \"input\""
static const serve_field responses_fields[] = {
    {"model", .is = SERVE_IS_TEXT},
    {"input", .is = {.types = SERVE_JSON_TEXT | SERVE_JSON_LIST, .fewest = 1, .item = &item}, .required = true},
    {"instructions", .is = SERVE_IS_TEXT},
    {"max_output_tokens", .is = SERVE_IS_INTEGER(1, INT64_MAX)},
    {"stream", .is = SERVE_IS_FLAG},
    {"tools", .is = SERVE_IS_LIST(&tool_shape)},
    {"tool_choice", .is = SERVE_IS_CHOICE},
    {"parallel_tool_calls", .is = SERVE_IS_FLAG},
    {"reasoning", .is = SERVE_IS_OBJECT(of_effort)},
    {"text", .is = SERVE_IS_OBJECT(of_format)},
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
    {"stream_options", .class = SERVE_NOTED},
    {"max_tool_calls", .class = SERVE_NOTED},
    {"client_metadata", .class = SERVE_NOTED},
    {"background_options", .class = SERVE_NOTED},
    {"access_programs", .class = SERVE_NOTED},
    {"personality", .class = SERVE_NOTED},
    {"image", .class = SERVE_NOTED},
    {"prompt", .class = SERVE_LACKED, .instead = "this server stores no prompt templates; send \"input\""},
    {0}};
const serve_field *const serve_responses_fields[] = {
    responses_fields, serve_thinking_fields, serve_sampling_fields, serve_structure_fields, serve_noted_fields, NULL};

/* ---- requests ---- */

/* An input that is too long is refused; nothing of it is left out. */
static void tell_of_truncation(serve_call *c) {
    if (serve_word(c->body, "truncation", truncations, 0) == 1) serve_call_ignore(c, "truncation");
    if (ht_json_array_size(serve_member(c->body, "context_management"))) serve_call_ignore(c, "context_management");
}

static bool read_conversation(serve_call *c, serve_responses_request *r) {
    tell_of_truncation(c);
    serve_read_effort(serve_member(c->body, "reasoning"), "effort", &r->conversation);
    r->conversation.variables = serve_member(c->body, "chat_template_kwargs");
    return serve_responses_read_input(c, r) && serve_responses_read_tools(c, r);
}

static void free_request(serve_responses_request *r) {
    ht_json_decref(r->messages);
    ht_json_decref(r->tools);
}

/* What is to be told beside the text. Parts of other services' tools are never there, and may be asked for. */
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
    static const char *const most[] = {"max_output_tokens", NULL};
    serve_call *c = g->c;
    serve_responses_request r = {0};
    if (!serve_responses_answer_new(g)) return false;
    g->stream = serve_flag(c->body, "stream", false);
    serve_read_max_tokens(g, c->body, most, INT32_MAX);
    serve_read_thinking_budget(g, c->body);
    read_include(g);
    const bool good = read_conversation(c, &r) && serve_read_sampling(g, c->body) &&
                      serve_read_stop(g, ht_json_object_get(c->body, "stop")) &&
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
    serve_responses_request r = {0};
    int64_t n = 0;
    const bool good = read_conversation(c, &r) && serve_count_conversation(c, &r.conversation, &n);
    free_request(&r);
    if (good)
        serve_reply_json(c->x, 200,
                         ht_json_pack("{ss sI}", "object", "response.input_tokens", "input_tokens", (int64_t)n),
                         SERVE_OPENAI);
    return good;
}
