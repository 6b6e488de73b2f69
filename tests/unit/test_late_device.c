/* Devices with memory and queues of their own, on one that needs no hardware (support/late_device.h): what is where, copies
 * between devices, failures that are found late, limits and counters. */
#include "array/array.h"
#include "generate/session_internal.h"
#include "support/adapters.h"
#include "support/late_device.h"
#include "support/options.h"
#include "support/scratch.h"
#include "support/test.h"
#include "support/tiny_model.h"

#include <hearth/hearth.h>

#include <pthread.h>
#include <signal.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

static ht_device *late, *cpu;
static ht_stream *late_stream, *cpu_stream;

static void ok(ht_status status, const ht_error *err) {
    if (status) fail_msg("%s", err->message);
}

static int setup(void **state) {
    (void)state;
    ht_error err = {0};
    scratch_make();
    ok(late_device_open(NULL, &late, &err), &err);
    ok(ht_device_open("cpu", OPTIONS_AT(ht_device_options, with.n_threads = 2), &cpu, &err), &err);
    ok(ht_stream_new(late, &late_stream, &err), &err);
    ok(ht_stream_new(cpu, &cpu_stream, &err), &err);
    return 0;
}

static int teardown(void **state) {
    (void)state;
    ht_stream_free(late_stream);
    ht_stream_free(cpu_stream);
    ht_device_free(late);
    ht_device_free(cpu);
    scratch_remove();
    return 0;
}

static ht_array *counting(ht_scope *s, int64_t n) { return ht_arange(s, 0, (double)n, 1, HT_F32); }

static void expect(ht_scope *s, ht_array *a, const float *want, size_t n) {
    float got[64];
    assert_works(ht_array_read, s, a, got, n * sizeof *got);
    for (size_t i = 0; i < n; i++)
        if (got[i] != want[i]) fail_msg("element %zu is %g, expected %g", i, (double)got[i], (double)want[i]);
}

/* ---- where things are ---- */

/* A child process that reads the address ends by the signal for it. */
static bool can_read(const void *p) {
    const pid_t child = fork();
    if (child == 0) {
        signal(SIGSEGV, SIG_DFL);
        const volatile char *at = p;
        _exit(*at & 0);
    }
    int status = 0;
    assert_int_equal(waitpid(child, &status, 0), child);
    return WIFEXITED(status) && WEXITSTATUS(status) == 0;
}

UNIT_TEST(memory_is_out_of_reach) {
    ht_error err = {0};
    ht_scope *s = ht_scope_new(late_stream);
    ht_array *x = counting(s, 5);
    ok(ht_array_eval(s, &x, 1, &err), &err);
    if (!TEST_SLOW) { /* a sanitizer would report the child */
        assert_false(can_read(x->buffer->data));
        assert_true(can_read(&err));
    }
    const void *data;
    ok(ht_array_data(s, x, &data, &err), &err);
    assert_memory_equal(data, ((float[]){0, 1, 2, 3, 4}), 5 * sizeof(float));
    assert_ptr_not_equal(data, x->buffer->data);
    ht_scope_free(s);
}

UNIT_TEST(work_is_done_when_somebody_waits) {
    ht_scope *s = ht_scope_new(late_stream);
    ht_array *x = ht_array_from(s, (float[]){1, 2, 3}, HT_F32, (int64_t[]){3}, 1);
    assert_true(late_device_waiting(late) > 0);
    expect(s, x, (float[]){1, 2, 3}, 3);
    assert_int_equal(late_device_waiting(late), 0);
    ht_array *y = ht_exp(s, ht_negative(s, x));
    assert_works(ht_array_eval, s, &y, 1);
    assert_int_equal(late_device_waiting(late), 0); /* an evaluation has been computed when it returns */
    ht_scope_free(s);
}

/* ---- two devices ---- */

