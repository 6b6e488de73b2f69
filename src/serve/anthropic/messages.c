/* Messages of Anthropic's interface: what their requests ask for beside the history, and the endpoints. */
#include "serve/anthropic/anthropic.h"
#include "serve/sampling.h"

#include <stdlib.h>
#include <string.h>

/* ---- members ---- */

#define FULL SERVE_IS_TEXT, .required = true
static const serve_field text_members[] = {{"text", .is = FULL}, {0}};
static const serve_field *const of_text[] = {text_members, NULL};
static const serve_kind text_kinds[] = {{"text", of_text}, {0}};
static const serve_shape text_block = {.types = SERVE_JSON_OBJECT, .kinds = text_kinds, .lenient = true};
#define TEXT_OR_BLOCKS                                                                                                 \
    { .types = SERVE_JSON_TEXT | SERVE_JSON_LIST, .item = &text_block }

static const serve_field reference_members[] = {{"tool_name", .is = FULL}, {0}};
static const serve_field *const of_reference[] = {reference_members, NULL}, *const of_nothing[] = {NULL};
static const serve_field data_members[] = {{"data", .is = FULL}, {0}};
static const serve_field *const of_data[] = {data_members, NULL};
static const serve_kind sources[] = {{"text", of_data}, {0}};
static const serve_field document_members[] = {
    {"source", .is = {.types = SERVE_JSON_OBJECT, .kinds = sources, .other_kinds = true, .lenient = true}}, {0}};
static const serve_field *const of_document[] = {document_members, NULL};
static const serve_kind result_kinds[] = {
    {"document", of_document}, {"text", of_text}, {"tool_reference", of_reference}, {"image", of_nothing}, {0}};
static const serve_shape result_block = {.types = SERVE_JSON_OBJECT, .kinds = result_kinds, .lenient = true};
static const serve_field result_members[] = {
    {"tool_use_id", .is = FULL},
    {"content", .is = {.types = SERVE_JSON_TEXT | SERVE_JSON_LIST, .item = &result_block}},
    {"is_error", .is = SERVE_IS_FLAG},
    {0}};
static const serve_field use_members[] = {{"id", .is = FULL}, {"name", .is = FULL}, {"input", .is = {.types = 0}}, {0}};
static const serve_field thought_members[] = {{"thinking", .is = FULL}, {"signature", .is = SERVE_IS_TEXT}, {0}};
static const serve_field *const of_result[] = {result_members, NULL}, *const of_use[] = {use_members, NULL},
                                *const of_thought[] = {thought_members, NULL};
static const serve_kind user_blocks[] = {{"text", of_text}, {"tool_result", of_result}, {0}};
static const serve_kind assistant_blocks[] = {
    {"text", of_text}, {"tool_use", of_use}, {"thinking", of_thought}, {"redacted_thinking", of_nothing}, {0}};
static const serve_shape user_block = {.types = SERVE_JSON_OBJECT, .kinds = user_blocks, .lenient = true},
                         assistant_block = {.types = SERVE_JSON_OBJECT, .kinds = assistant_blocks, .lenient = true};
static const serve_field by_user[] = {
    {"content", .is = {.types = SERVE_JSON_TEXT | SERVE_JSON_LIST, .item = &user_block}, .required = true}, {0}};
static const serve_field by_assistant[] = {
    {"content", .is = {.types = SERVE_JSON_TEXT | SERVE_JSON_LIST, .item = &assistant_block}, .required = true}, {0}};
static const serve_field by_system[] = {{"content", .is = TEXT_OR_BLOCKS, .required = true}, {0}};
static const serve_field *const of_user[] = {by_user, NULL}, *const of_assistant[] = {by_assistant, NULL},
                                *const of_system[] = {by_system, NULL};
static const serve_kind roles[] = {{"user", of_user}, {"assistant", of_assistant}, {"system", of_system}, {0}};
static const serve_shape message_shape = {.types = SERVE_JSON_OBJECT, .kinds = roles, .tag = "role", .lenient = true};

static const serve_field tool_members[] = {{"name", .is = FULL},
                                           {"description", .is = SERVE_IS_TEXT},
                                           {"input_schema", .is = {.types = SERVE_JSON_OBJECT}},
                                           {"strict", .is = SERVE_IS_FLAG},
                                           {"defer_loading", .is = SERVE_IS_FLAG},
                                           {0}};
static const serve_field *const of_tool[] = {tool_members, NULL};
static const serve_kind tool_kinds[] = {{"custom", of_tool}, {0}};
static const serve_shape tool_shape = {
    .types = SERVE_JSON_OBJECT, .kinds = tool_kinds, .first_kind = true, .other_kinds = true, .lenient = true};

static const serve_field choice_members[] = {{"disable_parallel_tool_use", .is = SERVE_IS_FLAG}, {0}},
                         named_members[] = {{"name", .is = FULL}, {0}};
static const serve_field *const of_choice[] = {choice_members, NULL}, *const of_named[] = {named_members,
                                                                                           choice_members, NULL};
