/* Scoring of many prompts, for scores and classification: log-probabilities of continuations, and the likeliest
 * token. Requests are computed together in windows (prefill.h), and delivered in order. */
#include "base/checked.h"
#include "base/error.h"
#include "base/grow.h"
#include "base/options.h"
#include "base/plural.h"
#include "device/device.h"
#include "generate/logits_row.h"
#include "generate/prefill.h"
#include "generate/prompt_ids.h"
#include "models/model.h"

#include <hearth/classify.h>
#include <hearth/score.h>

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* Result of a request. */
typedef struct scored {
    size_t index;
    ht_status status;
    char *message; /* NULL for HT_OK */
    ht_prompt_ids ids;
    int64_t computed; /* positions, without those shared with an earlier request */
    /* With `likeliest`. */
    int32_t token;
    double log_probability;
    float *logits; /* [vocab]; NULL unless asked for */

    ht_continuation_score *continuations; /* [ids.n_joined]; what they point to lies in the next two */
    ht_token_score *tokens;
    ht_token_probability *tops;
    int32_t first_sequence, n_sequences; /* in the present prefill */
} scored;

typedef struct scoring {
    ht_model *model;
    size_t n;
    ht_prefill_options prefill;
    bool likeliest, logits; /* the token after the prompt; and all logits there */
    int32_t top_k;          /* likeliest tokens to report at each token of a continuation */
    const ht_cancel *cancel;
    /* Fills request i into a zeroed struct; a failure is the request's. */
    ht_status (*next)(void *user, size_t i, ht_score_request *request, ht_error *err);
    /* Takes a result, in order of requests; lent. Returns false to stop. */
    bool (*take)(void *user, const scored *result);
    void *user;
    void (*progress)(double done, void *user); /* NULL: none */
    void *progress_user;
} scoring;

/* Limits of a window: some dozen steps, so that the last one, which is not full, is a small part. */
enum { WINDOW_TOKENS = 16384, WINDOW_REQUESTS = 1024, WINDOW_BYTES = 64 << 20 };

/* Request and continuation of a prefill sequence, and its first bad logit. */
typedef struct sequence_of {
    int32_t request;      /* in the window */
    int32_t continuation; /* -1: the prompt alone, for the likeliest token */
    bool bad;             /* a logit is not finite: */
    int32_t bad_token;
    float bad_logit;
    int64_t bad_position;
} sequence_of;

/* Requests that are computed together. */
typedef struct window {
    const scoring *s;
    ht_prefill *prefill;
    scored *request; /* [n], of WINDOW_REQUESTS */
    int32_t n;
    int32_t handed_over;
    bool stopped; /* `take` returned false */
    ht_prefill_sequence *sequence;
    sequence_of *of;
    int32_t n_sequences;
    size_t bytes;
    int64_t tokens;
} window;

/* ---- one request ---- */

static void clear(scored *r) {
    ht_prompt_ids_free(&r->ids);
    free(r->message);
    free(r->logits);
    free(r->continuations);
    free(r->tokens);
    free(r->tops);
    *r = (scored){0};
}

static void fail(scored *r, ht_status status, const ht_error *err) {
    if (r->status) return;
    r->status = status;
    r->message = strdup(err->message);
}

/* Tokens of all continuations. */
static size_t count_tokens(const scored *r) {
    size_t n = 0;
    for (size_t i = 0; i < r->ids.n_joined; i++) n += r->ids.joined[i].n - (size_t)r->ids.shared;
    return n;
}

