/* Messages of Anthropic's interface: what their requests ask for beside the history, and the endpoints. */
#include "serve/anthropic.h"
#include "serve/sampling.h"

#include <stdlib.h>
#include <string.h>

static const serve_field messages_fields[] = {{"model", SERVE_USED},
                                              {"messages", SERVE_USED},
                                              {"system", SERVE_USED},
                                              {"max_tokens", SERVE_USED},
                                              {"stop_sequences", SERVE_USED},
                                              {"stream", SERVE_USED},
                                              {"tools", SERVE_USED},
                                              {"tool_choice", SERVE_USED},
                                              {"thinking", SERVE_USED},
                                              {"output_config", SERVE_USED},
                                              {"output_format", SERVE_USED},
                                              {"context_management", SERVE_USED},
                                              {"chat_template_kwargs", SERVE_USED},
                                              {"metadata", SERVE_NOTED},
                                              {"service_tier", SERVE_NOTED},
                                              {"cache_control", SERVE_NOTED},
                                              {"betas", SERVE_NOTED},
                                              {"billing_policy", SERVE_NOTED},
                                              {"diagnostics", SERVE_NOTED},
                                              {"inference_geo", SERVE_NOTED},
                                              {"speed", SERVE_NOTED},
                                              {"user_profile_id", SERVE_NOTED},
                                              {"workspace_id", SERVE_NOTED},
                                              {"fallbacks", SERVE_NOTED},
                                              {"fallback_credit_token", SERVE_NOTED},
                                              {"container", SERVE_LACKED},
                                              {"mcp_servers", SERVE_LACKED},
                                              {"thread", SERVE_LACKED},
                                              {NULL, SERVE_USED}};
const serve_field *const serve_anthropic_fields[] = {messages_fields, serve_sampling_fields, serve_structure_fields,
                                                     NULL};

/* ---- tools ---- */

/* A tool in OpenAI's form. Those that a service would run have types of their own, by which they are passed over. */
static json_t *tool_from(const json_t *tool) {
    static const char *const copied[][2] = {
        {"name", "name"}, {"description", "description"}, {"input_schema", "parameters"}, {"strict", "strict"}};
    const char *type = json_string_value(json_object_get(tool, "type"));
    if (type && strcmp(type, "custom") != 0) return json_pack("{ss}", "type", type);
    json_t *function = json_object();
    for (size_t i = 0; i < sizeof copied / sizeof *copied; i++) {
        const json_t *value = serve_member(tool, copied[i][0]);
        if (value) json_object_set(function, copied[i][1], (json_t *)value);
    }
    return json_pack("{ss so}", "type", "function", "function", function);
}

static bool read_tools(serve_call *c, serve_anthropic_request *r) {
    const json_t *tools = NULL;
    if (!serve_read_array(c->body, "tools", &tools, &c->failure)) return false;
    if (!tools) return true;
    json_t *loaded = serve_anthropic_loaded_tools(tools, r->referred);
    r->tools = json_array();
    bool good = loaded && r->tools;
    for (size_t i = 0; i < json_array_size(loaded) && good; i++)
        good = json_array_append_new(r->tools, tool_from(json_array_get(loaded, i))) == 0;
    json_decref(loaded);
    r->conversation.tools = r->tools;
    return good ? true : serve_fail_memory(&c->failure);
}

static bool read_tool_choice(serve_call *c, serve_conversation *k) {
    static const char *const words[] = {"auto", "any", "tool", "none"};
    static const serve_tool_choice choices[] = {SERVE_TOOLS_AUTO, SERVE_TOOLS_REQUIRED, SERVE_TOOLS_NAMED,
                                                SERVE_TOOLS_NONE};
    const json_t *choice = NULL;
    int word = -1;
    if (!serve_read_object(c->body, "tool_choice", &choice, &c->failure)) return false;
    if (!choice) return true;
    if (!serve_read_word(choice, "type", words, 4, &word, &c->failure) ||
        !serve_read_flag(choice, "disable_parallel_tool_use", &k->one_call, &c->failure) ||
        !serve_read_text(choice, "name", &k->tool, &c->failure))
        return false;
    if (word < 0 || (word == 2 && !k->tool))
        return serve_fail(&c->failure, 400, "tool_choice",
                          "\"tool_choice\" is to have the type \"auto\", \"any\" or \"none\", or \"tool\" with a name");
    k->choice = choices[word];
    return true;
}

/* ---- thoughts ---- */

