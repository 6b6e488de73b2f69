/* Views: new shapes and strides on an array's storage. */
#include "array/op.h"
#include "array/replay.h"
#include "base/checked.h"
#include "base/error.h"
#include "ops/gradient.h"

#include <hearth/ops.h>

#include <stdlib.h>
#include <string.h>

/* ---- recording ---- */

typedef enum view_kind { RESHAPED, STRETCHED, STRIDED, TRANSPOSED, WIDENED, SQUEEZED, RETYPED } view_kind;

typedef struct view_args {
    view_kind kind;
    int n_dims, axis; /* or the dtype */
    int order[HT_MAX_DIMS];
    int64_t shape[HT_MAX_DIMS], stride[HT_MAX_DIMS], offset;
} view_args;

static bool view_again(ht_scope *s, const void *args, ht_array *const *in, int n_in, ht_array **out) {
    const view_args *a = args;
    (void)n_in;
    switch (a->kind) {
    case RESHAPED: out[0] = ht_reshape(s, in[0], a->shape, a->n_dims); break;
    case STRETCHED: out[0] = ht_broadcast_to(s, in[0], a->shape, a->n_dims); break;
    case STRIDED: out[0] = ht_as_strided(s, in[0], a->shape, a->stride, a->n_dims, a->offset); break;
    case TRANSPOSED: out[0] = ht_transpose(s, in[0], a->order); break;
    case WIDENED: out[0] = ht_expand_dims(s, in[0], a->axis); break;
    case SQUEEZED: out[0] = ht_squeeze(s, in[0], a->axis); break;
    case RETYPED: out[0] = ht_view_as(s, in[0], (ht_dtype)a->axis); break;
    }
    return out[0] != NULL;
}

static ht_array *record_view(ht_scope *s, view_args a, ht_array *x, const int64_t *shape) {
    if (shape && a.n_dims > 0 && a.n_dims <= HT_MAX_DIMS) memcpy(a.shape, shape, (size_t)a.n_dims * sizeof *shape);
    return ht_record_one(s, view_again, &a, sizeof a, &x, 1);
}

/* Infers the size given as -1, and checks the number of elements. */
static bool complete_shape(ht_scope *s, const ht_array *x, const int64_t *shape, int n_dims, int64_t *full) {
    char from[HT_SHAPE_TEXT], to[HT_SHAPE_TEXT];
    int open = -1;
    int64_t known = 1, size = ht_array_size(x);
    bool ok = n_dims >= 0 && n_dims <= HT_MAX_DIMS;
    for (int i = 0; ok && i < n_dims; i++) {
        full[i] = shape[i];
        if (shape[i] == -1 && open < 0)
            open = i;
        else if (shape[i] < 0 || !ht_mul_i64(known, shape[i], &known))
            ok = false;
    }
    if (ok && open >= 0) {
        ok = known > 0 && size % known == 0;
        if (ok) full[open] = size / known;
    } else if (ok)
        ok = known == size;
    if (!ok)
        ht_scope_fail(s, HT_ERR_ARGUMENT, "reshape: %s cannot become %s", ht_shape_text(x->shape, x->n_dims, from),
                      n_dims >= 0 && n_dims <= HT_MAX_DIMS ? ht_shape_text(shape, n_dims, to) : "that many dimensions");
    return ok;
}

/* Strides of a reshape without copying: mutually contiguous axes of x are merged into runs, and every run must be a
 * product of consecutive new axes. False when a copy is needed. */
