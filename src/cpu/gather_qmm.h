/* Matrix selection of GATHER_MM and QUANTIZED_MATMUL: by index, or by broadcasting without indices. */
#ifndef HT_CPU_GATHER_QMM_H
#define HT_CPU_GATHER_QMM_H

#include "device/kernel.h"

/* Fails if an index is out of range. */
ht_status ht_gather_check(const ht_call *call, ht_error *err);
/* Element offset of the left matrix of result entry `entry`. */
int64_t ht_gather_left(const ht_call *call, int64_t entry);
/* Element offset of the right matrix of result entry `entry` in `w`, one of the right operand's views (codes, scales or
 * biases). */
int64_t ht_gather_right(const ht_call *call, const ht_view *w, int64_t entry);

/* Number of [m, n] matrices in the result. */
int64_t ht_gather_entries(const ht_call *call);

#endif
