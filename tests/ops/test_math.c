/* Our elementary functions: against libm in double over a sweep of all floats, and the same bits from every device. */
#include "base/math_wide.h"
#include "support/kernels.h"
#include "support/test.h"

#include <stdlib.h>

enum {
    STEP = TEST_EMULATED ? 32771 : 4093,
    COUNT = (int)((UINT64_C(1) << 32) / STEP) + 1
}; /* prime, so that every mantissa pattern comes up */

typedef struct function {
    ht_op_id op;
    float (*ours)(float);
    double (*exact)(double);
    double ulps;  /* largest error in units of the last place */
    double floor; /* and an absolute error that is allowed besides, where a factor underflows before the result does */
} function;

static double sigmoid(double x) { return 1.0 / (1.0 + exp(-x)); }
static double silu(double x) { return x / (1.0 + exp(-x)); }
static double gelu_tanh(double x) {
    return x / (1.0 + exp(-2.0 * 0.79788456080286535588 * (x + 0.044715 * x * x * x)));
}

static double gelu(double x) { return 0.5 * x * erfc(-x * 0.70710678118654752440); }
static double inverse_erf(double x) {
    double y = (double)ht_erfinv_f32((float)x);
    if (!(fabs(x) < 1.0)) return y;
    double sign = x < 0.0 ? -1.0 : 1.0, a = fabs(x);
    y = fabs(y);
    for (int i = 0; i < 2; i++) /* erfc where erf is near 1 */
        y -= (a < 0.5 ? erf(y) - a : (1.0 - a) - erfc(y)) * 0.88622692545275801365 * exp(y * y);
    return sign * y;
}

static const function functions[] = {
    {HT_OP_EXPM1, ht_expm1_f32, expm1, 1.0, 0.0},
    {HT_OP_LOG2, ht_log2_f32, log2, 0.95, 0.0},
    {HT_OP_LOG10, ht_log10_f32, log10, 0.95, 0.0},
    {HT_OP_LOG1P, ht_log1p_f32, log1p, 1.0, 0.0},
    {HT_OP_TAN, ht_tan_f32, tan, 1.2, 0.0},
    {HT_OP_ARCSIN, ht_asin_f32, asin, 0.7, 0.0},
    {HT_OP_ARCCOS, ht_acos_f32, acos, 0.7, 0.0},
    {HT_OP_ARCTAN, ht_atan_f32, atan, 0.95, 0.0},
    {HT_OP_SINH, ht_sinh_f32, sinh, 0.95, 0.0},
    {HT_OP_COSH, ht_cosh_f32, cosh, 0.95, 0.0},
    {HT_OP_ERF, ht_erf_f32, erf, 0.51, 0.0},
    {HT_OP_ERFINV, ht_erfinv_f32, inverse_erf, 0.51, 0.0},
    {HT_OP_GELU, ht_gelu_f32, gelu, 0.51, 1.2e-38},
    {HT_OP_EXP, ht_exp_f32, exp, 0.99, 1.2e-38},
    {HT_OP_LOG, ht_log_f32, log, 1.0, 0.0},
    {HT_OP_SIN, ht_sin_f32, sin, 1.6, 0.0},
    {HT_OP_COS, ht_cos_f32, cos, 1.6, 0.0},
    {HT_OP_TANH, ht_tanh_f32, tanh, 2.6, 0.0},
    {HT_OP_SIGMOID, ht_sigmoid_f32, sigmoid, 2.5, 1.2e-38},
    {HT_OP_SILU, ht_silu_f32, silu, 3.0, 3e-37},
    /* Far on the left the error of the exponent counts: |2 u| units for a result near x e^2u. */
    {HT_OP_GELU_TANH, ht_gelu_tanh_f32, gelu_tanh, 4.0, 3e-7},
};

static float argument(int64_t i) { return ht_float_from_bits((uint32_t)(i * STEP)); }

/* |got - want| in units of the last place of want as an f32. */
static double error_of(const function *f, float got, double want) {
    if (isnan(want)) return isnan(got) ? 0.0 : INFINITY;
    if (isinf((float)want)) return got == (float)want ? 0.0 : INFINITY;
    if (isnan(got) || isinf(got)) return INFINITY;
    double difference = fabs((double)got - want);
    if (difference <= f->floor) return 0.0;
    int exponent;
    frexp(want, &exponent);
    return difference / ldexp(1.0, (exponent < -125 ? -125 : exponent) - 24);
}