static bool strides_for(const ht_array *x, const int64_t *shape, int n_dims, int64_t *stride) {
    int64_t old_shape[HT_MAX_DIMS], old_stride[HT_MAX_DIMS];
    int n_old = 0;
    for (int i = 0; i < x->n_dims; i++) { /* merge */
        if (x->shape[i] == 1) continue;
        if (n_old && old_stride[n_old - 1] == x->stride[i] * x->shape[i]) {
            old_shape[n_old - 1] *= x->shape[i];
            old_stride[n_old - 1] = x->stride[i];
        } else {
            old_shape[n_old] = x->shape[i];
            old_stride[n_old++] = x->stride[i];
        }
    }
    int run = n_old - 1;
    int64_t left = run >= 0 ? old_shape[run] : 1, step = run >= 0 ? old_stride[run] : 1;
    for (int i = n_dims - 1; i >= 0; i--) {
        stride[i] = step;
        if (shape[i] == 1) continue;
        while (left == 1 && run > 0) {
            run--;
            left = old_shape[run];
            step = old_stride[run];
            stride[i] = step;
        }
        if (left % shape[i] != 0) return false;
        left /= shape[i];
        step *= shape[i];
    }
    return true;
}

ht_array *ht_reshape(ht_scope *s, ht_array *x, const int64_t *shape, int n_dims) {
    if (ht_recording()) return record_view(s, (view_args){.kind = RESHAPED, .n_dims = n_dims}, x, shape);
    int64_t full[HT_MAX_DIMS], stride[HT_MAX_DIMS];
    if (!x || !complete_shape(s, x, shape, n_dims, full)) return NULL;
    if (ht_array_size(x) == 0 || !strides_for(x, full, n_dims, stride)) {
        x = ht_contiguous(s, x);
        if (!x) return NULL;
        int64_t step = 1;
        for (int i = n_dims - 1; i >= 0; i--) {
            stride[i] = step;
            step *= full[i] > 0 ? full[i] : 1;
        }
    }
    ht_array *v = ht_view_node(s, HT_OP_RESHAPE, &x, 1, 0);
    if (!v) return NULL;
    v->n_dims = n_dims;
    memcpy(v->shape, full, (size_t)n_dims * sizeof full[0]);
    memcpy(v->stride, stride, (size_t)n_dims * sizeof stride[0]);
    return v;
}

ht_array *ht_transpose(ht_scope *s, ht_array *x, const int *axes) {
    if (!x) return NULL;
    bool seen[HT_MAX_DIMS] = {false};
    int order[HT_MAX_DIMS] = {0};
    for (int i = 0; i < x->n_dims; i++) {
        int axis = axes ? axes[i] : x->n_dims - 1 - i;
        if (axis < 0) axis += x->n_dims;
        if (axis < 0 || axis >= x->n_dims || seen[axis])
            return ht_scope_fail(s, HT_ERR_ARGUMENT, "transpose: axes must name each of the %d axes once", x->n_dims);
        seen[axis] = true;
        order[i] = axis;
    }
    if (ht_recording()) {
        view_args a = {.kind = TRANSPOSED};
        memcpy(a.order, order, sizeof order);
        return record_view(s, a, x, NULL);
    }
    ht_array *v = ht_view_node(s, HT_OP_TRANSPOSE, &x, 1, 0);
    if (!v) return NULL;
    ht_transpose_params *p = (void *)v->params;
    for (int i = 0; i < x->n_dims; i++) {
        v->shape[i] = x->shape[order[i]];
        v->stride[i] = x->stride[order[i]];
        p->axis[i] = (int8_t)order[i];
    }
    return v;
}

