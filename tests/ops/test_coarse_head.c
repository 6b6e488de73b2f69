/* Coarse heads: full products with the bits of the other Q8_0 panels; of the highest outputs all, with the same bits, and
 * the others left out, whatever the weights and activations are; on every instruction set, with any number of threads. */
#include "base/checked.h"
#include "cpu/coarse_head.h"
#include "cpu/matrix.h"
#include "cpu/matrix_ops.h"
#include "formats/blocks.h"
#include "support/multiply.h"
#include "support/test.h"
#include "support/weights.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static ht_block_q8_0 *random_rows(int64_t n_rows, int64_t k, uint64_t *seed) {
    ht_block_q8_0 *stored = test_alloc((size_t)n_rows * test_row_bytes(HT_W_Q8_0, k));
    test_random_weights(HT_W_Q8_0, n_rows, k, seed, stored);
    return stored;
}

/* top_k 0: all. */
static void multiply(const ht_matrix *m, int32_t top_k, const float *x, int64_t n_x, const float *bias, float *y,
                     int n_threads) {
    ht_pool *pool = test_pool(n_threads);
    void *scratch = test_alloc(ht_cpu_ops_of(m)->mul_scratch(m, n_x, n_threads));
    ht_pool_lease(pool);
    ht_cpu_ops_of(m)->mul(&(ht_product){m, x, m->k, n_x, bias, y, m->n_rows, top_k}, scratch, pool);
    ht_pool_release(pool);
    free(scratch);
}

/* ---- the form ---- */

UNIT_TEST(test_form) {
    static const int64_t rows[] = {1, 16, 33, 192}, columns[] = {32, 96, 640};
    uint64_t seed = 1;
    for (size_t i = 0; i < 12; i++) {
        int64_t n_rows = rows[i / 3], k = columns[i % 3];
        size_t row_bytes = test_row_bytes(HT_W_Q8_0, k);
        ht_block_q8_0 *stored = random_rows(n_rows, k, &seed);
        ht_matrix m = test_pack(ht_cpu_coarse_head_ops(ht_cpu_isa_best(), HT_PRECISION_HIGH), HT_W_Q8_0, n_rows, k,
                                stored),
                  slabs = m;
        slabs.packed = test_alloc(m.packed_bytes);
        memset(slabs.packed, 0x5a, m.packed_bytes);
        for (int64_t r = (n_rows - 1) / HT_MATRIX_SLAB * HT_MATRIX_SLAB; r >= 0; r -= HT_MATRIX_SLAB)
            m.ops->pack(&slabs, r, ht_min_i64(HT_MATRIX_SLAB, n_rows - r), (char *)stored + (size_t)r * row_bytes,
                        NULL);
        assert_memory_equal(slabs.packed, m.packed, m.packed_bytes);
        float got[640], expected[640];
        for (int64_t r = 0; r < n_rows; r++) {
            assert_int_equal(m.ops->row(&m, r, got, NULL), HT_OK);
            ht_dequantize(HT_W_Q8_0, (char *)stored + (size_t)r * row_bytes, k, expected);
            assert_memory_equal(got, expected, (size_t)k * sizeof(float));
        }
        if (n_rows == 192 && k == 640) assert_true((double)m.packed_bytes <= 1.03 * (double)n_rows * (double)row_bytes);
        assert_true(m.ops->top_bytes(&m) < m.packed_bytes);
        free(slabs.packed);
        free(m.packed);
        free(stored);
    }
}

