/* Chat completions of OpenAI's interface. */
#include "serve/openai/openai.h"
#include "serve/sampling.h"

#include <stdlib.h>
#include <string.h>

/* ---- fields ---- */

static const serve_kind parts[] = {{"text", SERVE_FIELDS({"text", .is = SERVE_IS_TEXT, .required = true})}, {0}};
static const serve_shape part_shape = {.types = SERVE_JSON_OBJECT, .kinds = parts, .lenient = true};
#define CONTENT                                                                                                        \
    { .types = SERVE_JSON_TEXT | SERVE_JSON_LIST, .item = &part_shape }

static const serve_field called[] = {
    {"name", .is = SERVE_IS_TEXT, .required = true}, {"arguments", .is = {.types = 0}}, {0}};
static const serve_shape call_shape =
    SERVE_IS_PART(SERVE_FIELDS({"id", .is = SERVE_IS_TEXT}, {"function", .is = SERVE_IS_PART(called)}));

/* Null content means empty, not missing: the library distinguishes the two. */
static const serve_field said[] = {{"content", .is = CONTENT}, {0}};
static const serve_field answered[] = {{"content", .is = CONTENT},
                                       {"tool_calls", .is = SERVE_IS_LIST(&call_shape)},
                                       {"reasoning_content", .is = SERVE_IS_TEXT},
                                       {"reasoning", .is = SERVE_IS_TEXT},
                                       {"thinking", .is = SERVE_IS_TEXT},
                                       {"prefix", .is = SERVE_IS_FLAG},
                                       {0}};
static const serve_field resulted[] = {{"content", .is = CONTENT}, {"tool_call_id", .is = SERVE_IS_TEXT}, {0}};
static const serve_kind roles[] = {{"system", said},        {"developer", said}, {"user", said},
                                   {"assistant", answered}, {"tool", resulted},  {0}};
static const serve_shape message_shape = {.types = SERVE_JSON_OBJECT, .kinds = roles, .tag = "role", .lenient = true};

static const serve_field named[] = {{"name", .is = SERVE_IS_TEXT, .required = true}, {0}};
static const serve_kind choice_kinds[] = {
    {"function", SERVE_FIELDS({"function", .is = SERVE_IS_OBJECT(named)}, {"name", .is = SERVE_IS_TEXT})},
    {"allowed_tools", SERVE_FIELDS({"allowed_tools", .is = SERVE_IS_OBJECT(serve_allowed_fields), .required = true})},
    {0}};

static const serve_field stream_members[] = {{"include_usage", .is = SERVE_IS_FLAG},
                                             {"continuous_usage_stats", .is = SERVE_IS_FLAG},
                                             SERVE_NOTED_FIELDS("include_obfuscation"),
                                             {0}};
const serve_field serve_openai_stream_fields[] = {
    {"stream", .is = SERVE_IS_FLAG}, {"stream_options", .is = SERVE_IS_OBJECT(stream_members)}, {0}};

static const char *const modalities[] = {"text", NULL}; /* the only supported modality */
static const serve_shape modality_shape = SERVE_IS_WORD(modalities);

const serve_field serve_openai_chat_fields[] = {
    {"model", .is = SERVE_IS_TEXT},
    {"messages", .is = {.types = SERVE_JSON_LIST, .fewest = 1, .item = &message_shape}, .required = true},
    {"n", .is = SERVE_IS_INTEGER(1, SERVE_MOST_ANSWERS)},
    {"stop", .is = SERVE_IS_STOP},
    {"max_tokens", .is = SERVE_IS_MAX_TOKENS},
    {"max_completion_tokens", .is = SERVE_IS_MAX_TOKENS},
    {"tools", .is = SERVE_IS_LIST(&serve_tool_shape)},
    {"tool_choice",
     .is = {.types = SERVE_JSON_TEXT | SERVE_JSON_OBJECT, .words = serve_tool_choices, .kinds = choice_kinds}},
    {"parallel_tool_calls", .is = SERVE_IS_FLAG},
    {"reasoning_effort", .is = SERVE_IS_WORD(serve_efforts)},
    {"chat_template_kwargs", .is = {.types = SERVE_JSON_OBJECT}},
    {"add_generation_prompt", .is = SERVE_IS_FLAG}, /* vLLM's, as is the next */
    {"continue_final_message", .is = SERVE_IS_FLAG},
    {"modalities", .is = SERVE_IS_LIST(&modality_shape)},
    SERVE_LACKED_FIELDS("audio", "web_search_options"),
    {"functions", .class = SERVE_LACKED, .instead = "send \"tools\""},
    {"function_call", .class = SERVE_LACKED, .instead = "send \"tool_choice\""},
    SERVE_MORE(serve_openai_stream_fields),
    SERVE_MORE(serve_logprobs_fields),
    SERVE_MORE(serve_thinking_fields),
    SERVE_MORE(serve_sampling_fields),
    SERVE_MORE(serve_structure_fields),
    SERVE_MORE(serve_noted_fields),
    {0}};

