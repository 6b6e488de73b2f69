/* Variances and sums of powers, in one pass over memory. Variances of pieces are variance.c's, powers powers_sum.c's; of f64,
 * blocks of 512 are gone through twice while a cache has them, for the largest and for the powers around it. What pieces
 * come to is joined in order, so that no result depends on the number of threads. */
#include "base/checked.h"
#include "base/dtype.h"
#include "base/math.h"
#include "cpu/each.h"
#include "cpu/reference/reference.h"
#include "cpu/reference/value.h"
#include "cpu/vector/math_double.h"
#include "cpu/vector/powers_sum.h"
#include "cpu/vector/reduce.h"
#include "cpu/vector/rows.h"
#include "cpu/vector/variance.h"
#include "cpu/vector/vector.h"
#include "device/params.h"

#include <math.h>

enum {
    BLOCK = 512,             /* elements of f64 that are gone through twice */
    CHUNK = HT_REDUCE_BLOCK, /* of which this many make a piece of work */
    WIDTH = 32,              /* columns at a time, at least */
    LANES = 64               /* partial sums of f64, as in rows.h */
};

/* What some elements come to. VAR: their mean and the sum of squared distances from it. LOGSUMEXP: something near the
 * largest, or NaN, and the sum of e^(x - it), which does not matter where it is infinite. */
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
    int64_t room;                                /* floats that a piece of columns takes */
    float *rooms;                                /* one a thread */
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

