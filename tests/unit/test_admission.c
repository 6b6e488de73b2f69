/* Calls in flight: never more than there are slots, in the order in which they came; and generation past a context that
 * slides. */
#include "models/admission.h"
#include "models/model.h"
#include "support/options.h"
#include "support/scratch.h"
#include "support/test.h"
#include "support/tiny_model.h"

#include <hearth/hearth.h>

#include <math.h>
#include <pthread.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>

enum { THREADS = 6 };

/* ---- slots ---- */

typedef struct caller {
    ht_admission *slots;
    ht_cancel cancel;
    _Atomic int *clock;
    int turn; /* on the clock, when it got a slot */
    ht_status status;
} caller;

static void *enter_and_leave(void *user) {
    caller *c = user;
    ht_admission_slot slot;
    ht_error err = {0};
    c->status = ht_admission_enter(c->slots, &c->cancel, &slot, &err);
    if (c->status) return NULL;
    c->turn = atomic_fetch_add(c->clock, 1);
    ht_admission_leave(&slot);
    return NULL;
}

/* They queue up one by one behind a slot that is taken; the one at `gives_up` is cancelled meanwhile. */
static void queue(int gives_up) {
    ht_admission *slots;
    ht_admission_slot mine;
    _Atomic int clock = 0;
    caller callers[THREADS] = {0};
    pthread_t threads[THREADS];
    assert_int_equal(ht_admission_new(1, &slots, NULL), HT_OK);
    assert_int_equal(ht_admission_enter(slots, NULL, &mine, NULL), HT_OK);
    for (int i = 0; i < THREADS; i++) {
        callers[i].slots = slots;
        callers[i].clock = &clock;
        assert_int_equal(pthread_create(&threads[i], NULL, enter_and_leave, &callers[i]), 0);
        while (ht_admission_waiting(slots) < i + 1) sched_yield();
    }
    if (gives_up >= 0) {
        ht_cancel_request(&callers[gives_up].cancel);
        pthread_join(threads[gives_up], NULL);
        assert_int_equal(callers[gives_up].status, HT_ERR_CANCELLED);
        assert_int_equal(ht_admission_waiting(slots), THREADS - 1);
    }
    assert_int_equal(atomic_load(&clock), 0);
    ht_admission_leave(&mine);
    for (int i = 0, turn = 0; i < THREADS; i++) {
        if (i == gives_up) continue;
        pthread_join(threads[i], NULL);
        assert_int_equal(callers[i].status, HT_OK);
        assert_int_equal(callers[i].turn, turn++);
    }
    ht_admission_free(slots);
}

static void first_come_first_served(void **state) {
    (void)state;
    queue(-1);
}

static void giving_up(void **state) {
    (void)state;
    queue(0);
    queue(2);
    queue(THREADS - 1);
}

static void once_more_on_one_thread(void **state) {
    (void)state;
    ht_admission *a, *b;
    ht_admission_slot of_a, of_b, again;
    assert_int_equal(ht_admission_new(1, &a, NULL), HT_OK);
    assert_int_equal(ht_admission_new(1, &b, NULL), HT_OK);
    assert_int_equal(ht_admission_enter(a, NULL, &of_a, NULL), HT_OK);
    assert_int_equal(ht_admission_enter(b, NULL, &of_b, NULL), HT_OK);
    assert_int_equal(ht_admission_enter(a, NULL, &again, NULL), HT_OK);
    ht_admission_leave(&again);
    ht_admission_leave(&of_b);
    ht_admission_leave(&of_a);
    assert_int_equal(ht_admission_enter(a, NULL, &of_a, NULL), HT_OK); /* it is free again */
    ht_admission_leave(&of_a);
    ht_admission_free(a);
    ht_admission_free(b);
}

/* ---- sessions ---- */

enum { PROMPT = 20, TOKENS = 12 };

typedef struct conversation {
    ht_model *model;
    _Atomic int *in_flight, *most;
    int32_t prompt[PROMPT], token[PROMPT + TOKENS];
    ht_status status;
} conversation;

