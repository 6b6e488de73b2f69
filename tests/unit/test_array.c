/* The array core: laziness, views, holds, errors, memory, streams. */
#include "array/array.h"
#include "support/arrays.h"
#include "support/test.h"

#include <stdlib.h>
#include <string.h>

static void expect_values(ht_scope *s, ht_array *a, const float *want, int64_t n) {
    assert_non_null(a);
    assert_int_equal(ht_array_size(a), n);
    float *got = malloc((size_t)(n + 1) * sizeof *got);
    assert_works(ht_array_read, s, a, got, (size_t)n * sizeof *got);
    for (int64_t i = 0; i < n; i++) assert_float_equal(got[i], want[i], 0);
    free(got);
}

SCOPE_TEST(nothing_is_computed_before_a_read) {
    ht_array *x = ht_arange(s, 1, 5, 1, HT_F32), *y = ht_multiply(s, ht_add(s, x, x), x);
    assert_false(ht_array_is_evaluated(y));
    expect_values(s, y, (float[]){2, 8, 18, 32}, 4);
    assert_true(ht_array_is_evaluated(y));
    /* x was only needed on the way; it is computed again when asked for. */
    assert_false(ht_array_is_evaluated(x));
    expect_values(s, x, (float[]){1, 2, 3, 4}, 4);
}

SCOPE_TEST(views_share_memory) {
    ht_array *x = test_counting(s, (int64_t[]){2, 3, 4}, 3);
    assert_works(ht_array_eval, s, &x, 1);
    size_t before = ht_memory_get(test_device()).active_bytes;
    ht_array *t = ht_transpose(s, x, (int[]){2, 0, 1});                                               /* [4, 2, 3] */
    ht_array *c = ht_slice(s, t, (int64_t[]){3, 0, 0}, (int64_t[]){-1, 2, 3}, (int64_t[]){-2, 1, 2}); /* [2, 2, 2] */
    assert_works(ht_array_eval, s, (ht_array *[]){t, c}, 2);
    assert_int_equal(ht_memory_get(test_device()).active_bytes, before);
    expect_values(s, c, (float[]){3, 11, 15, 23, 1, 9, 13, 21}, 8);
    ht_array *r = ht_reshape(s, c, (int64_t[]){4, -1}, 2);
    assert_int_equal(ht_array_dim(r, 1), 2);
    expect_values(s, r, (float[]){3, 11, 15, 23, 1, 9, 13, 21}, 8);
    ht_array *b = ht_broadcast_to(s, ht_arange(s, 5, 7, 1, HT_F32), (int64_t[]){2, 2}, 2);
    expect_values(s, b, (float[]){5, 6, 5, 6}, 4);
    ht_array *w = ht_as_strided(s, x, (int64_t[]){3, 2}, (int64_t[]){1, 5}, 2, 2);
    expect_values(s, w, (float[]){2, 7, 3, 8, 4, 9}, 6);
    ht_array *e = ht_squeeze(s, ht_expand_dims(s, ht_transpose(s, x, NULL), 1), 1);
    assert_int_equal(ht_array_dim(e, 0), 4);
    assert_int_equal(ht_array_dim(e, -1), 2);
    expect_values(s, ht_sum(s, e, (int[]){-1}, 1, false), (float[]){12, 20, 28, 14, 22, 30, 16, 24, 32, 18, 26, 34},
                  12);
}

/* A reshape of a transposed array moves elements only where strides cannot say it. */
SCOPE_TEST(reshape_keeps_what_strides_allow) {
    ht_array *x = test_counting(s, (int64_t[]){2, 3, 4}, 3);
    ht_array *t = ht_transpose(s, x, (int[]){1, 0, 2});
    ht_array *split = ht_reshape(s, t, (int64_t[]){3, 2, 2, 2}, 4);
    assert_ptr_equal(ht_storage(split), ht_storage(x));
    ht_array *merged = ht_reshape(s, t, (int64_t[]){6, 4}, 2);
    assert_ptr_not_equal(ht_storage(merged), ht_storage(x));
    expect_values(s, merged,
                  (float[]){0, 1, 2, 3, 12, 13, 14, 15, 4, 5, 6, 7, 16, 17, 18, 19, 8, 9, 10, 11, 20, 21, 22, 23}, 24);
    ht_array *empty = ht_reshape(s, ht_arange(s, 0, 0, 1, HT_F32), (int64_t[]){0, 7}, 2);
    assert_int_equal(ht_array_size(empty), 0);
    expect_values(s, empty, NULL, 0);
}