UNIT_TEST(close_to_libm) {
    for (size_t k = 0; k < sizeof functions / sizeof *functions; k++) {
        const function *f = &functions[k];
        for (int64_t i = 0; i < COUNT; i += test_cases(7, 1)) {
            float x = argument(i);
            if (x != 0.0f && fabsf(x) < 0x1p-126f) continue; /* flushed where it matters */
            double error = error_of(f, f->ours(x), f->exact((double)x));
            if (error > f->ulps) fail_msg("%s(%a) = %a is off by %g ulp", test_op_name(f->op), x, f->ours(x), error);
        }
    }
}

/* ---- of f16: every argument that there is ---- */

static const function half_functions[] = {
    {HT_OP_LOG, ht_log_half, log, 0.0025, 0.0},       {HT_OP_LOG2, ht_log2_half, log2, 0.0025, 0.0},
    {HT_OP_LOG10, ht_log10_half, log10, 0.0025, 0.0}, {HT_OP_EXPM1, ht_expm1_half, expm1, 0.0025, 0.0},
    {HT_OP_SINH, ht_sinh_half, sinh, 0.0025, 0.0},    {HT_OP_COSH, ht_cosh_half, cosh, 0.0025, 0.0},
    {HT_OP_SIN, ht_sin_half, sin, 0.0025, 0.0},       {HT_OP_COS, ht_cos_half, cos, 0.0025, 0.0},
    {HT_OP_TAN, ht_tan_half, tan, 0.0025, 0.0},       {HT_OP_ARCTAN, ht_atan_half, atan, 0.0025, 0.0},
    {HT_OP_ARCSIN, ht_asin_half, asin, 0.0025, 0.0},  {HT_OP_ARCCOS, ht_acos_half, acos, 0.0025, 0.0},
};
enum { HALVES = 1 << 16 };

/* |got - want| in units of the last place of want as an f16; what rounds to the same f16 from beyond its range is right. */
static double error_of_half(float got, double want) {
    if (isnan(want)) return isnan(got) ? 0.0 : INFINITY;
    if (ht_f32_to_f16((float)want) == ht_f32_to_f16(got) && (isinf(want) || fabs(want) > 65504.0)) return 0.0;
    if (!signbit(got) != !signbit(want) || !isfinite(got)) return INFINITY;
    int exponent;
    frexp(want, &exponent);
    return fabs((double)got - want) / ldexp(1.0, (exponent < -13 ? -13 : exponent) - 11);
}

UNIT_TEST(halves_close_to_libm) {
    for (size_t k = 0; k < sizeof half_functions / sizeof *half_functions; k++) {
        const function *f = &half_functions[k];
        for (int i = 0; i < HALVES; i++) {
            const float x = ht_f16_to_f32((uint16_t)i), got = f->ours(x);
            const double error = error_of_half(got, f->exact((double)x));
            if (error > f->ulps) fail_msg("%s(%a) = %a is off by %g ulp", test_op_name(f->op), x, got, error);
        }
    }
}

/* With a tail of every length. */
UNIT_TEST(halves_same_bits_on_every_device) {
    static uint16_t x[HALVES], want[HALVES];
    for (int i = 0; i < HALVES; i++) x[i] = (uint16_t)i;
    const unsigned flush = ht_flush_denormals();
    for (size_t k = 0; k < sizeof half_functions / sizeof *half_functions; k++) {
        for (int i = 0; i < HALVES; i++) want[i] = ht_f32_to_f16(half_functions[k].ours(ht_f16_to_f32(x[i])));
        for (int64_t tail = 0; tail < 16; tail++) {
            const int64_t count = HALVES - tail;
            const ht_view in = test_view(x + tail, HT_F16, 1, &count);
            if (test_takes(tail + (int64_t)k, 8)) test_same_bits(half_functions[k].op, 1, &in, want + tail);
        }
    }
    ht_restore_denormals(flush);
}

/* ---- of two arguments ---- */

typedef struct function2 {
    ht_op_id op;
    float (*ours)(float, float);
    double (*exact)(double, double);
    double ulps;
} function2;
static const function2 functions2[] = {
    {HT_OP_POWER, ht_pow_f32, pow, 1.0},
    {HT_OP_ARCTAN2, ht_atan2_f32, atan2, 1.0},
};

