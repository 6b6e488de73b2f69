/* Compositions of fused operations: RMS norm and layer norm, rotary embedding, attention, and their gradients. */
#include "array/differentiate.h"
#include "ops/compose.h"
#include "ops/gradient.h"

#include <hearth/ops.h>

#include <float.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

/* Masked scores are the lowest finite value: their weight is 0 next to a visible key, and uniform if all are masked. */
static ht_array *hide(ht_scope *s, ht_array *seen, ht_array *scores) {
    return scores ? ht_where(s, seen, scores, ht_constant_like(s, scores, (double)-FLT_MAX)) : NULL;
}

/* ---- attention of arrays ---- */

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

/* Softmax of scores [..., kv_heads, group, n_q, n_k], and of a sink [kv_heads * group] or HT_NONE. */
static ht_array *softmax_with_sinks(ht_scope *s, ht_array *scores, ht_array *sinks) {
    if (sinks == HT_NONE || !scores) return ht_softmax(s, scores, -1);
    const int n = scores->n_dims;
    int64_t shape[HT_MAX_DIMS];
    memcpy(shape, scores->shape, sizeof shape);
    shape[n - 1] = 1;
    ht_array *column = ht_reshape(s, sinks, (int64_t[]){shape[n - 4], shape[n - 3], 1, 1}, 4);
    column = ht_broadcast_to(s, column, shape, n);
    ht_array *all = ht_softmax(s, ht_concatenate(s, (ht_array *[]){scores, column}, 2, -1), -1);
    return ht_slice(s, all, (int64_t[HT_MAX_DIMS]){0}, scores->shape, NULL);
}

ht_array *ht_compose_sdpa(ht_scope *s, const void *params, ht_array *const *in) {
    const ht_sdpa_params *p = params;
    const ht_array *q = in[0], *k = in[1], *v = in[2];
    int64_t batch = q->shape[0], kv_heads = k->shape[1], group = q->shape[1] / kv_heads, n_q = q->shape[2];
    const int64_t shape[5] = {batch, kv_heads, group, n_q, k->shape[2]};
    ht_array *queries = ht_reshape(s, ht_widened(s, in[0]), (int64_t[]){batch, kv_heads, group, n_q, q->shape[3]}, 5);
    ht_array *keys = ht_expand_dims(s, ht_widened(s, in[1]), 2), *values = ht_expand_dims(s, ht_widened(s, in[2]), 2);
    ht_array *scores = ht_matmul(s, ht_times(s, queries, (double)p->scale), keys, true), *mask = in[3];
    if (mask != HT_NONE) {
        ht_array *m = ht_reshape(s, ht_widened(s, mask), shape, 5);
        scores = mask->dtype == HT_BOOL ? hide(s, m, scores) : ht_add(s, scores, m);
    }
    if (p->causal) scores = hide(s, visible(s, p, n_q, k->shape[2]), scores);
    ht_array *weights = softmax_with_sinks(s, scores, ht_widened(s, in[4]));
    ht_array *y = ht_matmul(s, weights, values, false);
    y = ht_reshape(s, y, (int64_t[]){batch, q->shape[1], n_q, v->shape[3]}, 4);
    return ht_astype(s, y, q->dtype);
}

ht_array *ht_compose_sdpa_grad(ht_scope *s, const void *params, ht_array *const *in) {
    return ht_gradients_by_composition(s, ht_compose_sdpa, params, in, 5, 3, in[6]);
}

/* ---- attention of flat rows ---- */

/* First visible key rows of queries at key rows `own` of sequences that begin at `first`, all i64 [N, 1]. */
static ht_array *first_visible(ht_scope *s, const ht_attend_rows_params *p, ht_array *own, ht_array *first) {
    ht_array *window = ht_full(s, (double)p->window, HT_I64, NULL, 0);
    if (p->two_sided) {
        ht_array *row = ht_arange(s, 0, (double)ht_array_dim(own, 0), 1, HT_I64);
        return ht_subtract(s, ht_expand_dims(s, row, 1), window);
    }
    if (p->chunked) return ht_subtract(s, own, ht_remainder(s, ht_subtract(s, own, first), window));
    return ht_plus(s, ht_subtract(s, own, window), 1);
}

/* bool [N, T]: key row j is within first[i] .. own[i], and within the window of the last of these. */
static ht_array *in_sequence(ht_scope *s, const ht_attend_rows_params *p, ht_array *own, ht_array *first, int64_t n_k) {
    ht_array *key = ht_arange(s, 0, (double)n_k, 1, HT_I32);
    own = ht_expand_dims(s, ht_checked_index(s, own, ht_less_equal(s, first, own), n_k), 1);
    first = ht_expand_dims(s, ht_checked_index(s, first, HT_NONE, n_k), 1);
    ht_array *seen = ht_logical_and(s, ht_less_equal(s, first, key), ht_less_equal(s, key, own));
    if (p->window == 0) return seen;
    ht_array *oldest = first_visible(s, p, ht_astype(s, own, HT_I64), ht_astype(s, first, HT_I64));
    return ht_logical_and(s, seen, ht_less_equal(s, oldest, key));
}