/* ---- requests ---- */

/* Reads vLLM's fields, or "prefix" in the last message, which Mistral and DeepSeek use. */
static bool read_prompt_end(serve_call *c, serve_conversation *k) {
    const ht_json *opens = serve_member(c->body, "add_generation_prompt"),
                  *continues = serve_member(c->body, "continue_final_message"),
                  *last = ht_json_array_get(k->messages, ht_json_array_size(k->messages) - 1);
    const bool answer = serve_ends_in_answer(k->messages);
    if (ht_json_is_true(continues) && ht_json_is_true(opens))
        return serve_fail(&c->failure, 400, "continue_final_message",
                          "\"continue_final_message\" must be false when \"add_generation_prompt\" is true");
    k->unopened = ht_json_is_false(opens);
    k->continues = ht_json_is_true(continues) || (answer && serve_flag(last, "prefix", false)) ||
                   (answer && k->unopened && !continues);
    return true;
}

bool serve_openai_read_conversation(serve_call *c, serve_conversation *k) {
    k->messages = serve_member(c->body, "messages");
    k->tools = serve_member(c->body, "tools");
    k->variables = serve_member(c->body, "chat_template_kwargs");
    serve_read_effort(c->body, "reasoning_effort", k);
    return read_prompt_end(c, k) && serve_read_tool_choice(c, k);
}

static bool read_request(serve_generation *g) {
    static const serve_option_names names = {.max_tokens = {"max_completion_tokens", "max_tokens"},
                                             .most = INT32_MAX,
                                             .stop = "stop",
                                             .logprobs = true,
                                             .thinking = true};
    const ht_json *body = g->c->body;
    serve_conversation k = {0};
    g->n = (int32_t)serve_integer(body, "n", 1);
    if (!serve_read_options(g, body, &names)) return false;
    if (!g->how.max_tokens) {
        const char *name = names.max_tokens[serve_member(body, names.max_tokens[0]) ? 0 : 1];
        return serve_fail(&g->c->failure, 400, name,
                          "\"%s\" must be a whole number of 1 or more, or -1 for no limit, not 0", name);
    }
    return serve_openai_read_conversation(g->c, &k) && serve_read_structure(g, body) && serve_set_conversation(g, &k);
}

/* ---- shared parts of responses ---- */

ht_json *serve_openai_usage(serve_usage u) {
    return ht_json_pack("{sI sI sI s{sI} s{sI}}", "prompt_tokens", (int64_t)u.prompt, "completion_tokens",
                        (int64_t)u.generated, "total_tokens", (int64_t)(u.prompt + u.generated),
                        "prompt_tokens_details", "cached_tokens", (int64_t)u.cached, "completion_tokens_details",
                        "reasoning_tokens", (int64_t)u.thoughts);
}

const char *serve_openai_finish(const serve_answer *a) {
    if (a->metrics.finish == HT_FINISH_LENGTH) return "length";
    return a->n_calls ? "tool_calls" : "stop";
}

ht_json *serve_openai_stream_usage(const serve_generation *g, const serve_answer *a) {
    return g->continuous_usage ? serve_openai_usage(serve_answer_usage(a)) : g->usage ? ht_json_null() : NULL;
}

/* ---- whole answers ---- */

static ht_json *calls_json(const serve_answer *a) {
    ht_json *calls = ht_json_new_array();
    for (size_t i = 0; i < a->n_calls; i++)
        ht_json_array_append_new(calls, ht_json_pack("{ss ss s{ss so}}", "id", a->call[i].id, "type", "function",
                                                     "function", "name", a->call[i].name, "arguments",
                                                     serve_text_json(&a->call[i].arguments)));
    return calls;
}

