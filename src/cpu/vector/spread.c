/* Variances and sums of powers, in one pass over memory. Variances of pieces are variance.c's; of powers, blocks of 512 are
 * gone through twice while a cache has them, for the largest and for the powers around it. What pieces come to is joined in
 * order, so that no result depends on the number of threads. */
#include "base/dtype.h"
#include "base/math.h"
#include "cpu/each.h"
#include "cpu/reference/reference.h"
#include "cpu/reference/value.h"
#include "cpu/vector/math_double.h"
#include "cpu/vector/powers.h"
#include "cpu/vector/reduce.h"
#include "cpu/vector/variance.h"
#include "cpu/vector/vector.h"
#include "device/params.h"

#include <math.h>

enum {
    BLOCK = 512,             /* elements that are gone through twice */
    CHUNK = HT_REDUCE_BLOCK, /* of which this many make a piece of work */
    WIDTH = 32,              /* columns at a time, at least */
    PER_THREAD = 4,          /* pieces of columns, so that threads end together */
    LANES = 64,              /* partial sums, as in rows.h */
    AHEAD = 16               /* rows that are asked for before they are needed */
};

/* What some elements come to. VAR: their mean and the sum of squared distances from it. LOGSUMEXP: the largest, or NaN, and
 * the sum of e^(x - largest), or of e^x where that is infinite. */
typedef struct part {
    double middle, sum;
} part;

typedef struct spread_job {
    const ht_call *call;
    bool powers; /* LOGSUMEXP */
    bool contiguous;
    int64_t n, blocks;                           /* elements of a row or column, and blocks of them */
    int64_t stride, width, outer, piece, pieces; /* of columns */
    part *part;                                  /* [rows][blocks], or [outer][blocks][width] */
} spread_job;

/* e^x of x that are not positive; of those of f32 in that. */
static double power_of(bool wide, double x) {
    return x == 0.0 ? 1.0 : wide ? v1d_exp(x) : (double)ht_exp_f32((float)x);
}

static part joined(const spread_job *j, part a, double n_a, part b, double n_b) {
    const bool wide = j->call->in[0].dtype == HT_F64;
    if (!j->powers) {
        const ht_variance v =
            ht_variance_joined((ht_variance){a.middle, a.sum}, n_a, (ht_variance){b.middle, b.sum}, n_b);
        return (part){v.mean, v.squares};
    }
    if (isnan(a.middle) || isnan(b.middle)) return (part){(double)NAN, (double)NAN};
    const double high = fmax(a.middle, b.middle);
    if (isinf(high)) return (part){high, a.sum + b.sum};
    return (part){high, a.sum * power_of(wide, a.middle - high) + b.sum * power_of(wide, b.middle - high)};
}

static void store(const spread_job *j, int64_t at, part p) {
    const ht_view *out = &j->call->out;
    double y;
    if (!j->powers) {
        const double divisor = (double)(j->n - ((const ht_var_params *)j->call->params)->ddof);
        y = divisor > 0 ? p.sum / divisor : p.sum * (double)INFINITY;
    } else
        y = isinf(p.middle) || isnan(p.middle) ? p.middle : p.middle + log(p.sum);
    ht_set_f64(out->dtype, out->data, at, y);
}

/* ---- rows ---- */

static part powers_of(const float *x, int64_t n) {
    m16 nan;
    const float high = v16f_hmax(powers_max(x, n, 0, &nan));
    if (m16_any(nan)) return (part){(double)NAN, (double)NAN};
    row_sum sum = row_sum_zero();
    powers_add(x, n, v16f_set1(isinf(high) ? 0.0f : high), NULL, &sum, x + n);
    return (part){(double)high, (double)row_sum_total(&sum)};
}

/* Of n values, BLOCK at most. */
static part powers_of_f64(const double *x, int64_t n) {
    _Alignas(64) double power[BLOCK];
    double high = x[0], sum[LANES] = {0.0};
    for (int64_t i = 1; i < n; i++) high = x[i] > high || isnan(x[i]) ? x[i] : high;
    const v8d around = v8d_set1(isinf(high) ? 0.0 : high);
    for (int64_t i = 0; i < n; i += 8) {
        const v8d v = n - i < 8 ? v8d_load_n(x + i, (int)(n - i)) : v8d_load(x + i);
        v8d_store(power + i, v8d_exp(v8d_sub(v, around)));
    }
    ROW_SUM_F64(sum, LANES, power[i + k])
    return (part){high, sum[0]};
}

