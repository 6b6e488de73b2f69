/* Gathered and quantised matrix products (gather_mm, quantized_matmul, gather_qmm), and quantisation. */
#include "array/op.h"
#include "base/checked.h"
#include "base/error.h"
#include "formats/groups.h"
#include "ops/replay_arguments.h"

#include <hearth/linalg.h>
#include <hearth/ops.h>

#include <string.h>

/* ---- indices ---- */

static int64_t matrices_of(const ht_array *x) {
    int64_t n = 1;
    for (int i = 0; i < x->n_dims - 2; i++) n *= x->shape[i];
    return n;
}

/* Default indices: 0, 1, ... in the shape of the leading axes of x, i32. */
static ht_array *counted(ht_scope *s, const ht_array *x) {
    return ht_reshape(s, ht_arange(s, 0, (double)matrices_of(x), 1, HT_I32), x->shape, x->n_dims - 2);
}

static ht_array *index_of(ht_scope *s, ht_array *index, const ht_array *x) {
    if (!index || !x) return NULL;
    if (index == HT_NONE) return counted(s, x);
    if (ht_dtype_is_float(index->dtype) || index->dtype == HT_BOOL)
        return ht_scope_fail(s, HT_ERR_ARGUMENT, "gather: indices are %s, expected integers",
                             ht_dtype_name(index->dtype));
    return ht_astype(s, index, HT_I32);
}

static bool find_indices(ht_scope *s, const ht_array *x, const ht_array *w, ht_array **left, ht_array **right) {
    int64_t shape[HT_MAX_DIMS];
    int n_dims;
    char tl[HT_SHAPE_TEXT], tr[HT_SHAPE_TEXT];
    *left = index_of(s, *left, x);
    *right = index_of(s, *right, w);
    if (!*left || !*right) return false;
    if (!ht_broadcast_shapes(*left, *right, shape, &n_dims))
        return ht_scope_fail(s, HT_ERR_ARGUMENT, "gather: indices %s and %s do not broadcast",
                             ht_shape_text((*left)->shape, (*left)->n_dims, tl),
                             ht_shape_text((*right)->shape, (*right)->n_dims, tr));
    *left = ht_broadcast_to(s, *left, shape, n_dims);
    *right = ht_broadcast_to(s, *right, shape, n_dims);
    return *left && *right;
}

/* ---- shape rules ---- */

/* Result type [leading axes of `lead`..., m, n]. */
static ht_status product_shape(const char *op, const ht_array *lead, int n_lead, int64_t m, int64_t n, ht_dtype dtype,
                               ht_result_type *out, ht_error *err) {
    if (n_lead + 2 > HT_MAX_DIMS)
        return ht_fail(err, HT_ERR_ARGUMENT, "%s: the result would have %d axes, at most %d are possible", op,
                       n_lead + 2, HT_MAX_DIMS);
    out->dtype = dtype;
    out->n_dims = n_lead + 2;
    memcpy(out->shape, lead->shape, (size_t)n_lead * sizeof out->shape[0]);
    out->shape[n_lead] = m;
    out->shape[n_lead + 1] = n;
    return HT_OK;
}

ht_status ht_shape_gather_mm(const ht_op_call *c, ht_result_type *out, ht_error *err) {
    const ht_array *a = c->in[0], *b = c->in[1];
    int na = a->n_dims, nb = b->n_dims;
    char ta[HT_SHAPE_TEXT], tb[HT_SHAPE_TEXT];
    if (a->shape[na - 1] != b->shape[nb - 2] || a->dtype != b->dtype || !ht_dtype_is_float(a->dtype))
        return ht_fail(err, HT_ERR_ARGUMENT, "%s: %s of %s by %s of %s do not multiply", c->op,
                       ht_shape_text(a->shape, na, ta), ht_dtype_name(a->dtype), ht_shape_text(b->shape, nb, tb),
                       ht_dtype_name(b->dtype));
    return product_shape(c->op, c->in[2], c->in[2]->n_dims, a->shape[na - 2], b->shape[nb - 1], a->dtype, out, err);
}

