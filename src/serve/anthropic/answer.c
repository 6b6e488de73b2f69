/* Answers of Anthropic's interface: messages of blocks, and the events by which they come. */
#include "serve/anthropic/anthropic.h"
#include "serve/messages.h"

#include <string.h>

/* What the block is that is open in a stream: serve_answer.block. */
enum { NO_BLOCK, TEXT_BLOCK, THINKING_BLOCK, TOOL_BLOCK };

static bool hides_thoughts(const serve_generation *g) {
    const serve_anthropic_answer *answer = g->extra;
    return answer->hides_thoughts;
}

/* Thoughts are signed so that clients send them back as they were, which nobody checks here; those that are not shown come back in it. */
static ht_json *signature(const serve_generation *g, const ht_text *thoughts) {
    char text[SERVE_ID];
    if (hides_thoughts(g)) return serve_seal_thoughts(thoughts);
    serve_new_id("sig_", text);
    return ht_json_string(text);
}

/* ---- the end of an answer ---- */

static const char *stop_text(const serve_generation *g, const serve_answer *a) {
    const bool stopped = a->metrics.finish == HT_FINISH_STOP && !a->n_calls;
    return stopped && a->metrics.stop >= 0 && a->metrics.stop < g->how.n_stop ? g->how.stop[a->metrics.stop] : NULL;
}

static const char *stop_reason(const serve_generation *g, const serve_answer *a) {
    if (a->metrics.finish == HT_FINISH_LENGTH) return "max_tokens";
    return a->n_calls ? "tool_use" : stop_text(g, a) ? "stop_sequence" : "end_turn";
}

static ht_json *usage_json(serve_usage u) {
    ht_json *json =
        ht_json_pack("{sI sI sI sI}", "input_tokens", (int64_t)(u.prompt - u.cached), "cache_creation_input_tokens",
                     (int64_t)0, "cache_read_input_tokens", (int64_t)u.cached, "output_tokens", (int64_t)u.generated);
    if (u.thoughts)
        ht_json_object_set_new(json, "output_tokens_details",
                               ht_json_pack("{sI}", "thinking_tokens", (int64_t)u.thoughts));
    return json;
}

/* ---- whole answers ---- */

static ht_json *blocks_json(const serve_generation *g, const serve_answer *a) {
    ht_json *blocks = ht_json_new_array();
    if (a->thoughts.len)
        ht_json_array_append_new(blocks,
                                 ht_json_pack("{ss so so}", "type", "thinking", "thinking",
                                              hides_thoughts(g) ? ht_json_string("") : serve_text_json(&a->thoughts),
                                              "signature", signature(g, &a->thoughts)));
    if (a->text.len)
        ht_json_array_append_new(blocks, ht_json_pack("{ss so}", "type", "text", "text", serve_text_json(&a->text)));
    for (size_t i = 0; i < a->n_calls; i++)
        ht_json_array_append_new(blocks,
                                 ht_json_pack("{ss ss ss so}", "type", "tool_use", "id", a->call[i].id, "name",
                                              a->call[i].name, "input", serve_tool_call_arguments(&a->call[i])));
    return blocks;
}

/* A message; blocks and usage are taken. */
static ht_json *message_json(const serve_generation *g, ht_json *blocks, const char *reason, const char *sequence,
                             ht_json *usage) {
    return ht_json_pack("{ss ss ss ss so ss? ss? so}", "id", g->id, "type", "message", "role", "assistant", "model",
                        g->c->lease.name, "content", blocks, "stop_reason", reason, "stop_sequence", sequence, "usage",
                        usage);
}

static ht_json *reply(serve_generation *g) {
    const serve_answer *a = &g->answer[0];
    return message_json(g, blocks_json(g, a), stop_reason(g, a), stop_text(g, a), usage_json(serve_answer_usage(a)));
}

/* ---- streams ---- */

#define PING "ping"
static void begin(serve_generation *g) {
    /* What the cache has of the prompt is known when it is computed: the end tells. */
    ht_json *usage = usage_json((serve_usage){.prompt = serve_prompt_tokens(g)});
    serve_send_event(g, "message_start",
                     ht_json_pack("{ss so}", "type", "message_start", "message",
                                  message_json(g, ht_json_new_array(), NULL, NULL, usage)));
}

