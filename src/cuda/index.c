/* Indexing: gathering and scattering slices (cuda/index.cu). */
#include "cuda/index.h"

#include "base/dtype.h"
#include "base/error.h"
#include "cuda/cuda.h"
#include "device/params.h"

#include <stdlib.h>
#include <string.h>

/* ---- indices ---- */

/* The bounds and stride of an index, as in cpu/reference/index_check.h. */
typedef struct bounds {
    int axis;
    int64_t size, length, stride;
} bounds;

/* For the next launch only, which reports its bad indices. */
static ht_cuda_index index_of(ht_cuda_device *d, ht_op_id op, const ht_view *index, bounds b) {
    const int64_t n = ht_view_size(index);
    return (ht_cuda_index){.view = ht_cuda_view_of(index),
                           .size = b.size,
                           .length = b.length,
                           .stride = b.stride,
                           .repeat = 1,
                           .n = n ? n : 1,
                           .axis = b.axis,
                           .reporter = ht_cuda_report(d, op)};
}

/* Offsets of all indices, stored or added; without `out` they are only checked. */
static ht_status index_offsets(ht_cuda_device *d, ht_op_id op, const ht_view *index, bounds b, bool add, int64_t *out,
                               ht_error *err) {
    ht_cuda_items_arguments a = {
        .n = ht_view_size(index), .index = index_of(d, op, index, b), .items = out, .add = add};
    if (a.n) ht_cuda_collapse(1, (ht_cuda_view *[]){&a.index.view});
    return ht_cuda_launch_threads(d, HT_CUDA_ID_ht_cuda_index_items, a.n, &a, err);
}

static void append_axis(ht_cuda_view *v, int64_t shape, int64_t stride) {
    v->shape[v->n_dims] = shape;
    v->stride[v->n_dims++] = stride;
}

static void append_axes(ht_cuda_view *v, const ht_view *from, int first, int end) {
    for (int i = first; i < end; i++) append_axis(v, from->shape[i], from->stride[i]);
}

/* ---- slices read ---- */

/* Collapses the views of `a`, whose rows and base are set; `steps` are the byte strides of earlier indices. */
static ht_status launch_take(ht_cuda_device *d, ht_cuda_take_arguments *a, uint64_t steps, ht_error *err) {
    ht_cuda_collapse(2, (ht_cuda_view *[]){&a->base, &a->index.view});
    ht_cuda_collapse(1, (ht_cuda_view *[]){&a->slice});
    steps |= (uint64_t)(uintptr_t)a->out | (uint64_t)(a->index.stride * a->bytes);
    const int64_t by = ht_cuda_use_wide_words(2, (ht_cuda_view *[]){&a->slice, &a->base}, 1, steps, &a->bytes);
    a->index.stride /= by;
    a->size /= by;
    const ht_cuda_shape shape = ht_cuda_grid_of_rows(d, a->rows, a->size);
    return ht_cuda_launch(d, HT_CUDA_ID_ht_cuda_take, &shape, a, err);
}

static ht_cuda_take_arguments take_of(const ht_call *call) {
    const ht_view *x = &call->in[0];
    return (ht_cuda_take_arguments){
        .base = {.data = x->data}, .out = call->out.data, .bytes = (int32_t)ht_dtype_bytes(x->dtype)};
}

static ht_status run_take(const ht_call *call, ht_error *err) {
    ht_cuda_device *d = ht_cuda_of(call->device);
    const ht_view *x = &call->in[0], *index = &call->in[1];
    const int axis = ((const ht_axis_params *)call->params)->axis;
    const bounds b = {axis, x->shape[axis], x->shape[axis], x->stride[axis]};
    const int64_t n = ht_view_size(&call->out);
    if (n == 0) return index_offsets(d, HT_OP_TAKE, index, b, false, NULL, err);
    ht_cuda_take_arguments a = take_of(call);
    a.index = index_of(d, HT_OP_TAKE, index, b);
    a.index.view.n_dims = 0;
    append_axes(&a.base, x, 0, axis);
    for (int i = 0; i < axis; i++) append_axis(&a.index.view, x->shape[i], 0);
    for (int i = 0; i < index->n_dims; i++) append_axis(&a.base, index->shape[i], 0);
    append_axes(&a.index.view, index, 0, index->n_dims);
    append_axes(&a.slice, x, axis + 1, x->n_dims);
    a.size = 1;
    for (int i = axis + 1; i < x->n_dims; i++) a.size *= x->shape[i];
    a.rows = n / a.size;
    return launch_take(d, &a, 0, err);
}

