/* Mixture-of-experts products (LINEAR_GATHER) and their gradients (LINEAR_GATHER_BACK). */
#ifndef HT_CPU_EXPERTS_H
#define HT_CPU_EXPERTS_H

#include "device/kernel.h"

ht_kernel_fn ht_cpu_linear_gather;
ht_scratch_fn ht_cpu_linear_gather_scratch;
ht_kernel_fn ht_cpu_linear_gather_back;
ht_scratch_fn ht_cpu_linear_gather_back_scratch;

/* Sorts the pairs of rows [begin, end) of ids i32 [T, m] by expert; the sort is stable. order[first[e]] to
 * order[first[e + 1] - 1] are the pairs of expert e < n. Ids out of range give HT_ERR_ARGUMENT, naming `op`. */
ht_status ht_experts_sort(const char *op, const ht_view *ids, int64_t begin, int64_t end, int64_t n, int64_t *first,
                          int64_t *order, ht_error *err);

#endif
