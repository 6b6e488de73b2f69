/* Row reductions of f64 and integers, and products of any dtype (computed in f64 for floats). Long rows are split into
 * chunks, combined in order. Loops are autovectorised C. */
#include "base/total.h"
#include "cpu/call.h"
#include "cpu/element.h"
#include "cpu/vector/elementwise.h"
#include "cpu/vector/reduce.h"
#include "cpu/vector/rows.h"
#include "cpu/vector/simd_int.h"
#include "cpu/vector/vector.h"

#include <math.h>

enum { LANES = 64, CHUNK_BYTES = 32768, STAGED = 512 };

/* Partial result; u64 values are stored as int64_t bits. */
typedef union part {
    int64_t whole;
    double real;
} part;

/* Reduces n > 0 contiguous elements. */
typedef part fold_fn(const void *x, int64_t n);
/* Index of the first element equal to `what`, or of the first NaN if `what` is NaN; n if there is none. */
typedef int64_t find_fn(const void *x, int64_t n, part what);

/* ---- integers ---- */

/* Sums use one accumulator, products four, because multiplications have a longer latency. */
#define INTEGER_FOLDS(kind, type, near, wide)                                                                          \
    static part sum_##kind(const void *in, int64_t n) {                                                                \
        const type *x = in;                                                                                            \
        wide sum = 0;                                                                                                  \
        for (int64_t i = 0; i < n; i++) {                                                                              \
            const near v = x[i];                                                                                       \
            sum += (wide)v;                                                                                            \
        }                                                                                                              \
        return (part){.whole = (int64_t)sum};                                                                          \
    }                                                                                                                  \
    static part prod_##kind(const void *in, int64_t n) {                                                               \
        const type *x = in;                                                                                            \
        const int64_t q = n / 4;                                                                                       \
        wide a = 1, b = 1, c = 1, d = 1;                                                                               \
        for (int64_t i = 0; i < q; i++) {                                                                              \
            const near v = x[i], v1 = x[q + i], v2 = x[2 * q + i], v3 = x[3 * q + i];                                  \
            a *= (wide)v;                                                                                              \
            b *= (wide)v1;                                                                                             \
            c *= (wide)v2;                                                                                             \
            d *= (wide)v3;                                                                                             \
        }                                                                                                              \
        for (int64_t i = 4 * q; i < n; i++) {                                                                          \
            const near v = x[i];                                                                                       \
            a *= (wide)v;                                                                                              \
        }                                                                                                              \
        return (part){.whole = (int64_t)(a * b * c * d)};                                                              \
    }                                                                                                                  \
    static part max_##kind(const void *in, int64_t n) {                                                                \
        const type *x = in;                                                                                            \
        type best = x[0];                                                                                              \
        for (int64_t i = 1; i < n; i++) best = x[i] > best ? x[i] : best;                                              \
        return (part){.whole = (int64_t)best};                                                                         \
    }                                                                                                                  \
    static part min_##kind(const void *in, int64_t n) {                                                                \
        const type *x = in;                                                                                            \
        type best = x[0];                                                                                              \
        for (int64_t i = 1; i < n; i++) best = x[i] < best ? x[i] : best;                                              \
        return (part){.whole = (int64_t)best};                                                                         \
    }                                                                                                                  \
    static int64_t find_##kind(const void *in, int64_t n, part what) {                                                 \
        const type *x = in, v = (type)what.whole;                                                                      \
        int64_t i = 0;                                                                                                 \
        for (; i + LANES <= n; i += LANES) {                                                                           \
            type hit = 0;                                                                                              \
            for (int k = 0; k < LANES; k++) hit |= (type)(x[i + k] == v);                                              \
            if (hit) break;                                                                                            \
        }                                                                                                              \
        while (i < n && x[i] != v) i++;                                                                                \
        return i;                                                                                                      \
    }

INTEGER_FOLDS(u8, uint8_t, uint32_t, uint32_t)
INTEGER_FOLDS(u16, uint16_t, uint32_t, uint32_t)
INTEGER_FOLDS(u32, uint32_t, uint32_t, uint32_t)
INTEGER_FOLDS(u64, uint64_t, uint64_t, uint64_t)
INTEGER_FOLDS(i8, int8_t, int32_t, uint32_t)
INTEGER_FOLDS(i16, int16_t, int32_t, uint32_t)
INTEGER_FOLDS(i32, int32_t, int32_t, uint32_t)
INTEGER_FOLDS(i64, int64_t, int64_t, uint64_t)