UNIT_TEST(test_full) {
    enum { ROWS = 212, K = 736, MOST = 65 };
    static const int64_t counts[] = {1, 2, 5, 7, 8, 9, 37, 65};
    uint64_t seed = 2;
    ht_block_q8_0 *stored = random_rows(ROWS, K, &seed);
    float *x = test_alloc(MOST * K * sizeof(float)), bias[ROWS];
    float *whole = test_alloc(MOST * ROWS * sizeof(float)), *split = test_alloc(MOST * ROWS * sizeof(float));
    for (int i = 0; i < MOST * K; i++) x[i] = test_random_float(&seed);
    for (int i = 0; i < ROWS; i++) bias[i] = test_random_float(&seed);
    for (int set = 0; set < 2 * HT_CPU_ISA_COUNT; set++) {
        const ht_cpu_isa isa = (ht_cpu_isa)(set / 2);
        const ht_precision precision = set % 2 ? HT_PRECISION_FAST : HT_PRECISION_HIGH;
        if (!ht_cpu_isa_available(isa)) continue;
        ht_matrix a = test_pack(ht_cpu_matrix_ops(isa, HT_W_Q8_0, precision), HT_W_Q8_0, ROWS, K, stored);
        ht_matrix b = test_pack(ht_cpu_coarse_head_ops(isa, precision), HT_W_Q8_0, ROWS, K, stored);
        for (size_t i = 0; i < sizeof counts / sizeof *counts; i++) {
            const float *with = i % 2 ? bias : NULL;
            multiply(&a, 0, x, counts[i], with, whole, 1);
            multiply(&b, 0, x, counts[i], with, split, 1 + (int)i % 2);
            assert_memory_equal(whole, split, (size_t)(counts[i] * ROWS) * sizeof(float));
        }
        free(a.packed);
        free(b.packed);
    }
    free(whole);
    free(split);
    free(x);
    free(stored);
}

/* ---- the highest outputs ---- */

typedef enum weights {
    WEIGHTS_RANDOM,
    WEIGHTS_STAND_OUT,  /* a few rows follow the activations */
    WEIGHTS_EQUAL,      /* all rows alike: all outputs tie */
    WEIGHTS_NEAR,       /* all but alike */
    WEIGHTS_NEGATIVE,   /* some scales are */
    WEIGHTS_NOT_FINITE, /* some scales are NaN or infinite */
    WEIGHTS_LOW,        /* all outputs of the standing out rows are negative, the others more so */
    WEIGHTS_COUNT
} weights;

typedef enum input { INPUT_RANDOM, INPUT_OUTLIER, INPUT_ZERO, INPUT_HUGE, INPUT_NAN, INPUT_TINY, INPUT_COUNT } input;

static void fill_input(float *x, int64_t k, input kind, uint64_t *seed) {
    for (int64_t i = 0; i < k; i++) {
        x[i] = test_random_float(seed);
        if (kind == INPUT_OUTLIER) x[i] *= i % 37 == 5 ? 1000.0f : 0.01f;
        if (kind == INPUT_ZERO) x[i] = 0.0f;
        if (kind == INPUT_HUGE) x[i] *= 1e36f;
        if (kind == INPUT_TINY) x[i] *= 1e-37f;
    }
    if (kind == INPUT_NAN) x[test_random(seed) % (uint64_t)k] = NAN;
}

static ht_block_q8_0 *make_weights(weights kind, int64_t n_rows, int64_t k, const float *x, uint64_t *seed) {
    ht_block_q8_0 *stored = random_rows(n_rows, k, seed);
    int64_t n_blocks = k / 32;
    for (int64_t i = 0; i < n_rows * n_blocks; i++) {
        ht_block_q8_0 *b = &stored[i];
        int64_t row = i / n_blocks, block = i % n_blocks;
        bool chosen = row % 97 == 13;
        b->d.b[1] &= 0x7f;
        if (kind == WEIGHTS_EQUAL || kind == WEIGHTS_NEAR) *b = stored[block];
        if (kind == WEIGHTS_NEAR && block == row % n_blocks)
            b->qs[row % 32] = (int8_t)(b->qs[row % 32] ^ (int8_t)(1 + row % 3));
        if (kind == WEIGHTS_NEGATIVE && row % 41 == 3) b->d.b[1] |= 0x80;
        if (kind == WEIGHTS_NOT_FINITE && row % 301 == 7) b->d = (ht_half_bytes){{(uint8_t)(row % 2), 0x7c}};
        if ((kind == WEIGHTS_STAND_OUT && chosen) || kind == WEIGHTS_LOW) {
            float by = kind == WEIGHTS_STAND_OUT ? 100.0f : chosen ? -20.0f : -100.0f;
            b->d = (ht_half_bytes){{0, 0x28}};
            for (int j = 0; j < 32; j++) {
                float v = by * x[32 * block + j] + (float)(test_random(seed) % 5);
                b->qs[j] = (int8_t)(v > 127 ? 127 : v < -127 ? -127 : isnan(v) ? 0 : v);
            }
        }
    }
    return stored;
}

static int descending(const void *a, const void *b) {
    float x = *(const float *)a, y = *(const float *)b;
    return (x < y) - (x > y);
}

