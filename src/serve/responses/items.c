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

const char *serve_response_status_name(serve_response_status status) {
    static const char *const names[] = {"in_progress", "completed", "incomplete"};
    return names[status];
}

serve_response_status serve_response_status_of(const serve_answer *a) {
    return a->metrics.finish == HT_FINISH_LENGTH ? SERVE_INCOMPLETE : SERVE_COMPLETED;
}

/* ---- items ---- */

static const serve_shape annotation_shape = {.types = SERVE_JSON_OBJECT}; /* of which there are none */
static const serve_field text_part_members[] = {SERVE_HAS("type", SERVE_IS_ONE_OF("output_text")),
                                                SERVE_HAS("text", SERVE_IS_TEXT),
                                                SERVE_HAS("annotations", SERVE_IS_LIST(&annotation_shape)),
                                                SERVE_HAS("logprobs", SERVE_IS(serve_logprobs_shape)),
                                                {0}};
const serve_shape serve_text_part_shape = SERVE_IS_NAMED("ResponseOutputText", text_part_members);
static const serve_field thought_part_members[] = {
    SERVE_HAS("type", SERVE_IS_ONE_OF("reasoning_text")), SERVE_HAS("text", SERVE_IS_TEXT), {0}};
static const serve_shape thought_part_shape = SERVE_IS_NAMED("ResponseReasoningText", thought_part_members);
static const serve_field item_members[] = {
    SERVE_HAS("id", SERVE_IS_TEXT),
    SERVE_HAS("status", SERVE_IS_ONE_OF("in_progress", "completed", "incomplete")),
    {0}};
static const serve_field message_members[] = {
    SERVE_HAS("role", SERVE_IS_ONE_OF("assistant")), SERVE_HAS("content", SERVE_IS_LIST(&serve_text_part_shape)), {0}};
static const serve_field reasoning_members[] = {SERVE_HAS("summary", SERVE_IS_LIST(&annotation_shape)),
                                                SERVE_HAS("content", SERVE_IS_LIST(&thought_part_shape)),
                                                SERVE_MAY_HAVE("encrypted_content", SERVE_IS_TEXT),
                                                {0}};
static const serve_field call_members[] = {SERVE_HAS("call_id", SERVE_IS_TEXT),
                                           SERVE_HAS("name", SERVE_IS_TEXT),
                                           SERVE_HAS("arguments", SERVE_IS_TEXT),
                                           SERVE_MAY_HAVE("namespace", SERVE_IS_TEXT),
                                           {0}};
static const serve_named_kind item_kinds[] = {
    {"message", "ResponseOutputMessage", SERVE_TABLES(item_members, message_members)},
    {"reasoning", "ResponseReasoningItem", SERVE_TABLES(item_members, reasoning_members)},
    {"function_call", "ResponseFunctionCall", SERVE_TABLES(item_members, call_members)},
    {0}};
const serve_shape serve_response_item_shape = {
    .types = SERVE_JSON_OBJECT, .name = "ResponseOutputItem", .named = item_kinds};

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
                        serve_response_status_name(status), "content", content);
}

ht_json *serve_reasoning_item(const serve_generation *g, const char *id, serve_response_status status,
                              const ht_text *thoughts) {
    const serve_responses_answer *answer = g->extra;
    ht_json *content = thoughts ? ht_json_pack("[{ss so}]", "type", "reasoning_text", "text", text_or_empty(thoughts))
                                : ht_json_new_array();
    ht_json *item = ht_json_pack("{ss ss ss s[] so}", "id", id, "type", "reasoning", "status",
                                 serve_response_status_name(status), "summary", "content", content);
    if (answer->seals_thoughts && thoughts)
        ht_json_object_set_new(item, "encrypted_content", serve_seal_thoughts(thoughts));
    return item;
}