/* Checks that the weights have a scale, and for affine a bias, per group. */
static ht_status check_weights(const char *op, const ht_array *w, const ht_array *scales, const ht_array *biases,
                               const ht_quantization *how, ht_error *err) {
    char tw[HT_SHAPE_TEXT], ts[HT_SHAPE_TEXT];
    bool affine = how->mode == HT_QUANT_AFFINE, ok = w->n_dims >= 2 && w->dtype == HT_U32;
    ok = ok && scales->n_dims == w->n_dims && (affine ? ht_dtype_is_float(scales->dtype) : scales->dtype == HT_U8);
    int last = w->n_dims - 1;
    ok = ok && ht_shape_begins(scales, w->shape, last) &&
         w->shape[last] * 32 == scales->shape[last] * how->group * how->bits;
    ok = ok && affine == (biases != HT_NONE);
    if (affine && ok) ok = biases->dtype == scales->dtype && ht_same_shape(biases, scales);
    if (ok) return HT_OK;
    return ht_fail(err, HT_ERR_ARGUMENT,
                   "%s: numbers %s of %s with scales %s of %s%s are not %s groups of %d with %d bits", op,
                   ht_shape_text(w->shape, w->n_dims, tw), ht_dtype_name(w->dtype),
                   ht_shape_text(scales->shape, scales->n_dims, ts), ht_dtype_name(scales->dtype),
                   biases == HT_NONE ? " without biases" : " and biases", ht_groups_name(how->mode), (int)how->group,
                   (int)how->bits);
}

ht_status ht_shape_quantize(const ht_op_call *c, ht_result_type *out, ht_error *err) {
    const ht_quantize_params *p = c->params;
    const ht_array *w = c->in[0];
    char text[HT_SHAPE_TEXT];
    if (w->n_dims < 2 || !ht_dtype_is_float(w->dtype) || w->shape[w->n_dims - 1] % p->how.group ||
        w->shape[w->n_dims - 1] * p->how.bits % 32)
        return ht_fail(err, HT_ERR_ARGUMENT,
                       "%s: w is %s of %s, expected floating point [..., n, k] with k in groups of %d", c->op,
                       ht_shape_text(w->shape, w->n_dims, text), ht_dtype_name(w->dtype), (int)p->how.group);
    int64_t k = w->shape[w->n_dims - 1];
    ht_result_like(w, p->part == 0 ? HT_U32 : p->how.mode == HT_QUANT_AFFINE ? w->dtype : HT_U8, out);
    out->shape[w->n_dims - 1] = p->part == 0 ? k * p->how.bits / 32 : k / p->how.group;
    return HT_OK;
}

ht_status ht_shape_dequantize(const ht_op_call *c, ht_result_type *out, ht_error *err) {
    const ht_quantize_params *p = c->params;
    ht_status st = check_weights(c->op, c->in[0], c->in[1], c->in[2], &p->how, err);
    if (st) return st;
    if (!ht_dtype_is_float(p->dtype))
        return ht_fail(err, HT_ERR_ARGUMENT, "%s: a result of type %s, expected floating point", c->op,
                       ht_dtype_name(p->dtype));
    ht_result_like(c->in[1], p->dtype, out);
    out->shape[c->in[1]->n_dims - 1] *= p->how.group;
    return HT_OK;
}

ht_status ht_shape_quantized_matmul(const ht_op_call *c, ht_result_type *out, ht_error *err) {
    const ht_quantize_params *p = c->params;
    const ht_array *x = c->in[0], *w = c->in[1], *scales = c->in[2], *left = c->in[4];
    ht_status st = check_weights(c->op, w, scales, c->in[3], &p->how, err);
    if (st) return st;
    char tx[HT_SHAPE_TEXT], tw[HT_SHAPE_TEXT];
    int64_t rows = w->shape[w->n_dims - 2], columns = scales->shape[w->n_dims - 1] * p->how.group;
    if (!ht_dtype_is_float(x->dtype) || x->shape[x->n_dims - 1] != (p->transpose ? columns : rows))
        return ht_fail(err, HT_ERR_ARGUMENT, "%s: x %s of %s and w %s of %d bits, %stransposed, do not multiply", c->op,
                       ht_shape_text(x->shape, x->n_dims, tx), ht_dtype_name(x->dtype),
                       ht_shape_text(w->shape, w->n_dims, tw), (int)p->how.bits, p->transpose ? "" : "not ");
    const ht_array *lead = left == HT_NONE ? x : left;
    return product_shape(c->op, lead, left == HT_NONE ? x->n_dims - 2 : left->n_dims, x->shape[x->n_dims - 2],
                         p->transpose ? rows : columns, x->dtype, out, err);
}

