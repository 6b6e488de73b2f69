/* Matrix selection of GATHER_MM and QUANTIZED_MATMUL: by index or, where there are no indices, by broadcasting. */
#ifndef HT_CPU_GATHER_QMM_H
#define HT_CPU_GATHER_QMM_H

#include "device/kernel.h"

/* An index outside is an error. */
ht_status ht_gather_check(const ht_call *call, ht_error *err);
/* Offsets, in elements, of the left matrix of entry `entry` of the result, and of its right matrix in `w`, which is one of
 * the views the right operand consists of. */
int64_t ht_gather_left(const ht_call *call, int64_t entry);
int64_t ht_gather_right(const ht_call *call, const ht_view *w, int64_t entry);

/* How many entries the result has, of matrices [m, n]. */
int64_t ht_gather_entries(const ht_call *call);

#endif