ht_array *ht_as_strided(ht_scope *s, ht_array *x, const int64_t *shape, const int64_t *stride, int n_dims,
                        int64_t offset) {
    if (n_dims < 0 || n_dims > HT_MAX_DIMS)
        return ht_scope_fail(s, HT_ERR_ARGUMENT, "as_strided: %d dimensions, expected 0 to %d", n_dims, HT_MAX_DIMS);
    if (ht_recording()) {
        view_args a = {.kind = STRIDED, .n_dims = n_dims, .offset = offset};
        if (n_dims) memcpy(a.stride, stride, (size_t)n_dims * sizeof *stride);
        return record_view(s, a, x, shape);
    }
    x = ht_contiguous(s, x);
    if (!x) return NULL;
    int64_t low = offset, high = offset, size = ht_array_size(x), count;
    bool ok = ht_shape_size(shape, n_dims, &count);
    for (int i = 0; ok && count > 0 && i < n_dims; i++) {
        int64_t reach;
        ok = ht_mul_i64(shape[i] - 1, stride[i], &reach) &&
             ht_add_i64(reach < 0 ? low : high, reach, reach < 0 ? &low : &high);
    }
    char text[HT_SHAPE_TEXT];
    if (!ok || (count > 0 && (low < 0 || high >= size)))
        return ht_scope_fail(s, HT_ERR_ARGUMENT, "as_strided: a window %s reaches outside the %lld elements",
                             ht_shape_text(shape, n_dims, text), (long long)size);
    ht_array *v = ht_view_node(s, HT_OP_AS_STRIDED, &x, 1, 0);
    if (!v) return NULL;
    v->n_dims = n_dims;
    memcpy(v->shape, shape, (size_t)n_dims * sizeof shape[0]);
    memcpy(v->stride, stride, (size_t)n_dims * sizeof stride[0]);
    v->offset = x->offset + offset;
    ht_window_params *p = (void *)v->params;
    memcpy(p->stride, v->stride, sizeof p->stride);
    p->offset = offset;
    return v;
}

ht_array *ht_broadcast_to(ht_scope *s, ht_array *x, const int64_t *shape, int n_dims) {
    if (!x) return NULL;
    if (ht_recording()) return record_view(s, (view_args){.kind = STRETCHED, .n_dims = n_dims}, x, shape);
    char from[HT_SHAPE_TEXT], to[HT_SHAPE_TEXT];
    int lead = n_dims - x->n_dims;
    bool ok = n_dims <= HT_MAX_DIMS && lead >= 0;
    for (int i = 0; ok && i < n_dims; i++)
        ok = shape[i] >= 0 && (i < lead || x->shape[i - lead] == 1 || x->shape[i - lead] == shape[i]);
    if (!ok)
        return ht_scope_fail(s, HT_ERR_ARGUMENT, "broadcast: %s does not stretch to %s",
                             ht_shape_text(x->shape, x->n_dims, from),
                             n_dims >= 0 && n_dims <= HT_MAX_DIMS ? ht_shape_text(shape, n_dims, to) : "that shape");
    ht_array *v = ht_view_node(s, HT_OP_BROADCAST, &x, 1, 0);
    if (!v) return NULL;
    v->n_dims = n_dims;
    for (int i = 0; i < n_dims; i++) {
        v->shape[i] = shape[i];
        v->stride[i] = i < lead || (x->shape[i - lead] == 1 && shape[i] != 1) ? 0 : x->stride[i - lead];
    }
    return v;
}

ht_array *ht_expand_dims(ht_scope *s, ht_array *x, int axis) {
    if (!x) return NULL;
    if (ht_recording()) return record_view(s, (view_args){.kind = WIDENED, .axis = axis}, x, NULL);
    int n = x->n_dims, at = axis < 0 ? axis + n + 1 : axis;
    if (n == HT_MAX_DIMS)
        return ht_scope_fail(s, HT_ERR_ARGUMENT, "expand_dims: a %d-dimensional array cannot get another", n);
    if (at < 0 || at > n)
        return ht_scope_fail(s, HT_ERR_INDEX, "expand_dims: axis %d does not fit a %d-dimensional array", axis, n);
    ht_array *v = ht_view_node(s, HT_OP_RESHAPE, &x, 1, 0);
    if (!v) return NULL;
    v->n_dims = n + 1;
    for (int i = n; i > at; i--) {
        v->shape[i] = x->shape[i - 1];
        v->stride[i] = x->stride[i - 1];
    }
    v->shape[at] = 1;
    v->stride[at] = at < n ? x->stride[at] * x->shape[at] : 1;
    return v;
}