/* ---- dense products ---- */

HT_REPLAY(gather_mm_again, ht_gather_mm(s, in[0], in[1], in[2], in[3]))

ht_array *ht_gather_mm(ht_scope *s, ht_array *a, ht_array *b, ht_array *left, ht_array *right) {
    if (!a || !b || !left || !right) return NULL;
    if (ht_recording())
        return ht_record_plain(s, gather_mm_again, (ht_plain_args){.number = {0}}, (ht_array *[]){a, b, left, right},
                               4);
    if (left == HT_NONE && right == HT_NONE) return ht_matmul(s, a, b, false);
    bool row = a->n_dims == 1, column = b->n_dims == 1;
    if (row) a = ht_expand_dims(s, a, 0);
    if (column) b = ht_expand_dims(s, b, 1);
    if (!a || !b) return NULL;
    if (a->n_dims < 2 || b->n_dims < 2)
        return ht_scope_fail(s, HT_ERR_ARGUMENT, "gather_mm: operands have %d and %d axes, expected at least one",
                             a->n_dims, b->n_dims);
    ht_dtype dtype = ht_dtype_promote(a->dtype, b->dtype);
    if (!find_indices(s, a, b, &left, &right)) return NULL;
    ht_array *in[4] = {ht_astype(s, a, dtype), ht_astype(s, b, dtype), left, right};
    ht_array *y = ht_apply(s, HT_OP_GATHER_MM, NULL, in, 4);
    if (y && column) y = ht_squeeze(s, y, -1);
    return y && row ? ht_squeeze(s, y, column ? -1 : -2) : y;
}

/* ---- quantised products ---- */

static bool complete(ht_scope *s, const char *op, const ht_quantization *how, ht_quantize_params *p) {
    p->how = *how;
    if (ht_groups_complete(&p->how)) return true;
    return ht_scope_fail(
        s, HT_ERR_ARGUMENT,
        "%s: there is no %s quantisation in groups of %d with %d bits; affine has groups of 32, 64 and 128 with "
        "2, 3, 4, 5, 6 or 8 bits, mxfp4 32 with 4, mxfp8 32 with 8, nvfp4 16 with 4",
        op, ht_groups_name(how->mode), (int)p->how.group, (int)p->how.bits);
}

bool ht_quantize(ht_scope *s, ht_array *w, const ht_quantization *how, ht_array *parts[3]) {
    ht_quantize_params p = {0};
    bool ok = w && complete(s, "quantize", how, &p);
    for (int i = 0; i < 3; i++) {
        p.part = i;
        parts[i] = i == 2 && p.how.mode != HT_QUANT_AFFINE ? HT_NONE : NULL;
        if (ok && !parts[i]) parts[i] = ht_apply(s, HT_OP_QUANTIZE, &p, &w, 1);
        ok = ok && parts[i];
    }
    for (int i = 0; !ok && i < 3; i++) parts[i] = NULL;
    return ok;
}

/* w with contiguous matrices, as kernels require; leading axes may have any strides. */
static ht_array *whole_matrices(ht_scope *s, ht_array *w) {
    if (!w || w == HT_NONE || w->n_dims < 2) return w;
    int last = w->n_dims - 1;
    bool whole = (w->shape[last] == 1 || w->stride[last] == 1) &&
                 (w->shape[last - 1] == 1 || w->stride[last - 1] == w->shape[last]);
    return whole ? w : ht_contiguous(s, w);
}

ht_array *ht_dequantize_groups(ht_scope *s, ht_array *const w[3], const ht_quantization *how, ht_dtype dtype) {
    ht_quantize_params p = {.dtype = dtype};
    if (!w[0] || !w[1] || !w[2] || !complete(s, "dequantize", how, &p)) return NULL;
    ht_array *in[3] = {ht_contiguous(s, w[0]), ht_contiguous(s, w[1]), w[2] == HT_NONE ? w[2] : ht_contiguous(s, w[2])};
    return ht_apply(s, HT_OP_DEQUANTIZE, &p, in, 3);
}