ht_array *ht_compose_attend_rows(ht_scope *s, const void *params, ht_array *const *in) {
    const ht_attend_rows_params *p = params;
    const ht_array *q = in[0], *k = in[1], *v = in[2];
    const int64_t n = q->shape[0], kv_heads = k->shape[1], group = q->shape[1] / kv_heads;
    const int64_t shape[3] = {n, q->shape[1], v->shape[2]};
    ht_array *queries = ht_reshape(s, in[0], (int64_t[]){n, kv_heads, group, q->shape[2]}, 4);
    queries = ht_transpose(s, queries, (int[]){1, 2, 0, 3});                             /* [kv_heads, group, N, d] */
    ht_array *keys = ht_expand_dims(s, ht_swapaxes(s, in[1], 0, 1), 1);                  /* [kv_heads, 1, T, d] */
    ht_array *values = ht_expand_dims(s, ht_swapaxes(s, in[2], 0, 1), 1);                /* [kv_heads, 1, T, dv] */
    ht_array *scores = ht_matmul(s, ht_times(s, queries, (double)p->scale), keys, true); /* [kv_heads, group, N, T] */
    if (p->softcap > 0) scores = ht_softcap(s, scores, p->softcap);
    scores = hide(s, in_sequence(s, p, in[3], in[4], k->shape[0]), scores);
    ht_array *y = ht_matmul(s, softmax_with_sinks(s, scores, in[5]), values, false); /* [kv_heads, group, N, dv] */
    return ht_reshape(s, ht_transpose(s, y, (int[]){2, 0, 1, 3}), shape, 3);
}

ht_array *ht_compose_attend_rows_grad(ht_scope *s, const void *params, ht_array *const *in) {
    return ht_gradients_by_composition(s, ht_compose_attend_rows, params, in, 6, 3, in[7]);
}

/* ---- norms over the last axis ---- */

/* x / sqrt(mean(x^2) + eps) */
static ht_array *normalised(ht_scope *s, ht_array *x, float eps) {
    ht_array *square = ht_mean(s, ht_square(s, x), (int[]){-1}, 1, true);
    return ht_multiply(s, x, ht_rsqrt(s, ht_plus(s, square, (double)eps)));
}

ht_array *ht_compose_rms_norm(ht_scope *s, const void *params, ht_array *const *in) {
    const ht_rms_norm_params *p = params;
    ht_array *y = normalised(s, ht_widened(s, in[0]), p->eps);
    if (in[1] != HT_NONE) y = ht_multiply(s, y, ht_plus(s, ht_widened(s, in[1]), (double)p->weight_offset));
    return ht_astype(s, y, in[0]->dtype);
}

ht_array *ht_compose_layer_norm(ht_scope *s, const void *params, ht_array *const *in) {
    ht_array *y = normalised(s, ht_centred(s, ht_widened(s, in[0])), ((const ht_layer_norm_params *)params)->eps);
    if (in[1] != HT_NONE) y = ht_multiply(s, y, ht_widened(s, in[1]));
    if (in[2] != HT_NONE) y = ht_add(s, y, ht_widened(s, in[2]));
    return ht_astype(s, y, in[0]->dtype);
}

ht_array *ht_compose_rms_norm_grad(ht_scope *s, const void *params, ht_array *const *in) {
    return ht_gradients_by_composition(s, ht_compose_rms_norm, params, in, 2, 2, in[2]);
}

ht_array *ht_compose_layer_norm_grad(ht_scope *s, const void *params, ht_array *const *in) {
    return ht_gradients_by_composition(s, ht_compose_layer_norm, params, in, 3, 3, in[3]);
}

/* ---- rotary embedding: exact angles without f64 on the device ---- */

/* An angle is pos * frequency, and neighbouring f32 numbers are 0.008 apart at 100,000. Frequencies are therefore whole
 * numbers of 2^-64 turns, which i64 multiplication by a position reduces to a fraction of a turn by wrapping around; the
 * error is pos * 2^-65 turns. Only frequency factors, an array, are divided by in f64. */
#define TWO_PI 6.28318530717958647693

/* Fraction of a turn in -1/2 .. 1/2 as a whole number of 2^-64 turns; 2^63 more than i64 holds is the same angle. */
static int64_t fixed_turns(double turns) { return (int64_t)((uint64_t)(int64_t)((turns - rint(turns)) * 0x1p63) * 2); }

