/* Elements by their place: what is refused, where memory is taken over, and results too odd for NumPy to be asked
 * (tests/arrays/differential.py has the rest). */
#include "array/array.h"
#include "support/arrays.h"
#include "support/test.h"

#include <string.h>

static void expect_floats(ht_scope *s, ht_array *a, const float *want, size_t n) {
    float got[32];
    assert_works(ht_array_read, s, a, got, n * sizeof *got);
    for (size_t i = 0; i < n; i++)
        if (got[i] != want[i]) fail_msg("element %zu is %g, not %g", i, (double)got[i], (double)want[i]);
}

UNIT_TEST(a_window_is_replaced) {
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

SCOPE_TEST(memory_that_nobody_else_holds_is_written_over) {
    enum { N = 1 << 16 };
    ht_array *x = ht_arange(s, 0, N, 1, HT_F32), *v = ht_full(s, -1, HT_F32, NULL, 0);
    for (int64_t i = 0; i < 8; i++) x = ht_slice_update(s, x, v, &i, &(int64_t){i + 1}, NULL);
    ht_memory_stats before = ht_memory_get(test_device());
    ht_memory_reset_peak(test_device());
    assert_works(ht_array_eval, s, &x, 1);
    assert_true(ht_memory_get(test_device()).peak_bytes - before.active_bytes < 2 * N * sizeof(float));
    ht_array *head = ht_slice(s, x, (int64_t[]){6}, (int64_t[]){10}, NULL);
    expect_floats(s, head, (float[]){-1, -1, 8, 9}, 4);
}

/* Who else holds something while x[100:N] += 1 is evaluated. */
typedef enum holder { NOBODY, THE_WINDOW, THE_SUM, X, A_READER, THE_SCOPE, HOLDERS } holder;

UNIT_TEST(a_part_is_changed_where_it_is) {
    enum { N = 1 << 14 };
    const int64_t from = 100, to = N;
    for (holder h = NOBODY; h < HOLDERS; h++) {
        ht_scope *s = ht_scope_new(test_stream);
        ht_array *x = ht_scope_finish(s, ht_arange(s, 0, N, 1, HT_F32)), *held = NULL;
        const void *before, *after;
        assert_works(ht_array_data, s, x, &before);
        before = x->buffer->data;
        ht_scope_finish(s, NULL);
        ht_array *window = ht_slice(s, x, &from, &to, NULL), *one = ht_full(s, 1, HT_F32, NULL, 0);
        ht_array *sum = ht_add(s, window, one), *head = ht_slice(s, window, &(int64_t){0}, &from, NULL);
        ht_array *reader = ht_negative(s, head);
        ht_array *y = ht_array_retain(ht_slice_update(s, x, sum, &from, &to, NULL));
        held = ht_array_retain((ht_array *[]){NULL, window, sum, x, reader, NULL}[h]);
        if (h != THE_SCOPE) ht_scope_finish(s, NULL);
        ht_array_free(x);
        assert_works(ht_array_eval, s, &y, 1);
        assert_works(ht_array_data, s, y, &after);
        if ((before == y->buffer->data) != (h == NOBODY))
            fail_msg("changed in place or copied wrongly, holder %d", (int)h);
        const float *f = after;
        for (int i = 0; i < N; i++) assert_true(f[i] == (float)(i < from ? i : i + 1));
        if (h == THE_SCOPE) held = ht_array_retain(window);
        if (held) {
            const float first = h == X ? 0 : h == THE_SUM ? 101 : h == A_READER ? -100 : 100;
            assert_works(ht_array_data, s, held, &before);
            assert_true(*(const float *)before == first);
        }
        ht_array_free(held);
        ht_array_free(y);
        ht_scope_free(s);
    }
}

SCOPE_TEST(a_part_is_moved_over_another) {
    enum { N = 1 << 14 };
    ht_array *x = ht_scope_finish(s, ht_arange(s, 0, N, 1, HT_F32));
    assert_works(ht_array_eval, s, &x, 1);
    ht_array *behind = ht_slice(s, x, (int64_t[]){0}, (int64_t[]){N - 1}, NULL);
    ht_array *y = ht_scope_finish(s, ht_slice_update(s, x, behind, (int64_t[]){1}, (int64_t[]){N}, NULL));
    ht_array_free(x);
    const void *data;
    assert_works(ht_array_data, s, y, &data);
    for (int i = 0; i < N; i++) assert_true(((const float *)data)[i] == (float)(i ? i - 1 : 0));
    ht_array_free(y);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_window_is_replaced),
        cmocka_unit_test(memory_that_nobody_else_holds_is_written_over),
        cmocka_unit_test(a_part_is_changed_where_it_is),
        cmocka_unit_test(a_part_is_moved_over_another),
    };
    return cmocka_run_group_tests(tests, test_open_stream, test_close_stream);
}
