/* Tile transpose: copies of operands whose fastest axis is not the result's, tile by tile, so that whole cache lines
 * are read and written. */
#ifndef HT_CPU_TRANSPOSE_H
#define HT_CPU_TRANSPOSE_H

#include "device/kernel.h"

/* Copies call->in[0] to call->out, which is row-contiguous and of the same dtype. Returns false without copying unless
 * an axis other than the last has clearly the smallest stride in the operand. */
bool ht_transpose_copy(const ht_call *call);

#endif
