/* Reductions: declarations that their files share. Along rows: reduce.c (f32, f16, bf16), reduce_types.c (the others);
 * along columns: reduce_columns.c. */
#ifndef HT_CPU_VECTOR_REDUCE_H
#define HT_CPU_VECTOR_REDUCE_H

#include "cpu/vector/simd.h"
#include "device/kernel.h"

/* Elements that are summed in f32: a lane that took in more would lose digits. */
enum { HT_REDUCE_BLOCK = 4096 };

/* Of w elements each, those of x that are better go to `best`, and where they are to `place`: from[c], or without `from`
 * place `at`. A NaN is better than all numbers; of equals the one that is there stays. */
typedef void ht_better_fn(const void *x, const uint32_t *from, uint32_t at, int64_t w, void *best, uint32_t *place);
ht_better_fn *HT_ISA_NAME(ht_reduce_better)(ht_dtype t, bool smallest);

/* Reductions along a strided last axis whose rows begin side by side: a result per column. False: not of this kind, and
 * nothing was done; so it is if the scratch is 0. */
bool HT_ISA_NAME(ht_reduce_columns)(const ht_call *call, ht_op_id op);
size_t HT_ISA_NAME(ht_reduce_columns_scratch)(const ht_call *call, ht_op_id op);
/* The same along rows of any stride, of f64 and integers; products of any dtype. */
bool HT_ISA_NAME(ht_reduce_types)(const ht_call *call, ht_op_id op);
size_t HT_ISA_NAME(ht_reduce_types_scratch)(const ht_call *call, ht_op_id op);

#endif
