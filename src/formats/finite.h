/* Search for non-finite values in stored weights, a sign of a damaged file. */
#ifndef HT_FORMATS_FINITE_H
#define HT_FORMATS_FINITE_H

#include "formats/weight_type.h"

/* Whether the values of n elements, a multiple of the block size, are all finite. Most block types need only a check
 * of the scales: quantised values are always finite. */
bool ht_is_finite(ht_weight_type type, const void *blocks, int64_t n);
/* The first of n elements whose value is not finite, and the value; -1: none. */
int64_t ht_first_not_finite(ht_weight_type type, const void *blocks, int64_t n, float *value);

#endif
