/* Reductions, scans, and arrays joined, repeated and turned, on small cases written down here; generated ones are compared
 * with NumPy in tests/arrays/differential.py. */
#include "array/array.h"
#include "support/arrays.h"
#include "support/test.h"

#include <math.h>
#include <string.h>

/* Whatever the dtype, as floats. */
static void expect(ht_scope *s, ht_array *a, const float *want, size_t n) {
    float got[64];
    ht_error err = {0};
    if (!a) fail_msg("%s", ht_scope_error(s)->message);
    assert_int_equal(ht_array_size(a), n);
    if (ht_array_read(s, ht_astype(s, a, HT_F32), got, n * sizeof *got, &err)) fail_msg("%s", err.message);
    for (size_t i = 0; i < n; i++)
        if (got[i] != want[i]) fail_msg("element %zu is %g, not %g", i, (double)got[i], (double)want[i]);
}
#define EXPECT(a, ...) expect(s, a, (float[]){__VA_ARGS__}, sizeof((float[]){__VA_ARGS__}) / sizeof(float))

static void expect_shape(const ht_array *a, const int64_t *shape, int n_dims) {
    assert_non_null(a);
    assert_int_equal(ht_array_n_dims(a), n_dims);
    for (int i = 0; i < n_dims; i++) assert_int_equal(ht_array_dim(a, i), shape[i]);
}
#define SHAPE(a, ...) expect_shape(a, (int64_t[]){__VA_ARGS__}, (int)(sizeof((int64_t[]){__VA_ARGS__}) / 8))

static void any_axes_are_reduced(void **state) {
    (void)state;
    ht_scope *s = ht_scope_new(test_stream);
    ht_array *x = test_counting(s, (int64_t[]){2, 3, 2}, 3);
    EXPECT(ht_sum(s, x, NULL, 0, false), 66);
    EXPECT(ht_sum(s, x, (int[]){1}, 1, false), 6, 9, 24, 27);
    EXPECT(ht_sum(s, x, (int[]){0, -1}, 2, false), 14, 22, 30);
    SHAPE(ht_sum(s, x, (int[]){0, -1}, 2, true), 1, 3, 1);
    SHAPE(ht_sum(s, x, NULL, 0, true), 1, 1, 1);
    EXPECT(ht_mean(s, x, (int[]){0}, 1, false), 3, 4, 5, 6, 7, 8);
    EXPECT(ht_prod(s, x, (int[]){2}, 1, false), 0, 6, 20, 42, 72, 110);
    EXPECT(ht_max(s, x, (int[]){1, 2}, 2, false), 5, 11);
    EXPECT(ht_min(s, x, (int[]){-3}, 1, false), 0, 1, 2, 3, 4, 5);
    EXPECT(ht_argmax(s, x, (int[]){1}, false), 2, 2, 2, 2);
    EXPECT(ht_argmin(s, x, NULL, false), 0);
    EXPECT(ht_var(s, x, (int[]){2}, 1, false, 1), 0.5f, 0.5f, 0.5f, 0.5f, 0.5f, 0.5f);
    EXPECT(ht_std(s, x, (int[]){2}, 1, false, 0), 0.5f, 0.5f, 0.5f, 0.5f, 0.5f, 0.5f);
    ht_scope_free(s);
}

static void small_integers_are_summed_in_32_bits(void **state) {
    (void)state;
    ht_scope *s = ht_scope_new(test_stream);
    const int8_t bytes[3] = {100, 100, -50};
    ht_array *x = ht_array_from(s, bytes, HT_I8, (int64_t[]){3}, 1);
    EXPECT(ht_sum(s, x, NULL, 0, false), 150);
    assert_int_equal(ht_array_dtype(ht_sum(s, x, NULL, 0, false)), HT_I32);
    assert_int_equal(ht_array_dtype(ht_sum(s, ht_astype(s, x, HT_U16), NULL, 0, false)), HT_U32);
    assert_int_equal(ht_array_dtype(ht_mean(s, x, NULL, 0, false)), HT_F32);
    EXPECT(ht_cummax(s, x, 0, false, false), -128, 100, 100);
    EXPECT(ht_cummin(s, x, 0, true, false), -50, -50, 127);
    ht_scope_free(s);
}

