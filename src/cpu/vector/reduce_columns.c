/* Reductions along a strided axis: many results side by side, the columns of the operand, read front to back in pieces of its
 * rows. What a chunk of rows comes to is kept apart and joined with the others in order, so that threads share long columns
 * and results do not depend on how many there are.
 *
 * Sums of f32, f16 and bf16 are those of rows.h to the last bit: 64 partial sums per column, which take elements in turn,
 * added pairwise at the end. Which axis is last in memory changes no result. */
#include "base/checked.h"
#include "base/dtype.h"
#include "base/total.h"
#include "cpu/asking.h"
#include "cpu/vector/columns.h"
#include "cpu/vector/each.h"
#include "cpu/vector/reduce.h"
#include "cpu/vector/rows.h"
#include "cpu/vector/vector.h"

#include <math.h>

enum {
    SUM_WIDTH = 1024,   /* columns of a sum at a time: a page of f32, */
    SUM_WIDER = 2048,   /* or two, if the core follows rows by itself */
    SUM_LEAST = 128,    /* where there are several threads */
    PER_THREAD = 4,     /* pieces of columns, so that threads end together */
    ABREAST = 8,        /* rows that are added to the same sums at a time, */
    NEAR_ABREAST = 4,   /* where as many are asked for into the first cache meanwhile, */
    WIDER_ABREAST = 16, /* and of SUM_WIDER columns */
    FEW = 16,           /* rows that are added where they are */
    LANES = COLUMNS_LANES,
    WIDEST = 2048,           /* columns of anything else, */
    PIECE_BYTES = 4096,      /* of so much of a row, */
    LONG_BYTES = 16384,      /* or of this where one row is read at a time (longer), */
    LONG_LEAST = 64,         /* of no fewer columns */
    KEPT_BYTES = 16384,      /* that are kept of a piece, at most */
    CHUNK = HT_REDUCE_BLOCK, /* rows: no more are summed in f32 */
    AHEAD = 4                /* rows that are asked for before they are needed */
};

_Static_assert(KEPT_BYTES >= 8 * WIDEST && KEPT_BYTES >= LONG_BYTES, "any piece is kept");

typedef struct columns_job {
    const ht_call *call;
    ht_op_id op;
    bool sums, places; /* of floating point in lanes; where, not what */
    bool
        longer; /* largest or smallest of f32, from memory: LONG_BYTES of one row at a time, 0.75 of the time on Zen 5 */
    ht_each_fn *fold, *widen; /* widen: to what is computed in; NULL: it is that already */
    ht_better_fn *better;
    ht_dtype in, kept;
    int64_t in_bytes, kept_bytes;
    int64_t n, step;       /* rows, and elements from one to the next */
    int64_t width, pieces; /* columns, and pieces of them */
    int64_t piece;
    int64_t outer;   /* as many times all of them */
    int64_t chunks;  /* of rows */
    char *part;      /* [outer][chunks][width] of what was kept, where there are several chunks */
    uint32_t *place; /* as many places */
    int64_t room;    /* floats that the sums of a piece take */
    float *rooms;    /* one a thread */
} columns_job;

/* Row k of n from `first` on, in the dtype that is computed in. */
static const void *row_of(const columns_job *j, const char *first, int64_t k, int64_t n, int64_t w, void *room) {
    const char *row = first + k * j->step * j->in_bytes;
    if (k + AHEAD < n) columns_ask_for(row + AHEAD * j->step * j->in_bytes, w * j->in_bytes);
    if (!j->widen) return row;
    const void *in = row;
    j->widen(&in, room, w, NULL);
    return room;
}

/* ---- sums in lanes ---- */

/* Rows 64 apart, from `row` on, to the sums of a lane; `ahead` bytes behind them is what comes next, which it may ask for. A page
 * of a row is read before the next row's, which is how memory is fast: sums wait in the second cache. */