UNIT_TEST(a_retained_array_outlives_its_scope) {
    size_t before = ht_memory_get(test_device()).active_bytes;
    ht_scope *s = ht_scope_new(test_stream);
    ht_array *x = ht_arange(s, 0, 1000, 1, HT_F32);
    ht_array *kept = ht_array_retain(ht_square(s, x));
    assert_works(ht_array_detach, s, kept);
    ht_scope_free(s);
    ht_scope *other = ht_scope_new(test_stream);
    ht_array *sum = ht_sum(other, kept, (int[]){-1}, 1, false);
    expect_values(other, sum, (float[]){332833500.0f}, 1);
    ht_scope_free(other);
    assert_true(ht_memory_get(test_device()).active_bytes > before);
    ht_array_free(kept);
    assert_int_equal(ht_memory_get(test_device()).active_bytes, before);
}

SCOPE_TEST(the_first_error_is_kept_and_null_flows_through) {
    ht_error err = {0};
    ht_array *a = test_counting(s, (int64_t[]){2, 3}, 2), *b = test_counting(s, (int64_t[]){4}, 1);
    ht_array *bad = ht_add(s, a, b);
    assert_null(bad);
    ht_array *y = ht_exp(s, ht_multiply(s, bad, a));
    assert_null(y);
    assert_null(ht_reshape(s, a, (int64_t[]){5}, 1));
    assert_int_equal(ht_array_eval(s, &y, 1, &err), HT_ERR_ARGUMENT);
    assert_string_equal(err.message, "add: shapes [2, 3] and [4] do not broadcast");
    assert_string_equal(ht_scope_error(s)->message, err.message);
}

SCOPE_TEST(a_failed_node_stays_failed) {
    ht_error err = {0};
    ht_array *x = test_counting(s, (int64_t[]){2, 3}, 2);
    ht_array *at = ht_array_from(s, (int32_t[]){0, 7}, HT_I32, (int64_t[]){2}, 1);
    ht_array *rows = ht_take(s, x, at, 0), *y = ht_square(s, rows), *fine = ht_square(s, x);
    assert_int_equal(ht_array_eval(s, &y, 1, &err), HT_ERR_INDEX);
    assert_non_null(strstr(err.message, "7"));
    ht_error again = {0};
    assert_int_equal(ht_array_eval(s, &rows, 1, &again), HT_ERR_INDEX);
    assert_string_equal(again.message, err.message);
    assert_int_equal(ht_array_eval(s, &y, 1, &again), HT_ERR_INDEX);
    expect_values(s, fine, (float[]){0, 1, 4, 9, 16, 25}, 6);
}

/* An update that fails has its array's memory in its hands: nobody gets to see that, also not by way of the failed node. */
SCOPE_TEST(what_a_failed_update_was_given_is_not_read_again) {
    ht_error err = {0};
    ht_array *x = ht_array_retain(ht_arange(s, 0, 2048, 1, HT_F32));
    ht_array *at = ht_array_retain(ht_array_from(s, (int32_t[]){5000}, HT_I32, (int64_t[]){1}, 1));
    assert_int_equal(ht_array_eval(s, (ht_array *[]){x, at}, 2, &err), HT_OK);
    ht_scope_finish(s, NULL);
    ht_array *updates = ht_full(s, 7, HT_F32, (int64_t[]){1, 1}, 2);
    ht_array *y = ht_array_retain(ht_scatter(s, x, &at, (int[]){0}, 1, updates, HT_SCATTER_SET));
    ht_array_free(x); /* which nothing holds any more but the update */
    ht_scope_finish(s, NULL);
    assert_int_equal(ht_array_eval(s, &y, 1, &err), HT_ERR_INDEX);
    ht_array *before = y->in[0];
    assert_ptr_equal(before, x);
    assert_int_equal(ht_array_eval(s, &before, 1, &err), HT_ERR_INDEX);
    ht_array *lazy = ht_add(s, before, before);
    assert_int_equal(ht_array_eval(s, &lazy, 1, &err), HT_ERR_INDEX);
    ht_array_free(y);
    ht_array_free(at);
}

