/* Calls on a model of mlx_lm, whose child does what it should: answers, cancellation, turns, errors of single requests. */
#include "support/options.h"
#include "support/scratch.h"
#include "support/scripted_child.h"
#include "support/test.h"
#include "support/tiny_model.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

static const int32_t prompt_ids[] = {0, 1, 2};
static const ht_backend_prompt prompt = {.ids = prompt_ids, .n_ids = 3};

static ht_backend_model *load(const char *script) {
    ht_backend_model *m;
    assert_works(script_load, script, (script_deadlines){0}, &m);
    return m;
}

/* A script that answers the first request behind the load with these lines. */
static ht_backend_model *load_answer(const char *answer) {
    char script[8192];
    snprintf(script, sizeof script, "read -r line; say '%s'; read -r line; id; %s; serve", script_info, answer);
    return load(script);
}

/* ---- answers ---- */

typedef struct reader {
    char text[256];
    ht_backend_model *again; /* called by the callback, unless it is NULL */
    ht_cancel *cancel;       /* requested by the callback, likewise */
    int calls, last_call;    /* after last_call calls it wants no more; 0: never */
} reader;

static bool read_text(const char *text, size_t n, void *user) {
    reader *r = user;
    assert_true(strlen(r->text) + n < sizeof r->text);
    strcat(r->text, text);
    if (r->cancel) ht_cancel_request(r->cancel);
    if (r->again) {
        assert_fails(HT_ERR_ARGUMENT, "from a callback", ht_backend_generate, r->again, &prompt, NULL, NULL, NULL, NULL,
                     NULL);
    }
    return ++r->calls != r->last_call;
}

static ht_status ask(ht_backend_model *m, const ht_generate_options *o, reader *r, ht_metrics *metrics, ht_error *err) {
    *r->text = '\0';
    return ht_backend_generate(m, &(ht_backend_prompt){.text = "ab"}, o, read_text, r, NULL, metrics, err);
}

UNIT_TEST(an_answer_is_text_and_figures) {
    ht_backend_model *m = load("serve");
    ht_metrics metrics;
    reader r = {.again = m};
    for (int i = 0; i < 3; i++) {
        assert_works(ask, m, NULL, &r, &metrics);
        assert_string_equal(r.text, "abc");
        assert_int_equal(metrics.finish, HT_FINISH_STOP);
        assert_int_equal(metrics.stop, -1);
        assert_int_equal(metrics.stop_id, 27);
        assert_int_equal(metrics.generated_tokens, 3);
        assert_int_equal(metrics.prompt_tokens, 2);
        assert_true(metrics.first_token_seconds > 0 && metrics.decode_seconds >= 0);
        assert_int_equal(metrics.peak_memory_bytes, 1);
    }
    ht_backend_info info;
    assert_works(ht_backend_get_info, m, &info);
    assert_string_equal(info.architecture, "llama");
    assert_string_equal(info.engine, "script");
    assert_string_equal(info.chat_format, "chatml");
    assert_int_equal(info.context, 1000000);
    assert_int_equal(info.memory_bytes, 8192);
    ht_backend_close(m);
}

UNIT_TEST(stop_strings_and_callbacks_end_an_answer) {
    ht_backend_model *m = load("serve");
    ht_metrics metrics;
    reader r = {0};
    const char *const stop[] = {"c", "bc"};
    const ht_generate_options stops = OPTIONS(ht_generate_options, with.stop = stop, with.n_stop = 2);
    assert_works(ask, m, &stops, &r, &metrics);
    assert_string_equal(r.text, "a");
    assert_int_equal(metrics.finish, HT_FINISH_STOP);
    assert_int_equal(metrics.stop, 1); /* it begins before the other one that ends there */
    assert_int_equal(metrics.stop_id, -1);
    r = (reader){.last_call = 2};
    assert_works(ask, m, NULL, &r, &metrics);
    assert_string_equal(r.text, "ab");
    assert_int_equal(metrics.finish, HT_FINISH_CALLBACK);
    assert_int_equal(metrics.stop, -1);
    assert_int_equal(metrics.generated_tokens, 2);
    r = (reader){0};
    assert_works(ask, m, NULL, &r, &metrics);
    assert_string_equal(r.text, "abc");
    ht_backend_close(m);
}

