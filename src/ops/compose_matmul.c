/* Compositions of products with gathered, quantised and packed matrices, and of the loss of a packed head. */
#include "array/differentiate.h"
#include "ops/compose.h"
#include "ops/gradient.h"

#include <hearth/index.h>
#include <hearth/ops.h>

/* ---- gathered and quantised arrays ---- */

static int64_t matrices_of(const ht_array *x) {
    int64_t n = 1;
    for (int i = 0; i < x->n_dims - 2; i++) n *= x->shape[i];
    return n;
}

/* Matrices of x at the indices, [index..., m, n]. */
static ht_array *chosen(ht_scope *s, ht_array *x, ht_array *index) {
    if (!x) return NULL;
    const int64_t n = matrices_of(x), shape[3] = {n, x->shape[x->n_dims - 2], x->shape[x->n_dims - 1]};
    return ht_take(s, ht_reshape(s, x, shape, 3), ht_checked_index(s, index, HT_NONE, n), 0);
}

ht_array *ht_compose_gather_mm(ht_scope *s, const void *params, ht_array *const *in) {
    (void)params;
    ht_array *y = ht_matmul(s, chosen(s, ht_widened(s, in[0]), in[2]), chosen(s, ht_widened(s, in[1]), in[3]), false);
    return ht_astype(s, y, in[0]->dtype);
}

ht_array *ht_compose_quantized_matmul(ht_scope *s, const void *params, ht_array *const *in) {
    const ht_quantize_params *p = params;
    ht_array *x = ht_widened(s, in[0]);
    ht_array *w = x ? ht_dequantize_groups(s, in + 1, &p->how, x->dtype) : NULL;
    if (in[4] != HT_NONE) x = chosen(s, x, in[4]);
    if (in[4] != HT_NONE) w = chosen(s, w, in[5]);
    return ht_astype(s, ht_matmul(s, x, w, p->transpose), in[0]->dtype);
}

/* ---- packed matrices ---- */

/* The matrix in f32 [n_rows, k]. */
static ht_array *unpacked(ht_scope *s, const ht_matrix *m) {
    const ht_linear_params p = {.matrix = m, .scale = 1};
    ht_array *row = ht_arange(s, 0, (double)m->n_rows, 1, HT_I32);
    return ht_apply(s, HT_OP_EMBED, &p, &row, 1);
}

/* x [..., k] times a matrix [n, k] transposed, or x [..., n] times the matrix: one product of all rows. */
static ht_array *product(ht_scope *s, ht_array *x, const ht_matrix *m, bool transposed) {
    if (!x) return NULL;
    int64_t shape[HT_MAX_DIMS], rows = 1;
    const int last = x->n_dims - 1;
    for (int i = 0; i < last; i++) rows *= shape[i] = x->shape[i];
    shape[last] = transposed ? m->n_rows : m->k;
    ht_array *flat = ht_reshape(s, x, (int64_t[]){rows, x->shape[last]}, 2);
    return ht_reshape(s, ht_matmul(s, flat, unpacked(s, m), transposed), shape, last + 1);
}

ht_array *ht_compose_linear(ht_scope *s, const void *params, ht_array *const *in) {
    ht_array *y = product(s, in[0], ((const ht_linear_params *)params)->matrix, true);
    return in[1] == HT_NONE ? y : ht_add(s, y, in[1]);
}

ht_array *ht_compose_linear_back(ht_scope *s, const void *params, ht_array *const *in) {
    return product(s, in[0], ((const ht_linear_params *)params)->matrix, false);
}

/* ---- expert matrices: every expert multiplies all rows; a mask selects the chosen products ---- */

/* bool [T, m, 1] */
static ht_array *chose(ht_scope *s, ht_array *ids, int32_t expert) {
    return ids ? ht_expand_dims(s, ht_equal(s, ids, ht_constant_like(s, ids, expert)), -1) : NULL;
}