static part of_powers(ht_powers p) {
    return isnan(p.sum) ? (part){(double)NAN, (double)NAN} : (part){p.high, (double)p.sum};
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

static part part_of_f64(const spread_job *j, int64_t at, int64_t n) {
    part all = {0};
    for (int64_t i = 0; i < n; i += BLOCK) {
        const int64_t some = n - i < BLOCK ? n - i : BLOCK;
        const part p = block_of_f64(j, at + i * j->stride, j->stride, some);
        all = i > 0 ? joined(j, all, (double)i, p, (double)some) : p;
    }
    return all;
}

/* Of `some` units from `unit` on, HT_POWERS_ROWS at most. */
static void parts_of(const spread_job *j, int64_t unit, int some, part *to) {
    const ht_view *x = &j->call->in[0];
    int64_t at[HT_POWERS_ROWS] = {0}, n[HT_POWERS_ROWS] = {0};
    for (int i = 0; i < some; i++) {
        const int64_t first = (unit + i) % j->blocks * CHUNK, left = j->n - first;
        at[i] = row_offset(x, j->contiguous, (unit + i) / j->blocks) + first * j->stride;
        n[i] = left < CHUNK ? left : CHUNK;
    }
    if (j->powers && x->dtype != HT_F64) {
        ht_powers powers[HT_POWERS_ROWS];
        HT_ISA_NAME(ht_powers_of_rows)(x, at, n, some, powers);
        for (int i = 0; i < some; i++) to[i] = of_powers(powers[i]);
        return;
    }
    for (int i = 0; i < some; i++) {
        if (j->powers)
            to[i] = part_of_f64(j, at[i], n[i]);
        else {
            const ht_variance v = HT_ISA_NAME(ht_variance_of_row)(x, at[i], n[i]);
            to[i] = (part){v.mean, v.squares};
        }
    }
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
    part p[HT_POWERS_ROWS];
    for (int64_t unit = begin; unit < end; unit += HT_POWERS_ROWS) {
        const int some = end - unit < HT_POWERS_ROWS ? (int)(end - unit) : HT_POWERS_ROWS;
        parts_of(j, unit, some, p);
        for (int i = 0; i < some; i++) {
            if (j->blocks > 1)
                j->part[unit + i] = p[i];
            else
                store(j, unit + i, p[i]);
        }
    }
}

static void finish_rows(void *arg, int64_t begin, int64_t end, int worker) {
    (void)worker;
    const spread_job *j = arg;
    for (int64_t row = begin; row < end; row++) finish(j, row, j->part + row * j->blocks, 1);
}

/* ---- columns ---- */

/* What `some` columns from c on come to, of a piece of w. */
static void columns_of(const spread_job *j, int64_t at, int64_t n, int64_t w, float *room, int64_t c, int64_t some,
                       part *all) {
    const ht_view *x = &j->call->in[0];
    if (j->powers) {
        ht_powers p[COLUMNS_TOTALS];
        HT_ISA_NAME(ht_powers_of_columns)(x, at, n, w, room, c, some, p);
        for (int64_t i = 0; i < some; i++) all[i] = of_powers(p[i]);
    } else {
        ht_variance v[COLUMNS_TOTALS];
        HT_ISA_NAME(ht_variance_of_columns)(x, at, n, w, room, c, some, v);
        for (int64_t i = 0; i < some; i++) all[i] = (part){v[i].mean, v[i].squares};
    }
}

static void run_columns(void *arg, int64_t begin, int64_t end, int worker) {
    const spread_job *j = arg;
    const ht_view *x = &j->call->in[0];
    float *const room = j->rooms + worker * j->room;
    part all[COLUMNS_TOTALS];
    for (int64_t unit = begin; unit < end; unit++) {
        const int64_t c = unit % j->pieces * j->piece, w = j->width - c < j->piece ? j->width - c : j->piece;
        const int64_t chunk = unit / j->pieces % j->blocks, outer = unit / j->pieces / j->blocks, row = chunk * CHUNK;
        const int64_t n = j->n - row < CHUNK ? j->n - row : CHUNK;
        const int64_t at = ht_view_offset(x, x->n_dims - 2, outer) + c + row * j->stride;
        (j->powers ? HT_ISA_NAME(ht_powers_add_columns) : HT_ISA_NAME(ht_variance_add_columns))(x, at, n, w, room);
        for (int64_t from = 0; from < w; from += COLUMNS_TOTALS) {
            const int64_t some = w - from < COLUMNS_TOTALS ? w - from : COLUMNS_TOTALS;
            columns_of(j, at, n, w, room, from, some, all);
            for (int64_t i = 0; i < some; i++) {
                if (j->blocks > 1)
                    j->part[(outer * j->blocks + chunk) * j->width + c + from + i] = all[i];
                else
                    store(j, outer * j->width + c + from + i, all[i]);
            }
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
    const int64_t threads = ht_pool_threads(call->pool);
    const int64_t wanted = threads > 1 ? threads * columns_pieces() : 1;
    j->piece = columns_widest();
    while (j->piece > WIDTH && j->outer * j->blocks * ((j->width + j->piece - 1) / j->piece) < wanted) j->piece /= 2;
    j->pieces = (j->width + j->piece - 1) / j->piece;
    const int64_t widest = ht_min_i64(j->piece, j->width);
    j->room = powers ? ht_powers_room(widest) : ht_variance_room(widest);
    return true;
}

/* The scratch memory holds the parts, if there are several of a result, and rooms; of how many bytes. */
static size_t lay_scratch(spread_job *j, char *at) {
    const size_t parts = j->blocks > 1 ? (size_t)(row_count(&j->call->in[0]) * j->blocks) * sizeof(part) : 0;
    const size_t rooms = (parts + 63) / 64 * 64;
    j->part = (part *)(void *)at;
    j->rooms = at ? (float *)(void *)(at + rooms) : NULL;
    return j->width ? rooms + (size_t)(ht_pool_threads(j->call->pool) * j->room) * sizeof(float) : parts;
}

static size_t scratch(const ht_call *call, bool powers) {
    spread_job j;
    return lay_job(call, powers, &j) ? lay_scratch(&j, NULL) : 0;
}
static size_t var_scratch(const ht_call *call) { return scratch(call, false); }
static size_t logsumexp_scratch(const ht_call *call) { return scratch(call, true); }

static bool spread(const ht_call *call, bool powers) {
    spread_job j;
    if (!lay_job(call, powers, &j)) return false;
    lay_scratch(&j, call->scratch);
    const int64_t grain = powers ? HT_GRAIN_MATH : HT_GRAIN_CHEAP, most = j.n < CHUNK ? j.n : CHUNK;
    const int64_t rows = row_count(&call->in[0]);
    if (j.width) {
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
    kernels[HT_OP_VAR] = (ht_kernel){.run = var, .scratch = var_scratch};
    kernels[HT_OP_LOGSUMEXP] = (ht_kernel){.run = logsumexp, .scratch = logsumexp_scratch};
}
