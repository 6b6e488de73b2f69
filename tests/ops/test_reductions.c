/* Reductions of every instruction set against the plain ones: odd sizes, tails, any strides, extreme values, one thread and
 * several. */
#include "cpu/element.h"
#include "support/operands.h"
#include "support/test.h"
#include "support/weights.h"

#include <float.h>
#include <stdlib.h>
#include <string.h>

static ht_dtype result_type(ht_op_id op, ht_dtype type) {
    return op == HT_OP_ARGMAX || op == HT_OP_ARGMIN ? HT_U32 : type;
}

/* The rows of a matrix of f32 as columns that lie side by side. */
static operand turned(const ht_view *x) {
    uint64_t seed = 3;
    operand y = test_operand(HT_F32, 2, x->shape, REVERSED_AXES, ORDINARY, &seed);
    for (int64_t r = 0; r < x->shape[0]; r++)
        for (int64_t k = 0; k < x->shape[1]; k++)
            ((float *)y.view.data)[k * x->shape[0] + r] = ((const float *)x->data)[r * x->shape[1] + k];
    return y;
}

/* Reductions: without extreme values a tolerance, with them only where the result is exact or NaN for certain. */
UNIT_TEST(reductions) {
    static const ht_op_id ops[] = {HT_OP_SUM,    HT_OP_MEAN,   HT_OP_MAX, HT_OP_MIN,
                                   HT_OP_ARGMAX, HT_OP_ARGMIN, HT_OP_VAR, HT_OP_LOGSUMEXP};
    const ht_var_params one = {.ddof = 1};
    for (EACH(i, ops))
        for (EACH(t, float_types))
            for (EACH(s, shapes)) {
                if (shapes[s].n_dims == 0) continue;
                const ht_dtype to = result_type(ops[i], float_types[t]);
                bool exact = to == HT_U32 || ops[i] == HT_OP_MAX || ops[i] == HT_OP_MIN;
                for (int how = 0; how < LAYOUT_COUNT; how++) {
                    if (TEST_EMULATED && !test_takes((int)(i + t + s) + how, 2)) continue;
                    uint64_t seed = s * 7 + (size_t)how;
                    operand x = test_operand(float_types[t], shapes[s].n_dims, shapes[s].dim, (layout)how,
                                             exact && how % 2 ? EXTREME : ORDINARY, &seed);
                    int64_t n = shapes[s].dim[shapes[s].n_dims - 1];
                    comparison c = {.op = ops[i],
                                    .params = &one,
                                    .n_in = 1,
                                    .in = {x.view},
                                    .what = "rows",
                                    .tolerance = exact                 ? 0.0
                                                 : ops[i] == HT_OP_SUM ? 1e-6 * sqrt((double)n + 1)
                                                                       : 4e-6};
                    c.out = test_view(NULL, to, shapes[s].n_dims - 1, shapes[s].dim);
                    test_compare(&c);
                    free(x.memory);
                }
            }
}

UNIT_TEST(reductions_of_extremes) {
    static const float rows[][3] = {
        {1.0f, NAN, 2.0f},      {INFINITY, 1.0f, 2.0f},   {-INFINITY, 0.0f, -INFINITY},
        {3e38f, 3e38f, -3e38f}, {-0.0f, 0.0f, -0.0f},     {NAN, NAN, NAN},
        {1000.0f, -1000.0f, 0}, {INFINITY, -INFINITY, 0}, {-INFINITY, -INFINITY, -INFINITY}};
    static const ht_op_id ops[] = {HT_OP_MEAN,   HT_OP_MAX, HT_OP_MIN,      HT_OP_ARGMAX,
                                   HT_OP_ARGMIN, HT_OP_VAR, HT_OP_LOGSUMEXP};
    const ht_var_params none = {0};
    for (EACH(r, rows))
        for (int64_t n = 3; n < 40; n += 7)
            for (EACH(i, ops)) {
                if (r == 3 && (ops[i] == HT_OP_MEAN || ops[i] == HT_OP_VAR)) continue; /* f32 overflows, f64 does not */
                float x[40];
                for (int64_t k = 0; k < n; k++) x[k] = k < n - 3 ? rows[r][2] : rows[r][k - (n - 3)];
                comparison c = {.op = ops[i],
                                .params = &none,
                                .n_in = 1,
                                .in = {test_view(x, HT_F32, 1, &n)},
                                .tolerance = 2e-6,
                                .what = "extremes"};
                c.out = test_view(NULL, result_type(ops[i], HT_F32), 0, &n);
                test_compare(&c);
            }
}