static uint32_t next_bits(uint64_t *state) {
    *state = *state * 6364136223846793005u + 1442695040888963407u;
    return (uint32_t)(*state >> 32);
}
static float between(uint64_t *state, float low, float high) {
    return low + (high - low) * (float)(next_bits(state) >> 8) * 0x1p-24f;
}

/* Pairs of any bits, of numbers of one size, and of a base and an exponent whose power is a number; special ones first. */
enum { PAIRS = TEST_EMULATED ? 1 << 17 : 1 << 20 };
static int64_t make_pairs(float *a, float *b) {
    static const float special[] = {0.0f,    -0.0f,      1.0f,      -1.0f,  2.0f,        -2.0f,       0.5f,
                                    -0.5f,   3.0f,       -3.0f,     4.0f,   2.5f,        -2.5f,       1e10f,
                                    -1e10f,  INFINITY,   -INFINITY, NAN,    16777217.0f, -16777215.f, 1e-30f,
                                    -1e-30f, 8388607.5f, 1e38f,     -1e38f, 0x1p-126f};
    const int n = (int)(sizeof special / sizeof *special);
    uint64_t state = 7;
    int64_t count = 0;
    for (int i = 0; i < n; i++)
        for (int k = 0; k < n; k++, count++) a[count] = special[i], b[count] = special[k];
    while (count < test_cases(PAIRS / 8, PAIRS)) {
        float x = ht_float_from_bits(next_bits(&state)), y = ht_float_from_bits(next_bits(&state));
        if (count % 3 == 1) y = x * between(&state, -2.0f, 2.0f);
        if (count % 3 == 2) {
            x = count % 2 ? between(&state, 0.5f, 2.0f) : exp2f(between(&state, -20.0f, 20.0f));
            y = between(&state, -128.0f, 128.0f) / (fabsf(log2f(x)) + 0x1p-20f);
        }
        if ((x != 0.0f && fabsf(x) < 0x1p-126f) || (y != 0.0f && fabsf(y) < 0x1p-126f)) continue;
        a[count] = x, b[count++] = y;
    }
    return count;
}

UNIT_TEST(pairs_close_to_libm) {
    float *a = malloc(PAIRS * sizeof *a), *b = malloc(PAIRS * sizeof *b);
    const int64_t n = make_pairs(a, b);
    for (size_t k = 0; k < sizeof functions2 / sizeof *functions2; k++) {
        const function2 *f = &functions2[k];
        const function bounds = {.floor = 1.2e-38};
        for (int64_t i = 0; i < n; i++) {
            const float got = f->ours(a[i], b[i]);
            const double want = f->exact((double)a[i], (double)b[i]), error = error_of(&bounds, got, want);
            if (error > f->ulps || (!isnan(want) && !signbit(got) != !signbit(want)))
                fail_msg("%s(%a, %a) = %a is off by %g ulp of %a", test_op_name(f->op), a[i], b[i], got, error, want);
        }
    }
    free(a), free(b);
}

UNIT_TEST(pairs_same_bits_on_every_device) {
    float *a = malloc(PAIRS * sizeof *a), *b = malloc(PAIRS * sizeof *b), *want = malloc(PAIRS * sizeof *want);
    const int64_t count = make_pairs(a, b);
    const ht_view in[2] = {test_view(a, HT_F32, 1, &count), test_view(b, HT_F32, 1, &count)};
    const unsigned flush = ht_flush_denormals();
    for (size_t k = 0; k < sizeof functions2 / sizeof *functions2; k++) {
        for (int64_t i = 0; i < count; i++) want[i] = functions2[k].ours(a[i], b[i]);
        test_same_bits(functions2[k].op, 2, in, want);
    }
    ht_restore_denormals(flush);
    free(a), free(b), free(want);
}

/* ---- remainders of f64 ---- */

static double remainder_by_libm(double a, double b) {
    const double r = fmod(a, b);
    if (r == 0.0) return copysign(0.0, b);
    return (r < 0.0) != (b < 0.0) ? r + b : r;
}

