/* Scans of one row of logits, for samplers. Scans are not operations of a graph. Results are bit-identical for every
 * instruction set. */
#ifndef HT_DEVICE_ROW_H
#define HT_DEVICE_ROW_H

#include <stdbool.h>
#include <stdint.h>

enum { HT_ROW_BLOCK = 128, HT_ROW_BUCKETS = 512 };

typedef struct ht_row_ops {
    /* Writes the maximum of every block of HT_ROW_BLOCK values (the last block may be shorter) to block_max. Returns false
     * when a value is NaN or infinite. */
    bool (*maxima)(const float *x, int64_t n, float *block_max);
    /* w[i] = exp((x[i] - max) * scale), denormal results flushed to 0; max >= all x. */
    void (*weights)(const float *x, int64_t n, float max, float scale, float *w);
    /* Sum of exp((x[i] - max) * scale) over all x[i] >= from, or > from with `strict`; n <= HT_ROW_BLOCK. */
    double (*mass)(const float *x, int64_t n, float max, float scale, float from, bool strict);
    /* Histogram buckets: bucket[i] = min(trunc((high - x[i]) * per_bucket), HT_ROW_BUCKETS - 1), or HT_ROW_BUCKETS for x[i]
     * outside [low, high]. */
    void (*buckets)(const float *x, int64_t n, float low, float high, float per_bucket, uint16_t *bucket);
} ht_row_ops;

#endif