/* The same down columns that lie side by side, each with another of these among numbers. */
UNIT_TEST(columns_of_extremes) {
    enum { COLUMNS = 37, MOST = 200 };
    static const float odd[] = {NAN, INFINITY, -INFINITY, 3e38f, -3e38f, 1000.0f, 0.0f, -0.0f};
    static const ht_op_id ops[] = {HT_OP_MAX, HT_OP_MIN, HT_OP_ARGMAX, HT_OP_ARGMIN, HT_OP_LOGSUMEXP};
    static float x[MOST * COLUMNS];
    for (int64_t n = 1; n <= MOST; n = 2 * n + 5)
        for (int64_t at = 0; at < n; at += n / 3 + 1) {
            for (int64_t k = 0; k < n; k++)
                for (int64_t c = 0; c < COLUMNS; c++)
                    x[k * COLUMNS + c] = k == at ? odd[c % 8] : (float)((k + c) % 7) - 3.0f;
            ht_view view = test_view(x, HT_F32, 2, (int64_t[]){COLUMNS, n});
            view.stride[0] = 1, view.stride[1] = COLUMNS;
            for (EACH(i, ops)) {
                const int64_t columns = COLUMNS;
                comparison c = {
                    .op = ops[i], .n_in = 1, .in = {view}, .tolerance = 2e-6, .what = "columns of extremes"};
                c.out = test_view(NULL, result_type(ops[i], HT_F32), 1, &columns);
                test_compare(&c);
            }
        }
}

/* Small integers are added in 32 bits, or as they are; rows and columns are longer than what is folded at a time. */
UNIT_TEST(reductions_of_integers) {
    static const ht_op_id ops[] = {HT_OP_SUM, HT_OP_PROD, HT_OP_MAX, HT_OP_MIN, HT_OP_ARGMAX, HT_OP_ARGMIN};
    static const shape some[] = {{1, {1}},         {1, {70000}},   {2, {19, 64}}, {3, {3, 5, 7}},
                                 {3, {2, 9, 300}}, {2, {2, 9001}}, {2, {3000, 3}}};
    for (EACH(i, ops))
        for (EACH(t, int_types))
            for (EACH(s, some))
                for (int how = 0; how < LAYOUT_COUNT; how++) {
                    const ht_dtype type = int_types[t];
                    if (TEST_EMULATED && !test_takes((int)(i + t + s) + how, 2)) continue;
                    if (type == HT_BOOL && i == 1) continue; /* never in that type */
                    uint64_t seed = s * 7 + (size_t)how;
                    operand x = test_operand(type, some[s].n_dims, some[s].dim, (layout)how, ORDINARY, &seed);
                    comparison c = {.op = ops[i], .n_in = 1, .in = {x.view}, .what = "integers"};
                    ht_dtype to = i >= 4 ? HT_U32 : type;
                    if (i < 2 && ht_dtype_bytes(type) < 4 && (type == HT_BOOL || how % 2))
                        to = type == HT_BOOL || ht_dtype_is_signed(type) ? HT_I32 : HT_U32;
                    c.out = test_view(NULL, to, some[s].n_dims - 1, some[s].dim);
                    test_compare(&c);
                    free(x.memory);
                }
}