static void send_delta(serve_generation *g, const serve_answer *a, const char *type, const char *name, ht_json *value) {
    serve_send_event(g, "content_block_delta",
                     ht_json_pack("{ss si s{ss so}}", "type", "content_block_delta", "index", a->n_blocks - 1, "delta",
                                  "type", type, name, value));
}

static void close_block(serve_generation *g, serve_answer *a) {
    if (a->block == NO_BLOCK) return;
    serve_anthropic_answer *answer = g->extra;
    if (a->block == THINKING_BLOCK) send_delta(g, a, "signature_delta", "signature", signature(g, &answer->hidden));
    ht_text_clear(&answer->hidden);
    a->block = NO_BLOCK;
    serve_send_event(g, "content_block_stop",
                     ht_json_pack("{ss si}", "type", "content_block_stop", "index", a->n_blocks - 1));
}

/* Opens a block, which is taken. */
static void open_block(serve_generation *g, serve_answer *a, int kind, ht_json *block) {
    close_block(g, a);
    a->block = kind;
    serve_send_event(
        g, "content_block_start",
        ht_json_pack("{ss si so}", "type", "content_block_start", "index", a->n_blocks++, "content_block", block));
}

static void piece(serve_generation *g, serve_answer *a, const ht_answer_piece *p) {
    serve_anthropic_answer *answer = g->extra;
    const serve_tool_call *call = a->n_calls ? &a->call[a->n_calls - 1] : NULL;
    switch (p->part) {
    case HT_ANSWER_TEXT:
        if (a->block != TEXT_BLOCK) open_block(g, a, TEXT_BLOCK, ht_json_pack("{ss ss}", "type", "text", "text", ""));
        send_delta(g, a, "text_delta", "text", ht_json_stringn(p->text, p->n));
        break;
    case HT_ANSWER_THINKING:
        if (a->block != THINKING_BLOCK)
            open_block(g, a, THINKING_BLOCK,
                       ht_json_pack("{ss ss ss}", "type", "thinking", "thinking", "", "signature", ""));
        if (!answer->hides_thoughts)
            send_delta(g, a, "thinking_delta", "thinking", ht_json_stringn(p->text, p->n));
        else
            ht_text_append(&answer->hidden, p->text, p->n);
        break;
    case HT_ANSWER_CALL_BEGIN:
        open_block(g, a, TOOL_BLOCK,
                   ht_json_pack("{ss ss ss s{}}", "type", "tool_use", "id", call->id, "name", call->name, "input"));
        break;
    case HT_ANSWER_CALL_ARGUMENTS:
        send_delta(g, a, "input_json_delta", "partial_json", ht_json_stringn(p->text, p->n));
        break;
    case HT_ANSWER_CALL: break;
    case HT_ANSWER_CALL_END: close_block(g, a); break;
    }
}

static void answer_end(serve_generation *g, serve_answer *a) {
    close_block(g, a);
    serve_send_event(g, "message_delta",
                     ht_json_pack("{ss s{ss ss?} so}", "type", "message_delta", "delta", "stop_reason",
                                  stop_reason(g, a), "stop_sequence", stop_text(g, a), "usage",
                                  usage_json(serve_answer_usage(a))));
}

static void end(serve_generation *g) {
    serve_send_event(g, "message_stop", ht_json_pack("{ss}", "type", "message_stop"));
}

static void fail(serve_generation *g, const serve_failure *f) {
    serve_send_event(g, "error", serve_failure_json(f, SERVE_ANTHROPIC, http_exchange_id(g->c->x)));
}

const serve_dialect serve_anthropic_dialect = {.alive = "event: " PING "\ndata: {\"type\": \"" PING "\"}\n\n",
                                               .call_prefix = "toolu_",
                                               .begin = begin,
                                               .piece = piece,
                                               .answer_end = answer_end,
                                               .end = end,
                                               .fail = fail,
                                               .reply = reply};