/* Quotients that are whole but for a rounding, of any size, and of special numbers; blocks without any of the latter too. */
enum { REMAINDERS = 1 << 16 };
static void make_dividends(double *a, double *b) {
    static const double special[] = {0.0, -0.0, 1.0, -1.0, 3.0, -0.1, 1e300, -1e-300, 5e-324, INFINITY, -INFINITY, NAN};
    enum { N = (int)(sizeof special / sizeof *special) };
    uint64_t state = 11;
    for (int i = 0; i < REMAINDERS; i++) {
        const uint64_t high = next_bits(&state), low = next_bits(&state);
        const double x = (double)(int64_t)(high << 32 | low), k = (double)(next_bits(&state) >> (i % 31));
        b[i] = x * exp2((double)(next_bits(&state) % 40) - 80.0);
        a[i] = i % 3 == 0 ? k * b[i] : i % 3 == 1 ? nextafter(k * b[i], 0.0) : k * 1.7 * (i % 2 ? -1.0 : 1.0);
        if (i % 4096 < N * N && i > REMAINDERS / 2) a[i] = special[i % N], b[i] = special[i / N % N];
    }
}

UNIT_TEST(remainders_are_exact_on_every_device) {
    static double a[REMAINDERS], b[REMAINDERS], want[REMAINDERS];
    const int64_t count = REMAINDERS - 5;
    make_dividends(a, b);
    const ht_view in[2] = {test_view(a, HT_F64, 1, &count), test_view(b, HT_F64, 1, &count)};
    const unsigned flush = ht_flush_denormals();
    for (int64_t i = 0; i < count; i++) want[i] = remainder_by_libm(a[i], b[i]);
    test_same_bits(HT_OP_REMAINDER, 2, in, want);
    ht_restore_denormals(flush);
}

UNIT_TEST(special_values) {
    assert_true(ht_exp_f32(-INFINITY) == 0.0f && ht_exp_f32(INFINITY) == INFINITY && ht_exp_f32(0.0f) == 1.0f);
    assert_true(ht_exp_f32(-87.4f) == 0.0f && ht_exp_f32(88.8f) == INFINITY && isnan(ht_exp_f32(NAN)));
    assert_true(ht_log_f32(0.0f) == -INFINITY && ht_log_f32(-0.0f) == -INFINITY && ht_log_f32(1.0f) == 0.0f);
    assert_true(isnan(ht_log_f32(-1.0f)) && isnan(ht_log_f32(NAN)) && ht_log_f32(INFINITY) == INFINITY);
    assert_true(ht_tanh_f32(INFINITY) == 1.0f && ht_tanh_f32(-INFINITY) == -1.0f && signbit(ht_tanh_f32(-0.0f)));
    assert_true(isnan(ht_sin_f32(INFINITY)) && isnan(ht_cos_f32(NAN)) && ht_cos_f32(0.0f) == 1.0f);
    assert_true(ht_silu_f32(-200.0f) == 0.0f && ht_silu_f32(200.0f) == 200.0f);
    assert_true(ht_gelu_tanh_f32(-1e30f) == 0.0f && ht_gelu_tanh_f32(1e30f) == 1e30f);
}

/* Whatever the device, with tails and in order, the kernel gives the bits of base/math_wide.h. */
UNIT_TEST(same_bits_on_every_device) {
    float *x = malloc(COUNT * sizeof *x), *want = malloc(COUNT * sizeof *want);
    int64_t count = 0;
    for (int64_t i = 0; i < COUNT; i += test_cases(7, 1))
        if (argument(i) == 0.0f || !(fabsf(argument(i)) < 0x1p-126f)) x[count++] = argument(i);
    const ht_view in = test_view(x, HT_F32, 1, &count);
    const unsigned flush = ht_flush_denormals();
    for (size_t k = 0; k < sizeof functions / sizeof *functions; k++) {
        for (int64_t i = 0; i < count; i++) want[i] = functions[k].ours(x[i]);
        test_same_bits(functions[k].op, 1, &in, want);
    }
    ht_restore_denormals(flush);
    free(x), free(want);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(close_to_libm),
        cmocka_unit_test(special_values),
        cmocka_unit_test(same_bits_on_every_device),
        cmocka_unit_test(halves_close_to_libm),
        cmocka_unit_test(halves_same_bits_on_every_device),
        cmocka_unit_test(remainders_are_exact_on_every_device),
        cmocka_unit_test(pairs_close_to_libm),
        cmocka_unit_test(pairs_same_bits_on_every_device),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
