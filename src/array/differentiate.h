/* Reverse-mode differentiation of a part of a graph, by the rules of its operations (array/op.h). */
#ifndef HT_ARRAY_DIFFERENTIATE_H
#define HT_ARRAY_DIFFERENTIATE_H

#include "array/array.h"

/* Room for n arrays, all NULL, for the caller to free; NULL, with an error in the scope, when memory ran out. */
ht_array **ht_array_list(ht_scope *s, int n);

/* x under a node of its own, so that derivatives can be taken with respect to it. NULL and HT_NONE pass through. */
ht_array *ht_stand_in(ht_scope *s, ht_array *x);

/* grad[j], of wrt[j]'s shape and dtype: the gradient of sum_k <grad_out[k], out[k]> with respect to wrt[j], through every
 * node between the two; HT_NONE where nothing depends on it. */
bool ht_backward(ht_scope *s, ht_array *const *out, ht_array *const *grad_out, int n_out, ht_array *const *wrt,
                 int n_wrt, ht_array **grad);
/* tangent_out[k]: how out[k] moves when wrt[j] moves along tangent[j]; HT_NONE: not at all. */
bool ht_forward(ht_scope *s, ht_array *const *wrt, ht_array *const *tangent, int n_wrt, ht_array *const *out, int n_out,
                ht_array **tangent_out);

/* out[k] computed once more, with new nodes for everything between it and from[j], in whose place to[j] stands. */
bool ht_recompute(ht_scope *s, ht_array *const *from, ht_array *const *to, int n_from, ht_array *const *out, int n_out,
                  ht_array **again);

/* A reverse rule by composition, for operations whose own backward kernel has no gradient, or that have none: `compose`
 * makes the operation's result of ordinary operations. Gradients of every floating-point input are filled. */
typedef ht_array *ht_compose_fn(ht_scope *s, const void *params, ht_array *const *in);
bool ht_vjp_by_composition(ht_scope *s, ht_compose_fn *compose, const ht_array *node, ht_array *grad,
                           ht_array **grad_in);

#endif
