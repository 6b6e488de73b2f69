/* Running one matrix's products on memory of the test: with scratch that holds no more than what was asked for, and
 * nothing of use. */
#ifndef TESTS_SUPPORT_MULTIPLY_H
#define TESTS_SUPPORT_MULTIPLY_H

#include "base/pool.h"
#include "device/matrix.h"

/* 64-byte aligned; fails the test when there is none. */
void *test_alloc(size_t bytes);
/* One pool for each number of threads up to 4, which lives as long as the program. */
ht_pool *test_pool(int n_threads);

/* Packs n_rows x k weights in their stored form; m.packed is the test's to free. */
ht_matrix test_pack(const ht_matrix_ops *ops, ht_weight_type type, int64_t n_rows, int64_t k, const void *stored);
void test_multiply(const ht_matrix *m, const float *x, int64_t ldx, int64_t n_x, const float *bias, float *y,
                   int64_t ldy, int n_threads);

#endif
