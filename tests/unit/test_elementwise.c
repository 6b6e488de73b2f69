/* Elementwise operations as they are built: dtypes, shapes, and what is refused. Their values are compared with NumPy's in
 * tests/arrays/differential.py. */
#include "array/array.h"
#include "support/arrays.h"
#include "support/test.h"

#include <math.h>
#include <string.h>

static ht_array *of(ht_scope *s, ht_dtype dtype, int64_t n) { return ht_full(s, 1, dtype, &n, 1); }

UNIT_TEST(what_is_not_defined_is_refused_by_name) {
    ht_scope *s = ht_scope_new(test_stream);
    test_expect_error(s, ht_negative(s, of(s, HT_BOOL, 3)), "negative: not defined for bool; use logical_not");
    s = ht_scope_new(test_stream);
    test_expect_error(s, ht_bitwise_invert(s, of(s, HT_F16, 3)), "bitwise_invert: not defined for f16");
    s = ht_scope_new(test_stream);
    test_expect_error(s, ht_bitwise_and(s, of(s, HT_I8, 3), of(s, HT_F32, 3)), "bitwise_and: operands are i8 and f32");
    s = ht_scope_new(test_stream); /* which meet in f32 */
    test_expect_error(s, ht_bitwise_or(s, of(s, HT_U64, 3), of(s, HT_I8, 3)), "bitwise_or: operands are u64 and i8");
    s = ht_scope_new(test_stream);
    test_expect_error(s, ht_add(s, of(s, HT_F32, 3), of(s, HT_F32, 4)), "add: shapes [3] and [4] do not broadcast");
    s = ht_scope_new(test_stream);
    test_expect_error(s, ht_where(s, of(s, HT_BOOL, 2), of(s, HT_F32, 3), of(s, HT_F32, 1)),
                      "where: shapes [2] and [3]");
    s = ht_scope_new(test_stream);
    test_expect_error(s, ht_clip(s, of(s, HT_F32, 3), HT_NONE, HT_NONE), "clip: neither");
}

SCOPE_TEST(whole_numbers_pass_through) {
    ht_array *x = of(s, HT_U8, 3);
    assert_ptr_equal(ht_abs(s, x), x);
    assert_ptr_equal(ht_floor(s, x), x);
    assert_ptr_equal(ht_round(s, x, 2), x);
    assert_ptr_equal(ht_nan_to_num(s, x, 0, NAN, NAN), x);
    assert_int_equal(ht_array_dtype(ht_isnan(s, x)), HT_BOOL);
    assert_int_equal(ht_array_dtype(ht_sqrt(s, x)), HT_F32);
    assert_int_equal(ht_array_dtype(ht_divide(s, x, x)), HT_F32);
    assert_int_equal(ht_array_dtype(ht_left_shift(s, of(s, HT_BOOL, 3), of(s, HT_BOOL, 3))), HT_U8);
    assert_null(ht_scope_error(s));
}

SCOPE_TEST(activations_follow_their_definitions) {
    const float values[3] = {-1.5f, 0, 2};
    ht_array *x = ht_array_from(s, values, HT_F32, (int64_t[]){3}, 1);
    float relu[3], gelu[3], softplus[3];
    assert_works(ht_array_read, s, ht_relu(s, x), relu, sizeof relu);
    assert_works(ht_array_read, s, ht_gelu(s, x), gelu, sizeof gelu);
    assert_works(ht_array_read, s, ht_softplus(s, x), softplus, sizeof softplus);
    for (int i = 0; i < 3; i++) {
        assert_float_equal(relu[i], fmaxf(values[i], 0), 0);
        assert_float_equal(gelu[i], 0.5f * values[i] * (1 + erff(values[i] / sqrtf(2))), 1e-6);
        assert_float_equal(softplus[i], log1pf(expf(values[i])), 1e-6);
    }
}

/* Results of some megabytes may be written by streaming stores (src/cpu/streaming_store.h): of any dtype, from operands
 * that begin anywhere, and with several results of one pass. Other devices have none. */
static int32_t large_size(void) { return (test_is_late() ? 1 : 9) << 20; }

