/* Search for values that are no finite numbers in stored weights, as a damaged file has. */
#ifndef HT_FORMATS_FINITE_H
#define HT_FORMATS_FINITE_H

#include "formats/weight_type.h"

/* Whether the values of n elements, a multiple of the block, are all finite. Of most block types only the scales are looked at,
 * which decide it: numbers and codes are finite. */
bool ht_is_finite(ht_weight_type type, const void *blocks, int64_t n);
/* The first of n elements whose value is not finite, and the value; -1: none. */
int64_t ht_first_not_finite(ht_weight_type type, const void *blocks, int64_t n, float *value);

#endif
