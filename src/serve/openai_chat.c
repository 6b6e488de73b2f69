/* Chat completions of OpenAI's interface. */
#include "serve/openai.h"
#include "serve/sampling.h"

#include <stdlib.h>
#include <string.h>

static const serve_field chat_fields[] = {{"model", SERVE_USED},
                                          {"messages", SERVE_USED},
                                          {"n", SERVE_USED},
                                          {"stop", SERVE_USED},
                                          {"max_tokens", SERVE_USED},
                                          {"max_completion_tokens", SERVE_USED},
                                          {"stream", SERVE_USED},
                                          {"stream_options", SERVE_USED},
                                          {"logprobs", SERVE_USED},
                                          {"top_logprobs", SERVE_USED},
                                          {"tools", SERVE_USED},
                                          {"tool_choice", SERVE_USED},
                                          {"parallel_tool_calls", SERVE_USED},
                                          {"reasoning_effort", SERVE_USED},
                                          {"chat_template_kwargs", SERVE_USED},
                                          {"modalities", SERVE_USED},
                                          {"audio", SERVE_LACKED},
                                          {"web_search_options", SERVE_LACKED},
                                          {"functions", SERVE_LACKED},
                                          {"function_call", SERVE_LACKED},
                                          {NULL, SERVE_USED}};
const serve_field *const serve_openai_chat_fields[] = {chat_fields, serve_sampling_fields, serve_structure_fields,
                                                       serve_noted_fields, NULL};

/* ---- requests ---- */

static bool read_tool_choice(serve_call *c, serve_conversation *k) {
    const json_t *choice = serve_member(c->body, "tool_choice");
    static const char *const words[] = {"auto", "none", "required"};
    if (!choice) return true;
    if (json_is_string(choice)) {
        int word = 0;
        if (!serve_read_word(c->body, "tool_choice", words, 3, &word, &c->failure)) return false;
        k->choice = word == 1 ? SERVE_TOOLS_NONE : word == 2 ? SERVE_TOOLS_REQUIRED : SERVE_TOOLS_AUTO;
        return true;
    }
    const char *name = json_string_value(json_object_get(json_object_get(choice, "function"), "name"));
    if (!name) name = json_string_value(json_object_get(choice, "name"));
    if (!name)
        return serve_fail(&c->failure, 400, "tool_choice",
                          "\"tool_choice\" is to be \"auto\", \"none\", \"required\" or "
                          "{\"type\": \"function\", \"function\": {\"name\": ...}}");
    k->choice = SERVE_TOOLS_NAMED;
    k->tool = name;
    return true;
}

/* Text alone can be had. */
static bool check_modalities(serve_call *c) {
    const json_t *list = serve_member(c->body, "modalities");
    for (size_t i = 0; i < json_array_size(list); i++) {
        const char *one = json_string_value(json_array_get(list, i));
        if (!one || strcmp(one, "text") != 0)
            return serve_fail(&c->failure, 400, "modalities", "\"modalities\": answers are \"text\" alone");
    }
    return true;
}

bool serve_openai_read_conversation(serve_call *c, serve_conversation *k) {
    bool parallel = true;
    if (!serve_read_array(c->body, "messages", &k->messages, &c->failure) ||
        !serve_read_array(c->body, "tools", &k->tools, &c->failure) ||
        !serve_read_object(c->body, "chat_template_kwargs", &k->variables, &c->failure) ||
        !serve_read_flag(c->body, "parallel_tool_calls", &parallel, &c->failure) || !read_tool_choice(c, k) ||
        !serve_read_effort(c->body, "reasoning_effort", k, &c->failure))
        return false;
    k->one_call = !parallel;
    if (!json_array_size(k->messages))
        return serve_fail(&c->failure, 400, "messages", "\"messages\" is to be a list of one message or more");
    return true;
}

bool serve_openai_read_stream(serve_generation *g, const json_t *body) {
    serve_failure *f = &g->c->failure;
    const json_t *options = NULL;
    if (!serve_read_flag(body, "stream", &g->stream, f) || !serve_read_object(body, "stream_options", &options, f))
        return false;
    return serve_read_flag(options, "include_usage", &g->usage, f) &&
           serve_read_flag(options, "continuous_usage_stats", &g->continuous_usage, f);
}

static bool read_request(serve_generation *g) {
    static const char *const most[] = {"max_completion_tokens", "max_tokens", NULL};
    serve_call *c = g->c;
    serve_conversation k = {0};
    int64_t n = 1;
    if (!serve_read_integer(c->body, "n", 1, 128, &n, &c->failure)) return false;
    g->n = (int32_t)n;
    return check_modalities(c) && serve_openai_read_conversation(c, &k) && serve_openai_read_stream(g, c->body) &&
           serve_read_logprobs(g) && serve_read_sampling(g, c->body, 1) &&
           serve_read_stop(g, json_object_get(c->body, "stop"), "stop") && serve_read_max_tokens(g, c->body, most) &&
           serve_read_structure(g, c->body) && serve_set_conversation(g, &k);
}

/* ---- what is the same in all answers ---- */

json_t *serve_openai_usage(serve_usage u) {
    return json_pack("{sI sI sI s{sI} s{sI}}", "prompt_tokens", (json_int_t)u.prompt, "completion_tokens",
                     (json_int_t)u.generated, "total_tokens", (json_int_t)(u.prompt + u.generated),
                     "prompt_tokens_details", "cached_tokens", (json_int_t)u.cached, "completion_tokens_details",
                     "reasoning_tokens", (json_int_t)u.thoughts);
}

