/* Products with f16 and bf16 weights, bit for bit against the order in words that cpu/matrix_kernels.h documents: every
 * length of the last block, extreme weights and activations, any number of rows and threads. Where an instruction set
 * multiplies such weights in f32, test_matrix.c compares them. */
#include "base/checked.h"
#include "base/half.h"
#include "cpu/matrix.h"
#include "cpu/matrix_kernels.h"
#include "support/multiply.h"
#include "support/test.h"
#include "support/weights.h"

#include <float.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

static const ht_weight_type types[] = {HT_W_F16, HT_W_BF16};

/* What the weights of a product are like. */
typedef enum weights {
    WEIGHTS_RANDOM,
    WEIGHTS_SPREAD,  /* any bits but infinities and NaN */
    WEIGHTS_LARGEST, /* all as large as they can be: the largest sums */
    WEIGHTS_TINY,    /* about the least exponent, and denormals */
    WEIGHTS_ZERO,
    WEIGHTS_BROKEN, /* an infinity here, a NaN there */
    WEIGHTS_COUNT
} weights;

typedef enum input { INPUT_RANDOM, INPUT_ZERO, INPUT_EQUAL, INPUT_OUTLIER, INPUT_HUGE, INPUT_TINY, INPUT_COUNT } input;

static uint16_t half_of(ht_weight_type type, float v) {
    return type == HT_W_F16 ? ht_f32_to_f16(v) : ht_f32_to_bf16(v);
}
static float value_of(ht_weight_type type, uint16_t h) {
    return type == HT_W_F16 ? ht_f16_to_f32(h) : ht_bf16_to_f32(h);
}

static uint16_t weight(ht_weight_type type, weights kind, int64_t i, uint64_t *state) {
    const uint16_t exponent = type == HT_W_F16 ? 0x7c00 : 0x7f80;
    uint16_t bits = (uint16_t)test_random(state);
    switch (kind) {
    case WEIGHTS_SPREAD: return (bits & exponent) == exponent ? (uint16_t)(bits ^ 0x4000) : bits;
    case WEIGHTS_LARGEST: return half_of(type, type == HT_W_F16 ? 2047.0f / 1024 : 255.0f / 128);
    case WEIGHTS_TINY: return bits & (type == HT_W_F16 ? 0x87ff : 0x8bff);
    case WEIGHTS_ZERO: return bits & 0x8000;
    case WEIGHTS_BROKEN:
        if (i % 150 == 149) return (uint16_t)(exponent | (bits & 0x8000) | (i % 300 > 150));
        break;
    default: break;
    }
    return half_of(type, test_random_float(state));
}

static float activation(input kind, int64_t i, uint64_t *state) {
    float v = test_random_float(state);
    switch (kind) {
    case INPUT_ZERO: return 0.0f;
    case INPUT_EQUAL: return 0.75f;
    case INPUT_OUTLIER: return i % 37 == 5 ? 3000.0f * v : v;
    case INPUT_HUGE: return 1e25f * v;
    case INPUT_TINY: return 1e-20f * v;
    default: return v;
    }
}

/* ---- the documented order ---- */

static float emulate(ht_weight_type type, const uint16_t *w, const float *x, int64_t k) {
    float y = 0.0f;
    for (int64_t c = 0; c < k; c += 32) {
        int64_t end = ht_min_i64(c + 32, k), t = 0;
        float peak = 0.0f;
        int e = -110;
        bool broken = false;
        for (int64_t i = c; i < end; i++) {
            float v = value_of(type, w[i]);
            int of_v;
            peak = fmaxf(peak, fabsf(x[i]));
            if (!isfinite(v))
                broken = true;
            else if (frexpf(v, &of_v) != 0.0f && of_v > e)
                e = of_v;
        }
        /* An f16 block of denormals alone is scaled as the least normal number is: no bits of it are lost either way. */
        if (type == HT_W_F16 && e < -14) e = -14;
        float s = peak / (float)HT_WORD_X, inverse = s > 0.0f ? 1.0f / s : 0.0f,
              u = broken ? NAN : ldexpf(1.0f, e - 13);
        for (int64_t i = c; i < end; i++) {
            float v = value_of(type, w[i]);
            if (isfinite(v)) t += (int64_t)nearbyint(ldexp(v, 13 - e)) * (int64_t)nearbyintf(x[i] * inverse);
        }
        assert_true(t < INT32_MAX && t > INT32_MIN);
        y = fmaf((float)(int32_t)t * u, s, y);
    }
    return y;
}

