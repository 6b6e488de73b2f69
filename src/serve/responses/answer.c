/* Responses of the Responses interface: items in an object that echoes the request, whole or as numbered events. */
#include "serve/messages.h"
#include "serve/responses/responses.h"
#include "serve/sampling.h"

#include <string.h>
#include <time.h>

typedef enum response_status { IN_PROGRESS, COMPLETED, INCOMPLETE } response_status;

static const char *status_name(response_status status) {
    static const char *const names[] = {"in_progress", "completed", "incomplete"};
    return names[status];
}

/* The status of an ended answer. */
static response_status status_of(const serve_answer *a) {
    return a->metrics.finish == HT_FINISH_LENGTH ? INCOMPLETE : COMPLETED;
}

/* ---- items ---- */

static ht_json *text_or_empty(const ht_text *text) {
    if (text && text->failed) return NULL;
    return text ? serve_text_json(text) : ht_json_string("");
}

/* Text and logprobs are lent; NULL means empty. */
static ht_json *text_part(const ht_text *text, const ht_json *logprobs) {
    return ht_json_pack("{ss so s[] so}", "type", "output_text", "text", text_or_empty(text), "annotations", "logprobs",
                        logprobs ? ht_json_incref((ht_json *)logprobs) : ht_json_new_array());
}

static ht_json *message_item(const char *id, response_status status, const ht_text *text, const ht_json *logprobs) {
    ht_json *content = text ? ht_json_pack("[o]", text_part(text, logprobs)) : ht_json_new_array();
    return ht_json_pack("{ss ss ss ss so}", "id", id, "type", "message", "role", "assistant", "status",
                        status_name(status), "content", content);
}