HT_INLINE void sum_rows(bool asks, const char *row, int64_t apart, int64_t ahead, int64_t w, ht_dtype t, int rows,
                        bool begins, float *lane) {
    const int64_t bytes = t == HT_F32 ? 4 : 2;
    const bool near = ht_asks_near();
    for (int64_t c = 0; c < w; c += 16) {
        const int n = lanes_of(w - c);
        v16f sum = begins ? v16f_zero() : v16f_load(lane + c);
        HT_UNROLL
        for (int i = 0; i < rows; i++) {
            const char *p = row + i * apart + c * bytes;
            if (asks) HT_PREFETCH_BESIDE(near, p + ahead);
            sum = v16f_add(sum, lanes_load(t, p, 0, 1, n));
        }
        v16f_store(lane + c, sum);
    }
}

/* As many of n rows, from row r on, as there are in whole groups of 64 times `rows`; where they end. */
HT_INLINE int64_t sum_groups(bool asks, const columns_job *j, const char *first, int64_t r, int64_t n, int64_t w,
                             ht_dtype t, int rows, float *lane) {
    const int64_t next = j->step * j->in_bytes, group = (int64_t)LANES * rows;
    for (; r + group <= n; r += group)
        for (int64_t k = 0; k < LANES; k++)
            sum_rows(asks, first + (r + k) * next, LANES * next, columns_to_next(k, rows) * next, w, t, rows, r == 0,
                     lane + k * columns_apart(w));
    return r;
}

/* What is left of n rows from row r on. */
HT_INLINE void sum_others(bool asks, const columns_job *j, const char *first, int64_t r, int64_t n, int64_t w,
                          ht_dtype t, float *lane) {
    const int64_t next = j->step * j->in_bytes;
    r = sum_groups(asks, j, first, r, n, w, t, NEAR_ABREAST, lane);
    r = sum_groups(asks, j, first, r, n, w, t, 1, lane);
    for (; r < n; r++)
        sum_rows(asks, first + r * next, 0, next, w, t, 1, r < LANES, lane + r % LANES * columns_apart(w));
}

HT_INLINE void sum_chunk_of(const columns_job *j, const char *first, int64_t n, int64_t w, ht_dtype t, float *lane,
                            float *to) {
    if (n <= FEW) {
        columns_add_lanes(t, first, j->step, n, w, to);
        return;
    }
    if (ht_follows_rows()) {
        int64_t r = w > SUM_WIDTH ? sum_groups(false, j, first, 0, n, w, t, WIDER_ABREAST, lane) : 0;
        r = sum_groups(false, j, first, r, n, w, t, ABREAST, lane);
        sum_others(false, j, first, r, n, w, t, lane);
    } else {
        const int64_t r = ht_asks_near() ? 0 : sum_groups(true, j, first, 0, n, w, t, ABREAST, lane);
        sum_others(true, j, first, r, n, w, t, lane);
    }
    columns_add_lanes(HT_F32, lane, columns_apart(w), n < LANES ? n : LANES, w, to);
}

static void sum_chunk(const columns_job *j, const char *first, int64_t n, int64_t w, float *lane, float *to) {
    if (j->in == HT_F32)
        sum_chunk_of(j, first, n, w, HT_F32, lane, to);
    else if (j->in == HT_F16)
        sum_chunk_of(j, first, n, w, HT_F16, lane, to);
    else
        sum_chunk_of(j, first, n, w, HT_BF16, lane, to);
}

/* Chunks are added in f64: a lane that took in thousands of terms would lose digits. */
static void finish_sums(const columns_job *j, const float *part, int64_t to, int64_t w) {
    _Alignas(64) float result[SUM_WIDER];
    double total[SUM_WIDER];
    for (int64_t c = 0; c < w; c++) total[c] = 0.0;
    for (int64_t k = 0; k < j->chunks; k++)
        for (int64_t c = 0; c < w; c++) total[c] += (double)part[k * j->width + c];
    const double divisor = j->op == HT_OP_MEAN ? (double)j->n : 1.0;
    for (int64_t c = 0; c < w; c++) result[c] = (float)(total[c] / divisor);
    char *out = (char *)j->call->out.data + to * (int64_t)ht_dtype_bytes(j->call->out.dtype);
    if (j->call->out.dtype == HT_F32)
        memcpy(out, result, (size_t)w * sizeof *result);
    else
        each_narrow(j->call->out.dtype, result, out, w);
}

/* ---- anything else, an element at a time ---- */

