/* KL divergence: the probabilities of one row of logits, and the distance between two rows. */
#ifndef HT_ANALYSIS_KL_DIVERGENCE_H
#define HT_ANALYSIS_KL_DIVERGENCE_H

#include "device/row.h"

/* Summary of a row that turns its logits into probabilities: p(i) = exp(x[i] - max) / sum. */
typedef struct ht_row_summary {
    int32_t top; /* the likeliest token, lowest id on ties */
    float max;
    double sum; /* NaN if a logit is NaN */
} ht_row_summary;

ht_row_summary ht_row_summarise(const ht_row_ops *ops, const float *x, int32_t vocab);

/* -log p(id), in nats. */
double ht_row_nll(const float *x, const ht_row_summary *s, int32_t id);

/* Sum of p log(p / q), in nats, 0 or more: p of x, q of y. Terms are p t + q - p, t = log(p / q), with the same sum as
 * p and q sum to 1: none is negative, all are of second order in t, so that nothing cancels for nearly equal rows. */
double ht_row_kl(const ht_row_ops *ops, const float *x, const ht_row_summary *sx, const float *y,
                 const ht_row_summary *sy, int32_t vocab);

#endif