static const serve_kind choices[] = {
    {"auto", of_choice}, {"any", of_choice}, {"tool", of_named}, {"none", of_nothing}, {0}};

static const serve_field thinking_members[] = {
    {"display", .is = SERVE_IS_TEXT}, {"budget_tokens", .is = SERVE_IS_INTEGER(0, INT64_MAX)}, {0}};
static const serve_field *const of_thinking[] = {thinking_members, NULL};
static const serve_kind thinkings[] = {{"disabled", of_thinking},
                                       {"enabled", of_thinking},
                                       {"adaptive", of_thinking},
                                       {"between_tools", of_thinking},
                                       {0}};

static const serve_field config_members[] = {
    {"effort", .is = SERVE_IS_WORD(serve_efforts)}, {"format", .is = SERVE_IS_FORMAT}, {0}};
static const serve_field *const of_config[] = {config_members, NULL};

static const serve_field most_tokens[] = {{"max_tokens", .is = SERVE_IS_INTEGER(0, INT64_MAX), .required = true}, {0}};
static const serve_field messages_fields[] = {
    {"model", .is = SERVE_IS_TEXT},
    {"messages", .is = {.types = SERVE_JSON_LIST, .fewest = 1, .item = &message_shape}, .required = true},
    {"system", .is = TEXT_OR_BLOCKS},
    {"max_tokens", .is = SERVE_IS_INTEGER(0, INT64_MAX)},
    {"stop_sequences", .is = SERVE_IS_STOP},
    {"stream", .is = SERVE_IS_FLAG},
    {"tools", .is = SERVE_IS_LIST(&tool_shape)},
    {"tool_choice", .is = {.types = SERVE_JSON_OBJECT, .kinds = choices}},
    {"thinking", .is = {.types = SERVE_JSON_OBJECT, .kinds = thinkings}},
    {"output_config", .is = SERVE_IS_OBJECT(of_config)},
    {"output_format", .is = SERVE_IS_FORMAT},
    {"context_management", .is = {.types = 0}},
    {"chat_template_kwargs", .is = {.types = SERVE_JSON_OBJECT}},
    {"metadata", .class = SERVE_NOTED},
    {"service_tier", .class = SERVE_NOTED},
    {"cache_control", .class = SERVE_NOTED},
    {"betas", .class = SERVE_NOTED},
    {"billing_policy", .class = SERVE_NOTED},
    {"diagnostics", .class = SERVE_NOTED},
    {"inference_geo", .class = SERVE_NOTED},
    {"speed", .class = SERVE_NOTED},
    {"user_profile_id", .class = SERVE_NOTED},
    {"workspace_id", .class = SERVE_NOTED},
    {"fallbacks", .class = SERVE_NOTED},
    {"fallback_credit_token", .class = SERVE_NOTED},
    {"container", .class = SERVE_LACKED},
    {"mcp_servers", .class = SERVE_LACKED},
    {"thread", .class = SERVE_LACKED, .instead = "this server stores no conversations; send the whole conversation",
     .lack = "thread_unsupported_request"},
    {0}};
#define COMMON messages_fields, serve_sampling_fields, serve_structure_fields, NULL
const serve_field *const serve_anthropic_fields[] = {most_tokens, COMMON};
const serve_field *const serve_anthropic_count_fields[] = {COMMON};

/* ---- tools ---- */

/* A tool in OpenAI's form. Those that a service would run have types of their own, by which they are passed over. */
static ht_json *tool_from(const ht_json *tool) {
    static const char *const copied[][2] = {
        {"name", "name"}, {"description", "description"}, {"input_schema", "parameters"}, {"strict", "strict"}};
    const char *type = ht_json_string_value(ht_json_object_get(tool, "type"));
    if (type && strcmp(type, "custom") != 0) return ht_json_pack("{ss}", "type", type);
    ht_json *function = ht_json_new_object();
    for (size_t i = 0; i < sizeof copied / sizeof *copied; i++) {
        const ht_json *value = serve_member(tool, copied[i][0]);
        if (value) ht_json_object_set(function, copied[i][1], (ht_json *)value);
    }
    return ht_json_pack("{ss so}", "type", "function", "function", function);
}

static bool read_tools(serve_call *c, serve_anthropic_request *r) {
    const ht_json *tools = serve_member(c->body, "tools");
    if (!tools) return true;
    ht_json *loaded = serve_anthropic_loaded_tools(tools, r->referred);
    r->tools = ht_json_new_array();
    bool good = loaded && r->tools;
    for (size_t i = 0; i < ht_json_array_size(loaded) && good; i++)
        good = ht_json_array_append_new(r->tools, tool_from(ht_json_array_get(loaded, i))) == 0;
    ht_json_decref(loaded);
    r->conversation.tools = r->tools;
    return good ? true : serve_fail_memory(&c->failure);
}

