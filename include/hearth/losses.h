/* Losses: functions of predictions and targets that training minimises. Each is a composition of operations of ops.h
 * and index.h, which also define its derivatives, and computes in f32, or in f64 where an operand is f64. */
#ifndef HEARTH_LOSSES_H
#define HEARTH_LOSSES_H

#include <hearth/array.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Cross-entropy of a softmax, in nats, of every row: logits [..., V] and targets, integers [...] of 0 .. V - 1, give
 * log(sum_j exp(logits[..., j])) - logits[..., target], f32 [...]. The loss and the gradient of a row with a negative
 * target are 0, whatever its logits; a target of V or more is an error of evaluation. Equals torch's cross_entropy
 * with reduction "none", where ignore_index stands for every negative target. */
HT_API ht_array *ht_cross_entropy(ht_scope *s, ht_array *logits, ht_array *targets);
/* Scalar: the mean of ht_cross_entropy over the rows that count. These have a target that is not negative and, unless
 * `mask` is HT_NONE, a mask that is true or not 0; `mask` broadcasts to the shape of `targets`. Where no row counts,
 * the loss and its gradient are 0. */
HT_API ht_array *ht_masked_cross_entropy(ht_scope *s, ht_array *logits, ht_array *targets, ht_array *mask);

/* Scalar: the mean of (x - y)^2 over all elements. x and y have one shape: broadcasting here is usually a mistake.
 * NaN for no elements. */
HT_API ht_array *ht_mse(ht_scope *s, ht_array *x, ht_array *y);

#ifdef __cplusplus
}
#endif
#endif