/* Every element of a row in turn is the one that decides: a bool among others, or the largest or the first NaN among floats. */
UNIT_TEST(one_element_decides) {
    enum { MOST = 1100 };
    static const int64_t lengths[] = {1, 7, 16, 17, 63, 64, 65, 100, 130, 255, 257, MOST};
    ht_device *devices[TEST_MAX_DEVICES];
    const int n_devices = test_devices(1, devices);
    for (int d = 0; d < n_devices; d++)
        for (EACH(l, lengths)) {
            const int64_t n = lengths[l], one = 1, dims[2] = {1, n};
            uint8_t truth[MOST], any, all;
            float x[MOST];
            uint32_t most, least;
            ht_view in = test_view(truth, HT_BOOL, 2, dims), reals = test_view(x, HT_F32, 2, dims);
            ht_view to_any = test_view(&any, HT_BOOL, 1, &one), to_all = test_view(&all, HT_BOOL, 1, &one);
            ht_view to_most = test_view(&most, HT_U32, 1, &one), to_least = test_view(&least, HT_U32, 1, &one);
            for (int64_t i = -1; i < n; i++)
                for (int kind = 0; kind < 4; kind++) {
                    static const float others[] = {0.0f, -INFINITY, INFINITY, 1.0f};
                    const bool other = kind % 2;
                    for (int64_t k = 0; k < n; k++) {
                        truth[k] = (uint8_t)(other ? 1 + k % 255 : 0); /* anything but 0 is true */
                        x[k] = kind == 0 && k % 2 ? -0.0f : others[kind];
                    }
                    if (i >= 0) truth[i] = other ? 0 : 128;
                    if (i >= 0) x[i] = kind == 3 ? NAN : 5.0f;
                    if (i >= 0 && kind == 3) x[n - 1] = NAN;
                    test_run_ok(devices[d], HT_OP_MAX, NULL, 1, &in, &to_any, NULL);
                    test_run_ok(devices[d], HT_OP_MIN, NULL, 1, &in, &to_all, NULL);
                    assert_int_equal(any != 0, other ? n > 1 || i < 0 : i >= 0);
                    assert_int_equal(all != 0, other ? i < 0 : n == 1 && i == 0);
                    test_run_ok(devices[d], HT_OP_ARGMAX, NULL, 1, &reals, &to_most, NULL);
                    test_run_ok(devices[d], HT_OP_ARGMIN, NULL, 1, &reals, &to_least, NULL);
                    assert_int_equal(most, i >= 0 && kind != 2 ? i : i == 0 && n > 1);
                    assert_int_equal(least, i >= 0 && kind >= 2 ? i : i == 0 && n > 1);
                }
        }
}

/* Longer than what is folded at a time, along rows and columns, with values that decide in any place. */
UNIT_TEST(long_reductions) {
    static const ht_op_id ops[] = {HT_OP_MAX, HT_OP_MIN, HT_OP_ARGMAX, HT_OP_ARGMIN, HT_OP_PROD};
    static const float last[] = {NAN, -0.0f, 7.0f, -7.0f};
    static const int64_t dims[][2] = {{3, 20000}, {17, 4099}};
    for (EACH(t, float_types))
        for (EACH(d, dims))
            for (EACH(v, last))
                for (int how = 0; how <= REVERSED_AXES; how++) {
                    if (TEST_EMULATED && !test_takes((int)(t + d + v) + how, 2)) continue;
                    uint64_t seed = 5 + v;
                    operand x = test_operand(float_types[t], 2, dims[d], (layout)how, ORDINARY, &seed);
                    for (int64_t k = 0; k < dims[d][1]; k++) /* one row in which few differ */
                        ht_set_f32(float_types[t], x.view.data, x.view.stride[0] + k * x.view.stride[1],
                                   k % 4096 == 4000   ? last[v]
                                   : k % 3000 == 2999 ? 0.0f
                                   : v == 1           ? -0.0f
                                                      : 1.0f);
                    for (EACH(i, ops)) {
                        if (ops[i] == HT_OP_PROD && v > 0) continue;
                        comparison c = {.op = ops[i], .n_in = 1, .in = {x.view}, .what = "long"};
                        c.out = test_view(NULL, result_type(ops[i], float_types[t]), 1, dims[d]);
                        test_compare(&c);
                    }
                    free(x.memory);
                }
}