HT_INLINE v16f larger_of(v16f x, v16f kept) {
    v16f y = v16f_max(x, kept);
    return v16f_select(v16f_is_nan(x), x, y);
}

/* Rows of f32 against what is kept, which is then written once for all of them. With `sign` INT32_MIN numbers have the other
 * sign on the way, which makes the smallest the largest. */
HT_INLINE void fold_some(int rows, const char *row, int64_t step_bytes, int32_t sign, float *kept, int64_t w) {
    const v16i flip = v16i_set1(sign);
    const bool near = ht_asks_near();
    for (int64_t c = 0; c < w; c += 16) {
        const int n = lanes_of(w - c);
        v16f v = v16f_from_bits(v16i_xor(v16f_bits(v16f_load_n(kept + c, n)), flip));
        HT_UNROLL
        for (int r = 0; r < rows; r++) {
            const char *p = row + r * step_bytes + c * (int64_t)sizeof(float);
            HT_PREFETCH_BESIDE(near, p + rows * step_bytes);
            v = larger_of(v16f_from_bits(v16i_xor(v16f_bits(v16f_load_n((const float *)(const void *)p, n)), flip)), v);
        }
        v16f_store_n(kept + c, v16f_from_bits(v16i_xor(v16f_bits(v), flip)), n);
    }
}

static void fold_four(const char *row, int64_t step_bytes, int32_t sign, float *kept, int64_t w) {
    fold_some(4, row, step_bytes, sign, kept, w);
}
static void fold_one(const char *row, int64_t step_bytes, int32_t sign, float *kept, int64_t w) {
    fold_some(1, row, step_bytes, sign, kept, w);
}

/* How many rows of bytes at a time, by which what is kept is read and written less often: 0.7 of the time on Zen 5. */
enum { BYTES_ABREAST = 8 };

HT_INLINE void fold_bytes(const uint8_t *row, int64_t step, bool smallest, uint8_t *restrict kept, int64_t w) {
    if (ht_asks_near())
        for (int r = 0; r < BYTES_ABREAST; r++) columns_ask_for((const char *)row + (BYTES_ABREAST + r) * step, w);
    HT_EACH
    for (int64_t c = 0; c < w; c++) {
        uint8_t best = kept[c];
        HT_UNROLL
        for (int r = 0; r < BYTES_ABREAST; r++) {
            const uint8_t x = row[r * step + c];
            best = (smallest ? x < best : x > best) ? x : best;
        }
        kept[c] = best;
    }
}

static void least_bytes(const uint8_t *row, int64_t step, uint8_t *kept, int64_t w) {
    fold_bytes(row, step, true, kept, w);
}
static void most_bytes(const uint8_t *row, int64_t step, uint8_t *kept, int64_t w) {
    fold_bytes(row, step, false, kept, w);
}

/* Of equals the first is kept: it is the second operand. */
static void fold_chunk(const columns_job *j, const char *first, int64_t n, int64_t w, void *kept) {
    _Alignas(64) char room[KEPT_BYTES];
    const bool sums = j->op == HT_OP_SUM || j->op == HT_OP_MEAN; /* which are positive where zeros are added */
    if (sums)
        memset(kept, 0, (size_t)(w * j->kept_bytes));
    else
        memcpy(kept, row_of(j, first, 0, n, w, room), (size_t)(w * j->kept_bytes));
    int64_t k = sums ? 0 : 1;
    if (j->kept == HT_F32) {
        const int64_t step_bytes = j->step * j->in_bytes;
        const int32_t sign = j->op == HT_OP_MIN ? INT32_MIN : 0;
        for (; j->longer && k < n; k++) fold_one(first + k * step_bytes, step_bytes, sign, kept, w);
        for (; k + 4 <= n; k += 4) fold_four(first + k * step_bytes, step_bytes, sign, kept, w);
    }
    if (j->kept == HT_U8 && j->in_bytes == 1 && (j->op == HT_OP_MIN || j->op == HT_OP_MAX))
        for (; k + BYTES_ABREAST <= n; k += BYTES_ABREAST)
            (j->op == HT_OP_MIN ? least_bytes : most_bytes)((const uint8_t *)first + k * j->step, j->step, kept, w);
    for (; k < n; k++) {
        const void *const in[2] = {row_of(j, first, k, n, w, room), kept};
        j->fold(in, kept, w, NULL);
    }
}

