/* Perplexity and KL divergence of a text. Both models run window by window, so few rows of logits are in memory. */
#include "analysis/kl_divergence.h"
#include "analysis/window.h"
#include "base/checked.h"
#include "base/error.h"
#include "base/options.h"
#include "base/plural.h"
#include "device/device.h"
#include "generate/session_internal.h"
#include "models/model.h"

#include <hearth/evaluate.h>
#include <hearth/session.h>

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { DEFAULT_WINDOW = 512, KEEP_BYTES = 16 << 20 };

static const ht_evaluate_options defaults = {.size = sizeof defaults};

void ht_evaluate_options_init(ht_evaluate_options *options, size_t size) {
    ht_options_init(options, size, &defaults, sizeof defaults);
}

static const double percents[] = {50, 90, 95, 99, 99.9};
enum { N_PERCENTS = sizeof percents / sizeof *percents };

/* The public struct with storage for its percentiles. */
typedef struct result {
    ht_evaluation public;
    ht_percentile percentiles[N_PERCENTS];
} result;

void ht_evaluation_free(ht_evaluation *e) { free(e); } /* `public` is first in its result */

/* Scores of one evaluated token. */
typedef struct score {
    double nll, reference_nll, kl;
    bool same_top;
} score;

typedef struct evaluation {
    ht_model *model, *reference;
    ht_evaluate_options o;
    ht_session *session, *reference_session;
    const int32_t *ids; /* of the whole text */
    int64_t n, window;
    int32_t bos;           /* prepended to each window; -1: none */
    int32_t *input;        /* [window] current window with its BOS */
    float *reference_rows; /* [rows_kept, vocab] logits of the reference for the current rows */
    int64_t rows_kept, first_kept;
    score *score; /* [n] of the evaluated tokens, in order */
    int64_t n_scored, n_windows, done;
    bool bad; /* found logits that are NaN */
} evaluation;

/* ---- rows ---- */

/* Rows of logits to score on all threads of the device. */
typedef struct rows_job {
    const evaluation *e;
    const float *rows, *reference; /* the latter may be NULL */
    const int32_t *target;         /* [n] the next tokens */
    score *out;
} rows_job;

static void score_rows(void *arg, int64_t begin, int64_t end, int worker) {
    (void)worker;
    const rows_job *job = arg;
    int32_t vocab = job->e->model->vocab;
    const ht_row_ops *ops = job->e->model->device->row_ops;
    for (int64_t r = begin; r < end; r++) {
        const float *q = job->rows + r * vocab;
        ht_row_summary sq = ht_row_summarise(ops, q, vocab);
        score *s = &job->out[r];
        *s = (score){.nll = ht_row_nll(q, &sq, job->target[r])};
        if (!job->reference) continue;
        const float *p = job->reference + r * vocab;
        ht_row_summary sp = ht_row_summarise(ops, p, vocab);
        s->reference_nll = ht_row_nll(p, &sp, job->target[r]);
        s->kl = ht_row_kl(ops, p, &sp, q, &sq, vocab);
        s->same_top = sp.top == sq.top;
    }
}

static bool keep_rows(const float *logits, int64_t first, int64_t n_rows, int32_t vocab, void *user) {
    evaluation *e = user;
    memcpy(e->reference_rows + (first - e->first_kept) * vocab, logits,
           (size_t)n_rows * (size_t)vocab * sizeof *logits);
    return true;
}

static bool take_rows(const float *logits, int64_t first, int64_t n_rows, int32_t vocab, void *user) {
    evaluation *e = user;
    rows_job job = {.e = e, .rows = logits, .target = e->input + first + 1, .out = e->score + e->n_scored};
    if (e->reference) job.reference = e->reference_rows + (first - e->first_kept) * vocab;
    ht_device *d = e->model->device;
    d->run_on_host(d, n_rows, 1, score_rows, &job);
    for (int64_t i = 0; i < n_rows; i++)
        e->bad = e->bad || !isfinite(job.out[i].nll) || !isfinite(job.out[i].reference_nll) || !isfinite(job.out[i].kl);
    e->n_scored += n_rows;
    if (!e->bad && e->o.progress) e->o.progress((double)(e->done + first + 1) / (double)e->n, e->o.user);
    return !e->bad;
}