static ht_status run_take_along(const ht_call *call, ht_error *err) {
    ht_cuda_device *d = ht_cuda_of(call->device);
    const ht_view *x = &call->in[0], *index = &call->in[1];
    const int axis = ((const ht_axis_params *)call->params)->axis;
    ht_cuda_take_arguments a = take_of(call);
    a.rows = ht_view_size(&call->out);
    a.size = 1;
    if (a.rows == 0) return HT_OK;
    a.index = index_of(d, HT_OP_TAKE_ALONG, index, (bounds){axis, x->shape[axis], x->shape[axis], x->stride[axis]});
    for (int i = 0; i < index->n_dims; i++) append_axis(&a.base, index->shape[i], i == axis ? 0 : x->stride[i]);
    return launch_take(d, &a, 0, err);
}

static bounds gather_bounds(const ht_call *call, int i) {
    const ht_gather_params *p = call->params;
    const ht_view *x = &call->in[0];
    const int axis = p->axis[i];
    return (bounds){axis, x->shape[axis], x->shape[axis] - p->size[axis] + 1, x->stride[axis]};
}

static size_t gather_scratch(const ht_call *call) {
    return call->n_in > 2 ? (size_t)ht_view_size(&call->in[1]) * sizeof(int64_t) : 0;
}

/* Sums all indices but the last in scratch memory. Each has a launch, so that the first operand with a bad index is
 * reported. Offsets are in elements, and slices are not read in wide words. */
static ht_status run_gather(const ht_call *call, ht_error *err) {
    ht_cuda_device *d = ht_cuda_of(call->device);
    const ht_gather_params *p = call->params;
    const ht_view *x = &call->in[0], *index = &call->in[call->n_in - 1];
    const int last = call->n_in - 2;
    const bool empty = ht_view_size(&call->out) == 0;
    ht_status status = HT_OK;
    for (int i = 0; i < last + empty && !status; i++)
        status = index_offsets(d, HT_OP_GATHER, &call->in[1 + i], gather_bounds(call, i), i > 0,
                               empty ? NULL : call->scratch, err);
    if (status || empty) return status;
    ht_cuda_take_arguments a = take_of(call);
    a.index = index_of(d, HT_OP_GATHER, index, gather_bounds(call, last));
    if (last > 0) a.offset = call->scratch;
    a.rows = ht_view_size(index);
    a.size = 1;
    for (int i = 0; i < index->n_dims; i++) append_axis(&a.base, index->shape[i], 0);
    for (int i = 0; i < x->n_dims; i++) {
        append_axis(&a.slice, p->size[i], x->stride[i]);
        a.size *= p->size[i];
    }
    const uint64_t any = last > 0; /* a step of one byte: no wider words */
    return launch_take(d, &a, any, err);
}

/* ---- items ---- */

/* Bits of the numbers below n. */
static int32_t bits_below(int64_t n) {
    int32_t bits = 0;
    while (bits < 63 && (int64_t)1 << bits < n) bits++;
    return bits;
}

/* Updates of destinations, before they are in order. */
typedef struct items {
    int64_t n;
    int32_t shift, bits; /* bits: of a destination */
    bool distinct;       /* no two updates have the same destination */
} items;

static items items_of(int64_t n, int64_t destinations, bool distinct) {
    return (items){n, bits_below(n), bits_below(destinations), distinct || n == 1};
}