ht_array *ht_squeeze(ht_scope *s, ht_array *x, int axis) {
    if (!x) return NULL;
    if (ht_recording()) return record_view(s, (view_args){.kind = SQUEEZED, .axis = axis}, x, NULL);
    int n = x->n_dims, at = axis < 0 ? axis + n : axis;
    char text[HT_SHAPE_TEXT];
    if (at < 0 || at >= n || x->shape[at] != 1)
        return ht_scope_fail(s, HT_ERR_ARGUMENT, "squeeze: axis %d of %s is not 1", axis,
                             ht_shape_text(x->shape, n, text));
    ht_array *v = ht_view_node(s, HT_OP_RESHAPE, &x, 1, 0);
    if (!v) return NULL;
    v->n_dims = n - 1;
    for (int i = at; i < n - 1; i++) {
        v->shape[i] = x->shape[i + 1];
        v->stride[i] = x->stride[i + 1];
    }
    return v;
}

/* ---- reinterpretation ---- */

ht_array *ht_view_as(ht_scope *s, ht_array *x, ht_dtype dtype) {
    if (!x) return NULL;
    if (ht_recording()) return record_view(s, (view_args){.kind = RETYPED, .axis = (int)dtype}, x, NULL);
    const int64_t have = (int64_t)ht_dtype_bytes(x->dtype), want = (int64_t)ht_dtype_bytes(dtype);
    const int last = x->n_dims - 1;
    char text[HT_SHAPE_TEXT];
    if (want == 0) return ht_scope_fail(s, HT_ERR_ARGUMENT, "view_as: %d is no dtype", (int)dtype);
    if (x->dtype == dtype) return x;
    if (have != want && (x->n_dims == 0 || x->shape[last] * have % want != 0))
        return ht_scope_fail(s, HT_ERR_ARGUMENT, "view_as: %s of %s cannot be looked at as %s, of %lld bytes",
                             ht_shape_text(x->shape, x->n_dims, text), ht_dtype_name(x->dtype), ht_dtype_name(dtype),
                             (long long)want);
    bool fits = have == want || ((x->stride[last] == 1 || x->shape[last] <= 1) && x->offset * have % want == 0);
    for (int i = 0; fits && have != want && i < last; i++) fits = x->stride[i] * have % want == 0;
    if (!fits) x = ht_apply(s, HT_OP_COPY, NULL, &x, 1);
    ht_array *v = ht_view_node(s, HT_OP_VIEW_AS, &x, 1, 0);
    if (!v) return NULL;
    v->dtype = dtype;
    if (have == want) return v;
    v->offset = x->offset * have / want;
    v->shape[last] = x->shape[last] * have / want;
    for (int i = 0; i < last; i++) v->stride[i] = x->stride[i] * have / want;
    v->stride[last] = 1;
    return v;
}

/* ---- adjoint of AS_STRIDED ---- */

ht_status ht_shape_strided_add(const ht_op_call *c, ht_result_type *out, ht_error *err) {
    (void)err;
    const ht_strided_add_params *p = c->params;
    out->dtype = c->in[0]->dtype;
    out->n_dims = p->n_dims;
    memcpy(out->shape, p->shape, (size_t)p->n_dims * sizeof *p->shape);
    return HT_OK;
}

ht_array *ht_strided_add(ht_scope *s, ht_array *x, const int64_t *shape, int n_dims, const int64_t *stride,
                         int64_t offset) {
    if (!x) return NULL;
    ht_strided_add_params p = {.window = {.offset = offset}, .n_dims = n_dims, .shape = shape};
    memcpy(p.window.stride, stride, (size_t)x->n_dims * sizeof *stride);
    return ht_apply(s, HT_OP_STRIDED_ADD, &p, &x, 1);
}

/* ---- reverse rules ---- */

/* Reverse rules of views and concatenation: permutations are inverted, broadcasts are summed. */

void ht_vjp_reshape(ht_scope *s, const ht_array *node, ht_array *grad, ht_array **grad_in) {
    grad_in[0] = ht_reshape(s, grad, node->in[0]->shape, node->in[0]->n_dims);
}