UNIT_TEST(operands_of_two_devices_are_refused) {
    ht_scope *here = ht_scope_new(late_stream), *there = ht_scope_new(cpu_stream);
    ht_array *x = counting(here, 4), *y = counting(there, 4);
    ht_error err = {0};
    assert_null(ht_add(here, x, y));
    assert_non_null(strstr(ht_scope_error(here)->message, "operand 1 is on cpu, the operation is computed on late"));
    assert_null(ht_add(there, x, y));
    assert_non_null(strstr(ht_scope_error(there)->message, "operand 0 is on late, the operation is computed on cpu"));
    ht_scope_free(here);
    here = ht_scope_new(late_stream);
    x = counting(here, 4);
    assert_null(ht_concatenate(here, (ht_array *[]){x, y}, 2, 0));
    assert_null(ht_reshape(here, y, (int64_t[]){2, 2}, 2));
    assert_int_equal(ht_array_eval(here, &x, 1, &err), HT_ERR_ARGUMENT);
    ht_scope_free(here);
    ht_scope_free(there);
}

UNIT_TEST(arrays_go_from_one_device_to_another) {
    for (int way = 0; way < 2; way++) {
        ht_scope *from = ht_scope_new(way ? late_stream : cpu_stream),
                 *to = ht_scope_new(way ? cpu_stream : late_stream);
        for (ht_dtype t = HT_BOOL; t <= HT_F64; t++) {
            if (ht_dtype_bytes(t) == 0) continue;
            ht_array *x = ht_astype(from, ht_reshape(from, counting(from, 24), (int64_t[]){2, 3, 4}, 3), t);
            ht_array *views[] = {x, ht_transpose(from, x, NULL),
                                 ht_slice(from, x, (int64_t[]){0, 2, 3}, (int64_t[]){2, 0, 0}, (int64_t[]){1, -1, -2}),
                                 ht_broadcast_to(from,
                                                 ht_slice(from, x, (int64_t[]){1, 0, 0}, (int64_t[]){2, 1, 4}, NULL),
                                                 (int64_t[]){3, 2, 4}, 3),
                                 ht_slice(from, x, (int64_t[]){1, 1, 1}, (int64_t[]){1, 2, 2}, NULL)};
            for (size_t i = 0; i < sizeof views / sizeof *views; i++) {
                ht_array *moved = ht_array_to(to, views[i], from);
                const size_t bytes = (size_t)ht_array_size(views[i]) * ht_dtype_bytes(t);
                char want[512], got[512];
                assert_works(ht_array_read, from, views[i], want, bytes);
                assert_works(ht_array_read, to, moved, got, bytes);
                assert_memory_equal(got, want, bytes);
                assert_int_equal(ht_array_n_dims(moved), ht_array_n_dims(views[i]));
                assert_ptr_equal(moved->memory, ht_memory_of(ht_stream_device(ht_scope_stream(to))));
            }
        }
        ht_scope_free(from);
        ht_scope_free(to);
    }
    /* On one device nothing is copied; failures arrive. */
    ht_scope *s = ht_scope_new(late_stream), *other = ht_scope_new(cpu_stream);
    ht_array *x = counting(s, 4), *same = ht_array_to(s, x, s);
    assert_ptr_equal(ht_storage(same), x);
    assert_true(ht_array_to(s, HT_NONE, s) == HT_NONE);
    assert_null(ht_array_to(s, NULL, s));
    ht_array *bad = ht_take(s, x, ht_array_from(s, (int32_t[]){9}, HT_I32, (int64_t[]){1}, 1), 0);
    assert_null(ht_array_to(other, bad, s));
    assert_int_equal(ht_scope_error(other)->status, HT_ERR_INDEX);
    ht_scope_free(s);
    ht_scope_free(other);
}

/* What was read once is not what is read after the memory has been written over. */
UNIT_TEST(copies_for_readers_do_not_age) {
    enum { N = 4096 };
    ht_scope *s = ht_scope_new(late_stream);
    ht_array *x = ht_scope_finish(s, counting(s, N));
    const void *data;
    assert_works(ht_array_data, s, x, &data);
    const void *where = x->buffer->data;
    ht_array *y =
        ht_array_retain(ht_slice_update(s, x, ht_full(s, -5, HT_F32, NULL, 0), (int64_t[]){2}, (int64_t[]){4}, NULL));
    ht_array_free(x);
    ht_scope_finish(s, NULL);
    assert_works(ht_array_data, s, y, &data);
    assert_ptr_equal(y->buffer->data, where); /* written in place */
    assert_memory_equal(data, ((float[]){0, 1, -5, -5, 4}), 5 * sizeof(float));
    ht_array_free(y);
    ht_scope_free(s);
}

