/* Column reductions along a strided axis: adjacent columns are reduced together, reading rows in memory order. Chunks
 * of rows are reduced by any thread and combined in order, so results do not depend on the number of threads. */
#include "base/checked.h"
#include "base/dtype.h"
#include "base/total.h"
#include "cpu/call.h"
#include "cpu/strided_iterator.h"
#include "cpu/vector/elementwise.h"
#include "cpu/vector/reduce.h"
#include "cpu/vector/vector.h"

enum {
    MAX_WIDTH = 1024,           /* most columns per piece */
    MIN_WIDTH = 64,             /* least columns per piece with several threads */
    PER_THREAD = 4,             /* pieces per thread, for load balance */
    KEPT_BYTES = 8 * MAX_WIDTH, /* largest accumulator of a piece */
    CHUNK = HT_REDUCE_BLOCK     /* rows: longest f32 summation */
};

typedef struct columns_job {
    const ht_call *call;
    ht_op_id op;
    bool places; /* argmax or argmin */
    ht_elementwise_fn *fold,
        *widen; /* fold: accumulator update; widen: cast to the accumulator's dtype, NULL if it is the operand's */
    ht_arg_extreme_fn *better;
    ht_dtype in, kept;
    int64_t in_bytes, kept_bytes;
    int64_t n, step;       /* rows, and their stride in elements */
    int64_t width, pieces; /* columns, and pieces of them */
    int64_t piece;
    int64_t outer;   /* entries of the outer axes */
    int64_t chunks;  /* of rows */
    char *part;      /* [outer][chunks][width] accumulators, if there are several chunks */
    uint32_t *place; /* their indices (argmax, argmin) */
} columns_job;

/* Row k from `first` on, in the accumulator's dtype. */
static const void *row_of(const columns_job *j, const char *first, int64_t k, int64_t w, void *converted) {
    const void *row = first + k * j->step * j->in_bytes;
    if (!j->widen) return row;
    j->widen(&row, converted, w, NULL);
    return converted;
}

/* ---- reductions row by row ---- */