void ht_vjp_transpose(ht_scope *s, const ht_array *node, ht_array *grad, ht_array **grad_in) {
    const ht_transpose_params *p = (const void *)node->params;
    int back[HT_MAX_DIMS];
    for (int i = 0; i < node->n_dims; i++) back[p->axis[i]] = i;
    grad_in[0] = ht_transpose(s, grad, back);
}

void ht_vjp_broadcast(ht_scope *s, const ht_array *node, ht_array *grad, ht_array **grad_in) {
    const ht_array *x = node->in[0];
    int axis[HT_MAX_DIMS], n = 0, lead = node->n_dims - x->n_dims;
    for (int i = 0; i < node->n_dims; i++)
        if (i < lead || (x->shape[i - lead] == 1 && node->shape[i] != 1)) axis[n++] = i;
    ht_array *sum = n ? ht_sum(s, grad, axis, n, true) : grad;
    grad_in[0] = ht_reshape(s, sum, x->shape, x->n_dims);
}

/* ---- strided windows ---- */

static void row_major(const ht_array *x, int64_t *stride) {
    int64_t step = 1;
    for (int i = x->n_dims - 1; i >= 0; i--) {
        stride[i] = step;
        step *= x->shape[i];
    }
}

static ht_array *put_back(ht_scope *s, const ht_array *x, ht_array *grad, const int64_t *stride, int64_t offset) {
    return ht_strided_add(s, grad, x->shape, x->n_dims, stride, ht_array_size(grad) ? offset : 0);
}

void ht_vjp_window(ht_scope *s, const ht_array *node, ht_array *grad, ht_array **grad_in) {
    const ht_window_params *p = (const void *)node->params;
    grad_in[0] = put_back(s, node->in[0], grad, p->stride, p->offset);
}

void ht_vjp_slice(ht_scope *s, const ht_array *node, ht_array *grad, ht_array **grad_in) {
    const ht_slice_params *p = (const void *)node->params;
    const ht_array *x = node->in[0];
    int64_t stride[HT_MAX_DIMS], offset = 0;
    row_major(x, stride);
    for (int i = 0; i < x->n_dims; i++) {
        offset += p->start[i] * stride[i];
        stride[i] *= p->step[i];
    }
    grad_in[0] = put_back(s, x, grad, stride, offset);
}

/* Reverse rule of DIAGONAL only: the slice in ops/axes.c is a separate node with its own rule. */
void ht_vjp_diagonal(ht_scope *s, const ht_array *node, ht_array *grad, ht_array **grad_in) {
    const ht_diagonal_params *p = (const void *)node->params;
    const ht_array *x = node->in[0];
    int64_t of_x[HT_MAX_DIMS], stride[HT_MAX_DIMS];
    int n = 0;
    row_major(x, of_x);
    for (int i = 0; i < x->n_dims; i++)
        if (i != p->axis1 && i != p->axis2) stride[n++] = of_x[i];
    stride[n] = of_x[p->axis1] + of_x[p->axis2];
    int64_t offset = p->start[0] * of_x[p->axis1] + p->start[1] * of_x[p->axis2];
    grad_in[0] = put_back(s, x, grad, stride, offset);
}

void ht_vjp_strided_add(ht_scope *s, const ht_array *node, ht_array *grad, ht_array **grad_in) {
    const ht_window_params *p = (const void *)node->params;
    const ht_array *x = node->in[0];
    grad_in[0] = ht_as_strided(s, grad, x->shape, p->stride, x->n_dims, p->offset);
}

void ht_vjp_concatenate(ht_scope *s, const ht_array *node, ht_array *grad, ht_array **grad_in) {
    const int axis = ((const ht_axis_params *)(const void *)node->params)->axis;
    int64_t begin = 0, end;
    for (int i = 0; i < node->n_in; i++, begin = end) {
        end = begin + node->in[i]->shape[axis];
        grad_in[i] = ht_axis_part(s, grad, axis, begin, end);
    }
}