static void finish_fold(const columns_job *j, char *kept, int64_t to, int64_t w) {
    for (int64_t k = 1; k < j->chunks; k++) {
        const void *const in[2] = {kept + k * j->width * j->kept_bytes, kept};
        j->fold(in, kept, w, NULL);
    }
    if (j->op == HT_OP_MEAN)
        for (int64_t c = 0; c < w; c++) ((double *)(void *)kept)[c] /= (double)j->n;
    const void *result = kept;
    char *out = (char *)j->call->out.data + to * (int64_t)ht_dtype_bytes(j->call->out.dtype);
    HT_ISA_NAME(ht_find_each)(HT_OP_CAST, j->kept, j->call->out.dtype)(&result, out, w, NULL);
}

/* Four rows of f32, the first of them row `at`, against the best so far, in whole registers of columns. Of equals the first
 * stays; a NaN is better than all numbers. */
HT_INLINE void place_four(const char *row, int64_t step_bytes, uint32_t at, bool smallest, int64_t whole, float *best,
                          uint32_t *place) {
    for (int64_t c = 0; c < whole; c += 16) {
        v16f kept = v16f_load(best + c);
        v16f where = v16f_from_bits(v16i_load((const int32_t *)place + c));
        HT_UNROLL
        for (int r = 0; r < 4; r++) {
            const char *p = row + r * step_bytes + c * (int64_t)sizeof(float);
            HT_PREFETCH_SECOND(p + 8 * step_bytes); /* twice (simd.h): comparing takes long */
            HT_PREFETCH(p + 4 * step_bytes);
            const v16f x = v16f_load((const float *)(const void *)p);
            const m16 beats = smallest ? v16f_lt(x, kept) : v16f_gt(x, kept);
            const m16 better = m16_or(beats, m16_and(v16f_is_nan(x), v16f_eq(kept, kept)));
            kept = v16f_select(better, x, kept);
            where = v16f_select(better, v16f_from_bits(v16i_set1((int32_t)(at + (uint32_t)r))), where);
        }
        v16f_store(best + c, kept);
        v16i_store((int32_t *)place + c, v16f_bits(where));
    }
}

static void largest_of_four(const char *row, int64_t step_bytes, uint32_t at, int64_t whole, float *best,
                            uint32_t *place) {
    place_four(row, step_bytes, at, false, whole, best, place);
}
static void smallest_of_four(const char *row, int64_t step_bytes, uint32_t at, int64_t whole, float *best,
                             uint32_t *place) {
    place_four(row, step_bytes, at, true, whole, best, place);
}

/* The first place of the largest or smallest; a NaN comes before all numbers. */
static void place_chunk(const columns_job *j, const char *first, int64_t from, int64_t n, int64_t w, void *best,
                        uint32_t *place) {
    _Alignas(64) char room[KEPT_BYTES];
    const int64_t step_bytes = j->step * j->in_bytes, whole = j->in == HT_F32 ? w / 16 * 16 : 0;
    memcpy(best, row_of(j, first, 0, n, w, room), (size_t)(w * j->kept_bytes));
    for (int64_t c = 0; c < w; c++) place[c] = (uint32_t)from;
    int64_t k = 1;
    for (; whole && k + 4 <= n; k += 4) {
        const char *row = first + k * step_bytes;
        const uint32_t at = (uint32_t)(from + k);
        (j->op == HT_OP_ARGMIN ? smallest_of_four : largest_of_four)(row, step_bytes, at, whole, best, place);
        for (int64_t r = 0; r < 4 && whole < w; r++)
            j->better(row + r * step_bytes + whole * j->in_bytes, NULL, at + (uint32_t)r, w - whole,
                      (float *)best + whole, place + whole);
    }
    for (; k < n; k++) j->better(row_of(j, first, k, n, w, room), NULL, (uint32_t)(from + k), w, best, place);
}

static void finish_places(const columns_job *j, char *best, uint32_t *place, int64_t to, int64_t w) {
    for (int64_t k = 1; k < j->chunks; k++)
        j->better(best + k * j->width * j->kept_bytes, place + k * j->width, 0, w, best, place);
    memcpy((uint32_t *)j->call->out.data + to, place, (size_t)w * sizeof *place);
}

