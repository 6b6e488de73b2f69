/* Variance along the last axis, in two passes per chunk: the mean (`center`), then the sum of squared differences. */
#include "cpu/reference/reference.h"
#include "cpu/vector/columns.h"
#include "cpu/vector/reduce_chunks.h"
#include "cpu/vector/rows.h"
#include "cpu/vector/vector.h"
#include "device/params.h"

#include <math.h>

/* Corrects the sum of squares by the sum of differences, which is non-zero because the mean is rounded. */
static ht_partial part_of(float mean, float off, float squares, int64_t n) {
    const double e = (double)off / (double)n;
    return (ht_partial){(double)mean + e, (double)squares - (double)off * e};
}

HT_INLINE void add_distance(v16f d, v16f *sum, v16f *squares) {
    *sum = v16f_add(*sum, d);
    *squares = v16f_fma(d, d, *squares);
}

static ht_partial reduce_row(const float *x, int64_t n) {
    row_sum sum = row_sum_zero(), squares = row_sum_zero();
    int64_t i = 0;
    for (; i + 64 <= n; i += 64) {
        HT_UNROLL
        for (int k = 0; k < 4; k++) sum.lane[k] = v16f_add(sum.lane[k], v16f_load(x + i + 16 * k));
    }
    for (; i < n; i += 16)
        sum.lane[i / 16 % 4] = v16f_add(sum.lane[i / 16 % 4], v16f_load_n(x + i, lanes_count(n - i)));
    const float mean = row_sum_total(&sum) / (float)n;
    const v16f center = v16f_set1(mean);
    sum = row_sum_zero();
    for (i = 0; i + 64 <= n; i += 64) {
        HT_UNROLL
        for (int k = 0; k < 4; k++)
            add_distance(v16f_sub(v16f_load(x + i + 16 * k), center), &sum.lane[k], &squares.lane[k]);
    }
    for (; i < n; i += 16) {
        const int lanes = lanes_count(n - i), k = (int)(i / 16 % 4);
        const v16f d = v16f_select(m16_first(lanes), v16f_sub(v16f_load_n(x + i, lanes), center), v16f_zero());
        add_distance(d, &sum.lane[k], &squares.lane[k]);
    }
    return part_of(mean, row_sum_total(&sum), row_sum_total(&squares), n);
}

HT_INLINE void of_columns_in(ht_dtype t, const void *x, int64_t step, int64_t n, int64_t w, ht_partial *to) {
    _Alignas(64) float mean[COLUMNS_WIDTH], off[COLUMNS_WIDTH], total[COLUMNS_WIDTH];
    columns_sum sum, squares;
    columns_begin(&sum, w);
    for (int64_t r = 0; r < n; r++)
        for (int64_t c = 0; c < w; c += 16) {
            float *to_sum = sum.lane[r % COLUMNS_LANES] + c;
            v16f_store(to_sum, v16f_add(v16f_load(to_sum), lanes_load(t, x, r * step + c, 1, lanes_count(w - c))));
        }
    columns_total(&sum, w, mean);
    for (int64_t c = 0; c < w; c += 16) v16f_store(mean + c, v16f_div(v16f_load(mean + c), v16f_set1((float)n)));
    columns_begin(&sum, w);
    columns_begin(&squares, w);
    for (int64_t r = 0; r < n; r++)
        for (int64_t c = 0; c < w; c += 16) {
            float *to_sum = sum.lane[r % COLUMNS_LANES] + c, *to_squares = squares.lane[r % COLUMNS_LANES] + c;
            v16f e = v16f_load(to_sum), q = v16f_load(to_squares);
            add_distance(v16f_sub(lanes_load(t, x, r * step + c, 1, lanes_count(w - c)), v16f_load(mean + c)), &e, &q);
            v16f_store(to_sum, e);
            v16f_store(to_squares, q);
        }
    columns_total(&sum, w, off);
    columns_total(&squares, w, total);
    for (int64_t c = 0; c < w; c++) to[c] = part_of(mean[c], off[c], total[c], n);
}

static void reduce_columns(ht_dtype t, const void *x, int64_t step, int64_t n, int64_t w, ht_partial *to) {
    if (t == HT_F32)
        of_columns_in(HT_F32, x, step, n, w, to);
    else if (t == HT_F16)
        of_columns_in(HT_F16, x, step, n, w, to);
    else
        of_columns_in(HT_BF16, x, step, n, w, to);
}

/* Parallel combination [Chan, Golub, LeVeque: Updating formulae and a pairwise algorithm for computing sample
 * variances, 1979]. */
static ht_partial combine(ht_partial a, double n_a, ht_partial b, double n_b) {
    const double off = b.center - a.center, n = n_a + n_b;
    return (ht_partial){a.center + off * (n_b / n), a.sum + b.sum + off * off * (n_a * n_b / n)};
}

static double result(const ht_call *call, ht_partial p, int64_t n) {
    const double divisor = (double)(n - ((const ht_var_params *)call->params)->ddof);
    return divisor > 0 ? p.sum / divisor : p.sum * (double)INFINITY;
}

static const ht_chunk_ops ops = {reduce_row, reduce_columns, combine, result, HT_GRAIN_CHEAP};

static ht_status var(const ht_call *call, ht_error *err) {
    return HT_ISA_NAME(ht_reduce_chunks)(call, &ops) ? HT_OK : ht_plain_var(call, err);
}

void HT_ISA_NAME(ht_vector_variance)(ht_kernel kernels[HT_OP_COUNT]) {
    kernels[HT_OP_VAR] = (ht_kernel){.run = var, .scratch = HT_ISA_NAME(ht_reduce_chunks_scratch)};
}