static part block_of_f64(const spread_job *j, int64_t at, int64_t stride, int64_t n) {
    _Alignas(64) double room[BLOCK];
    const double *p = (const double *)j->call->in[0].data + at;
    if (stride != 1) {
        ht_gather_elements((char *)room, (const char *)p, stride, n, sizeof *room);
        p = room;
    }
    return powers_of_f64(p, n);
}

/* Element `from` of a row, and the n behind it. */
static part block_of(const spread_job *j, int64_t row, int64_t from, int64_t n) {
    _Alignas(64) float room[BLOCK];
    const ht_view *x = &j->call->in[0];
    const int64_t stride = x->stride[x->n_dims - 1], at = row_offset(x, j->contiguous, row) + from * stride;
    if (x->dtype == HT_F64) return block_of_f64(j, at, stride, n);
    const float *p = (const float *)x->data + at;
    if (x->dtype != HT_F32 || stride != 1) {
        for (int64_t i = 0; i < n; i += 16) {
            const int lanes = lanes_of(n - i);
            v16f_store_n(room + i, lanes_load(x->dtype, x->data, at + i * stride, stride, lanes), lanes);
        }
        p = room;
    }
    return powers_of(p, n);
}

static part chunk_of(const spread_job *j, int64_t row, int64_t chunk) {
    const int64_t first = chunk * CHUNK, end = j->n - first < CHUNK ? j->n : first + CHUNK;
    part all = {0};
    if (!j->powers) {
        const ht_view *x = &j->call->in[0];
        const int64_t at = row_offset(x, j->contiguous, row) + first * j->stride;
        const ht_variance v = HT_ISA_NAME(ht_variance_of_row)(x, at, end - first);
        return (part){v.mean, v.squares};
    }
    for (int64_t i = first; i < end; i += BLOCK) {
        const int64_t n = end - i < BLOCK ? end - i : BLOCK;
        const part p = block_of(j, row, i, n);
        all = i > first ? joined(j, all, (double)(i - first), p, (double)n) : p;
    }
    return all;
}

static double count_of(const spread_job *j, int64_t block) {
    return (double)(j->n - block * CHUNK < CHUNK ? j->n - block * CHUNK : CHUNK);
}

/* Parts of one row or column, `step` from one to the next. */
static void finish(const spread_job *j, int64_t at, const part *p, int64_t step) {
    part all = p[0];
    for (int64_t b = 1; b < j->blocks; b++) all = joined(j, all, (double)(b * CHUNK), p[b * step], count_of(j, b));
    store(j, at, all);
}

static void run_blocks(void *arg, int64_t begin, int64_t end, int worker) {
    (void)worker;
    const spread_job *j = arg;
    for (int64_t unit = begin; unit < end; unit++) {
        const part p = chunk_of(j, unit / j->blocks, unit % j->blocks);
        if (j->blocks > 1)
            j->part[unit] = p;
        else
            store(j, unit, p);
    }
}

static void finish_rows(void *arg, int64_t begin, int64_t end, int worker) {
    (void)worker;
    const spread_job *j = arg;
    for (int64_t row = begin; row < end; row++) finish(j, row, j->part + row * j->blocks, 1);
}

/* ---- columns ----
 *
 * The same steps as for rows, a column to a lane, so that the layout changes no result: 64 partial sums take elements in
 * turn and are added pairwise. */

/* Some rows of some columns, as f32 behind each other. Whole registers: what is behind the last column is 0. */
static void bring(const spread_job *j, int64_t at, int64_t rows, int64_t left, int64_t w, float *to) {
    const ht_view *x = &j->call->in[0];
    const int64_t bytes = (int64_t)ht_dtype_bytes(x->dtype);
    for (int64_t r = 0; r < rows; r++) {
        const int64_t from = at + r * j->stride;
        const char *ahead = (const char *)x->data + (from + AHEAD * j->stride) * bytes;
        if (r + AHEAD < left)
            for (int64_t b = 0; b < w * bytes; b += 64) HT_PREFETCH(ahead + b);
        for (int64_t c = 0; c < w; c += 16)
            v16f_store(to + r * WIDTH + c, lanes_load(x->dtype, x->data, from + c, 1, lanes_of(w - c)));
    }
}

