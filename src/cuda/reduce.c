/* Reductions, softmax, scans and recurrences: cuda/reduce.cu. */
#include "cuda/reduce.h"

#include "base/checked.h"
#include "base/dtype.h"
#include "base/error.h"
#include "cuda/cuda.h"
#include "device/params.h"

#include <stdlib.h>

enum {
    ROW_CHUNK = 8192,   /* elements of a row */
    COLUMN_CHUNK = 512, /* and of a column */
    WARP_ROW = 1024,    /* longest row that a warp reduces */
    THREAD_CHUNK = 128, /* elements of a line that a thread scans at least */
    PART_BYTES = 16,    /* of the total of a scan's chunk, at most */
};

static ht_status need_floats(ht_dtype t, const char *name, ht_error *err) {
    if (ht_dtype_is_float(t)) return HT_OK;
    return ht_fail(err, HT_ERR_UNSUPPORTED, "%s of %s is not defined; cast to a floating-point type first", name,
                   ht_dtype_name(t));
}

/* Stride along an axis of a row-contiguous array. */
static int64_t inner_of(const ht_view *v, int axis) {
    int64_t n = 1;
    for (int d = axis + 1; d < v->n_dims; d++) n *= v->shape[d];
    return n;
}

/* ---- layout ---- */

static int32_t team_of(int64_t n) {
    if (n > WARP_ROW) return HT_CUDA_REDUCE_THREADS;
    int32_t team = 1;
    while (team < 32 && team * HT_CUDA_REDUCE_GROUP < n) team *= 2;
    return team;
}

/* Whether adjacent elements in memory are in different rows. */
static bool are_columns(const ht_cuda_rows *in, int64_t n_rows, int64_t n) {
    if (n < 2 || n_rows < 2 || in->n_dims == 0) return false;
    return llabs(in->stride[in->n_dims - 1]) < llabs(in->step);
}

static void lay_out(ht_cuda_reduce_arguments *a) {
    a->columns = are_columns(&a->in, a->n_rows, a->n);
    a->chunk = a->columns ? COLUMN_CHUNK : ROW_CHUNK;
    a->n_chunks = ht_max_i64(1, ht_ceil_div_i64(a->n, a->chunk));
    a->team = a->columns ? HT_CUDA_COLUMN_TEAM : team_of(ht_min_i64(a->n, a->chunk));
}

static ht_cuda_reduce_arguments arguments_of(const ht_call *call, int axis, ht_op_id op) {
    const ht_view *in = &call->in[0];
    ht_cuda_reduce_arguments a = {.in = ht_cuda_rows_of(in, axis),
                                  .out = call->out.data,
                                  .n_rows = ht_cuda_n_rows(in, axis),
                                  .n = in->shape[axis],
                                  .inner = 1,
                                  .op = (int32_t)op,
                                  .out_dtype = call->out.dtype};
    lay_out(&a);
    return a;
}

static size_t part_bytes(const ht_cuda_reduce_arguments *a) {
    return a->n_chunks > 1 ? (size_t)(a->n_rows * a->n_chunks) * HT_CUDA_ACCUMULATOR_BYTES : 0;
}

static ht_cuda_shape shape_of(const ht_cuda_device *d, const ht_cuda_reduce_arguments *a, int64_t n_chunks) {
    const int64_t rows = a->columns ? HT_CUDA_COLUMNS : HT_CUDA_REDUCE_THREADS / a->team;
    return (ht_cuda_shape){.grid = {ht_cuda_blocks(d, ht_ceil_div_i64(a->n_rows, rows) * n_chunks)},
                           .block = {HT_CUDA_REDUCE_THREADS}};
}