/* Bool bytes of foreign arrays may have any non-zero value for true. */
static part sum_bool(const void *in, int64_t n) {
    const uint8_t *x = in;
    uint32_t sum = 0;
    for (int64_t i = 0; i < n; i++) sum += x[i] != 0;
    return (part){.whole = sum};
}

/* High bit of every zero byte (and possibly of bytes above one): non-zero if any byte is zero. */
HT_INLINE v16i zero_bytes(v16i x) {
    const v16i ones = v16i_set1(0x01010101), high = v16i_set1((int32_t)0x80808080u); /* a zero byte borrows */
    return v16i_and(v16i_and(v16i_sub(x, ones), v16i_xor(x, v16i_set1(-1))), high);
}

/* Accumulates evidence of a deciding byte: non-zero if `any`, else zero. */
HT_INLINE v16i accumulate_bytes(v16i kept, const void *p, bool any) {
    const v16i x = v16i_load_bytes(p);
    return v16i_or(kept, any ? x : zero_bytes(x));
}

HT_INLINE bool any_set(v16i kept) {
    int32_t lane[16], all = 0;
    v16i_store(lane, kept);
    for (int i = 0; i < 16; i++) all |= lane[i];
    return all != 0;
}

/* any or all: whether a byte decides; stops within a kilobyte behind it. */
HT_INLINE bool any_byte_decides(const void *in, int64_t n, bool any) {
    enum { AT_ONCE = 1024 };
    const uint8_t *x = in;
    int64_t i = 0;
    v16i kept = v16i_set1(0);
    for (; i + AT_ONCE <= n; i += AT_ONCE) {
        for (int b = 0; b < AT_ONCE; b += 64) kept = accumulate_bytes(kept, x + i + b, any);
        if (any_set(kept)) return true;
    }
    for (; i + 64 <= n; i += 64) kept = accumulate_bytes(kept, x + i, any);
    if (i < n) {
        uint8_t padded[64];
        memset(padded, any ? 0 : 1, sizeof padded);
        memcpy(padded, x + i, (size_t)(n - i));
        kept = accumulate_bytes(kept, padded, any);
    }
    return any_set(kept);
}
static part max_bool(const void *x, int64_t n) { return (part){.whole = any_byte_decides(x, n, true)}; }
static part min_bool(const void *x, int64_t n) { return (part){.whole = !any_byte_decides(x, n, false)}; }
static int64_t find_bool(const void *in, int64_t n, part what) {
    const uint8_t *x = in;
    int64_t i = 0;
    for (; i + LANES <= n; i += LANES) {
        uint8_t hit = 0;
        for (int k = 0; k < LANES; k++) hit |= (uint8_t)((x[i + k] != 0) == (what.whole != 0));
        if (hit) break;
    }
    while (i < n && (x[i] != 0) != (what.whole != 0)) i++;
    return i;
}

/* ---- f64 ---- */

/* Distributes elements over the lanes in rotation; `step` combines lane k (a) with element b. */
#define FOLD_INTO_LANES(step)                                                                                          \
    int64_t i = 0;                                                                                                     \
    for (; i + LANES <= n; i += LANES) {                                                                               \
        HT_VECTORISE                                                                                                   \
        for (int k = 0; k < LANES; k++) {                                                                              \
            const double a = lane[k], b = x[i + k];                                                                    \
            step;                                                                                                      \
        }                                                                                                              \
    }                                                                                                                  \
    for (int k = 0; i + k < n; k++) {                                                                                  \
        const double a = lane[k], b = x[i + k];                                                                        \
        step;                                                                                                          \
    }

/* Lanes are combined pairwise, in an order that depends on n alone. */
#define LANES_OF_F64(name, start, joined)                                                                              \
    static part name(const void *in, int64_t n) {                                                                      \
        const double *x = in;                                                                                          \
        double lane[LANES];                                                                                            \
        for (int k = 0; k < LANES; k++) lane[k] = start;                                                               \
        FOLD_INTO_LANES(lane[k] = joined)                                                                              \
        for (int half = LANES / 2; half > 0; half /= 2)                                                                \
            for (int k = 0; k < half; k++) {                                                                           \
                const double a = lane[k], b = lane[k + half];                                                          \
                lane[k] = joined;                                                                                      \
            }                                                                                                          \
        return (part){.real = lane[0]};                                                                                \
    }
LANES_OF_F64(sum_f64, 0.0, a + b)
LANES_OF_F64(prod_f64, 1.0, a *b)