/* ---- windows ---- */

static ht_status run_rows(evaluation *e, int64_t at, int64_t n, ht_error *err) {
    e->first_kept = at;
    ht_status status = HT_OK;
    ht_forward_options all;
    ht_forward_options_init(&all, sizeof all);
    all.all_rows = true;
    all.cancel = e->o.cancel;
    if (e->reference)
        status = ht_session_forward(e->reference_session, e->input + at, (size_t)n, &all, keep_rows, e, err);
    if (!status) status = ht_session_forward(e->session, e->input + at, (size_t)n, &all, take_rows, e, err);
    if (!e->bad) return status;
    return ht_fail(err, HT_ERR_FORMAT, "token %lld of the text: the logits before it are not finite numbers",
                   (long long)e->n_scored);
}

/* The last token of a window is predicted but not read. */
static ht_status run_window(evaluation *e, int64_t n_input, ht_error *err) {
    ht_session_reset(e->session);
    ht_session_announce(e->session, n_input - 1);
    if (e->reference) {
        ht_session_reset(e->reference_session);
        ht_session_announce(e->reference_session, n_input - 1);
    }
    ht_status status = HT_OK;
    for (int64_t at = 0; at < n_input - 1 && !status; at += e->rows_kept)
        status = run_rows(e, at, ht_min_i64(e->rows_kept, n_input - 1 - at), err);
    e->n_windows++;
    return status;
}

static ht_status run_windows(evaluation *e, ht_error *err) {
    ht_status status = HT_OK;
    int64_t begin = e->bos >= 0, step = e->window - begin;
    for (e->done = 0; e->done < e->n && !status; e->done += step) {
        int64_t n = ht_min_i64(step, e->n - e->done);
        if (begin) e->input[0] = e->bos;
        memcpy(e->input + begin, e->ids + e->done, (size_t)n * sizeof *e->ids);
        if (begin + n > 1) status = run_window(e, begin + n, err);
    }
    return status;
}

/* ---- before and after ---- */

static ht_status check(evaluation *e, ht_error *err) {
    if (e->o.window < 0 || e->o.window == 1)
        return ht_fail(err, HT_ERR_ARGUMENT, "a window of %d tokens, expected 2 or more", (int)e->o.window);
    int64_t context = e->model->context;
    if (e->reference) context = ht_min_i64(context, e->reference->context);
    e->window = e->o.window ? e->o.window : ht_min_i64(DEFAULT_WINDOW, context);
    if (e->window > context)
        return ht_fail(err, HT_ERR_LIMIT, "a window of %lld token%s is longer than the context of %lld",
                       (long long)e->window, ht_plural(e->window), (long long)context);
    if (e->n + (e->bos >= 0) < 2 || e->window < 2)
        return ht_fail(err, HT_ERR_ARGUMENT, "%lld token%s in windows of %lld: there is nothing to predict",
                       (long long)e->n, ht_plural(e->n), (long long)e->window);
    return ht_model_check_ids(e->model, e->ids, (size_t)e->n, err);
}

/* Divergence is only meaningful between distributions over the same tokens. */
static ht_status check_reference(const evaluation *e, ht_error *err) {
    const ht_model *m = e->model, *r = e->reference;
    if (!r) return HT_OK;
    if (m->vocab != r->vocab)
        return ht_fail(err, HT_ERR_ARGUMENT, "the models have vocabularies of %d and %d: they cannot be compared",
                       (int)m->vocab, (int)r->vocab);
    for (int64_t i = 0; i < e->n && m->tokenizer && r->tokenizer; i++) {
        const char *a = ht_tokenizer_piece(m->tokenizer, e->ids[i]), *b = ht_tokenizer_piece(r->tokenizer, e->ids[i]);
        if ((a || b) && (!a || !b || strcmp(a, b) != 0))
            return ht_fail(err, HT_ERR_ARGUMENT,
                           "token %d is \"%s\" to one model and \"%s\" to the other: they cannot be compared",
                           (int)e->ids[i], a ? a : "", b ? b : "");
    }
    return HT_OK;
}

