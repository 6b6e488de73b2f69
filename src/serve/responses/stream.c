/* Answers of the Responses interface as they are sent: whole, or as a numbered sequence of events. */
#include "serve/echo.h"
#include "serve/responses/responses.h"

#include <string.h>

/* What the item is that is open in a stream: serve_answer.block. */
enum { NO_ITEM, TEXT_ITEM, REASONING_ITEM, CALL_ITEM };

/* ---- whole answers ---- */

/* Appends an item that is taken. */
static void put(serve_responses_answer *answer, ht_json *item) { ht_json_array_append_new(answer->output, item); }

/* Clients act on calls that are completed. */
static serve_response_status call_status(const serve_tool_call *call) {
    return call->cut ? SERVE_INCOMPLETE : SERVE_COMPLETED;
}

static ht_json *reply(serve_generation *g) {
    serve_responses_answer *answer = g->extra;
    const serve_answer *a = &g->answer[0];
    const serve_response_status status = serve_response_status_of(a);
    char id[SERVE_ID];
    if (a->thoughts.len) {
        serve_new_id("rs_", id);
        put(answer,
            serve_reasoning_item(g, id, a->last == HT_ANSWER_THINKING ? status : SERVE_COMPLETED, &a->thoughts));
    }
    if (a->text.len) {
        serve_new_id("msg_", id);
        put(answer,
            serve_message_item(id, a->last == HT_ANSWER_TEXT ? status : SERVE_COMPLETED, &a->text, a->logprobs));
    }
    for (size_t i = 0; i < a->n_calls; i++) {
        serve_new_id("fc_", id);
        put(answer, serve_call_item(g, id, call_status(&a->call[i]), &a->call[i], true));
    }
    return serve_response_json(g, status, NULL);
}

/* Sends an event with these members, which are taken. */
static void send(serve_generation *g, const char *type, ht_json *members) {
    serve_responses_answer *answer = g->extra;
    ht_json *event = ht_json_pack("{ss sI}", "type", type, "sequence_number", answer->sequence++);
    if (ht_json_object_update(event, members)) {
        ht_json_decref(event);
        event = NULL;
    }
    ht_json_decref(members);
    serve_send_event(g, type, event);
}

static void send_response(serve_generation *g, const char *type, serve_response_status status,
                          const serve_failure *failure) {
    send(g, type, ht_json_pack("{so}", "response", serve_response_json(g, status, failure)));
}

static int output_index(const serve_generation *g) {
    const serve_responses_answer *answer = g->extra;
    return (int)ht_json_array_size(answer->output);
}

/* An event about the item that is open; the value is taken. */
static void send_item(serve_generation *g, const char *type, ht_json *item) {
    send(g, type, ht_json_pack("{si so}", "output_index", output_index(g), "item", item));
}

static ht_json *place(const serve_generation *g, bool in_content) {
    const serve_responses_answer *answer = g->extra;
    ht_json *members = ht_json_pack("{ss si}", "item_id", answer->item, "output_index", output_index(g));
    if (in_content) ht_json_object_set_new(members, "content_index", ht_json_integer(0));
    return members;
}

/* An event within it: a member that is taken beside its place. */
static void send_within(serve_generation *g, const char *type, bool in_content, const char *name, ht_json *value) {
    ht_json *members = place(g, in_content);
    if (ht_json_object_set_new(members, name, value)) {
        ht_json_decref(members);
        members = NULL;
    }
    send(g, type, members);
}

/* Events of the text of a message, which have log-probabilities of their own. */
static void send_text(serve_generation *g, const char *type, const char *name, ht_json *text, ht_json *logprobs) {
    ht_json *members = place(g, true);
    const bool bad =
        ht_json_object_set_new(members, name, text) | ht_json_object_set_new(members, "logprobs", logprobs);
    if (bad) {
        ht_json_decref(members);
        members = NULL;
    }
    send(g, type, members);
}

/* ---- items ---- */

static ht_json *text_json(const serve_responses_answer *answer) {
    return answer->text.failed ? NULL : serve_text_json(&answer->text);
}

static ht_json *item_json(const serve_generation *g, const serve_answer *a, serve_response_status status, bool empty) {
    const serve_responses_answer *answer = g->extra;
    const ht_text *text = empty ? NULL : &answer->text;
    switch (a->block) {
    case TEXT_ITEM: return serve_message_item(answer->item, status, text, answer->logprobs);
    case REASONING_ITEM: return serve_reasoning_item(g, answer->item, status, text);
    default: return serve_call_item(g, answer->item, status, &a->call[a->n_calls - 1], !empty);
    }
}