/* The accumulator is the second operand, so ties keep the earlier element. */
static void fold_chunk(const columns_job *j, const char *first, int64_t n, int64_t w, void *kept) {
    _Alignas(64) char converted[KEPT_BYTES];
    const bool sums = j->op == HT_OP_SUM || j->op == HT_OP_MEAN; /* start from 0: +0 for sums of -0 */
    if (sums)
        memset(kept, 0, (size_t)(w * j->kept_bytes));
    else
        memcpy(kept, row_of(j, first, 0, w, converted), (size_t)(w * j->kept_bytes));
    for (int64_t k = sums ? 0 : 1; k < n; k++) {
        const void *const in[2] = {row_of(j, first, k, w, converted), kept};
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
    HT_ISA_NAME(ht_find_elementwise)(HT_OP_CAST, j->kept, j->call->out.dtype)(&result, out, w, NULL);
}

/* Index of the first extreme of every column; NaN is more extreme than all numbers. */
static void place_chunk(const columns_job *j, const char *first, int64_t from, int64_t n, int64_t w, void *best,
                        uint32_t *place) {
    _Alignas(64) char converted[KEPT_BYTES];
    memcpy(best, row_of(j, first, 0, w, converted), (size_t)(w * j->kept_bytes));
    for (int64_t c = 0; c < w; c++) place[c] = (uint32_t)from;
    for (int64_t k = 1; k < n; k++)
        j->better(row_of(j, first, k, w, converted), NULL, (uint32_t)(from + k), w, best, place);
}

static void finish_places(const columns_job *j, char *best, uint32_t *place, int64_t to, int64_t w) {
    for (int64_t k = 1; k < j->chunks; k++)
        j->better(best + k * j->width * j->kept_bytes, place + k * j->width, 0, w, best, place);
    memcpy((uint32_t *)j->call->out.data + to, place, (size_t)w * sizeof *place);
}

/* ---- pieces and chunks ---- */

static void finish_piece(const columns_job *j, int64_t to, int64_t w, void *part, uint32_t *place) {
    if (j->places)
        finish_places(j, part, place, to, w);
    else
        finish_fold(j, part, to, w);
}

static void run_pieces(void *arg, int64_t begin, int64_t end, int worker) {
    (void)worker;
    const columns_job *j = arg;
    const ht_view *x = &j->call->in[0];
    _Alignas(64) char kept[KEPT_BYTES];
    uint32_t places[MAX_WIDTH];
    for (int64_t unit = begin; unit < end; unit++) {
        const int64_t c = unit % j->pieces * j->piece, w = j->width - c < j->piece ? j->width - c : j->piece;
        const int64_t chunk = unit / j->pieces % j->chunks, outer = unit / j->pieces / j->chunks;
        const int64_t from = chunk * CHUNK, n = j->n - from < CHUNK ? j->n - from : CHUNK;
        const int64_t at = ht_view_offset(x, x->n_dims - 2, outer) + c + from * j->step;
        const char *first = (const char *)x->data + at * j->in_bytes;
        const int64_t part = (outer * j->chunks + chunk) * j->width + c;
        void *to = j->chunks > 1 ? (void *)(j->part + part * j->kept_bytes) : kept;
        uint32_t *place = j->chunks > 1 ? j->place + part : places;
        if (j->places)
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

/* Chooses the accumulator's dtype and the block functions; false if unsupported. */
static bool find_functions(columns_job *j, ht_dtype out) {
    static const ht_op_id by[HT_OP_COUNT] = {
        [HT_OP_SUM] = HT_OP_ADD,       [HT_OP_MEAN] = HT_OP_ADD,    [HT_OP_PROD] = HT_OP_MULTIPLY,
        [HT_OP_MAX] = HT_OP_MAXIMUM,   [HT_OP_MIN] = HT_OP_MINIMUM, [HT_OP_ARGMAX] = HT_OP_MAXIMUM,
        [HT_OP_ARGMIN] = HT_OP_MINIMUM};
    const bool lanes = lanes_supports(j->in), total = j->op == HT_OP_SUM || j->op == HT_OP_PROD || j->op == HT_OP_MEAN;
    j->places = j->op == HT_OP_ARGMAX || j->op == HT_OP_ARGMIN;
    if (lanes && (j->op == HT_OP_SUM || j->op == HT_OP_MEAN)) return false; /* by chunks (reduce_chunks.h) */
    j->kept = total ? ht_total_of(j->in) : j->in;
    if (j->in == HT_BOOL && !total && !j->places) j->kept = HT_U8;
    if (lanes && total) j->kept = HT_F64;
    if (lanes && j->places) j->kept = HT_F32;
    if (j->places ? out != HT_U32 : out != j->in && out != (lanes ? HT_F32 : j->kept)) return false;
    if (j->op == HT_OP_MEAN && !ht_dtype_is_float(j->in)) return false;
    j->in_bytes = (int64_t)ht_dtype_bytes(j->in);
    j->kept_bytes = (int64_t)ht_dtype_bytes(j->kept);
    j->widen =
        j->kept == j->in || j->kept == HT_U8 ? NULL : HT_ISA_NAME(ht_find_elementwise)(HT_OP_CAST, j->in, j->kept);
    j->better = j->places ? HT_ISA_NAME(ht_reduce_arg_extreme)(j->kept, j->op == HT_OP_ARGMIN) : NULL;
    j->fold = HT_ISA_NAME(ht_find_elementwise)(by[j->op], j->kept, j->kept);
    return j->places ? j->better != NULL : j->fold != NULL;
}

static bool init_columns_job(const ht_call *call, ht_op_id op, columns_job *j) {
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
    const int64_t threads = ht_pool_threads(ht_call_pool(call)), wanted = threads > 1 ? PER_THREAD * threads : 1;
    j->piece = MAX_WIDTH;
    while (j->piece > MIN_WIDTH && j->outer * j->chunks * ht_ceil_div_i64(j->width, j->piece) < wanted) j->piece /= 2;
    j->pieces = (j->width + j->piece - 1) / j->piece;
    return true;
}

/* Lays out accumulators and indices at `at` and returns their bytes; with NULL it only counts. */
static size_t layout_scratch(columns_job *j, char *at) {
    const size_t parts = j->chunks > 1 ? (size_t)(j->outer * j->chunks * j->width) : 0;
    const size_t kept = (parts * (size_t)j->kept_bytes + 7) / 8 * 8;
    j->part = at;
    j->place = at ? (uint32_t *)(void *)(at + kept) : NULL;
    return kept + (j->places ? parts * sizeof(uint32_t) : 0);
}

size_t HT_ISA_NAME(ht_reduce_columns_scratch)(const ht_call *call, ht_op_id op) {
    columns_job j;
    return init_columns_job(call, op, &j) ? layout_scratch(&j, NULL) : 0;
}

bool HT_ISA_NAME(ht_reduce_columns)(const ht_call *call, ht_op_id op) {
    columns_job j;
    if (!init_columns_job(call, op, &j)) return false;
    layout_scratch(&j, call->scratch);
    const int64_t most = j.n < CHUNK ? j.n : CHUNK;
    const int64_t grain = ht_row_grain(HT_GRAIN_CHEAP, most * (j.width < j.piece ? j.width : j.piece));
    ht_pool_run(ht_call_pool(call), j.outer * j.chunks * j.pieces, grain, run_pieces, &j);
    if (j.chunks > 1) {
        const int64_t finishing = ht_row_grain(HT_GRAIN_CHEAP, j.chunks * (j.width < j.piece ? j.width : j.piece));
        ht_pool_run(ht_call_pool(call), j.outer * j.pieces, finishing, finish_pieces, &j);
    }
    return true;
}
