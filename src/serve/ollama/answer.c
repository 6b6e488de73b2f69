/* Responses in Ollama's form: a stream of JSON lines, or one JSON object. */
#include "base/clock.h"
#include "serve/ollama/ollama.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>

/* ---- times ---- */

void serve_ollama_time(int64_t seconds, char out[SERVE_OLLAMA_TIME]) {
    struct timespec t = {.tv_sec = (time_t)seconds};
    struct tm utc;
    if (!seconds) clock_gettime(CLOCK_REALTIME, &t);
    gmtime_r(&t.tv_sec, &utc);
    const size_t n = strftime(out, SERVE_OLLAMA_TIME, "%Y-%m-%dT%H:%M:%S", &utc);
    snprintf(out + n, SERVE_OLLAMA_TIME - n, ".%09ldZ", (long)t.tv_nsec);
}

int64_t serve_ollama_nanoseconds(double seconds) { return seconds > 0 ? (int64_t)(seconds * 1e9) : 0; }

/* ---- lines ---- */

ht_json *serve_ollama_line(const serve_call *c, bool chat, const char *text, size_t n, bool done) {
    char now[SERVE_OLLAMA_TIME];
    serve_ollama_time(0, now);
    ht_json *line = ht_json_pack("{ss ss}", "model", serve_ollama_model_name(c), "created_at", now);
    if (chat)
        ht_json_object_set_new(line, "message", ht_json_pack("{ss ss%}", "role", "assistant", "content", text, n));
    else
        ht_json_object_set_new(line, "response", ht_json_stringn(text, n));
    ht_json_object_set_new(line, "done", ht_json_boolean(done));
    return line;
}

static ht_json *line_of(const serve_generation *g, const char *text, size_t n, bool done) {
    const serve_ollama *o = g->extra;
    return serve_ollama_line(g->c, o->chat, text, n, done);
}

/* The object of a line that holds text, reasoning and calls. */
static ht_json *carrier(const serve_generation *g, ht_json *line) {
    const serve_ollama *o = g->extra;
    return o->chat ? ht_json_object_get(line, "message") : line;
}

/* A call with its arguments as an object, numbered in output order. */
static ht_json *call_json(serve_answer *a, const serve_tool_call *call) {
    return ht_json_pack("{ss s{si ss so}}", "id", call->id, "function", "index", a->n_blocks++, "name", call->name,
                        "arguments", serve_tool_call_arguments(call));
}

/* Moves new log-probabilities into a line. */
static void set_logprobs(serve_answer *a, ht_json *line) {
    ht_json *come = serve_take_logprobs(a);
    if (come) ht_json_object_set_new(line, "logprobs", come);
}

/* The ids of prompt and answer for the next request, including the token that ended the answer. */
static ht_json *context_json(const serve_generation *g, const serve_answer *a) {
    const serve_ollama *o = g->extra;
    ht_json *ids = ht_json_new_array();
    for (size_t i = 0; i < o->prompt.n; i++) ht_json_array_append_new(ids, ht_json_integer(o->prompt.id[i]));
    for (size_t i = 0; i < a->n_ids; i++) ht_json_array_append_new(ids, ht_json_integer(a->ids[i]));
    if (a->metrics.finish == HT_FINISH_STOP && a->metrics.stop_id >= 0)
        ht_json_array_append_new(ids, ht_json_integer(a->metrics.stop_id));
    return ids;
}

static void set_end(const serve_generation *g, const serve_answer *a, ht_json *line) {
    const serve_ollama *o = g->extra;
    const serve_usage u = serve_answer_usage(a);
    const ht_metrics *m = &a->metrics;
    ht_json *end =
        ht_json_pack("{ss so* sI sI sI sI sI sI}", "done_reason", m->finish == HT_FINISH_LENGTH ? "length" : "stop",
                     "context", o->gives_context ? context_json(g, a) : NULL, "total_duration",
                     serve_ollama_nanoseconds(ht_now_seconds() - g->c->begin), "load_duration",
                     serve_ollama_nanoseconds(o->model_ready - g->c->begin), "prompt_eval_count", u.prompt,
                     "prompt_eval_duration", serve_ollama_nanoseconds(m->prefill_seconds), "eval_count", u.generated,
                     "eval_duration", serve_ollama_nanoseconds(m->decode_seconds));
    ht_json_object_update(line, end);
    ht_json_decref(end);
}

/* ---- whole answers ---- */

static ht_json *reply(serve_generation *g) {
    serve_answer *a = &g->answer[0];
    ht_json *line = line_of(g, a->text.data ? a->text.data : "", a->text.len, true), *to = carrier(g, line);
    if (a->thoughts.len) ht_json_object_set_new(to, "thinking", serve_text_json(&a->thoughts));
    ht_json *calls = ht_json_new_array();
    for (size_t i = 0; i < a->n_calls; i++)
        if (!a->call[i].cut) ht_json_array_append_new(calls, call_json(a, &a->call[i]));
    if (ht_json_array_size(calls)) ht_json_object_set(to, "tool_calls", calls);
    ht_json_decref(calls);
    set_logprobs(a, line);
    set_end(g, a, line);
    return line;
}

/* ---- streams ---- */

static void send_piece(serve_generation *g, serve_answer *a, const ht_answer_piece *p) {
    const bool text = p->part == HT_ANSWER_TEXT;
    ht_json *line = line_of(g, text ? p->text : "", text ? p->n : 0, false);
    if (p->part == HT_ANSWER_THINKING)
        ht_json_object_set_new(carrier(g, line), "thinking", ht_json_stringn(p->text, p->n));
    else
        set_logprobs(a, line);
    serve_send(g, NULL, line);
}

/* Sends a complete call; truncated calls are dropped. */
static void send_call(serve_generation *g, serve_answer *a) {
    const serve_tool_call *call = &a->call[a->n_calls - 1];
    if (call->cut) return;
    ht_json *line = line_of(g, "", 0, false);
    ht_json_object_set_new(carrier(g, line), "tool_calls", ht_json_pack("[o]", call_json(a, call)));
    serve_send(g, NULL, line);
}

static void piece(serve_generation *g, serve_answer *a, const ht_answer_piece *p) {
    switch (p->part) {
    case HT_ANSWER_TEXT:
    case HT_ANSWER_THINKING: send_piece(g, a, p); break;
    case HT_ANSWER_CALL_BEGIN:
    case HT_ANSWER_CALL_ARGUMENTS:
    case HT_ANSWER_CALL: break;
    case HT_ANSWER_CALL_END: send_call(g, a); break;
    }
}

static void answer_end(serve_generation *g, serve_answer *a) {
    ht_json *line = line_of(g, "", 0, true);
    set_logprobs(a, line);
    set_end(g, a, line);
    serve_send(g, NULL, line);
}

static void discard_extra(void *extra) { free(((serve_ollama *)extra)->prompt.id); }

const serve_dialect serve_ollama_dialect = {.extra_bytes = sizeof(serve_ollama),
                                            .discard_extra = discard_extra,
                                            .stream_type = "application/x-ndjson",
                                            .piece = piece,
                                            .answer_end = answer_end,
                                            .reply = reply};
