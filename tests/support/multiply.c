#include "support/multiply.h"

#include "cpu/matrix_ops.h"
#include "support/test.h"

#include <stdlib.h>
#include <string.h>

void *test_alloc(size_t bytes) {
    void *p = aligned_alloc(64, (bytes + 127) / 64 * 64);
    assert_non_null(p);
    return p;
}

ht_pool *test_pool(int n_threads) {
    static ht_pool *pools[5];
    if (!pools[n_threads]) assert_int_equal(ht_pool_new(n_threads, &pools[n_threads], NULL), HT_OK);
    return pools[n_threads];
}

ht_matrix test_pack(const ht_matrix_ops *ops, ht_weight_type type, int64_t n_rows, int64_t k, const void *stored) {
    assert_non_null(ops);
    ht_matrix m = {.ops = ops, .type = type, .n_rows = n_rows, .k = k};
    m.packed_bytes = ops->packed_bytes(type, n_rows, k);
    m.packed = test_alloc(m.packed_bytes);
    memset(m.packed, 0xa5, m.packed_bytes);
    ops->pack(&m, 0, n_rows, stored, NULL);
    return m;
}

void test_multiply(const ht_matrix *m, const float *x, int64_t ldx, int64_t n_x, const float *bias, float *y,
                   int64_t ldy, int n_threads) {
    ht_pool *pool = test_pool(n_threads);
    size_t bytes = ht_cpu_ops_of(m)->mul_scratch(m, n_x, n_threads);
    char *scratch = test_alloc(bytes + 64);
    memset(scratch, 0xa5, bytes + 64);
    ht_pool_lease(pool);
    ht_cpu_ops_of(m)->mul(&(ht_product){m, x, ldx, n_x, bias, y, ldy, 0}, scratch, pool);
    ht_pool_release(pool);
    for (size_t i = 0; i < 64; i++) assert_int_equal(scratch[bytes + i], (char)0xa5);
    free(scratch);
}
