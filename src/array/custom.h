/* User function nodes: a CUSTOM node has the inputs, outputs and reverse rule of one call of a user's function; every
 * result of the call is a CUSTOM_OUT view of it. */
#ifndef HT_ARRAY_CUSTOM_H
#define HT_ARRAY_CUSTOM_H

#include "array/array.h"

typedef struct ht_custom ht_custom;
ht_custom *ht_custom_retain(ht_custom *c); /* NULL is fine, here and below */
void ht_custom_release(ht_custom *c);
int ht_custom_n_in(const ht_array *node);
int ht_custom_n_out(const ht_array *node);
/* Index of the output that a CUSTOM_OUT node shows. */
int ht_custom_out_index(const ht_array *node);
/* Reverse rule of a CUSTOM node: grad_in[i] (HT_NONE: zero) from the gradients of its outputs (NULL: zero). */
bool ht_custom_backward(ht_scope *s, const ht_array *node, ht_array *const *grad_out, ht_array **grad_in);

#endif