static bool read_thinking(serve_call *c, serve_anthropic_request *r) {
    static const char *const words[] = {"disabled", "enabled", "adaptive", "between_tools"};
    const json_t *thinking = NULL;
    const char *display = NULL;
    int word = -1;
    if (!serve_read_object(c->body, "thinking", &thinking, &c->failure)) return false;
    if (!thinking) return true;
    if (!serve_read_word(thinking, "type", words, 4, &word, &c->failure) ||
        !serve_read_text(thinking, "display", &display, &c->failure))
        return false;
    if (word < 0)
        return serve_fail(&c->failure, 400, "thinking",
                          "\"thinking\" is to have the type \"enabled\", \"disabled\" or \"adaptive\"");
    if (serve_member(thinking, "budget_tokens")) serve_call_ignore(c, "thinking.budget_tokens");
    r->conversation.thinking = word == 0 ? SERVE_THINKING_OFF : SERVE_THINKING_ON;
    r->hides_thoughts = display && strcmp(display, "omitted") == 0;
    /* Thoughts are shown as they are; clients ask for summaries and for more of that kind ("updates"), by words that become more. */
    if (display && !r->hides_thoughts && strcmp(display, "summarized") != 0) serve_call_ignore(c, "thinking.display");
    return true;
}

/* How much is thought does not say whether: that is `thinking`, and without it the template. */
static bool read_effort(serve_call *c, serve_conversation *k) {
    const json_t *config = NULL;
    if (!serve_read_object(c->body, "output_config", &config, &c->failure) ||
        !serve_read_effort(config, "effort", k, &c->failure))
        return false;
    k->thinking = SERVE_THINKING_DEFAULT;
    return true;
}

/* ---- requests ---- */

bool serve_anthropic_read(serve_call *c, serve_anthropic_request *r) {
    serve_conversation *k = &r->conversation;
    const json_t *management = serve_member(c->body, "context_management");
    if (management) serve_call_ignore(c, "context_management");
    if (!read_effort(c, k) || !read_thinking(c, r) || !serve_anthropic_read_messages(c, r) || !read_tools(c, r) ||
        !read_tool_choice(c, k) || !serve_read_object(c->body, "chat_template_kwargs", &k->variables, &c->failure))
        return false;
    k->messages = r->messages;
    return true;
}

void serve_anthropic_free(serve_anthropic_request *r) {
    json_decref(r->messages);
    json_decref(r->tools);
    json_decref(r->referred);
}

static bool read_max_tokens(serve_generation *g) {
    static const char *const most[] = {"max_tokens", NULL};
    serve_call *c = g->c;
    if (!serve_member(c->body, "max_tokens"))
        return serve_fail(&c->failure, 400, "max_tokens",
                          "\"max_tokens\" is to be there: the most tokens of the answer");
    int64_t ignored;
    return serve_read_integer(c->body, "max_tokens", 0, INT64_MAX, &ignored, &c->failure) &&
           serve_read_max_tokens(g, c->body, most);
}

/* The schema of an answer, under the name that it has now, or the one that it had. */
static bool read_format(serve_generation *g) {
    const json_t *config = serve_member(g->c->body, "output_config");
    return serve_read_format(g, serve_member(config, "format"), "output_config.format") &&
           serve_read_format(g, serve_member(g->c->body, "output_format"), "output_format");
}

static void free_answer(void *user) {
    serve_anthropic_answer *answer = user;
    ht_text_discard(&answer->hidden);
    free(answer);
}

static bool read_request(serve_generation *g) {
    serve_call *c = g->c;
    serve_anthropic_request r = {0};
    serve_anthropic_answer *answer = calloc(1, sizeof *answer);
    if (!answer) return serve_fail_memory(&c->failure);
    g->extra = answer;
    g->free_extra = free_answer;
    const bool good = read_max_tokens(g) && serve_anthropic_read(c, &r) &&
                      serve_read_flag(c->body, "stream", &g->stream, &c->failure) &&
                      serve_read_sampling(g, c->body, 1) &&
                      serve_read_stop(g, json_object_get(c->body, "stop_sequences"), "stop_sequences") &&
                      read_format(g) && serve_read_structure(g, c->body) && serve_set_conversation(g, &r.conversation);
    answer->hides_thoughts = r.hides_thoughts;
    serve_anthropic_free(&r);
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
    const bool good = serve_anthropic_read(c, &r) && serve_count_conversation(c, &r.conversation, &n);
    serve_anthropic_free(&r);
    if (good) serve_reply_json(c->x, 200, json_pack("{sI}", "input_tokens", (json_int_t)n), SERVE_ANTHROPIC);
    return good;
}
