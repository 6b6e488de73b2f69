/* The allocator's limits and counts, what a million operations leave behind, and streams and threads side by side. */
#include "support/arrays.h"
#include "support/test.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static float first_value(ht_scope *s, ht_array *a) {
    const void *data;
    assert_works(ht_array_data, s, a, &data);
    return *(const float *)data;
}

SCOPE_TEST(a_million_operations_leave_nothing) {
    ht_array *one = ht_scope_finish(s, ht_ones(s, HT_F32, (int64_t[]){8}, 1));
    ht_array *x = ht_scope_finish(s, ht_zeros(s, HT_F32, (int64_t[]){8}, 1));
    size_t before = 0;
    for (int i = 0; i < 1000000; i++) {
        ht_array *next = ht_scope_finish(s, ht_add(s, x, one));
        ht_array_free(x);
        x = next;
        if (i % 100 != 99) continue;
        assert_works(ht_array_detach, s, x);
        if (i == 99) before = ht_memory_get(test_device()).active_bytes;
    }
    assert_int_equal(ht_memory_get(test_device()).active_bytes, before);
    assert_float_equal(first_value(s, x), 1000000, 0);
    ht_array_free(x);
    ht_array_free(one);
}

SCOPE_TEST(a_scope_is_as_new_after_each_expression) {
    ht_array *x = ht_scope_finish(s, test_counting(s, (int64_t[]){3}, 1));
    assert_null(ht_scope_finish(s, ht_reshape(s, x, (int64_t[]){2}, 1)));
    assert_null(ht_scope_error(s));
    ht_array *y = ht_scope_finish(s, ht_square(s, ht_negative(s, x)));
    assert_float_equal(first_value(s, ht_sum(s, y, NULL, 0, false)), 5, 0);
    ht_array_free(y);
    ht_array_free(x);
}

SCOPE_TEST(half_of_what_is_needed_is_an_error_that_passes) {
    enum { N = 1 << 20 };
    ht_error err = {0};
    ht_array *x = ht_arange(s, 0, N, 1, HT_F32), *y = ht_add(s, x, ht_cumsum(s, x, 0, false, true));
    assert_int_equal(ht_array_eval(s, &x, 1, &err), HT_OK);
    size_t active = ht_memory_get(test_device()).active_bytes;
    assert_int_equal(ht_memory_set_limit(test_device(), active + N * 4 / 2), 0);
    assert_int_equal(ht_memory_limit(test_device()), active + N * 4 / 2);
    assert_int_equal(ht_array_eval(s, &y, 1, &err), HT_ERR_MEMORY);
    char numbers[64];
    snprintf(numbers, sizeof numbers, "the memory limit is %zu", active + N * 4 / 2);
    assert_non_null(strstr(err.message, numbers));
    assert_int_equal(ht_memory_get(test_device()).active_bytes, active);
    assert_float_equal(first_value(s, ht_slice(s, x, (int64_t[]){5}, (int64_t[]){6}, NULL)), 5, 0);
    ht_memory_set_limit(test_device(), 0);
    ht_array *again = ht_add(s, x, ht_cumsum(s, x, 0, false, true));
    assert_int_equal(ht_array_eval(s, &again, 1, &err), HT_OK);
}

/* Sorting takes memory of its own: afterwards only the result is left, eagerly and from a compiled function. */
static int sorted(ht_scope *s, ht_array *const *in, int n_in, ht_array **out, int max_out, void *user) {
    (void)n_in, (void)max_out, (void)user;
    out[0] = ht_sort(s, in[0], 0);
    return out[0] ? 1 : -1;
}
UNIT_TEST(what_kernels_take_is_given_back) {
    enum { N = 1 << 20 };
    ht_compiled *compiled;
    assert_works(ht_compile, &(ht_function){.call = sorted}, NULL, &compiled);
    for (int how = 0; how < 2; how++) {
        ht_scope *s = ht_scope_new(test_stream);
        ht_array *x = ht_arange(s, N, 0, -1, HT_F32), *y;
        assert_works(ht_array_eval, s, &x, 1);
        const size_t before = ht_memory_get(test_device()).active_bytes;
        ht_memory_reset_peak(test_device());
        if (how)
            assert_int_equal(ht_compiled_call(s, compiled, &x, 1, &y, 1), 1);
        else
            y = ht_sort(s, x, 0);
        assert_works(ht_array_eval, s, &y, 1);
        assert_float_equal(first_value(s, y), 1, 0);
        assert_true(ht_memory_get(test_device()).peak_bytes > before + 2 * N * sizeof(float));
        assert_true(ht_memory_get(test_device()).active_bytes <= before + N * sizeof(float) + (1 << 16));
        ht_scope_free(s);
    }
    ht_compiled_free(compiled);
}

