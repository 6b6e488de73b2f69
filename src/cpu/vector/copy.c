/* Strided copies. */
#include "cpu/reference/reference.h"
#include "cpu/transpose.h"
#include "cpu/vector/elementwise.h"
#include "cpu/vector/vector.h"

/* Transposed operands are copied by tiles, stride 2 by vector gathers (elementwise blocks), other strides by the plain
 * kernel, which is as fast. */
static ht_status copy(const ht_call *call, ht_error *err) {
    const ht_view *x = &call->in[0];
    if (ht_transpose_copy(call)) return HT_OK;
    if (x->n_dims == 0 || x->stride[x->n_dims - 1] != 2) return ht_plain_copy(call, err);
    ht_elementwise_run(call, HT_OP_COPY, HT_ISA_NAME(ht_find_elementwise)(HT_OP_COPY, x->dtype, x->dtype));
    return HT_OK;
}

void HT_ISA_NAME(ht_vector_make_contiguous)(const ht_view *x, const ht_view *out, struct ht_device *d) {
    ht_call call = {.n_in = 1, .in = x, .out = *out, .device = d};
    (void)copy(&call, NULL);
}

void HT_ISA_NAME(ht_vector_copy)(ht_kernel kernels[HT_OP_COUNT]) { kernels[HT_OP_COPY].run = copy; }