/* The tree of row_sum_total. */
HT_INLINE v16f add_lanes(float (*lane)[16]) {
    for (int i = 0; i < 16; i++) {
        const v16f a = v16f_add(v16f_load(lane[i]), v16f_load(lane[i + 16]));
        v16f_store(lane[i], v16f_add(a, v16f_add(v16f_load(lane[i + 32]), v16f_load(lane[i + 48]))));
    }
    for (int half = 8; half > 0; half /= 2)
        for (int i = 0; i < half; i++) v16f_store(lane[i], v16f_add(v16f_load(lane[i]), v16f_load(lane[i + half])));
    return v16f_load(lane[0]);
}

static void powers_block(const float *x, int64_t n, float *high, float *sum) {
    _Alignas(64) float lane[LANES][16];
    const v16f infinity = v16f_set1(INFINITY);
    v16f most[4] = {v16f_neg(infinity), v16f_neg(infinity), v16f_neg(infinity), v16f_neg(infinity)};
    for (int64_t r = 0; r < n; r++) most[r % 4] = v16f_max(v16f_load(x + r * WIDTH), most[r % 4]);
    most[0] = v16f_max(v16f_max(most[0], most[1]), v16f_max(most[2], most[3]));
    const v16f around = v16f_select(v16f_eq(v16f_abs(most[0]), infinity), v16f_zero(), most[0]);
    for (int64_t l = 0; l < LANES; l++) {
        v16f s = v16f_zero();
        for (int64_t r = l; r < n; r += LANES) s = v16f_add(s, v16f_exp(v16f_sub(v16f_load(x + r * WIDTH), around)));
        v16f_store(lane[l], s);
    }
    v16f_store(high, most[0]);
    v16f_store(sum, add_lanes(lane));
}

/* Sixteen columns of a block, joined with what was before. */
static void join_block(const spread_job *j, const float *x, int64_t n, int64_t before, part *all) {
    _Alignas(64) float high[16], sum[16];
    powers_block(x, n, high, sum);
    for (int i = 0; i < 16; i++) {
        const part p = isnan(sum[i]) ? (part){(double)NAN, (double)NAN} : (part){(double)high[i], (double)sum[i]};
        all[i] = before ? joined(j, all[i], (double)before, p, (double)n) : p;
    }
}

/* Powers of n rows of w columns, a block at a time. */
static void powers_of_columns(const spread_job *j, int64_t at, int64_t n, int64_t w, part *all) {
    _Alignas(64) float some[BLOCK * WIDTH];
    for (int64_t r = 0; r < n; r += BLOCK) {
        const int64_t rows = n - r < BLOCK ? n - r : BLOCK;
        bring(j, at + r * j->stride, rows, n - r, w, some);
        for (int64_t i = 0; i < w; i += 16) join_block(j, some + i, rows, r, all + i);
    }
}

static void variance_of_columns(const spread_job *j, int64_t at, int64_t n, int64_t w, part *all) {
    ht_variance v[HT_VARIANCE_WIDTH];
    HT_ISA_NAME(ht_variance_of_columns)(&j->call->in[0], at, n, w, v);
    for (int64_t i = 0; i < w; i++) all[i] = (part){v[i].mean, v[i].squares};
}

