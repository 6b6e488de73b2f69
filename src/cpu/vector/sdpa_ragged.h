/* Attention of flat rows, as attentions of its sequences over views of their rows. */
#ifndef HT_CPU_VECTOR_SDPA_RAGGED_H
#define HT_CPU_VECTOR_SDPA_RAGGED_H

#include "cpu/attend_rows.h"
#include "cpu/vector/sdpa.h"

/* One sequence: an attention of batch 1. The views are of the flat rows. */
typedef struct sdpa_sequence {
    sdpa_shape shape;
    ht_call call;
    ht_view in[7];
    ht_sdpa_params params;
} sdpa_sequence;

/* n rows of a [T, heads, d] view from row `first`, as [1, heads, n, d]. */
HT_INLINE ht_view sdpa_row_range(const ht_view *v, int64_t first, int64_t n) {
    ht_view of = {.dtype = v->dtype, .n_dims = 4};
    of.data = (char *)v->data + (ptrdiff_t)(first * v->stride[0]) * (ptrdiff_t)sizeof(float);
    const int64_t shape[4] = {1, v->shape[1], n, v->shape[2]},
                  stride[4] = {0, v->stride[1], v->stride[0], v->stride[2]};
    memcpy(of.shape, shape, sizeof shape);
    memcpy(of.stride, stride, sizeof stride);
    return of;
}

/* Fills `to` with run i of the queries: the result and the gradient, in[6] and in[7] of a flat gradient, are rows of
 * queries, too. `out` has the flat results. */
static inline void sdpa_sequence_of(const ht_call *flat, const ht_ragged *runs, int64_t i, const ht_view *out,
                                    int n_out, sdpa_sequence *to) {
    const ht_attend_rows_params *p = flat->params;
    const int64_t q = runs->start[i], n_q = runs->start[i + 1] - q;
    const int64_t k = runs->first[q], n_k = runs->own[q + n_q - 1] + 1 - k;
    const ht_view absent = {.n_dims = -1};
    to->params = (ht_sdpa_params){p->scale, true, p->window};
    to->call = *flat;
    to->call.params = &to->params;
    to->call.n_in = flat->n_in - 1;
    to->call.in = to->in;
    to->in[0] = sdpa_row_range(&flat->in[0], q, n_q);
    for (int a = 1; a < 3; a++) to->in[a] = sdpa_row_range(&flat->in[a], k, n_k);
    to->in[3] = absent;
    to->in[4] = flat->in[5]; /* sinks */
    for (int a = 5; a < to->call.n_in; a++) to->in[a] = sdpa_row_range(&flat->in[a + 1], q, n_q);
    to->shape = sdpa_shape_of(&to->call);
    to->shape.own = runs->own + q;
    to->shape.base = k;
    to->shape.softcap = p->softcap * HT_LOG2_E;
    to->shape.chunked = p->chunked;
    to->shape.two_sided = p->two_sided;
    for (int a = 0; a < n_out; a++) to->shape.out[a] = sdpa_row_range(&out[a], a ? k : q, a ? n_k : n_q);
}

/* The whole of the rows as one sequence: for the size of scratch memory, which any run's fits. */
static inline void sdpa_whole(const ht_call *flat, sdpa_sequence *to) {
    const ht_view absent = {.n_dims = -1};
    *to = (sdpa_sequence){.call = *flat};
    to->call.in = to->in;
    for (int a = 0; a < 3; a++) to->in[a] = sdpa_row_range(&flat->in[a], 0, flat->in[a].shape[0]);
    to->in[3] = to->in[4] = absent;
    to->shape = sdpa_shape_of(&to->call);
}

#endif