/* What was freed is given back before a request fails, and as much of it as the request needs. */
SCOPE_TEST(the_cache_makes_room) {
    enum { MEGABYTE = 1 << 20 };
    ht_memory_clear_cache(test_device());
    ht_array *kept[8];
    for (int i = 0; i < 8; i++) kept[i] = ht_full(s, i, HT_F32, (int64_t[]){MEGABYTE / 4}, 1);
    assert_works(ht_array_eval, s, kept, 8);
    size_t active = ht_memory_get(test_device()).active_bytes;
    for (int i = 0; i < 8; i++) ht_scope_drop(s, kept[i]);
    assert_int_equal(ht_memory_get(test_device()).cache_bytes, 8 * MEGABYTE);
    ht_memory_set_limit(test_device(), active);
    ht_array *other = ht_full(s, 1, HT_F32, (int64_t[]){3 * MEGABYTE / 8}, 1);
    assert_works(ht_array_eval, s, &other, 1);
    ht_memory_stats now = ht_memory_get(test_device());
    assert_true(now.active_bytes + now.cache_bytes <= active);
    assert_true(now.cache_bytes >= 6 * MEGABYTE);
    ht_memory_set_limit(test_device(), 0);
    size_t old = ht_memory_set_cache_limit(test_device(), MEGABYTE);
    assert_true(ht_memory_get(test_device()).cache_bytes <= MEGABYTE);
    assert_int_equal(ht_memory_set_cache_limit(test_device(), old), MEGABYTE);
    ht_memory_clear_cache(test_device());
    assert_int_equal(ht_memory_get(test_device()).cache_bytes, 0);
}

/* A cache full of sizes that nobody asks for any more still takes what is freed now. */
SCOPE_TEST(what_was_freed_last_is_kept) {
    enum { MEGABYTE = 1 << 20 };
    ht_memory_clear_cache(test_device());
    const size_t old = ht_memory_set_cache_limit(test_device(), 8 * MEGABYTE);
    ht_array *stale = ht_full(s, 1, HT_F32, (int64_t[]){7 * MEGABYTE / 4}, 1);
    ht_array *wanted = ht_full(s, 2, HT_F32, (int64_t[]){2 * MEGABYTE / 4}, 1);
    assert_works(ht_array_eval, s, (ht_array *[]){stale, wanted}, 2);
    ht_scope_drop(s, stale);
    assert_true(ht_memory_get(test_device()).cache_bytes >= 7 * MEGABYTE);
    ht_scope_drop(s, wanted);
    assert_int_equal(ht_memory_get(test_device()).cache_bytes, 2 * MEGABYTE);
    ht_memory_set_cache_limit(test_device(), old);
}

UNIT_TEST(buffers_are_locked_up_to_the_limit) {
    enum { BYTES = 256 << 10 };
    ht_memory_clear_cache(test_device());
    ht_scope *s = ht_scope_new(test_stream);
    assert_int_equal(ht_memory_set_wired_limit(3 * BYTES), 0);
    ht_array *a[4];
    for (int i = 0; i < 4; i++) a[i] = ht_full(s, i, HT_F32, (int64_t[]){BYTES / 4}, 1);
    assert_works(ht_array_eval, s, a, 4);
    size_t wired = ht_memory_get(test_device()).wired_bytes;
    assert_true(wired <= 3 * BYTES);
    if (wired == 0) print_message("the system lets this process lock nothing\n");
    assert_int_equal(ht_memory_set_wired_limit(BYTES), 3 * BYTES);
    assert_true(ht_memory_get(test_device()).wired_bytes <= BYTES);
    ht_scope_free(s);
    ht_memory_clear_cache(test_device());
    assert_int_equal(ht_memory_get(test_device()).wired_bytes, 0);
    assert_int_equal(ht_memory_set_wired_limit(0), BYTES);
}

UNIT_TEST(the_peak_is_the_most_since_the_reset) {
    ht_scope *s = ht_scope_new(test_stream);
    ht_memory_reset_peak(test_device());
    size_t before = ht_memory_get(test_device()).peak_bytes;
    ht_array *x = ht_full(s, 1, HT_F32, (int64_t[]){1 << 18}, 1);
    assert_works(ht_array_eval, s, &x, 1);
    ht_scope_free(s);
    assert_int_equal(ht_memory_get(test_device()).peak_bytes - before, 1 << 20);
    ht_memory_reset_peak(test_device());
    assert_int_equal(ht_memory_get(test_device()).peak_bytes, ht_memory_get(test_device()).active_bytes);
}