static void run_columns(void *arg, int64_t begin, int64_t end, int worker) {
    (void)worker;
    const spread_job *j = arg;
    const ht_view *x = &j->call->in[0];
    part all[HT_VARIANCE_WIDTH];
    for (int64_t unit = begin; unit < end; unit++) {
        const int64_t c = unit % j->pieces * j->piece, w = j->width - c < j->piece ? j->width - c : j->piece;
        const int64_t chunk = unit / j->pieces % j->blocks, outer = unit / j->pieces / j->blocks, from = chunk * CHUNK;
        const int64_t n = j->n - from < CHUNK ? j->n - from : CHUNK;
        const int64_t at = ht_view_offset(x, x->n_dims - 2, outer) + c + from * j->stride;
        (j->powers ? powers_of_columns : variance_of_columns)(j, at, n, w, all);
        for (int64_t i = 0; i < w; i++) {
            if (j->blocks > 1)
                j->part[(outer * j->blocks + chunk) * j->width + c + i] = all[i];
            else
                store(j, outer * j->width + c + i, all[i]);
        }
    }
}

static void finish_columns(void *arg, int64_t begin, int64_t end, int worker) {
    (void)worker;
    const spread_job *j = arg;
    for (int64_t i = begin; i < end; i++) {
        const int64_t outer = i / j->width, c = i % j->width;
        finish(j, i, j->part + outer * j->blocks * j->width + c, j->width);
    }
}

/* ---- calls ---- */

static bool lay_job(const ht_call *call, bool powers, spread_job *j) {
    const ht_view *x = &call->in[0];
    const int last = x->n_dims - 1;
    if (!ht_dtype_is_float(x->dtype) || x->shape[last] < 1) return false;
    *j = (spread_job){.call = call,
                      .powers = powers,
                      .contiguous = ht_view_contiguous(x),
                      .n = x->shape[last],
                      .blocks = (x->shape[last] + CHUNK - 1) / CHUNK,
                      .stride = x->stride[last]};
    if (x->dtype == HT_F64 || last < 1 || x->stride[last] == 1 || x->stride[last - 1] != 1 || x->shape[last - 1] < 2)
        return true;
    j->width = x->shape[last - 1];
    j->outer = 1;
    for (int d = 0; d < last - 1; d++) j->outer *= x->shape[d];
    return true;
}

static size_t scratch(const ht_call *call) {
    spread_job j;
    if (!lay_job(call, false, &j) || j.blocks == 1) return 0;
    return (size_t)(row_count(&call->in[0]) * j.blocks) * sizeof(part);
}

static bool spread(const ht_call *call, bool powers) {
    spread_job j;
    if (!lay_job(call, powers, &j)) return false;
    j.part = call->scratch;
    const int64_t grain = powers ? HT_GRAIN_MATH : HT_GRAIN_CHEAP, most = j.n < CHUNK ? j.n : CHUNK;
    const int64_t rows = row_count(&call->in[0]);
    if (j.width) {
        const int64_t threads = ht_pool_threads(call->pool), wanted = threads > 1 ? PER_THREAD * threads : 1;
        j.piece = powers ? WIDTH : HT_VARIANCE_WIDTH;
        while (j.piece > WIDTH && j.outer * j.blocks * (j.width / j.piece) < wanted) j.piece /= 2;
        j.pieces = (j.width + j.piece - 1) / j.piece;
        ht_pool_run(call->pool, j.outer * j.blocks * j.pieces,
                    ht_row_grain(grain, most * (j.width < j.piece ? j.width : j.piece)), run_columns, &j);
        if (j.blocks > 1) ht_pool_run(call->pool, rows, ht_row_grain(grain, j.blocks), finish_columns, &j);
        return true;
    }
    ht_pool_run(call->pool, rows * j.blocks, ht_row_grain(grain, most), run_blocks, &j);
    if (j.blocks > 1) ht_pool_run(call->pool, rows, ht_row_grain(grain, j.blocks), finish_rows, &j);
    return true;
}

static ht_status var(const ht_call *call, ht_error *err) {
    return spread(call, false) ? HT_OK : ht_plain_var(call, err);
}
static ht_status logsumexp(const ht_call *call, ht_error *err) {
    return spread(call, true) ? HT_OK : ht_plain_logsumexp(call, err);
}

void HT_ISA_NAME(ht_vector_spread)(ht_kernel kernels[HT_OP_COUNT]) {
    kernels[HT_OP_VAR] = (ht_kernel){.run = var, .scratch = scratch};
    kernels[HT_OP_LOGSUMEXP] = (ht_kernel){.run = logsumexp, .scratch = scratch};
}