static ht_json *reasoning_item(const serve_generation *g, const char *id, response_status status,
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

static ht_json *call_item(const serve_generation *g, const char *id, response_status status,
                          const serve_tool_call *call, bool with_arguments) {
    const char *namespace, *name = serve_namespace_split(serve_member(g->c->body, "tools"), call->name, &namespace);
    return ht_json_pack("{ss ss ss ss ss so ss*}", "id", id, "type", "function_call", "status", status_name(status),
                        "call_id", call->id, "name", name, "arguments",
                        text_or_empty(with_arguments ? &call->arguments : NULL), "namespace", namespace);
}

static ht_json *usage_json(serve_usage u) {
    return ht_json_pack("{sI s{sI si} sI s{sI} sI}", "input_tokens", (int64_t)u.prompt, "input_tokens_details",
                        "cached_tokens", (int64_t)u.cached, "cache_write_tokens", 0, "output_tokens",
                        (int64_t)u.generated, "output_tokens_details", "reasoning_tokens", (int64_t)u.thoughts,
                        "total_tokens", (int64_t)(u.prompt + u.generated));
}

/* ---- the response ---- */

/* Copies present fields of the request. Bookkeeping fields are unchecked there, so only strings are copied. */
static void echo(const ht_json *from, ht_json *to, const char *const *checked, const char *const *noted) {
    for (; *checked; checked++)
        if (serve_member(from, *checked)) ht_json_object_set(to, *checked, ht_json_object_get(from, *checked));
    for (; *noted; noted++)
        if (serve_text(from, *noted)) ht_json_object_set(to, *noted, ht_json_object_get(from, *noted));
}

/* Echoes the request's fields, or their defaults. */
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

/* The response object with the items of `output`; failure NULL: none. */
static ht_json *response_json(const serve_generation *g, response_status status, const serve_failure *failure) {
    const serve_responses_answer *answer = g->extra;
    const bool ended = status != IN_PROGRESS && !failure;
    ht_json *error = failure ? ht_json_pack("{ss ss}", "code", failure->code ? failure->code : "server_error",
                                            "message", failure->message)
                             : ht_json_null();
    ht_json *details =
        status == INCOMPLETE && !failure ? ht_json_pack("{ss}", "reason", "max_output_tokens") : ht_json_null();
    ht_json *response =
        ht_json_pack("{ss ss sI ss sb so so so ss}", "id", g->id, "object", "response", "created_at",
                     (int64_t)g->created, "status", failure ? "failed" : status_name(status), "background", 0,
                     "completed_at", status == COMPLETED && !failure ? ht_json_integer(time(NULL)) : ht_json_null(),
                     "error", error, "incomplete_details", details, "model", g->c->lease.name);
    set_request(g, response);
    ht_json_object_set_new(response, "output", answer->output ? ht_json_incref(answer->output) : ht_json_new_array());
    ht_json_object_set_new(response, "usage", ended ? usage_json(serve_usage_of(g)) : ht_json_null());
    return response;
}

/* The open item of a stream: values of serve_answer.block. */
enum { NO_ITEM, TEXT_ITEM, REASONING_ITEM, CALL_ITEM };

/* ---- whole answers ---- */

/* Appends an item and consumes it. */
static void put(serve_responses_answer *answer, ht_json *item) {
    if (!answer->output) answer->output = ht_json_new_array();
    ht_json_array_append_new(answer->output, item);
}

/* Clients execute only completed calls, so truncated ones are incomplete. */
static response_status call_status(const serve_tool_call *call) { return call->cut ? INCOMPLETE : COMPLETED; }

static ht_json *reply(serve_generation *g) {
    serve_responses_answer *answer = g->extra;
    const serve_answer *a = &g->answer[0];
    const response_status status = status_of(a);
    char id[SERVE_ID];
    if (a->thoughts.len) {
        serve_new_id("rs_", id);
        put(answer, reasoning_item(g, id, a->last == HT_ANSWER_THINKING ? status : COMPLETED, &a->thoughts));
    }
    if (a->text.len) {
        serve_new_id("msg_", id);
        put(answer, message_item(id, a->last == HT_ANSWER_TEXT ? status : COMPLETED, &a->text, a->logprobs));
    }
    for (size_t i = 0; i < a->n_calls; i++) {
        serve_new_id("fc_", id);
        put(answer, call_item(g, id, call_status(&a->call[i]), &a->call[i], true));
    }
    return response_json(g, status, NULL);
}

/* Sends an event and consumes its fields. */
static void send(serve_generation *g, const char *type, ht_json *members) {
    serve_responses_answer *answer = g->extra;
    ht_json *event = ht_json_pack("{ss sI}", "type", type, "sequence_number", answer->sequence++);
    if (ht_json_object_update(event, members)) {
        ht_json_decref(event);
        event = NULL;
    }
    ht_json_decref(members);
    serve_send(g, type, event);
}

static void send_response(serve_generation *g, const char *type, response_status status, const serve_failure *failure) {
    send(g, type, ht_json_pack("{so}", "response", response_json(g, status, failure)));
}

static int output_index(const serve_generation *g) {
    const serve_responses_answer *answer = g->extra;
    return (int)ht_json_array_size(answer->output);
}

/* Sends an event about the open item, and consumes the value. */
static void send_item(serve_generation *g, const char *type, ht_json *item) {
    send(g, type, ht_json_pack("{si so}", "output_index", output_index(g), "item", item));
}

/* Sends an event within the open item, and consumes the value and logprobs (NULL: none). */
static void send_within(serve_generation *g, const char *type, bool in_content, const char *name, ht_json *value,
                        ht_json *logprobs) {
    const serve_responses_answer *answer = g->extra;
    send(g, type,
         ht_json_pack("{ss si so* so so*}", "item_id", answer->item, "output_index", output_index(g), "content_index",
                      in_content ? ht_json_integer(0) : NULL, name, value, "logprobs", logprobs));
}

/* ---- items ---- */

static ht_json *item_json(const serve_generation *g, const serve_answer *a, response_status status, bool empty) {
    const serve_responses_answer *answer = g->extra;
    const ht_text *text = empty ? NULL : &answer->text;
    switch (a->block) {
    case TEXT_ITEM: return message_item(answer->item, status, text, answer->logprobs);
    case REASONING_ITEM: return reasoning_item(g, answer->item, status, text);
    default: return call_item(g, answer->item, status, &a->call[a->n_calls - 1], !empty);
    }
}

static void end_content(serve_generation *g, const serve_answer *a) {
    serve_responses_answer *answer = g->extra;
    switch (a->block) {
    case TEXT_ITEM:
        send_within(g, "response.output_text.done", true, "text", text_or_empty(&answer->text),
                    answer->logprobs ? ht_json_incref(answer->logprobs) : ht_json_new_array());
        send_within(g, "response.content_part.done", true, "part", text_part(&answer->text, answer->logprobs), NULL);
        break;
    case REASONING_ITEM:
        send_within(g, "response.reasoning_text.done", true, "text", text_or_empty(&answer->text), NULL);
        break;
    default: {
        const serve_tool_call *call = &a->call[a->n_calls - 1];
        const char *namespace, *name = serve_namespace_split(serve_member(g->c->body, "tools"), call->name, &namespace);
        send(g, "response.function_call_arguments.done",
             ht_json_pack("{ss si ss so}", "item_id", answer->item, "output_index", output_index(g), "name", name,
                          "arguments", serve_text_json(&call->arguments)));
    }
    }
}

static void close_item(serve_generation *g, serve_answer *a, response_status status) {
    serve_responses_answer *answer = g->extra;
    if (a->block == NO_ITEM) return;
    end_content(g, a);
    ht_json *item = item_json(g, a, status, false);
    send_item(g, "response.output_item.done", item ? ht_json_incref(item) : NULL);
    put(answer, item);
    a->block = NO_ITEM;
    ht_text_clear(&answer->text);
    ht_json_decref(answer->logprobs);
    answer->logprobs = NULL;
}

static void open_item(serve_generation *g, serve_answer *a, int kind) {
    static const char *const prefixes[] = {[TEXT_ITEM] = "msg_", [REASONING_ITEM] = "rs_", [CALL_ITEM] = "fc_"};
    serve_responses_answer *answer = g->extra;
    if (a->block == kind && kind != CALL_ITEM) return;
    close_item(g, a, COMPLETED);
    a->block = kind;
    serve_new_id(prefixes[kind], answer->item);
    send_item(g, "response.output_item.added", item_json(g, a, IN_PROGRESS, true));
    if (kind == TEXT_ITEM) send_within(g, "response.content_part.added", true, "part", text_part(NULL, NULL), NULL);
}

/* The log-probabilities since the last piece, which are also kept for the item's end. */
static ht_json *new_logprobs(const serve_generation *g, serve_answer *a) {
    serve_responses_answer *answer = g->extra;
    ht_json *these = serve_take_logprobs(a);
    if (g->logprobs && !answer->logprobs) answer->logprobs = ht_json_new_array();
    if (!these) return ht_json_new_array();
    ht_json_array_extend(answer->logprobs, these);
    return these;
}

/* ---- streams ---- */

static void begin(serve_generation *g) {
    send_response(g, "response.created", IN_PROGRESS, NULL);
    send_response(g, "response.in_progress", IN_PROGRESS, NULL);
}

static void piece(serve_generation *g, serve_answer *a, const ht_answer_piece *p) {
    serve_responses_answer *answer = g->extra;
    switch (p->part) {
    case HT_ANSWER_TEXT:
        open_item(g, a, TEXT_ITEM);
        ht_text_append(&answer->text, p->text, p->n);
        send_within(g, "response.output_text.delta", true, "delta", ht_json_stringn(p->text, p->n), new_logprobs(g, a));
        break;
    case HT_ANSWER_THINKING:
        open_item(g, a, REASONING_ITEM);
        ht_text_append(&answer->text, p->text, p->n);
        send_within(g, "response.reasoning_text.delta", true, "delta", ht_json_stringn(p->text, p->n), NULL);
        break;
    case HT_ANSWER_CALL_BEGIN: open_item(g, a, CALL_ITEM); break;
    case HT_ANSWER_CALL_ARGUMENTS:
        send_within(g, "response.function_call_arguments.delta", false, "delta", ht_json_stringn(p->text, p->n), NULL);
        break;
    case HT_ANSWER_CALL: break;
    case HT_ANSWER_CALL_END: close_item(g, a, call_status(&a->call[a->n_calls - 1])); break;
    }
}

static void answer_end(serve_generation *g, serve_answer *a) { close_item(g, a, status_of(a)); }

static void end(serve_generation *g) {
    const response_status status = status_of(&g->answer[0]);
    send_response(g, status == INCOMPLETE ? "response.incomplete" : "response.completed", status, NULL);
}

static void fail(serve_generation *g, const serve_failure *f) { send_response(g, "response.failed", INCOMPLETE, f); }

static void discard(void *extra) {
    serve_responses_answer *answer = extra;
    ht_json_decref(answer->output);
    ht_json_decref(answer->logprobs);
    ht_text_discard(&answer->text);
}

const serve_dialect serve_responses_dialect = {.extra_bytes = sizeof(serve_responses_answer),
                                               .discard_extra = discard,
                                               .begin = begin,
                                               .piece = piece,
                                               .answer_end = answer_end,
                                               .end = end,
                                               .fail = fail,
                                               .reply = reply};
