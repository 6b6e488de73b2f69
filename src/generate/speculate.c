#include "generate/speculate.h"

#include "base/checked.h"
#include "base/clock.h"
#include "base/error.h"
#include "base/hash.h"
#include "device/device.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* Tokens of a lookup's key, initial slots of its index, and matching tokens from which a lookup counts as a copy. */
enum { GRAM = 3, FIRST_SLOTS = 1024, COPY = 8 };
/* Guesses must pay off by this factor; while they do not, one is tried occasionally. */
static const double least_gain = 1.03;
enum { TRY_EVERY = 24, TRIAL = 2 };
static const double most_saved = 16; /* steps that count, or one that was right for long could be wrong for long */
/* Weights of new values in running means. */
static const double weight_right = 0.1, weight_time = 0.2;

/* Share of the time so far that wrong guesses of lookups may cost; steps that a copy may cost in advance. */
static const double cost_share = 0.006, copy_steps = 1;

/* A source of guesses, with its record. */
typedef struct source {
    double right;  /* acceptance rate of guesses whose predecessors were accepted */
    int rests;     /* steps since it last guessed */
    double saved;  /* seconds saved by accepted guesses, less the cost of all */
    double credit; /* steps that it may cost in advance; below 0: no bound */
} source;

struct ht_speculation {
    bool lookup;
    ht_session *draft;
    ht_sampler *sampler; /* of the draft */
    bool repeats;
    int32_t most, drawn;
    int64_t n_history;
    source by_lookup, by_copy, by_draft;
    source *present, *last; /* of the guesses of this step and of the last one; NULL: none, or forced ones */

    /* Index of the tokens so far: for every GRAM of them, the position after its last occurrence. */
    int32_t *slot; /* [n_slots] 0: free */
    size_t n_slots;
    int64_t indexed; /* tokens */

    /* Seconds of: a step without guesses, each guess, drafting one (0: unknown), and all steps so far. */
    double base, row, draft_seconds, elapsed;
};

/* ---- life ---- */

ht_status ht_speculation_new(const ht_speculation_setup *setup, ht_speculation **out, ht_error *err) {
    ht_speculation *s = *out = calloc(1, sizeof *s);
    if (!s) return ht_fail_memory(err, sizeof *s, "guessing tokens");
    s->lookup = setup->lookup;
    s->draft = setup->draft;
    s->most = setup->most;
    s->repeats = setup->repeats;
    s->by_lookup = (source){.right = 0.7};
    s->by_copy = (source){.right = 0.7, .credit = copy_steps};
    s->by_draft = (source){.right = 0.7, .credit = -1};
    if (!s->draft) return HT_OK;
    const ht_model *m = s->draft->model;
    const ht_status status = ht_sampler_new(setup->sampler, m->vocab, m->device->row_ops, &s->sampler, err);
    if (!status) return HT_OK;
    free(s);
    *out = NULL;
    return status;
}

void ht_speculation_free(ht_speculation *s) {
    if (!s) return;
    ht_sampler_free(s->sampler);
    free(s->slot);
    free(s);
}

ht_status ht_speculation_check_draft(const ht_model *m, const ht_model *draft, ht_error *err) {
    if (m->vocab != draft->vocab)
        return ht_fail(err, HT_ERR_ARGUMENT, "the draft model has a vocabulary of %d, and the model one of %d",
                       (int)draft->vocab, (int)m->vocab);
    for (int32_t i = 0, n = m->tokenizer && draft->tokenizer ? ht_tokenizer_vocab_size(m->tokenizer) : 0; i < n; i++) {
        const char *a = ht_tokenizer_piece(m->tokenizer, i), *b = ht_tokenizer_piece(draft->tokenizer, i);
        if ((a || b) && (!a || !b || strcmp(a, b) != 0))
            return ht_fail(err, HT_ERR_ARGUMENT, "token %d is \"%s\" to the model and \"%s\" to the draft model",
                           (int)i, a ? a : "", b ? b : "");
    }
    return HT_OK;
}

/* ---- how many ---- */

/* Expected tokens of a step with k guesses, and those of them that a later step repeats if a guess is wrong. */
static double expected(double right, int32_t k, double *repeated) {
    double sum = 1, p = 1;
    for (int32_t i = 0; i < k; i++) sum += p *= right;
    *repeated = sum - (k + 1) * p; /* the token before the guesses, too */
    return sum;
}

