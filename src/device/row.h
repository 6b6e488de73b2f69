/* Scans of one row of logits, for samplers. Scans are not operations of a graph. Results are bit-identical for every
 * instruction set. */
#ifndef HT_DEVICE_ROW_H
#define HT_DEVICE_ROW_H

#include <hearth/status.h>

#include <stdbool.h>
#include <stddef.h>
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

struct ht_device;

/* A search for the k highest values of each row. All memory is the device's. */
typedef struct ht_top_search {
    const float *x; /* [n_rows, n] */
    int64_t n_rows, n;
    int32_t k;
    void *scratch;
    /* [n_rows, k], in increasing order of index. For a row with a NaN or infinite value, id[row, 0] is -1 and the rest
     * is undefined. */
    float *value;
    int32_t *id;
} ht_top_search;

/* Finds the highest logits of rows in device memory, so that only these are copied to the host. */
typedef struct ht_top_ops {
    int32_t (*most)(int64_t n); /* largest k for a row of n values; 0: not supported */
    size_t (*scratch)(int64_t n_rows, int64_t n, int32_t k);
    /* Submits a search for the k <= n highest values of each row; ties go to the lower index. */
    ht_status (*run)(struct ht_device *d, const ht_top_search *search, ht_error *err);
} ht_top_ops;

#endif