/* ---- failures that are found late ---- */

/* A graph with views, intermediate results, memory that is passed on, a compiled function and an index. */
static int twice(ht_scope *s, ht_array *const *in, int n_in, ht_array **out, int max_out, void *user) {
    (void)n_in, (void)max_out, (void)user;
    ht_array *a = in[0];
    for (int i = 0; i < 6; i++) a = ht_add(s, ht_sin(s, a), ht_scale(s, a, 0.5f));
    out[0] = a;
    out[1] = ht_sum(s, ht_square(s, a), NULL, 0, false);
    return out[0] && out[1] ? 2 : -1;
}

typedef struct graph {
    ht_array *x, *y, *z, *sum;
} graph;

static graph build(ht_scope *s, ht_array *x, ht_compiled *compiled) {
    graph g = {.x = x};
    ht_array *out[2];
    ht_array *e = ht_exp(s, ht_scale(s, x, 1e-3f)), *t = ht_transpose(s, ht_reshape(s, e, (int64_t[]){8, 8}, 2), NULL);
    assert_int_equal(ht_compiled_call(s, compiled, &e, 1, out, 2), 2);
    g.y = ht_matmul(s, t, ht_reshape(s, out[0], (int64_t[]){8, 8}, 2), false);
    g.z = ht_take(s, g.y, ht_array_from(s, (int32_t[]){7, 0, 3}, HT_I32, (int64_t[]){3}, 1), 0);
    g.sum = ht_add(s, out[1], ht_sum(s, g.z, NULL, 0, false));
    return g;
}

/* Every kernel in turn fails. What depends on it fails with its message; everything else can be evaluated after it, and has
 * the values it has without a failure; no memory is lost. */
UNIT_TEST(every_kernel_may_fail) {
    ht_error err = {0};
    const ht_function f = {.call = twice};
    ht_compiled *compiled;
    ok(ht_compile(&f, NULL, &compiled, &err), &err);
    float want_y[64], want_sum, got_y[64], got_sum;
    bool any = true;
    ht_scope *outer = ht_scope_new(late_stream);
    ht_array *x = counting(outer, 64);
    ok(ht_array_eval(outer, &x, 1, &err), &err);
    ht_scope *s = ht_scope_new(late_stream);
    graph g = build(s, x, compiled);
    ok(ht_array_read(s, g.sum, &want_sum, sizeof want_sum, &err), &err);
    ok(ht_array_read(s, g.y, want_y, sizeof want_y, &err), &err);
    ht_scope_free(s);
    const size_t before = ht_memory_get(late).active_bytes;
    for (int k = 1; any; k++) {
        s = ht_scope_new(late_stream);
        g = build(s, x, compiled);
        late_device_fail(late, k);
        ht_array *wanted[] = {g.sum, g.y};
        const ht_status status = ht_array_eval(s, wanted, 2, &err);
        late_device_fail(late, 0);
        any = status != HT_OK;
        if (any) {
            assert_int_equal(status, HT_ERR_INTERNAL);
            assert_non_null(strstr(err.message, "the device failed as it was told to"));
            ht_error again = {0};
            assert_int_equal(ht_array_eval(s, &g.sum, 1, &again), HT_ERR_INTERNAL); /* stays failed: all lead there */
            assert_string_equal(again.message, err.message);
            /* y may not depend on it. */
            if (ht_array_read(s, g.y, got_y, sizeof got_y, &again) == HT_OK)
                assert_memory_equal(got_y, want_y, sizeof want_y);
        } else
            assert_true(k > 10); /* that many kernels there are at least */
        ht_scope_free(s);
        assert_int_equal(ht_memory_get(late).active_bytes, before);
        s = ht_scope_new(late_stream);
        g = build(s, x, compiled);
        ok(ht_array_read(s, g.sum, &got_sum, sizeof got_sum, &err), &err);
        assert_true(got_sum == want_sum);
        ht_scope_free(s);
    }
    ht_scope_free(outer);
    ht_compiled_free(compiled);
}