static double row_seconds(const ht_speculation *s) { return s->row > 0 ? s->row : 0.2 * s->base; }

/* The number of guesses that a source may cost, if all of them are wrong. */
static int32_t affordable(const ht_speculation *s, const source *from, int32_t limit) {
    if (from->credit < 0) return limit;
    const double left = from->saved + from->credit * s->base + cost_share * s->elapsed;
    return left < row_seconds(s) ? 0 : ht_min_i32(limit, (int32_t)(left / row_seconds(s)));
}

/* The number of guesses that pays most; 0 when none does. */
static int32_t worth(const ht_speculation *s, const source *from, int32_t limit, double each) {
    const double row = (row_seconds(s) + each) / s->base;
    int32_t best = 0;
    double gain = least_gain;
    for (int32_t k = 1; k <= limit; k++) {
        double repeated;
        const double tokens = expected(from->right, k, &repeated);
        const double g = tokens / (1 + row * k + (s->repeats ? row_seconds(s) / s->base * repeated : 0));
        if (g <= gain) continue;
        gain = g;
        best = k;
    }
    return best;
}

static int32_t how_many(const ht_speculation *s, source *from, int32_t limit, double each) {
    if (s->most) return ht_min_i32(limit, s->most);
    if (s->base <= 0) return 0; /* the first step measures the time */
    limit = affordable(s, from, limit);
    const int32_t k = worth(s, from, limit, each);
    if (k || !limit) return k;
    return ++from->rests % TRY_EVERY ? 0 : ht_min_i32(limit, TRIAL);
}

static void learn(double *mean, double x, double weight) { *mean = *mean > 0 ? *mean + weight * (x - *mean) : x; }

void ht_speculation_learn(ht_speculation *s, int32_t guesses, int32_t right, int64_t repeated, double seconds) {
    const double rows = guesses + (double)repeated; /* that plain decoding would not have had */
    source *const from = s->present, *const before = s->last;
    s->elapsed += seconds;
    s->last = from;
    s->present = NULL;
    if (rows == 0) {
        learn(&s->base, seconds, weight_time);
        return;
    }
    if (s->base > 0) learn(&s->row, ht_max_double((seconds - s->base) / rows, 0.01 * s->base), weight_time);
    if (before) before->saved -= (double)repeated * s->row;
    if (!from) return;
    from->saved = fmin(from->saved + right * s->base - guesses * s->row, most_saved * s->base);
    for (int32_t i = 0; i < right; i++) from->right += weight_right * (1 - from->right);
    if (right < guesses) from->right -= weight_right * from->right;
}

/* ---- lookup ---- */

/* The slot of the GRAM tokens before `end`: of their last occurrence, or a free one. */
static int32_t *slot_of(const ht_speculation *s, const int32_t *tokens, int64_t end) {
    const int32_t *gram = tokens + end - GRAM;
    size_t i = (size_t)ht_hash_bytes(gram, GRAM * sizeof *gram) & (s->n_slots - 1);
    while (s->slot[i] && memcmp(tokens + s->slot[i] - GRAM, gram, GRAM * sizeof *gram) != 0)
        i = (i + 1) & (s->n_slots - 1);
    return &s->slot[i];
}

/* Indexes new tokens except the last GRAM, which would match themselves. */
static ht_status update_index(ht_speculation *s, const int32_t *tokens, int64_t n, ht_error *err) {
    if (n > INT32_MAX / 4) return HT_OK;
    size_t need = FIRST_SLOTS;
    while (need < 2 * (size_t)n) need *= 2;
    if (need > s->n_slots) {
        int32_t *slot = calloc(need, sizeof *slot);
        if (!slot) return ht_fail_memory(err, need * sizeof *slot, "the tokens so far");
        free(s->slot);
        s->slot = slot;
        s->n_slots = need;
        s->indexed = 0;
    }
    for (int64_t end = ht_max_i64(s->indexed, GRAM); end < n; end++) *slot_of(s, tokens, end) = (int32_t)end;
    s->indexed = n;
    return HT_OK;
}

