/* Repacking of quantised weights: blocks of a type of GGUF as groups of MLX and back, where both have the same values.
 *
 * A group of MLX is scale * q + bias. Q4_0, Q5_0 and Q8_0 have a bias of -8, -16 and -128 scales, Q4_1 and Q5_1 their own; the
 * scales and offsets of Q4_K and Q5_K are products of an f16 and six bits, which f32 holds. MLX's groups of up to four bits are
 * Q4_1 where their scales are f16 numbers, those of five bits Q5_1. */
#ifndef HT_FORMATS_REPACK_H
#define HT_FORMATS_REPACK_H

#include "formats/weight_type.h"

#include <stdbool.h>
#include <stdint.h>

/* Number i of the types that may hold the values of `from` in the other container, the smallest first; -1 at the end. */
int ht_repack_type(ht_weight_type from, int i);
/* Elements of which whole blocks of both types are made. */
int64_t ht_repack_unit(ht_weight_type from, ht_weight_type to);
/* Writes n elements, a multiple of the unit, as blocks of another type. False when some value would be another. */
bool ht_repack(ht_weight_type from, const void *blocks, int64_t n, ht_weight_type to, void *out);

#endif
