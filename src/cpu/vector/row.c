/* Logit scans over one row (device/row.h). */
#include "device/row.h"

#include "cpu/device.h"
#include "cpu/vector/math.h"

#include <float.h>

static int lanes_left(int64_t n) { return n < 16 ? (int)n : 16; }

static bool maxima(const float *x, int64_t n, float *block_max) {
    v16f poison = v16f_zero(); /* NaN after any non-finite value, since only finite x have 0 * x = 0 */
    for (int64_t first = 0; first < n; first += HT_ROW_BLOCK) {
        int64_t end = n - first < HT_ROW_BLOCK ? n : first + HT_ROW_BLOCK, i = first;
        v16f max[2] = {v16f_set1(-FLT_MAX), v16f_set1(-FLT_MAX)};
        for (; i + 32 <= end; i += 32)
            for (int k = 0; k < 2; k++) {
                v16f v = v16f_load(x + i + 16 * k);
                max[k] = v16f_max(v, max[k]);
                poison = v16f_fma(v, v16f_zero(), poison);
            }
        for (; i < end; i += 16) {
            int lanes = lanes_left(end - i);
            v16f v = v16f_load_n(x + i, lanes);
            max[0] = v16f_max(v16f_select(m16_first(lanes), v, v16f_set1(-FLT_MAX)), max[0]);
            poison = v16f_fma(v, v16f_zero(), poison);
        }
        block_max[first / HT_ROW_BLOCK] = v16f_hmax(v16f_max(max[0], max[1]));
    }
    return !m16_any(v16f_is_nan(poison));
}

/* Flushes explicitly: callers' threads keep denormals. */
HT_INLINE v16f weight_of(v16f x, v16f max, v16f scale) {
    const v16f w = v16f_exp(v16f_mul(v16f_sub(x, max), scale));
    return v16f_select(v16f_lt(w, v16f_set1(FLT_MIN)), v16f_zero(), w);
}

static void weights(const float *x, int64_t n, float max, float scale, float *w) {
    v16f m = v16f_set1(max), s = v16f_set1(scale);
    int64_t i = 0;
    for (; i + 16 <= n; i += 16) v16f_store(w + i, weight_of(v16f_load(x + i), m, s));
    if (i < n) v16f_store_n(w + i, weight_of(v16f_load_n(x + i, (int)(n - i)), m, s), (int)(n - i));
}

/* w where x >= from, or x > from if strict; else 0. */
HT_INLINE v16f kept(v16f x, v16f w, v16f from, bool strict) {
    return strict ? v16f_select(v16f_gt(x, from), w, v16f_zero()) : v16f_select(v16f_lt(x, from), v16f_zero(), w);
}

HT_INLINE double mass_of(const float *x, int64_t n, float max, float scale, float from, bool strict) {
    v16f m = v16f_set1(max), s = v16f_set1(scale), f = v16f_set1(from), sum = v16f_zero();
    int64_t i = 0;
    for (; i + 16 <= n; i += 16) {
        v16f v = v16f_load(x + i);
        sum = v16f_add(sum, kept(v, weight_of(v, m, s), f, strict));
    }
    if (i < n) {
        v16f v = v16f_load_n(x + i, (int)(n - i));
        sum = v16f_add(sum, v16f_select(m16_first((int)(n - i)), kept(v, weight_of(v, m, s), f, strict), v16f_zero()));
    }
    return (double)v16f_sum(sum);
}

static double mass(const float *x, int64_t n, float max, float scale, float from, bool strict) {
    return strict ? mass_of(x, n, max, scale, from, true) : mass_of(x, n, max, scale, from, false);
}

/* Autovectorised C, which rounds identically on every instruction set. */
static void buckets(const float *x, int64_t n, float low, float high, float per_bucket, uint16_t *bucket) {
    const float last = HT_ROW_BUCKETS - 1;
    for (int64_t i = 0; i < n; i++) {
        float at = (high - x[i]) * per_bucket;
        at = at < last ? at : last;
        at = x[i] > high || x[i] < low ? (float)HT_ROW_BUCKETS : at;
        bucket[i] = (uint16_t)(int32_t)at;
    }
}

const ht_row_ops HT_ISA_NAME(ht_vector_row) = {.maxima = maxima, .weights = weights, .mass = mass, .buckets = buckets};