/* ---- products ---- */

typedef struct product {
    ht_matrix m;
    uint16_t *stored;
    float *bias;
} product;

static product make_product(ht_cpu_isa isa, ht_weight_type type, int64_t n_rows, int64_t k, weights kind,
                            uint64_t *state) {
    product p;
    p.stored = test_alloc((size_t)(n_rows * k) * sizeof *p.stored);
    p.bias = test_alloc((size_t)n_rows * sizeof *p.bias);
    for (int64_t i = 0; i < n_rows * k; i++) p.stored[i] = weight(type, kind, i, state);
    for (int64_t r = 0; r < n_rows; r++) p.bias[r] = test_random_float(state);
    p.m = test_pack(ht_cpu_matrix_ops(isa, type, HT_PRECISION_FAST), type, n_rows, k, p.stored);
    return p;
}

static void free_product(product *p) {
    free(p->stored);
    free(p->bias);
    free(p->m.packed);
}

static void check(const product *p, int64_t n_x, input kind, bool with_bias, int n_threads, uint64_t *state) {
    const int64_t k = p->m.k, n = p->m.n_rows, ldx = k + (int64_t)(test_random(state) % 3), ldy = n + 3;
    float *x = test_alloc((size_t)(n_x * ldx) * sizeof *x), *y = test_alloc((size_t)(n_x * ldy) * sizeof *y);
    for (int64_t i = 0; i < n_x * ldx; i++) x[i] = activation(kind, i, state);
    for (int64_t i = 0; i < n_x * ldy; i++) y[i] = -7.0f;
    test_multiply(&p->m, x, ldx, n_x, with_bias ? p->bias : NULL, y, ldy, n_threads);
    for (int64_t i = 0; i < n_x; i++) {
        for (int64_t r = 0; r < n; r++) {
            float got = y[i * ldy + r], expected = emulate(p->m.type, p->stored + r * k, x + i * ldx, k);
            if (with_bias) expected += p->bias[r];
            if (isnan(expected) ? !isnan(got) : memcmp(&got, &expected, sizeof got) != 0)
                fail_msg("%s [%lld, %lld] x %lld rows, input %d: y[%lld][%lld] is %.9g, its order gives %.9g",
                         p->m.ops->name, (long long)n, (long long)k, (long long)n_x, (int)kind, (long long)i,
                         (long long)r, (double)got, (double)expected);
        }
        for (int64_t r = n; r < ldy; r++) assert_true(y[i * ldy + r] == -7.0f); /* what lies between the rows */
    }
    free(x);
    free(y);
}

typedef void test_of(ht_cpu_isa isa, ht_weight_type type);

static void everywhere(test_of *test) {
    int ran = 0;
    for (int isa = 0; isa < HT_CPU_ISA_COUNT; isa++)
        for (int t = 0; t < 2; t++)
            if (ht_cpu_isa_available((ht_cpu_isa)isa) && ht_cpu_multiplies_words((ht_cpu_isa)isa)) {
                test((ht_cpu_isa)isa, types[t]);
                ran++;
            }
    if (!ran) skip(); /* no instruction set here has a dot product of words */
}

static const int64_t x_counts[] = {1, 2, 3, 4, 5, 6, 7, 8, 13, 64};
enum { X_COUNTS = sizeof x_counts / sizeof *x_counts };

static void sizes(ht_cpu_isa isa, ht_weight_type type) {
    static const int64_t row_counts[] = {1, 15, 16, 17, 33, 100};
    static const int64_t columns[] = {1, 2, 3, 16, 17, 31, 32, 33, 63, 64, 65, 511, 512, 513, 560, 1099};
    uint64_t state = 1;
    for (size_t r = 0; r < sizeof row_counts / sizeof *row_counts; r++)
        for (size_t c = 0; c < sizeof columns / sizeof *columns; c++) {
            product p = make_product(isa, type, row_counts[r], columns[c], WEIGHTS_RANDOM, &state);
            check(&p, x_counts[(r + c) % X_COUNTS], INPUT_RANDOM, (r + c) % 2, 1 + (int)(c % 2), &state);
            free_product(&p);
        }
}

