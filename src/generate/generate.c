/* Generation on the caller's thread: prompt in, tokens one by one, text out. */
#include "base/clock.h"
#include "base/error.h"
#include "base/plural.h"
#include "chat/conversation.h"
#include "device/device.h"
#include "generate/generation.h"

#include <stdlib.h>
#include <string.h>

/* Checks that n more tokens fit the session and leave a position for an answer. */
static ht_status check_prompt(const ht_session *s, size_t n, ht_error *err) {
    if (n == 0 && s->n_tokens == 0)
        return ht_fail(err, HT_ERR_ARGUMENT, "the prompt is empty and the session holds no tokens to continue from");
    if (n == 0 && s->n_tokens == s->model->context)
        return ht_fail(err, HT_ERR_LIMIT, "the context of %lld is full and leaves no position to go on",
                       (long long)s->model->context);
    if (s->n_tokens + (int64_t)n == s->model->context)
        return ht_fail(err, HT_ERR_LIMIT,
                       "prompt of %zu token%s fills the context of %lld and leaves no position for an answer", n,
                       ht_plural(n), (long long)s->model->context);
    return HT_OK;
}

/* Puts the ids behind the session's tokens, to be computed. */
static ht_status set_prompt(ht_generation *g, const int32_t *ids, size_t n, ht_error *err) {
    ht_session *s = g->s;
    ht_status status = HT_OK;
    /* Without new tokens the logits after the last one are computed once more. */
    if (n == 0 && s->cache->length == s->n_tokens) status = ht_cache_truncate(s->cache, s->n_tokens - 1, err);
    g->total = s->n_tokens + (int64_t)n;
    if (!status) status = ht_session_make_room(s, g->total, err);
    if (!status && n) memcpy(s->token + s->n_tokens, ids, n * sizeof *ids);
    return status;
}

static ht_status generate(ht_generation *g, const int32_t *prompt, size_t n, ht_error *err) {
    ht_status status = set_prompt(g, prompt, n, err);
    while (!status && !g->metrics.finish) {
        status = ht_generation_guess(g, err);
        if (!status) status = ht_generation_ask(g, err);
        if (status) break;
        (void)ht_session_run(g->s, NULL);
        status = ht_generation_take(g, err);
    }
    ht_scheduler_leave(g->s->model->scheduler, &g->s->job);
    const ht_status rest = ht_token_output_end(&g->output, &g->metrics.finish, status ? NULL : err);
    return status ? status : rest;
}

/* Of a whole conversation, of which the session may hold the beginning. What else it holds goes now, when nothing but the
 * computation itself can end the call. */
static ht_status generate_turn(ht_generation *g, const int32_t *ids, size_t n, ht_error *err) {
    size_t kept;
    ht_session_keep_prefix(g->s, ids, n, &kept);
    g->metrics.reused_tokens = (int64_t)kept;
    ht_status status = ht_session_check_ids(g->s, ids + kept, n - kept, err);
    if (!status) status = check_prompt(g->s, n - kept, err);
    return status ? status : generate(g, ids + kept, n - kept, err);
}

static void report(ht_generation *g, ht_metrics *metrics) {
    if (g->first_token > 0) {
        g->metrics.first_token_seconds = g->first_token - g->begin;
        g->metrics.decode_seconds = ht_now_seconds() - g->first_token;
    }
    g->metrics.peak_memory_bytes = ht_memory_get(g->s->model->device).peak_bytes;
    if (metrics) *metrics = g->metrics;
}

/* First of all, so that a call that was cancelled before it leaves the session as it is. */
static ht_status begin_call(ht_generation *g, const ht_generate_options *options, ht_metrics *metrics, ht_error *err) {
    g->begin = ht_now_seconds();
    g->metrics = ht_metrics_none();
    if (metrics) *metrics = g->metrics;
    ht_status status = ht_generation_read_options(&g->o, options, err);
    if (status || !ht_cancel_requested(g->o.cancel)) return status;
    return ht_fail(err, HT_ERR_CANCELLED, "cancelled before the call");
}