static void nothing_has_a_sum_but_no_maximum(void **state) {
    (void)state;
    ht_scope *s = ht_scope_new(test_stream);
    ht_array *none = ht_zeros(s, HT_F32, (int64_t[]){2, 0}, 2);
    EXPECT(ht_sum(s, none, (int[]){1}, 1, false), 0, 0);
    EXPECT(ht_prod(s, none, (int[]){1}, 1, false), 1, 1);
    EXPECT(ht_all(s, none, (int[]){1}, 1, false), 1, 1);
    EXPECT(ht_any(s, none, NULL, 0, false), 0);
    test_expect_error(s, ht_max(s, none, (int[]){1}, 1, false), "max: axis 1 of shape [2, 0] has no elements");
    s = ht_scope_new(test_stream);
    none = ht_zeros(s, HT_F32, (int64_t[]){0, 3}, 2); /* messages name the axes and the shape that were given */
    SHAPE(ht_max(s, none, (int[]){1}, 1, true), 0, 1);
    test_expect_error(s, ht_argmin(s, none, (int[]){-2}, false), "argmin: axis -2 of shape [0, 3] has no elements");
    s = ht_scope_new(test_stream);
    none = ht_zeros(s, HT_F32, (int64_t[]){0, 3}, 2);
    test_expect_error(s, ht_logsumexp(s, none, NULL, 0, false), "logsumexp: an array of shape [0, 3] has no elements");
    s = ht_scope_new(test_stream);
    none = ht_zeros(s, HT_F32, (int64_t[]){3, 0, 2}, 3);
    test_expect_error(s, ht_min(s, none, (int[]){2, 1}, 2, true), "min: axis 1 of shape [3, 0, 2] has no elements");
    s = ht_scope_new(test_stream);
    test_expect_error(s, ht_sum(s, test_counting(s, (int64_t[]){2, 2}, 2), (int[]){0, -2}, 2, false),
                      "axis -2 is named twice");
    s = ht_scope_new(test_stream);
    test_expect_error(s, ht_cumsum(s, test_counting(s, (int64_t[]){2}, 1), 1, false, true),
                      "cumsum: axis 1 does not fit");
}

static void infinities_do_not_spoil_sums_of_exponentials(void **state) {
    (void)state;
    ht_scope *s = ht_scope_new(test_stream);
    const float rows[6] = {-INFINITY, -INFINITY, INFINITY, 0, 1000, -INFINITY};
    ht_array *x = ht_array_from(s, rows, HT_F32, (int64_t[]){3, 2}, 2);
    EXPECT(ht_logsumexp(s, x, (int[]){1}, 1, false), -INFINITY, INFINITY, 1000);
    SHAPE(ht_logsumexp(s, x, (int[]){0}, 1, true), 1, 2);
    EXPECT(ht_logcumsumexp(s, x, 1, false, true), -INFINITY, -INFINITY, INFINITY, INFINITY, 1000, 1000);
    ht_scope_free(s);
}

static void scans_go_both_ways(void **state) {
    (void)state;
    ht_scope *s = ht_scope_new(test_stream);
    ht_array *x = ht_add(s, test_counting(s, (int64_t[]){2, 3}, 2), ht_ones(s, HT_F32, NULL, 0));
    EXPECT(ht_cumsum(s, x, 1, false, true), 1, 3, 6, 4, 9, 15);
    EXPECT(ht_cumsum(s, x, 0, false, true), 1, 2, 3, 5, 7, 9);
    EXPECT(ht_cumsum(s, x, -1, true, true), 6, 5, 3, 15, 11, 6);
    EXPECT(ht_cumprod(s, x, 1, true, false), 6, 3, 1, 30, 6, 1);
    EXPECT(ht_sum(s, ht_softmax(s, x, 0), (int[]){0}, 1, false), 1, 1, 1);
    ht_scope_free(s);
}