/* Nothing depends on the number of threads; of numbers around a thousand, as many digits are left as f32 has. */
UNIT_TEST(spreads_of_any_threads) {
    static const ht_op_id ops[] = {HT_OP_VAR, HT_OP_LOGSUMEXP, HT_OP_SUM};
    static const int64_t dims[][2] = {{3, 20000}, {300, 4099}, {70, 33}};
    const ht_var_params none = {0};
    ht_device *one[TEST_MAX_DEVICES], *three[TEST_MAX_DEVICES];
    int n = test_devices(1, one);
    assert_int_equal(test_devices(3, three), n);
    for (EACH(d, dims))
        for (int how = 0; how <= REVERSED_AXES; how++) {
            uint64_t seed = 11;
            operand x = test_operand(HT_F32, 2, dims[d], (layout)how, ORDINARY, &seed);
            for (int64_t i = 0; i < dims[d][0] * dims[d][1]; i++) ((float *)x.memory)[i] += 1000.0f;
            for (EACH(o, ops))
                for (int k = 1; k < n; k++) {
                    if (!test_takes((int)(d + o) + how + k, 1)) continue;
                    float a[300], b[300], plain[300];
                    ht_view to_a = test_view(a, HT_F32, 1, dims[d]), to_b = test_view(b, HT_F32, 1, dims[d]);
                    ht_view to_plain = test_view(plain, HT_F32, 1, dims[d]);
                    test_run_ok(one[k], ops[o], &none, 1, &x.view, &to_a, NULL);
                    test_run_ok(three[k], ops[o], &none, 1, &x.view, &to_b, NULL);
                    test_run_ok(one[0], ops[o], &none, 1, &x.view, &to_plain, NULL);
                    assert_memory_equal(a, b, (size_t)dims[d][0] * sizeof *a);
                    for (int64_t i = 0; i < dims[d][0]; i++)
                        assert_true(fabsf(a[i] - plain[i]) <= 5e-7f * fabsf(plain[i]));
                }
            free(x.memory);
        }
}

/* Reductions of columns that lie side by side give the bits of rows of the same elements, with one thread and with three. The
 * last ones are more columns and rows than a piece of work. */
UNIT_TEST(columns_as_rows) {
    static const int64_t dims[][2] = {{9, 3}, {40, 65}, {300, 1000}, {17, 9001}, {2100, 1100}};
    static const ht_op_id ops[] = {HT_OP_SUM, HT_OP_MEAN, HT_OP_VAR,   HT_OP_LOGSUMEXP,
                                   HT_OP_MAX, HT_OP_MIN,  HT_OP_ARGMAX};
    const ht_var_params none = {0};
    ht_device *devices[2][TEST_MAX_DEVICES]; /* with one thread, and with three */
    const int n = test_devices(1, devices[0]);
    assert_int_equal(test_devices(3, devices[1]), n);
    for (EACH(i, dims)) {
        const int64_t rows = dims[i][0], length = dims[i][1];
        if (TEST_SLOW && rows * length > 1000000) continue;
        uint64_t seed = 3;
        operand x = test_operand(HT_F32, 2, dims[i], CONTIGUOUS, ORDINARY, &seed);
        operand y = turned(&x.view);
        float *a = malloc((size_t)rows * sizeof *a), *b = malloc((size_t)rows * sizeof *b);
        float *c = malloc((size_t)rows * sizeof *c);
        assert_true(a && b && c);
        for (EACH(o, ops))
            for (int d = 1; d < n; d++) {
                const ht_dtype type = result_type(ops[o], HT_F32);
                ht_view to_a = test_view(a, type, 1, &rows), to_b = test_view(b, type, 1, &rows);
                ht_view to_c = test_view(c, type, 1, &rows);
                test_run_ok(devices[0][d], ops[o], &none, 1, &x.view, &to_a, NULL);
                test_run_ok(devices[0][d], ops[o], &none, 1, &y.view, &to_b, NULL);
                test_run_ok(devices[1][d], ops[o], &none, 1, &y.view, &to_c, NULL);
                assert_memory_equal(b, c, (size_t)rows * sizeof *b);
                assert_memory_equal(a, b, (size_t)rows * sizeof *a);
            }
        free(x.memory), free(y.memory), free(a), free(b), free(c);
    }
}

