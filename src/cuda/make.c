/* Copies and fills. */
#include "cuda/make.h"

#include "base/checked.h"
#include "cuda/cuda.h"
#include "device/params.h"

/* ---- views ---- */

/* Whether axes `outer` and `inner` are one contiguous axis in every view. */
static bool mergeable(int n_views, ht_cuda_view *const *views, int outer, int inner) {
    for (int v = 0; v < n_views; v++)
        if (views[v]->stride[outer] != views[v]->stride[inner] * views[v]->shape[inner]) return false;
    return true;
}

void ht_cuda_collapse(int n_views, ht_cuda_view *const *views) {
    const int n_dims = views[0]->n_dims;
    int n = 0;
    for (int axis = 0; axis < n_dims; axis++) {
        if (views[0]->shape[axis] == 1) continue;
        for (int v = 0; v < n_views; v++) {
            views[v]->shape[n] = views[v]->shape[axis];
            views[v]->stride[n] = views[v]->stride[axis];
        }
        if (n == 0 || !mergeable(n_views, views, n - 1, n)) {
            n++;
            continue;
        }
        for (int v = 0; v < n_views; v++) {
            views[v]->shape[n - 1] *= views[v]->shape[n];
            views[v]->stride[n - 1] = views[v]->stride[n];
        }
    }
    for (int v = 0; v < n_views; v++) views[v]->n_dims = n;
}

int64_t ht_cuda_use_wide_words(int n_views, ht_cuda_view *const *views, int n_dense, uint64_t more, int32_t *bytes) {
    const uint64_t most = 16;
    for (int i = 0; i < n_views; i++) {
        const ht_cuda_view *v = views[i];
        const int n = v->n_dims - (i < n_dense);
        if (n < 0 || (i < n_dense && v->stride[n] != 1)) return 1;
        more |= (uint64_t)(uintptr_t)v->data;
        for (int axis = 0; axis < n; axis++) more |= (uint64_t)(v->stride[axis] * *bytes);
        if (i < n_dense) more |= (uint64_t)(v->shape[n] * *bytes);
    }
    const uint64_t widest = more & -more; /* 0: all are 0 */
    const int64_t by = (int64_t)(widest && widest < most ? widest : most) / *bytes;
    if (by <= 1) return 1;
    for (int i = 0; i < n_views; i++) {
        const int n = views[i]->n_dims - (i < n_dense);
        for (int axis = 0; axis < n; axis++) views[i]->stride[axis] /= by;
        if (i < n_dense) views[i]->shape[n] /= by;
    }
    *bytes *= (int32_t)by;
    return by;
}

ht_cuda_shape ht_cuda_grid_of_rows(const ht_cuda_device *d, int64_t rows, int64_t size) {
    enum { THREADS = 256 };
    unsigned across = 1;
    while (across < THREADS && across < size) across *= 2;
    const unsigned down = THREADS / across;
    const unsigned x = ht_cuda_blocks(d, ht_ceil_div_i64(rows, down));
    const int64_t left = x ? ht_cuda_blocks(d, INT64_MAX) / x : 1;
    return (ht_cuda_shape){.grid = {x, (unsigned)ht_min_i64(ht_ceil_div_i64(size, across), left)},
                           .block = {across, down}};
}

/* ---- copies ---- */

/* The axis along which `from` is dense, if squares of it and the last axis should be transposed; -1: none. */
static int axis_across(const ht_cuda_copy_arguments *a) {
    enum { MIN = 16 }; /* side of a square: smaller ones leave threads idle */
    const int last = a->to.n_dims - 1;
    if (a->to.stride[last] != 1 || a->to.shape[last] < MIN) return -1;
    if (a->from.stride[last] == 0 || a->from.stride[last] == 1) return -1; /* reads are coalesced anyway */
    for (int i = 0; i < last; i++)
        if (a->from.stride[i] == 1 && a->from.shape[i] >= MIN) return i;
    return -1;
}

static void swap_axes(ht_cuda_view *v, int i, int k) {
    const int64_t shape = v->shape[i], stride = v->stride[i];
    v->shape[i] = v->shape[k];
    v->stride[i] = v->stride[k];
    v->shape[k] = shape;
    v->stride[k] = stride;
}

static ht_status transpose(ht_cuda_device *d, const ht_cuda_copy_arguments *copy, int across, ht_error *err) {
    const int last = copy->to.n_dims - 1;
    ht_cuda_transpose_arguments a = {.matrices = copy->rows / copy->to.shape[across],
                                     .squares_across = ht_ceil_div_i64(copy->to.shape[across], HT_CUDA_SQUARE),
                                     .squares_along = ht_ceil_div_i64(copy->to.shape[last], HT_CUDA_SQUARE),
                                     .to = copy->to,
                                     .from = copy->from,
                                     .bytes = copy->bytes};
    swap_axes(&a.to, across, last - 1);
    swap_axes(&a.from, across, last - 1);
    const int pad = a.bytes < 4 ? 4 : a.bytes; /* of a row, in bytes */
    const int64_t squares = a.matrices * a.squares_across * a.squares_along, most = 1 << 20;
    const ht_cuda_shape shape = {.grid = {(unsigned)(squares < most ? squares : most)},
                                 .block = {32, HT_CUDA_SQUARE_ROWS},
                                 .shared_bytes = (unsigned)(HT_CUDA_SQUARE * (HT_CUDA_SQUARE * a.bytes + pad))};
    return ht_cuda_launch(d, HT_CUDA_ID_ht_cuda_transpose, &shape, &a, err);
}

ht_status ht_cuda_strided_copy(ht_cuda_device *d, const ht_view *to, const ht_view *from, ht_error *err) {
    const int64_t n = ht_view_size(from);
    ht_cuda_copy_arguments a = {
        .to = ht_cuda_view_of(to), .from = ht_cuda_view_of(from), .bytes = (int32_t)ht_dtype_bytes(from->dtype)};
    if (n == 0) return HT_OK;
    if (ht_view_contiguous(to) && ht_view_contiguous(from))
        return d->memory.ops->copy(d, to->data, from->data, (size_t)n * (size_t)a.bytes, err);
    ht_cuda_collapse(2, (ht_cuda_view *[]){&a.to, &a.from});
    if (a.to.n_dims == 0) return d->memory.ops->copy(d, to->data, from->data, (size_t)a.bytes, err);
    const int last = a.to.n_dims - 1;
    a.rows = n / a.to.shape[last];
    const int across = axis_across(&a);
    if (across >= 0) return transpose(d, &a, across, err);
    (void)ht_cuda_use_wide_words(2, (ht_cuda_view *[]){&a.to, &a.from}, 2, 0, &a.bytes);
    const ht_cuda_shape shape = ht_cuda_grid_of_rows(d, a.rows, a.to.shape[last]);
    return ht_cuda_launch(d, HT_CUDA_ID_ht_cuda_copy, &shape, &a, err);
}

static ht_status run_copy(const ht_call *call, ht_error *err) {
    return ht_cuda_strided_copy(ht_cuda_of(call->device), &call->out, &call->in[0], err);
}

static ht_status run_sequence(const ht_call *call, double step, ht_error *err) {
    const ht_full_params *p = call->params;
    const ht_cuda_sequence_arguments a = {.n = ht_view_size(&call->out),
                                          .out = call->out.data,
                                          .dtype = call->out.dtype,
                                          .value = p->value,
                                          .step = step};
    return ht_cuda_launch_threads(ht_cuda_of(call->device), HT_CUDA_ID_ht_cuda_sequence, a.n, &a, err);
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
