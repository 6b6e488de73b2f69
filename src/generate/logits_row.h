/* One row of logits and the queries of a sampler, without sorting. Every filter keeps a prefix of the row in
 * descending order (ties: lowest index first). An `ht_cut` gives its last element; scans over blocks find it. */
#ifndef HT_GENERATE_LOGITS_ROW_H
#define HT_GENERATE_LOGITS_ROW_H

#include "device/row.h"

#include <hearth/score.h>

typedef struct ht_logits_row {
    const ht_row_ops *ops;
    const float *x; /* [n] finite logits */
    int32_t n;
    int32_t n_blocks;
    float *block_max; /* [n_blocks] */
    float max;
} ht_logits_row;

static inline int32_t ht_row_blocks(int32_t n) { return (n + HT_ROW_BLOCK - 1) / HT_ROW_BLOCK; }

/* Fills in n_blocks, block_max (room for ht_row_blocks(n)) and max. False when a value is NaN or infinite. */
bool ht_row_scan(ht_logits_row *row);
/* The error of the first value that is not finite, after ht_row_scan returned false; ids NULL: tokens 0, 1, ... */
ht_status ht_row_fail(const ht_logits_row *row, const int32_t *ids, ht_error *err);
/* Index of the largest value, the lowest one on ties. */
int32_t ht_row_argmax(const ht_logits_row *row);

/* Everything above `value`, and of what equals it the indices up to `last`. */
typedef struct ht_cut {
    float value;
    int32_t last;
} ht_cut;

ht_cut ht_cut_none(void);
static inline bool ht_cut_keeps(ht_cut c, float x, int32_t i) { return x > c.value || (x == c.value && i <= c.last); }
/* The stricter of two. */
ht_cut ht_cut_min(ht_cut a, ht_cut b);

/* Sum of the weights exp((x - max) * scale) kept by the cut. block_mass [n_blocks]: sums of the blocks; NULL: none. */
double ht_row_mass(const ht_logits_row *row, float scale, ht_cut cut, double *block_mass);
/* The kept index at which the running sum of weights, in order of index, passes u * mass; u in [0, 1). block_mass and
 * mass are those of ht_row_mass with the same scale and cut. */
int32_t ht_row_draw(const ht_logits_row *row, float scale, ht_cut cut, const double *block_mass, double mass, double u);

/* The logarithm of the sum of exp(x), over all of a scanned row: a token's log-probability is its logit less it. */
double ht_row_log_sum(const ht_logits_row *row);
/* The k likeliest tokens, the lowest id first on ties; returns how many there are. */
int32_t ht_row_likeliest(const ht_logits_row *row, int32_t k, double log_sum, ht_token_probability *top);

/* A value with its index as one integer that orders like (value, then lowest index first). */
typedef uint64_t ht_ranked;
ht_ranked ht_rank(float x, int32_t index);
float ht_ranked_value(ht_ranked r);
static inline int32_t ht_ranked_index(ht_ranked r) { return (int32_t)(~(uint32_t)r); }

/* Sorts in descending order, in place. */
void ht_ranked_sort(ht_ranked *r, int32_t n);

/* The k highest (k <= n), in descending order, in `out`, which has room for n. */
void ht_row_top(const ht_logits_row *row, int32_t k, ht_ranked *out);
/* How many of n sorted candidates bring *mass to `target` with their weights, or n; *mass is what it then is. */
int32_t ht_row_reach(const ht_logits_row *row, const ht_ranked *sorted, int32_t n, float scale, double target,
                     double *mass);
/* The smallest prefix of `within` whose weights reach `target`, or all of it; `work` has room for n. */
ht_cut ht_row_nucleus(const ht_logits_row *row, float scale, ht_cut within, double target, ht_ranked *work);

#endif