static ht_status make_results(const window *w, scored *r, ht_error *err) {
    const size_t n = r->ids.n_joined, tokens = count_tokens(r), vocab = (size_t)w->s->model->vocab;
    size_t tops;
    if (!ht_mul_size(tokens, (size_t)w->s->top_k, &tops)) return ht_fail_memory(err, SIZE_MAX, "scores");
    r->continuations = calloc(n + 1, sizeof *r->continuations);
    r->tokens = calloc(tokens + 1, sizeof *r->tokens);
    r->tops = calloc(tops + 1, sizeof *r->tops);
    if (w->s->logits) r->logits = calloc(vocab, sizeof *r->logits);
    if (!r->continuations || !r->tokens || !r->tops || (w->s->logits && !r->logits))
        return ht_fail_memory(err, tokens * sizeof *r->tokens + tops * sizeof *r->tops, "scores");
    size_t at = 0;
    for (size_t i = 0; i < n; i++) {
        const size_t own = r->ids.joined[i].n - (size_t)r->ids.shared;
        r->continuations[i] = (ht_continuation_score){.tokens = r->tokens + at, .n_tokens = (int64_t)own};
        for (size_t t = 0; t < own; t++, at++)
            if (tops) r->tokens[at].top = r->tops + at * (size_t)w->s->top_k;
    }
    return HT_OK;
}

/* ---- filling a window ---- */

static ht_status add_sequence(window *w, const ht_prefill_sequence *sequence, int32_t continuation, ht_error *err) {
    if (!HT_GROW_ONE(w->sequence, w->n_sequences) || !HT_GROW_ONE(w->of, w->n_sequences))
        return ht_fail_memory(err, (size_t)w->n_sequences * (sizeof *w->of + sizeof *w->sequence), "prompts");
    w->sequence[w->n_sequences] = *sequence;
    w->of[w->n_sequences++] = (sequence_of){.request = w->n, .continuation = continuation};
    w->bytes += (size_t)sequence->n * sizeof *sequence->token + sizeof *sequence + sizeof *w->of;
    return HT_OK;
}

static ht_status add_sequences(window *w, scored *r, ht_error *err) {
    ht_status status = HT_OK;
    const int64_t n = (int64_t)r->ids.prompt.n;
    if (r->ids.n_joined > INT32_MAX / 4)
        return ht_fail(err, HT_ERR_LIMIT, "%zu continuations are too many", r->ids.n_joined);
    if (w->s->likeliest)
        status =
            add_sequence(w, &(ht_prefill_sequence){.token = r->ids.prompt.id, .n = n, .first_out = n - 1}, -1, err);
    for (size_t i = 0; i < r->ids.n_joined && !status; i++) {
        const ht_ids *joined = &r->ids.joined[i];
        const ht_prefill_sequence sequence = {
            .token = joined->id, .n = (int64_t)joined->n - 1, .first_out = r->ids.shared - 1};
        status = add_sequence(w, &sequence, (int32_t)i, err);
    }
    return status;
}

static ht_status take_up(window *w, size_t index, scored *r, ht_error *err) {
    ht_score_request request = {0};
    ht_status status = w->s->next(w->s->user, index, &request, err);
    if (!status)
        status = ht_prompt_encode_all(w->s->model, &request.prompt, request.continuations, request.n_continuations,
                                      &r->ids, err);
    if (!status) status = make_results(w, r, err);
    if (!status) status = add_sequences(w, r, err);
    return status;
}

/* Prompt tokens that the previous request does not share: an estimate of the work in a window. */
static int64_t new_tokens(const window *w, const scored *r) {
    const ht_ids *ids = &r->ids.prompt, *before = w->n ? &w->request[w->n - 1].ids.prompt : &(ht_ids){0};
    size_t same = 0;
    while (same < ids->n && same < before->n && ids->id[same] == before->id[same]) same++;
    return (int64_t)(ids->n - same);
}

