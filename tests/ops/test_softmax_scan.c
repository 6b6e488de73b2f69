/* Softmax and scans along every axis, of every instruction set, against the plain kernels: odd sizes, any strides, extreme
 * values, results that are written by streaming stores, one thread and several. */
#include "cpu/element.h"
#include "cpu/streaming_store.h"
#include "support/operands.h"
#include "support/test.h"
#include "support/weights.h"

#include <float.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

static ht_device *devices[2][TEST_MAX_DEVICES]; /* of 1 and of 3 threads; the plain one is first */
static int n_devices;

static int start(void **state) {
    (void)state;
    n_devices = test_devices(1, devices[0]);
    return test_devices(3, devices[1]) == n_devices ? 0 : -1;
}

/* With a tolerance relative to the larger one, of what can be told from 0. */
static bool alike(ht_dtype t, const void *a, const void *b, int64_t i, double tolerance) {
    const size_t bytes = ht_dtype_bytes(t);
    if (memcmp((const char *)a + (size_t)i * bytes, (const char *)b + (size_t)i * bytes, bytes) == 0) return true;
    if (!ht_dtype_is_float(t)) return false;
    const double x = ht_get_f64(t, a, i), y = ht_get_f64(t, b, i);
    if (isnan(x) || isnan(y)) return isnan(x) && isnan(y);
    if (tolerance == 0.0) return x == 0.0 && y == 0.0 && signbit(x) == signbit(y);
    const double rounding = t == HT_F16 ? 0x1p-10 : t == HT_BF16 ? 0x1p-7 : 0.0, least = t == HT_F16 ? 0x1p-14 : 1e-36;
    return fabs(x - y) <= (tolerance + rounding) * fmax(least, fmax(fabs(x), fabs(y)));
}

/* Vector kernels give what the plain one does, within a tolerance, and with any number of threads the same bits. */
static void compare(ht_op_id op, const void *params, const ht_view *x, double tolerance) {
    const int64_t size = ht_view_size(x);
    const size_t bytes = (size_t)size * ht_dtype_bytes(x->dtype), guard = 64;
    char *want = malloc(bytes + guard), *got = aligned_alloc(64, (bytes + 2 * guard) / 64 * 64), *first = NULL;
    assert_true(want && got);
    ht_view out = test_view(want, x->dtype, x->n_dims, x->shape);
    test_run_ok(devices[0][0], op, params, 1, x, &out, NULL);
    out.data = got;
    for (int t = 0; t < 2; t++)
        for (int d = 1; d < n_devices; d++) {
            memset(got, 0x5a, bytes + guard);
            test_run_ok(devices[t][d], op, params, 1, x, &out, NULL);
            for (int64_t i = 0; i < size; i++)
                if (!alike(x->dtype, want, got, i, tolerance))
                    fail_msg("%s (%s, %s): element %lld of %lld is %g, not %g", test_op_name(op),
                             devices[t][d]->instruction_set, ht_dtype_name(x->dtype), (long long)i, (long long)size,
                             ht_get_f64(x->dtype, got, i), ht_get_f64(x->dtype, want, i));
            for (size_t i = bytes; i < bytes + guard; i++) assert_int_equal(got[i], 0x5a);
            if (!first) {
                first = malloc(bytes + 1);
                assert_non_null(first);
                memcpy(first, got, bytes);
            }
            for (int64_t i = 0; i < size; i++) assert_true(alike(x->dtype, first, got, i, 0.0));
        }
    free(want), free(got), free(first);
}

/* Wider than a strip and a block of columns and with a rest; longer than a band, than columns and rows that are kept, than what
 * is summed at a time. */
static const shape lines[] = {{1, {1}},         {1, {17}},          {1, {6161}},     {2, {1, 33}},    {2, {33, 1}},
                              {2, {5, 64}},     {2, {19, 77}},      {2, {131, 70}},  {2, {7, 600}},   {3, {3, 5, 7}},
                              {3, {2, 67, 81}}, {4, {2, 3, 4, 19}}, {2, {8200, 20}}, {2, {21, 2100}}, {2, {128, 80}}};
static const ht_dtype types[] = {HT_F32, HT_F16, HT_BF16, HT_F64, HT_BOOL, HT_U8, HT_U16,
                                 HT_U32, HT_U64, HT_I8,   HT_I16, HT_I32,  HT_I64};
static operand operand_of(ht_dtype t, const shape *s, layout how, values kind) {
    uint64_t state = (uint64_t)t * 31 + (uint64_t)how;
    return test_operand(t, s->n_dims, s->dim, how, kind, &state);
}