/* A result without elements submits nothing; it does not fail with the kernel before it. */
UNIT_TEST(what_submits_nothing_does_not_fail) {
    ht_error err = {0};
    ht_scope *s = ht_scope_new(late_stream);
    ht_array *x = counting(s, 4);
    ht_array *bad = ht_take(s, x, ht_array_from(s, (int32_t[]){9}, HT_I32, (int64_t[]){1}, 1), 0);
    ht_array *nothing = ht_slice(s, x, (int64_t[]){2}, (int64_t[]){2}, NULL);
    for (int i = 0; i < 4; i++) nothing = ht_exp(s, ht_sin(s, nothing)); /* behind the other */
    assert_int_equal(ht_array_eval(s, (ht_array *[]){bad, nothing}, 2, &err), HT_ERR_INDEX);
    ok(ht_array_eval(s, &nothing, 1, &err), &err);
    assert_int_equal(ht_array_eval(s, &bad, 1, &err), HT_ERR_INDEX);
    ht_scope_free(s);
}

/* An array that was to be written over may have been: it is lost, and says so. */
UNIT_TEST(what_was_overwritten_is_lost) {
    ht_error err = {0};
    ht_scope *s = ht_scope_new(late_stream);
    ht_array *x = ht_scope_finish(s, counting(s, 4096)), *held;
    ok(ht_array_eval(s, &x, 1, &err), &err);
    ht_array *bad =
        ht_array_retain(ht_take(s, counting(s, 3), ht_array_from(s, (int32_t[]){5}, HT_I32, (int64_t[]){1}, 1), 0));
    ht_array *v =
        ht_exp(s, ht_sum(s, ht_sin(s, counting(s, 4)), NULL, 0, false)); /* so that it comes after the other */
    ht_array *y = ht_array_retain(ht_slice_update(s, x, v, (int64_t[]){2}, (int64_t[]){4}, NULL)); /* in x's memory */
    ht_array_free(x);
    ht_scope_finish(s, NULL);
    held = y->in[0];
    ht_array *both[] = {bad, y};
    assert_int_equal(ht_array_eval(s, both, 2, &err), HT_ERR_INDEX);
    assert_int_equal(ht_array_eval(s, &held, 1, &err), HT_ERR_INDEX);
    assert_int_equal(ht_array_eval(s, &y, 1, &err), HT_ERR_INDEX);
    ht_array_free(bad);
    ht_array_free(y);
    ht_scope_free(s);
}

/* ---- models ---- */

enum { PROMPT = 130 };

static ht_model *load_on(ht_device *d, const char *path) {
    ht_model *m;
    assert_works(ht_model_load, path, OPTIONS_AT(ht_model_options, with.device = d), &m);
    return m;
}

static ht_session *session_of(ht_model *m) {
    ht_session *s;
    assert_works(ht_session_new, m, OPTIONS_AT(ht_session_options, with.chunk = 50), &s);
    return s;
}

static bool keep(const float *logits, int64_t first, int64_t n_rows, int32_t vocab, void *user) {
    (void)first, (void)n_rows;
    memcpy(user, logits, (size_t)vocab * sizeof *logits);
    return true;
}

/* Wherever a step fails, the session is as it was after the last whole chunk, and goes on with the same bits; a recurrent
 * model also from the end of a message, where a chunk ends and to which it goes back. */