static void end_content(serve_generation *g, const serve_answer *a) {
    serve_responses_answer *answer = g->extra;
    switch (a->block) {
    case TEXT_ITEM:
        send_text(g, "response.output_text.done", "text", text_json(answer),
                  answer->logprobs ? ht_json_incref(answer->logprobs) : ht_json_new_array());
        send_within(g, "response.content_part.done", true, "part", serve_text_part(&answer->text, answer->logprobs));
        break;
    case REASONING_ITEM: send_within(g, "response.reasoning_text.done", true, "text", text_json(answer)); break;
    default: {
        const serve_tool_call *call = &a->call[a->n_calls - 1];
        const char *namespace;
        ht_json *members = place(g, false);
        ht_json_object_set_new(
            members, "name",
            ht_json_string(serve_namespace_split(serve_member(g->c->body, "tools"), call->name, &namespace)));
        ht_json_object_set_new(members, "arguments", serve_text_json(&call->arguments));
        send(g, "response.function_call_arguments.done", members);
    }
    }
}

static void close_item(serve_generation *g, serve_answer *a, serve_response_status status) {
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
    close_item(g, a, SERVE_COMPLETED);
    a->block = kind;
    serve_new_id(prefixes[kind], answer->item);
    send_item(g, "response.output_item.added", item_json(g, a, SERVE_IN_PROGRESS, true));
    if (kind == TEXT_ITEM) send_within(g, "response.content_part.added", true, "part", serve_text_part(NULL, NULL));
}

/* The log-probabilities that have come since the last piece; they are kept for the item's end. */
static ht_json *new_logprobs(const serve_generation *g, serve_answer *a) {
    serve_responses_answer *answer = g->extra;
    if (!g->logprobs) return ht_json_new_array();
    ht_json *these = a->logprobs;
    a->logprobs = ht_json_new_array();
    if (!answer->logprobs) answer->logprobs = ht_json_new_array();
    ht_json_array_extend(answer->logprobs, these);
    return these;
}

/* ---- streams ---- */

static void begin(serve_generation *g) {
    send_response(g, "response.created", SERVE_IN_PROGRESS, NULL);
    send_response(g, "response.in_progress", SERVE_IN_PROGRESS, NULL);
}

static void piece(serve_generation *g, serve_answer *a, const ht_answer_piece *p) {
    serve_responses_answer *answer = g->extra;
    switch (p->part) {
    case HT_ANSWER_TEXT:
        open_item(g, a, TEXT_ITEM);
        ht_text_append(&answer->text, p->text, p->n);
        send_text(g, "response.output_text.delta", "delta", ht_json_stringn(p->text, p->n), new_logprobs(g, a));
        break;
    case HT_ANSWER_THINKING:
        open_item(g, a, REASONING_ITEM);
        ht_text_append(&answer->text, p->text, p->n);
        send_within(g, "response.reasoning_text.delta", true, "delta", ht_json_stringn(p->text, p->n));
        break;
    case HT_ANSWER_CALL_BEGIN: open_item(g, a, CALL_ITEM); break;
    case HT_ANSWER_CALL_ARGUMENTS:
        send_within(g, "response.function_call_arguments.delta", false, "delta", ht_json_stringn(p->text, p->n));
        break;
    case HT_ANSWER_CALL: break;
    case HT_ANSWER_CALL_END: close_item(g, a, call_status(&a->call[a->n_calls - 1])); break;
    }
}

static void answer_end(serve_generation *g, serve_answer *a) { close_item(g, a, serve_response_status_of(a)); }

static void end(serve_generation *g) {
    const serve_response_status status = serve_response_status_of(&g->answer[0]);
    send_response(g, status == SERVE_INCOMPLETE ? "response.incomplete" : "response.completed", status, NULL);
}

static void fail(serve_generation *g, const serve_failure *f) {
    send_response(g, "response.failed", SERVE_INCOMPLETE, f);
}

const serve_dialect serve_responses_dialect = {
    .begin = begin, .piece = piece, .answer_end = answer_end, .end = end, .fail = fail, .reply = reply};