/* The items, and a second buffer to sort them. */
static size_t items_bytes(items s) { return (size_t)(s.distinct ? s.n : 2 * s.n) * sizeof(int64_t); }

static ht_status check_items(items s, const char *op, ht_error *err) {
    if (s.shift + s.bits <= 63) return HT_OK;
    return ht_fail(err, HT_ERR_UNSUPPORTED, "%s: %lld updates of 2^%d elements are too many for a GPU", op,
                   (long long)s.n, (int)s.bits);
}

/* Sorts the items in scratch memory; *out is where they end up. */
static ht_status sort_items(ht_cuda_device *d, items s, uint64_t *scratch, const uint64_t **out, ht_error *err) {
    *out = scratch;
    return s.distinct || s.bits == 0 ? HT_OK : ht_cuda_sort_items(d, scratch, scratch + s.n, s.n, out, err);
}

/* ---- slices written ---- */

/* Sorts the items in the scratch memory, and combines their updates. */
static ht_status combine(ht_cuda_device *d, items s, ht_scatter_mode mode, void *scratch, ht_cuda_scatter_arguments *a,
                         ht_error *err) {
    ht_status status = sort_items(d, s, scratch, &a->items, err);
    if (status) return status;
    a->n = s.n;
    a->shift = s.shift;
    a->mode = (int32_t)mode;
    ht_cuda_collapse(1, (ht_cuda_view *[]){&a->to});
    ht_cuda_collapse(1, (ht_cuda_view *[]){&a->from});
    ht_cuda_collapse(2, (ht_cuda_view *[]){&a->to_slice, &a->from_slice});
    if (mode == HT_SCATTER_SET)
        a->size /= ht_cuda_use_wide_words(4, (ht_cuda_view *[]){&a->to_slice, &a->from_slice, &a->to, &a->from}, 2, 0,
                                          &a->bytes);
    const ht_cuda_shape shape = ht_cuda_grid_of_rows(d, a->n, a->size);
    return ht_cuda_launch(d,
                          mode == HT_SCATTER_SET ? HT_CUDA_ID_ht_cuda_scatter_set : HT_CUDA_ID_ht_cuda_scatter_combine,
                          &shape, a, err);
}

static ht_cuda_scatter_arguments scatter_of(const ht_call *call, const ht_view *updates) {
    return (ht_cuda_scatter_arguments){.size = 1,
                                       .to = {.data = call->out.data},
                                       .from = {.data = updates->data},
                                       .bytes = (int32_t)ht_dtype_bytes(call->out.dtype),
                                       .dtype = call->out.dtype};
}

static ht_status copy_input(const ht_call *call, ht_error *err) {
    if (call->out.data == call->in[0].data) return HT_OK;
    return ht_cuda_strided_copy(ht_cuda_of(call->device), &call->out, &call->in[0], err);
}

/* ---- scatter ---- */

/* Updates per index: the elements of a slice along the indexed axes. */
static int64_t window_of(const ht_call *call) {
    const ht_scatter_params *p = call->params;
    const ht_view *updates = &call->in[call->n_in - 1];
    int64_t n = 1;
    for (int i = 0; i < call->n_in - 2; i++) n *= updates->shape[updates->n_dims - call->out.n_dims + p->axis[i]];
    return n;
}

/* Destinations are numbered in row-major order of the indexed axes. */
static items scatter_items(const ht_call *call) {
    const ht_scatter_params *p = call->params;
    int64_t destinations = 1;
    for (int i = 0; i < call->n_in - 2; i++) destinations *= call->out.shape[p->axis[i]];
    return items_of(ht_view_size(&call->in[1]) * window_of(call), destinations, false);
}

static size_t scatter_scratch(const ht_call *call) { return items_bytes(scatter_items(call)); }