static void extremes(ht_cpu_isa isa, ht_weight_type type) {
    uint64_t state = 2;
    for (int w = 0; w < WEIGHTS_COUNT; w++)
        for (int x = 0; x < INPUT_COUNT; x++) {
            /* Results smaller than a float can be are flushed, at a place that the order does not say. */
            if (type == HT_W_BF16 && (w == WEIGHTS_TINY || w == WEIGHTS_SPREAD) && x == INPUT_TINY) continue;
            product p = make_product(isa, type, 33, 300, (weights)w, &state);
            check(&p, 1, (input)x, false, 1, &state);
            check(&p, 20, (input)x, true, 2, &state);
            free_product(&p);
        }
}

/* Row i alone and among others, with 1 to 3 threads: the same bits. Wide and long enough for every path. */
static void same_bits(ht_cpu_isa isa, ht_weight_type type) {
    enum { ROWS = 64, OUT = 212, K = 1130 };
    uint64_t state = 3;
    product p = make_product(isa, type, OUT, K, WEIGHTS_RANDOM, &state);
    float *x = test_alloc((size_t)ROWS * K * sizeof *x), *alone = test_alloc((size_t)ROWS * OUT * sizeof *alone);
    float *many = test_alloc((size_t)ROWS * OUT * sizeof *many);
    for (int i = 0; i < ROWS * K; i++) x[i] = test_random_float(&state);
    for (int i = 0; i < ROWS; i++) test_multiply(&p.m, x + i * K, K, 1, p.bias, alone + i * OUT, OUT, 1);
    for (int threads = 1; threads <= 3; threads++)
        for (int i = 0; i < X_COUNTS; i++) {
            test_multiply(&p.m, x, K, x_counts[i], p.bias, many, OUT, threads);
            assert_memory_equal(alone, many, (size_t)x_counts[i] * OUT * sizeof *many);
        }
    free(x);
    free(alone);
    free(many);
    free_product(&p);
}

/* A NaN or an infinity in a row of activations must not look like numbers, and must not disturb its neighbours. */
static void not_finite(ht_cpu_isa isa, ht_weight_type type) {
    enum { K = 256, OUT = 20 };
    uint64_t state = 4;
    product p = make_product(isa, type, OUT, K, WEIGHTS_RANDOM, &state);
    float x[3 * K], y[3 * OUT], alone[OUT];
    for (int i = 0; i < 3 * K; i++) x[i] = test_random_float(&state);
    x[K + 70] = NAN;
    x[2 * K + 3] = -INFINITY;
    test_multiply(&p.m, x, K, 3, NULL, y, OUT, 1);
    test_multiply(&p.m, x, K, 1, NULL, alone, OUT, 1);
    assert_memory_equal(y, alone, sizeof alone);
    for (int r = OUT; r < 3 * OUT; r++) assert_true(isnan(y[r]));
    free_product(&p);
}

/* As close to the exact product as 14 bits allow: half a step of each side, and the rounding of the sums. */
static void accurate(ht_cpu_isa isa, ht_weight_type type) {
    enum { K = 1000, OUT = 64 };
    uint64_t state = 5;
    product p = make_product(isa, type, OUT, K, WEIGHTS_RANDOM, &state);
    float x[K], y[OUT];
    for (int i = 0; i < K; i++) x[i] = test_random_float(&state);
    test_multiply(&p.m, x, K, 1, NULL, y, OUT, 1);
    for (int r = 0; r < OUT; r++) {
        double exact = 0, size_x = 0, size_w = 0;
        for (int i = 0; i < K; i++) {
            double w = value_of(type, p.stored[r * K + i]);
            exact += w * (double)x[i];
            size_x = fmax(size_x, fabs((double)x[i]));
            size_w = fmax(size_w, fabs(w));
        }
        /* Errors of either sign: their sum grows as the root of their number. */
        double step = size_x * size_w * (1.0 / 8191 + 1.0 / 4096);
        assert_true(fabs((double)y[r] - exact) < 4 * step / sqrt(12.0) * sqrt((double)K));
    }
    free_product(&p);
}

#define TEST(name)                                                                                                     \
    static void test_##name(void **state) {                                                                            \
        (void)state;                                                                                                   \
        everywhere(name);                                                                                              \
    }
TEST(sizes)
TEST(extremes)
TEST(same_bits)
TEST(not_finite)
TEST(accurate)

int main(void) {
    ht_flush_denormals();
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_sizes),      cmocka_unit_test(test_extremes), cmocka_unit_test(test_same_bits),
        cmocka_unit_test(test_not_finite), cmocka_unit_test(test_accurate),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
