#include "generate/logit_changes.h"

#include "base/checked.h"
#include "base/error.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* ---- biases ---- */

static int by_id(const void *a, const void *b) {
    const ht_logit_bias *x = a, *y = b;
    return (x->id > y->id) - (x->id < y->id);
}

ht_status ht_logit_biases_read(const ht_sampler_options *options, int32_t vocab, ht_logit_bias **out, ht_error *err) {
    const int n = options->n_logit_bias;
    *out = NULL;
    if (n < 0 || (n > 0 && !options->logit_bias))
        return ht_fail(err, HT_ERR_ARGUMENT, "%d biases of logits were announced and none given", n);
    for (int i = 0; i < n; i++) {
        const ht_logit_bias *b = &options->logit_bias[i];
        if (b->id < 0 || b->id >= vocab)
            return ht_fail(err, HT_ERR_ARGUMENT, "logit_bias of token %d, and the vocabulary has ids 0 to %d",
                           (int)b->id, (int)vocab - 1);
        if (!isfinite(b->bias))
            return ht_fail(err, HT_ERR_ARGUMENT,
                           "logit_bias of token %d is %g, expected a finite number (-100 as good as forbids a token)",
                           (int)b->id, (double)b->bias);
    }
    ht_logit_bias *sorted = malloc((size_t)n * sizeof *sorted + 1);
    if (!sorted) return ht_fail_memory(err, (size_t)n * sizeof *sorted, "biases of logits");
    if (n) {
        memcpy(sorted, options->logit_bias, (size_t)n * sizeof *sorted);
        qsort(sorted, (size_t)n, sizeof *sorted, by_id);
    }
    for (int i = 1; i < n; i++)
        if (sorted[i].id == sorted[i - 1].id) {
            const int32_t id = sorted[i].id;
            free(sorted);
            return ht_fail(err, HT_ERR_ARGUMENT, "logit_bias has token %d twice", (int)id);
        }
    *out = sorted;
    return HT_OK;
}

/* ---- life ---- */

ht_status ht_logit_changes_init(ht_logit_changes *c, const ht_sampler_options *o, int32_t vocab, ht_error *err) {
    *c = (ht_logit_changes){
        .vocab = vocab,
        .repeats = o->repeat_penalty != 0 && o->repeat_penalty != 1 && o->repeat_window != 0,
        .counts = o->presence_penalty != 0 || o->frequency_penalty != 0,
        .repeat_penalty = o->repeat_penalty,
        .presence_penalty = o->presence_penalty,
        .frequency_penalty = o->frequency_penalty,
        .repeat_window = o->repeat_window,
    };
    c->penalties_raise = (c->repeats && o->repeat_penalty < 1) || o->presence_penalty < 0 || o->frequency_penalty < 0;
    const ht_status status = ht_logit_biases_read(o, vocab, &c->bias, err);
    if (status) return status;
    c->n_bias = o->n_logit_bias;
    for (int32_t i = 0; i < c->n_bias; i++)
        if (c->bias[i].bias > 0) c->biases_raise = true;
    const size_t n = (size_t)vocab;
    if (c->repeats && !(c->seen = calloc((n + 7) / 8, 1))) return ht_fail_memory(err, n / 8, "the sampler");
    if (c->counts && !(c->count = calloc(n, sizeof *c->count)))
        return ht_fail_memory(err, n * sizeof *c->count, "the sampler");
    return HT_OK;
}

void ht_logit_changes_free(ht_logit_changes *c) {
    free(c->bias);
    free(c->seen);
    free(c->count);
    *c = (ht_logit_changes){0};
}

/* ---- changes ---- */

/* What a logit x becomes that changes to y. */
static float bounded(float x, double y) {
    static const float most = 1e30f;
    if (!isfinite(x)) return x;
    if (y > (double)most) return most;
    return y < (double)-most ? -most : (float)y;
}