static bounds scatter_bounds(const ht_call *call, int i, int64_t stride) {
    const ht_scatter_params *p = call->params;
    const ht_view *updates = &call->in[call->n_in - 1];
    const int axis = p->axis[i];
    const int64_t length = call->out.shape[axis], size = updates->shape[updates->n_dims - call->out.n_dims + axis];
    return (bounds){axis, length, length - size + 1, stride};
}

static ht_status check_indices(const ht_call *call, ht_error *err) {
    ht_status status = HT_OK;
    for (int i = 0; i < call->n_in - 2 && !status; i++)
        status = index_offsets(ht_cuda_of(call->device), HT_OP_SCATTER, &call->in[1 + i], scatter_bounds(call, i, 0),
                               false, NULL, err);
    return status;
}

/* Writes the items of all indices: each index has a launch, so that the first operand with a bad index is reported. */
static ht_status write_scatter_items(const ht_call *call, items s, ht_error *err) {
    ht_cuda_device *d = ht_cuda_of(call->device);
    const ht_scatter_params *p = call->params;
    const ht_view *updates = &call->in[call->n_in - 1];
    const int n = call->n_in - 2, n_index_dims = updates->n_dims - call->out.n_dims;
    int64_t stride[HT_MAX_DIMS], all = 1;
    for (int i = n - 1; i >= 0; all *= call->out.shape[p->axis[i--]]) stride[i] = all;
    ht_status status = HT_OK;
    for (int i = 0; i < n && !status; i++) {
        ht_cuda_items_arguments a = {.n = s.n, .items = call->scratch, .shift = s.shift, .add = i > 0};
        a.index = index_of(d, HT_OP_SCATTER, &call->in[1 + i], scatter_bounds(call, i, stride[i]));
        a.index.repeat = window_of(call);
        for (int k = 0; k < n_index_dims; k++) append_axis(&a.base, updates->shape[k], 0);
        for (int k = 0; k < n; k++) {
            const int64_t size = updates->shape[n_index_dims + p->axis[k]];
            append_axis(&a.base, size, stride[k]);
            append_axis(&a.index.view, size, 0);
        }
        ht_cuda_collapse(2, (ht_cuda_view *[]){&a.base, &a.index.view});
        status = ht_cuda_launch_threads(d, HT_CUDA_ID_ht_cuda_index_items, a.n, &a, err);
    }
    return status;
}

static ht_status run_scatter(const ht_call *call, ht_error *err) {
    const ht_scatter_params *p = call->params;
    const ht_view *out = &call->out, *updates = &call->in[call->n_in - 1];
    const int n = call->n_in - 2, n_index_dims = updates->n_dims - out->n_dims;
    const items s = scatter_items(call);
    ht_status status = check_items(s, "scatter", err);
    if (!status) status = copy_input(call, err);
    if (!status && ht_view_size(updates) == 0) return check_indices(call, err);
    if (!status) status = write_scatter_items(call, s, err);
    if (status) return status;
    ht_cuda_scatter_arguments a = scatter_of(call, updates);
    append_axes(&a.from, updates, 0, n_index_dims);
    bool indexed[HT_MAX_DIMS] = {false};
    for (int i = 0; i < n; i++) {
        const int axis = p->axis[i], at = n_index_dims + axis;
        indexed[axis] = true;
        append_axes(&a.from, updates, at, at + 1);
        append_axes(&a.to, out, axis, axis + 1);
    }
    for (int i = 0; i < out->n_dims; i++) {
        if (indexed[i]) continue;
        const int64_t size = updates->shape[n_index_dims + i];
        append_axis(&a.to_slice, size, out->stride[i]);
        append_axis(&a.from_slice, size, updates->stride[n_index_dims + i]);
        a.size *= size;
    }
    return combine(ht_cuda_of(call->device), s, p->mode, call->scratch, &a, err);
}

/* Destinations are the elements of the result. */
static items put_along_items(const ht_call *call) {
    return items_of(ht_view_size(&call->in[1]), ht_view_size(&call->out), false);
}

static size_t put_along_scratch(const ht_call *call) { return items_bytes(put_along_items(call)); }