/* Reduces rows, or their chunks and then joins these. */
static ht_status launch(const ht_call *call, const ht_cuda_reduce_arguments *a, ht_cuda_kernel_id kernel,
                        ht_error *err) {
    ht_cuda_device *d = ht_cuda_of(call->device);
    ht_cuda_shape shape = shape_of(d, a, a->n_chunks);
    ht_status status = ht_cuda_launch(d, kernel, &shape, a, err);
    if (status || a->n_chunks == 1) return status;
    ht_cuda_reduce_arguments joined = *a;
    joined.joins = true;
    if (!a->columns) joined.team = team_of(a->n_chunks);
    shape = shape_of(d, &joined, 1);
    return ht_cuda_launch(d, kernel, &shape, &joined, err);
}

/* ---- reductions ---- */

static size_t reduction_scratch(const ht_call *call) {
    const ht_cuda_reduce_arguments a = arguments_of(call, call->in[0].n_dims - 1, HT_OP_SUM);
    return part_bytes(&a);
}

static ht_cuda_kernel_id kernel_of(ht_op_id op, ht_dtype t) {
    const bool floating = ht_dtype_is_float(t);
    switch (op) {
    case HT_OP_SUM: return floating ? HT_CUDA_ID_ht_cuda_sum_float : HT_CUDA_ID_ht_cuda_sum_int;
    case HT_OP_MEAN: return HT_CUDA_ID_ht_cuda_sum_float;
    case HT_OP_PROD: return floating ? HT_CUDA_ID_ht_cuda_prod_float : HT_CUDA_ID_ht_cuda_prod_int;
    case HT_OP_VAR: return HT_CUDA_ID_ht_cuda_var;
    case HT_OP_LOGSUMEXP:
        return HT_CUDA_ID_ht_cuda_exp_sum_f64; /* rounded once, so that the order of terms does not matter */
    default: return HT_CUDA_ID_ht_cuda_extreme;
    }
}

static ht_status run(const ht_call *call, ht_op_id op, const char *name, ht_error *err) {
    const ht_view *in = &call->in[0];
    if (op == HT_OP_MEAN || op == HT_OP_VAR || op == HT_OP_LOGSUMEXP) {
        const ht_status status = need_floats(in->dtype, name, err);
        if (status) return status;
    }
    ht_cuda_reduce_arguments a = arguments_of(call, in->n_dims - 1, op);
    if (a.n_rows == 0) return HT_OK;
    if (a.n == 0 && op != HT_OP_SUM && op != HT_OP_PROD)
        return ht_fail(err, HT_ERR_ARGUMENT, "%s over an axis of length 0 has no value", name);
    if (op == HT_OP_VAR) a.ddof = ((const ht_var_params *)call->params)->ddof;
    a.part = call->scratch;
    return launch(call, &a, kernel_of(op, in->dtype), err);
}

/* X(id, name) */
#define REDUCTIONS(X)                                                                                                  \
    X(SUM, sum)                                                                                                        \
    X(PROD, prod)                                                                                                      \
    X(MEAN, mean)                                                                                                      \
    X(MAX, max)                                                                                                        \
    X(MIN, min)                                                                                                        \
    X(ARGMAX, argmax)                                                                                                  \
    X(ARGMIN, argmin)                                                                                                  \
    X(VAR, var)                                                                                                        \
    X(LOGSUMEXP, logsumexp)

#define RUN(id, name)                                                                                                  \
    static ht_status run_##name(const ht_call *call, ht_error *err) { return run(call, HT_OP_##id, #name, err); }
REDUCTIONS(RUN)

/* ---- softmax ---- */

/* Arguments for the sums of all rows; `in_registers`: one kernel does the whole instead. */
static ht_cuda_reduce_arguments softmax_arguments(const ht_call *call, bool *in_registers) {
    const ht_view *in = &call->in[0];
    const int axis = in->n_dims - 1 - ((const ht_along_params *)call->params)->behind;
    ht_cuda_reduce_arguments a = arguments_of(call, axis, HT_OP_SOFTMAX);
    a.inner = inner_of(in, axis);
    *in_registers = a.inner == 1 && !a.columns && a.n <= 4 * HT_CUDA_KEPT_QUADS * HT_CUDA_LARGE_TEAM;
    return a;
}

