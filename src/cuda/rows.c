/* Rows of views, for operations that process rows. */
#include "base/checked.h"
#include "cuda/cuda.h"

/* Appends an axis, merged with the last one if one stride covers both. */
static void push_axis(ht_cuda_rows *r, int64_t shape, int64_t stride) {
    if (shape == 1) return;
    if (r->n_dims > 0 && r->stride[r->n_dims - 1] == shape * stride) {
        r->shape[r->n_dims - 1] *= shape;
        r->stride[r->n_dims - 1] = stride;
        return;
    }
    r->shape[r->n_dims] = shape;
    r->stride[r->n_dims++] = stride;
}

static bool has_quads(const ht_cuda_rows *r, ht_dtype dtype) {
    const size_t bytes = 4 * ht_dtype_bytes(dtype);
    bool aligned = r->step == 1 && (uintptr_t)r->data % bytes == 0;
    for (int d = 0; d < r->n_dims; d++) aligned = aligned && r->stride[d] % 4 == 0;
    return aligned;
}

ht_cuda_rows ht_cuda_rows_of(const ht_view *v, int axis) {
    ht_cuda_rows r = {.data = v->data, .dtype = v->dtype, .step = v->stride[axis]};
    for (int d = 0; d < v->n_dims; d++)
        if (d != axis) push_axis(&r, v->shape[d], v->stride[d]);
    r.quads = has_quads(&r, v->dtype) && v->shape[axis] % 4 == 0;
    return r;
}

ht_cuda_rows ht_cuda_leading_rows_of(const ht_view *v, int n_dims) {
    ht_cuda_rows r = {.data = v->data, .dtype = v->dtype, .step = v->n_dims ? v->stride[v->n_dims - 1] : 0};
    for (int d = 0; d < n_dims; d++) push_axis(&r, v->shape[d], v->stride[d]);
    return r;
}

int64_t ht_cuda_n_rows(const ht_view *v, int axis) {
    int64_t n = 1;
    for (int d = 0; d < v->n_dims; d++)
        if (d != axis) n *= v->shape[d];
    return n;
}

ht_cuda_shape ht_cuda_team_shape(const ht_cuda_device *d, int32_t team, int64_t n_rows) {
    enum { WARPS = 4, BLOCKS_PER_MP = 32 };
    const int64_t threads = team == HT_CUDA_WARP ? WARPS * HT_CUDA_WARP : team, rows = threads / team;
    const int64_t blocks = ht_min_i64(ht_ceil_div_i64(n_rows, rows), (int64_t)d->multiprocessors * BLOCKS_PER_MP);
    return (ht_cuda_shape){.grid = {(unsigned)blocks}, .block = {(unsigned)threads}};
}