static void fail_steps(const tiny_options *how) {
    enum { MESSAGE = 71 };
    int32_t ids[PROMPT];
    float want[TINY_VOCAB], got[TINY_VOCAB];
    ht_error err = {0};
    tiny_ids(ids, PROMPT, 3);
    ids[MESSAGE - 1] = TINY_IM_END;
    ht_model *m = load_on(late, tiny_write(how));
    ht_session *s = session_of(m);
    ok(ht_session_forward(s, ids, PROMPT, NULL, keep, want, &err), &err);
    ht_session_free(s);
    bool any = true;
    for (int k = 1; any; k += test_cases(TEST_WATCHES_THREADS ? 97 : TEST_SLOW ? 29 : 11, 1)) {
        s = session_of(m);
        late_device_fail(late, k);
        const ht_status status = ht_session_forward(s, ids, PROMPT, NULL, keep, got, &err);
        late_device_fail(late, 0);
        any = status != HT_OK;
        if (any) {
            const int64_t n = ht_session_length(s);
            assert_int_equal(status, HT_ERR_INTERNAL);
            assert_int_equal(how->recurrent && n >= MESSAGE ? (n - MESSAGE) % 50 : n % 50, 0);
            assert_true(n < PROMPT);
            ok(ht_session_forward(s, ids + n, (size_t)(PROMPT - n), NULL, keep, got, &err), &err);
        } else
            assert_true(k > 30);
        assert_memory_equal(got, want, sizeof want);
        ok(ht_session_truncate(s, MESSAGE, &err), &err);
        assert_int_equal(s->cache->length, MESSAGE);
        ok(ht_session_forward(s, ids + MESSAGE, PROMPT - MESSAGE, NULL, keep, got, &err), &err);
        assert_memory_equal(got, want, sizeof want);
        ht_session_free(s);
    }
    ht_model_free(m);
}

UNIT_TEST(steps_may_fail) {
    fail_steps(&(tiny_options){.type = HT_W_Q8_0, .window = 40});
    fail_steps(&(tiny_options){.type = HT_W_Q8_0, .recurrent = true});
}

typedef struct caller {
    ht_model *m;
    const int32_t *ids;
    float got[TINY_VOCAB];
    int failures;
} caller;

static void *call_often(void *arg) {
    caller *c = arg;
    ht_error err;
    for (int i = 0; i < 20; i++) {
        ht_session *s = session_of(c->m);
        if (ht_session_forward(s, c->ids, 60, NULL, keep, c->got, &err)) c->failures++;
        ht_session_free(s);
    }
    return NULL;
}

/* The failure of one caller's work is not another's. */
UNIT_TEST(callers_take_turns) {
    int32_t ids[PROMPT];
    float want[2][TINY_VOCAB];
    ht_error err = {0};
    tiny_ids(ids, PROMPT, 3);
    ht_model *m = load_on(late, tiny_write(&(tiny_options){.type = HT_W_Q4_0}));
    caller c[2] = {{.m = m, .ids = ids}, {.m = m, .ids = ids + 60}};
    for (int i = 0; i < 2; i++) {
        ht_session *s = session_of(m);
        ok(ht_session_forward(s, c[i].ids, 60, NULL, keep, want[i], &err), &err);
        ht_session_free(s);
    }
    pthread_t thread[2];
    for (int i = 0; i < 2; i++) assert_int_equal(pthread_create(&thread[i], NULL, call_often, &c[i]), 0);
    /* Meanwhile evaluations fail on this thread. */
    for (int i = 0; i < 50; i++) {
        ht_scope *s = ht_scope_new(late_stream);
        ht_array *bad = ht_take(s, counting(s, 3), ht_array_from(s, (int32_t[]){5}, HT_I32, (int64_t[]){1}, 1), 0);
        assert_int_equal(ht_array_eval(s, &bad, 1, &err), HT_ERR_INDEX);
        ht_scope_free(s);
    }
    for (int i = 0; i < 2; i++) {
        pthread_join(thread[i], NULL);
        assert_int_equal(c[i].failures, 0);
        assert_memory_equal(c[i].got, want[i], sizeof want[i]);
    }
    ht_model_free(m);
}

