/* Automatic differentiation of a subgraph, in reverse and forward mode, by the reverse rules of its operations
 * (array/op.h). */
#ifndef HT_ARRAY_DIFFERENTIATE_H
#define HT_ARRAY_DIFFERENTIATE_H

#include "array/op.h"

/* List of n arrays, all NULL; the caller frees it. NULL, with an error in the scope, when memory ran out. */
ht_array **ht_array_list(ht_scope *s, int n);

/* x as a new node, with respect to which derivatives can be taken. NULL and HT_NONE are returned as they are. */
ht_array *ht_placeholder(ht_scope *s, ht_array *x);

/* Reverse mode: grad[j] is the gradient of sum_k <grad_out[k], out[k]> with respect to wrt[j], of its shape and dtype, or
 * HT_NONE when no output depends on wrt[j]. False, with every grad[j] NULL, also when one of out[] is NULL. */
bool ht_backward(ht_scope *s, ht_array *const *out, ht_array *const *grad_out, int n_out, ht_array *const *wrt,
                 int n_wrt, ht_array **grad);
/* Forward mode: tangent_out[k] is the directional derivative of out[k] along tangent[0 .. n_wrt), or HT_NONE when
 * out[k] depends on no wrt[j]. */
bool ht_forward(ht_scope *s, ht_array *const *wrt, ht_array *const *tangent, int n_wrt, ht_array *const *out, int n_out,
                ht_array **tangent_out);

/* Copies the subgraph between from[] and out[], with to[j] substituted for from[j]: again[k] is the copy of out[k]. */
bool ht_recompute(ht_scope *s, ht_array *const *from, ht_array *const *to, int n_from, ht_array *const *out, int n_out,
                  ht_array **again);

/* Reverse rule by composition, for operations without a differentiable backward kernel: `compose` builds the
 * operation's result from primitive operations, which are differentiated. Fills the gradient of every floating-point
 * input. */
void ht_vjp_by_composition(ht_scope *s, ht_compose_fn *compose, const ht_array *node, ht_array *grad,
                           ht_array **grad_in);
/* Result of a backward kernel by composition: the concatenated gradients of all in[0 .. n_wrt) except HT_NONE, given
 * `grad`, the gradient of compose(s, params, in). */
ht_array *ht_gradients_by_composition(ht_scope *s, ht_compose_fn *compose, const void *params, ht_array *const *in,
                                      int n_in, int n_wrt, ht_array *grad);

#endif