static void arrays_are_joined_and_cut(void **state) {
    (void)state;
    ht_scope *s = ht_scope_new(test_stream);
    ht_array *x = test_counting(s, (int64_t[]){2, 2}, 2), *i = ht_ones(s, HT_I32, (int64_t[]){2, 1}, 2), *parts[3];
    ht_array *both = ht_concatenate(s, (ht_array *[]){x, i, x}, 3, -1);
    EXPECT(both, 0, 1, 1, 0, 1, 2, 3, 1, 2, 3);
    EXPECT(ht_stack(s, (ht_array *[]){x, x}, 2, -1), 0, 0, 1, 1, 2, 2, 3, 3);
    ht_array *many[9];
    for (int k = 0; k < 9; k++) many[k] = ht_transpose(s, x, NULL);
    SHAPE(ht_concatenate(s, many, 9, 0), 18, 2);
    assert_true(ht_split(s, both, (int64_t[]){2, 2}, 2, 1, parts));
    SHAPE(parts[1], 2, 0);
    EXPECT(parts[2], 1, 0, 1, 1, 2, 3);
    assert_null(ht_scope_error(s));
    assert_false(ht_split(s, both, (int64_t[]){4, 2}, 2, 1, parts));
    assert_null(parts[0]);
    ht_scope_free(s);
    s = ht_scope_new(test_stream);
    x = test_counting(s, (int64_t[]){2, 2}, 2);
    test_expect_error(s, ht_concatenate(s, (ht_array *[]){x, test_counting(s, (int64_t[]){3}, 1)}, 2, 0),
                      "concatenate: shapes [2, 2] and [3] do not fit together along axis 0");
    s = ht_scope_new(test_stream);
    test_expect_error(s, ht_stack(s, NULL, 0, 0), "stack: no arrays");
}

static void arrays_are_repeated_padded_and_rolled(void **state) {
    (void)state;
    ht_scope *s = ht_scope_new(test_stream);
    ht_array *x = test_counting(s, (int64_t[]){2, 2}, 2), *nine = ht_full(s, 9, HT_I32, NULL, 0);
    EXPECT(ht_tile(s, x, (int64_t[]){2}, 1), 0, 1, 0, 1, 2, 3, 2, 3);
    SHAPE(ht_tile(s, x, (int64_t[]){3, 1, 0}, 3), 3, 2, 0);
    EXPECT(ht_repeat(s, x, 2, 0), 0, 1, 0, 1, 2, 3, 2, 3);
    EXPECT(ht_repeat(s, x, 2, 1), 0, 0, 1, 1, 2, 2, 3, 3);
    EXPECT(ht_pad(s, x, (const int64_t[2][2]){{0, 1}, {1, 0}}, nine), 9, 0, 1, 9, 2, 3, 9, 9, 9);
    EXPECT(ht_pad(s, x, (const int64_t[2][2]){{1, 0}, {0, 2}}, HT_NONE), 0, 1, 1, 1, 0, 1, 1, 1, 2, 3, 3, 3);
    EXPECT(ht_roll(s, x, 3, 1), 1, 0, 3, 2);
    EXPECT(ht_roll(s, x, -1, 0), 2, 3, 0, 1);
    assert_null(ht_scope_error(s));
    test_expect_error(s, ht_repeat(s, x, -1, 0), "-1 times");
}

static void axes_are_turned_and_merged(void **state) {
    (void)state;
    ht_scope *s = ht_scope_new(test_stream);
    ht_array *x = test_counting(s, (int64_t[]){2, 3, 4}, 3);
    SHAPE(ht_moveaxis(s, x, 0, -1), 3, 4, 2);
    SHAPE(ht_swapaxes(s, x, 0, 2), 4, 3, 2);
    SHAPE(ht_flatten(s, x, 1, -1), 2, 12);
    SHAPE(ht_flatten(s, ht_full(s, 1, HT_F32, NULL, 0), 0, -1), 1);
    SHAPE(ht_unflatten(s, x, 2, (int64_t[]){2, -1}, 2), 2, 3, 2, 2);
    EXPECT(ht_diagonal(s, x, 1, 1, 2), 1, 6, 11, 13, 18, 23);
    EXPECT(ht_diagonal(s, x, -1, 0, 1), 12, 13, 14, 15);
    SHAPE(ht_diagonal(s, x, 9, 0, 1), 4, 0);
    test_expect_error(s, ht_diagonal(s, x, 0, 1, -2), "diagonal: axis 1 is named twice");
}

static void matrices_are_made(void **state) {
    (void)state;
    ht_scope *s = ht_scope_new(test_stream);
    EXPECT(ht_eye(s, 2, 3, 1, HT_F16), 0, 1, 0, 0, 0, 1);
    EXPECT(ht_tri(s, 2, 3, 0, HT_I32), 1, 0, 0, 1, 1, 0);
    ht_array *x = test_counting(s, (int64_t[]){2, 2}, 2);
    EXPECT(ht_tril(s, x, 0), 0, 0, 2, 3);
    EXPECT(ht_triu(s, x, 1), 0, 1, 0, 0);
    EXPECT(ht_linspace(s, 1, 2, 5, HT_F32), 1, 1.25f, 1.5f, 1.75f, 2);
    EXPECT(ht_linspace(s, 7, 9, 1, HT_F32), 7);
    EXPECT(ht_arange(s, 5, 0, -2, HT_I32), 5, 3, 1);
    SHAPE(ht_arange(s, 3, 3, 1, HT_I32), 0);
    test_expect_error(s, ht_arange(s, 0, 1, 0, HT_F32), "no countable elements");
}

