/* KL divergence: the probabilities of one row of logits, and the distance between two rows. */
#ifndef HT_ANALYSIS_KL_DIVERGENCE_H
#define HT_ANALYSIS_KL_DIVERGENCE_H

#include "device/row.h"

/* Enough of a row to turn its logits into probabilities: p(i) = exp(x[i] - max) / sum. */
typedef struct ht_row_summary {
    int32_t top; /* the likeliest token, lowest id on ties */
    float max;
    double sum; /* NaN when a logit is */
} ht_row_summary;

ht_row_summary ht_row_summarise(const ht_row_ops *ops, const float *x, int32_t vocab);

/* -log p(id), in nats. */
double ht_row_nll(const float *x, const ht_row_summary *s, int32_t id);

/* Sum of p log(p / q), in nats, never below 0: p is the distribution of x, q that of y. Each term is written as
 * p t + q - p, t = log(p / q), whose sum is the same because p and q both sum to 1: it is never negative and of second
 * order in t, so that nothing cancels for rows that are nearly equal. */
double ht_row_kl(const ht_row_ops *ops, const float *x, const ht_row_summary *sx, const float *y,
                 const ht_row_summary *sy, int32_t vocab);

#endif