/* A file's weights are packed when the queue gets there; loading has waited for that. */
UNIT_TEST(a_model_can_be_loaded_and_let_go) {
    const size_t before = ht_memory_get(late).active_bytes, host = ht_memory_get(NULL).active_bytes;
    for (int i = 0; i < 3; i++) {
        ht_model *m = load_on(late, tiny_write(&(tiny_options){.type = HT_W_Q8_0}));
        assert_int_equal(late_device_waiting(late), 0);
        assert_true(ht_memory_get(late).active_bytes > before);
        ht_model_free(m);
        assert_int_equal(ht_memory_get(late).active_bytes, before);
        assert_int_equal(ht_memory_get(NULL).active_bytes, host);
    }
}

/* A copy that fails is nobody's to report, so everything that waits or reads from then on does: no garbage is handed out. */
UNIT_TEST(a_failed_copy_loses_the_device) {
    int32_t ids[PROMPT];
    float logits[TINY_VOCAB];
    ht_error err = {0};
    tiny_ids(ids, PROMPT, 3);
    const char *path = tiny_write(&(tiny_options){.type = HT_W_Q8_0});
    for (int what = 0; what < 5; what++) {
        ht_device *d;
        ht_stream *stream;
        ok(late_device_open(NULL, &d, &err), &err);
        ok(ht_stream_new(d, &stream, &err), &err);
        ht_model *m = load_on(d, path), *other = NULL;
        ht_session *s = session_of(m), *fork = NULL;
        ht_adapter *a = test_adapter_for(m, 2, 1, 3);
        ht_scope *scope = ht_scope_new(stream);
        ok(ht_session_forward(s, ids, 20, NULL, keep, logits, &err), &err);
        late_device_lose(d, 1);
        switch (what) {
        case 0: { /* an array */
            float got[2];
            ht_array *x = ht_array_from(scope, (float[]){1, 2}, HT_F32, (int64_t[]){2}, 1);
            assert_int_equal(ht_array_read(scope, x, got, sizeof got, &err), HT_ERR_INTERNAL);
            break;
        }
        case 1: /* a page of a fork */
            ok(ht_session_fork(s, &fork, &err), &err);
            for (int i = 0; i < 2; i++)
                assert_int_equal(ht_session_forward(fork, ids, 5, NULL, keep, logits, &err), HT_ERR_INTERNAL);
            break;
        case 2: /* an adapter */
            ht_session_reset(s);
            (void)ht_session_set_adapters(s, &a, &(float){1}, 1, &err);
            for (int i = 0; i < 2; i++)
                assert_int_equal(ht_session_forward(s, ids, 5, NULL, keep, logits, &err), HT_ERR_INTERNAL);
            break;
        case 3: /* weights */
            assert_int_equal(ht_model_load(path, OPTIONS_AT(ht_model_options, with.device = d), &other, &err),
                             HT_ERR_INTERNAL);
            assert_null(other);
            break;
        default: { /* the rows of a step, and an evaluation beside it */
            ht_array *y = ht_exp(scope, counting(scope, 4));
            assert_int_equal(ht_session_forward(s, ids, 5, NULL, keep, logits, &err), HT_ERR_INTERNAL);
            assert_int_equal(ht_array_eval(scope, &y, 1, &err), HT_ERR_INTERNAL);
        }
        }
        if (!strstr(err.message, "the device was lost")) fail_msg("case %d: %s", what, err.message);
        assert_int_equal(ht_session_length(s), what == 2 ? 0 : 20);
        ht_scope_free(scope);
        ht_session_free(fork);
        ht_session_free(s);
        ht_adapter_free(a);
        ht_model_free(m);
        ht_stream_free(stream);
        ht_device_free(d);
    }
}

/* What a model is does not depend on where it is. */
UNIT_TEST(fingerprints_are_of_the_model) {
    static const char *const names[] = {"tests/golden/tiny/llama-f32", "tests/golden/tiny/gemma4-q8_0.gguf",
                                        "tests/golden/tiny/qwen3-moe-q4_1.gguf"};
    for (int i = 0; i < 3; i++) {
        char print[2][HT_FINGERPRINT_SIZE];
        int64_t bytes[2];
        for (int k = 0; k < 2; k++) {
            ht_model *m = load_on(k ? late : cpu, names[i]);
            assert_works(ht_model_fingerprint, m, print[k]);
            bytes[k] = ht_model_token_bytes(m, false);
            ht_model_free(m);
        }
        assert_string_equal(print[0], print[1]);
        assert_int_equal(bytes[0], bytes[1]);
    }
}