/* Fills the window with requests from `index` on, at least one. */
static void fill(window *w, size_t index) {
    w->n = w->handed_over = w->n_sequences = 0;
    w->bytes = 0;
    w->tokens = 0;
    while (index + (size_t)w->n < w->s->n && w->n < WINDOW_REQUESTS && w->tokens < WINDOW_TOKENS &&
           w->bytes < WINDOW_BYTES && w->n_sequences < INT32_MAX / 2) {
        ht_error err = {0};
        scored *r = &w->request[w->n];
        *r = (scored){.index = index + (size_t)w->n, .first_sequence = w->n_sequences};
        const ht_status status = take_up(w, r->index, r, &err);
        if (status) {
            w->n_sequences = r->first_sequence;
            fail(r, status, &err);
        }
        r->n_sequences = w->n_sequences - r->first_sequence;
        w->tokens += new_tokens(w, r);
        w->bytes += count_tokens(r) * (sizeof *r->tokens + (size_t)w->s->top_k * sizeof *r->tops);
        if (r->logits) w->bytes += (size_t)w->s->model->vocab * sizeof *r->logits;
        w->n++;
    }
}

/* ---- rows ---- */

static void take_likeliest(const window *w, scored *r, const ht_logits_row *row, double log_sum) {
    r->token = ht_row_argmax(row);
    r->log_probability = (double)row->max - log_sum;
    if (r->logits) memcpy(r->logits, row->x, (size_t)w->s->model->vocab * sizeof *r->logits);
}

static void take_token(const window *w, ht_token_score *t, int32_t id, const ht_logits_row *row, double log_sum,
                       const ht_token_score **with_top) {
    t->id = id;
    t->log_probability = (double)row->x[id] - log_sum;
    if (!t->top) return;
    /* Lent to the caller as constant; the memory is the request's own. */
    ht_token_probability *top = (ht_token_probability *)(uintptr_t)t->top;
    if (*with_top) {
        t->n_top = (*with_top)->n_top;
        memcpy(top, (*with_top)->top, (size_t)t->n_top * sizeof *top);
    } else {
        t->n_top = ht_row_likeliest(row, w->s->top_k, log_sum, top);
        *with_top = t;
    }
}

static void note_bad(sequence_of *of, const ht_logits_row *row, int64_t position) {
    if (of->bad) return;
    int32_t i = 0;
    while (i + 1 < row->n && isfinite(row->x[i])) i++;
    of->bad = true;
    of->bad_token = i;
    of->bad_logit = row->x[i];
    of->bad_position = position;
}

static void take_row(void *user, const float *logits, int64_t position, const int32_t *sequence, int32_t n,
                     float *block_max) {
    window *w = user;
    ht_model *m = w->s->model;
    ht_logits_row row = {.ops = m->device->row_ops, .x = logits, .n = m->vocab, .block_max = block_max};
    const bool finite = ht_row_scan(&row);
    const double log_sum = finite ? ht_row_log_sum(&row) : 0;
    const ht_token_score *with_top = NULL;
    for (int32_t i = 0; i < n; i++) {
        sequence_of *of = &w->of[sequence[i]];
        scored *r = &w->request[of->request];
        if (!finite) {
            note_bad(of, &row, position);
        } else if (of->continuation < 0) {
            take_likeliest(w, r, &row, log_sum);
        } else {
            const int64_t at = position + 1;
            const ht_continuation_score *c = &r->continuations[of->continuation];
            ht_token_score *t = &r->tokens[c->tokens - r->tokens + (at - r->ids.shared)];
            take_token(w, t, r->ids.joined[of->continuation].id[at], &row, log_sum, &with_top);
        }
    }
}

/* ---- delivery ---- */

static void take_failure(void *user, int32_t sequence, const ht_error *err) {
    window *w = user;
    fail(&w->request[w->of[sequence].request], err->status, err);
}

static bool is_done(const window *w, const scored *r) {
    for (int32_t i = 0; i < r->n_sequences; i++)
        if (!w->sequence[r->first_sequence + i].done) return false;
    return true;
}

