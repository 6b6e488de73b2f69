/* Reverse rules of sorting: each gradient goes back to the place its element came from. */
#include "ops/gradient.h"

#include <hearth/index.h>
#include <hearth/order.h>

static bool put_back(ht_scope *s, const ht_array *node, ht_array *places, ht_array *grad, ht_array **grad_in) {
    ht_array *zeros = ht_zeros(s, node->dtype, node->shape, node->n_dims);
    grad_in[0] = ht_scatter_add_axis(s, zeros, places, grad, -1);
    return grad_in[0] != NULL;
}

bool ht_vjp_sort(ht_scope *s, const ht_array *node, ht_array *grad, ht_array **grad_in) {
    return put_back(s, node, ht_argsort(s, node->in[0], -1), grad, grad_in);
}

/* In order, what was parted and what it was made of are the same. */
bool ht_vjp_partition(ht_scope *s, const ht_array *node, ht_array *grad, ht_array **grad_in) {
    ht_array *ordered = ht_take_along_axis(s, grad, ht_argsort(s, ht_output(node), -1), -1);
    return put_back(s, node, ht_argsort(s, node->in[0], -1), ordered, grad_in);
}
