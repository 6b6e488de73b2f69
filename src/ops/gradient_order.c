/* Reverse rules of elements in order: each gradient goes back to the place its element came from. */
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

/* Places and elements are parted alike. */
bool ht_vjp_partition(ht_scope *s, const ht_array *node, ht_array *grad, ht_array **grad_in) {
    const ht_partition_params *p = (const void *)node->params;
    return put_back(s, node, ht_argpartition(s, node->in[0], p->kth, -1), grad, grad_in);
}