static ht_status set_adapters(const evaluation *e, ht_session *s, ht_error *err) {
    return ht_session_set_adapters(s, e->o.adapters, e->o.adapter_scales, e->o.n_adapters, err);
}

static ht_status prepare(evaluation *e, ht_error *err) {
    size_t row_bytes = (size_t)e->model->vocab * sizeof(float), kept_bytes;
    e->rows_kept = ht_max_i64(1, ht_min_i64(e->window, (int64_t)(KEEP_BYTES / row_bytes)));
    if (!ht_mul_size((size_t)e->rows_kept, row_bytes, &kept_bytes))
        return ht_fail(err, HT_ERR_LIMIT, "a vocabulary of %d is too large", (int)e->model->vocab);
    e->input = calloc((size_t)e->window, sizeof *e->input);
    e->score = calloc((size_t)e->n, sizeof *e->score);
    if (e->reference) e->reference_rows = malloc(kept_bytes);
    if (!e->input || !e->score || (e->reference && !e->reference_rows))
        return ht_fail_memory(err, kept_bytes + (size_t)e->n * sizeof *e->score, "an evaluation");
    ht_status status = ht_session_new(e->model, NULL, &e->session, err);
    if (!status && e->reference) status = ht_session_new(e->reference, NULL, &e->reference_session, err);
    if (!status) status = set_adapters(e, e->session, err);
    if (!status && e->reference && e->o.adapted_reference) status = set_adapters(e, e->reference_session, err);
    return status;
}

static void finish(evaluation *e) {
    ht_session_free(e->session);
    ht_session_free(e->reference_session);
    free(e->input);
    free(e->score);
    free(e->reference_rows);
}

/* ---- statistics ---- */

typedef struct mean {
    double value, error;
} mean;

static mean mean_of(const score *s, int64_t n, size_t field) {
    double sum = 0, squares = 0;
    for (int64_t i = 0; i < n; i++) sum += *(const double *)(const void *)((const char *)&s[i] + field);
    mean m = {.value = sum / (double)n};
    for (int64_t i = 0; i < n; i++) {
        double off = *(const double *)(const void *)((const char *)&s[i] + field) - m.value;
        squares += off * off;
    }
    if (n > 1) m.error = sqrt(squares / (double)(n - 1) / (double)n);
    return m;
}

static int by_divergence(const void *a, const void *b) {
    double x = ((const score *)a)->kl, y = ((const score *)b)->kl;
    return (x > y) - (x < y);
}

static void compare(evaluation *e, result *r) {
    ht_evaluation *out = &r->public;
    int64_t n = e->n_scored, same = 0;
    mean nll = mean_of(e->score, n, offsetof(score, reference_nll)), kl = mean_of(e->score, n, offsetof(score, kl));
    for (int64_t i = 0; i < n; i++) same += e->score[i].same_top;
    out->reference_perplexity = exp(nll.value);
    out->reference_perplexity_error = out->reference_perplexity * nll.error;
    out->kl_mean = kl.value;
    out->kl_error = kl.error;
    out->same_top = (double)same / (double)n;
    if (n > 1) out->same_top_error = sqrt(out->same_top * (1 - out->same_top) / (double)(n - 1));
    qsort(e->score, (size_t)n, sizeof *e->score, by_divergence);
    out->kl_max = e->score[n - 1].kl;
    /* Nearest-rank percentiles. */
    for (int i = 0; i < N_PERCENTS; i++) {
        int64_t rank = (int64_t)ceil(percents[i] / 100 * (double)n);
        r->percentiles[i] = (ht_percentile){percents[i], e->score[ht_max_i64(rank, 1) - 1].kl};
    }
    out->kl_percentiles = r->percentiles;
    out->n_kl_percentiles = N_PERCENTS;
}

