/* Elements by their place: what is refused, where memory is taken over, and results too odd for NumPy to be asked
 * (tests/arrays/differential.py has the rest). */
#include "array/array.h"
#include "support/arrays.h"
#include "support/test.h"

#include <string.h>

static void expect_floats(ht_scope *s, ht_array *a, const float *want, size_t n) {
    float got[32];
    ht_error err = {0};
    if (ht_array_read(s, a, got, n * sizeof *got, &err)) fail_msg("%s", err.message);
    for (size_t i = 0; i < n; i++)
        if (got[i] != want[i]) fail_msg("element %zu is %g, not %g", i, (double)got[i], (double)want[i]);
}

static void a_window_is_replaced(void **state) {
    (void)state;
    ht_scope *s = ht_scope_new(test_stream);
    ht_array *x = test_counting(s, (int64_t[]){3, 4}, 2), *v = ht_full(s, -1, HT_I32, NULL, 0);
    ht_array *y = ht_slice_update(s, x, v, (int64_t[]){0, 3}, (int64_t[]){3, 0}, (int64_t[]){2, -2});
    expect_floats(s, y, (float[]){0, -1, 2, -1, 4, 5, 6, 7, 8, -1, 10, -1}, 12);
    expect_floats(s, x, (float[]){0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11},
                  12); /* not taken over: the scope holds x, which was there before */
    y = ht_slice_update(s, x, x, (int64_t[]){2, 3}, (int64_t[]){-1, -1}, (int64_t[]){-1, -1});
    expect_floats(s, y, (float[]){11, 10, 9, 8, 7, 6, 5, 4, 3, 2, 1, 0}, 12);
    y = ht_slice_update(s, x, v, (int64_t[]){1, 2}, (int64_t[]){1, 2}, NULL);
    expect_floats(s, y, (float[]){0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11}, 12);
    test_expect_error(s, ht_slice_update(s, x, x, (int64_t[]){0, 0}, (int64_t[]){2, 4}, NULL), "broadcast");
}

static void memory_that_nobody_else_holds_is_written_over(void **state) {
    (void)state;
    enum { N = 1 << 16 };
    ht_scope *s = ht_scope_new(test_stream);
    ht_error err = {0};
    ht_array *x = ht_arange(s, 0, N, 1, HT_F32), *v = ht_full(s, -1, HT_F32, NULL, 0);
    for (int64_t i = 0; i < 8; i++) x = ht_slice_update(s, x, v, &i, &(int64_t){i + 1}, NULL);
    ht_memory_stats before = ht_memory_get();
    ht_memory_reset_peak();
    assert_int_equal(ht_eval(s, &x, 1, &err), HT_OK);
    assert_true(ht_memory_get().peak_bytes - before.active_bytes < 2 * N * sizeof(float));
    ht_array *head = ht_slice(s, x, (int64_t[]){6}, (int64_t[]){10}, NULL);
    expect_floats(s, head, (float[]){-1, -1, 8, 9}, 4);
    ht_scope_free(s);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_window_is_replaced),
        cmocka_unit_test(memory_that_nobody_else_holds_is_written_over),
    };
    return cmocka_run_group_tests(tests, test_open_stream, test_close_stream);
}