static ht_json *message_json(const serve_answer *a) {
    const bool silent = a->n_calls && !a->text.len;
    ht_json *message = ht_json_pack("{ss so sn}", "role", "assistant", "content",
                                    silent ? ht_json_null() : serve_text_json(&a->text), "refusal");
    if (a->thoughts.len) ht_json_object_set_new(message, "reasoning_content", serve_text_json(&a->thoughts));
    if (a->n_calls) ht_json_object_set_new(message, "tool_calls", calls_json(a));
    return message;
}

static ht_json *choice_json(const serve_generation *g, const serve_answer *a) {
    ht_json *logprobs = g->logprobs ? ht_json_pack("{sO sn}", "content", a->logprobs, "refusal") : ht_json_null();
    return ht_json_pack("{si so so ss}", "index", (int)a->index, "message", message_json(a), "logprobs", logprobs,
                        "finish_reason", serve_openai_finish(a));
}

static ht_json *reply(serve_generation *g) {
    ht_json *choices = ht_json_new_array();
    for (size_t i = 0; i < g->n_answers; i++) ht_json_array_append_new(choices, choice_json(g, &g->answer[i]));
    return ht_json_pack("{ss ss sI ss so so}", "id", g->id, "object", "chat.completion", "created", (int64_t)g->created,
                        "model", g->c->lease.name, "choices", choices, "usage", serve_openai_usage(serve_usage_of(g)));
}

/* ---- streams ---- */

/* Sends an event, and consumes the choices. */
static void send(serve_generation *g, ht_json *choices, ht_json *usage) {
    ht_json *chunk = ht_json_pack("{ss ss sI ss so}", "id", g->id, "object", "chat.completion.chunk", "created",
                                  (int64_t)g->created, "model", g->c->lease.name, "choices", choices);
    if (usage) ht_json_object_set_new(chunk, "usage", usage);
    serve_send(g, NULL, chunk);
}

/* Sends an addition to an answer, and consumes the delta. */
static void send_delta(serve_generation *g, serve_answer *a, ht_json *delta, const char *finish) {
    ht_json *come = serve_take_logprobs(a);
    ht_json *logprobs = come ? ht_json_pack("{so sn}", "content", come, "refusal") : ht_json_null();
    ht_json *choices = ht_json_pack("[{si so so ss?}]", "index", (int)a->index, "delta", delta, "logprobs", logprobs,
                                    "finish_reason", finish);
    send(g, choices, serve_openai_stream_usage(g, a));
}

static void begin(serve_generation *g) {
    for (size_t i = 0; i < g->n_answers && !g->closed; i++)
        send_delta(g, &g->answer[i], ht_json_pack("{ss ss}", "role", "assistant", "content", ""), NULL);
}

static void piece(serve_generation *g, serve_answer *a, const ht_answer_piece *p) {
    const int index = (int)a->n_calls - 1;
    switch (p->part) {
    case HT_ANSWER_TEXT: send_delta(g, a, ht_json_pack("{ss%}", "content", p->text, p->n), NULL); break;
    case HT_ANSWER_THINKING: send_delta(g, a, ht_json_pack("{ss%}", "reasoning_content", p->text, p->n), NULL); break;
    case HT_ANSWER_CALL_BEGIN:
        send_delta(g, a,
                   ht_json_pack("{s[{si ss ss s{ss ss}}]}", "tool_calls", "index", index, "id", a->call[index].id,
                                "type", "function", "function", "name", a->call[index].name, "arguments", ""),
                   NULL);
        break;
    case HT_ANSWER_CALL_ARGUMENTS:
        send_delta(
            g, a,
            ht_json_pack("{s[{si s{ss%}}]}", "tool_calls", "index", index, "function", "arguments", p->text, p->n),
            NULL);
        break;
    case HT_ANSWER_CALL: break;
    case HT_ANSWER_CALL_END: break;
    }
}

static void answer_end(serve_generation *g, serve_answer *a) {
    send_delta(g, a, ht_json_new_object(), serve_openai_finish(a));
}

static void end(serve_generation *g) {
    if (g->usage) send(g, ht_json_new_array(), serve_openai_usage(serve_usage_of(g)));
}

static const serve_dialect chat = {
    .begin = begin, .piece = piece, .answer_end = answer_end, .end = end, .last_event = "[DONE]", .reply = reply};

bool serve_openai_chat(serve_call *c) {
    serve_generation *g = serve_generation_new(c, &chat);
    if (!g || !read_request(g)) return false;
    serve_new_id("chatcmpl-", g->id);
    return serve_generation_start(g);
}
