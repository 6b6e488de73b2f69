/* Generation: prompt in, tokens one by one, text out. */
#include "base/error.h"
#include "base/options.h"
#include "device/device.h"
#include "generate/chat.h"
#include "generate/sampler.h"
#include "generate/session_internal.h"
#include "generate/text_stream.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>

static const ht_generate_options defaults = {.size = sizeof defaults, .max_tokens = 256};

void ht_generate_options_init(ht_generate_options *options, size_t size) {
    ht_options_init(options, size, &defaults, sizeof defaults);
}

static double now_seconds(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

/* One call in progress. */
typedef struct run {
    ht_session *s;
    ht_generate_options o;
    ht_sampler *sampler;
    ht_decoder *decoder; /* NULL: nobody wants text */
    ht_text_stream output;
    ht_answer_reader *answer; /* what reads the output, to hand it over in parts; NULL: the caller takes it as text */
    bool new_turn;            /* the text stands by itself, it does not go on with the prompt's */
    bool no_memory;           /* for the answer */
    ht_metrics metrics;
    double begin, first_token;
} run;

static bool put_answer(const char *text, size_t n, void *user) {
    run *r = user;
    const ht_answer_state state = ht_answer_put(r->answer, text, n);
    r->no_memory = state == HT_ANSWER_NO_MEMORY;
    return state == HT_ANSWER_OPEN;
}

static ht_status begin_run(run *r, ht_text_fn *fn, void *user, ht_error *err) {
    const ht_model *m = r->s->model;
    if (r->o.max_tokens < 1)
        return ht_fail(err, HT_ERR_ARGUMENT, "max_tokens is %d, expected 1 or more", (int)r->o.max_tokens);
    ht_status status = ht_text_stream_check_stops(r->o.stop, r->o.n_stop, err);
    if (status) return status;
    r->output = (ht_text_stream){.stop = r->o.stop, .n_stop = r->o.n_stop, .fn = fn, .user = user};
    status = ht_sampler_new(r->o.sampler, m->vocab, m->device->row_ops, &r->sampler, err);
    if (status || (!fn && !r->o.n_stop)) return status;
    status = ht_model_need_tokenizer(m, err);
    return status ? status : ht_decoder_new(m->tokenizer, true, &r->decoder, err);
}

static void end_run(run *r) {
    ht_sampler_free(r->sampler);
    ht_decoder_free(r->decoder);
    ht_text_stream_free(&r->output);
}

/* ---- the prompt ---- */

static ht_status check_prompt(const ht_session *s, const int32_t *prompt, size_t n, ht_error *err) {
    ht_status status = ht_session_check_ids(s, prompt, n, err);
    if (status) return status;
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

static ht_status run_prompt(run *r, const int32_t *prompt, size_t n, const float **logits, ht_error *err) {
    ht_session *s = r->s;
    /* Without new tokens the logits after the last one are computed once more. */
    ht_status status = HT_OK;
    if (n == 0 && s->cache->length == s->n_tokens) status = ht_cache_truncate(s->cache, s->n_tokens - 1, err);
    if (status == HT_OK) {
        int32_t top_k = ht_sampler_top_k(r->sampler, s->n_tokens + (int64_t)n);
        status = ht_session_run(s, prompt, n, top_k, r->o.cancel, logits, err);
    }
    r->metrics.prefill_seconds = now_seconds() - r->begin;
    if (status == HT_OK) r->metrics.prompt_tokens = (int64_t)n;
    return status;
}

/* ---- the answer ---- */

static bool is_stop_id(const run *r, int32_t id) {
    const ht_model *m = r->s->model;
    for (int i = 0; i < m->n_stop_ids && !r->o.ignore_eos; i++)
        if (m->stop_ids[i] == id) return true;
    return false;
}

static ht_status after_output(run *r, ht_text_stream_state state, ht_error *err) {
    switch (state) {
    case HT_TEXT_STREAM_OPEN: break;
    case HT_TEXT_STREAM_STOPPED: r->metrics.finish = HT_FINISH_STOP; break;
    case HT_TEXT_STREAM_REFUSED:
        if (r->no_memory) return ht_fail_memory(err, 0, "the answer");
        r->metrics.finish = HT_FINISH_CALLBACK;
        break;
    case HT_TEXT_STREAM_NO_MEMORY: return ht_fail_memory(err, r->output.held.len, "the generated text");
    }
    return HT_OK;
}

/* A special token may be a mark in an answer; it is no text otherwise. What is held back for a stop string comes first. */
static ht_status show_special(run *r, int32_t id, ht_error *err) {
    const char *token = ht_tokenizer_piece(r->s->model->tokenizer, id);
    if (!ht_answer_wants_special(r->answer, token)) return HT_OK;
    ht_status status = after_output(r, ht_text_stream_end(&r->output), err);
    if (status || r->metrics.finish) return status;
    const ht_answer_state state = ht_answer_put_special(r->answer, token);
    r->no_memory = state == HT_ANSWER_NO_MEMORY;
    return after_output(r, state == HT_ANSWER_OPEN ? HT_TEXT_STREAM_OPEN : HT_TEXT_STREAM_REFUSED, err);
}

static ht_status show_token(run *r, int32_t id, ht_error *err) {
    /* The head may have more rows than the vocabulary has tokens; those stand for nothing. */
    const ht_tokenizer *t = r->s->model->tokenizer;
    if (!r->decoder || id >= ht_tokenizer_vocab_size(t)) return HT_OK;
    if (r->answer && ht_tokenizer_is_special(t, id)) return show_special(r, id, err);
    const char *piece;
    size_t n;
    ht_status status = ht_decoder_feed(r->decoder, id, &piece, &n, err);
    return status ? status : after_output(r, ht_text_stream_put(&r->output, piece, n), err);
}

/* Picks the next token and shows it; sets the finish when it is the last one. */
static ht_status next_token(run *r, const float *logits, ht_error *err) {
    ht_session *s = r->s;
    int32_t id;
    ht_status status = ht_sampler_pick(r->sampler, logits, s->token, s->n_tokens, &id, err);
    if (status) return status;
    if (r->first_token == 0) r->first_token = now_seconds();
    if (is_stop_id(r, id)) {
        r->metrics.finish = HT_FINISH_STOP;
        return HT_OK;
    }
    status = ht_session_push(s, id, err);
    if (status) return status;
    r->metrics.generated_tokens++;
    status = show_token(r, id, err);
    bool full = r->metrics.generated_tokens >= r->o.max_tokens || s->n_tokens >= s->model->context;
    if (status == HT_OK && !r->metrics.finish && full) r->metrics.finish = HT_FINISH_LENGTH;
    return status;
}

/* What was held back is shown whatever ended the run, but for a stop string or a reader who wants no more. */
static void show_rest(run *r) {
    const char *piece;
    size_t n;
    if (!r->decoder) return;
    if (!r->output.closed) {
        if (ht_decoder_flush(r->decoder, &piece, &n, NULL) == HT_OK) (void)ht_text_stream_put(&r->output, piece, n);
        (void)ht_text_stream_end(&r->output);
    }
    const ht_answer_state state = r->answer ? ht_answer_end(r->answer) : HT_ANSWER_OPEN;
    if (state == HT_ANSWER_NO_MEMORY) r->no_memory = true;
    if (state == HT_ANSWER_REFUSED) r->metrics.finish = HT_FINISH_CALLBACK;
}

static bool has_text(const ht_session *s) {
    int64_t i = 0;
    while (i < s->n_tokens && ht_tokenizer_is_special(s->model->tokenizer, s->token[i])) i++;
    return i < s->n_tokens;
}

static ht_status generate(run *r, const int32_t *prompt, size_t n, ht_error *err) {
    const float *logits;
    ht_status status = run_prompt(r, prompt, n, &logits, err);
    if (r->decoder && !r->new_turn && has_text(r->s)) ht_decoder_join(r->decoder);
    while (status == HT_OK) {
        status = next_token(r, logits, err);
        if (status || r->metrics.finish) break;
        status = ht_session_run(r->s, NULL, 0, ht_sampler_top_k(r->sampler, r->s->n_tokens), r->o.cancel, &logits, err);
    }
    show_rest(r);
    return status || !r->no_memory ? status : ht_fail_memory(err, 0, "the answer");
}

/* Of a whole conversation, of which the session may hold the beginning. What else it holds goes now, when nothing but the
 * computation itself can end the call. */
static ht_status generate_turn(run *r, const int32_t *ids, size_t n, ht_error *err) {
    size_t kept;
    ht_session_keep_prefix(r->s, ids, n, &kept);
    r->metrics.reused_tokens = (int64_t)kept;
    ht_status status = check_prompt(r->s, ids + kept, n - kept, err);
    return status ? status : generate(r, ids + kept, n - kept, err);
}

static void report(run *r, ht_metrics *metrics) {
    if (r->first_token > 0) {
        r->metrics.first_token_seconds = r->first_token - r->begin;
        r->metrics.decode_seconds = now_seconds() - r->first_token;
    }
    r->metrics.peak_memory_bytes = ht_memory_get(r->s->model->device).peak_bytes;
    if (metrics) *metrics = r->metrics;
}

/* First of all, so that a call that was cancelled before it leaves the session as it is. */
static ht_status begin_call(run *r, const ht_generate_options *options, ht_metrics *metrics, ht_error *err) {
    r->begin = now_seconds();
    if (metrics) *metrics = (ht_metrics){0};
    ht_status status = ht_options_read(&r->o, options, &defaults, sizeof defaults, "ht_generate_options", err);
    if (status || !ht_cancel_requested(r->o.cancel)) return status;
    return ht_fail(err, HT_ERR_CANCELLED, "cancelled before the call");
}

static ht_status run_from(run *r, const int32_t *prompt, size_t n, ht_text_fn *fn, void *user, ht_metrics *metrics,
                          ht_error *err) {
    ht_status status = r->new_turn ? HT_OK : check_prompt(r->s, prompt, n, err);
    if (status == HT_OK) status = begin_run(r, fn, user, err);
    ht_admission_slot slot;
    if (status == HT_OK) status = ht_admission_enter(r->s->model->slots, r->o.cancel, &slot, err);
    if (status == HT_OK) {
        status = r->new_turn ? generate_turn(r, prompt, n, err) : generate(r, prompt, n, err);
        ht_admission_leave(&slot);
    }
    report(r, metrics);
    end_run(r);
    return status;
}

ht_status ht_generate(ht_session *s, const int32_t *prompt, size_t n_prompt, const ht_generate_options *options,
                      ht_text_fn *fn, void *user, ht_metrics *metrics, ht_error *err) {
    run r = {.s = s};
    ht_status status = begin_call(&r, options, metrics, err);
    return status ? status : run_from(&r, prompt, n_prompt, fn, user, metrics, err);
}

ht_status ht_generate_text(ht_session *s, const char *prompt, const ht_generate_options *options, ht_text_fn *fn,
                           void *user, ht_metrics *metrics, ht_error *err) {
    run r = {.s = s};
    int32_t *ids;
    size_t n;
    ht_status status = begin_call(&r, options, metrics, err);
    if (!status) status = ht_model_need_tokenizer(s->model, err);
    if (status) return status;
    status =
        ht_tokenizer_encode(s->model->tokenizer, prompt, strlen(prompt),
                            HT_ENCODE_PARSE_SPECIAL | (s->n_tokens == 0 ? HT_ENCODE_ADD_SPECIAL : 0), &ids, &n, err);
    if (status) return status;
    status = run_from(&r, ids, n, fn, user, metrics, err);
    ht_ids_free(ids);
    return status;
}

/* ---- chat ---- */

static ht_status answer(run *r, const ht_chat *chat, const char *text, size_t n_text, const ht_text_run *runs,
                        size_t n_runs, ht_answer_fn *fn, void *user, ht_metrics *metrics, ht_error *err) {
    const ht_model *m = r->s->model;
    int32_t *ids;
    size_t n;
    ht_status status = ht_chat_encode_text(m, text, n_text, runs, n_runs,
                                           r->o.parse_special ? HT_ENCODE_PARSE_SPECIAL : 0, &ids, &n, err);
    if (status) return status;
    if ((int64_t)n >= m->context) /* before what the session holds is touched */
        status = ht_fail(err, HT_ERR_LIMIT, "prompt of %zu tokens does not fit the context of %lld with an answer", n,
                         (long long)m->context);
    if (!status && fn)
        status = ht_answer_reader_new(ht_chat_template_answers(m->chat.template), chat->tools, text, n_text, fn, user,
                                      &r->answer, err);
    if (!status) status = run_from(r, ids, n, fn ? put_answer : NULL, r, metrics, err);
    ht_answer_reader_free(r->answer);
    ht_ids_free(ids);
    return status;
}

ht_status ht_generate_chat(ht_session *s, const ht_chat *chat, const ht_generate_options *options, ht_answer_fn *fn,
                           void *user, ht_metrics *metrics, ht_error *err) {
    run r = {.s = s, .new_turn = true};
    char *text;
    ht_text_run *runs;
    size_t n, n_runs;
    ht_status status = begin_call(&r, options, metrics, err);
    if (!status) status = ht_chat_write_for(s->model, chat, &text, &n, &runs, &n_runs, err);
    if (status) return status;
    status = answer(&r, chat, text, n, runs, n_runs, fn, user, metrics, err);
    free(text);
    free(runs);
    return status;
}