static void sum_up(const window *w, scored *r) {
    for (int32_t i = 0; i < r->n_sequences; i++) {
        const sequence_of *of = &w->of[r->first_sequence + i];
        r->computed += w->sequence[r->first_sequence + i].computed;
        if (!of->bad) continue;
        ht_error err = {0};
        fail(r,
             ht_fail(&err, HT_ERR_INTERNAL, "the logit of token %d after token %lld is %g", (int)of->bad_token,
                     (long long)of->bad_position, (double)of->bad_logit),
             &err);
    }
    for (size_t i = 0; i < r->ids.n_joined && r->continuations; i++) {
        ht_continuation_score *c = &r->continuations[i];
        c->log_probability = 0;
        for (int64_t t = 0; t < c->n_tokens; t++) c->log_probability += c->tokens[t].log_probability;
    }
}

static void hand_over(window *w) {
    scored *r = &w->request[w->handed_over++];
    sum_up(w, r);
    if (!w->stopped) w->stopped = !w->s->take(w->s->user, r);
    clear(r);
}

static void show_progress(const window *w) {
    if (!w->s->progress) return;
    size_t done = (size_t)w->handed_over;
    for (int32_t i = w->handed_over; i < w->n; i++) done += is_done(w, &w->request[i]);
    const size_t before =
        w->handed_over < w->n ? w->request[w->handed_over].index - (size_t)w->handed_over : w->s->n - (size_t)w->n;
    w->s->progress((double)(before + done) / (double)w->s->n, w->s->progress_user);
}

static bool after_step(void *user) {
    window *w = user;
    while (!w->stopped && w->handed_over < w->n && is_done(w, &w->request[w->handed_over])) hand_over(w);
    if (!w->stopped) show_progress(w);
    return !w->stopped;
}

static void hand_over_rest(window *w, const ht_error *err) {
    for (; w->handed_over < w->n;) {
        scored *r = &w->request[w->handed_over];
        if (!is_done(w, r)) fail(r, err->status, err);
        hand_over(w);
    }
}

static ht_status run_window(window *w, ht_error *err) {
    const ht_prefill_calls calls = {.row = take_row, .failed = take_failure, .stepped = after_step, .user = w};
    ht_error own = {0};
    ht_status status = ht_prefill_run(w->prefill, w->sequence, w->n_sequences, &calls, w->s->cancel, &own);
    hand_over_rest(w, &own);
    if (!status && w->stopped) status = ht_fail(&own, HT_ERR_CANCELLED, "stopped by the callback");
    if (status && err) *err = own;
    return status;
}

static ht_status run_scoring(const scoring *s, ht_error *err) {
    window w = {.s = s, .request = calloc(WINDOW_REQUESTS, sizeof *w.request)};
    if (!w.request) return ht_fail_memory(err, WINDOW_REQUESTS * sizeof *w.request, "prompts");
    ht_status status = ht_prefill_new(s->model, &s->prefill, &w.prefill, err);
    for (size_t i = 0; i < s->n && !status; i += (size_t)w.n) {
        if (ht_cancel_requested(s->cancel)) {
            status = ht_fail(err, HT_ERR_CANCELLED, "cancelled after %zu of %zu prompt%s", i, s->n, ht_plural(s->n));
            break;
        }
        fill(&w, i);
        status = run_window(&w, err);
    }
    ht_prefill_free(w.prefill);
    free(w.sequence);
    free(w.of);
    free(w.request);
    return status;
}

/* ---- scores ---- */

static const ht_score_options score_defaults = {.size = sizeof score_defaults};
enum { MOST_TOP = 1000 };

void ht_score_options_init(ht_score_options *options, size_t size) {
    ht_options_init(options, size, &score_defaults, sizeof score_defaults);
}

typedef struct scores {
    ht_score_options o;
    const ht_score_request *requests; /* NULL: those of o.next */
    ht_score_fn *fn;
    void *user;
} scores;

static ht_status next_score(void *user, size_t i, ht_score_request *request, ht_error *err) {
    scores *s = user;
    ht_status status = HT_OK;
    if (s->requests)
        *request = s->requests[i];
    else
        status = s->o.next(i, request, s->user, err);
    if (status || request->n_continuations) return status;
    return ht_fail(err, HT_ERR_ARGUMENT, "there is no continuation to score");
}