/* The same of f64 [n]. */
static ht_array *fixed_turns_of(ht_scope *s, ht_array *turns) {
    ht_array *whole = ht_astype(s, ht_times(s, ht_subtract(s, turns, ht_round(s, turns, 0)), 0x1p63), HT_I64);
    return ht_add(s, whole, whole);
}

/* Angles that a pair turns by per position, i64 [dims / 2] in 2^-64 turns. */
static ht_array *frequencies(ht_scope *s, const ht_rope_params *p, ht_array *factors) {
    const int64_t n = p->dims / 2;
    double *turns = malloc((size_t)n * sizeof *turns);
    int64_t *fixed = malloc((size_t)n * sizeof *fixed);
    ht_array *y = NULL;
    if (!turns || !fixed) ht_scope_fail(s, HT_ERR_MEMORY, "out of memory: the frequencies of a rotary embedding");
    for (int64_t i = 0; turns && fixed && i < n; i++) {
        turns[i] = (double)p->scale * pow((double)p->theta, -2.0 * (double)i / p->dims) / TWO_PI;
        if (isfinite(turns[i])) fixed[i] = fixed_turns(turns[i]);
        if (!isfinite(turns[i]))
            ht_scope_fail(s, HT_ERR_ARGUMENT, "rope: frequency %lld of theta %g and scale %g is not finite",
                          (long long)i, (double)p->theta, (double)p->scale);
    }
    if (turns && fixed && !s->failed) {
        if (factors == HT_NONE)
            y = ht_array_from(s, fixed, HT_I64, &n, 1);
        else
            y = fixed_turns_of(s, ht_divide(s, ht_array_from(s, turns, HT_F64, &n, 1), ht_astype(s, factors, HT_F64)));
    }
    free(turns);
    free(fixed);
    return y;
}

/* Every `step`-th element of the last axis of x [rows, heads, head_dim], from `start` to before `stop`. */
static ht_array *part(ht_scope *s, ht_array *x, int64_t start, int64_t stop, int64_t step) {
    return ht_slice(s, x, (int64_t[]){0, 0, start}, (int64_t[]){x->shape[0], x->shape[1], stop},
                    (int64_t[]){1, 1, step});
}

/* x [rows, heads, head_dim] rotated by cosines and sines [rows, 1, dims / 2]. */
static ht_array *rotated(ht_scope *s, const ht_rope_params *p, ht_array *x, ht_array *cosine, ht_array *sine) {
    const int64_t dims = p->dims, half = dims / 2, head_dim = x->shape[2];
    const int64_t start = p->interleaved ? 1 : half, step = p->interleaved ? 2 : 1;
    ht_array *a = part(s, x, 0, p->interleaved ? dims - 1 : half, step), *b = part(s, x, start, dims, step);
    ht_array *turned[2] = {ht_subtract(s, ht_multiply(s, a, cosine), ht_multiply(s, b, sine)),
                           ht_add(s, ht_multiply(s, b, cosine), ht_multiply(s, a, sine))};
    ht_array *y;
    if (p->interleaved)
        y = ht_reshape(s, ht_stack(s, turned, 2, -1), (int64_t[]){x->shape[0], x->shape[1], dims}, 3);
    else
        y = ht_concatenate(s, turned, 2, -1);
    return dims == head_dim ? y : ht_concatenate(s, (ht_array *[]){y, part(s, x, dims, head_dim, 1)}, 2, -1);
}

ht_array *ht_compose_rope(ht_scope *s, const void *params, ht_array *const *in) {
    const ht_rope_params *p = params;
    const ht_array *whole = in[0];
    const int n = whole->n_dims;
    int64_t rows = 1;
    if (p->dims == 0 || ht_array_size(whole) == 0) return in[0];
    for (int i = 0; i < n - 2; i++) rows *= whole->shape[i];
    ht_array *x = ht_widened(s, ht_reshape(s, in[0], (int64_t[]){rows, whole->shape[n - 2], whole->shape[n - 1]}, 3));
    ht_array *pos = ht_astype(s, ht_reshape(s, in[1], (int64_t[]){rows, 1, 1}, 3), HT_I64);
    ht_array *turns = x ? ht_multiply(s, pos, frequencies(s, p, in[2])) : NULL; /* [rows, 1, dims / 2] */
    ht_array *angle = turns ? ht_times(s, ht_astype(s, turns, x->dtype), TWO_PI * 0x1p-64) : NULL;
    ht_array *cosine = ht_cos(s, angle), *sine = ht_sin(s, angle);
    if (p->magnitude != 1) cosine = ht_times(s, cosine, (double)p->magnitude);
    if (p->magnitude != 1) sine = ht_times(s, sine, (double)p->magnitude);
    if (!cosine || !sine) return NULL;
    return ht_astype(s, ht_reshape(s, rotated(s, p, x, cosine, sine), whole->shape, n), whole->dtype);
}