/* ---- pieces of rows, and chunks of them ---- */

static void finish_piece(const columns_job *j, int64_t to, int64_t w, void *part, uint32_t *place) {
    if (j->sums)
        finish_sums(j, part, to, w);
    else if (j->places)
        finish_places(j, part, place, to, w);
    else
        finish_fold(j, part, to, w);
}

static void run_pieces(void *arg, int64_t begin, int64_t end, int worker) {
    const columns_job *j = arg;
    const ht_view *x = &j->call->in[0];
    _Alignas(64) char kept[KEPT_BYTES];
    uint32_t places[WIDEST];
    for (int64_t unit = begin; unit < end; unit++) {
        const int64_t c = unit % j->pieces * j->piece, w = j->width - c < j->piece ? j->width - c : j->piece;
        const int64_t chunk = unit / j->pieces % j->chunks, outer = unit / j->pieces / j->chunks;
        const int64_t from = chunk * CHUNK, n = j->n - from < CHUNK ? j->n - from : CHUNK;
        const int64_t at = ht_view_offset(x, x->n_dims - 2, outer) + c + from * j->step;
        const char *first = (const char *)x->data + at * j->in_bytes;
        const int64_t part = (outer * j->chunks + chunk) * j->width + c;
        void *to = j->chunks > 1 ? (void *)(j->part + part * j->kept_bytes) : kept;
        uint32_t *place = j->chunks > 1 ? j->place + part : places;
        if (j->sums)
            sum_chunk(j, first, n, w, j->room ? j->rooms + worker * j->room : NULL, to);
        else if (j->places)
            place_chunk(j, first, from, n, w, to, place);
        else
            fold_chunk(j, first, n, w, to);
        if (j->chunks == 1) finish_piece(j, outer * j->width + c, w, to, place);
    }
}

static void finish_pieces(void *arg, int64_t begin, int64_t end, int worker) {
    (void)worker;
    const columns_job *j = arg;
    for (int64_t unit = begin; unit < end; unit++) {
        const int64_t c = unit % j->pieces * j->piece, outer = unit / j->pieces,
                      part = outer * j->chunks * j->width + c;
        const int64_t w = j->width - c < j->piece ? j->width - c : j->piece;
        finish_piece(j, outer * j->width + c, w, j->part + part * j->kept_bytes, j->place + part);
    }
}

/* What is computed in, and by which function of blocks. */
static bool find_functions(columns_job *j, ht_dtype out) {
    static const ht_op_id by[HT_OP_COUNT] = {
        [HT_OP_SUM] = HT_OP_ADD,       [HT_OP_MEAN] = HT_OP_ADD,    [HT_OP_PROD] = HT_OP_MULTIPLY,
        [HT_OP_MAX] = HT_OP_MAXIMUM,   [HT_OP_MIN] = HT_OP_MINIMUM, [HT_OP_ARGMAX] = HT_OP_MAXIMUM,
        [HT_OP_ARGMIN] = HT_OP_MINIMUM};
    const bool lanes = lanes_take(j->in), total = j->op == HT_OP_SUM || j->op == HT_OP_PROD || j->op == HT_OP_MEAN;
    j->places = j->op == HT_OP_ARGMAX || j->op == HT_OP_ARGMIN;
    j->sums = lanes && (j->op == HT_OP_SUM || j->op == HT_OP_MEAN);
    j->kept = total ? ht_total_of(j->in) : j->in;
    if (j->in == HT_BOOL && !total && !j->places) j->kept = HT_U8;
    if (lanes && j->op == HT_OP_PROD) j->kept = HT_F64;
    if (lanes && j->places) j->kept = HT_F32;
    if (j->places ? out != HT_U32 : out != j->in && out != j->kept) return false;
    if (j->op == HT_OP_MEAN && !ht_dtype_is_float(j->in)) return false;
    j->in_bytes = (int64_t)ht_dtype_bytes(j->in);
    j->kept_bytes = j->sums ? (int64_t)sizeof(float) : (int64_t)ht_dtype_bytes(j->kept);
    j->widen = j->kept == j->in || j->kept == HT_U8 ? NULL : HT_ISA_NAME(ht_find_each)(HT_OP_CAST, j->in, j->kept);
    j->better = j->places ? HT_ISA_NAME(ht_reduce_better)(j->kept, j->op == HT_OP_ARGMIN) : NULL;
    j->fold = HT_ISA_NAME(ht_find_each)(by[j->op], j->kept, j->kept);
    return j->places ? j->better != NULL : j->fold != NULL;
}

