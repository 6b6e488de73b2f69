/* Products with the transposed matrix: exact weights, against plain loops, with the same bits for any number of rows beside
 * each other and any number of threads. */
#include "base/checked.h"
#include "cpu/matrix.h"
#include "cpu/matrix_ops.h"
#include "formats/affine.h"
#include "support/multiply.h"
#include "support/test.h"
#include "support/weights.h"

#include <float.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

typedef struct fixture {
    ht_matrix matrix;
    float *dense; /* [n_rows][k] */
} fixture;

static fixture make(const ht_matrix_ops *ops, ht_weight_type type, int64_t n_rows, int64_t k, uint64_t seed) {
    const size_t row = test_row_bytes(type, k);
    fixture f = {.dense = test_alloc((size_t)(n_rows * k) * sizeof(float))};
    uint8_t *stored = test_alloc((size_t)n_rows * row);
    test_random_weights(type, n_rows, k, &seed, stored);
    for (int64_t r = 0; r < n_rows; r++) ht_dequantize(type, stored + (size_t)r * row, k, f.dense + r * k);
    f.matrix = test_pack(ops, type, n_rows, k, stored);
    free(stored);
    return f;
}

static void discard(fixture *f) {
    free(f->matrix.packed);
    free(f->dense);
}

static void multiply(const ht_matrix *m, const float *dy, int64_t ldy, int64_t n_x, float *dx, int64_t ldx,
                     int threads) {
    const size_t bytes = ht_back_scratch(m, threads);
    void *scratch = test_alloc(bytes);
    memset(scratch, 0xff, bytes); /* NaN */
    ht_pool_lease(test_pool(threads));
    ht_back_mul(&(ht_product){m, dy, ldy, n_x, NULL, dx, ldx, 0}, scratch, test_pool(threads));
    ht_pool_release(test_pool(threads));
    free(scratch);
}

/* A gradient of one output alone gives the row of that output. */
static void check_rows(const fixture *f, int threads) {
    const ht_matrix *m = &f->matrix;
    const int64_t n = m->n_rows, k = m->k;
    float *dy = test_alloc((size_t)(n * n) * sizeof *dy), *dx = test_alloc((size_t)(n * k) * sizeof *dx);
    for (int64_t i = 0; i < n * n; i++) dy[i] = i % (n + 1) == 0;
    multiply(m, dy, n, n, dx, k, threads);
    for (int64_t i = 0; i < n * k; i++)
        if (dx[i] != f->dense[i] && !(isnan(dx[i]) && isnan(f->dense[i])))
            fail_msg("%s, [%lld, %lld]: weight (%lld, %lld) is %.9g, expected %.9g", m->ops->name, (long long)n,
                     (long long)k, (long long)(i / k), (long long)(i % k), (double)dx[i], (double)f->dense[i]);
    free(dy);
    free(dx);
}

static void check_sums(const fixture *f, int64_t n_x, uint64_t seed) {
    const ht_matrix *m = &f->matrix;
    const int64_t ldy = m->n_rows + 3, ldx = m->k + 5;
    float *dy = test_alloc((size_t)(n_x * ldy) * sizeof *dy);
    float *dx = test_alloc((size_t)(n_x * ldx) * sizeof *dx), *again = test_alloc((size_t)(n_x * ldx) * sizeof *dx);
    for (int64_t i = 0; i < n_x * ldy; i++) dy[i] = i % ldy < m->n_rows ? test_random_float(&seed) : NAN;
    for (int64_t i = 0; i < n_x * ldx; i++) dx[i] = again[i] = 77;
    multiply(m, dy, ldy, n_x, dx, ldx, 1);
    for (int64_t i = 0; i < n_x; i++)
        for (int64_t c = 0; c < ldx; c++) {
            double sum = 0, size = 0;
            for (int64_t r = 0; r < m->n_rows && c < m->k; r++) {
                const double part = (double)dy[i * ldy + r] * (double)f->dense[r * m->k + c];
                sum += part;
                size += fabs(part);
            }
            if (c >= m->k)
                assert_true(dx[i * ldx + c] == 77); /* nothing is written beside the rows */
            else if (!(fabs((double)dx[i * ldx + c] - sum) <= 1e-5 * size + (double)FLT_MIN))
                fail_msg("%s: output (%lld, %lld) is %.9g, expected %.9g", m->ops->name, (long long)i, (long long)c,
                         (double)dx[i * ldx + c], sum);
        }
    multiply(m, dy, ldy, n_x, again, ldx, 3);
    assert_memory_equal(dx, again, (size_t)(n_x * ldx) * sizeof *dx);
    for (int64_t i = 0; i < n_x; i++) { /* one row alone */
        multiply(m, dy + i * ldy, ldy, 1, again, ldx, 2);
        assert_memory_equal(dx + i * ldx, again, (size_t)m->k * sizeof *dx);
    }
    free(dy);
    free(dx);
    free(again);
}

static void check(const ht_matrix_ops *ops, ht_weight_type type, int64_t n_rows, int64_t k, bool rows) {
    fixture f = make(ops, type, n_rows, k, (uint64_t)(type * 1000 + n_rows));
    if (rows) check_rows(&f, 1 + (int)(n_rows % 3));
    static const int64_t numbers[] = {1, 6, 17};
    for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++) check_sums(&f, numbers[i], (uint64_t)i);
    discard(&f);
}

static bool has_scales_elsewhere(ht_weight_type type) { return ht_weight_is_f8(type); }

UNIT_TEST(every_type) {
    for (int isa = 0; isa < HT_CPU_ISA_COUNT; isa++) {
        if (!ht_cpu_isa_available((ht_cpu_isa)isa)) continue;
        for (int t = 0; t < HT_W_COUNT; t++) {
            const ht_weight_type type = (ht_weight_type)t;
            const int64_t block = ht_weight_type_info_of(type)->block, odd = block > 1 ? block : 7;
            if (has_scales_elsewhere(type)) continue;
            for (int precision = 0; precision < 3; precision++) {
                const ht_matrix_ops *ops = ht_cpu_matrix_ops((ht_cpu_isa)isa, type, (ht_precision)precision);
                check(ops, type, 19, 3 * odd, true);
                if (precision == HT_PRECISION_FAST) continue; /* the form of high */
                check(ops, type, 1, odd, true);
                if (test_takes(t + precision, 3))
                    check(ops, type, 150, ht_ceil_div_i64(300, odd) * odd,
                          false); /* more than one slab and one stretch */
            }
        }
    }
}

UNIT_TEST(coarse_heads) {
    for (int isa = 0; isa < HT_CPU_ISA_COUNT; isa++)
        if (ht_cpu_isa_available((ht_cpu_isa)isa)) {
            check(ht_cpu_coarse_head_ops((ht_cpu_isa)isa, HT_PRECISION_HIGH), HT_W_Q8_0, 50, 64, true);
            check(ht_cpu_coarse_head_ops((ht_cpu_isa)isa, HT_PRECISION_HIGH), HT_W_Q8_0, 150, 320, false);
        }
}

/* No rows, and no gradients. */
UNIT_TEST(empty) {
    fixture f = make(ht_cpu_matrix_ops(HT_CPU_REFERENCE, HT_W_F32, HT_PRECISION_HIGH), HT_W_F32, 4, 3, 1);
    float dx = 5;
    multiply(&f.matrix, NULL, 4, 0, &dx, 3, 1);
    assert_true(dx == 5);
    discard(&f);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(every_type), cmocka_unit_test(coarse_heads),
                                       cmocka_unit_test(empty)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