SCOPE_TEST(a_memory_limit_is_an_error_that_leaves_everything_usable) {
    ht_array *x = ht_arange(s, 0, 1 << 20, 1, HT_F32), *y = ht_add(s, x, ht_square(s, x));
    size_t old = ht_memory_set_limit(test_device(), ht_memory_get(test_device()).active_bytes + (1 << 20));
    assert_fails(HT_ERR_MEMORY, "memory limit", ht_array_eval, s, &y, 1);
    ht_memory_set_limit(test_device(), old);
    ht_array *z = ht_arange(s, 0, 1 << 20, 1, HT_F32);
    assert_works(ht_array_eval, s, &z, 1);
}

/* A chain of elementwise operations runs in one buffer. */
SCOPE_TEST(chains_are_computed_in_place) {
    const int64_t n = 1 << 20;
    ht_array *x = ht_linspace(s, 0, 1e-6 * (double)(n - 1), n, HT_F32);
    for (int i = 0; i < 50; i++) x = ht_square(s, ht_negative(s, x));
    size_t before = ht_memory_get(test_device()).active_bytes;
    ht_memory_reset_peak(test_device());
    assert_works(ht_array_eval, s, &x, 1);
    assert_true(ht_memory_get(test_device()).peak_bytes - before <= (size_t)n * 4 + 4096);
}

SCOPE_TEST(an_input_used_twice_is_not_written_over) {
    ht_array *x = ht_add(s, ht_arange(s, 0, 4, 1, HT_F32), ht_arange(s, 0, 4, 1, HT_F32));
    ht_array *m = ht_reshape(s, x, (int64_t[]){2, 2}, 2);
    ht_array *y = ht_subtract(s, m, ht_transpose(s, m, NULL));
    expect_values(s, y, (float[]){0, -2, 2, 0}, 4);
    ht_array *z = ht_add(s, ht_square(s, m), ht_scale(s, m, 2));
    expect_values(s, z, (float[]){0, 8, 24, 48}, 4);
}

UNIT_TEST(deep_graphs_live_and_die_without_recursion) {
    ht_scope *s = ht_scope_new(test_stream);
    size_t before = ht_memory_get(test_device()).active_bytes;
    ht_array *x = ht_arange(s, 0, 3, 1, HT_F32), *one = ht_full(s, 1, HT_F32, (int64_t[]){3}, 1);
    for (int i = 0; i < 100000; i++) x = ht_add(s, x, one);
    ht_array *kept = ht_array_retain(x);
    ht_scope_free(s);
    s = ht_scope_new(test_stream);
    expect_values(s, kept, (float[]){100000, 100001, 100002}, 3);
    ht_scope_free(s);
    ht_array_free(kept);
    assert_int_equal(ht_memory_get(test_device()).active_bytes, before);
}