static bool count_in_flight(const char *text, size_t n, void *user) {
    (void)text, (void)n;
    conversation *c = user;
    int now = atomic_fetch_add(c->in_flight, 1) + 1, most = atomic_load(c->most);
    while (now > most && !atomic_compare_exchange_weak(c->most, &most, now)) {}
    for (int i = 0; i < 50; i++) sched_yield();
    atomic_fetch_sub(c->in_flight, 1);
    return true;
}

static void *converse(void *user) {
    conversation *c = user;
    ht_error err = {0};
    ht_session *s = NULL;
    c->status = ht_session_new(c->model, NULL, &s, &err);
    ht_generate_options how = OPTIONS(ht_generate_options, with.max_tokens = TOKENS, with.ignore_eos = true);
    if (!c->status) c->status = ht_generate(s, c->prompt, PROMPT, &how, count_in_flight, c, NULL, &err);
    if (!c->status) memcpy(c->token, ht_session_tokens(s), sizeof c->token);
    ht_session_free(s);
    return NULL;
}

static void sessions_in_threads(void **state) {
    (void)state;
    ht_error err = {0};
    for (int32_t slots = 1; slots <= 2; slots++) {
        ht_model_options o = OPTIONS(ht_model_options, with.slots = slots);
        ht_model *m;
        if (ht_model_load(tiny_write(&(tiny_options){0}), &o, &m, &err)) fail_msg("%s", err.message);
        assert_int_equal(ht_model_slots(m), slots);
        _Atomic int in_flight = 0, most = 0;
        conversation c[THREADS];
        pthread_t threads[THREADS];
        for (int i = 0; i < THREADS; i++) {
            c[i] = (conversation){.model = m, .in_flight = &in_flight, .most = &most};
            tiny_ids(c[i].prompt, PROMPT, (uint64_t)(i % 2)); /* two kinds */
            assert_int_equal(pthread_create(&threads[i], NULL, converse, &c[i]), 0);
        }
        for (int i = 0; i < THREADS; i++) pthread_join(threads[i], NULL);
        for (int i = 0; i < THREADS; i++) {
            assert_int_equal(c[i].status, HT_OK);
            assert_memory_equal(c[i].token, c[i % 2].token, sizeof c->token);
        }
        assert_true(atomic_load(&most) >= 1 && atomic_load(&most) <= slots);
        ht_model_free(m);
    }
}

typedef struct nested {
    ht_session *other;
    int calls;
} nested;

static bool ask_another(const float *logits, int64_t first, int64_t n_rows, int32_t vocab, void *user) {
    (void)logits, (void)first, (void)n_rows, (void)vocab;
    nested *n = user;
    n->calls += ht_session_forward(n->other, &(int32_t){5}, 1, NULL, NULL, NULL, NULL) == HT_OK;
    return true;
}

static void call_within_a_call(void **state) {
    (void)state;
    ht_error err = {0};
    ht_model_options o = OPTIONS(ht_model_options, with.slots = 1);
    ht_model *m;
    ht_session *s;
    nested n = {0};
    if (ht_model_load(tiny_write(&(tiny_options){0}), &o, &m, &err)) fail_msg("%s", err.message);
    assert_int_equal(ht_session_new(m, NULL, &s, &err), HT_OK);
    assert_int_equal(ht_session_new(m, NULL, &n.other, &err), HT_OK);
    assert_int_equal(ht_session_forward(s, (int32_t[]){1, 2, 3}, 3, NULL, ask_another, &n, &err), HT_OK);
    assert_int_equal(n.calls, 1);
    ht_session_free(s);
    ht_session_free(n.other);
    ht_model_free(m);
}

/* ---- options ---- */