static void read_tool_choice(serve_call *c, serve_conversation *k) {
    static const char *const words[] = {"auto", "any", "tool", "none", NULL};
    static const serve_tool_choice of[] = {SERVE_TOOLS_AUTO, SERVE_TOOLS_REQUIRED, SERVE_TOOLS_NAMED, SERVE_TOOLS_NONE};
    const ht_json *asked = serve_member(c->body, "tool_choice");
    k->choice = of[serve_word(asked, "type", words, 0)];
    k->one_call = serve_flag(asked, "disable_parallel_tool_use", false);
    k->tool = serve_text(asked, "name");
}

/* ---- thoughts ---- */

/* How much is thought at most; without it as the server's options say. */
static void read_budget(serve_generation *g) {
    const ht_json *asked = serve_member(g->c->body, "thinking");
    const int64_t most = serve_integer(asked, "budget_tokens", -1);
    if (most >= 0) g->how.max_thinking_tokens = most > INT32_MAX ? INT32_MAX : (int32_t)most;
}

/* The effort does not say whether is thought: that is `thinking`, and without it the template. */
static void read_thinking(serve_call *c, serve_anthropic_request *r) {
    const ht_json *asked = serve_member(c->body, "thinking");
    serve_read_effort(serve_member(c->body, "output_config"), "effort", &r->conversation);
    r->conversation.thinking = SERVE_THINKING_DEFAULT;
    if (!asked) return;
    r->conversation.thinking =
        strcmp(serve_text(asked, "type"), "disabled") == 0 ? SERVE_THINKING_OFF : SERVE_THINKING_ON;
    const char *display = serve_text(asked, "display");
    r->hides_thoughts = display && strcmp(display, "omitted") == 0;
    /* Thoughts are shown as they are; clients ask for summaries and for more of that kind ("updates"), by words that become more. */
    if (display && !r->hides_thoughts && strcmp(display, "summarized") != 0) serve_call_ignore(c, "thinking.display");
}

/* ---- requests ---- */

static bool read_conversation(serve_call *c, serve_anthropic_request *r) {
    serve_conversation *k = &r->conversation;
    if (serve_member(c->body, "context_management")) serve_call_ignore(c, "context_management");
    read_thinking(c, r);
    read_tool_choice(c, k);
    k->variables = serve_member(c->body, "chat_template_kwargs");
    if (!serve_anthropic_read_messages(c, r) || !read_tools(c, r)) return false;
    k->messages = r->messages;
    k->continues = serve_ends_in_answer(k->messages);
    return true;
}

static void free_request(serve_anthropic_request *r) {
    ht_json_decref(r->messages);
    ht_json_decref(r->tools);
    ht_json_decref(r->referred);
}

/* The schema of an answer, under the name that it has now, or the one that it had. */
static bool read_format(serve_generation *g) {
    const ht_json *config = serve_member(g->c->body, "output_config");
    return serve_read_format(g, serve_member(config, "format"), "output_config.format") &&
           serve_read_format(g, serve_member(g->c->body, "output_format"), "output_format");
}

static void free_answer(void *user) {
    serve_anthropic_answer *answer = user;
    ht_text_discard(&answer->hidden);
    free(answer);
}

static bool read_request(serve_generation *g) {
    static const char *const most[] = {"max_tokens", NULL};
    serve_call *c = g->c;
    serve_anthropic_request r = {0};
    serve_anthropic_answer *answer = calloc(1, sizeof *answer);
    if (!answer) return serve_fail_memory(&c->failure);
    g->extra = answer;
    g->free_extra = free_answer;
    g->stream = serve_flag(c->body, "stream", false);
    serve_read_max_tokens(g, c->body, most, INT32_MAX);
    read_budget(g);
    const bool good = read_conversation(c, &r) && serve_read_sampling(g, c->body) &&
                      serve_read_stop(g, ht_json_object_get(c->body, "stop_sequences")) && read_format(g) &&
                      serve_read_structure(g, c->body) && serve_set_conversation(g, &r.conversation);
    answer->hides_thoughts = r.hides_thoughts;
    free_request(&r);
    return good;
}

/* What its clients look for beside X-Request-Id. */
static void name_request(serve_call *c) { (void)http_exchange_field(c->x, "request-id", http_exchange_id(c->x)); }

bool serve_anthropic_messages(serve_call *c) {
    serve_generation *g = serve_generation_new(c, &serve_anthropic_dialect);
    name_request(c);
    if (!g || !read_request(g)) return false;
    serve_new_id("msg_", g->id);
    /* An answer of no tokens is how a prompt is computed beforehand. */
    return g->how.max_tokens ? serve_generation_start(g) : serve_generation_warm(g);
}

bool serve_anthropic_count_tokens(serve_call *c) {
    serve_anthropic_request r = {0};
    int64_t n = 0;
    name_request(c);
    const bool good = read_conversation(c, &r) && serve_count_conversation(c, &r.conversation, &n);
    free_request(&r);
    if (good) serve_reply_json(c->x, 200, ht_json_pack("{sI}", "input_tokens", (int64_t)n), SERVE_ANTHROPIC);
    return good;
}