static ht_array *multiply(ht_scope *s, ht_quantize_params *p, ht_array *x, ht_array *const w[3], ht_array *left,
                          ht_array *right) {
    ht_array *in[6] = {x, NULL, NULL, NULL, left, right};
    for (int i = 0; i < 3; i++) in[i + 1] = whole_matrices(s, w[i]);
    if (in[1] && p->how.mode == HT_QUANT_AFFINE && ht_dtype_is_float(w[1]->dtype))
        in[0] = ht_astype(s, x, ht_dtype_promote(x->dtype, w[1]->dtype));
    return ht_apply(s, HT_OP_QUANTIZED_MATMUL, p, in, 6);
}

/* x with its leading axes broadcast against those of w. */
static ht_array *broadcast_batch(ht_scope *s, ht_array *x, const ht_array *w) {
    ht_array one = *x, other = *w;
    int64_t shape[HT_MAX_DIMS];
    int n;
    char tx[HT_SHAPE_TEXT], tw[HT_SHAPE_TEXT];
    for (int i = 1; i <= 2; i++) one.shape[one.n_dims - i] = other.shape[other.n_dims - i] = 1;
    if (!ht_broadcast_shapes(&one, &other, shape, &n))
        return ht_scope_fail(s, HT_ERR_ARGUMENT, "quantized_matmul: the leading axes of x %s and w %s do not broadcast",
                             ht_shape_text(x->shape, x->n_dims, tx), ht_shape_text(w->shape, w->n_dims, tw));
    for (int i = 1; i <= 2; i++) shape[n - i] = x->shape[x->n_dims - i];
    return n == x->n_dims && ht_shape_begins(x, shape, n) ? x : ht_broadcast_to(s, x, shape, n);
}

/* Recorded arguments of a product (array/replay.h). */
typedef struct product_args {
    ht_quantization how;
    bool transpose;
} product_args;

HT_REPLAY_OF(quantized_again, product_args,
             n_in == 4 ? ht_quantized_matmul(s, in[0], in + 1, a->transpose, &a->how)
                       : ht_gather_qmm(s, in[0], in + 1, in[4], in[5], a->transpose, &a->how))

ht_array *ht_quantized_matmul(ht_scope *s, ht_array *x, ht_array *const w[3], bool transpose,
                              const ht_quantization *how) {
    ht_quantize_params p = {.transpose = transpose};
    if (!x || !w[0] || !w[1] || !w[2] || !complete(s, "quantized_matmul", how, &p)) return NULL;
    if (ht_recording())
        return ht_record_one(s, quantized_again, &(product_args){*how, transpose}, sizeof(product_args),
                             (ht_array *[]){x, w[0], w[1], w[2]}, 4);
    bool row = x->n_dims == 1;
    if (x->n_dims == 0 || w[0]->n_dims < 2)
        return ht_scope_fail(s, HT_ERR_ARGUMENT, "quantized_matmul: x has %d axes, w %d; expected 1 and 2 at least",
                             x->n_dims, w[0]->n_dims);
    if (row) x = ht_expand_dims(s, x, 0);
    if (x && w[0]->n_dims > 2) x = broadcast_batch(s, x, w[0]);
    if (!x) return NULL;
    ht_array *y = multiply(s, &p, x, w, HT_NONE, HT_NONE);
    return y && row ? ht_squeeze(s, y, -2) : y;
}

ht_array *ht_gather_qmm(ht_scope *s, ht_array *x, ht_array *const w[3], ht_array *left, ht_array *right, bool transpose,
                        const ht_quantization *how) {
    if (left == HT_NONE && right == HT_NONE) return ht_quantized_matmul(s, x, w, transpose, how);
    ht_quantize_params p = {.transpose = transpose};
    if (!x || !w[0] || !w[1] || !w[2] || !complete(s, "gather_qmm", how, &p)) return NULL;
    if (ht_recording())
        return ht_record_one(s, quantized_again, &(product_args){*how, transpose}, sizeof(product_args),
                             (ht_array *[]){x, w[0], w[1], w[2], left, right}, 6);
    if (x->n_dims < 2 || w[0]->n_dims < 2)
        return ht_scope_fail(s, HT_ERR_ARGUMENT, "gather_qmm: x has %d axes, w %d; expected 2 at least", x->n_dims,
                             w[0]->n_dims);
    if (!find_indices(s, x, w[0], &left, &right)) return NULL;
    return multiply(s, &p, x, w, left, right);
}