UNIT_TEST(softmax) {
    for (EACH(t, float_types))
        for (EACH(s, lines))
            for (int how = 0; how < LAYOUT_COUNT; how++)
                for (int kind = ORDINARY; kind <= EXTREME; kind++) {
                    const size_t every = (size_t)test_cases(TEST_EMULATED || TEST_WATCHES_THREADS ? 12 : 4, 1);
                    if ((s * 5 + (size_t)how + t) % every) continue;
                    const operand x = operand_of(float_types[t], &lines[s], (layout)how, (values)kind);
                    for (int behind = 0; behind < x.view.n_dims; behind++)
                        compare(HT_OP_SOFTMAX, &(ht_along_params){behind}, &x.view, 3e-6);
                    free(x.memory);
                }
}

/* Of lines with few values that decide, among numbers: none is lost, and -inf is no NaN unless it is alone. */
UNIT_TEST(softmax_of_extremes) {
    static const float rows[][3] = {{1.0f, NAN, 2.0f},
                                    {INFINITY, 1.0f, 2.0f},
                                    {-INFINITY, 0.0f, -INFINITY},
                                    {3e38f, 3e38f, -3e38f},
                                    {-0.0f, 0.0f, -0.0f},
                                    {1000.0f, -1000.0f, 0.0f},
                                    {INFINITY, -INFINITY, 0.0f},
                                    {-INFINITY, -INFINITY, -INFINITY},
                                    {-3e38f, 3e38f, 1.0f},
                                    {-87.0f, 0.0f, -86.5f}};
    enum { LINES = sizeof rows / sizeof *rows };
    float x[300 * LINES];
    for (int64_t n = 3; n < 300; n += TEST_EMULATED ? 99 : 33)
        for (int64_t at = 0; at < n; at += 13)
            for (int across = 0; across < 2; across++) {
                for (int64_t line = 0; line < LINES; line++)
                    for (int64_t k = 0; k < n; k++)
                        x[across ? k * LINES + line : line * n + k] = rows[line][k == at ? 1 : k == n - 1 ? 0 : 2];
                const ht_view view = test_view(x, HT_F32, 2, across ? (int64_t[]){n, LINES} : (int64_t[]){LINES, n});
                compare(HT_OP_SOFTMAX, &(ht_along_params){across}, &view, 3e-6);
            }
}

/* Of 0 and x below it, along rows and across: from -18 down the sum is 1, so that the result is the power itself, which is off
 * by less than 1.2 ulp and 2.8e-9 x. Above, the sum, its reciprocal and the product are rounded too. */
UNIT_TEST(powers_below_the_largest) {
    enum { PAIRS = TEST_EMULATED ? 4001 : 40001 };
    float *x = malloc(2 * PAIRS * sizeof *x), *y = malloc(2 * PAIRS * sizeof *y);
    assert_true(x && y);
    for (int across = 0; across < 2; across++)
        for (int d = 1; d < n_devices; d++) {
            const int64_t apart = across ? PAIRS : 1, pair = across ? 1 : 2;
            for (int64_t i = 0; i < PAIRS; i++) {
                x[i * pair] = 0.0f;
                x[i * pair + apart] = -87.3f * (float)i / (float)(PAIRS - 1);
            }
            const int64_t *dims = across ? (int64_t[]){2, PAIRS} : (int64_t[]){PAIRS, 2};
            const ht_view in = test_view(x, HT_F32, 2, dims);
            ht_view out = test_view(y, HT_F32, 2, dims);
            test_run_ok(devices[0][d], HT_OP_SOFTMAX, &(ht_along_params){across}, 1, &in, &out, NULL);
            for (int64_t i = 0; i < PAIRS; i++) {
                const double at = (double)x[i * pair + apart], power = exp(at), want = power / (1.0 + power);
                const double off = fabs((double)y[i * pair + apart] - want);
                const double most =
                    at < -18.0 ? 1.2 * ldexp(1.0, ilogb(want) - 23) - 2.8e-9 * at * want : 2.5e-7 * want;
                if (!(off < most))
                    fail_msg("softmax (%s): of 0 and %.9g the second is off by %g, of %g at most",
                             devices[0][d]->instruction_set, at, off, most);
                if (fabs((double)y[i * pair] - 1.0 / (1.0 + power)) > 2.5e-7)
                    fail_msg("softmax (%s): of 0 and %.9g the first is %.9g", devices[0][d]->instruction_set, at,
                             (double)y[i * pair]);
            }
        }
    free(x), free(y);
}