static bool take_score(void *user, const scored *r) {
    scores *s = user;
    ht_score_result out = {.index = r->index, .status = r->status, .message = r->message ? r->message : ""};
    if (!out.status) {
        out.prompt_tokens = (int64_t)r->ids.prompt.n;
        out.shared_tokens = r->ids.shared;
        out.computed_tokens = r->computed;
        out.continuations = r->continuations;
        out.n_continuations = r->ids.n_joined;
    }
    return s->fn(&out, s->user);
}

ht_status ht_score(ht_model *m, const ht_score_request *requests, size_t n, const ht_score_options *options,
                   ht_score_fn *fn, void *user, ht_error *err) {
    scores s = {.requests = requests, .fn = fn, .user = user};
    const ht_status status =
        ht_options_read(&s.o, options, &score_defaults, sizeof score_defaults, "ht_score_options", err);
    if (status) return status;
    if (s.o.top_k < 0 || s.o.top_k > MOST_TOP)
        return ht_fail(err, HT_ERR_ARGUMENT, "top_k is %d, expected 0 to %d", (int)s.o.top_k, MOST_TOP);
    if (!requests && n && !s.o.next)
        return ht_fail(err, HT_ERR_ARGUMENT,
                       "%zu request%s, but neither an array of them nor a function that gives them", n, ht_plural(n));
    const scoring run = {.model = m,
                         .n = n,
                         .prefill = {.adapters = s.o.adapters,
                                     .adapter_scales = s.o.adapter_scales,
                                     .n_adapters = s.o.n_adapters,
                                     .kv_bytes = s.o.kv_bytes},
                         .top_k = s.o.top_k,
                         .cancel = s.o.cancel,
                         .next = next_score,
                         .take = take_score,
                         .user = &s,
                         .progress = s.o.progress,
                         .progress_user = user};
    return run_scoring(&run, err);
}

/* ---- classification: labels as continuations of each prompt, and their probabilities among themselves ---- */

static const ht_classify_options classify_defaults = {.size = sizeof classify_defaults};

void ht_classify_options_init(ht_classify_options *options, size_t size) {
    ht_options_init(options, size, &classify_defaults, sizeof classify_defaults);
}

typedef struct classification {
    ht_model *model;
    ht_classify_options o;
    const ht_prompt *prompts; /* NULL: those of o.next */
    ht_continuation *labels;  /* [n_labels] */
    ht_label_score *scores;   /* [n_labels] */
    ht_classify_fn *fn;
    void *user;
} classification;

static ht_status check_labels(const ht_classify_options *o, ht_error *err) {
    if (o->n_labels < 0) return ht_fail(err, HT_ERR_ARGUMENT, "%d labels, expected 0 or more", (int)o->n_labels);
    for (int32_t i = 0; i < o->n_labels; i++) {
        if (!o->labels[i] || !*o->labels[i]) return ht_fail(err, HT_ERR_ARGUMENT, "label %d is empty", (int)i);
        for (int32_t j = 0; j < i; j++)
            if (strcmp(o->labels[i], o->labels[j]) == 0)
                return ht_fail(err, HT_ERR_ARGUMENT, "labels %d and %d are both \"%s\"", (int)j, (int)i, o->labels[i]);
    }
    return HT_OK;
}

static ht_status next_prompt(void *user, size_t i, ht_score_request *request, ht_error *err) {
    classification *c = user;
    request->continuations = c->labels;
    request->n_continuations = (size_t)c->o.n_labels;
    if (!c->prompts) return c->o.next(i, &request->prompt, c->user, err);
    request->prompt = c->prompts[i];
    return HT_OK;
}

