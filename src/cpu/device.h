/* CPU device struct: the generic device table, its instruction set and its functions. */
#ifndef HT_CPU_DEVICE_H
#define HT_CPU_DEVICE_H

#include "cpu/cpu.h"
#include "cpu/elementwise.h"
#include "cpu/isa.h"

/* Computes rows [begin, end) of the leading axis of call->out on the calling thread, bit-identical to the kernel. Operands
 * are f32; row i reads row i only of every input that has the same leading axis. Never fails; needs no scratch. */
typedef void ht_rows_fn(const ht_call *call, int64_t begin, int64_t end);

typedef struct ht_cpu_device {
    ht_device base;
    ht_cpu_isa isa;
    ht_pool *pool;                            /* leased from `begin` to `end` */
    ht_rows_fn *rows[HT_OP_COUNT];            /* NULL: the kernel is not row-wise */
    ht_find_elementwise_fn *find_elementwise; /* NULL: plain kernels only */
} ht_cpu_device;

static inline ht_cpu_isa ht_cpu_device_isa(const ht_device *d) { return ((const ht_cpu_device *)d)->isa; }

/* Kernel table of plain kernels, one for every operation. */
void ht_reference_kernels(ht_kernel kernels[HT_OP_COUNT]);
/* Kernel table, row-wise functions, logit scans, elementwise functions and rounding of weights of each instruction set;
 * the kernel table overrides only the operations that have vector kernels. */
#define HT_DECLARE(name, id, shared)                                                                                   \
    void ht_vector_kernels_##shared(ht_kernel kernels[HT_OP_COUNT]);                                                   \
    void ht_vector_rows_##shared(ht_rows_fn *rows[HT_OP_COUNT]);                                                       \
    extern const ht_row_ops ht_vector_row_##shared;                                                                    \
    ht_find_elementwise_fn ht_find_elementwise_##shared;                                                               \
    ht_round_weights_fn ht_round_weights_##shared;
HT_EACH_ISA(HT_DECLARE)
#undef HT_DECLARE
extern const ht_row_ops ht_vector_row_reference;
ht_round_weights_fn ht_round_weights_reference;

#endif
