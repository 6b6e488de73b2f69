/* Reductions by way of blocks (each.h): many results side by side, a row of operands at a time. Along a strided axis these
 * are the columns of the operand, read front to back; along a contiguous one, of integers, pieces of the row itself.
 *
 * Sums of f32, f16 and bf16 are those of rows.h to the last bit: 64 partial sums per column, which take elements in turn,
 * added pairwise at the end. Which axis is last in memory changes no result. */
#include "base/dtype.h"
#include "cpu/vector/each.h"
#include "cpu/vector/rows.h"
#include "cpu/vector/vector.h"

#include <math.h>

enum {
    WIDTH = 256,      /* columns at a time */
    LANES = 64,       /* partial sums of a column */
    SUM_BLOCK = 4096, /* rows that are summed in f32 */
    AHEAD = 4         /* rows that are asked for before they are needed */
};

typedef struct columns_job {
    const ht_call *call;
    ht_op_id op;
    ht_each_fn *fold, *widen; /* widen: to what is computed in; NULL: it is that already */
    ht_dtype in, kept;
    int64_t n, step;       /* rows, and elements from one to the next */
    int64_t width, blocks; /* columns, and blocks of them */
} columns_job;

/* Row k of a block of columns, in the dtype that is computed in. */
static const void *row_of(const columns_job *j, const char *first, int64_t k, int64_t w, void *room) {
    const int64_t bytes = (int64_t)ht_dtype_bytes(j->in);
    const char *row = first + k * j->step * bytes;
    if (k + AHEAD < j->n)
        for (int64_t b = 0; b < w * bytes; b += 64) HT_PREFETCH(row + AHEAD * j->step * bytes + b);
    if (!j->widen) return row;
    const void *in = row;
    j->widen(&in, room, w, NULL);
    return room;
}

static void add_to(const columns_job *j, float *to, const void *what, int64_t w) {
    const void *const in[2] = {to, what};
    j->fold(in, to, w, NULL);
}

/* The tree of row_sum_total: what was never added to is 0 and left out. */
static void add_lanes(const columns_job *j, float (*lane)[WIDTH], int64_t n, int64_t w) {
    for (int i = 0; i < 16; i++) {
        if (i + 16 < n) add_to(j, lane[i], lane[i + 16], w);
        if (i + 48 < n) add_to(j, lane[i + 32], lane[i + 48], w);
        if (i + 32 < n) add_to(j, lane[i], lane[i + 32], w);
    }
    for (int half = 8; half > 0; half /= 2)
        for (int i = 0; i < half; i++)
            if (i + half < n) add_to(j, lane[i], lane[i + half], w);
}

static void sum_columns(const columns_job *j, const char *first, int64_t to, int64_t w) {
    _Alignas(64) float lane[LANES][WIDTH], room[WIDTH], result[WIDTH];
    double total[WIDTH] = {0.0};
    for (int64_t k = 0; k < j->n; k += SUM_BLOCK) {
        int64_t rows = j->n - k < SUM_BLOCK ? j->n - k : SUM_BLOCK, lanes = rows < LANES ? rows : LANES;
        memset(lane, 0, (size_t)lanes * sizeof *lane);
        for (int64_t i = 0; i < rows; i++) add_to(j, lane[i % LANES], row_of(j, first, k + i, w, room), w);
        add_lanes(j, lane, lanes, w);
        for (int64_t c = 0; c < w; c++) total[c] += (double)lane[0][c];
    }
    double divisor = j->op == HT_OP_MEAN ? (double)j->n : 1.0;
    for (int64_t c = 0; c < w; c++) result[c] = (float)(total[c] / divisor);
    char *out = (char *)j->call->out.data + to * (int64_t)ht_dtype_bytes(j->call->out.dtype);
    if (j->call->out.dtype == HT_F32)
        memcpy(out, result, (size_t)w * sizeof *result);
    else
        each_narrow(j->call->out.dtype, result, out, w);
}

/* Of equals the first is kept: it is the second operand. */
static void fold_columns(const columns_job *j, const char *first, int64_t to, int64_t w) {
    _Alignas(64) char kept[WIDTH * 8], room[WIDTH * 8];
    const size_t bytes = ht_dtype_bytes(j->kept);
    bool sums = j->op == HT_OP_SUM;
    if (sums)
        memset(kept, 0, (size_t)w * bytes);
    else
        memcpy(kept, row_of(j, first, 0, w, room), (size_t)w * bytes);
    for (int64_t k = sums ? 0 : 1; k < j->n; k++) {
        const void *const in[2] = {row_of(j, first, k, w, room), kept};
        j->fold(in, kept, w, NULL);
    }
    const void *result = kept;
    char *out = (char *)j->call->out.data + to * (int64_t)ht_dtype_bytes(j->call->out.dtype);
    HT_ISA_NAME(ht_find_each)(HT_OP_CAST, j->kept, j->call->out.dtype)(&result, out, w, NULL);
}

/* The first place of the largest, or with a sign of -1 of the smallest; a NaN comes before all numbers. */
static void place_columns(const columns_job *j, const char *first, int64_t to, int64_t w) {
    _Alignas(64) float best[WIDTH], room[WIDTH];
    uint32_t *place = (uint32_t *)j->call->out.data + to;
    float sign = j->op == HT_OP_ARGMIN ? -1.0f : 1.0f;
    memcpy(best, row_of(j, first, 0, w, room), (size_t)w * sizeof *best);
    memset(place, 0, (size_t)w * sizeof *place);
    for (int64_t k = 1; k < j->n; k++) {
        const float *x = row_of(j, first, k, w, room);
        HT_EACH
        for (int64_t c = 0; c < w; c++) {
            bool better = (sign * x[c] > sign * best[c]) | ((x[c] != x[c]) & (best[c] == best[c]));
            place[c] = better ? (uint32_t)k : place[c];
            best[c] = better ? x[c] : best[c];
        }
    }
}

