/* Attention of arrays and its gradient: cuda/attention.cu. */
#include "cuda/attention.h"

#include "base/checked.h"
#include "base/dtype.h"
#include "base/error.h"
#include "cuda/cuda.h"
#include "device/params.h"

/* Flat rows [n, heads, d] as one batch [1, heads, n, d]. */
static ht_cuda_view of_rows(const ht_view *v) {
    ht_view batch = {.data = v->data, .dtype = v->dtype, .n_dims = 4};
    const int from[4] = {-1, 1, 0, 2};
    for (int i = 0; i < 4; i++) {
        batch.shape[i] = from[i] < 0 ? 1 : v->shape[from[i]];
        batch.stride[i] = from[i] < 0 ? 0 : v->stride[from[i]];
    }
    return ht_cuda_view_of(&batch);
}

static bool is_gradient(const ht_call *call) { return call->n_in > 6; }

static void set_results(const ht_call *call, ht_cuda_view (*of)(const ht_view *), ht_cuda_attention_arguments *a) {
    if (!is_gradient(call)) {
        a->out = of(&call->out);
        return;
    }
    ht_cuda_view *to[3] = {&a->out, &a->out_k, &a->out_v};
    char *at = call->out.data;
    for (int i = 0; i < 3; i++) {
        const ht_view part = ht_cuda_contiguous(&call->in[i], at);
        *to[i] = of(&part);
        at += (size_t)ht_view_size(&part) * ht_dtype_bytes(part.dtype);
    }
    a->result = of(&call->in[call->n_in - 2]);
    a->grad = of(&call->in[call->n_in - 1]);
    a->stats = call->scratch;
}

static ht_cuda_attention_arguments of_sdpa(const ht_call *call) {
    const ht_sdpa_params *p = call->params;
    ht_cuda_attention_arguments a = {.q = ht_cuda_view_of(&call->in[0]),
                                     .k = ht_cuda_view_of(&call->in[1]),
                                     .v = ht_cuda_view_of(&call->in[2]),
                                     .mask = ht_cuda_view_of(&call->in[3]),
                                     .sinks = ht_cuda_view_of(&call->in[4]),
                                     .causal = p->causal,
                                     .window = p->window,
                                     .scale = p->scale};
    set_results(call, ht_cuda_view_of, &a);
    return a;
}

static ht_cuda_attention_arguments of_flat_rows(const ht_call *call) {
    const ht_attend_rows_params *p = call->params;
    ht_cuda_attention_arguments a = {.q = of_rows(&call->in[0]),
                                     .k = of_rows(&call->in[1]),
                                     .v = of_rows(&call->in[2]),
                                     .mask.n_dims = -1,
                                     .sinks = ht_cuda_view_of(&call->in[5]),
                                     .own = ht_cuda_view_of(&call->in[3]),
                                     .first = ht_cuda_view_of(&call->in[4]),
                                     .flat_rows = true,
                                     .chunked = p->chunked,
                                     .two_sided = p->two_sided,
                                     .window = p->window,
                                     .scale = p->scale,
                                     .softcap = p->softcap};
    set_results(call, of_rows, &a);
    return a;
}

/* Launches one block per tile of vectors of `over` and per HT_CUDA_ATTENTION_WIDE of their `dims` dimensions. */
static ht_status launch(const ht_call *call, ht_cuda_attention_arguments *a, ht_cuda_kernel_id f32,
                        ht_cuda_kernel_id f64, const ht_cuda_view *over, int64_t dims, ht_error *err) {
    ht_cuda_device *d = ht_cuda_of(call->device);
    const bool wide = call->in[0].dtype == HT_F64;
    const int64_t tile = wide ? HT_CUDA_ATTENTION_TILE_F64 : HT_CUDA_ATTENTION_TILE_F32;
    const int64_t tiles = over->shape[0] * over->shape[1] * ht_ceil_div_i64(over->shape[2], tile);
    const int64_t parts = ht_ceil_div_i64(dims, HT_CUDA_ATTENTION_WIDE);
    if (tiles == 0 || parts == 0) return HT_OK;
    const ht_cuda_shape shape = {.grid = {(unsigned)tiles, (unsigned)parts},
                                 .block = {HT_CUDA_ATTENTION_SIDE * HT_CUDA_ATTENTION_SIDE}};
    if (a->flat_rows) a->report = ht_cuda_report(d, HT_OP_ATTEND_ROWS);
    return ht_cuda_launch(d, wide ? f64 : f32, &shape, a, err);
}

#define BOTH(name) HT_CUDA_ID_ht_cuda_attention##name##_f32, HT_CUDA_ID_ht_cuda_attention##name##_f64

/* Attends, or computes the gradient. */
static ht_status attend(const ht_call *call, ht_cuda_attention_arguments a, ht_error *err) {
    const size_t bytes = (size_t)ht_view_size(&call->out) * ht_dtype_bytes(call->out.dtype);
    if (bytes == 0) return HT_OK;
    if (a.k.shape[2] == 0 && !a.flat_rows) return ht_memory_fill(call->device->memory, call->out.data, 0, bytes, err);
    if (!is_gradient(call)) return launch(call, &a, BOTH(), &a.q, a.v.shape[3], err);
    ht_status status = launch(call, &a, BOTH(_softmax), &a.q, 1, err);
    if (!status) status = launch(call, &a, BOTH(_grad_q), &a.q, a.q.shape[3], err);
    if (!status) status = launch(call, &a, BOTH(_grad_k), &a.k, a.k.shape[3], err);
    return status ? status : launch(call, &a, BOTH(_grad_v), &a.k, a.v.shape[3], err);
}

static ht_status run_sdpa(const ht_call *call, ht_error *err) { return attend(call, of_sdpa(call), err); }
static ht_status run_attend_rows(const ht_call *call, ht_error *err) { return attend(call, of_flat_rows(call), err); }

/* [queries][HT_CUDA_ATTENTION_STATS] */
static size_t stats_bytes(const ht_call *call) {
    const ht_view *q = &call->in[0];
    int64_t n = 1;
    for (int i = 0; i + 1 < q->n_dims; i++) n *= q->shape[i];
    return (size_t)n * HT_CUDA_ATTENTION_STATS * (q->dtype == HT_F64 ? sizeof(double) : sizeof(float));
}

void ht_cuda_attention_kernels(ht_kernel *kernels) {
    kernels[HT_OP_SDPA].run = run_sdpa;
    kernels[HT_OP_SDPA_GRAD] = (ht_kernel){run_sdpa, stats_bytes};
    kernels[HT_OP_ATTEND_ROWS].run = run_attend_rows;
    kernels[HT_OP_ATTEND_ROWS_GRAD] = (ht_kernel){run_attend_rows, stats_bytes};
}
