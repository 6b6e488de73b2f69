#include "generate/generation.h"

#include "base/clock.h"
#include "base/error.h"
#include "base/options.h"
#include "device/device.h"

#include <stdlib.h>
#include <string.h>

static const ht_generate_options defaults = {.size = sizeof defaults, .max_tokens = 256};

void ht_generate_options_init(ht_generate_options *options, size_t size) {
    ht_options_init(options, size, &defaults, sizeof defaults);
}

ht_status ht_generation_read_options(ht_generate_options *o, const ht_generate_options *options, ht_error *err) {
    return ht_options_read(o, options, &defaults, sizeof defaults, "ht_generate_options", err);
}

bool ht_generation_put_answer(const char *text, size_t n, void *user) {
    ht_generation *g = user;
    const ht_answer_state state = ht_answer_put(g->answer, text, n);
    g->no_memory = state == HT_ANSWER_NO_MEMORY;
    return state == HT_ANSWER_OPEN;
}

ht_status ht_generation_begin(ht_generation *g, ht_text_fn *fn, void *user, ht_error *err) {
    const ht_model *m = g->s->model;
    if (g->o.max_tokens < 1)
        return ht_fail(err, HT_ERR_ARGUMENT, "max_tokens is %d, expected 1 or more", (int)g->o.max_tokens);
    ht_status status = ht_text_stream_check_stops(g->o.stop, g->o.n_stop, err);
    if (status) return status;
    g->output = (ht_text_stream){.stop = g->o.stop, .n_stop = g->o.n_stop, .fn = fn, .user = user};
    status = ht_sampler_new(g->o.sampler, m->vocab, m->device->row_ops, &g->sampler, err);
    if (status || (!fn && !g->o.n_stop)) return status;
    status = ht_model_need_tokenizer(m, err);
    return status ? status : ht_decoder_new(m->tokenizer, true, &g->decoder, err);
}

void ht_generation_end(ht_generation *g) {
    ht_sampler_free(g->sampler);
    ht_decoder_free(g->decoder);
    ht_text_stream_free(&g->output);
    g->sampler = NULL;
    g->decoder = NULL;
}

/* ---- the prompt ---- */

ht_status ht_generation_check_prompt(const ht_session *s, size_t n, ht_error *err) {
    if (n == 0 && s->n_tokens == 0)
        return ht_fail(err, HT_ERR_ARGUMENT, "the prompt is empty and the session holds no tokens to continue from");
    if (n == 0 && s->n_tokens == s->model->context)
        return ht_fail(err, HT_ERR_LIMIT, "the context of %lld is full and leaves no position to go on",
                       (long long)s->model->context);
    if (s->n_tokens + (int64_t)n == s->model->context)
        return ht_fail(err, HT_ERR_LIMIT,
                       "prompt of %zu tokens fills the context of %lld and leaves no position for an answer", n,
                       (long long)s->model->context);
    return HT_OK;
}

ht_status ht_generation_set_prompt(ht_generation *g, const int32_t *ids, size_t n, ht_error *err) {
    ht_session *s = g->s;
    ht_status status = HT_OK;
    /* Without new tokens the logits after the last one are computed once more. */
    if (n == 0 && s->cache->length == s->n_tokens) status = ht_cache_truncate(s->cache, s->n_tokens - 1, err);
    g->total = s->n_tokens + (int64_t)n;
    if (!status) status = ht_session_make_room(s, g->total, err);
    if (!status && n) memcpy(s->token + s->n_tokens, ids, n * sizeof *ids);
    return status;
}

/* ---- the answer ---- */

/* Draws the token after `total` others, on a thread of the step. */
static ht_status draw(void *user, const float *logits, int64_t n_rows, ht_error *err) {
    ht_generation *g = user;
    (void)n_rows;
    const ht_status status = ht_sampler_pick(g->sampler, logits, g->s->token, g->total, &g->next, err);
    g->drawn = status == HT_OK;
    return status;
}

ht_status ht_generation_ask(ht_generation *g, ht_error *err) {
    ht_session *s = g->s;
    g->drawn = false;
    ht_status status = ht_session_prepare(s, g->total, g->prompt_only ? g->total : g->total - 1, err);
    if (status) return status;
    s->job.cancel = g->o.cancel;
    if (g->prompt_only) return HT_OK;
    s->job.top_k = ht_sampler_top_k(g->sampler, g->total);
    s->job.consume = draw;
    s->job.user = g;
    s->job.returns = true;
    return HT_OK;
}

static bool is_stop_id(const ht_generation *g, int32_t id) {
    const ht_model *m = g->s->model;
    for (int i = 0; i < m->n_stop_ids && !g->o.ignore_eos; i++)
        if (m->stop_ids[i] == id) return true;
    return false;
}