/* Products of one matrix set, [T, m, n]. */
static ht_array *products_of(ht_scope *s, ht_array *x, ht_array *ids, const ht_matrix_list *experts, bool transposed) {
    if (!ids) return NULL;
    const ht_matrix *first = experts->matrix[0];
    const int64_t shape[3] = {ids->shape[0], ids->shape[1], transposed ? first->n_rows : first->k};
    ht_array *y = ht_zeros(s, HT_F32, shape, 3);
    for (int32_t e = 0; y && e < experts->n; e++) {
        ht_array *one = product(s, x, experts->matrix[e], transposed);
        if (one && one->n_dims == 2) one = ht_expand_dims(s, one, 1); /* [T, 1, n]: the row of a token */
        y = ht_where(s, chose(s, ids, e), one, y);
    }
    return y;
}

ht_array *ht_compose_linear_gather(ht_scope *s, const void *params, ht_array *const *in) {
    const ht_linear_gather_params *p = params;
    ht_array *y[HT_EXPERT_SETS], *ids = ht_checked_index(s, in[1], HT_NONE, p->experts[0]->n);
    for (int i = 0; i < p->n_sets; i++) y[i] = products_of(s, in[0], ids, p->experts[i], true);
    return p->n_sets == 1 ? y[0] : ht_concatenate(s, y, p->n_sets, -1);
}

ht_array *ht_compose_linear_gather_back(ht_scope *s, const void *params, ht_array *const *in) {
    const ht_linear_gather_params *p = params;
    const int64_t n = p->experts[0]->matrix[0]->n_rows, t = in[0]->shape[0], m = in[0]->shape[1];
    ht_array *sum = NULL, *ids = ht_checked_index(s, in[1], HT_NONE, p->experts[0]->n);
    for (int i = 0; i < p->n_sets; i++) {
        ht_array *dy = ht_slice(s, in[0], (int64_t[]){0, 0, i * n}, (int64_t[]){t, m, (i + 1) * n}, NULL);
        ht_array *dx = products_of(s, dy, ids, p->experts[i], false);
        sum = i ? ht_add(s, sum, dx) : dx;
    }
    return sum;
}

/* ---- the loss of a head ---- */

/* Rows without a target are zeroed before use: a NaN or infinity would pass even through a gradient of 0. */
ht_array *ht_compose_head_loss(ht_scope *s, const void *params, ht_array *const *in) {
    const ht_head_loss_params *p = params;
    const ht_linear_params head = {.matrix = p->matrix};
    const int64_t t = in[0]->shape[0];
    ht_array *zero = ht_constant_like(s, in[0], 0), *none = ht_constant_like(s, in[1], 0);
    ht_array *counts = ht_greater_equal(s, in[1], none);                                /* [T] */
    ht_array *x = ht_where(s, ht_expand_dims(s, counts, 1), in[0], zero);               /* [T, k] */
    ht_array *logits = ht_apply(s, HT_OP_LINEAR, &head, (ht_array *[]){x, HT_NONE}, 2); /* [T, n] */
    if (p->scale != 1) logits = ht_scale(s, logits, p->scale);
    if (p->softcap > 0) logits = ht_softcap(s, logits, p->softcap);
    ht_array *target = ht_expand_dims(s, ht_where(s, counts, in[1], none), 1); /* [T, 1] */
    ht_array *at = ht_reshape(s, ht_take_along_axis(s, logits, target, 1), &t, 1);
    ht_array *all = ht_logsumexp(s, logits, (int[]){1}, 1, false), *loss = ht_subtract(s, all, at);
    ht_array *both[2] = {ht_where(s, counts, loss, zero), ht_where(s, counts, all, zero)};
    return ht_stack(s, both, 2, 0);
}

/* Gradient through the losses only: the log-sum-exps in row 1 have none. */
ht_array *ht_compose_head_loss_grad(ht_scope *s, const void *params, ht_array *const *in) {
    ht_array *grad = ht_stack(s, (ht_array *[]){in[3], ht_zeros_like(s, in[3])}, 2, 0);
    ht_array *dx = grad ? ht_gradients_by_composition(s, ht_compose_head_loss, params, in, 2, 1, grad) : NULL;
    return ht_reshape(s, dx, in[0]->shape, in[0]->n_dims);
}