/* The line that the child gets of a request. */
static void read_request(const ht_generate_options *o, char text[4096]) {
    char script[1024];
    snprintf(script, sizeof script,
             "printf '%%s\\n' \"$line\" >'%s'; say \"{\\\"id\\\":$id,\\\"event\\\":\\\"begin\\\","
             "\\\"reused\\\":0}\"; done_with stop",
             scratch_path("request"));
    ht_backend_model *m = load_answer(script);
    assert_works(ht_backend_generate, m, &prompt, o, NULL, NULL, NULL, NULL);
    ht_backend_close(m);
    FILE *f = fopen(scratch_path("request"), "r");
    assert_non_null(f);
    assert_non_null(fgets(text, 4096, f));
    fclose(f);
}

UNIT_TEST(values_left_out_are_the_checkpoints) {
    static const char config[] = "{\"do_sample\": true, \"top_k\": 7, \"temperature\": 0.25}";
    char text[4096];
    scratch_write("generation_config.json", config, sizeof config - 1);
    read_request(NULL, text);
    assert_non_null(strstr(text, "\"temperature\":0.25,\"top_k\":7,\"top_p\":0.9"));
    assert_int_equal(remove(scratch_path("generation_config.json")), 0);
    read_request(NULL, text);
    assert_non_null(strstr(text, "\"temperature\":0.69"));
}

UNIT_TEST(all_options_reach_the_child) {
    char text[4096] = "";
    const ht_logit_bias bias[] = {{9, -100}, {3, 0.5f}};
    const ht_sampler_options sampler = OPTIONS(
        ht_sampler_options, with.temperature = 0.5f, with.top_k = 7, with.top_p = 0.25f, with.min_p = 0.125f,
        with.repeat_penalty = 1.5f, with.repeat_window = -1, with.seed = UINT64_MAX, with.order = "min_p,top_k",
        with.presence_penalty = -0.5f, with.frequency_penalty = 1.25f, with.logit_bias = bias, with.n_logit_bias = 2);
    const ht_generate_options o = OPTIONS(ht_generate_options, with.max_tokens = 9, with.sampler = &sampler);
    read_request(&o, text);
    assert_string_equal(
        text,
        "{\"id\":2,\"command\":\"generate\",\"ids\":[0,1,2],\"max_tokens\":9,\"stop_ids\":[27],"
        "\"sampler\":{\"temperature\":0.5,\"top_k\":7,\"top_p\":0.25,\"min_p\":0.125,"
        "\"repeat_penalty\":1.5,\"repeat_window\":-1,\"presence_penalty\":-0.5,"
        "\"frequency_penalty\":1.25,\"logit_bias\":[[3,0.5],[9,-100.0]],\"seed\":\"18446744073709551615\",\"order\":["
        "\"repeat_penalty\",\"temperature\",\"top_p\",\"min_p\",\"top_k\"]}}\n");
}

/* ---- requests that are refused ---- */

static void check_refused(ht_backend_model *m, const ht_backend_prompt *p, const ht_generate_options *o,
                          ht_status status, const char *says) {
    ht_metrics metrics;
    assert_fails(status, says, ht_backend_generate, m, p, o, NULL, NULL, NULL, &metrics);
    assert_int_equal(metrics.finish, 0);
    assert_int_equal(metrics.stop, -1);
    assert_int_equal(metrics.stop_id, -1);
    reader r = {0};
    assert_works(ask, m, NULL, &r, NULL);
    assert_string_equal(r.text, "abc");
}

UNIT_TEST(wrong_requests_are_refused_and_harmless) {
    ht_backend_model *m = load("serve");
    const int32_t outside[] = {0, SCRIPT_VOCAB}, below[] = {-1};
    const char *empty = "";
    check_refused(m, &(ht_backend_prompt){0}, NULL, HT_ERR_ARGUMENT, "the prompt is empty");
    check_refused(m, &(ht_backend_prompt){.ids = outside, .n_ids = 2}, NULL, HT_ERR_ARGUMENT,
                  "token 1 of the prompt is 28");
    check_refused(m, &(ht_backend_prompt){.ids = below, .n_ids = 1}, NULL, HT_ERR_ARGUMENT, "is -1");
    check_refused(m, &prompt, OPTIONS_AT(ht_generate_options, with.lookup = true), HT_ERR_UNSUPPORTED, "lookup is not");
    check_refused(m, &prompt, OPTIONS_AT(ht_generate_options, with.max_thinking_tokens = 0), HT_ERR_UNSUPPORTED,
                  "max_thinking_tokens is not");
    check_refused(m, &prompt, OPTIONS_AT(ht_generate_options, with.draft_tokens = 3), HT_ERR_UNSUPPORTED,
                  "draft_tokens is not");
    check_refused(m, &prompt, OPTIONS_AT(ht_generate_options, with.max_tokens = 0), HT_ERR_ARGUMENT, "max_tokens is 0");
    check_refused(m, &prompt, OPTIONS_AT(ht_generate_options, with.stop = &empty, with.n_stop = 1), HT_ERR_ARGUMENT,
                  "stop");
    const ht_sampler_options wide = OPTIONS(ht_sampler_options, with.top_p = 2);
    const ht_sampler_options unknown = OPTIONS(ht_sampler_options, with.order = "x");
    check_refused(m, &prompt, OPTIONS_AT(ht_generate_options, with.sampler = &wide), HT_ERR_ARGUMENT, "top_p is 2");
    const ht_logit_bias beyond = {SCRIPT_VOCAB, 1};
    const ht_sampler_options biased = OPTIONS(ht_sampler_options, with.logit_bias = &beyond, with.n_logit_bias = 1);
    check_refused(m, &prompt, OPTIONS_AT(ht_generate_options, with.sampler = &biased), HT_ERR_ARGUMENT,
                  "logit_bias of token 28");
    check_refused(m, &prompt, OPTIONS_AT(ht_generate_options, with.sampler = &unknown), HT_ERR_ARGUMENT,
                  "sampler order");
    ht_backend_close(m);
}