static ht_status sum_up(evaluation *e, ht_evaluation **out, ht_error *err) {
    result *r = calloc(1, sizeof *r);
    if (!r) return ht_fail_memory(err, sizeof *r, "an evaluation");
    mean nll = mean_of(e->score, e->n_scored, offsetof(score, nll));
    r->public = (ht_evaluation){.n_tokens = e->n,
                                .n_windows = e->n_windows,
                                .n_scored = e->n_scored,
                                .window = (int32_t)e->window,
                                .mean_nll = nll.value,
                                .perplexity = exp(nll.value),
                                .perplexity_error = exp(nll.value) * nll.error};
    if (e->reference) compare(e, r);
    *out = &r->public;
    return HT_OK;
}

static ht_status evaluate(ht_model *m, const int32_t *ids, size_t n, int32_t bos, const ht_evaluate_options *options,
                          ht_evaluation **out, ht_error *err) {
    evaluation e = {.model = m, .ids = ids, .n = (int64_t)n, .bos = bos};
    *out = NULL;
    ht_status status = ht_options_read(&e.o, options, &defaults, sizeof defaults, "ht_evaluate_options", err);
    e.reference = e.o.reference;
    if (!status) status = check(&e, err);
    if (!status) status = check_reference(&e, err);
    if (!status) status = prepare(&e, err);
    if (!status) status = run_windows(&e, err);
    if (!status) status = sum_up(&e, out, err);
    finish(&e);
    return status;
}

ht_status ht_evaluate_ids(ht_model *m, const int32_t *ids, size_t n, const ht_evaluate_options *options,
                          ht_evaluation **out, ht_error *err) {
    return evaluate(m, ids, n, -1, options, out, err);
}

ht_status ht_evaluate_text(ht_model *m, const char *text, size_t n, const ht_evaluate_options *options,
                           ht_evaluation **out, ht_error *err) {
    ht_window_text t;
    *out = NULL;
    ht_status status = ht_window_text_encode(m, text, n, &t, err);
    if (!status) status = evaluate(m, t.ids, t.n, t.bos, options, out, err);
    ht_window_text_free(&t);
    return status;
}

enum { BLOCK = 1024 }; /* logits per block; their weights fit in the L1 cache */

ht_row_summary ht_row_summarise(const ht_row_ops *ops, const float *x, int32_t vocab) {
    ht_row_summary s = {.max = x[0]};
    for (int32_t i = 1; i < vocab; i++)
        if (x[i] > s.max) {
            s.max = x[i];
            s.top = i;
        }
    float w[BLOCK];
    for (int32_t at = 0; at < vocab; at += BLOCK) {
        int64_t n = ht_min_i64(BLOCK, vocab - at);
        ops->weights(x + at, n, s.max, 1, w);
        for (int64_t i = 0; i < n; i++) s.sum += (double)w[i];
    }
    return s;
}

double ht_row_nll(const float *x, const ht_row_summary *s, int32_t id) {
    return log(s->sum) + (double)s->max - (double)x[id];
}

/* p t + q - p = p (t + e^-t - 1); for small t by its series, as the difference would cancel. */
static double term(double p, double q, double t) {
    if (fabs(t) > 0.1) return p * t + q - p;
    return p * t * t * (1.0 / 2 - t * (1.0 / 6 - t * (1.0 / 24 - t * (1.0 / 120 - t * (1.0 / 720)))));
}

double ht_row_kl(const ht_row_ops *ops, const float *x, const ht_row_summary *sx, const float *y,
                 const ht_row_summary *sy, int32_t vocab) {
    float p[BLOCK], q[BLOCK];
    double total = 0, of_p = 1 / sx->sum, of_q = 1 / sy->sum;
    double shift = (double)sy->max - (double)sx->max + log(sy->sum) - log(sx->sum);
    for (int32_t at = 0; at < vocab; at += BLOCK) {
        int64_t n = ht_min_i64(BLOCK, vocab - at);
        ops->weights(x + at, n, sx->max, 1, p);
        ops->weights(y + at, n, sy->max, 1, q);
        for (int64_t i = 0; i < n; i++)
            total += term(p[i] * of_p, q[i] * of_q, (double)x[at + i] - (double)y[at + i] + shift);
    }
    return total < 0 ? 0 : total; /* rounding can make the sum negative */
}