SCOPE_TEST(large_results_are_those_of_small_ones) {
    const int32_t N = large_size() + 37;
    ht_array *all = ht_arange(s, 0, N + 3, 1, HT_I32);
    ht_array *x = ht_slice(s, all, (int64_t[]){3}, (int64_t[]){N + 3}, NULL); /* i + 3 */
    ht_array *column =
        ht_reshape(s, ht_slice(s, all, (int64_t[]){0}, (int64_t[]){N - 1}, NULL), (int64_t[]){4, (N - 1) / 4}, 2);
    ht_array *sum = ht_add(s, x, x), *bytes = ht_astype(s, sum, HT_U8), *wide = ht_astype(s, bytes, HT_F64);
    ht_array *row = ht_add(s, column, ht_slice(s, column, (int64_t[]){1, 0}, (int64_t[]){2, (N - 1) / 4}, NULL));
    ht_array *chain = ht_negative(s, x);
    for (int i = 0; i < 5; i++) chain = ht_add(s, chain, x);
    ht_error err = {0};
    ht_array *outs[5] = {sum, bytes, wide, row, chain};
    if (ht_array_eval(s, outs, 4, &err) || ht_array_eval(s, &chain, 1, &err)) fail_msg("%s", err.message);
    const void *data[5];
    for (int i = 0; i < 5; i++)
        if (ht_array_data(s, outs[i], &data[i], &err)) fail_msg("%s", err.message);
    const int32_t *sums = data[0], *rows = data[3], *ends = data[4];
    const uint8_t *low = data[1];
    const double *doubles = data[2];
    for (int32_t i = 0; i < N; i++) {
        const int32_t want = 2 * (i + 3);
        if (sums[i] != want || low[i] != (uint8_t)want || doubles[i] != (double)(uint8_t)want || ends[i] != 2 * want)
            fail_msg("element %d is %d, %d, %g, %d", i, sums[i], low[i], doubles[i], ends[i]);
    }
    for (int32_t i = 0, w = (N - 1) / 4; i < 4 * w; i++)
        if (rows[i] != i + w + i % w) fail_msg("element %d is %d, not %d", i, rows[i], i + w + i % w);
}

static int64_t integer_at(const void *data, ht_dtype t, int64_t i) {
    switch (t) {
    case HT_U8: return ((const uint8_t *)data)[i];
    case HT_U16: return ((const uint16_t *)data)[i];
    case HT_U32: return ((const uint32_t *)data)[i];
    default: return ((const int64_t *)data)[i];
    }
}

/* The same of copies of elements that do not lie side by side, rows of odd lengths with something behind each. */
UNIT_TEST(large_copies_bring_scattered_elements_together) {
    static const ht_dtype dtypes[] = {HT_U8, HT_U16, HT_U32, HT_I64};
    static const int64_t steps[] = {2, 3, 7, -1, -2};
    for (size_t t = 0; t < sizeof dtypes / sizeof *dtypes; t++)
        for (size_t k = 0; k < sizeof steps / sizeof *steps; k++) {
            ht_scope *s = ht_scope_new(test_stream);
            const int64_t step = steps[k], apart = step < 0 ? -step : step, bytes = (int64_t)ht_dtype_bytes(dtypes[t]);
            const int64_t width = large_size() / 16 / bytes + 5, row = width * apart + 11;
            ht_array *all = ht_reshape(s, ht_arange(s, 0, (double)(16 * row), 1, HT_I64), (int64_t[]){16, row}, 2);
            const int64_t first = step < 0 ? row - 1 : 3, end = first + width * step;
            ht_array *x = ht_slice(s, ht_astype(s, all, dtypes[t]), (int64_t[]){0, first},
                                   (int64_t[]){16, end < 0 ? -row - 1 : end}, (int64_t[]){1, step});
            ht_array *y = ht_contiguous(s, x);
            ht_error err = {0};
            const void *data;
            if (ht_array_eval(s, &y, 1, &err) || ht_array_data(s, y, &data, &err)) fail_msg("%s", err.message);
            assert_int_equal(ht_array_size(y), 16 * width);
            for (int64_t i = 0; i < 16 * width; i++) {
                uint64_t want = (uint64_t)(i / width * row + first + i % width * step);
                if (bytes < 8) want &= (UINT64_C(1) << 8 * bytes) - 1;
                if (integer_at(data, dtypes[t], i) != (int64_t)want)
                    fail_msg("%s by %d: element %d is %d, not %d", ht_dtype_name(dtypes[t]), (int)step, (int)i,
                             (int)integer_at(data, dtypes[t], i), (int)want);
            }
            ht_scope_free(s);
        }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_is_not_defined_is_refused_by_name),
        cmocka_unit_test(whole_numbers_pass_through),
        cmocka_unit_test(activations_follow_their_definitions),
        cmocka_unit_test(large_results_are_those_of_small_ones),
        cmocka_unit_test(large_copies_bring_scattered_elements_together),
    };
    return cmocka_run_group_tests(tests, test_open_stream, test_close_stream);
}
