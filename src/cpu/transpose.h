/* Tile transpose: copies of operands whose neighbours lie along another axis than the result's, tile by tile, so that
 * whole cache lines are read and written. */
#ifndef HT_CPU_TRANSPOSE_H
#define HT_CPU_TRANSPOSE_H

#include "device/kernel.h"

/* Copies call->in[0] to call->out, which is row-contiguous and of the same dtype; false, and nothing done, where the
 * operand does not lie like that. */
bool ht_transpose_copy(const ht_call *call);

#endif