static size_t softmax_scratch(const ht_call *call) {
    bool in_registers;
    const ht_cuda_reduce_arguments a = softmax_arguments(call, &in_registers);
    return in_registers ? 0 : part_bytes(&a) + (size_t)a.n_rows * HT_CUDA_ACCUMULATOR_BYTES;
}

static ht_status run_in_registers(const ht_call *call, const ht_cuda_reduce_arguments *whole, ht_error *err) {
    ht_cuda_device *d = ht_cuda_of(call->device);
    ht_cuda_softmax_arguments a = {.in = whole->in,
                                   .out = ht_cuda_rows_of(&call->out, call->out.n_dims - 1),
                                   .n_rows = whole->n_rows,
                                   .n = whole->n,
                                   .team = ht_cuda_team_of(whole->n)};
    const ht_cuda_shape shape = ht_cuda_team_shape(d, a.team, a.n_rows);
    return ht_cuda_launch(d, ht_cuda_of_float(HT_CUDA_ID_ht_cuda_softmax_f16, call->out.dtype), &shape, &a, err);
}

static ht_status run_softmax(const ht_call *call, ht_error *err) {
    const ht_view *in = &call->in[0];
    ht_status status = need_floats(in->dtype, "softmax", err);
    if (status || ht_view_size(in) == 0) return status;
    bool in_registers;
    ht_cuda_reduce_arguments a = softmax_arguments(call, &in_registers);
    if (in_registers) return run_in_registers(call, &a, err);
    a.part = call->scratch;
    a.sums = (char *)call->scratch + part_bytes(&a);
    const bool wide = in->dtype == HT_F64;
    status = launch(call, &a, wide ? HT_CUDA_ID_ht_cuda_exp_sum_f64 : HT_CUDA_ID_ht_cuda_exp_sum_f32, err);
    if (status) return status;
    ht_cuda_device *d = ht_cuda_of(call->device);
    const ht_cuda_shape shape = shape_of(d, &a, a.n_chunks);
    return ht_cuda_launch(d, HT_CUDA_ID_ht_cuda_softmax_of_sums, &shape, &a, err);
}

/* ---- scans ---- */

/* Chunks of about sqrt(n) elements: one thread also goes along the totals. */
static int64_t thread_chunk(int64_t n) {
    int64_t chunk = THREAD_CHUNK;
    while (chunk * chunk < n) chunk *= 2;
    return chunk;
}

static ht_cuda_scan_arguments scan_arguments(const ht_call *call, int axis, ht_op_id op) {
    const ht_view *in = &call->in[0];
    ht_cuda_scan_arguments a = {.in = ht_cuda_rows_of(in, axis),
                                .out = call->out.data,
                                .part = call->scratch,
                                .n_lines = ht_cuda_n_rows(in, axis),
                                .n = in->shape[axis],
                                .inner = inner_of(in, axis),
                                .op = (int32_t)op,
                                .dtype = call->out.dtype,
                                .phase = HT_CUDA_SCAN_LINES,
                                .inclusive = true};
    a.by_threads = a.inner > 1 || a.n <= HT_CUDA_SCAN_SHORT;
    a.chunk = a.by_threads ? thread_chunk(a.n) : HT_CUDA_SCAN_CHUNK;
    a.n_chunks = ht_ceil_div_i64(a.n, a.chunk);
    return a;
}

static size_t scan_bytes(const ht_cuda_scan_arguments *a) {
    return a->n_chunks > 1 ? (size_t)(a->n_lines * a->n_chunks) * PART_BYTES : 0;
}

static ht_status launch_phase(ht_cuda_device *d, ht_cuda_scan_arguments *a, ht_cuda_kernel_id kernel,
                              ht_cuda_scan_phase phase, ht_error *err) {
    const int64_t pieces = a->n_lines * (phase == HT_CUDA_SCAN_PARTS ? 1 : a->n_chunks);
    const int64_t blocks = a->by_threads ? ht_ceil_div_i64(pieces, HT_CUDA_REDUCE_THREADS) : pieces;
    const ht_cuda_shape shape = {.grid = {ht_cuda_blocks(d, blocks)}, .block = {HT_CUDA_REDUCE_THREADS}};
    a->phase = (int32_t)phase;
    return ht_cuda_launch(d, kernel, &shape, a, err);
}