/* Every output of `all` that is not below the top_k-th highest is in `top` as it is; the others are too, or left out.
 * Gives how many were left out. */
static int64_t check_top(const float *all, const float *top, int64_t n, int32_t top_k) {
    float *sorted = test_alloc((size_t)n * sizeof(float));
    int64_t n_finite = 0, left_out = 0;
    for (int64_t i = 0; i < n; i++)
        if (isfinite(all[i])) sorted[n_finite++] = all[i];
    qsort(sorted, (size_t)n_finite, sizeof *sorted, descending);
    float lowest = n_finite == n ? sorted[top_k - 1] : -INFINITY;
    for (int64_t i = 0; i < n; i++) {
        if (memcmp(&all[i], &top[i], sizeof *all) == 0) continue;
        if (isnan(all[i]) && isnan(top[i]))
            continue; /* which of two NaNs survives an addition is the compiler's choice */
        bool may = isfinite(all[i]) && (n_finite < n || all[i] < lowest);
        if (!may || top[i] != HT_MASKED_LOGIT)
            fail_msg("output %lld is %.9g, was to be %.9g, the lowest of %d is %.9g", (long long)i, (double)top[i],
                     (double)all[i], (int)top_k, (double)lowest);
        left_out++;
    }
    free(sorted);
    return left_out;
}

static int64_t check_case(ht_cpu_isa isa, ht_precision precision, weights w, input in, int64_t n_rows, int64_t k,
                          int32_t top_k, uint64_t *seed) {
    float *x = test_alloc((size_t)k * sizeof(float));
    float *all = test_alloc((size_t)n_rows * sizeof(float)), *top = test_alloc((size_t)n_rows * sizeof(float));
    float *again = test_alloc((size_t)n_rows * sizeof(float));
    fill_input(x, k, in, seed);
    ht_block_q8_0 *stored = make_weights(w, n_rows, k, x, seed);
    ht_matrix whole = test_pack(ht_cpu_matrix_ops(isa, HT_W_Q8_0, precision), HT_W_Q8_0, n_rows, k, stored);
    ht_matrix split = test_pack(ht_cpu_coarse_head_ops(isa, precision), HT_W_Q8_0, n_rows, k, stored);
    multiply(&whole, 0, x, 1, NULL, all, 1);
    multiply(&split, top_k, x, 1, NULL, top, 1);
    int64_t left_out = check_top(all, top, n_rows, top_k);
    for (int threads = 2; threads <= 4; threads += 2) {
        multiply(&split, top_k, x, 1, NULL, again, threads);
        assert_memory_equal(top, again, (size_t)n_rows * sizeof(float));
    }
    free(whole.packed);
    free(split.packed);
    free(stored);
    free(x);
    free(all);
    free(top);
    free(again);
    return left_out;
}

static void check_everywhere(ht_precision precision) {
    uint64_t seed = 3;
    for (int isa = 0; isa < HT_CPU_ISA_COUNT; isa++) {
        if (!ht_cpu_isa_available((ht_cpu_isa)isa)) continue;
        for (int w = 0; w < WEIGHTS_COUNT; w++)
            for (int in = 0; in < INPUT_COUNT; in++) {
                int32_t top_k = in % 2 ? 3 : 1;
                int64_t n_rows = 2053 + 300 * (in % 2), k = 64 + 32 * (w % 3);
                int64_t left_out =
                    check_case((ht_cpu_isa)isa, precision, (weights)w, (input)in, n_rows, k, top_k, &seed);
                /* Where bounds can tell, most is left out; where they may not be used, nothing. */
                bool plain = in == INPUT_RANDOM;
                if ((w == WEIGHTS_STAND_OUT || w == WEIGHTS_LOW) && plain) assert_true(left_out > n_rows / 2);
                if (w == WEIGHTS_EQUAL || in >= INPUT_ZERO) {
                    if (in != INPUT_TINY) assert_int_equal(left_out, 0);
                }
            }
    }
}

UNIT_TEST(test_top) {
    check_everywhere(HT_PRECISION_HIGH);
    check_everywhere(HT_PRECISION_FAST);
}