static ht_status run_put_along(const ht_call *call, ht_error *err) {
    ht_cuda_device *d = ht_cuda_of(call->device);
    const ht_put_along_params *p = call->params;
    const ht_view *out = &call->out, *index = &call->in[1], *values = &call->in[2];
    const items s = put_along_items(call);
    const int64_t size = ht_view_size(out);
    ht_status status = check_items(s, "put_along_axis", err);
    if (!status) status = copy_input(call, err);
    if (status || s.n == 0) return status;
    ht_cuda_items_arguments a = {.n = s.n, .items = size ? call->scratch : NULL, .shift = s.shift};
    const bounds b = {p->axis, out->shape[p->axis], out->shape[p->axis], out->stride[p->axis]};
    a.index = index_of(d, HT_OP_PUT_ALONG, index, b);
    for (int i = 0; i < index->n_dims; i++) append_axis(&a.base, index->shape[i], i == p->axis ? 0 : out->stride[i]);
    ht_cuda_collapse(2, (ht_cuda_view *[]){&a.base, &a.index.view});
    status = ht_cuda_launch_threads(d, HT_CUDA_ID_ht_cuda_index_items, a.n, &a, err);
    if (status || size == 0) return status;
    ht_cuda_scatter_arguments w = scatter_of(call, values);
    append_axis(&w.to, size, 1);
    append_axes(&w.from, values, 0, values->n_dims);
    return combine(d, s, p->mode, call->scratch, &w, err);
}

/* ---- windows ---- */

/* STRIDED_ADD as updates: one per element of the leading axes of x, each of `size` adjacent elements of the window.
 * Such slices coincide or are disjoint. */
typedef struct window {
    int n_leading;
    int64_t size, lowest; /* lowest: the window's first element in memory, from that of element 0 on */
    items items;
} window;

/* Whether the axes from `n` on are adjacent elements, and the other axes step over whole runs of them. */
static bool splits_at(const ht_view *x, const int64_t *stride, int n, int64_t *size) {
    *size = 1;
    for (int i = x->n_dims - 1; i >= n; *size *= x->shape[i--])
        if (x->shape[i] != 1 && stride[i] != *size) return false;
    for (int i = 0; i < n; i++)
        if (x->shape[i] != 1 && stride[i] % *size != 0) return false;
    return true;
}

/* Whether two elements of the leading axes may overlap. They do not if every stride exceeds the combined extent of all
 * smaller strides. */
static bool may_overlap(const ht_view *x, const int64_t *stride, int n) {
    bool used[HT_MAX_DIMS] = {false};
    int64_t reach = 0;
    for (int round = 0; round < n; round++) {
        int shortest = -1;
        for (int i = 0; i < n; i++)
            if (!used[i] && (shortest < 0 || llabs(stride[i]) < llabs(stride[shortest]))) shortest = i;
        used[shortest] = true;
        if (x->shape[shortest] == 1) continue;
        const int64_t step = llabs(stride[shortest]);
        if (step <= reach) return true;
        reach += step * (x->shape[shortest] - 1);
    }
    return false;
}

static window window_in(const ht_call *call) {
    const int64_t *stride = ((const ht_window_params *)call->params)->stride;
    const ht_view *x = &call->in[0];
    window w = {0};
    while (!splits_at(x, stride, w.n_leading, &w.size)) w.n_leading++; /* none are adjacent at the latest */
    int64_t n = 1, extent = 0;
    for (int i = 0; i < w.n_leading; i++) {
        n *= x->shape[i];
        extent += llabs(stride[i]) * (x->shape[i] - 1);
        if (stride[i] < 0) w.lowest += stride[i] * (x->shape[i] - 1);
    }
    w.items = items_of(n, extent / w.size + 1, !may_overlap(x, stride, w.n_leading));
    return w;
}

static size_t strided_add_scratch(const ht_call *call) {
    return ht_view_size(&call->in[0]) ? items_bytes(window_in(call).items) : 0;
}

