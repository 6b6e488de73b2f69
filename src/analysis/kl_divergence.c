#include "analysis/kl_divergence.h"

#include "base/checked.h"

#include <math.h>

enum { BLOCK = 1024 }; /* logits at a time, whose weights stay in the first cache */

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
    return total < 0 ? 0 : total; /* only rounding of far apart p and q can do that */
}