static bool lay_columns(const ht_call *call, ht_op_id op, columns_job *j) {
    const ht_view *x = &call->in[0];
    const int last = x->n_dims - 1;
    if (last < 1 || x->stride[last] == 1 || x->stride[last - 1] != 1 || x->shape[last - 1] < 2 || x->shape[last] < 1)
        return false;
    *j = (columns_job){.call = call,
                       .op = op,
                       .in = x->dtype,
                       .n = x->shape[last],
                       .step = x->stride[last],
                       .width = x->shape[last - 1],
                       .chunks = (x->shape[last] + CHUNK - 1) / CHUNK};
    if (!find_functions(j, call->out.dtype)) return false;
    j->outer = 1;
    for (int d = 0; d < last - 1; d++) j->outer *= x->shape[d];
    const int64_t threads = ht_pool_threads(call->pool), wanted = threads > 1 ? PER_THREAD * threads : 1;
    j->longer = threads == 1 && j->kept == HT_F32 && !j->sums && !j->places && j->width >= LONG_LEAST &&
                ht_follows_rows() && rows_are_far(x);
    j->piece = j->longer ? LONG_BYTES / j->in_bytes : ht_min_i64(WIDEST, PIECE_BYTES / j->in_bytes);
    if (j->sums) {
        j->piece = ht_follows_rows() ? SUM_WIDER : SUM_WIDTH;
        while (j->piece > SUM_LEAST && j->outer * j->chunks * ((j->width + j->piece - 1) / j->piece) < wanted)
            j->piece /= 2;
        j->room = j->n > FEW ? ht_min_i64(LANES, j->n) * columns_apart(ht_min_i64(j->piece, j->width)) : 0;
    }
    j->pieces = (j->width + j->piece - 1) / j->piece;
    return true;
}

/* The scratch memory holds rooms, whole lines, the parts, whole words, and the places, if there are several of a result; of
 * how many bytes. */
static size_t lay_scratch(columns_job *j, char *at) {
    const int64_t workers = ht_min_i64(ht_pool_threads(j->call->pool), j->outer * j->chunks * j->pieces);
    const size_t rooms = (size_t)(workers * j->room) * sizeof(float);
    const size_t parts = j->chunks > 1 ? (size_t)(j->outer * j->chunks * j->width) : 0;
    const size_t kept = (parts * (size_t)j->kept_bytes + 3) / 4 * 4;
    j->rooms = (float *)(void *)at;
    j->part = at ? at + rooms : NULL;
    j->place = at ? (uint32_t *)(void *)(at + rooms + kept) : NULL;
    return rooms + kept + (j->places ? parts * sizeof(uint32_t) : 0);
}

size_t HT_ISA_NAME(ht_reduce_columns_scratch)(const ht_call *call, ht_op_id op) {
    columns_job j;
    return lay_columns(call, op, &j) ? lay_scratch(&j, NULL) : 0;
}

bool HT_ISA_NAME(ht_reduce_columns)(const ht_call *call, ht_op_id op) {
    columns_job j;
    if (!lay_columns(call, op, &j)) return false;
    lay_scratch(&j, call->scratch);
    const int64_t most = j.n < CHUNK ? j.n : CHUNK;
    const int64_t grain = ht_row_grain(HT_GRAIN_CHEAP, most * (j.width < j.piece ? j.width : j.piece));
    ht_pool_run(call->pool, j.outer * j.chunks * j.pieces, grain, run_pieces, &j);
    if (j.chunks > 1) {
        const int64_t finishing = ht_row_grain(HT_GRAIN_CHEAP, j.chunks * (j.width < j.piece ? j.width : j.piece));
        ht_pool_run(call->pool, j.outer * j.pieces, finishing, finish_pieces, &j);
    }
    return true;
}
