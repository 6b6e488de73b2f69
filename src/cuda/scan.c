/* Scans and recurrences: cuda/reduce.cu. */
#include "base/dtype.h"
#include "base/error.h"
#include "cuda/cuda.h"
#include "cuda/reduce.h"
#include "cuda/rows_of.h"
#include "device/params.h"

_Static_assert(sizeof(ht_cuda_scan_arguments) <= 4096, "the arguments exceed the limit of a kernel");

enum {
    THREAD_CHUNK = 128, /* elements of a line that a thread scans at least */
    PART_BYTES = 16,    /* of a chunk's total, at most */
    BLOCKS_PER_MP = 16,
};

/* Chunks of about sqrt(n) elements: one thread also goes along the totals. */
static int64_t thread_chunk(int64_t n) {
    int64_t chunk = THREAD_CHUNK;
    while (chunk * chunk < n) chunk *= 2;
    return chunk;
}

static ht_cuda_scan_arguments arguments_of(const ht_call *call, int axis, ht_op_id op) {
    const ht_view *in = &call->in[0];
    ht_cuda_scan_arguments a = {.in = ht_cuda_rows_of(in, axis),
                                .out = call->out.data,
                                .part = call->scratch,
                                .n_lines = ht_cuda_n_rows(in, axis),
                                .n = in->shape[axis],
                                .inner = 1,
                                .op = (int32_t)op,
                                .dtype = (int32_t)call->out.dtype,
                                .phase = HT_CUDA_SCAN_LINES,
                                .inclusive = true};
    for (int d = axis + 1; d < in->n_dims; d++) a.inner *= in->shape[d];
    a.by_threads = a.inner > 1 || a.n <= HT_CUDA_SCAN_SHORT;
    a.chunk = a.by_threads ? thread_chunk(a.n) : HT_CUDA_SCAN_CHUNK;
    a.n_chunks = (a.n + a.chunk - 1) / a.chunk;
    return a;
}

static size_t part_bytes(const ht_cuda_scan_arguments *a) {
    return a->n_chunks > 1 ? (size_t)(a->n_lines * a->n_chunks) * PART_BYTES : 0;
}

static ht_status launch_phase(ht_cuda_device *d, ht_cuda_scan_arguments *a, ht_cuda_kernel_id kernel,
                              ht_cuda_scan_phase phase, ht_error *err) {
    const int64_t pieces = a->n_lines * (phase == HT_CUDA_SCAN_PARTS ? 1 : a->n_chunks);
    const int64_t blocks = a->by_threads ? (pieces + HT_CUDA_REDUCE_THREADS - 1) / HT_CUDA_REDUCE_THREADS : pieces;
    const int64_t most = (int64_t)d->multiprocessors * BLOCKS_PER_MP;
    const ht_cuda_shape shape = {.grid = {(unsigned)(blocks < most ? blocks : most)},
                                 .block = {HT_CUDA_REDUCE_THREADS}};
    a->phase = (int32_t)phase;
    return ht_cuda_launch(d, kernel, &shape, a, err);
}

static ht_status launch(const ht_call *call, ht_cuda_scan_arguments *a, ht_cuda_kernel_id kernel, ht_error *err) {
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
    const ht_cuda_scan_arguments a = arguments_of(call, scan_axis(call), HT_OP_CUMSUM);
    return part_bytes(&a);
}

static ht_status run(const ht_call *call, ht_op_id op, const char *name, ht_error *err) {
    const ht_scan_params *p = call->params;
    const ht_dtype t = call->out.dtype;
    if (op == HT_OP_LOGCUMSUMEXP && !ht_dtype_is_float(t))
        return ht_fail(err, HT_ERR_UNSUPPORTED, "%s of %s is not defined; cast to a floating-point type first", name,
                       ht_dtype_name(t));
    ht_cuda_scan_arguments a = arguments_of(call, scan_axis(call), op);
    a.reverse = p->reverse;
    a.inclusive = p->inclusive;
    return launch(call, &a, ht_dtype_is_float(t) ? HT_CUDA_ID_ht_cuda_scan_float : HT_CUDA_ID_ht_cuda_scan_int, err);
}

/* X(id, name) */
#define SCANS(X)                                                                                                       \
    X(CUMSUM, cumsum)                                                                                                  \
    X(CUMPROD, cumprod)                                                                                                \
    X(CUMMAX, cummax)                                                                                                  \
    X(CUMMIN, cummin)                                                                                                  \
    X(LOGCUMSUMEXP, logcumsumexp)

#define RUN(id, name)                                                                                                  \
    static ht_status run_##name(const ht_call *call, ht_error *err) { return run(call, HT_OP_##id, #name, err); }
SCANS(RUN)

static size_t recurrence_scratch(const ht_call *call) {
    const ht_cuda_scan_arguments a = arguments_of(call, call->in[0].n_dims - 1, HT_OP_RECURRENCE);
    return part_bytes(&a);
}

static ht_status run_recurrence(const ht_call *call, ht_error *err) {
    const int last = call->in[0].n_dims - 1;
    ht_cuda_scan_arguments a = arguments_of(call, last, HT_OP_RECURRENCE);
    a.by = ht_cuda_rows_of(&call->in[1], last);
    a.reverse = ((const ht_recurrence_params *)call->params)->reverse;
    return launch(call, &a, HT_CUDA_ID_ht_cuda_scan_affine, err);
}

void ht_cuda_scan_kernels(ht_kernel *kernels) {
#define FILL(id, name) kernels[HT_OP_##id] = (ht_kernel){run_##name, scan_scratch};
    SCANS(FILL)
    kernels[HT_OP_RECURRENCE] = (ht_kernel){run_recurrence, recurrence_scratch};
}
