/* HEAD_LOSS and its gradient: logits exist for one slab of the vocabulary at a time. */
#include "cuda/head_loss.h"

#include "cuda/matrix_run.h"
#include "device/params.h"

enum { SLAB = 4096, THREADS = 256 }; /* rows of the matrix; of one row's losses, the order of sums depends on it */

typedef struct room {
    void *rows; /* a copy of x, where one is needed */
    ht_cuda_loss_state *state;
    float *logits; /* [t, SLAB] */
    size_t bytes;
} room;

static room lay_out(const ht_call *call, void *at) {
    const size_t t = (size_t)call->in[0].shape[0];
    ht_cuda_scratch s = {.at = at};
    room r;
    r.rows = ht_cuda_take(&s, ht_cuda_rows_bytes(&call->in[0]));
    r.state = ht_cuda_take(&s, t * sizeof *r.state);
    r.logits = ht_cuda_take(&s, t * SLAB * sizeof *r.logits);
    r.bytes = s.bytes;
    return r;
}

size_t ht_cuda_head_loss_scratch(const ht_call *call) { return lay_out(call, NULL).bytes; }

static ht_cuda_loss_arguments describe(const ht_call *call, const room *r) {
    const ht_head_loss_params *p = call->params;
    return (ht_cuda_loss_arguments){.targets = call->in[1].data,
                                    .target_stride = call->in[1].stride[0],
                                    .t = call->in[0].shape[0],
                                    .vocab = p->matrix->n_rows,
                                    .logits = r->logits,
                                    .slab = SLAB,
                                    .scale = p->scale,
                                    .softcap = p->softcap,
                                    .state = r->state};
}

static ht_status run(const ht_call *call, ht_op_id op, ht_error *err) {
    ht_cuda_device *d = ht_cuda_of(call->device);
    const bool gradient = op == HT_OP_HEAD_LOSS_GRAD;
    const ht_cuda_weights w = ht_cuda_weights_of(((const ht_head_loss_params *)call->params)->matrix);
    if (ht_view_size(&call->out) == 0) return HT_OK;
    const room r = lay_out(call, call->scratch);
    ht_cuda_loss_arguments a = describe(call, &r);
    if (gradient) {
        const ht_view *result = &call->in[2], *factor = &call->in[3];
        a.lse = (const float *)result->data + result->stride[0];
        a.lse_stride = result->stride[1];
        a.factor = factor->data;
        a.factor_stride = factor->stride[0];
    } else {
        a.out = call->out.data;
    }
    ht_cuda_linear_arguments l = {.y = r.logits, .n = a.t, .ldy = SLAB};
    const ht_cuda_shape rows = {.grid = {(unsigned)a.t}, .block = {THREADS}};
    ht_status status = ht_cuda_contiguous_rows(d, &call->in[0], r.rows, &l.x, &l.ldx, err);
    a.report = ht_cuda_report(d, op);
    if (!status) status = ht_cuda_launch_threads(d, HT_CUDA_ID_ht_cuda_loss_begin, a.t, &a, err);
    for (a.row = 0; a.row < w.n_rows && !status; a.row += SLAB) {
        a.n = ht_min_i64(SLAB, w.n_rows - a.row);
        l.w = ht_cuda_some_rows(&w, a.row, a.n);
        status = ht_cuda_multiply(d, &l, err); /* unscaled logits */
        const ht_cuda_kernel_id kernel = gradient ? HT_CUDA_ID_ht_cuda_loss_gradients : HT_CUDA_ID_ht_cuda_loss_sums;
        if (!status) status = ht_cuda_launch(d, kernel, &rows, &a, err);
        const ht_cuda_back_arguments b = {.w = l.w,
                                          .dy = r.logits,
                                          .dx = call->out.data,
                                          .n = a.t,
                                          .ldx = w.k,
                                          .dy_stride = {SLAB},
                                          .dy_step = 1,
                                          .accumulate = a.row > 0};
        if (gradient && !status) status = ht_cuda_multiply_back(d, &b, err);
    }
    return status || gradient ? status : ht_cuda_launch_threads(d, HT_CUDA_ID_ht_cuda_loss_end, a.t, &a, err);
}

ht_status ht_cuda_head_loss(const ht_call *call, ht_error *err) { return run(call, HT_OP_HEAD_LOSS, err); }
ht_status ht_cuda_head_loss_grad(const ht_call *call, ht_error *err) { return run(call, HT_OP_HEAD_LOSS_GRAD, err); }
