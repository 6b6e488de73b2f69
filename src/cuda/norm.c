/* Norms, their gradients, and rotary embeddings: cuda/norm.cu. */
#include "cuda/norm.h"

#include "base/checked.h"
#include "base/dtype.h"
#include "cuda/cuda.h"
#include "device/params.h"

#include <math.h>

/* The i-th operand as one row; without data if it is absent. */
static ht_cuda_rows row_of(const ht_call *call, int i) {
    if (i >= call->n_in || ht_view_absent(&call->in[i])) return (ht_cuda_rows){0};
    return ht_cuda_rows_of(&call->in[i], call->in[i].n_dims - 1);
}

static ht_status run_norm(const ht_call *call, ht_cuda_norm_arguments *a, ht_cuda_kernel_id kernel, ht_error *err) {
    ht_cuda_device *d = ht_cuda_of(call->device);
    const int last = call->in[0].n_dims - 1;
    a->x = row_of(call, 0);
    a->weight = row_of(call, 1);
    a->bias = row_of(call, 2);
    a->out = ht_cuda_rows_of(&call->out, last);
    a->n_rows = ht_cuda_n_rows(&call->in[0], last);
    a->n = call->in[0].shape[last];
    a->team = ht_cuda_team_of(a->n);
    if (a->n_rows * a->n == 0) return HT_OK;
    const ht_cuda_shape shape = ht_cuda_team_shape(d, a->team, a->n_rows);
    return ht_cuda_launch(d, ht_cuda_of_float(kernel, call->out.dtype), &shape, a, err);
}

static ht_status run_rms_norm(const ht_call *call, ht_error *err) {
    const ht_rms_norm_params *p = call->params;
    ht_cuda_norm_arguments a = {.eps = p->eps, .weight_offset = p->weight_offset};
    return run_norm(call, &a, HT_CUDA_ID_ht_cuda_rms_norm_f16, err);
}

static ht_status run_layer_norm(const ht_call *call, ht_error *err) {
    ht_cuda_norm_arguments a = {.eps = ((const ht_layer_norm_params *)call->params)->eps};
    return run_norm(call, &a, HT_CUDA_ID_ht_cuda_layer_norm_f16, err);
}

/* ---- gradients ---- */

static int64_t grad_chunks(int64_t n_rows) { return ht_ceil_div_i64(n_rows, HT_CUDA_GRAD_CHUNK); }

static size_t grad_scratch(const ht_call *call) {
    const ht_view *x = &call->in[0];
    const int64_t n = x->shape[x->n_dims - 1], n_rows = ht_cuda_n_rows(x, x->n_dims - 1);
    return (size_t)(2 * n_rows + 2 * grad_chunks(n_rows) * n) * sizeof(double);
}

static ht_status run_grad(const ht_call *call, ht_cuda_norm_grad_arguments *a, ht_error *err) {
    ht_cuda_device *d = ht_cuda_of(call->device);
    const int last = call->in[0].n_dims - 1;
    const bool has_bias = a->centred && !ht_view_absent(&call->in[2]);
    a->n_rows = ht_cuda_n_rows(&call->in[0], last);
    a->n = call->in[0].shape[last];
    if (a->n == 0) return HT_OK;
    a->x = row_of(call, 0);
    a->weight = row_of(call, 1);
    a->grad = row_of(call, call->n_in - 1);
    const ht_view rows_of_x = {.dtype = call->out.dtype, .n_dims = 2, .shape = {a->n_rows, a->n}};
    const ht_view out = ht_cuda_contiguous(&rows_of_x, call->out.data);
    a->out = ht_cuda_rows_of(&out, 1);
    const int64_t bytes = (int64_t)ht_dtype_bytes(out.dtype);
    char *behind = (char *)out.data + a->n_rows * a->n * bytes;
    a->to_weight = a->weight.data ? behind : NULL;
    a->to_bias = has_bias ? behind + (a->weight.data ? a->n * bytes : 0) : NULL;
    a->stats = call->scratch;
    a->part = a->stats + 2 * a->n_rows;
    a->n_chunks = grad_chunks(a->n_rows);
    a->team = ht_cuda_team_of(a->n);
    ht_status status = HT_OK;
    if (a->n_rows > 0) {
        const ht_cuda_shape rows = ht_cuda_team_shape(d, a->team, a->n_rows);
        status = ht_cuda_launch(d, ht_cuda_of_float(HT_CUDA_ID_ht_cuda_norm_grad_rows_f16, out.dtype), &rows, a, err);
    }
    if (status || (!a->to_weight && !a->to_bias)) return status;
    const ht_cuda_shape columns = {
        .grid = {ht_cuda_blocks(d, ht_ceil_div_i64(a->n, HT_CUDA_GRAD_COLUMNS) * a->n_chunks)},
        .block = {HT_CUDA_GRAD_COLUMNS * HT_CUDA_GRAD_TEAM}};
    if (a->n_rows > 0) status = ht_cuda_launch(d, HT_CUDA_ID_ht_cuda_norm_grad_columns, &columns, a, err);
    return status ? status : ht_cuda_launch_threads(d, HT_CUDA_ID_ht_cuda_norm_grad_join, a->n, a, err);
}