/* A step counts the tokens of the prompt, too. */
static void fail_cancelled(int64_t generated, ht_error *err) {
    ht_fail(err, HT_ERR_CANCELLED, "cancelled after %lld generated token%s", (long long)generated,
            ht_plural(generated));
}

static ht_status run_from(ht_generation *g, const int32_t *prompt, size_t n, ht_text_fn *fn, void *user,
                          ht_metrics *metrics, ht_error *err) {
    ht_status status = HT_OK;
    if (!g->new_turn) status = ht_session_check_ids(g->s, prompt, n, err);
    if (!g->new_turn && !status) status = check_prompt(g->s, n, err);
    if (!status) status = ht_generation_begin(g, fn, user, err);
    if (!status) status = g->new_turn ? generate_turn(g, prompt, n, err) : generate(g, prompt, n, err);
    if (status == HT_ERR_CANCELLED) fail_cancelled(g->metrics.generated_tokens, err);
    ht_metrics_end(&g->metrics, status);
    report(g, metrics);
    ht_generation_end(g);
    return status;
}

ht_status ht_generate(ht_session *s, const int32_t *prompt, size_t n_prompt, const ht_generate_options *options,
                      ht_text_fn *fn, void *user, ht_metrics *metrics, ht_error *err) {
    ht_generation g = {.s = s, .ahead = &s->masks_ahead};
    ht_status status = begin_call(&g, options, metrics, err);
    return status ? status : run_from(&g, prompt, n_prompt, fn, user, metrics, err);
}

ht_status ht_generate_text(ht_session *s, const char *prompt, const ht_generate_options *options, ht_text_fn *fn,
                           void *user, ht_metrics *metrics, ht_error *err) {
    ht_generation g = {.s = s, .ahead = &s->masks_ahead};
    int32_t *ids;
    size_t n;
    ht_status status = begin_call(&g, options, metrics, err);
    if (!status) status = ht_model_need_tokenizer(s->model, err);
    if (status) return status;
    status =
        ht_tokenizer_encode(s->model->tokenizer, prompt, strlen(prompt),
                            HT_ENCODE_PARSE_SPECIAL | (s->n_tokens == 0 ? HT_ENCODE_ADD_SPECIAL : 0), &ids, &n, err);
    if (status) return status;
    status = run_from(&g, ids, n, fn, user, metrics, err);
    ht_ids_free(ids);
    return status;
}

/* ---- chat ---- */

ht_status ht_generate_chat(ht_session *s, const ht_chat *chat, const ht_generate_options *options, ht_answer_fn *fn,
                           void *user, ht_metrics *metrics, ht_error *err) {
    ht_generation g = {.s = s, .ahead = &s->masks_ahead, .chat = chat, .new_turn = true};
    ht_model *m = s->model;
    char *text = NULL;
    ht_text_run *runs = NULL;
    int32_t *ids = NULL;
    size_t n_text = 0, n_runs = 0, n = 0;
    ht_status status = begin_call(&g, options, metrics, err);
    if (!status) status = ht_chat_write_for(m, chat, &text, &n_text, &runs, &n_runs, err);
    if (!status)
        status = ht_chat_encode_text(m, text, n_text, runs, n_runs, g.o.parse_special ? HT_ENCODE_PARSE_SPECIAL : 0,
                                     &ids, &n, err);
    if (!status && (int64_t)n >= m->context) /* before what the session holds is touched */
        status = ht_fail(err, HT_ERR_LIMIT, "prompt of %zu token%s does not fit the context of %lld with an answer", n,
                         ht_plural(n), (long long)m->context);
    if (!status) status = ht_constraint_of_chat(m, chat, &g.o, text, n_text, &g.constraint, err);
    if (!status && fn)
        status = ht_response_reader_new(ht_chat_template_of(&m->chat, chat), chat->tools, text, n_text, fn, user,
                                        &g.answer, err);
    ht_constraint constraint = g.constraint;
    if (g.answer) ht_response_reader_set_call_pieces(g.answer, g.o.call_pieces);
    if (!status) status = run_from(&g, ids, n, NULL, NULL, metrics, err);
    ht_constraint_free(&constraint);
    ht_response_reader_free(g.answer);
    ht_ids_free(ids);
    free(text);
    free(runs);
    return status;
}
