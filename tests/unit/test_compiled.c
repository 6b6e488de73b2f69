/* Calls of compiled functions as lists of kernels: evaluated in parts, in chains, again, from several threads and devices, and
 * out of memory. */
#include "support/arrays.h"
#include "support/options.h"
#include "support/test.h"

#include <hearth/memory.h>

#include <math.h>
#include <pthread.h>
#include <string.h>

enum { N_OUT = 7 };

static ht_array *number(ht_scope *s, double v) { return ht_full(s, v, HT_F32, NULL, 0); }

/* Chains of elements, products, views of what is made, of an argument and of a constant, one result twice. */
static int mixed(ht_scope *s, ht_array *const *in, int n_in, ht_array **out, int max_out, void *user) {
    (void)n_in, (void)max_out;
    ht_array *x = in[0], *half = *(ht_array **)user;
    for (int i = 0; i < 40; i++) {
        ht_array *y = ht_add(s, ht_multiply(s, x, half), in[1]);
        x = i % 8 == 7 ? ht_subtract(s, ht_matmul(s, y, in[1], true), ht_mean(s, y, (int[]){1}, 1, true))
                       : ht_tanh(s, y);
    }
    out[0] = x;
    out[1] = ht_slice_range(s, ht_transpose(s, ht_exp(s, x), NULL), (int64_t[]){1, 0}, (int64_t[]){HT_OPEN, HT_OPEN},
                            (int64_t[]){1, -1});
    out[2] = ht_transpose(s, in[1], NULL);
    out[3] = ht_expand_dims(s, half, 0);
    out[4] = out[5] = ht_sum(s, x, NULL, 0, false);
    out[6] = ht_cumsum(s, ht_slice_update(s, ht_square(s, x), number(s, 3), (int64_t[]){0, 0}, (int64_t[]){1, 1}, NULL),
                       0, false, true);
    return N_OUT;
}

typedef struct setting {
    ht_scope *outer;
    ht_array *half;
    ht_function direct;
    ht_compiled *compiled;
} setting;

static setting new_setting(int (*call)(ht_scope *, ht_array *const *, int, ht_array **, int, void *), setting *at) {
    setting t = {.outer = ht_scope_new(test_stream)};
    t.half = ht_scale(t.outer, ht_ones(t.outer, HT_F32, NULL, 0), 0.5f);
    t.direct = (ht_function){call, &at->half};
    at->half = t.half;
    assert_works(ht_compile, &t.direct, NULL, &t.compiled);
    return t;
}
static void end_setting(setting *t) {
    ht_compiled_free(t->compiled);
    ht_scope_free(t->outer);
}

static void arguments(ht_scope *s, int64_t n, float scale, ht_array **in) {
    in[0] = ht_sin(s, ht_scale(s, test_counting(s, (int64_t[]){n, n}, 2), scale));
    in[1] = ht_transpose(s, ht_cos(s, in[0]), NULL);
}

static void expect_equal(ht_scope *s, ht_array *a, ht_array *b) {
    ht_error err;
    const void *x, *y;
    a = ht_contiguous(s, a);
    b = ht_contiguous(s, b);
    if (ht_array_data(s, a, &x, &err) || ht_array_data(s, b, &y, &err)) fail_msg("%s", err.message);
    assert_int_equal(ht_array_size(a), ht_array_size(b));
    assert_memory_equal(x, y, (size_t)ht_array_size(a) * sizeof(float));
}

UNIT_TEST(results_are_those_of_the_function) {
    setting t = new_setting(mixed, &t);
    for (int round = 0; round < 8; round++) {
        ht_scope *s = ht_scope_new(test_stream);
        ht_array *in[2], *got[N_OUT], *want[N_OUT];
        arguments(s, 5 + round % 2, 0.3f + (float)round, in);
        assert_int_equal(ht_compiled_call(s, t.compiled, in, 2, got, N_OUT), N_OUT);
        assert_int_equal(t.direct.call(s, in, 2, want, N_OUT, t.direct.user), N_OUT);
        for (int i = 0; i < N_OUT; i++) { /* from another one in every round */
            int k = (i + round) % N_OUT;
            expect_equal(s, got[k], want[k]);
        }
        ht_scope_free(s);
    }
    end_setting(&t);
}

