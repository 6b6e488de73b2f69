/* Logit scans over one row, for sampling. Not operations: they never appear in a graph. Every instruction set gives the
 * same bits. */
#ifndef HT_DEVICE_ROW_H
#define HT_DEVICE_ROW_H

#include <stdbool.h>
#include <stdint.h>

enum { HT_ROW_BLOCK = 128, HT_ROW_BUCKETS = 512 };

typedef struct ht_row_ops {
    /* The largest value of each block of HT_ROW_BLOCK values, the last one maybe shorter. False when a value is NaN or
     * infinite. */
    bool (*maxima)(const float *x, int64_t n, float *block_max);
    /* w[i] = exp((x[i] - max) * scale); what lies under the smallest normal number is 0. max is not less than any x. */
    void (*weights)(const float *x, int64_t n, float max, float scale, float *w);
    /* Sum of the weights of those x, n <= HT_ROW_BLOCK of them, that are >= from, or with `strict` > from. */
    double (*mass)(const float *x, int64_t n, float max, float scale, float from, bool strict);
    /* bucket[i] = (high - x[i]) * per_bucket, truncated, at most HT_ROW_BUCKETS - 1; where x is not within [low, high],
     * HT_ROW_BUCKETS. */
    void (*buckets)(const float *x, int64_t n, float low, float high, float per_bucket, uint16_t *bucket);
} ht_row_ops;

#endif