/* What one stream is asked for and another needs is ready when it is read, and right. */
UNIT_TEST(streams_wait_for_each_other) {
    ht_stream *other;
    assert_works(ht_stream_new, ht_stream_device(test_stream), &other);
    ht_scope *here = ht_scope_new(test_stream), *there = ht_scope_new(other);
    ht_array *x = ht_scope_finish(here, ht_full(here, 1, HT_F32, (int64_t[]){5000}, 1));
    for (int i = 0; i < 200; i++) {
        ht_scope *s = i % 2 ? here : there;
        ht_array *next = ht_scope_finish(s, ht_add(s, ht_square(s, ht_sqrt(s, x)), ht_ones(s, HT_F32, NULL, 0)));
        assert_works(ht_array_eval_async, s, &next, 1);
        ht_array_free(x);
        x = next;
    }
    assert_works(ht_array_wait, here, x);
    assert_float_equal(first_value(here, x), 201, 0.01);
    ht_array_free(x);
    ht_scope_free(here);
    ht_scope_free(there);
    ht_stream_free(other);
}

typedef struct reader {
    ht_stream *stream;
    ht_array *shared;
    float sum;
    bool good;
} reader;

static void *read_shared(void *arg) {
    reader *r = arg;
    ht_scope *s = ht_scope_new(r->stream);
    ht_error err = {0};
    r->good = true;
    for (int i = 0; i < 50 && r->good; i++) {
        ht_array *sum = ht_scope_finish(s, ht_sum(s, ht_transpose(s, r->shared, NULL), NULL, 0, false));
        r->good = ht_array_read(s, sum, &r->sum, sizeof r->sum, &err) == HT_OK;
        ht_array_free(sum);
    }
    ht_scope_free(s);
    return NULL;
}

SCOPE_TEST(threads_share_an_array) {
    enum { THREADS = 4 };
    ht_array *x = test_counting(s, (int64_t[]){30, 10}, 2);
    reader readers[THREADS];
    pthread_t threads[THREADS];
    for (int i = 0; i < THREADS; i++) {
        readers[i] = (reader){.shared = x};
        assert_works(ht_stream_new, ht_stream_device(test_stream), &readers[i].stream);
        assert_int_equal(pthread_create(&threads[i], NULL, read_shared, &readers[i]), 0);
    }
    for (int i = 0; i < THREADS; i++) {
        pthread_join(threads[i], NULL);
        assert_true(readers[i].good);
        assert_float_equal(readers[i].sum, 299 * 300 / 2, 0);
        ht_stream_free(readers[i].stream);
    }
}

SCOPE_TEST(a_view_is_lent_as_it_lies) {
    const void *all, *part;
    ht_array *x = test_counting(s, (int64_t[]){3, 4}, 2);
    ht_array *v = ht_slice(s, ht_transpose(s, x, NULL), (int64_t[]){3, 1}, (int64_t[]){-1, 3}, (int64_t[]){-2, 1});
    assert_works(ht_array_lend, s, x, &all);
    assert_works(ht_array_lend, s, v, &part);
    assert_int_equal((const float *)part - (const float *)all, 7);
    assert_int_equal(ht_array_stride(v, 0), -2);
    assert_int_equal(ht_array_stride(v, -1), 4);
    assert_int_equal(ht_array_stride(v, 2), 0);
}

UNIT_TEST(the_machine_is_described) {
    ht_machine m;
    ht_machine_read(&m);
    assert_true(m.cores >= 1 && m.online >= m.cores);
    assert_true(m.memory_bytes > (size_t)64 << 20);
    assert_true(strlen(m.architecture) > 0);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_million_operations_leave_nothing),
        cmocka_unit_test(a_scope_is_as_new_after_each_expression),
        cmocka_unit_test(half_of_what_is_needed_is_an_error_that_passes),
        cmocka_unit_test(what_kernels_take_is_given_back),
        cmocka_unit_test(the_cache_makes_room),
        cmocka_unit_test(what_was_freed_last_is_kept),
        cmocka_unit_test(buffers_are_locked_up_to_the_limit),
        cmocka_unit_test(the_peak_is_the_most_since_the_reset),
        cmocka_unit_test(streams_wait_for_each_other),
        cmocka_unit_test(threads_share_an_array),
        cmocka_unit_test(a_view_is_lent_as_it_lies),
        cmocka_unit_test(the_machine_is_described),
    };
    return cmocka_run_group_tests(tests, test_open_stream, test_close_stream);
}