static void options(void **state) {
    (void)state;
    ht_error err = {0};
    const char *path = tiny_write(&(tiny_options){0});
    ht_model *m;
    for (int threads = 1; threads <= 12; threads++) {
        ht_device *d;
        assert_int_equal(ht_device_open("cpu", OPTIONS_AT(ht_device_options, with.n_threads = threads), &d, &err),
                         HT_OK);
        assert_int_equal(ht_model_load(path, OPTIONS_AT(ht_model_options, with.device = d), &m, &err), HT_OK);
        assert_int_equal(ht_model_slots(m), threads < 4 ? 1 : threads >= 8 ? 4 : threads / 2);
        ht_model_free(m);
        ht_device_free(d);
    }
    assert_int_equal(ht_model_load(path, OPTIONS_AT(ht_model_options, with.slots = -1), &m, &err), HT_ERR_ARGUMENT);
    assert_int_equal(ht_model_load(path, &(ht_model_options){.slots = 1}, &m, &err), HT_ERR_ARGUMENT);
    assert_true(!m && strstr(err.message, "ht_model_options_init"));
    assert_int_equal(ht_model_load(path, OPTIONS_AT(ht_model_options, with.kv_dtype = HT_DTYPE_NONE), &m, &err),
                     HT_ERR_ARGUMENT);
}

/* ---- a context that slides ---- */

enum { CONTEXT = 64, LONG = 1500 };

static void slide(const ht_model_options *o, const int32_t *ids, int n, int32_t chunk, float *last, size_t *bytes) {
    ht_error err = {0};
    ht_model *m;
    ht_session *s;
    /* One layer: keys and values depend on their own token alone, so what is forgotten leaves no trace. */
    if (ht_model_load("tests/golden/tiny/llama-llama3-q8_0.gguf", o, &m, &err)) fail_msg("%s", err.message);
    assert_int_equal(ht_model_context(m), o->sliding ? INT32_MAX : CONTEXT);
    assert_int_equal(ht_session_new(m, OPTIONS_AT(ht_session_options, with.chunk = chunk), &s, &err), HT_OK);
    if (ht_session_forward(s, ids, (size_t)n - 1, NULL, NULL, NULL, &err)) fail_msg("%s", err.message);
    assert_int_equal(ht_session_forward_together(&s, &ids[n - 1], 1, NULL, last, &err), HT_OK);
    *bytes = ht_session_cache_bytes(s);
    ht_session_free(s);
    ht_model_free(m);
}

static void sliding_context(void **state) {
    (void)state;
    enum { VOCAB = 61 };
    int32_t ids[LONG];
    for (int i = 0; i < LONG; i++) ids[i] = (i * i + 7 * i) % VOCAB;
    float fresh[VOCAB], whole[VOCAB], pieces[VOCAB];
    size_t bytes, half;
    ht_model_options o = OPTIONS(ht_model_options, with.precision = HT_PRECISION_REFERENCE, with.kv_dtype = HT_F32,
                                 with.context = CONTEXT, with.sliding = true);
    slide(&o, ids, LONG, 512, whole, &bytes);
    slide(&o, ids, LONG, 7, pieces, &bytes);
    assert_memory_equal(whole, pieces, sizeof whole);
    slide(&o, ids, LONG / 2, 7, pieces, &half);
    assert_true(half == bytes); /* the cache does not grow any more */
    slide(&o, ids + LONG - CONTEXT, CONTEXT, 512, pieces, &bytes);
    o.sliding = false;
    slide(&o, ids + LONG - CONTEXT, CONTEXT, 512, fresh, &bytes);
    assert_memory_equal(pieces, fresh, sizeof fresh); /* before the context is full there is no difference */
    double worst = 0, spread = 0;
    for (int i = 0; i < VOCAB; i++) {
        worst = fmax(worst, fabs((double)whole[i] - (double)fresh[i]));
        spread = fmax(spread, fabs((double)fresh[i]));
    }
    print_message("after %d tokens: off by %g from the last %d alone, logits up to %g\n", LONG, worst, CONTEXT, spread);
    assert_true(worst < 1e-3 * spread);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(first_come_first_served),
        cmocka_unit_test(giving_up),
        cmocka_unit_test(once_more_on_one_thread),
        cmocka_unit_test_setup_teardown(sessions_in_threads, scratch_start, scratch_finish),
        cmocka_unit_test_setup_teardown(call_within_a_call, scratch_start, scratch_finish),
        cmocka_unit_test_setup_teardown(options, scratch_start, scratch_finish),
        cmocka_unit_test(sliding_context),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