static ht_status run_strided_add(const ht_call *call, ht_error *err) {
    ht_cuda_device *d = ht_cuda_of(call->device);
    const ht_window_params *p = call->params;
    const ht_view *x = &call->in[0];
    const size_t bytes = ht_dtype_bytes(call->out.dtype);
    ht_status status = d->memory.ops->fill(d, call->out.data, 0, (size_t)ht_view_size(&call->out) * bytes, err);
    if (status || ht_view_size(x) == 0) return status;
    const window w = window_in(call);
    status = check_items(w.items, "strided_add", err);
    if (status) return status;
    ht_cuda_items_arguments a = {.n = w.items.n,
                                 .index = {.view = {.n_dims = -1}, .repeat = 1, .n = 1},
                                 .first = -w.lowest / w.size,
                                 .items = call->scratch,
                                 .shift = w.items.shift};
    for (int i = 0; i < w.n_leading; i++) append_axis(&a.base, x->shape[i], p->stride[i] / w.size);
    ht_cuda_collapse(1, (ht_cuda_view *[]){&a.base});
    status = ht_cuda_launch_threads(d, HT_CUDA_ID_ht_cuda_index_items, a.n, &a, err);
    if (status) return status;
    ht_cuda_scatter_arguments s = scatter_of(call, x);
    s.size = w.size;
    s.to.data = (char *)call->out.data + (p->offset + w.lowest) * (int64_t)bytes;
    append_axis(&s.to, (int64_t)1 << w.items.bits, w.size);
    append_axes(&s.from, x, 0, w.n_leading);
    for (int i = w.n_leading; i < x->n_dims; i++) append_axis(&s.to_slice, x->shape[i], p->stride[i]);
    append_axes(&s.from_slice, x, w.n_leading, x->n_dims);
    return combine(d, w.items, HT_SCATTER_ADD, call->scratch, &s, err);
}

static ht_status run_slice_update(const ht_call *call, ht_error *err) {
    const ht_slice_params *p = call->params;
    ht_view to = call->out;
    int64_t offset = 0;
    for (int i = 0; i < to.n_dims; i++) {
        offset += p->start[i] * to.stride[i];
        to.stride[i] *= p->step[i];
        to.shape[i] = call->in[1].shape[i];
    }
    to.data = (char *)to.data + offset * (int64_t)ht_dtype_bytes(to.dtype);
    const ht_status status = copy_input(call, err);
    return status ? status : ht_cuda_strided_copy(ht_cuda_of(call->device), &to, &call->in[1], err);
}

static ht_status run_concatenate(const ht_call *call, ht_error *err) {
    const int axis = ((const ht_axis_params *)call->params)->axis;
    ht_view to = call->out;
    ht_status status = HT_OK;
    for (int i = 0; i < call->n_in && !status; i++) {
        to.shape[axis] = call->in[i].shape[axis];
        status = ht_cuda_strided_copy(ht_cuda_of(call->device), &to, &call->in[i], err);
        to.data = (char *)to.data + to.shape[axis] * to.stride[axis] * (int64_t)ht_dtype_bytes(to.dtype);
    }
    return status;
}

void ht_cuda_index_kernels(ht_kernel *kernels) {
    kernels[HT_OP_CONCATENATE].run = run_concatenate;
    kernels[HT_OP_SLICE_UPDATE].run = run_slice_update;
    kernels[HT_OP_TAKE].run = run_take;
    kernels[HT_OP_TAKE_ALONG].run = run_take_along;
    kernels[HT_OP_GATHER] = (ht_kernel){run_gather, gather_scratch};
    kernels[HT_OP_SCATTER] = (ht_kernel){run_scatter, scatter_scratch};
    kernels[HT_OP_PUT_ALONG] = (ht_kernel){run_put_along, put_along_scratch};
    kernels[HT_OP_STRIDED_ADD] = (ht_kernel){run_strided_add, strided_add_scratch};
}