/* Any NaN is the result. */
#define EXTREME_OF_F64(name, start, is_better)                                                                         \
    static part name(const void *in, int64_t n) {                                                                      \
        const double *x = in;                                                                                          \
        double lane[LANES], nan[LANES] = {0.0};                                                                        \
        for (int k = 0; k < LANES; k++) lane[k] = start;                                                               \
        FOLD_INTO_LANES(lane[k] = is_better ? b : a; nan[k] = b != b ? b : nan[k])                                     \
        double best = lane[0];                                                                                         \
        for (int k = 1; k < LANES; k++) {                                                                              \
            const double a = best, b = lane[k];                                                                        \
            best = is_better ? b : a;                                                                                  \
        }                                                                                                              \
        for (int k = 0; k < LANES; k++) best = nan[k] != nan[k] ? nan[k] : best;                                       \
        return (part){.real = best};                                                                                   \
    }
EXTREME_OF_F64(max_f64, -(double)INFINITY, b > a)
EXTREME_OF_F64(min_f64, (double)INFINITY, b < a)

static int64_t find_f64(const void *in, int64_t n, part what) {
    const double *x = in, v = what.real;
    const bool nan = v != v;
    int64_t i = 0;
    for (; i + LANES <= n; i += LANES) {
        int64_t hit = 0;
        for (int k = 0; k < LANES; k++) hit |= (int64_t)(nan ? x[i + k] != x[i + k] : x[i + k] == v);
        if (hit) break;
    }
    while (i < n && !(nan ? isnan(x[i]) : x[i] == v)) i++;
    return i;
}

/* ---- function table ---- */

typedef struct functions {
    fold_fn *sum, *prod, *max, *min;
    find_fn *find;
} functions;

#define ROW(id, kind) [id] = {sum_##kind, prod_##kind, max_##kind, min_##kind, find_##kind}
static const functions functions_of[HT_DTYPE_COUNT] = {
    [HT_BOOL] = {sum_bool, NULL, max_bool, min_bool, find_bool},
    ROW(HT_U8, u8),
    ROW(HT_U16, u16),
    ROW(HT_U32, u32),
    ROW(HT_U64, u64),
    ROW(HT_I8, i8),
    ROW(HT_I16, i16),
    ROW(HT_I32, i32),
    ROW(HT_I64, i64),
    ROW(HT_F64, f64),
};

typedef struct types_job {
    const ht_call *call;
    ht_op_id op;
    fold_fn *fold;
    find_fn *find;            /* for indices, and results with several representations */
    ht_elementwise_fn *widen; /* to f64, for products */
    bool contiguous, places, smallest;
    int64_t bytes, chunk, chunks; /* elements per chunk, chunks per row */
    part *part;                   /* [rows][chunks] */
} types_job;

/* Whether `one`, the later partial of a row, replaces `than`. */
static bool is_better(const types_job *j, part than, part one) {
    const ht_dtype t = j->call->in[0].dtype;
    if (t == HT_F64)
        return !isnan(than.real) && (isnan(one.real) || (j->smallest ? one.real < than.real : one.real > than.real));
    if (t == HT_U64) {
        const uint64_t a = (uint64_t)than.whole, b = (uint64_t)one.whole;
        return j->smallest ? b < a : b > a;
    }
    return j->smallest ? one.whole < than.whole : one.whole > than.whole;
}

static part joined(const types_job *j, part a, part b) {
    const bool real = ht_dtype_is_float(j->call->in[0].dtype);
    switch (j->op) {
    case HT_OP_SUM:
    case HT_OP_MEAN:
        return real ? (part){.real = a.real + b.real}
                    : (part){.whole = (int64_t)((uint64_t)a.whole + (uint64_t)b.whole)};
    case HT_OP_PROD:
        return real ? (part){.real = a.real * b.real}
                    : (part){.whole = (int64_t)((uint64_t)a.whole * (uint64_t)b.whole)};
    default: return is_better(j, a, b) ? b : a;
    }
}

/* Reduces n elements that are strided or need widening, in blocks. */
static part fold_staged(const types_job *j, int64_t at, int64_t n) {
    _Alignas(64) char near[STAGED * 8], wide[STAGED * 8];
    const ht_view *x = &j->call->in[0];
    const int64_t stride = x->stride[x->n_dims - 1];
    part total = {0};
    for (int64_t i = 0; i < n; i += STAGED) {
        const int64_t some = n - i < STAGED ? n - i : STAGED;
        const void *from = (const char *)x->data + (at + i * stride) * j->bytes;
        if (stride != 1) {
            ht_gather_elements(near, from, stride, some, (size_t)j->bytes);
            from = near;
        }
        if (j->widen) {
            j->widen(&from, wide, some, NULL);
            from = wide;
        }
        const part here = j->fold(from, some);
        total = i ? joined(j, total, here) : here;
    }
    return total;
}