static ht_status run_rms_norm_gradient(const ht_call *call, ht_error *err) {
    const ht_rms_norm_params *p = call->params;
    ht_cuda_norm_grad_arguments a = {.eps = p->eps, .weight_offset = p->weight_offset};
    return run_grad(call, &a, err);
}

static ht_status run_layer_norm_gradient(const ht_call *call, ht_error *err) {
    ht_cuda_norm_grad_arguments a = {.eps = ((const ht_layer_norm_params *)call->params)->eps, .centred = true};
    return run_grad(call, &a, err);
}

/* ---- rotary embedding ---- */

static ht_status run_rope(const ht_call *call, ht_error *err) {
    ht_cuda_device *d = ht_cuda_of(call->device);
    const ht_rope_params *p = call->params;
    const ht_view *x = &call->in[0], *factors = &call->in[2];
    const int lead = x->n_dims - 2;
    if (ht_view_size(x) == 0) return HT_OK;
    const int64_t head_dim = x->shape[lead + 1], n_heads = x->shape[lead];
    ht_cuda_rope_arguments a = {.x = ht_cuda_leading_rows_of(x, lead),
                                .position = ht_cuda_leading_rows_of(&call->in[1], lead),
                                .out = call->out.data,
                                .n_rows = ht_view_size(x) / (n_heads * head_dim),
                                .n_heads = n_heads,
                                .head_dim = head_dim,
                                .head_stride = x->stride[lead],
                                .dims = p->dims,
                                .interleaved = p->interleaved,
                                .theta = p->theta,
                                .magnitude = p->magnitude,
                                .scale = (double)p->scale};
    if (call->n_in > 2 && !ht_view_absent(factors)) {
        a.factors = factors->data;
        a.factor_step = factors->stride[0];
    }
    for (int i = 0; i < p->dims / 2 && i < HT_CUDA_ROPE_PAIRS; i++)
        a.frequency[i] = pow((double)p->theta, -2.0 * (double)i / p->dims);
    /* Threads share angles among heads if there are enough threads. */
    const int64_t per_head = a.n_rows * (head_dim - p->dims / 2), enough = (int64_t)d->multiprocessors * 2048;
    a.heads_at_once = 1;
    while (a.heads_at_once < 8 && per_head * n_heads / (2 * a.heads_at_once) >= enough) a.heads_at_once *= 2;
    const int64_t n = per_head * ht_ceil_div_i64(n_heads, a.heads_at_once);
    return ht_cuda_launch_threads(d, ht_cuda_of_float(HT_CUDA_ID_ht_cuda_rope_f16, x->dtype), n, &a, err);
}

void ht_cuda_norm_kernels(ht_kernel *kernels) {
    kernels[HT_OP_RMS_NORM].run = run_rms_norm;
    kernels[HT_OP_LAYER_NORM].run = run_layer_norm;
    kernels[HT_OP_RMS_NORM_GRAD] = (ht_kernel){run_rms_norm_gradient, grad_scratch};
    kernels[HT_OP_LAYER_NORM_GRAD] = (ht_kernel){run_layer_norm_gradient, grad_scratch};
    kernels[HT_OP_ROPE].run = run_rope;
}
