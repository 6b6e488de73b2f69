/* Products of arrays on small cases written down here; generated ones are compared with NumPy in
 * tests/arrays/products.py. */
#include "array/array.h"
#include "support/arrays.h"
#include "support/test.h"

#include <hearth/linalg.h>

static void expect(ht_scope *s, ht_array *a, const float *want, size_t n) {
    float got[64];
    ht_error err = {0};
    if (!a) fail_msg("%s", ht_scope_error(s)->message);
    assert_int_equal(ht_array_size(a), n);
    if (ht_array_read(s, a, got, n * sizeof *got, &err)) fail_msg("%s", err.message);
    for (size_t i = 0; i < n; i++)
        if (got[i] != want[i]) fail_msg("element %zu is %g, not %g", i, (double)got[i], (double)want[i]);
}
#define EXPECT(a, ...) expect(s, a, (float[]){__VA_ARGS__}, sizeof((float[]){__VA_ARGS__}) / sizeof(float))

static void vectors_multiply_as_rows_and_columns(void **state) {
    (void)state;
    ht_scope *s = ht_scope_new(test_stream);
    ht_array *m = test_counting(s, (int64_t[]){2, 3}, 2), *row = test_counting(s, (int64_t[]){2}, 1);
    ht_array *column = test_counting(s, (int64_t[]){3}, 1);
    EXPECT(ht_matmul(s, m, column, false), 5, 14);
    EXPECT(ht_matmul(s, m, column, true), 5, 14);
    EXPECT(ht_matmul(s, row, m, false), 3, 4, 5);
    EXPECT(ht_matmul(s, column, m, true), 5, 14);
    EXPECT(ht_matmul(s, column, column, false), 5);
    assert_int_equal(ht_array_n_dims(ht_matmul(s, column, column, false)), 0);
    assert_int_equal(ht_array_dtype(ht_matmul(s, ht_astype(s, m, HT_F16), ht_astype(s, column, HT_BF16), false)),
                     HT_F32);
    test_expect_error(s, ht_matmul(s, m, ht_full(s, 1, HT_F32, NULL, 0), false), "0 axes");
}

static void products_over_chosen_axes(void **state) {
    (void)state;
    ht_scope *s = ht_scope_new(test_stream);
    ht_array *m = test_counting(s, (int64_t[]){2, 3}, 2), *v = test_counting(s, (int64_t[]){3}, 1);
    EXPECT(ht_inner(s, m, v), 5, 14);
    EXPECT(ht_inner(s, m, ht_full(s, 2, HT_F32, NULL, 0)), 0, 2, 4, 6, 8, 10);
    EXPECT(ht_outer(s, v, v), 0, 0, 0, 0, 1, 2, 0, 2, 4);
    EXPECT(ht_tensordot(s, m, m, (int[]){0, 1}, (int[]){0, -1}, 2), 55);
    EXPECT(ht_tensordot(s, m, m, (int[]){0}, (int[]){0}, 1), 9, 12, 15, 12, 17, 22, 15, 22, 29);
    EXPECT(ht_addmm(s, v, m, ht_eye(s, 3, 3, 0, HT_F32), 2, 10), 0, 12, 24, 6, 18, 30);
    test_expect_error(s, ht_tensordot(s, m, v, (int[]){0}, (int[]){0}, 1), "differ");
}

static void sums_as_einstein_writes_them(void **state) {
    (void)state;
    ht_scope *s = ht_scope_new(test_stream);
    ht_array *m = test_counting(s, (int64_t[]){2, 3}, 2), *q = test_counting(s, (int64_t[]){2, 2}, 2);
    EXPECT(ht_einsum(s, "ij->ji", &m, 1), 0, 3, 1, 4, 2, 5);
    EXPECT(ht_einsum(s, "ba", &m, 1), 0, 3, 1, 4, 2, 5);
    EXPECT(ht_einsum(s, "ii->i", &q, 1), 0, 3);
    EXPECT(ht_einsum(s, "ii", &q, 1), 3);
    EXPECT(ht_einsum(s, "...j -> ...", &m, 1), 3, 12);
    EXPECT(ht_einsum(s, "ij,jk", (ht_array *[]){q, m}, 2), 3, 4, 5, 9, 14, 19);
    EXPECT(ht_einsum(s, "ij,ik,kj->i", (ht_array *[]){m, q, m}, 3), 14, 178);
    ht_scope_free(s);
}

static void what_cannot_be_meant_is_refused(void **state) {
    (void)state;
    static const struct {
        const char *text, *why;
    } cases[] = {
        {"ij->ijj", "twice"}, {"ij->k", "no operand has"}, {"ij,k->", "too many operands"}, {"i.j", "three dots"},
        {"i1", "named"},      {"ijk", "3 axes are named"}, {"ij->ij,", "follows"},         {"...->", "missing"},
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
        cmocka_unit_test(vectors_multiply_as_rows_and_columns),
        cmocka_unit_test(products_over_chosen_axes),
        cmocka_unit_test(sums_as_einstein_writes_them),
        cmocka_unit_test(what_cannot_be_meant_is_refused),
    };
    return cmocka_run_group_tests(tests, test_open_stream, test_close_stream);
}
