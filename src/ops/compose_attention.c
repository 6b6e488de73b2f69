/* Compositions of scaled dot-product attention, of attention of flat rows, and of their gradients. */
#include "array/differentiate.h"
#include "ops/compose.h"
#include "ops/gradient.h"

#include <hearth/ops.h>

#include <float.h>

/* Scores of hidden keys are the lowest finite value: e^score is 0 beside any other, and where all are hidden they are equal. */
static ht_array *hide(ht_scope *s, ht_array *seen, ht_array *scores) {
    return scores ? ht_where(s, seen, scores, ht_constant_like(s, scores, (double)-FLT_MAX)) : NULL;
}

/* ---- of arrays ---- */

/* Causal mask, bool [n_q, n_k]: true where a query attends to a key. */
static ht_array *visible(ht_scope *s, const ht_sdpa_params *p, int64_t n_q, int64_t n_k) {
    ht_array *last = ht_arange(s, (double)(n_k - n_q), (double)n_k, 1, HT_I64),
             *key = ht_arange(s, 0, (double)n_k, 1, HT_I64);
    last = ht_reshape(s, last, (int64_t[]){n_q, 1}, 2);
    ht_array *seen = ht_less_equal(s, key, last);
    if (p->window == 0) return seen;
    ht_array *first = ht_subtract(s, last, ht_full(s, (double)p->window, HT_I64, NULL, 0));
    return ht_logical_and(s, seen, ht_less(s, first, key));
}

static ht_array *softmax_with_sinks(ht_scope *s, ht_array *scores, ht_array *sinks, const int64_t shape[5]) {
    if (sinks == HT_NONE) return ht_softmax(s, scores, -1);
    ht_array *column = ht_reshape(s, sinks, (int64_t[]){1, shape[1], shape[2], 1, 1}, 5);
    column = ht_broadcast_to(s, column, (int64_t[]){shape[0], shape[1], shape[2], shape[3], 1}, 5);
    ht_array *all = ht_softmax(s, ht_concatenate(s, (ht_array *[]){scores, column}, 2, -1), -1);
    return ht_slice(s, all, (int64_t[5]){0}, shape, NULL);
}

ht_array *ht_compose_sdpa(ht_scope *s, const void *params, ht_array *const *in, int n_in) {
    const ht_sdpa_params *p = params;
    const ht_array *q = in[0], *k = in[1], *v = in[2];
    int64_t batch = q->shape[0], kv_heads = k->shape[1], group = q->shape[1] / kv_heads, n_q = q->shape[2];
    const int64_t shape[5] = {batch, kv_heads, group, n_q, k->shape[2]};
    (void)n_in;
    ht_array *queries = ht_reshape(s, ht_widened(s, in[0]), (int64_t[]){batch, kv_heads, group, n_q, q->shape[3]}, 5);
    ht_array *keys = ht_expand_dims(s, ht_widened(s, in[1]), 2), *values = ht_expand_dims(s, ht_widened(s, in[2]), 2);
    ht_array *scores = ht_matmul(s, ht_times(s, queries, (double)p->scale), keys, true), *mask = in[3];
    if (mask != HT_NONE) {
        ht_array *m = ht_reshape(s, ht_widened(s, mask), shape, 5);
        scores = mask->dtype == HT_BOOL ? hide(s, m, scores) : ht_add(s, scores, m);
    }
    if (p->causal) scores = hide(s, visible(s, p, n_q, k->shape[2]), scores);
    ht_array *weights = softmax_with_sinks(s, scores, ht_widened(s, in[4]), shape);
    ht_array *y = ht_matmul(s, weights, values, false);
    y = ht_reshape(s, y, (int64_t[]){batch, q->shape[1], n_q, v->shape[3]}, 4);
    return ht_astype(s, y, q->dtype);
}

ht_array *ht_compose_sdpa_grad(ht_scope *s, const void *params, ht_array *const *in, int n_in) {
    (void)n_in;
    return ht_gradients_by_composition(s, ht_compose_sdpa, params, in, 5, 3, in[6]);
}

/* ---- of flat rows ---- */

/* bool [N, T]: row j of the keys is one of first[i] .. own[i], and of the last `window` of them. */
static ht_array *in_sequence(ht_scope *s, const ht_attend_rows_params *p, ht_array *own, ht_array *first, int64_t n_k) {
    ht_array *key = ht_arange(s, 0, (double)n_k, 1, HT_I32);
    own = ht_expand_dims(s, ht_checked_index(s, own, ht_less_equal(s, first, own), n_k), 1);
    first = ht_expand_dims(s, ht_checked_index(s, first, HT_NONE, n_k), 1);
    ht_array *seen = ht_logical_and(s, ht_less_equal(s, first, key), ht_less_equal(s, key, own));
    if (p->window == 0) return seen;
    ht_array *before = ht_subtract(s, ht_astype(s, own, HT_I64), ht_full(s, (double)p->window, HT_I64, NULL, 0));
    return ht_logical_and(s, seen, ht_less(s, before, key));
}

ht_array *ht_compose_attend_rows(ht_scope *s, const void *params, ht_array *const *in, int n_in) {
    const ht_attend_rows_params *p = params;
    const ht_array *q = in[0], *k = in[1], *v = in[2];
    const int64_t n = q->shape[0], kv_heads = k->shape[1], group = q->shape[1] / kv_heads;
    const int64_t shape[3] = {n, q->shape[1], v->shape[2]};
    (void)n_in;
    ht_array *queries = ht_reshape(s, in[0], (int64_t[]){n, kv_heads, group, q->shape[2]}, 4);
    queries = ht_transpose(s, queries, (int[]){1, 2, 0, 3});                             /* [kv_heads, group, N, d] */
    ht_array *keys = ht_expand_dims(s, ht_swapaxes(s, in[1], 0, 1), 1);                  /* [kv_heads, 1, T, d] */
    ht_array *values = ht_expand_dims(s, ht_swapaxes(s, in[2], 0, 1), 1);                /* [kv_heads, 1, T, dv] */
    ht_array *scores = ht_matmul(s, ht_times(s, queries, (double)p->scale), keys, true); /* [kv_heads, group, N, T] */
    if (p->softcap > 0) scores = ht_softcap(s, scores, p->softcap);
    scores = hide(s, in_sequence(s, p, in[3], in[4], k->shape[0]), scores);
    ht_array *y = ht_matmul(s, ht_softmax(s, scores, -1), values, false); /* [kv_heads, group, N, dv] */
    return ht_reshape(s, ht_transpose(s, y, (int[]){2, 0, 1, 3}), shape, 3);
}

ht_array *ht_compose_attend_rows_grad(ht_scope *s, const void *params, ht_array *const *in, int n_in) {
    (void)n_in;
    return ht_gradients_by_composition(s, ht_compose_attend_rows, params, in, 5, 3, in[6]);
}