/* Element i of n whose powers are summed: heights that change on the way, and elements that decide late. */
static float height(int kind, int64_t i, int64_t n, uint64_t *seed) {
    const float x = test_random_float(seed);
    switch (kind) {
    case 0: return (float)i * 0.3f + x; /* rises */
    case 1: return (float)(n - i) * 0.3f + x;
    case 2: return i % 37 == 36 ? 7.9f + x : x; /* some are higher, but not by much */
    case 3: return 100.0f * x;
    case 4: return i == n - 1 ? 500.0f : x;
    case 5: return i == n / 2 ? -500.0f : x;
    case 6: return i < n - 3 ? -INFINITY : x;
    case 7: return i == n - 2 ? INFINITY : x;
    case 8: return i == n - 2 ? NAN : x;
    case 9: return i % 2 ? 3e38f : -3e38f;
    case 10: return i == n - 1 ? 85.0f : x - 200.0f;
    case 11: return 1e5f + 20.0f * x;
    case 12: return 181704.0f + 8.0f * x;
    case 13: return -181604.0f + 100.0f * x;
    case 14: return i == n / 2 ? 1e6f : i % 2 ? -3e5f : 1e6f - 3.0f;
    case 15: return i % 3 ? -1e9f : x;
    case 16: return -INFINITY;
    case 17: return -1e9f + 64.0f * floorf(2.0f * x);
    /* An element far above all others: in a whole group of registers, in its last part, in one register. */
    case 18: return i == n - 1 ? 1e6f : 181700.0f + fabsf(x);
    case 19: return i == n / 2 ? 1e6f : 181698.0f + 4.0f * fabsf(x);
    case 20: return i == n / 2 ? INFINITY : 181800.0f;
    case 21: return i == n - 2 ? INFINITY : 181698.0f;
    case 22: return i == 16 ? 3e5f : 181700.0f;
    case 23: return i == n - 1 ? 1e9f : 181790.0f;
    case 24: return i == n - 1 ? 3.0f : -181800.0f;
    default: return i == n / 2 ? NAN : i % 2 ? -1e9f : -INFINITY;
    }
}

static bool is_logsumexp(float got, double want, double most) {
    if (isnan(want)) return isnan(got);
    if (isinf(want)) return (double)got == want;
    return fabs((double)got - want) <= 4e-7 + 6.1e-8 * fabs(most);
}

/* Sums of powers are right whatever the heights, along rows and down columns, few or more than are taken at once. */
UNIT_TEST(powers_of_any_height) {
    enum { KINDS = 26, FEW = 4 * KINDS, MANY = 9300 };
    static const int64_t dims[][2] = {{1, FEW},    {9, FEW},  {127, FEW},  {128, FEW}, {129, FEW}, {144, FEW},
                                      {1000, FEW}, {1, MANY}, {131, MANY}, {300, FEW}, {40, 1100}, {5000, FEW}};
    ht_device *devices[TEST_MAX_DEVICES];
    const int n_devices = test_devices(1, devices);
    for (EACH(l, dims)) {
        const int64_t n = dims[l][0], columns = dims[l][1];
        uint64_t seed = 7;
        if (TEST_EMULATED && n * columns > 1000 * FEW) continue;
        float *x = malloc((size_t)(columns * n) * sizeof *x);
        double *want = malloc((size_t)columns * sizeof *want), *most = malloc((size_t)columns * sizeof *most);
        float *a = malloc((size_t)columns * sizeof *a), *b = malloc((size_t)columns * sizeof *b);
        assert_true(x && want && most && a && b);
        for (int64_t c = 0; c < columns; c++) {
            double sum = 0.0;
            most[c] = -(double)INFINITY;
            for (int64_t i = 0; i < n; i++) {
                x[c * n + i] = height((int)(c % KINDS), i, n, &seed);
                most[c] = fmax(most[c], (double)x[c * n + i]);
            }
            for (int64_t i = 0; i < n; i++) sum += exp((double)x[c * n + i] - (isinf(most[c]) ? 0.0 : most[c]));
            want[c] = isnan(sum) ? sum : isinf(most[c]) ? most[c] : most[c] + log(sum);
        }
        const ht_view rows = test_view(x, HT_F32, 2, (int64_t[]){columns, n});
        operand down = turned(&rows);
        for (int d = 1; d < n_devices; d++) {
            ht_view to_a = test_view(a, HT_F32, 1, &columns), to_b = test_view(b, HT_F32, 1, &columns);
            test_run_ok(devices[d], HT_OP_LOGSUMEXP, NULL, 1, &rows, &to_a, NULL);
            test_run_ok(devices[d], HT_OP_LOGSUMEXP, NULL, 1, &down.view, &to_b, NULL);
            for (int64_t c = 0; c < columns; c++)
                if (!is_logsumexp(a[c], want[c], most[c]) || !is_logsumexp(b[c], want[c], most[c]))
                    fail_msg("logsumexp (%s) of %lld, kind %d: %.9g in a row and %.9g in a column, not %.9g",
                             devices[d]->instruction_set, (long long)n, (int)(c % KINDS), (double)a[c], (double)b[c],
                             want[c]);
        }
        free(x), free(down.memory), free(want), free(most), free(a), free(b);
    }
}