UNIT_TEST(an_error_of_a_request_ends_it_alone) {
    ht_error err = {0};
    ht_backend_model *m = load_answer(
        "say \"{\\\"id\\\":$id,\\\"event\\\":\\\"error\\\",\\\"kind\\\":\\\"memory\\\",\\\"message\\\":\\\"too "
        "much\\\"}\"");
    check_refused(m, &prompt, NULL, HT_ERR_MEMORY, "mlx_lm: too much");
    ht_backend_close(m);
    assert_int_equal(
        script_load("read -r line; say '{\"id\":1,\"event\":\"error\",\"kind\":\"unsupported\",\"message\":\"no such "
                    "type\"}'; serve",
                    (script_deadlines){0}, &m, &err),
        HT_ERR_UNSUPPORTED);
    assert_string_equal(err.message, "mlx_lm: no such type");
    assert_null(m);
}

static void check_option(const ht_backend_options *with, ht_status status, const char *says) {
    ht_backend_model *m;
    assert_fails(status, says, ht_backend_load, "mlx_lm", scratch_directory(), with, &m);
    assert_null(m);
}

UNIT_TEST(options_that_mlx_has_not_are_refused) {
    const struct {
        ht_model_options with;
        const char *name;
    } cases[] = {
        {OPTIONS(ht_model_options, with.precision = HT_PRECISION_FAST), "precision is not supported by mlx_lm"},
        {OPTIONS(ht_model_options, with.sliding = true), "sliding is not supported"},
        {OPTIONS(ht_model_options, with.slots = 2), "slots is not supported"},
        {OPTIONS(ht_model_options, with.kv_dtype = HT_F32), "kv_dtype is not supported"},
        {OPTIONS(ht_model_options, with.packed_cache = "x"), "packed_cache is not supported"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        check_option(OPTIONS_AT(ht_backend_options, with.model = &cases[i].with), HT_ERR_UNSUPPORTED, cases[i].name);
    const char *two[] = {scratch_directory(), scratch_directory()}, *none = "no-such-adapter";
    check_option(OPTIONS_AT(ht_backend_options, with.adapters = two, with.n_adapters = 2), HT_ERR_UNSUPPORTED,
                 "adapter");
    check_option(OPTIONS_AT(ht_backend_options, with.adapters = &none, with.n_adapters = 1), HT_ERR_IO, none);
    check_option(OPTIONS_AT(ht_backend_options, with.next_seconds = 0), HT_ERR_ARGUMENT, "next_seconds is 0");
    ht_backend_model *m;
    assert_fails(HT_ERR_IO, "", ht_backend_load, "mlx_lm", "no-such-model", NULL, &m);
    const char *file = tiny_write(&(tiny_options){0});
    assert_fails(HT_ERR_UNSUPPORTED, "and this is a file", ht_backend_load, "mlx_lm", file, NULL, &m);
}

UNIT_TEST(what_it_has_not_is_refused_by_name) {
    ht_backend_model *m = load("serve");
    ht_model *native;
    ht_error err = {0};
    assert_int_equal(ht_backend_native_model(m, "classify", &native, &err), HT_ERR_UNSUPPORTED);
    assert_string_equal(err.message, "classify is not supported by mlx_lm");
    assert_null(native);
    ht_backend_close(m);
}

/* ---- cancellation ---- */

UNIT_TEST(calls_are_cancelled_while_the_child_computes) {
    ht_backend_model *m = load("slow=1; serve");
    ht_metrics metrics;
    for (int i = 0; i < 5; i++) {
        ht_cancel flag = {0};
        reader r = {.cancel = &flag};
        const ht_generate_options o = OPTIONS(ht_generate_options, with.cancel = &flag);
        assert_fails(HT_ERR_CANCELLED, "", ask, m, &o, &r, &metrics);
        assert_string_equal(r.text, "a");
        assert_int_equal(metrics.generated_tokens, 1);
        assert_int_equal(metrics.finish, 0);
        assert_int_equal(metrics.stop, -1);
        assert_int_equal(metrics.stop_id, -1);
        assert_fails(HT_ERR_CANCELLED, "", ask, m, &o, &r, &metrics); /* before it begins */
        assert_string_equal(r.text, "");
    }
    ht_backend_close(m);
}

UNIT_TEST(loading_is_cancelled) {
    ht_cancel flag = {0};
    ht_cancel_request(&flag);
    const int n_files = script_open_files();
    const ht_model_options model = OPTIONS(ht_model_options, with.cancel = &flag);
    check_option(
        OPTIONS_AT(ht_backend_options, with.model = &model, with.python = "/bin/sh", with.bridge = "sleep 1000"),
        HT_ERR_CANCELLED, "cancelled");
    script_check_clean(n_files);
}

/* ---- threads ---- */

enum { THREADS = 4 };

typedef struct worker {
    pthread_t thread;
    ht_backend_model *m;
    int wrong, cancelled;
    _Atomic int *running;
} worker;

static void *call_often(void *arg) {
    worker *w = arg;
    for (int i = 0; i < 20; i++) {
        ht_error err = {0};
        reader r = {0};
        if (ask(w->m, NULL, &r, NULL, &err) || strcmp(r.text, "abc") != 0) w->wrong++;
    }
    return NULL;
}

UNIT_TEST(threads_take_turns) {
    ht_backend_model *m = load("serve");
    worker workers[THREADS];
    for (int i = 0; i < THREADS; i++) {
        workers[i] = (worker){.m = m};
        assert_int_equal(pthread_create(&workers[i].thread, NULL, call_often, &workers[i]), 0);
    }
    for (int i = 0; i < THREADS; i++) {
        pthread_join(workers[i].thread, NULL);
        assert_int_equal(workers[i].wrong, 0);
    }
    ht_backend_close(m);
}

static void *call_until_cancelled(void *arg) {
    worker *w = arg;
    ht_error err = {0};
    reader r = {0};
    atomic_fetch_add(w->running, 1);
    w->cancelled = ask(w->m, NULL, &r, NULL, &err) == HT_ERR_CANCELLED;
    atomic_fetch_sub(w->running, 1);
    return NULL;
}

/* Calls that compute and calls that wait. One that has not begun yet is not touched, so it is asked for more than once. */
UNIT_TEST(all_calls_are_cancelled_at_once) {
    ht_backend_model *m = load("slow=1; serve");
    _Atomic int running = 0;
    worker workers[THREADS];
    for (int i = 0; i < THREADS; i++) {
        workers[i] = (worker){.m = m, .running = &running};
        assert_int_equal(pthread_create(&workers[i].thread, NULL, call_until_cancelled, &workers[i]), 0);
    }
    while (atomic_load(&running) < THREADS) nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
    while (atomic_load(&running)) {
        assert_works(ht_backend_cancel, m);
        nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
    }
    for (int i = 0; i < THREADS; i++) {
        pthread_join(workers[i].thread, NULL);
        assert_true(workers[i].cancelled);
    }
    ht_backend_close(m);
}

static int setup(void **state) {
    (void)state;
    scratch_make();
    script_write_checkpoint();
    return 0;
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(an_answer_is_text_and_figures),
        cmocka_unit_test(stop_strings_and_callbacks_end_an_answer),
        cmocka_unit_test(values_left_out_are_the_checkpoints),
        cmocka_unit_test(all_options_reach_the_child),
        cmocka_unit_test(wrong_requests_are_refused_and_harmless),
        cmocka_unit_test(an_error_of_a_request_ends_it_alone),
        cmocka_unit_test(options_that_mlx_has_not_are_refused),
        cmocka_unit_test(what_it_has_not_is_refused_by_name),
        cmocka_unit_test(calls_are_cancelled_while_the_child_computes),
        cmocka_unit_test(loading_is_cancelled),
        cmocka_unit_test(threads_take_turns),
        cmocka_unit_test(all_calls_are_cancelled_at_once),
    };
    return cmocka_run_group_tests(tests, setup, scratch_finish);
}