ht_json *serve_call_item(const serve_generation *g, const char *id, serve_response_status status,
                         const serve_tool_call *call, bool with_arguments) {
    const char *namespace, *name = serve_namespace_split(serve_member(g->c->body, "tools"), call->name, &namespace);
    return ht_json_pack("{ss ss ss ss ss so ss*}", "id", id, "type", "function_call", "status",
                        serve_response_status_name(status), "call_id", call->id, "name", name, "arguments",
                        text_or_empty(with_arguments ? &call->arguments : NULL), "namespace", namespace);
}

/* ---- usage ---- */

static const serve_field input_details[] = {
    SERVE_HAS("cached_tokens", SERVE_IS_COUNT), SERVE_HAS("cache_write_tokens", SERVE_IS_COUNT), {0}};
static const serve_field output_details[] = {SERVE_HAS("reasoning_tokens", SERVE_IS_COUNT), {0}};
static const serve_field usage_members[] = {
    SERVE_HAS("input_tokens", SERVE_IS_COUNT),
    SERVE_HAS("input_tokens_details", SERVE_IS_NAMED("ResponseInputTokensDetails", input_details)),
    SERVE_HAS("output_tokens", SERVE_IS_COUNT),
    SERVE_HAS("output_tokens_details", SERVE_IS_NAMED("ResponseOutputTokensDetails", output_details)),
    SERVE_HAS("total_tokens", SERVE_IS_COUNT),
    {0}};
static const serve_shape usage_shape = SERVE_IS_NAMED("ResponseUsage", usage_members);

static ht_json *usage_json(serve_usage u) {
    return ht_json_pack("{sI s{sI si} sI s{sI} sI}", "input_tokens", (int64_t)u.prompt, "input_tokens_details",
                        "cached_tokens", (int64_t)u.cached, "cache_write_tokens", 0, "output_tokens",
                        (int64_t)u.generated, "output_tokens_details", "reasoning_tokens", (int64_t)u.thoughts,
                        "total_tokens", (int64_t)(u.prompt + u.generated));
}

/* ---- what was asked ---- */

static const serve_field echoed[] = {SERVE_HAS("instructions", SERVE_IS_NULLABLE(SERVE_JSON_TEXT)),
                                     SERVE_HAS("max_output_tokens", SERVE_IS_NULLABLE(SERVE_JSON_INTEGER)),
                                     SERVE_HAS("max_tool_calls", SERVE_IS_NULLABLE(SERVE_JSON_INTEGER)),
                                     SERVE_HAS("metadata", {.types = SERVE_JSON_OBJECT}),
                                     SERVE_HAS("parallel_tool_calls", SERVE_IS_FLAG),
                                     SERVE_HAS("safety_identifier", SERVE_IS_NULLABLE(SERVE_JSON_TEXT)),
                                     SERVE_HAS("temperature", SERVE_IS_REAL),
                                     SERVE_HAS("tool_choice", SERVE_IS(serve_responses_choice_shape)),
                                     SERVE_HAS("tools", SERVE_IS_LIST(&serve_responses_tool_shape)),
                                     SERVE_HAS("top_logprobs", SERVE_IS_INTEGER(0, SERVE_MOST_LOGPROBS)),
                                     SERVE_HAS("top_p", SERVE_IS_REAL),
                                     SERVE_HAS("user", SERVE_IS_NULLABLE(SERVE_JSON_TEXT)),
                                     SERVE_MAY_HAVE("prompt_cache_key", SERVE_IS_TEXT),
                                     {0}},
                         of_reasoning[] = {SERVE_HAS("effort", {.types = SERVE_JSON_TEXT | SERVE_JSON_NULL,
                                                                .words = serve_efforts}),
                                           SERVE_HAS("summary", SERVE_IS_NULLABLE(SERVE_JSON_TEXT)),
                                           {0}},
                         of_text[] = {
                             SERVE_HAS("format", SERVE_IS_FORMAT), SERVE_MAY_HAVE("verbosity", SERVE_IS_TEXT), {0}};

/* Sets those of the table that a request has. What has no effect may be anything in requests, and is left out unless it is what clients of
 * answers look for. */