static ht_status launch_scan(const ht_call *call, ht_cuda_scan_arguments *a, ht_cuda_kernel_id kernel, ht_error *err) {
    ht_cuda_device *d = ht_cuda_of(call->device);
    ht_status status = HT_OK;
    if (a->n_lines * a->n == 0) return HT_OK;
    if (a->n_chunks > 1) status = launch_phase(d, a, kernel, HT_CUDA_SCAN_TOTALS, err);
    if (a->n_chunks > 1 && !status) status = launch_phase(d, a, kernel, HT_CUDA_SCAN_PARTS, err);
    return status ? status : launch_phase(d, a, kernel, HT_CUDA_SCAN_LINES, err);
}

static int scan_axis(const ht_call *call) {
    return call->in[0].n_dims - 1 - ((const ht_scan_params *)call->params)->behind;
}

static size_t scan_scratch(const ht_call *call) {
    const ht_cuda_scan_arguments a = scan_arguments(call, scan_axis(call), HT_OP_CUMSUM);
    return scan_bytes(&a);
}

static ht_status run_scan(const ht_call *call, ht_op_id op, const char *name, ht_error *err) {
    const ht_scan_params *p = call->params;
    const ht_dtype t = call->out.dtype;
    const ht_status status = op == HT_OP_LOGCUMSUMEXP ? need_floats(t, name, err) : HT_OK;
    if (status) return status;
    ht_cuda_scan_arguments a = scan_arguments(call, scan_axis(call), op);
    a.reverse = p->reverse;
    a.inclusive = p->inclusive;
    return launch_scan(call, &a, ht_dtype_is_float(t) ? HT_CUDA_ID_ht_cuda_scan_float : HT_CUDA_ID_ht_cuda_scan_int,
                       err);
}

/* X(id, name) */
#define SCANS(X)                                                                                                       \
    X(CUMSUM, cumsum)                                                                                                  \
    X(CUMPROD, cumprod)                                                                                                \
    X(CUMMAX, cummax)                                                                                                  \
    X(CUMMIN, cummin)                                                                                                  \
    X(LOGCUMSUMEXP, logcumsumexp)

#define RUN_SCAN(id, name)                                                                                             \
    static ht_status run_##name(const ht_call *call, ht_error *err) { return run_scan(call, HT_OP_##id, #name, err); }
SCANS(RUN_SCAN)

static size_t recurrence_scratch(const ht_call *call) {
    const ht_cuda_scan_arguments a = scan_arguments(call, call->in[0].n_dims - 1, HT_OP_RECURRENCE);
    return scan_bytes(&a);
}

static ht_status run_recurrence(const ht_call *call, ht_error *err) {
    const int last = call->in[0].n_dims - 1;
    ht_cuda_scan_arguments a = scan_arguments(call, last, HT_OP_RECURRENCE);
    a.by = ht_cuda_rows_of(&call->in[1], last);
    a.reverse = ((const ht_recurrence_params *)call->params)->reverse;
    return launch_scan(call, &a, HT_CUDA_ID_ht_cuda_scan_affine, err);
}

void ht_cuda_reduce_kernels(ht_kernel *kernels) {
#define FILL(id, name) kernels[HT_OP_##id] = (ht_kernel){run_##name, reduction_scratch};
    REDUCTIONS(FILL)
    kernels[HT_OP_SOFTMAX] = (ht_kernel){run_softmax, softmax_scratch};
#define FILL_SCAN(id, name) kernels[HT_OP_##id] = (ht_kernel){run_##name, scan_scratch};
    SCANS(FILL_SCAN)
    kernels[HT_OP_RECURRENCE] = (ht_kernel){run_recurrence, recurrence_scratch};
}