UNIT_TEST(what_was_given_back_is_computed_again) {
    setting t = new_setting(mixed, &t);
    for (int round = 0; round < 2; round++) {
        ht_scope *s = ht_scope_new(test_stream);
        ht_array *in[2], *got[N_OUT], *want[N_OUT];
        arguments(s, 6, 0.7f, in);
        assert_int_equal(ht_compiled_call(s, t.compiled, in, 2, got, N_OUT), N_OUT);
        t.direct.call(s, in, 2, want, N_OUT, t.direct.user);
        ht_array *after = ht_square(s, got[0]);
        assert_works(ht_array_eval, s, &after, 1);
        assert_false(ht_array_is_evaluated(got[0])); /* only needed on the way */
        expect_equal(s, got[4], want[4]);
        expect_equal(s, got[0], want[0]);
        expect_equal(s, after, ht_square(s, want[0]));
        ht_scope_free(s);
    }
    end_setting(&t);
}

UNIT_TEST(calls_form_chains) {
    setting t = new_setting(mixed, &t);
    ht_scope *s = ht_scope_new(test_stream);
    ht_array *in[2], *got[N_OUT], *want[N_OUT];
    arguments(s, 32, 0.7f, in);
    in[1] = ht_contiguous(s, in[1]); /* which every call would copy */
    assert_works(ht_array_eval, s, in, 2);
    ht_array *a[2] = {in[0], in[1]}, *b[2] = {in[0], in[1]};
    for (int i = 0; i < 100; i++) {
        assert_int_equal(ht_compiled_call(s, t.compiled, a, 2, got, N_OUT), N_OUT);
        a[0] = got[0];
    }
    ht_memory_reset_peak(test_device());
    const size_t before = ht_memory_get(test_device()).active_bytes;
    assert_works(ht_array_eval, s, &got[0], 1);
    assert_true(ht_memory_get(test_device()).peak_bytes - before <
                20 * 32 * 32 * sizeof(float)); /* not all of the results at once */
    for (int i = 0; i < 100; i++) {
        t.direct.call(s, b, 2, want, N_OUT, t.direct.user);
        b[0] = want[0];
    }
    expect_equal(s, got[0], want[0]);
    ht_scope_free(s);
    end_setting(&t);
}

UNIT_TEST(evaluation_may_be_asynchronous) {
    setting t = new_setting(mixed, &t);
    for (int round = 0; round < 4; round++) {
        ht_scope *s = ht_scope_new(test_stream);
        ht_array *in[2], *got[N_OUT], *want[N_OUT];
        arguments(s, 9, 0.2f, in);
        assert_int_equal(ht_compiled_call(s, t.compiled, in, 2, got, N_OUT), N_OUT);
        t.direct.call(s, in, 2, want, N_OUT, t.direct.user);
        assert_works(ht_array_eval_async, s, got + round, 2);
        if (round % 2) assert_works(ht_array_wait, s, got[round]);
        for (int i = 0; i < N_OUT; i++) expect_equal(s, got[i], want[i]);
        ht_scope_free(s);
    }
    end_setting(&t);
}

/* ---- what goes wrong ---- */

UNIT_TEST(memory_that_runs_out_is_an_error_and_no_more) {
    setting t = new_setting(mixed, &t);
    ht_scope *s = ht_scope_new(test_stream);
    ht_array *in[2], *got[N_OUT], *want[N_OUT];
    ht_error err;
    arguments(s, 300, 0.001f, in);
    assert_int_equal(ht_array_eval(s, in, 2, &err), HT_OK);
    for (int round = 0; round < 3; round++) {
        assert_int_equal(ht_compiled_call(s, t.compiled, in, 2, got, N_OUT), N_OUT);
        ht_memory_set_limit(test_device(), ht_memory_get(test_device()).active_bytes +
                                               (size_t)(round + 1) * 300 * 300 * sizeof(float) + 1000);
        assert_fails(HT_ERR_MEMORY, "the memory limit is", ht_array_eval, s, got, N_OUT);
        ht_memory_set_limit(test_device(), 0);
        assert_int_equal(ht_array_eval(s, got, N_OUT, &err), HT_ERR_MEMORY); /* what failed stays so */
    }
    assert_int_equal(ht_compiled_call(s, t.compiled, in, 2, got, N_OUT), N_OUT);
    t.direct.call(s, in, 2, want, N_OUT, t.direct.user);
    for (int i = 0; i < N_OUT; i++) expect_equal(s, got[i], want[i]);
    ht_scope_free(s);
    end_setting(&t);
}