static ht_status after_output(ht_generation *g, ht_text_stream_state state, ht_error *err) {
    switch (state) {
    case HT_TEXT_STREAM_OPEN: break;
    case HT_TEXT_STREAM_STOPPED: g->metrics.finish = HT_FINISH_STOP; break;
    case HT_TEXT_STREAM_REFUSED:
        if (g->no_memory) return ht_fail_memory(err, 0, "the answer");
        g->metrics.finish = HT_FINISH_CALLBACK;
        break;
    case HT_TEXT_STREAM_NO_MEMORY: return ht_fail_memory(err, g->output.held.len, "the generated text");
    }
    return HT_OK;
}

/* A special token may be a mark in an answer; it is no text otherwise. What is held back for a stop string comes first. */
static ht_status show_special(ht_generation *g, int32_t id, ht_error *err) {
    const char *token = ht_tokenizer_piece(g->s->model->tokenizer, id);
    if (!ht_answer_wants_special(g->answer, token)) return HT_OK;
    ht_status status = after_output(g, ht_text_stream_end(&g->output), err);
    if (status || g->metrics.finish) return status;
    const ht_answer_state state = ht_answer_put_special(g->answer, token);
    g->no_memory = state == HT_ANSWER_NO_MEMORY;
    return after_output(g, state == HT_ANSWER_OPEN ? HT_TEXT_STREAM_OPEN : HT_TEXT_STREAM_REFUSED, err);
}

static ht_status show_token(ht_generation *g, int32_t id, ht_error *err) {
    /* The head may have more rows than the vocabulary has tokens; those stand for nothing. */
    const ht_tokenizer *t = g->s->model->tokenizer;
    if (!g->decoder || id >= ht_tokenizer_vocab_size(t)) return HT_OK;
    if (g->answer && ht_tokenizer_is_special(t, id)) return show_special(g, id, err);
    const char *piece;
    size_t n;
    ht_status status = ht_decoder_feed(g->decoder, id, &piece, &n, err);
    return status ? status : after_output(g, ht_text_stream_put(&g->output, piece, n), err);
}

static bool has_text(const ht_session *s) {
    int64_t i = 0;
    while (i < s->n_tokens && ht_tokenizer_is_special(s->model->tokenizer, s->token[i])) i++;
    return i < s->n_tokens;
}

/* Shows the next token; sets the finish when it is the last one. */
static ht_status take_token(ht_generation *g, ht_error *err) {
    ht_session *s = g->s;
    if (g->first_token == 0) {
        g->first_token = ht_now_seconds();
        g->metrics.prefill_seconds = g->first_token - g->begin;
        if (g->decoder && !g->new_turn && has_text(s)) ht_decoder_join(g->decoder);
    }
    if (is_stop_id(g, g->next)) {
        g->metrics.finish = HT_FINISH_STOP;
        return HT_OK;
    }
    ht_status status = ht_session_push(s, g->next, err);
    if (status) return status;
    g->total = s->n_tokens;
    g->metrics.generated_tokens++;
    status = show_token(g, g->next, err);
    const int64_t limit = g->limit ? g->limit : s->model->context;
    const bool full = g->metrics.generated_tokens >= g->o.max_tokens || s->n_tokens >= limit;
    if (status == HT_OK && !g->metrics.finish && full) g->metrics.finish = HT_FINISH_LENGTH;
    return status;
}

ht_status ht_generation_take(ht_generation *g, ht_error *err) {
    ht_session *s = g->s;
    if (s->cache->length > s->n_tokens) {
        if (g->first_token == 0) g->metrics.prompt_tokens += s->cache->length - s->n_tokens;
        s->n_tokens = s->cache->length;
    }
    if (s->job.status) {
        if (err) *err = s->job.err;
        return s->job.status;
    }
    if (g->prompt_only && s->cache->length == g->total) g->metrics.finish = HT_FINISH_LENGTH;
    return g->drawn ? take_token(g, err) : HT_OK;
}

void ht_generation_show_rest(ht_generation *g) {
    const char *piece;
    size_t n;
    if (!g->decoder) return;
    if (!g->output.closed) {
        if (ht_decoder_flush(g->decoder, &piece, &n, NULL) == HT_OK) (void)ht_text_stream_put(&g->output, piece, n);
        (void)ht_text_stream_end(&g->output);
    }
    const ht_answer_state state = g->answer ? ht_answer_end(g->answer) : HT_ANSWER_OPEN;
    if (state == HT_ANSWER_NO_MEMORY) g->no_memory = true;
    if (state == HT_ANSWER_REFUSED) g->metrics.finish = HT_FINISH_CALLBACK;
}
