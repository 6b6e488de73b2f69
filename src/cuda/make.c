/* Copies and fills. */
#include "cuda/make.h"

#include "base/dtype.h"
#include "cuda/cuda.h"
#include "device/params.h"

ht_status ht_cuda_strided_copy(ht_cuda_device *d, const ht_view *to, const ht_view *from, ht_error *err) {
    const ht_cuda_copy_arguments a = {.n = ht_view_size(from),
                                      .to = ht_cuda_view_of(to),
                                      .from = ht_cuda_view_of(from),
                                      .bytes = (int32_t)ht_dtype_bytes(from->dtype)};
    if (a.n == 0) return HT_OK;
    if (ht_view_contiguous(to) && ht_view_contiguous(from))
        return d->memory.ops->copy(d, to->data, from->data, (size_t)a.n * (size_t)a.bytes, err);
    const ht_cuda_shape shape = ht_cuda_threads(d, a.n);
    return ht_cuda_launch(d, HT_CUDA_ID_ht_cuda_copy, &shape, &a, err);
}

static ht_status run_copy(const ht_call *call, ht_error *err) {
    return ht_cuda_strided_copy(ht_cuda_of(call->device), &call->out, &call->in[0], err);
}

static ht_status run_sequence(const ht_call *call, double step, ht_error *err) {
    ht_cuda_device *d = ht_cuda_of(call->device);
    const ht_full_params *p = call->params;
    const ht_cuda_sequence_arguments a = {.n = ht_view_size(&call->out),
                                          .out = call->out.data,
                                          .dtype = (int32_t)call->out.dtype,
                                          .value = p->value,
                                          .step = step};
    if (a.n == 0) return HT_OK;
    const ht_cuda_shape shape = ht_cuda_threads(d, a.n);
    return ht_cuda_launch(d, HT_CUDA_ID_ht_cuda_sequence, &shape, &a, err);
}

static ht_status run_full(const ht_call *call, ht_error *err) { return run_sequence(call, 0, err); }
static ht_status run_arange(const ht_call *call, ht_error *err) {
    return run_sequence(call, ((const ht_full_params *)call->params)->step, err);
}

void ht_cuda_make_kernels(ht_kernel *kernels) {
    kernels[HT_OP_COPY].run = run_copy;
    kernels[HT_OP_FULL].run = run_full;
    kernels[HT_OP_ARANGE].run = run_arange;
}