/* Whether the COPY tokens before both positions agree. */
static bool is_copy(const int32_t *tokens, int64_t from, int64_t n) {
    return from >= COPY && memcmp(tokens + from - COPY, tokens + n - COPY, COPY * sizeof *tokens) == 0;
}

/* Guesses what followed last time. Where that reaches the present, it continues with its own guesses. */
static int32_t look_up(ht_speculation *s, const int32_t *tokens, int64_t n, int32_t limit, int32_t *out) {
    if (n <= GRAM || !s->slot) return 0;
    const int64_t from = *slot_of(s, tokens, n);
    if (!from) return 0;
    source *const by = is_copy(tokens, from, n) ? &s->by_copy : &s->by_lookup;
    const int32_t k = how_many(s, by, limit, 0);
    if (k) s->present = by;
    for (int32_t i = 0; i < k; i++) out[i] = from + i < n ? tokens[from + i] : out[from + i - n];
    return k;
}

/* ---- draft ---- */

static ht_status draw(void *user, const ht_logits_rows *logits, ht_error *err) {
    ht_speculation *s = user;
    return ht_sampler_pick_row(s->sampler, logits, 0, s->draft->token, s->n_history, &s->drawn, err);
}

static ht_status draft_one(ht_speculation *s, int64_t n, const ht_cancel *cancel, ht_error *err) {
    ht_session *d = s->draft;
    ht_status status = HT_OK;
    s->n_history = n;
    while (!status && d->cache->length < n) {
        status = ht_session_prepare(d, n, n - 1, err);
        if (status) break;
        d->job.top_k = ht_sampler_top_k(s->sampler, n);
        d->job.consume = draw;
        d->job.user = s;
        d->job.cancel = cancel;
        status = ht_session_run(d, err);
    }
    return status;
}

static ht_status draft(ht_speculation *s, const int32_t *tokens, int64_t n, int32_t limit, const ht_cancel *cancel,
                       int32_t *out, int32_t *n_guesses, ht_error *err) {
    ht_session *d = s->draft;
    limit = (int32_t)ht_min_i64(limit, d->model->context - n);
    limit = (int32_t)ht_min_i64(limit, ht_model_growth(d->model, n)); /* or wrong guesses would cost a recomputation */
    const int32_t k = limit > 0 ? how_many(s, &s->by_draft, limit, s->draft_seconds) : 0;
    if (k == 0) return HT_OK;
    s->present = &s->by_draft;
    size_t kept;
    ht_session_keep_prefix(d, tokens, (size_t)n, &kept);
    ht_cache_mark(d->cache, n); /* wrong guesses go back there */
    ht_status status = ht_session_reserve_tokens(d, n + k, err);
    if (status) return status;
    memcpy(d->token + kept, tokens + kept, ((size_t)n - kept) * sizeof *tokens);
    d->n_tokens = n;
    const bool reads_prompt = n - (int64_t)kept > HT_DRAFT_TOKENS_MAX + 1;
    const double begin = ht_now_seconds();
    for (int32_t i = 0; i < k && !status; i++) {
        status = draft_one(s, n + i, cancel, err);
        if (status) break;
        out[i] = d->token[n + i] = s->drawn;
        d->n_tokens = n + i + 1;
        *n_guesses = i + 1;
    }
    if (!reads_prompt) learn(&s->draft_seconds, (ht_now_seconds() - begin) / k, weight_time);
    return status;
}

/* ---- guessing ---- */

void ht_speculation_set_prompt(ht_speculation *s, int64_t n_prompt) {
    if (s->sampler) ht_sampler_set_prompt(s->sampler, n_prompt);
}

ht_status ht_speculation_guess(ht_speculation *s, const int32_t *tokens, int64_t n, int32_t limit,
                               const ht_cancel *cancel, int32_t *out, int32_t *n_guesses, ht_error *err) {
    *n_guesses = 0;
    s->present = NULL;
    limit = ht_min_i32(limit, HT_DRAFT_TOKENS_MAX);
    ht_status status = s->lookup ? update_index(s, tokens, n, err) : HT_OK;
    if (status || limit <= 0) return status;
    if (s->lookup) *n_guesses = look_up(s, tokens, n, limit, out);
    if (*n_guesses || !s->draft) return HT_OK;
    return draft(s, tokens, n, limit, cancel, out, n_guesses, err);
}