/* Values whose first ones say little of their mean, or which all lie near it: digits must not be lost. */
static float hard_value(int kind, int64_t i, int64_t n, uint64_t *seed) {
    const float x = test_random_float(seed);
    switch (kind) {
    case 0: return 1e4f + 1e-2f * x;
    case 1: return (float)i + x;                  /* rises */
    case 2: return i < 64 ? 1e5f + x : x;         /* begins far away */
    case 3: return i == n - 1 ? -1e6f : 3.0f + x; /* ends far away */
    default: return 7.0f;
    }
}

UNIT_TEST(variances_keep_their_digits) {
    enum { KINDS = 5, FEW = 3, MANY = 9300 };
    static const int64_t dims[][2] = {{2, FEW},    {64, FEW},   {65, FEW},   {513, FEW},  {4096, FEW},
                                      {9001, FEW}, {531, 1100}, {100, MANY}, {4100, 2100}};
    const ht_var_params none = {0};
    ht_device *devices[TEST_MAX_DEVICES];
    int n_devices = test_devices(2, devices);
    for (EACH(l, dims))
        for (int kind = 0; kind < KINDS; kind++) {
            const int64_t n = dims[l][0], rows = dims[l][1], sizes[2] = {rows, n};
            uint64_t seed = 7;
            if (TEST_EMULATED && n * rows > 9001 * FEW) continue;
            if ((TEST_SLOW || kind > 0) && n * rows > 100 * MANY) continue;
            operand along = test_operand(HT_F32, 2, sizes, CONTIGUOUS, ORDINARY, &seed);
            double *expected = malloc((size_t)rows * sizeof *expected);
            float *a = malloc((size_t)rows * sizeof *a), *b = malloc((size_t)rows * sizeof *b);
            assert_true(expected && a && b);
            for (int64_t r = 0; r < rows; r++) {
                float *x = (float *)along.view.data + r * n;
                double mean = 0.0;
                expected[r] = 0.0;
                for (int64_t i = 0; i < n; i++) {
                    /* one row of another kind beside the others, or a few */
                    x[i] = hard_value(r % 997 == 1 ? (kind + 1) % KINDS : kind, i, n, &seed);
                    mean += (double)x[i] / (double)n;
                }
                for (int64_t i = 0; i < n; i++)
                    expected[r] += ((double)x[i] - mean) * ((double)x[i] - mean) / (double)n;
            }
            operand down = turned(&along.view);
            for (int d = 0; d < n_devices; d++) {
                ht_view to_a = test_view(a, HT_F32, 1, &rows), to_b = test_view(b, HT_F32, 1, &rows);
                test_run_ok(devices[d], HT_OP_VAR, &none, 1, &along.view, &to_a, NULL);
                test_run_ok(devices[d], HT_OP_VAR, &none, 1, &down.view, &to_b, NULL);
                for (int64_t r = 0; r < rows; r++) {
                    assert_true(fabs((double)a[r] - expected[r]) <= 5e-7 * expected[r] + 1e-12);
                    assert_true(fabs((double)b[r] - expected[r]) <= 5e-7 * expected[r] + 1e-12);
                }
            }
            free(along.memory), free(down.memory), free(expected), free(a), free(b);
        }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(reductions),
        cmocka_unit_test(reductions_of_extremes),
        cmocka_unit_test(columns_of_extremes),
        cmocka_unit_test(reductions_of_integers),
        cmocka_unit_test(one_element_decides),
        cmocka_unit_test(long_reductions),
        cmocka_unit_test(spreads_of_any_threads),
        cmocka_unit_test(columns_as_rows),
        cmocka_unit_test(powers_of_any_height),
        cmocka_unit_test(variances_keep_their_digits),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
