/* HEAD_LOSS and its gradient: logits exist for one slab of the vocabulary at a time. */
#include "base/checked.h"
#include "cuda/matrix_run.h"
#include "device/params.h"

enum { SLAB = 4096, THREADS = 256 }; /* rows of the matrix; of one row's losses, the order of sums depends on it */

typedef struct room {
    void *rows; /* a copy of x, where one is needed */
    ht_cuda_loss_state *state;
    float *logits; /* [t, SLAB] */
    size_t bytes;
} room;

static void *take(room *r, void *at, int64_t n, size_t bytes) {
    void *p = at ? (char *)at + r->bytes : NULL;
    r->bytes += ((size_t)n * bytes + 63) / 64 * 64;
    return p;
}

static room lay_out(const ht_call *call, void *at) {
    const int64_t t = call->in[0].shape[0];
    room r = {0};
    r.rows = take(&r, at, 1, ht_cuda_rows_bytes(&call->in[0]));
    r.state = take(&r, at, t, sizeof *r.state);
    r.logits = take(&r, at, t * SLAB, sizeof *r.logits);
    return r;
}

size_t ht_cuda_head_loss_scratch(const ht_call *call) { return lay_out(call, NULL).bytes; }
size_t ht_cuda_head_loss_grad_scratch(const ht_call *call) { return lay_out(call, NULL).bytes; }

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

static ht_status begin(ht_cuda_device *d, ht_cuda_loss_arguments *a, ht_op_id op, ht_error *err) {
    a->report = ht_cuda_report(d, op);
    const ht_cuda_shape shape = ht_cuda_threads(d, a->t);
    return ht_cuda_launch(d, HT_CUDA_ID_ht_cuda_loss_begin, &shape, a, err);
}

/* The logits of rows [row, row + SLAB) of the matrix, unscaled. */
static ht_status make_logits(ht_cuda_device *d, const ht_cuda_weights *w, ht_cuda_linear_arguments *l,
                             ht_cuda_loss_arguments *a, int64_t row, ht_error *err) {
    a->row = row;
    a->n = ht_min_i64(SLAB, w->n_rows - row);
    l->w = ht_cuda_some_rows(w, row, a->n);
    return ht_cuda_multiply(d, l, err);
}

ht_status ht_cuda_head_loss(const ht_call *call, ht_error *err) {
    ht_cuda_device *d = ht_cuda_of(call->device);
    const ht_cuda_weights w = ht_cuda_weights_of(((const ht_head_loss_params *)call->params)->matrix);
    if (ht_view_size(&call->out) == 0) return HT_OK;
    const room r = lay_out(call, call->scratch);
    ht_cuda_loss_arguments a = describe(call, &r);
    a.out = call->out.data;
    ht_cuda_linear_arguments l = {.y = r.logits, .n = a.t, .ldy = SLAB};
    const ht_cuda_shape rows = {.grid = {(unsigned)a.t}, .block = {THREADS}}, threads = ht_cuda_threads(d, a.t);
    ht_status status = ht_cuda_contiguous_rows(d, &call->in[0], r.rows, &l.x, &l.ldx, err);
    if (!status) status = begin(d, &a, HT_OP_HEAD_LOSS, err);
    for (int64_t row = 0; row < w.n_rows && !status; row += SLAB) {
        status = make_logits(d, &w, &l, &a, row, err);
        if (!status) status = ht_cuda_launch(d, HT_CUDA_ID_ht_cuda_loss_sums, &rows, &a, err);
    }
    return status ? status : ht_cuda_launch(d, HT_CUDA_ID_ht_cuda_loss_end, &threads, &a, err);
}

ht_status ht_cuda_head_loss_grad(const ht_call *call, ht_error *err) {
    ht_cuda_device *d = ht_cuda_of(call->device);
    const ht_cuda_weights w = ht_cuda_weights_of(((const ht_head_loss_params *)call->params)->matrix);
    const ht_view *result = &call->in[2], *factor = &call->in[3];
    if (ht_view_size(&call->out) == 0) return HT_OK;
    const room r = lay_out(call, call->scratch);
    ht_cuda_loss_arguments a = describe(call, &r);
    a.lse = (const float *)result->data + result->stride[0];
    a.lse_stride = result->stride[1];
    a.factor = factor->data;
    a.factor_stride = factor->stride[0];
    ht_cuda_linear_arguments l = {.y = r.logits, .n = a.t, .ldy = SLAB};
    const ht_cuda_shape rows = {.grid = {(unsigned)a.t}, .block = {THREADS}};
    ht_status status = ht_cuda_contiguous_rows(d, &call->in[0], r.rows, &l.x, &l.ldx, err);
    if (!status) status = begin(d, &a, HT_OP_HEAD_LOSS_GRAD, err);
    for (int64_t row = 0; row < w.n_rows && !status; row += SLAB) {
        status = make_logits(d, &w, &l, &a, row, err);
        if (!status) status = ht_cuda_launch(d, HT_CUDA_ID_ht_cuda_loss_gradients, &rows, &a, err);
        const ht_cuda_back_arguments b = {.w = l.w,
                                          .dy = r.logits,
                                          .dx = call->out.data,
                                          .n = a.t,
                                          .ldy = SLAB,
                                          .ldx = w.k,
                                          .dy_step = 1,
                                          .accumulate = row > 0};
        if (!status) status = ht_cuda_multiply_back(d, &b, err);
    }
    return status;
}
