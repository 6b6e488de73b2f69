/* Log-sum-exp along the last axis. A chunk's partial is its maximum (`center`) and the sum of exp(x - center); NaN if
 * an element is. An infinite maximum is the result. */
#include "cpu/reference/reference.h"
#include "cpu/vector/exp_bounded.h"
#include "cpu/vector/reduce_chunks.h"
#include "cpu/vector/rows.h"
#include "cpu/vector/vector.h"

#include <math.h>

static ht_partial part_of(float most, float sum) {
    return (ht_partial){isnan(sum) ? (double)NAN : (double)most, (double)sum};
}

static bool has_nan(const float *x, int64_t n) {
    bool nan = false;
    for (int64_t i = 0; i < n; i++) nan |= x[i] != x[i];
    return nan;
}

static ht_partial reduce_row(const float *x, int64_t n) {
    v16f most[4], least = v16f_set1(-INFINITY);
    row_sum sum = row_sum_zero();
    int64_t i = 0;
    for (int k = 0; k < 4; k++) most[k] = least;
    for (; i + 64 <= n; i += 64) {
        HT_UNROLL
        for (int k = 0; k < 4; k++) most[k] = v16f_max(v16f_load(x + i + 16 * k), most[k]);
    }
    for (; i < n; i += 16) {
        const int lanes = lanes_count(n - i);
        most[0] = v16f_select(m16_first(lanes), v16f_max(v16f_load_n(x + i, lanes), most[0]), most[0]);
    }
    const float high = v16f_hmax(v16f_max(v16f_max(most[0], most[1]), v16f_max(most[2], most[3])));
    if (isinf(high)) return (ht_partial){has_nan(x, n) ? (double)NAN : (double)high, 1.0};
    const v16f off = v16f_set1(high);
    for (i = 0; i + 64 <= n; i += 64) {
        HT_UNROLL
        for (int k = 0; k < 4; k++) {
            HT_PREFETCH(x + i + 16 * k + HT_CHUNK); /* next chunk */
            sum.lane[k] = v16f_add(sum.lane[k], v16f_exp_bounded(v16f_sub(v16f_load(x + i + 16 * k), off)));
        }
    }
    for (; i < n; i += 16) {
        const int lanes = lanes_count(n - i), k = (int)(i / 16 % 4);
        const v16f p = v16f_exp_bounded(v16f_sub(v16f_load_n(x + i, lanes), off));
        sum.lane[k] = v16f_add(sum.lane[k], v16f_select(m16_first(lanes), p, v16f_zero()));
    }
    return part_of(high, row_sum_total(&sum));
}

static ht_partial combine(ht_partial a, ht_partial b) {
    if (isnan(a.center) || isnan(b.center)) return (ht_partial){(double)NAN, (double)NAN};
    const double high = fmax(a.center, b.center);
    if (isinf(high)) return (ht_partial){high, a.sum + b.sum};
    return (ht_partial){high, a.sum * exp(a.center - high) + b.sum * exp(b.center - high)};
}

static double result(ht_partial p, int64_t n) {
    (void)n;
    return isinf(p.center) || isnan(p.center) ? p.center : p.center + log(p.sum);
}

static const ht_chunk_ops ops = {reduce_row, combine, result, HT_GRAIN_MATH};

static ht_status logsumexp(const ht_call *call, ht_error *err) {
    return HT_ISA_NAME(ht_reduce_chunks)(call, &ops) ? HT_OK : ht_plain_logsumexp(call, err);
}

void HT_ISA_NAME(ht_vector_logsumexp)(ht_kernel kernels[HT_OP_COUNT]) {
    kernels[HT_OP_LOGSUMEXP] = (ht_kernel){.run = logsumexp, .scratch = HT_ISA_NAME(ht_reduce_chunks_scratch)};
}
