/* Row reductions of integers, sums of f64, and products of any dtype (of floats in f64). Blocks are combined lane by lane
 * with elementwise functions, the lanes in pairs, and chunks of long rows in order: results depend on the length alone. */
#include "base/total.h"
#include "cpu/call.h"
#include "cpu/vector/elementwise.h"
#include "cpu/vector/reduce.h"
#include "cpu/vector/rows.h"
#include "cpu/vector/vector.h"

enum { LANES = 512, CHUNK = 64 * LANES };

typedef struct types_job {
    const ht_call *call;
    ht_elementwise_fn *fold, *widen, *narrow; /* on accumulators, to them, and from them to the result */
    bool contiguous, mean;
    int64_t bytes, kept_bytes, chunks; /* of an element and an accumulator; chunks per row */
    char *part;                        /* accumulators [rows][chunks] */
} types_job;

/* Block of n <= LANES elements from element `at` on, as accumulators: in place, or in `room`. */
static const void *block_at(const types_job *j, int64_t at, int64_t n, char *room) {
    _Alignas(64) char near[8 * LANES];
    const ht_view *x = &j->call->in[0];
    const int64_t stride = x->stride[x->n_dims - 1];
    const void *from = (const char *)x->data + at * j->bytes;
    if (stride != 1) {
        ht_gather_elements(near, from, stride, n, (size_t)j->bytes);
        from = near;
    } else if (!j->widen)
        return from;
    if (j->widen)
        j->widen(&from, room, n, NULL);
    else
        memcpy(room, from, (size_t)(n * j->bytes));
    return room;
}

static void fold_chunk(const types_job *j, int64_t row, int64_t chunk, char *to) {
    _Alignas(64) char kept[8 * LANES], room[8 * LANES];
    const ht_view *x = &j->call->in[0];
    const int last = x->n_dims - 1;
    const int64_t from = chunk * CHUNK, left = x->shape[last] - from, n = left < CHUNK ? left : CHUNK;
    const int64_t at = row_offset(x, j->contiguous, row) + from * x->stride[last];
    int64_t lanes = n < LANES ? n : LANES;
    memcpy(kept, block_at(j, at, lanes, room), (size_t)(lanes * j->kept_bytes));
    for (int64_t i = LANES; i < n; i += LANES) {
        const int64_t some = n - i < LANES ? n - i : LANES;
        const void *const in[2] = {kept, block_at(j, at + i * x->stride[last], some, room)};
        j->fold(in, kept, some, NULL);
    }
    for (int64_t half; lanes > 1; lanes = half) {
        half = (lanes + 1) / 2;
        const void *const in[2] = {kept, kept + half * j->kept_bytes};
        j->fold(in, kept, lanes - half, NULL);
    }
    memcpy(to, kept, (size_t)j->kept_bytes);
}

static void run_chunks(void *arg, int64_t begin, int64_t end, int worker) {
    (void)worker;
    const types_job *j = arg;
    for (int64_t i = begin; i < end; i++) fold_chunk(j, i / j->chunks, i % j->chunks, j->part + i * j->kept_bytes);
}

static void finish_rows(void *arg, int64_t begin, int64_t end, int worker) {
    (void)worker;
    const types_job *j = arg;
    const ht_view *x = &j->call->in[0], *out = &j->call->out;
    for (int64_t row = begin; row < end; row++) {
        char *kept = j->part + row * j->chunks * j->kept_bytes;
        for (int64_t k = 1; k < j->chunks; k++) {
            const void *const in[2] = {kept, kept + k * j->kept_bytes};
            j->fold(in, kept, 1, NULL);
        }
        if (j->mean) *(double *)(void *)kept /= (double)x->shape[x->n_dims - 1];
        const void *const result = kept;
        j->narrow(&result, (char *)out->data + row * (int64_t)ht_dtype_bytes(out->dtype), 1, NULL);
    }
}

static bool init_types_job(const ht_call *call, ht_op_id op, types_job *j) {
    static const ht_op_id by[HT_OP_COUNT] = {[HT_OP_SUM] = HT_OP_ADD,
                                             [HT_OP_MEAN] = HT_OP_ADD,
                                             [HT_OP_PROD] = HT_OP_MULTIPLY,
                                             [HT_OP_MAX] = HT_OP_MAXIMUM,
                                             [HT_OP_MIN] = HT_OP_MINIMUM};
    const ht_view *x = &call->in[0];
    const ht_dtype t = x->dtype, out = call->out.dtype;
    const bool floating = ht_dtype_is_float(t), extreme = op == HT_OP_MAX || op == HT_OP_MIN;
    if (x->shape[x->n_dims - 1] < 1 || op == HT_OP_ARGMAX || op == HT_OP_ARGMIN) return false;
    /* Zeros and NaN of f64 differ in sign and payload: which of them is the extreme depends on the order. */
    if (floating && (extreme || (t != HT_F64 && op != HT_OP_PROD))) return false;
    const ht_dtype kept = extreme ? t : floating ? HT_F64 : ht_total_of(t);
    if ((out != t && out != kept) || (op == HT_OP_MEAN && !floating)) return false;
    *j = (types_job){.call = call,
                     .fold = HT_ISA_NAME(ht_find_elementwise)(by[op], kept, kept),
                     .widen = kept == t ? NULL : HT_ISA_NAME(ht_find_elementwise)(HT_OP_CAST, t, kept),
                     .narrow = HT_ISA_NAME(ht_find_elementwise)(HT_OP_CAST, kept, out),
                     .contiguous = ht_view_contiguous(x),
                     .mean = op == HT_OP_MEAN,
                     .bytes = (int64_t)ht_dtype_bytes(t),
                     .kept_bytes = (int64_t)ht_dtype_bytes(kept),
                     .chunks = (x->shape[x->n_dims - 1] + CHUNK - 1) / CHUNK,
                     .part = call->scratch};
    return j->fold && j->narrow;
}

size_t HT_ISA_NAME(ht_reduce_types_scratch)(const ht_call *call, ht_op_id op) {
    types_job j;
    return init_types_job(call, op, &j) ? (size_t)(row_count(&call->in[0]) * j.chunks * j.kept_bytes) : 0;
}

bool HT_ISA_NAME(ht_reduce_types)(const ht_call *call, ht_op_id op) {
    const ht_view *x = &call->in[0];
    types_job j;
    if (!init_types_job(call, op, &j)) return false;
    const int64_t n = x->shape[x->n_dims - 1], rows = row_count(x);
    ht_pool_run(ht_call_pool(call), rows * j.chunks, ht_row_grain(HT_GRAIN_CHEAP, n < CHUNK ? n : CHUNK), run_chunks,
                &j);
    ht_pool_run(ht_call_pool(call), rows, ht_row_grain(HT_GRAIN_CHEAP, j.chunks), finish_rows, &j);
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
BETTER_OF(i32, int32_t, false)

ht_arg_extreme_fn *HT_ISA_NAME(ht_reduce_arg_extreme)(ht_dtype t, bool smallest) {
    if (t == HT_F32) return smallest ? better_min_f32 : better_max_f32;
    if (t == HT_I32) return smallest ? better_min_i32 : better_max_i32;
    return NULL;
}
