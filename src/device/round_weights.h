/* Rounding of weights to the blocks of a quantised type, on the host: for every block the scales, offsets and numbers with the
 * least squared error that a search finds, each element's error weighted. The bits do not depend on the instruction set. */
#ifndef HT_DEVICE_ROUND_WEIGHTS_H
#define HT_DEVICE_ROUND_WEIGHTS_H

#include "formats/weight_type.h"

#include <stdbool.h>

/* Rounds n rows of k finite values to blocks of `type` (ht_block_is_packed), k a multiple of the block. `importance` [k] are
 * positive, mean squares of what meets the columns; NULL: unknown. False when a value is too large for the type's scales.
 * Thread-safe. */
typedef bool ht_round_weights_fn(ht_weight_type type, const float *x, int64_t n, int64_t k, const float *importance,
                                 void *blocks);

#endif
