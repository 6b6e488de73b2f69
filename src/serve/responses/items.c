/* Answers of the Responses interface: their items, and the object that holds them with what was asked. */
#include "serve/echo.h"
#include "serve/messages.h"
#include "serve/responses/responses.h"
#include "serve/sampling.h"

#include <math.h>
#include <stdlib.h>
#include <time.h>

/* ---- what is written of an answer ---- */

static void free_answer(void *user) {
    serve_responses_answer *answer = user;
    ht_json_decref(answer->output);
    ht_json_decref(answer->logprobs);
    ht_text_discard(&answer->text);
    free(answer);
}

bool serve_responses_answer_new(serve_generation *g) {
    serve_responses_answer *answer = calloc(1, sizeof *answer);
    g->extra = answer;
    if (!answer || !(answer->output = ht_json_new_array())) {
        free(answer);
        g->extra = NULL;
        return serve_fail_memory(&g->c->failure);
    }
    g->free_extra = free_answer;
    return true;
}

static const char *status_name(serve_response_status status) {
    static const char *const names[] = {"in_progress", "completed", "incomplete"};
    return names[status];
}

serve_response_status serve_response_status_of(const serve_answer *a) {
    return a->metrics.finish == HT_FINISH_LENGTH ? SERVE_INCOMPLETE : SERVE_COMPLETED;
}

/* ---- items ---- */

static ht_json *text_or_empty(const ht_text *text) {
    if (text && text->failed) return NULL;
    return text ? serve_text_json(text) : ht_json_string("");
}

ht_json *serve_text_part(const ht_text *text, const ht_json *logprobs) {
    return ht_json_pack("{ss so s[] so}", "type", "output_text", "text", text_or_empty(text), "annotations", "logprobs",
                        logprobs ? ht_json_incref((ht_json *)logprobs) : ht_json_new_array());
}

ht_json *serve_message_item(const char *id, serve_response_status status, const ht_text *text,
                            const ht_json *logprobs) {
    ht_json *content = text ? ht_json_pack("[o]", serve_text_part(text, logprobs)) : ht_json_new_array();
    return ht_json_pack("{ss ss ss ss so}", "id", id, "type", "message", "role", "assistant", "status",
                        status_name(status), "content", content);
}

ht_json *serve_reasoning_item(const serve_generation *g, const char *id, serve_response_status status,
                              const ht_text *thoughts) {
    const serve_responses_answer *answer = g->extra;
    ht_json *content = thoughts ? ht_json_pack("[{ss so}]", "type", "reasoning_text", "text", text_or_empty(thoughts))
                                : ht_json_new_array();
    ht_json *item = ht_json_pack("{ss ss ss s[] so}", "id", id, "type", "reasoning", "status", status_name(status),
                                 "summary", "content", content);
    if (answer->seals_thoughts && thoughts)
        ht_json_object_set_new(item, "encrypted_content", serve_seal_thoughts(thoughts));
    return item;
}

ht_json *serve_call_item(const serve_generation *g, const char *id, serve_response_status status,
                         const serve_tool_call *call, bool with_arguments) {
    const char *namespace, *name = serve_namespace_split(serve_member(g->c->body, "tools"), call->name, &namespace);
    return ht_json_pack("{ss ss ss ss ss so ss*}", "id", id, "type", "function_call", "status", status_name(status),
                        "call_id", call->id, "name", name, "arguments",
                        text_or_empty(with_arguments ? &call->arguments : NULL), "namespace", namespace);
}

/* ---- usage ---- */

static ht_json *usage_json(serve_usage u) {
    return ht_json_pack("{sI s{sI si} sI s{sI} sI}", "input_tokens", (int64_t)u.prompt, "input_tokens_details",
                        "cached_tokens", (int64_t)u.cached, "cache_write_tokens", 0, "output_tokens",
                        (int64_t)u.generated, "output_tokens_details", "reasoning_tokens", (int64_t)u.thoughts,
                        "total_tokens", (int64_t)(u.prompt + u.generated));
}

/* ---- what was asked ---- */

/* Sets those of the fields that a request has; of bookkeeping, which may be anything there, those that are strings. */
static void echo(const ht_json *from, ht_json *to, const char *const *checked, const char *const *noted) {
    for (; *checked; checked++)
        if (serve_member(from, *checked)) ht_json_object_set(to, *checked, ht_json_object_get(from, *checked));
    for (; *noted; noted++)
        if (serve_text(from, *noted)) ht_json_object_set(to, *noted, ht_json_object_get(from, *noted));
}

/* Members of the request as they were, or with what holds without them. */
static void set_request(const serve_generation *g, ht_json *response) {
    static const char *const fields[] = {"instructions", "max_output_tokens",
                                         "metadata",     "parallel_tool_calls",
                                         "temperature",  "tool_choice",
                                         "tools",        "top_logprobs",
                                         "top_p",        NULL},
                             *const noted[] = {"safety_identifier", "user", "prompt_cache_key", NULL},
                             *const effort[] = {"effort", NULL}, *const summary[] = {"summary", NULL},
                             *const format[] = {"format", NULL}, *const verbosity[] = {"verbosity", NULL};
    const ht_json *body = g->c->body, *calls = ht_json_object_get(body, "max_tool_calls");
    ht_json *request = ht_json_pack(
        "{sn sn sn s{} sb sn s{sn sn} sn sb sf s{s{ss}} ss s[] si sf ss sn}", "instructions", "max_output_tokens",
        "max_tool_calls", "metadata", "parallel_tool_calls", 1, "previous_response_id", "reasoning", "effort",
        "summary", "safety_identifier", "store", 0, "temperature", serve_rounded(g->sampler.temperature), "text",
        "format", "type", "text", "tool_choice", "auto", "tools", "top_logprobs", 0, "top_p",
        g->sampler.top_p > 0 ? serve_rounded(g->sampler.top_p) : 1.0, "truncation", "disabled", "user");
    echo(body, request, fields, noted);
    if (ht_json_is_integer(calls)) ht_json_object_set(request, "max_tool_calls", (ht_json *)calls);
    echo(serve_member(body, "reasoning"), ht_json_object_get(request, "reasoning"), effort, summary);
    echo(serve_member(body, "text"), ht_json_object_get(request, "text"), format, verbosity);
    ht_json_object_update(response, request);
    ht_json_decref(request);
}

/* ---- the whole ---- */

ht_json *serve_response_json(const serve_generation *g, serve_response_status status, const serve_failure *failure) {
    const serve_responses_answer *answer = g->extra;
    const bool ended = status != SERVE_IN_PROGRESS && !failure;
    ht_json *error = failure ? ht_json_pack("{ss ss}", "code", failure->code ? failure->code : "server_error",
                                            "message", failure->message)
                             : ht_json_null();
    ht_json *details =
        status == SERVE_INCOMPLETE && !failure ? ht_json_pack("{ss}", "reason", "max_output_tokens") : ht_json_null();
    ht_json *response = ht_json_pack(
        "{ss ss sI ss sb so so so ss}", "id", g->id, "object", "response", "created_at", (int64_t)g->created, "status",
        failure ? "failed" : status_name(status), "background", 0, "completed_at",
        status == SERVE_COMPLETED && !failure ? ht_json_integer(time(NULL)) : ht_json_null(), "error", error,
        "incomplete_details", details, "model", g->c->lease.name);
    set_request(g, response);
    ht_json_object_set(response, "output", answer->output);
    ht_json_object_set_new(response, "usage", ended ? usage_json(serve_usage_of(g)) : ht_json_null());
    return response;
}