/* What is no normal number is 0, from the first such power on. */
UNIT_TEST(powers_too_small) {
    enum { PAIRS = 2000 };
    static float x[2 * PAIRS], y[2 * PAIRS];
    for (int across = 0; across < 2; across++)
        for (int d = 1; d < n_devices; d++) {
            const int64_t apart = across ? PAIRS : 1, pair = across ? 1 : 2;
            for (int64_t i = 0; i < PAIRS; i++) {
                x[i * pair] = 0.0f;
                x[i * pair + apart] = i == 0 ? -INFINITY : i < PAIRS / 2 ? -87.3366f - 0.001f * (float)i : -(float)i;
            }
            const int64_t *dims = across ? (int64_t[]){2, PAIRS} : (int64_t[]){PAIRS, 2};
            const ht_view in = test_view(x, HT_F32, 2, dims);
            ht_view out = test_view(y, HT_F32, 2, dims);
            test_run_ok(devices[0][d], HT_OP_SOFTMAX, &(ht_along_params){across}, 1, &in, &out, NULL);
            for (int64_t i = 0; i < PAIRS; i++)
                if (y[i * pair] != 1.0f || y[i * pair + apart] != 0.0f)
                    fail_msg("softmax (%s): of 0 and %g it is %g and %g", devices[0][d]->instruction_set,
                             (double)x[i * pair + apart], (double)y[i * pair], (double)y[i * pair + apart]);
        }
}

UNIT_TEST(scans) {
    static const ht_op_id ops[] = {HT_OP_CUMSUM, HT_OP_CUMPROD, HT_OP_CUMMAX, HT_OP_CUMMIN};
    for (EACH(t, types))
        for (EACH(s, lines))
            for (int how = 0; how < LAYOUT_COUNT; how++) {
                if ((s * 3 + (size_t)how + t) % (size_t)test_cases(TEST_EMULATED ? 36 : TEST_SLOW ? 24 : 12, 1))
                    continue;
                const operand x = operand_of(types[t], &lines[s], (layout)how, EXTREME);
                for (EACH(i, ops))
                    for (int behind = 0; behind < x.view.n_dims; behind++)
                        for (int k = 0; k < 4; k++) {
                            if (!test_takes((int)(i + s) + behind + k, 4)) continue;
                            if (types[t] == HT_BOOL && ops[i] == HT_OP_CUMSUM) continue; /* never in that type */
                            const ht_scan_params p = {.behind = behind, .reverse = k % 2, .inclusive = k / 2};
                            compare(ops[i], &p, &x.view, 0.0);
                        }
                free(x.memory);
            }
}

/* Large enough for streaming stores: rows that are whole lines, and some that are not; columns that are kept, and
 * longer ones. */
UNIT_TEST(large) {
    static const int64_t dims[][2] = {{1056, 2048}, {1031, 2051}, {33, 70000}, {16500, 208}};
    static const ht_dtype some[] = {HT_F32, HT_F16, HT_I32};
    for (EACH(t, some))
        for (EACH(d, dims))
            for (int behind = 0; behind < 2; behind++) {
                const int64_t size = dims[d][0] * dims[d][1] * (int64_t)ht_dtype_bytes(some[t]);
                if (some[t] != HT_F16) assert_true((size_t)size >= HT_STREAMING_BYTES);
                if (TEST_EMULATED || (TEST_SLOW && d > 1)) continue;
                if (!test_takes((int64_t)(t + 2 * d), 3) || !test_takes(behind + (int64_t)d, 2)) continue;
                const operand x = operand_of(some[t], &(shape){2, {dims[d][0], dims[d][1]}}, CONTIGUOUS, ORDINARY);
                compare(HT_OP_CUMSUM, &(ht_scan_params){.behind = behind, .inclusive = true}, &x.view, 0.0);
                compare(HT_OP_CUMMAX, &(ht_scan_params){.behind = behind, .reverse = true}, &x.view, 0.0);
                if (some[t] != HT_I32) compare(HT_OP_SOFTMAX, &(ht_along_params){behind}, &x.view, 3e-6);
                free(x.memory);
            }
}

/* Columns of which one element is infinite or no number, or most are -inf: some that are kept, and longer ones. */
UNIT_TEST(long_columns_of_extremes) {
    enum { COLUMNS = 2 * 64 + 16 };
    static const int64_t rows[] = {4999, 16500};
    static const float rare[] = {INFINITY, -INFINITY, NAN, FLT_MAX, -FLT_MAX, 300.0f};
    if (TEST_EMULATED) return;
    for (EACH(k, rows)) {
        const operand x = operand_of(HT_F32, &(shape){2, {rows[k], COLUMNS}}, CONTIGUOUS, ORDINARY);
        float *at = x.memory;
        for (int64_t c = 0; c < COLUMNS; c += 3)
            at[c * 37 % rows[k] * COLUMNS + c] = rare[c / 3 % (int64_t)(sizeof rare / sizeof *rare)];
        for (int64_t r = 0; r < rows[k]; r++) {
            at[r * COLUMNS + 1] = -INFINITY;
            at[r * COLUMNS + 140] = r == rows[k] - 400 ? 1.0f : -INFINITY;
        }
        compare(HT_OP_SOFTMAX, &(ht_along_params){1}, &x.view, 3e-6);
        free(x.memory);
    }
}

