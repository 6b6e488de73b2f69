/* Copies of any strides. */
#include "cpu/each.h"
#include "cpu/reference/reference.h"
#include "cpu/vector/vector.h"

static ht_status copy(const ht_call *call, ht_error *err) {
    return ht_each_turn(call) ? HT_OK : ht_plain_copy(call, err);
}

void HT_ISA_NAME(ht_vector_turn)(const ht_view *x, const ht_view *out, ht_pool *pool) {
    ht_call call = {.n_in = 1, .in = x, .out = *out, .pool = pool};
    (void)copy(&call, NULL);
}

void HT_ISA_NAME(ht_vector_copy)(ht_kernel kernels[HT_OP_COUNT]) { kernels[HT_OP_COPY].run = copy; }