/* Fills in c->scores; returns the likeliest label. */
static int32_t compare_labels(classification *c, const scored *r) {
    double sum = 0;
    int32_t best = 0;
    for (int32_t i = 0; i < c->o.n_labels; i++) {
        const ht_continuation_score *label = &r->continuations[i];
        c->scores[i] = (ht_label_score){.log_probability = label->log_probability, .n_tokens = label->n_tokens};
        if (label->log_probability > c->scores[best].log_probability) best = i;
    }
    const double most = c->scores[best].log_probability;
    for (int32_t i = 0; i < c->o.n_labels; i++) sum += exp(c->scores[i].log_probability - most);
    for (int32_t i = 0; i < c->o.n_labels; i++)
        c->scores[i].probability = exp(c->scores[i].log_probability - most) / sum;
    return best;
}

/* The caller frees *text. A head may have more rows than the tokenizer has tokens: these have no text. */
static ht_status text_of(const ht_model *m, int32_t token, char **text, ht_error *err) {
    size_t n;
    *text = NULL;
    if (!m->tokenizer) return HT_OK;
    const size_t known = token < ht_tokenizer_vocab_size(m->tokenizer);
    return ht_tokenizer_decode(m->tokenizer, &token, known, true, text, &n, err);
}

static bool take_class(void *user, const scored *r) {
    classification *c = user;
    ht_error err = {0};
    char *text = NULL;
    ht_classification out = {
        .index = r->index, .status = r->status, .message = r->message ? r->message : "", .label = -1};
    if (!out.status && (out.status = text_of(c->model, r->token, &text, &err))) out.message = err.message;
    if (!out.status) {
        out.prompt_tokens = (int64_t)r->ids.prompt.n;
        out.computed_tokens = r->computed;
        out.token = r->token;
        out.text = text;
        out.log_probability = r->log_probability;
        out.logits = r->logits;
        if (c->o.n_labels) {
            out.label = compare_labels(c, r);
            out.labels = c->scores;
        }
    }
    const bool goes_on = c->fn(&out, c->user);
    ht_text_free(text);
    return goes_on;
}

static ht_status run_classification(classification *c, size_t n, ht_error *err) {
    c->labels = calloc((size_t)c->o.n_labels + 1, sizeof *c->labels);
    c->scores = calloc((size_t)c->o.n_labels + 1, sizeof *c->scores);
    if (!c->labels || !c->scores)
        return ht_fail_memory(err, (size_t)c->o.n_labels * (sizeof *c->labels + sizeof *c->scores), "labels");
    for (int32_t i = 0; i < c->o.n_labels; i++) c->labels[i].text = c->o.labels[i];
    const scoring s = {.model = c->model,
                       .n = n,
                       .prefill = {.adapters = c->o.adapters,
                                   .adapter_scales = c->o.adapter_scales,
                                   .n_adapters = c->o.n_adapters,
                                   .kv_bytes = c->o.kv_bytes},
                       .likeliest = true,
                       .logits = c->o.logits,
                       .cancel = c->o.cancel,
                       .next = next_prompt,
                       .take = take_class,
                       .user = c,
                       .progress = c->o.progress,
                       .progress_user = c->user};
    return run_scoring(&s, err);
}

ht_status ht_classify(ht_model *m, const ht_prompt *prompts, size_t n, const ht_classify_options *options,
                      ht_classify_fn *fn, void *user, ht_error *err) {
    classification c = {.model = m, .prompts = prompts, .fn = fn, .user = user};
    ht_status status =
        ht_options_read(&c.o, options, &classify_defaults, sizeof classify_defaults, "ht_classify_options", err);
    if (!status) status = check_labels(&c.o, err);
    if (!status && !prompts && n && !c.o.next)
        status = ht_fail(err, HT_ERR_ARGUMENT,
                         "%zu prompt%s, but neither an array of them nor a function that gives them", n, ht_plural(n));
    if (!status) status = run_classification(&c, n, err);
    free(c.labels);
    free(c.scores);
    return status;
}