/* The kth element of n of a line whose powers need to be brought to another height on the way, or nearly so. */
static float height_at(int kind, int64_t k, int64_t n) {
    const float noise = (float)(k * 7919 % 101) * 0.02f;
    switch (kind) {
    case 0: return noise + (float)k * (60.0f / (float)n);                   /* rises */
    case 1: return noise + (float)(k / 90) * 7.9f;                          /* in steps that are near enough */
    case 2: return noise + (float)(k / 90) * 9.1f;                          /* in steps that are not */
    case 3: return noise - (float)k * (80.0f / (float)n);                   /* falls */
    case 4: return k < n - n / 3 ? -INFINITY : noise - 50.0f;               /* begins late */
    case 5: return k % 16 == 5 ? noise + 40.0f : k % 3 ? noise : -INFINITY; /* by place in a register */
    case 6: return k == n - 1 ? INFINITY : noise;
    case 7: return k == n - 2 ? NAN : noise + (float)k;
    case 8: return k < n / 2 ? -FLT_MAX : k == n / 2 ? FLT_MAX : noise;
    default: return k == n - 1 ? 300.0f : k % 1000 == 999 ? 20.0f : noise;
    }
}

/* Along rows of one block and of several, with and without a rest, and along columns that are kept and that are not. */
UNIT_TEST(lines_of_any_height) {
    static const int64_t lengths[] = {31,   33,   64,   257,  1000, 1024, 1025, 1088,
                                      2047, 2048, 3000, 4096, 5121, 6144, 16500};
    enum { KINDS = 10, LINES = 67 };
    float *x = malloc(16500 * LINES * sizeof *x);
    assert_non_null(x);
    for (EACH(i, lengths))
        for (int across = 0; across < 2; across++) {
            const int64_t n = lengths[i], n_lines = across ? LINES : KINDS;
            if ((TEST_EMULATED || TEST_SLOW) && (n > 3000 || (across && n > 300))) continue;
            for (int64_t line = 0; line < n_lines; line++)
                for (int64_t k = 0; k < n; k++)
                    x[across ? k * n_lines + line : line * n + k] = height_at((int)(line % KINDS), k, n);
            const ht_view view = test_view(x, HT_F32, 2, across ? (int64_t[]){n, n_lines} : (int64_t[]){n_lines, n});
            compare(HT_OP_SOFTMAX, &(ht_along_params){across}, &view, 1.2e-5); /* three differences below 100 */
        }
    free(x);
}

/* Below the first element others that are equal, so many that each addition to a sum in f32 would lose digits. */
UNIT_TEST(many_equal_elements) {
    enum { ROWS = 1 << 20, COLUMNS = 3 };
    if (TEST_EMULATED || TEST_SLOW) return;
    float *x = malloc(ROWS * COLUMNS * sizeof *x), *y = malloc(ROWS * COLUMNS * sizeof *y);
    assert_true(x && y);
    for (int64_t i = 0; i < ROWS * COLUMNS; i++) x[i] = i < COLUMNS ? 0.3f : 0.0f;
    const double first = exp((double)0.3f), sum = first + (double)(ROWS - 1);
    const ht_view in = test_view(x, HT_F32, 2, (int64_t[]){ROWS, COLUMNS});
    ht_view out = test_view(y, HT_F32, 2, (int64_t[]){ROWS, COLUMNS});
    for (int d = 1; d < n_devices; d++) {
        test_run_ok(devices[0][d], HT_OP_SOFTMAX, &(ht_along_params){1}, 1, &in, &out, NULL);
        for (int64_t i = 0; i < ROWS * COLUMNS; i++) {
            const double want = (i < COLUMNS ? first : 1.0) / sum;
            if (fabs((double)y[i] - want) > 5e-7 * want)
                fail_msg("softmax (%s): element %lld is %.9g, not %.9g", devices[0][d]->instruction_set, (long long)i,
                         (double)y[i], want);
        }
    }
    free(x), free(y);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(softmax),
                                       cmocka_unit_test(softmax_of_extremes),
                                       cmocka_unit_test(powers_below_the_largest),
                                       cmocka_unit_test(powers_too_small),
                                       cmocka_unit_test(scans),
                                       cmocka_unit_test(large),
                                       cmocka_unit_test(long_columns_of_extremes),
                                       cmocka_unit_test(lines_of_any_height),
                                       cmocka_unit_test(many_equal_elements)};
    return cmocka_run_group_tests(tests, start, NULL);
}
