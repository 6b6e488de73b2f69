/* Shapes that are refused, empty arrays, and bytes as other elements; tests/arrays compares the values of reductions, scans,
 * shapes and products with NumPy and MLX. */
#include "array/array.h"
#include "support/arrays.h"
#include "support/test.h"

#include <math.h>
#include <string.h>

/* Whatever the dtype, as floats. */
static void expect(ht_scope *s, ht_array *a, const float *want, size_t n) {
    float got[64];
    if (!a) fail_msg("%s", ht_scope_error(s)->message);
    assert_int_equal(ht_array_size(a), n);
    assert_works(ht_array_read, s, ht_astype(s, a, HT_F32), got, n * sizeof *got);
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

UNIT_TEST(nothing_has_a_sum_but_no_maximum) {
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

UNIT_TEST(bytes_are_seen_as_other_elements) {
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

UNIT_TEST(what_does_not_fit_is_refused) {
    static const char *const says[] = {"concatenate: shapes [2, 2] and [3] do not fit together along axis 0",
                                       "stack: no arrays",
                                       "-1 times",
                                       "diagonal: axis 1 is named twice",
                                       "no countable elements",
                                       "0 axes",
                                       "differ"};
    for (int i = 0; i < (int)(sizeof says / sizeof *says); i++) {
        ht_scope *s = ht_scope_new(test_stream);
        ht_array *x = test_counting(s, (int64_t[]){2, 2}, 2), *v = test_counting(s, (int64_t[]){3}, 1), *bad = NULL;
        switch (i) {
        case 0: bad = ht_concatenate(s, (ht_array *[]){x, v}, 2, 0); break;
        case 1: bad = ht_stack(s, NULL, 0, 0); break;
        case 2: bad = ht_repeat(s, x, -1, 0); break;
        case 3: bad = ht_diagonal(s, test_counting(s, (int64_t[]){2, 3, 4}, 3), 0, 1, -2); break;
        case 4: bad = ht_arange(s, 0, 1, 0, HT_F32); break;
        case 5: bad = ht_matmul(s, x, ht_full(s, 1, HT_F32, NULL, 0), false); break;
        case 6: bad = ht_tensordot(s, x, v, (int[]){0}, (int[]){0}, 1); break;
        }
        test_expect_error(s, bad, says[i]);
    }
    ht_scope *s = ht_scope_new(test_stream);
    ht_array *grids[2], *parts[3];
    assert_false(ht_split(s, ht_zeros(s, HT_F32, (int64_t[]){2, 5}, 2), (int64_t[]){4, 2}, 2, 1, parts));
    assert_null(parts[0]);
    assert_false(ht_meshgrid(s, (ht_array *[]){HT_NONE, NULL}, 2, false, true, grids));
    assert_null(grids[0]);
    ht_scope_free(s);
}

UNIT_TEST(einsum_texts_are_checked) {
    static const struct {
        const char *text, *why;
    } cases[] = {
        {"ij->ijj", "twice"}, {"ij->k", "no operand has"}, {"ij,k->", "too many operands"}, {"i.j", "three dots"},
        {"i1", "named"},      {"ijk", "3 axes are named"}, {"ij->ij,", "follows"},          {"...->", "missing"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        ht_scope *s = ht_scope_new(test_stream);
        ht_array *m = test_counting(s, (int64_t[]){2, 3}, 2);
        test_expect_error(s, ht_einsum(s, cases[i].text, &m, 1), cases[i].why);
    }
    ht_scope *s = ht_scope_new(test_stream);
    ht_array *m = test_counting(s, (int64_t[]){2, 3}, 2);
    test_expect_error(s, ht_einsum(s, "ij,jk", (ht_array *[]){m, m}, 2), "long in one place");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(bytes_are_seen_as_other_elements),
        cmocka_unit_test(what_does_not_fit_is_refused),
        cmocka_unit_test(einsum_texts_are_checked),
        cmocka_unit_test(nothing_has_a_sum_but_no_maximum),
    };
    return cmocka_run_group_tests(tests, test_open_stream, test_close_stream);
}