/* Where a token is in the row, or -1. */
static int32_t place_of(int32_t id, const int32_t *ids, int32_t n) {
    if (!ids) return id < n ? id : -1;
    int32_t low = 0, high = n;
    while (low < high) {
        const int32_t middle = low + (high - low) / 2;
        if (ids[middle] < id)
            low = middle + 1;
        else
            high = middle;
    }
    return low < n && ids[low] == id ? low : -1;
}

void ht_logit_changes_bias(const ht_logit_changes *c, float *x, const int32_t *ids, int32_t n) {
    for (int32_t i = 0; i < c->n_bias; i++) {
        const int32_t at = place_of(c->bias[i].id, ids, n);
        if (at >= 0) x[at] = bounded(x[at], (double)x[at] + (double)c->bias[i].bias);
    }
}

static float repeated(const ht_logit_changes *c, float x) {
    return bounded(x, (double)(x > 0 ? x / c->repeat_penalty : x * c->repeat_penalty));
}

static bool in_vocab(const ht_logit_changes *c, int32_t id) { return id >= 0 && id < c->vocab; }

static void penalise_repeated(ht_logit_changes *c, float *x, const int32_t *ids, int32_t n, const int32_t *history,
                              int64_t n_history) {
    const int64_t first = c->repeat_window > 0 ? ht_max_i64(n_history - c->repeat_window, 0) : 0;
    for (int64_t i = first; i < n_history; i++) {
        const int32_t id = history[i];
        if (!in_vocab(c, id) || (c->seen[id / 8] >> (id % 8) & 1)) continue;
        c->seen[id / 8] = (uint8_t)(c->seen[id / 8] | 1 << (id % 8));
        if (!ids) x[id] = repeated(c, x[id]);
    }
    for (int32_t i = 0; ids && i < n; i++)
        if (c->seen[ids[i] / 8] >> (ids[i] % 8) & 1) x[i] = repeated(c, x[i]);
    for (int64_t i = first; i < n_history; i++)
        if (in_vocab(c, history[i])) c->seen[history[i] / 8] = 0;
}

static float counted(const ht_logit_changes *c, float x, int32_t count) {
    return bounded(
        x, (double)x - ((double)count * (double)c->frequency_penalty + (double)(count > 0 ? c->presence_penalty : 0)));
}

static void penalise_counted(ht_logit_changes *c, float *x, const int32_t *ids, int32_t n, const int32_t *history,
                             int64_t n_history) {
    for (int64_t i = c->n_prompt; i < n_history; i++)
        if (in_vocab(c, history[i])) c->count[history[i]]++;
    for (int32_t i = 0; ids && i < n; i++)
        if (c->count[ids[i]]) x[i] = counted(c, x[i], c->count[ids[i]]);
    for (int64_t i = c->n_prompt; i < n_history; i++) {
        const int32_t id = history[i];
        if (!in_vocab(c, id) || !c->count[id]) continue;
        if (!ids) x[id] = counted(c, x[id], c->count[id]);
        c->count[id] = 0;
    }
}

void ht_logit_changes_penalise(ht_logit_changes *c, float *x, const int32_t *ids, int32_t n, const int32_t *history,
                               int64_t n_history) {
    if (c->repeats) penalise_repeated(c, x, ids, n, history, n_history);
    if (c->counts) penalise_counted(c, x, ids, n, history, n_history);
}

/* ---- bounds ---- */

int64_t ht_logit_changes_biased(const ht_logit_changes *c) { return c->biases_raise ? INT32_MAX : c->n_bias; }

int64_t ht_logit_changes_penalised(const ht_logit_changes *c, int64_t n_history) {
    if (c->penalties_raise) return INT32_MAX;
    int64_t lately = 0;
    if (c->repeats) lately = c->repeat_window > 0 ? ht_min_i64(c->repeat_window, n_history) : n_history;
    return c->counts ? ht_max_i64(lately, n_history - c->n_prompt) : lately; /* both look back from the last one */
}
