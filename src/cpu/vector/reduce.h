/* Shared declarations of reductions. Rows: reduce.c (f32, f16, bf16) and reduce_types.c (other dtypes); columns:
 * reduce_columns.c. */
#ifndef HT_CPU_VECTOR_REDUCE_H
#define HT_CPU_VECTOR_REDUCE_H

#include "cpu/vector/simd.h"
#include "device/kernel.h"

/* Longest f32 summation: larger sums add f64 totals of blocks, since a long f32 sum loses digits. */
enum { HT_REDUCE_BLOCK = 4096 };

/* Running argmax or argmin of w columns: where x is better than `best`, stores it there and its index from[c] (or `at`
 * if `from` is NULL) to `place`. NaN is better than all numbers; equal elements keep the earlier index. */
typedef void ht_arg_extreme_fn(const void *x, const uint32_t *from, uint32_t at, int64_t w, void *best,
                               uint32_t *place);
/* The running argmin (`smallest`) or argmax of a dtype; NULL if there is none. */
ht_arg_extreme_fn *HT_ISA_NAME(ht_reduce_arg_extreme)(ht_dtype t, bool smallest);

/* Reduction along a strided axis with contiguous columns. Returns false, computing nothing, if the call is of another
 * kind. */
bool HT_ISA_NAME(ht_reduce_columns)(const ht_call *call, ht_op_id op);
/* Scratch bytes; 0 also if ht_reduce_columns does not support the call. */
size_t HT_ISA_NAME(ht_reduce_columns_scratch)(const ht_call *call, ht_op_id op);
/* Reduction along rows of any stride: of integers, sums of f64, and products of any dtype. Returns false, computing nothing,
 * if the call is of another kind. */
bool HT_ISA_NAME(ht_reduce_types)(const ht_call *call, ht_op_id op);
/* Scratch bytes; 0 also if ht_reduce_types does not support the call. */
size_t HT_ISA_NAME(ht_reduce_types_scratch)(const ht_call *call, ht_op_id op);

#endif
