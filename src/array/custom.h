/* User function nodes: a CUSTOM node holds the inputs, outputs and gradient rule of one call, and the call's results
 * are CUSTOM_OUT views, each of one output. */
#ifndef HT_ARRAY_CUSTOM_H
#define HT_ARRAY_CUSTOM_H

#include "array/array.h"

typedef struct ht_custom ht_custom;
ht_custom *ht_custom_retain(ht_custom *c); /* NULL is fine, here and below */
void ht_custom_release(ht_custom *c);
int ht_custom_n_in(const ht_array *node);
int ht_custom_n_out(const ht_array *node);
/* Which of them a CUSTOM_OUT node shows. */
int ht_custom_out_index(const ht_array *node);
/* The gradients of the inputs of a CUSTOM node (HT_NONE: none) from those of its outputs (NULL: none). */
bool ht_custom_backward(ht_scope *s, const ht_array *node, ht_array *const *grad_out, ht_array **grad_in);

#endif
