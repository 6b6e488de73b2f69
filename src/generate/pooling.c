#include "generate/pooling.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static const char *const names[] = {
    [HT_POOLING_LAST] = "last",
    [HT_POOLING_MEAN] = "mean",
    [HT_POOLING_CLS] = "cls",
    [HT_POOLING_MODEL] = "model",
    [HT_POOLING_NONE] = "none",
    [HT_POOLING_MAX] = "max",
    [HT_POOLING_MEAN_SQRT_LEN] = "mean_sqrt_len",
    [HT_POOLING_WEIGHTEDMEAN] = "weightedmean",
};
enum { NAMES = sizeof names / sizeof *names };

const char *ht_pooling_name(ht_pooling pooling) { return (unsigned)pooling < NAMES ? names[pooling] : NULL; }

ht_pooling ht_pooling_named(const char *name) {
    if (!*name) return HT_POOLING_LAST;
    for (int i = 0; i < NAMES; i++)
        if (!strcmp(name, names[i])) return (ht_pooling)i;
    return HT_POOLING_MODEL;
}

/* ---- states ---- */

int64_t ht_pooling_first(const ht_pooling_state *p) {
    if (p->pooling == HT_POOLING_LAST) return p->n - 1;
    return p->skipped;
}

void ht_pooling_add(ht_pooling_state *p, const float *state, int64_t position) {
    if (position < ht_pooling_first(p) || (p->pooling == HT_POOLING_CLS && position > p->skipped)) return;
    const bool begins = position == ht_pooling_first(p);
    if (begins) p->value = calloc((size_t)p->hidden, sizeof *p->value);
    if (!p->value) return; /* memory ran out, perhaps at an earlier position */
    /* Weighted means count a token by its position, from 1. */
    const double weight = p->pooling == HT_POOLING_WEIGHTEDMEAN ? (double)(position + 1) : 1;
    for (int32_t d = 0; d < p->hidden; d++) {
        const double x = (double)state[d];
        if (p->pooling != HT_POOLING_MAX)
            p->value[d] += weight * x;
        else if (begins || !(x <= p->value[d])) /* keeps NaN, which the caller reports */
            p->value[d] = x;
    }
}

/* Divisor of the sum. */
static double divisor(const ht_pooling_state *p) {
    const double n = (double)(p->n - p->skipped);
    switch (p->pooling) {
    case HT_POOLING_MEAN: return n;
    case HT_POOLING_MEAN_SQRT_LEN: return sqrt(n);
    case HT_POOLING_WEIGHTEDMEAN: return n * ((double)(p->skipped + 1) + (double)p->n) / 2;
    default: return 1;
    }
}

void ht_pooling_end(ht_pooling_state *p) {
    const double by = divisor(p);
    for (int32_t d = 0; p->value && d < p->hidden; d++) p->value[d] /= by;
}

void ht_pooling_free(ht_pooling_state *p) {
    free(p->value);
    p->value = NULL;
}

/* ---- dense layers ---- */

int64_t ht_dense_width(const ht_dense_stack *s, int64_t hidden) { return s->n ? s->layer[s->n - 1].n_out : hidden; }

static double activate(ht_dense_activation a, double x) {
    switch (a) {
    case HT_DENSE_TANH: return tanh(x);
    case HT_DENSE_SIGMOID: return 1 / (1 + exp(-x));
    case HT_DENSE_RELU: return x > 0 ? x : 0;
    case HT_DENSE_GELU: return 0.5 * x * (1 + erf(x * 0.70710678118654752440));
    default: return x;
    }
}

static void apply(const ht_dense *d, const double *x, double *y) {
    for (int64_t o = 0; o < d->n_out; o++) y[o] = d->bias ? (double)d->bias[o] : 0;
    for (int64_t i = 0; i < d->n_in; i++) {
        const float *w = d->weight + i * d->n_out;
        for (int64_t o = 0; o < d->n_out; o++) y[o] += x[i] * (double)w[o];
    }
    for (int64_t o = 0; o < d->n_out; o++) y[o] = activate(d->activation, y[o]);
}

bool ht_dense_apply(const ht_dense_stack *s, double **x) {
    for (int i = 0; i < s->n; i++) {
        double *y = malloc((size_t)s->layer[i].n_out * sizeof *y);
        if (!y) return false;
        apply(&s->layer[i], *x, y);
        free(*x);
        *x = y;
    }
    return true;
}