/* ---- limits and counters ---- */

UNIT_TEST(limits_are_a_devices_own) {
    ht_scope *s = ht_scope_new(late_stream), *other = ht_scope_new(cpu_stream);
    const size_t active = ht_memory_get(late).active_bytes, host = ht_memory_get(NULL).active_bytes;
    assert_int_equal(ht_memory_set_limit(late, active + 4096), 0);
    assert_int_equal(ht_memory_limit(late), active + 4096);
    assert_int_equal(ht_memory_limit(cpu), 0);
    ht_array *x = counting(s, 1 << 16), *y = counting(other, 1 << 16);
    assert_fails(HT_ERR_MEMORY, "on late", ht_array_eval, s, &x, 1);
    assert_works(ht_array_eval, other, &y, 1);
    assert_true(ht_memory_get(cpu).active_bytes >= host + (4 << 16));
    assert_int_equal(ht_memory_get(late).active_bytes, active);
    assert_int_equal(ht_memory_set_limit(late, 0), active + 4096);
    x = counting(s, 1 << 16);
    ht_memory_reset_peak(late);
    assert_works(ht_array_eval, s, &x, 1);
    assert_int_equal(ht_memory_get(late).active_bytes, active + (4 << 16));
    assert_int_equal(ht_memory_get(late).peak_bytes, active + (4 << 16));
    assert_int_equal(ht_memory_get(late).wired_bytes, 0);
    ht_scope_free(s);
    ht_scope_free(other);
    assert_int_equal(ht_memory_get(late).active_bytes, active);
    assert_true(ht_memory_get(late).cache_bytes >= 4 << 16);
    ht_memory_clear_cache(late);
    assert_int_equal(ht_memory_get(late).cache_bytes, 0);
    /* More than there is. */
    s = ht_scope_new(late_stream);
    x = counting(s, (int64_t)4 << 30);
    assert_fails(HT_ERR_MEMORY, "late has no memory left", ht_array_eval, s, &x, 1);
    ht_scope_free(s);
}

/* Arrays hold their device. */
UNIT_TEST(a_device_lives_as_long_as_its_arrays) {
    ht_device *d;
    ht_stream *stream;
    assert_works(ht_device_open, "late", NULL, &d);
    assert_works(ht_stream_new, d, &stream);
    ht_scope *s = ht_scope_new(stream);
    ht_array *x = counting(s, 100);
    assert_works(ht_array_eval, s, &x, 1);
    ht_array_retain(x);
    ht_scope_free(s);
    ht_stream_free(stream);
    ht_device_free(d);
    ht_array_free(x);
    assert_fails(HT_ERR_UNSUPPORTED, "this build has: cpu, cuda, late", ht_device_open, "nowhere", NULL, &d);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(memory_is_out_of_reach),
        cmocka_unit_test(work_is_done_when_somebody_waits),
        cmocka_unit_test(operands_of_two_devices_are_refused),
        cmocka_unit_test(arrays_go_from_one_device_to_another),
        cmocka_unit_test(copies_for_readers_do_not_age),
        cmocka_unit_test(every_kernel_may_fail),
        cmocka_unit_test(what_submits_nothing_does_not_fail),
        cmocka_unit_test(what_was_overwritten_is_lost),
        cmocka_unit_test(steps_may_fail),
        cmocka_unit_test(callers_take_turns),
        cmocka_unit_test(a_model_can_be_loaded_and_let_go),
        cmocka_unit_test(a_failed_copy_loses_the_device),
        cmocka_unit_test(fingerprints_are_of_the_model),
        cmocka_unit_test(limits_are_a_devices_own),
        cmocka_unit_test(a_device_lives_as_long_as_its_arrays),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