const char *serve_openai_finish(const serve_answer *a) {
    if (a->metrics.finish == HT_FINISH_LENGTH) return "length";
    return a->n_calls ? "tool_calls" : "stop";
}

/* ---- whole answers ---- */

static json_t *calls_json(const serve_answer *a) {
    json_t *calls = json_array();
    for (size_t i = 0; i < a->n_calls; i++)
        json_array_append_new(calls,
                              json_pack("{ss ss s{ss so}}", "id", a->call[i].id, "type", "function", "function", "name",
                                        a->call[i].name, "arguments", serve_text_json(&a->call[i].arguments)));
    return calls;
}

static json_t *message_json(const serve_answer *a) {
    const bool silent = a->n_calls && !a->text.len;
    json_t *message = json_pack("{ss so sn}", "role", "assistant", "content",
                                silent ? json_null() : serve_text_json(&a->text), "refusal");
    if (a->thoughts.len) json_object_set_new(message, "reasoning_content", serve_text_json(&a->thoughts));
    if (a->n_calls) json_object_set_new(message, "tool_calls", calls_json(a));
    return message;
}

static json_t *choice_json(const serve_generation *g, const serve_answer *a) {
    json_t *logprobs = g->logprobs ? json_pack("{sO sn}", "content", a->logprobs, "refusal") : json_null();
    return json_pack("{si so so ss}", "index", (int)a->index, "message", message_json(a), "logprobs", logprobs,
                     "finish_reason", serve_openai_finish(a));
}

static json_t *reply(serve_generation *g) {
    json_t *choices = json_array();
    for (size_t i = 0; i < g->n_answers; i++) json_array_append_new(choices, choice_json(g, &g->answer[i]));
    return json_pack("{ss ss sI ss so so}", "id", g->id, "object", "chat.completion", "created", (json_int_t)g->created,
                     "model", g->c->lease.name, "choices", choices, "usage", serve_openai_usage(serve_usage_of(g)));
}

/* ---- streams ---- */

/* An event with these choices, which are taken. */
static void send(serve_generation *g, json_t *choices, json_t *usage) {
    json_t *chunk = json_pack("{ss ss sI ss so}", "id", g->id, "object", "chat.completion.chunk", "created",
                              (json_int_t)g->created, "model", g->c->lease.name, "choices", choices);
    if (usage) json_object_set_new(chunk, "usage", usage);
    serve_send_event(g, NULL, chunk);
}

/* What has been added to an answer: the delta is taken. */
static void send_delta(serve_generation *g, serve_answer *a, json_t *delta, const char *finish) {
    json_t *logprobs = json_null();
    if (g->logprobs && json_array_size(a->logprobs)) {
        logprobs = json_pack("{sO sn}", "content", a->logprobs, "refusal");
        json_decref(a->logprobs);
        a->logprobs = json_array();
    }
    json_t *choices = json_pack("[{si so so ss?}]", "index", (int)a->index, "delta", delta, "logprobs", logprobs,
                                "finish_reason", finish);
    json_t *usage = g->continuous_usage ? serve_openai_usage(serve_answer_usage(a)) : g->usage ? json_null() : NULL;
    send(g, choices, usage);
}

static void begin(serve_generation *g) {
    for (size_t i = 0; i < g->n_answers && !g->closed; i++)
        send_delta(g, &g->answer[i], json_pack("{ss ss}", "role", "assistant", "content", ""), NULL);
}

static void piece(serve_generation *g, serve_answer *a, const serve_piece *p) {
    const int index = (int)a->n_calls - 1;
    switch (p->part) {
    case SERVE_TEXT: send_delta(g, a, json_pack("{ss%}", "content", p->text, p->n), NULL); break;
    case SERVE_THOUGHT: send_delta(g, a, json_pack("{ss%}", "reasoning_content", p->text, p->n), NULL); break;
    case SERVE_CALL_BEGIN:
        send_delta(g, a,
                   json_pack("{s[{si ss ss s{ss ss}}]}", "tool_calls", "index", index, "id", a->call[index].id, "type",
                             "function", "function", "name", a->call[index].name, "arguments", ""),
                   NULL);
        break;
    case SERVE_CALL_ARGUMENTS:
        send_delta(g, a,
                   json_pack("{s[{si s{ss%}}]}", "tool_calls", "index", index, "function", "arguments", p->text, p->n),
                   NULL);
        break;
    case SERVE_CALL_END: break;
    }
}

static void answer_end(serve_generation *g, serve_answer *a) {
    send_delta(g, a, json_object(), serve_openai_finish(a));
}

static void end(serve_generation *g) {
    if (g->usage) send(g, json_array(), serve_openai_usage(serve_usage_of(g)));
    serve_send_text_event(g, "[DONE]");
}

static void fail(serve_generation *g, const serve_failure *f) {
    serve_send_event(g, NULL, serve_failure_json(f, SERVE_OPENAI, http_exchange_id(g->c->x)));
}

static const serve_dialect chat = {
    .begin = begin, .piece = piece, .answer_end = answer_end, .end = end, .fail = fail, .reply = reply};

bool serve_openai_chat(serve_call *c) {
    serve_generation *g = serve_generation_new(c, &chat);
    if (!g || !read_request(g)) return false;
    serve_new_id("chatcmpl-", g->id);
    return serve_generation_start(g);
}