static part fold_chunk(const types_job *j, int64_t row, int64_t chunk) {
    const ht_view *x = &j->call->in[0];
    const int last = x->n_dims - 1;
    const int64_t from = chunk * j->chunk, n = x->shape[last] - from < j->chunk ? x->shape[last] - from : j->chunk;
    const int64_t at = row_offset(x, j->contiguous, row) + from * x->stride[last];
    if (j->widen || x->stride[last] != 1) return fold_staged(j, at, n);
    return j->fold((const char *)x->data + at * j->bytes, n);
}

/* Index of the row's first extreme `what`, which is in chunk `best`. */
static int64_t place_of(const types_job *j, int64_t row, int64_t best, part what) {
    _Alignas(64) char near[STAGED * 8];
    const ht_view *x = &j->call->in[0];
    const int last = x->n_dims - 1;
    const int64_t from = best * j->chunk, n = x->shape[last] - from < j->chunk ? x->shape[last] - from : j->chunk;
    const char *p = (const char *)x->data + (row_offset(x, j->contiguous, row) + from * x->stride[last]) * j->bytes;
    if (x->stride[last] == 1) return from + j->find(p, n, what);
    for (int64_t i = 0; i < n; i += STAGED) {
        const int64_t some = n - i < STAGED ? n - i : STAGED;
        ht_gather_elements(near, p + i * x->stride[last] * j->bytes, x->stride[last], some, (size_t)j->bytes);
        const int64_t at = j->find(near, some, what);
        if (at < some) return from + i + at;
    }
    return from;
}

/* Stores a row's result. Zeros and NaN are copied from the operand, since their sign or payload may differ. */
static void store_row(const types_job *j, int64_t row, int64_t best, part what) {
    const ht_view *x = &j->call->in[0], *out = &j->call->out;
    if (j->places) {
        ((uint32_t *)out->data)[row] = (uint32_t)place_of(j, row, best, what);
    } else if (!ht_dtype_is_float(x->dtype)) {
        ht_set_int(out->dtype, out->data, row, what.whole);
    } else if (j->find && (isnan(what.real) || what.real == 0.0)) {
        const int64_t at = place_of(j, row, best, what) * x->stride[x->n_dims - 1];
        memcpy((double *)out->data + row, (const double *)x->data + row_offset(x, j->contiguous, row) + at, 8);
    } else {
        const double n = j->op == HT_OP_MEAN ? (double)x->shape[x->n_dims - 1] : 1.0;
        ht_set_f64(out->dtype, out->data, row, what.real / n);
    }
}

static void run_chunks(void *arg, int64_t begin, int64_t end, int worker) {
    (void)worker;
    const types_job *j = arg;
    for (int64_t unit = begin; unit < end; unit++) {
        if (j->chunks > 1) /* the modulo costs more than a short row */
            j->part[unit] = fold_chunk(j, unit / j->chunks, unit % j->chunks);
        else
            store_row(j, unit, 0, fold_chunk(j, unit, 0));
    }
}

static void finish_rows(const types_job *j, int64_t rows) {
    for (int64_t row = 0; row < rows; row++) {
        const part *p = j->part + row * j->chunks;
        part what = p[0];
        int64_t best = 0;
        for (int64_t k = 1; k < j->chunks; k++) {
            if (j->find && is_better(j, what, p[k])) best = k;
            what = joined(j, what, p[k]);
        }
        store_row(j, row, best, what);
    }
}

static bool init_types_job(const ht_call *call, ht_op_id op, types_job *j) {
    const ht_view *x = &call->in[0];
    const ht_dtype t = x->dtype, out = call->out.dtype;
    const bool lanes = lanes_supports(t);
    if (x->shape[x->n_dims - 1] < 1 || (lanes && op != HT_OP_PROD)) return false;
    const functions *f = &functions_of[lanes ? HT_F64 : t];
    *j = (types_job){.call = call,
                     .op = op,
                     .bytes = (int64_t)ht_dtype_bytes(t),
                     .contiguous = ht_view_contiguous(x),
                     .places = op == HT_OP_ARGMAX || op == HT_OP_ARGMIN,
                     .smallest = op == HT_OP_MIN || op == HT_OP_ARGMIN};
    switch (op) {
    case HT_OP_MEAN:
        if (t != HT_F64) return false; /* fallthrough */
    case HT_OP_SUM: j->fold = f->sum; break;
    case HT_OP_PROD: j->fold = f->prod; break;
    case HT_OP_MAX:
    case HT_OP_ARGMAX: j->fold = f->max; break;
    default: j->fold = f->min;
    }
    const bool total = op == HT_OP_SUM || op == HT_OP_PROD || op == HT_OP_MEAN;
    if (!j->fold || (j->places ? out != HT_U32 : out != t && (!total || out != ht_total_of(t)))) return false;
    if (!total) j->find = f->find;
    if (lanes) j->widen = HT_ISA_NAME(ht_find_elementwise)(HT_OP_CAST, t, HT_F64);
    j->chunk = CHUNK_BYTES / j->bytes;
    j->chunks = (x->shape[x->n_dims - 1] + j->chunk - 1) / j->chunk;
    return true;
}

