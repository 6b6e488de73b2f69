/* Reverse rules of matrix products: y = a b, or a b^T. */
#include "ops/gradient.h"

bool ht_vjp_matmul(ht_scope *s, const ht_array *node, ht_array *grad, ht_array **grad_in) {
    ht_array *a = node->in[0], *b = node->in[1];
    bool transposed = ((const ht_matmul_params *)(const void *)node->params)->transpose_b;
    grad_in[0] = ht_matmul(s, grad, b, !transposed); /* g b^T, or g b */
    if (transposed)
        grad_in[1] = ht_matmul(s, ht_swapaxes(s, grad, -1, -2), a, false); /* g^T a */
    else
        grad_in[1] = ht_matmul(s, ht_swapaxes(s, a, -1, -2), grad, false); /* a^T g */
    return grad_in[0] && grad_in[1];
}