SCOPE_TEST(asynchronous_evaluation_keeps_order_and_reports) {
    ht_error err = {0};
    ht_array *x = ht_arange(s, 0, 100000, 1, HT_F32), *y = ht_sqrt(s, ht_square(s, x));
    assert_int_equal(ht_array_eval_async(s, &y, 1, &err), HT_OK);
    ht_array *z = ht_sum(s, y, NULL, 0, false);
    assert_int_equal(ht_array_eval_async(s, &z, 1, &err), HT_OK);
    assert_int_equal(ht_array_wait(s, z, &err), HT_OK);
    assert_true(ht_array_is_evaluated(y));
    ht_array *bad = ht_take(s, y, ht_array_from(s, (int32_t[]){-100001}, HT_I32, (int64_t[]){1}, 1), 0);
    assert_int_equal(ht_array_eval_async(s, &bad, 1, &err), HT_OK);
    assert_int_equal(ht_array_wait(s, bad, &err), HT_ERR_INDEX);
}

static int released;
static void count_release(void *user) {
    (void)user;
    released++;
}

UNIT_TEST(wrapped_memory_is_released_once_after_its_last_user) {
    static const float values[4] = {1, 2, 3, 4};
    ht_scope *s = ht_scope_new(test_stream);
    released = 0;
    ht_array *x = ht_array_wrap(s, values, HT_F32, (int64_t[]){4}, 1, count_release, NULL);
    ht_array *view = ht_array_retain(ht_slice(s, x, (int64_t[]){1}, (int64_t[]){3}, NULL));
    expect_values(s, ht_negative(s, x), (float[]){-1, -2, -3, -4}, 4);
    assert_float_equal(values[0], 1, 0);
    ht_scope_free(s);
    assert_int_equal(released, test_is_late()); /* which copies, and releases at once */
    ht_array_free(view);
    assert_int_equal(released, 1);
}

UNIT_TEST(bad_views_are_refused_by_name) {
    static const struct {
        const char *message;
    } want[] = {{"transpose"}, {"as_strided"},  {"slice"},  {"broadcast"},
                {"squeeze"},   {"expand_dims"}, {"matmul"}, {"cast"}};
    for (size_t i = 0; i < sizeof want / sizeof *want; i++) {
        ht_scope *s = ht_scope_new(test_stream);
        ht_array *x = test_counting(s, (int64_t[]){2, 3}, 2), *bad = NULL;
        switch (i) {
        case 0: bad = ht_transpose(s, x, (int[]){0, 0}); break;
        case 1: bad = ht_as_strided(s, x, (int64_t[]){2}, (int64_t[]){6}, 1, 0); break;
        case 2: bad = ht_slice(s, x, (int64_t[]){0, 0}, (int64_t[]){3, 3}, NULL); break;
        case 3: bad = ht_broadcast_to(s, x, (int64_t[]){2, 4}, 2); break;
        case 4: bad = ht_squeeze(s, x, 0); break;
        case 5: bad = ht_expand_dims(s, x, 4); break;
        case 6: bad = ht_matmul(s, x, x, false); break;
        case 7: bad = ht_astype(s, x, (ht_dtype)99); break;
        }
        assert_null(bad);
        assert_int_equal(strncmp(ht_scope_error(s)->message, want[i].message, strlen(want[i].message)), 0);
        ht_scope_free(s);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(nothing_is_computed_before_a_read),
        cmocka_unit_test(views_share_memory),
        cmocka_unit_test(reshape_keeps_what_strides_allow),
        cmocka_unit_test(a_retained_array_outlives_its_scope),
        cmocka_unit_test(the_first_error_is_kept_and_null_flows_through),
        cmocka_unit_test(a_failed_node_stays_failed),
        cmocka_unit_test(what_a_failed_update_was_given_is_not_read_again),
        cmocka_unit_test(a_memory_limit_is_an_error_that_leaves_everything_usable),
        cmocka_unit_test(chains_are_computed_in_place),
        cmocka_unit_test(an_input_used_twice_is_not_written_over),
        cmocka_unit_test(deep_graphs_live_and_die_without_recursion),
        cmocka_unit_test(asynchronous_evaluation_keeps_order_and_reports),
        cmocka_unit_test(wrapped_memory_is_released_once_after_its_last_user),
        cmocka_unit_test(bad_views_are_refused_by_name),
    };
    return cmocka_run_group_tests(tests, test_open_stream, test_close_stream);
}