static void run_columns(void *arg, int64_t begin, int64_t end, int worker) {
    (void)worker;
    const columns_job *j = arg;
    const ht_view *x = &j->call->in[0];
    for (int64_t unit = begin; unit < end; unit++) {
        int64_t outer = unit / j->blocks, c = unit % j->blocks * WIDTH, w = j->width - c < WIDTH ? j->width - c : WIDTH;
        int64_t at = ht_view_offset(x, x->n_dims - 2, outer) + c;
        const char *first = (const char *)x->data + at * (int64_t)ht_dtype_bytes(j->in);
        if (j->op == HT_OP_ARGMAX || j->op == HT_OP_ARGMIN)
            place_columns(j, first, outer * j->width + c, w);
        else if (j->kept == HT_F32 && (j->op == HT_OP_SUM || j->op == HT_OP_MEAN))
            sum_columns(j, first, outer * j->width + c, w);
        else
            fold_columns(j, first, outer * j->width + c, w);
    }
}

/* What is computed in, and by which function of blocks. */
static bool find_functions(columns_job *j, ht_dtype out) {
    static const ht_op_id by[HT_OP_COUNT] = {
        [HT_OP_SUM] = HT_OP_ADD,       [HT_OP_MEAN] = HT_OP_ADD,    [HT_OP_PROD] = HT_OP_MULTIPLY,
        [HT_OP_MAX] = HT_OP_MAXIMUM,   [HT_OP_MIN] = HT_OP_MINIMUM, [HT_OP_ARGMAX] = HT_OP_MAXIMUM,
        [HT_OP_ARGMIN] = HT_OP_MINIMUM};
    bool places = j->op == HT_OP_ARGMAX || j->op == HT_OP_ARGMIN, lanes = lanes_take(j->in);
    j->kept = j->in;
    if (places ? !lanes || out != HT_U32 : out != j->in) return false;
    if (lanes && j->op == HT_OP_PROD) j->kept = HT_F64;
    if (lanes && (places || j->op == HT_OP_SUM || j->op == HT_OP_MEAN)) j->kept = HT_F32;
    if (j->op == HT_OP_MEAN && j->kept != HT_F32) return false;
    j->widen = j->kept == j->in ? NULL : HT_ISA_NAME(ht_find_each)(HT_OP_CAST, j->in, j->kept);
    j->fold = HT_ISA_NAME(ht_find_each)(by[j->op], j->kept, j->kept);
    return j->fold != NULL;
}

bool HT_ISA_NAME(ht_reduce_columns)(const ht_call *call, ht_op_id op) {
    const ht_view *x = &call->in[0];
    const int last = x->n_dims - 1;
    if (last < 1 || x->stride[last] == 1 || x->stride[last - 1] != 1 || x->shape[last - 1] < 8 || x->shape[last] < 1)
        return false;
    columns_job j = {.call = call, .op = op, .in = x->dtype, .n = x->shape[last], .step = x->stride[last]};
    if (!find_functions(&j, call->out.dtype)) return false;
    j.width = x->shape[last - 1];
    j.blocks = (j.width + WIDTH - 1) / WIDTH;
    int64_t outer = 1, each = j.n * (j.width < WIDTH ? j.width : WIDTH);
    for (int d = 0; d < last - 1; d++) outer *= x->shape[d];
    ht_pool_run(call->pool, outer * j.blocks, ht_row_grain(HT_GRAIN_CHEAP, each), run_columns, &j);
    return true;
}

/* ---- contiguous rows of integers ---- */

typedef struct whole_job {
    const ht_call *call;
    ht_each_fn *fold;
    bool contiguous;
} whole_job;

static void fold_rows(void *arg, int64_t begin, int64_t end, int worker) {
    (void)worker;
    const whole_job *j = arg;
    const ht_view *x = &j->call->in[0];
    const int64_t n = x->shape[x->n_dims - 1], bytes = (int64_t)ht_dtype_bytes(x->dtype), room = HT_EACH_BYTES / bytes;
    _Alignas(64) char kept[HT_EACH_BYTES];
    for (int64_t r = begin; r < end; r++) {
        const char *row = (const char *)x->data + row_offset(x, j->contiguous, r) * bytes;
        int64_t w = n < room ? n : room;
        memcpy(kept, row, (size_t)(w * bytes));
        for (int64_t i = w; i < n; i += room) {
            const void *const in[2] = {row + i * bytes, kept};
            j->fold(in, kept, n - i < room ? n - i : room, NULL);
        }
        while (w > 1) {
            int64_t half = w / 2;
            const void *const in[2] = {kept + (w - half) * bytes, kept};
            j->fold(in, kept, half, NULL);
            w -= half;
        }
        memcpy((char *)j->call->out.data + r * bytes, kept, (size_t)bytes);
    }
}

bool HT_ISA_NAME(ht_reduce_integers)(const ht_call *call, ht_op_id op) {
    const ht_view *x = &call->in[0];
    const int last = x->n_dims - 1;
    if (ht_dtype_is_float(x->dtype) || call->out.dtype != x->dtype || x->shape[last] < 1) return false;
    if (x->stride[last] != 1 && x->shape[last] != 1) return false;
    columns_job found = {.op = op, .in = x->dtype};
    if (!find_functions(&found, call->out.dtype)) return false;
    whole_job j = {.call = call, .fold = found.fold, .contiguous = ht_view_contiguous(x)};
    ht_pool_run(call->pool, row_count(x), ht_row_grain(HT_GRAIN_CHEAP, x->shape[last]), fold_rows, &j);
    return true;
}