UNIT_TEST(test_top_seeds) {
    ht_cpu_isa isa = ht_cpu_isa_best();
    for (uint64_t s = 0; s < 60; s++) {
        uint64_t seed = 1000 + s;
        weights w = (weights)(test_random(&seed) % WEIGHTS_COUNT);
        input in = (input)(test_random(&seed) % 2);
        int32_t top_k = 1 + (int32_t)(test_random(&seed) % 45);
        int64_t n_rows = 8000 + (int64_t)(test_random(&seed) % 500), k = 32 + 32 * (int64_t)(test_random(&seed) % 12);
        check_case(isa, s % 3 ? HT_PRECISION_HIGH : HT_PRECISION_FAST, w, in, n_rows, k, top_k, &seed);
    }
}

/* Several rows, a bias, many wanted, a small matrix: all outputs, as there is no faster way. */
UNIT_TEST(test_not_top) {
    enum { ROWS = 2100, K = 64 };
    uint64_t seed = 5;
    float x[2 * K], *all = test_alloc(2 * ROWS * sizeof(float)), *top = test_alloc(2 * ROWS * sizeof(float));
    float *bias = test_alloc(ROWS * sizeof(float));
    fill_input(x, 2 * K, INPUT_RANDOM, &seed);
    fill_input(bias, ROWS, INPUT_RANDOM, &seed);
    ht_block_q8_0 *stored = make_weights(WEIGHTS_STAND_OUT, ROWS, K, x, &seed);
    const struct {
        int64_t n_rows, n_x;
        int32_t top_k;
        const float *bias;
    } cases[] = {{ROWS, 2, 1, NULL}, {ROWS, 1, 1, bias}, {ROWS, 1, 500, NULL}, {ROWS, 1, 20, NULL}, {100, 1, 1, NULL}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        ht_matrix m = test_pack(ht_cpu_coarse_head_ops(ht_cpu_isa_best(), HT_PRECISION_HIGH), HT_W_Q8_0,
                                cases[i].n_rows, K, stored);
        multiply(&m, 0, x, cases[i].n_x, cases[i].bias, all, 2);
        multiply(&m, cases[i].top_k, x, cases[i].n_x, cases[i].bias, top, 2);
        assert_memory_equal(all, top, (size_t)(cases[i].n_x * cases[i].n_rows) * sizeof(float));
        free(m.packed);
    }
    ht_matrix m = test_pack(ht_cpu_coarse_head_ops(ht_cpu_isa_best(), HT_PRECISION_HIGH), HT_W_Q8_0, ROWS, K, stored);
    multiply(&m, 0, x, 1, NULL, all, 2);
    multiply(&m, 1, x, 1, NULL, top, 2);
    assert_true(check_top(all, top, ROWS, 1) > ROWS / 2);
    free(m.packed);
    free(stored);
    free(bias);
    free(all);
    free(top);
}

/* Large heads of 8 bits have this form, others do not. */
static bool has_top(const ht_matrix_ops *ops) { return ht_is_coarse_head(&(ht_matrix){.ops = ops}); }

UNIT_TEST(test_choice) {
    ht_cpu_isa isa = ht_cpu_isa_best();
    const ht_matrix_ops *split = ht_cpu_coarse_head_ops(isa, HT_PRECISION_FAST);
    const ht_matrix_ops *high = ht_cpu_coarse_head_ops(isa, HT_PRECISION_HIGH);
    assert_true(ht_cpu_head_ops(isa, HT_W_Q8_0, HT_PRECISION_FAST, 262144, 640) == split);
    assert_true(ht_cpu_head_ops(isa, HT_W_Q8_0, HT_PRECISION_HIGH, 262144, 640) == high);
    assert_false(has_top(ht_cpu_head_ops(isa, HT_W_Q8_0, HT_PRECISION_REFERENCE, 262144, 640)));
    assert_true(ht_cpu_head_ops(isa, HT_W_Q6_K, HT_PRECISION_FAST, 262144, 2048) != split);
    assert_true(ht_cpu_head_ops(isa, HT_W_Q8_0, HT_PRECISION_FAST, 1000, 64) != split);
    assert_false(has_top(ht_cpu_matrix_ops(isa, HT_W_Q8_0, HT_PRECISION_FAST)));
}

int main(void) {
    ht_flush_denormals();
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_form),      cmocka_unit_test(test_full),    cmocka_unit_test(test_top),
        cmocka_unit_test(test_top_seeds), cmocka_unit_test(test_not_top), cmocka_unit_test(test_choice),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