static void echo(const ht_json *from, ht_json *to, const serve_field *table) {
    for (; table->name; table++) {
        const ht_json *value = serve_member(from, table->name);
        if (value && serve_shape_fits(value, &table->is)) ht_json_object_set(to, table->name, (ht_json *)value);
    }
}

/* Members of the request as they were, or with what holds without them. */
static void set_request(const serve_generation *g, ht_json *response) {
    const ht_json *body = g->c->body;
    ht_json *request = ht_json_pack(
        "{sn sn sn s{} sb sn s{sn sn} sn sb sf s{s{ss}} ss s[] si sf ss sn}", "instructions", "max_output_tokens",
        "max_tool_calls", "metadata", "parallel_tool_calls", 1, "previous_response_id", "reasoning", "effort",
        "summary", "safety_identifier", "store", 0, "temperature", serve_rounded(g->sampler.temperature), "text",
        "format", "type", "text", "tool_choice", "auto", "tools", "top_logprobs", 0, "top_p",
        g->sampler.top_p > 0 ? serve_rounded(g->sampler.top_p) : 1.0, "truncation", "disabled", "user");
    echo(body, request, echoed);
    echo(serve_member(body, "reasoning"), ht_json_object_get(request, "reasoning"), of_reasoning);
    echo(serve_member(body, "text"), ht_json_object_get(request, "text"), of_text);
    ht_json_object_update(response, request);
    ht_json_decref(request);
}

/* ---- the whole ---- */

static const serve_field error_members[] = {SERVE_HAS("code", SERVE_IS_TEXT), SERVE_HAS("message", SERVE_IS_TEXT), {0}};
static const serve_field incomplete_members[] = {SERVE_HAS("reason", SERVE_IS_ONE_OF("max_output_tokens")), {0}};
static const serve_shape error_shape = SERVE_IS_NAMED("ResponseError", error_members),
                         incomplete_shape = SERVE_IS_NAMED("ResponseIncompleteDetails", incomplete_members);
static const serve_field response_members[] = {SERVE_HAS("id", SERVE_IS_TEXT),
                                               SERVE_HAS("object", SERVE_IS_ONE_OF("response")),
                                               SERVE_HAS("created_at", SERVE_IS_COUNT),
                                               SERVE_HAS("status", SERVE_IS_ONE_OF("in_progress", "completed",
                                                                                   "incomplete", "failed")),
                                               SERVE_HAS("background", SERVE_IS_FALSE),
                                               SERVE_HAS("completed_at", SERVE_IS_NULLABLE(SERVE_JSON_INTEGER)),
                                               SERVE_HAS("error", SERVE_IS_OR_NULL(error_shape)),
                                               SERVE_HAS("incomplete_details", SERVE_IS_OR_NULL(incomplete_shape)),
                                               SERVE_HAS("model", SERVE_IS_TEXT),
                                               SERVE_HAS("output", SERVE_IS_LIST(&serve_response_item_shape)),
                                               SERVE_HAS("usage", SERVE_IS_OR_NULL(usage_shape)),
                                               {0}},
                         default_members[] = {SERVE_HAS("previous_response_id", SERVE_IS_NULL),
                                              SERVE_HAS("reasoning", SERVE_IS_NAMED("ResponseReasoning", of_reasoning)),
                                              SERVE_HAS("store", SERVE_IS_FALSE),
                                              SERVE_HAS("text", SERVE_IS_NAMED("ResponseText", of_text)),
                                              SERVE_HAS("truncation", SERVE_IS_ONE_OF("disabled")),
                                              {0}};
const serve_shape serve_responses_answer_shape =
    SERVE_IS_NAMED("ResponseObject", response_members, echoed, default_members);

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
        failure ? "failed" : serve_response_status_name(status), "background", 0, "completed_at",
        status == SERVE_COMPLETED && !failure ? ht_json_integer(time(NULL)) : ht_json_null(), "error", error,
        "incomplete_details", details, "model", g->c->lease.name);
    set_request(g, response);
    ht_json_object_set(response, "output", answer->output);
    ht_json_object_set_new(response, "usage", ended ? usage_json(serve_usage_of(g)) : ht_json_null());
    return response;
}
