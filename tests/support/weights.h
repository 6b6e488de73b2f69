/* Random weights in stored form, and what their numbers are: for tests of matrix products. */
#ifndef TESTS_SUPPORT_WEIGHTS_H
#define TESTS_SUPPORT_WEIGHTS_H

#include "formats/weight_type.h"

#include <stddef.h>
#include <stdint.h>

/* A small generator of its own, so that a failure repeats anywhere. */
uint32_t test_random(uint64_t *state);
/* Uniform in [-1, 1). */
float test_random_float(uint64_t *state);

size_t test_row_bytes(ht_weight_type type, int64_t k);
/* n_rows x k weights with every bit pattern of their integers, scales finite and of both signs. */
void test_random_weights(ht_weight_type type, int64_t n_rows, int64_t k, uint64_t *state, void *stored);

/* The integers and scales of 32 columns of a stored row: weight i is scale[h] * q[i] + min[h], h = halves == 2 ? i / 16 : 0.
 * For quantised types. */
typedef struct test_block {
    int halves;
    int has_min;
    int q[32];
    float scale[2], min[2];
} test_block;
test_block test_block_of(ht_weight_type type, const void *row, int64_t block);

#endif