static void bytes_are_seen_as_other_elements(void **state) {
    (void)state;
    ht_scope *s = ht_scope_new(test_stream);
    const uint8_t bytes[12] = {1, 0, 2, 0, 3, 0, 4, 1, 5, 0, 6, 0};
    ht_array *x = ht_array_from(s, bytes, HT_U8, (int64_t[]){2, 6}, 2);
    SHAPE(ht_view_as(s, x, HT_U16), 2, 3);
    EXPECT(ht_view_as(s, x, HT_U16), 1, 2, 3, 260, 5, 6);
    ht_array *even = ht_slice(s, x, (int64_t[]){0, 2}, (int64_t[]){2, 6}, NULL);
    ht_array *odd = ht_slice(s, x, (int64_t[]){0, 1}, (int64_t[]){2, 5}, NULL);
    EXPECT(ht_view_as(s, even, HT_U16), 2, 3, 5, 6);
    EXPECT(ht_view_as(s, odd, HT_U16), 512, 768, 1281, 1536);
    EXPECT(ht_view_as(s, ht_slice(s, x, (int64_t[]){1, 5}, (int64_t[]){-1, -1}, (int64_t[]){-1, -1}), HT_I8), 0, 6, 0,
           5, 1, 4, 0, 3, 0, 2, 0, 1);
    EXPECT(ht_view_as(s, ht_view_as(s, ht_ones(s, HT_F32, (int64_t[]){1}, 1), HT_U8), HT_U32), 0x3f800000);
    test_expect_error(s, ht_view_as(s, x, HT_U32), "view_as: [2, 6] of u8 cannot be looked at as u32, of 4 bytes");
}

static void grids_and_closeness(void **state) {
    (void)state;
    ht_scope *s = ht_scope_new(test_stream);
    ht_array *lines[2] = {test_counting(s, (int64_t[]){2}, 1), test_counting(s, (int64_t[]){3}, 1)}, *grids[2];
    assert_true(ht_meshgrid(s, lines, 2, false, true, grids));
    EXPECT(grids[0], 0, 1, 0, 1, 0, 1);
    EXPECT(grids[1], 0, 0, 1, 1, 2, 2);
    assert_true(ht_meshgrid(s, lines, 2, true, false, grids));
    SHAPE(grids[0], 2, 1);
    SHAPE(grids[1], 1, 3);
    ht_array *x = test_counting(s, (int64_t[]){3}, 1);
    ht_array *near = ht_add(s, x, ht_array_from(s, (float[]){0, 0.01f, 0.1f}, HT_F32, (int64_t[]){3}, 1));
    EXPECT(ht_isclose(s, near, x, 0.01, 0.005, false), 1, 1, 0);
    EXPECT(ht_allclose(s, near, x, 0.1, 0, false), 1);
    EXPECT(ht_array_equal(s, near, x, false), 0);
    EXPECT(ht_array_equal(s, x, test_counting(s, (int64_t[]){4}, 1), false), 0);
    lines[1] = NULL;
    assert_false(ht_meshgrid(s, lines, 2, false, true, grids));
    assert_null(grids[0]);
    ht_scope_free(s);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(bytes_are_seen_as_other_elements),
        cmocka_unit_test(grids_and_closeness),
        cmocka_unit_test(any_axes_are_reduced),
        cmocka_unit_test(small_integers_are_summed_in_32_bits),
        cmocka_unit_test(nothing_has_a_sum_but_no_maximum),
        cmocka_unit_test(infinities_do_not_spoil_sums_of_exponentials),
        cmocka_unit_test(scans_go_both_ways),
        cmocka_unit_test(arrays_are_joined_and_cut),
        cmocka_unit_test(arrays_are_repeated_padded_and_rolled),
        cmocka_unit_test(axes_are_turned_and_merged),
        cmocka_unit_test(matrices_are_made),
    };
    return cmocka_run_group_tests(tests, test_open_stream, test_close_stream);
}