size_t HT_ISA_NAME(ht_reduce_types_scratch)(const ht_call *call, ht_op_id op) {
    types_job j;
    if (!init_types_job(call, op, &j) || j.chunks == 1) return 0;
    return (size_t)(row_count(&call->in[0]) * j.chunks) * sizeof(part);
}

bool HT_ISA_NAME(ht_reduce_types)(const ht_call *call, ht_op_id op) {
    const ht_view *x = &call->in[0];
    types_job j;
    if (!init_types_job(call, op, &j)) return false;
    const int64_t n = x->shape[x->n_dims - 1], rows = row_count(x);
    j.part = call->scratch;
    ht_pool_run(ht_call_pool(call), rows * j.chunks, ht_row_grain(HT_GRAIN_CHEAP, n < j.chunk ? n : j.chunk),
                run_chunks, &j);
    if (j.chunks > 1) finish_rows(&j, rows);
    return true;
}

/* ---- argmax and argmin of columns ---- */

#define BETTER(kind, type, comes_before)                                                                               \
    static void better_##kind(const void *in, const uint32_t *from, uint32_t at, int64_t w, void *best_of,             \
                              uint32_t *place) {                                                                       \
        const type *x = in;                                                                                            \
        type *best = best_of;                                                                                          \
        if (from) {                                                                                                    \
            for (int64_t c = 0; c < w; c++) {                                                                          \
                const type a = best[c], b = x[c];                                                                      \
                if (!(comes_before)) continue;                                                                         \
                best[c] = b;                                                                                           \
                place[c] = from[c];                                                                                    \
            }                                                                                                          \
            return;                                                                                                    \
        }                                                                                                              \
        HT_VECTORISE                                                                                                   \
        for (int64_t c = 0; c < w; c++) {                                                                              \
            const type a = best[c], b = x[c];                                                                          \
            const bool better = comes_before;                                                                          \
            place[c] = better ? at : place[c];                                                                         \
            best[c] = better ? b : a;                                                                                  \
        }                                                                                                              \
    }
#define BETTER_OF(kind, type, is_nan)                                                                                  \
    BETTER(max_##kind, type, (b > a) | (is_nan))                                                                       \
    BETTER(min_##kind, type, (b < a) | (is_nan))

BETTER_OF(f32, float, (b != b) & (a == a))
BETTER_OF(f64, double, (b != b) & (a == a))
BETTER_OF(u8, uint8_t, false)
BETTER_OF(u16, uint16_t, false)
BETTER_OF(u32, uint32_t, false)
BETTER_OF(u64, uint64_t, false)
BETTER_OF(i8, int8_t, false)
BETTER_OF(i16, int16_t, false)
BETTER_OF(i32, int32_t, false)
BETTER_OF(i64, int64_t, false)
BETTER(max_bool, uint8_t, (a == 0) & (b != 0))
BETTER(min_bool, uint8_t, (a != 0) & (b == 0))

ht_arg_extreme_fn *HT_ISA_NAME(ht_reduce_arg_extreme)(ht_dtype t, bool smallest) {
#define PAIR(id, kind) [id] = { better_max_##kind, better_min_##kind }
    static ht_arg_extreme_fn *const of[HT_DTYPE_COUNT][2] = {PAIR(HT_BOOL, bool), PAIR(HT_U8, u8),   PAIR(HT_U16, u16),
                                                             PAIR(HT_U32, u32),   PAIR(HT_U64, u64), PAIR(HT_I8, i8),
                                                             PAIR(HT_I16, i16),   PAIR(HT_I32, i32), PAIR(HT_I64, i64),
                                                             PAIR(HT_F32, f32),   PAIR(HT_F64, f64)};
    return of[t][smallest];
}