static int taking(ht_scope *s, ht_array *const *in, int n_in, ht_array **out, int max_out, void *user) {
    (void)n_in, (void)max_out, (void)user;
    ht_array *x = ht_take(s, in[0], ht_astype(s, in[1], HT_I32), 0);
    for (int i = 0; i < 20; i++) x = ht_sqrt(s, ht_square(s, x));
    out[0] = ht_sum(s, x, NULL, 0, false);
    return 1;
}

UNIT_TEST(values_that_are_refused_name_the_operation) {
    setting t = new_setting(taking, &t);
    for (int at = 0; at < 8; at += 3) {
        ht_scope *s = ht_scope_new(test_stream);
        ht_array *in[2] = {test_counting(s, (int64_t[]){6}, 1), number(s, at)}, *y;
        ht_error err;
        float v = -1;
        assert_int_equal(ht_compiled_call(s, t.compiled, in, 2, &y, 1), 1);
        ht_status st = ht_array_read(s, y, &v, sizeof v, &err);
        assert_int_equal(st, at < 6 ? HT_OK : HT_ERR_INDEX);
        if (at < 6) assert_true(v == (float)at);
        if (at >= 6) assert_non_null(strstr(err.message, "take: index 6"));
        ht_scope_free(s);
    }
    end_setting(&t);
}

/* ---- threads and devices ---- */

typedef struct caller {
    setting *t;
    ht_stream *stream;
    bool same;
} caller;

static void *call_often(void *arg) {
    caller *c = arg;
    c->same = true;
    for (int round = 0; round < 30; round++) {
        ht_scope *s = ht_scope_new(c->stream);
        ht_array *in[2], *got[N_OUT], *want[N_OUT];
        ht_error err;
        bool equal = false;
        arguments(s, 5 + round % 3, 0.4f, in);
        bool called = ht_compiled_call(s, c->t->compiled, in, 2, got, N_OUT) == N_OUT;
        c->t->direct.call(s, in, 2, want, N_OUT, c->t->direct.user);
        for (int i = 0; called && i < N_OUT; i++)
            c->same = c->same && !ht_array_read(s, ht_array_equal(s, got[i], want[i], true), &equal, 1, &err) && equal;
        c->same = c->same && called;
        ht_scope_free(s);
    }
    return NULL;
}

UNIT_TEST(threads_share_a_compiled_function) {
    setting t = new_setting(mixed, &t);
    ht_array *half = t.half;
    assert_works(ht_array_eval, t.outer, &half, 1);
    caller c[2] = {{&t, NULL, false}, {&t, NULL, false}};
    pthread_t thread[2];
    for (int i = 0; i < 2; i++) {
        assert_works(ht_stream_new, ht_stream_device(test_stream), &c[i].stream);
        assert_int_equal(pthread_create(&thread[i], NULL, call_often, &c[i]), 0);
    }
    for (int i = 0; i < 2; i++) {
        pthread_join(thread[i], NULL);
        assert_true(c[i].same);
        ht_stream_free(c[i].stream);
    }
    end_setting(&t);
}

UNIT_TEST(devices_have_their_own_kernels) {
    if (test_is_late()) skip(); /* each has its own memory, too */
    setting t = new_setting(mixed, &t);
    ht_array *half = t.half;
    assert_works(ht_array_eval, t.outer, &half, 1);
    for (int i = 0; i < 2; i++) { /* the second on another device than the list was made for */
        ht_device *device;
        caller c = {&t, NULL, false};
        const ht_device_options options =
            OPTIONS(ht_device_options, with.n_threads = 1, with.instruction_set = i ? "reference" : NULL);
        assert_works(ht_device_open, "cpu", &options, &device);
        assert_works(ht_stream_new, device, &c.stream);
        call_often(&c);
        assert_true(c.same);
        ht_stream_free(c.stream);
        ht_device_free(device);
    }
    end_setting(&t);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(results_are_those_of_the_function),
        cmocka_unit_test(what_was_given_back_is_computed_again),
        cmocka_unit_test(calls_form_chains),
        cmocka_unit_test(evaluation_may_be_asynchronous),
        cmocka_unit_test(memory_that_runs_out_is_an_error_and_no_more),
        cmocka_unit_test(values_that_are_refused_name_the_operation),
        cmocka_unit_test(threads_share_a_compiled_function),
        cmocka_unit_test(devices_have_their_own_kernels),
    };
    return cmocka_run_group_tests(tests, test_open_stream, test_close_stream);
}
