/* Random adapters, and logits with them. */
#ifndef TESTS_SUPPORT_ADAPTERS_H
#define TESTS_SUPPORT_ADAPTERS_H

#include "models/adapter.h"

/* Random matrices for every `every`-th projection of a model. */
ht_adapter *test_adapter_for(const ht_model *m, int64_t rank, int64_t every, uint64_t seed);
/* The largest difference of n values, in units of the largest of b. */
double test_difference(const float *a, const float *b, size_t n);

#endif
