/* The registry of backends, the one that is native, and one of the program's own. */
#include "base/cancel.h"
#include "support/chat.h"
#include "support/options.h"
#include "support/scratch.h"
#include "support/test.h"
#include "support/tiny_model.h"

#include <hearth/backend.h>

#include <stdlib.h>
#include <string.h>

/* ---- a backend of the program ---- */

static int n_open;

static ht_status echo_load(const char *path, const ht_backend_options *options, void **state, ht_error *err) {
    (void)options, (void)err;
    *state = strdup(path);
    n_open++;
    return *state ? HT_OK : HT_ERR_MEMORY;
}

static void echo_close(void *state) {
    free(state);
    n_open--;
}

static ht_status echo_generate(void *state, const ht_backend_prompt *prompt, const ht_generate_options *options,
                               ht_text_fn *fn, void *user, int32_t *ids, ht_metrics *metrics, ht_error *err) {
    (void)state, (void)ids, (void)err;
    metrics->generated_tokens = options->max_tokens;
    metrics->finish = fn(prompt->text, strlen(prompt->text), user) ? HT_FINISH_STOP : HT_FINISH_CALLBACK;
    return HT_OK;
}

static ht_backend echo_backend(const char *name, int preference) {
    return OPTIONS(ht_backend, with.name = name, with.load = echo_load, with.close = echo_close,
                   with.generate = echo_generate, with.preference = preference);
}

static bool keep_text(const char *text, size_t n, void *user) {
    memcpy(user, text, n + 1);
    return true;
}

UNIT_TEST(a_program_adds_backends) {
    ht_backend_model *m;
    ht_metrics metrics;
    char text[64] = "";
    const ht_backend echo = echo_backend("echo", 10);
    assert_null(ht_backend_get("echo"));
    assert_works(ht_backend_register, &echo);
    assert_string_equal(ht_backend_get("echo")->name, "echo");
    assert_string_equal(ht_backend_get("echo")->summary, "");
    assert_works(ht_backend_load, "echo", "anything", NULL, &m);
    assert_ptr_equal(ht_backend_of(m), ht_backend_get("echo"));
    const ht_backend_prompt prompt = {.text = "hello"};
    assert_works(ht_backend_generate, m, &prompt, NULL, keep_text, text, NULL, &metrics);
    assert_string_equal(text, "hello");
    assert_int_equal(metrics.generated_tokens, 256); /* the default of the options */
    ht_backend_close(m);
    assert_int_equal(n_open, 0);
}

UNIT_TEST(what_a_table_lacks_is_refused_by_name) {
    ht_error err = {0};
    ht_backend_model *m;
    ht_backend_info info;
    ht_model *native;
    const ht_backend bare = OPTIONS(ht_backend, with.name = "bare", with.load = echo_load, with.close = echo_close);
    assert_int_equal(ht_backend_register(&bare, &err), HT_OK);
    assert_int_equal(ht_backend_load("bare", "anything", NULL, &m, &err), HT_OK);
    ht_chat *chat = test_chat((test_message[]){{"user", "Hello"}}, 1);
    const ht_backend_prompt prompt = {.text = "hello"};
    assert_int_equal(ht_backend_generate(m, &prompt, NULL, NULL, NULL, NULL, NULL, &err), HT_ERR_UNSUPPORTED);
    assert_string_equal(err.message, "generate is not supported by bare");
    assert_int_equal(ht_backend_chat(m, chat, NULL, NULL, NULL, NULL, &err), HT_ERR_UNSUPPORTED);
    assert_string_equal(err.message, "chat is not supported by bare");
    assert_int_equal(ht_backend_get_info(m, &info, &err), HT_ERR_UNSUPPORTED);
    assert_string_equal(info.architecture, "");
    assert_int_equal(ht_backend_inspect(m, &prompt, NULL, NULL, NULL, &err), HT_ERR_UNSUPPORTED);
    assert_string_equal(err.message, "inspect is not supported by bare");
    assert_int_equal(ht_backend_cancel(m, &err), HT_ERR_UNSUPPORTED);
    assert_int_equal(ht_backend_native_model(m, "batch", &native, &err), HT_ERR_UNSUPPORTED);
    assert_string_equal(err.message, "batch is not supported by bare");
    ht_chat_free(chat);
    ht_backend_close(m);
}

/* ---- the list ---- */

UNIT_TEST(the_default_is_the_preferred_one) {
    ht_backend_model *m;
    assert_string_equal(ht_backend_default()->name, "native");
    assert_ptr_equal(ht_backend_default(), ht_backend_at(0));
    assert_null(ht_backend_at(-1));
    assert_null(ht_backend_get(NULL));
    assert_fails(HT_ERR_ARGUMENT, "there is no backend \"nobody\", expected one of: native", ht_backend_load, "nobody",
                 "x", NULL, &m);
    assert_null(m);
    int n = 0;
    for (; ht_backend_at(n); n++) assert_true(!n || ht_backend_at(n - 1)->preference >= ht_backend_at(n)->preference);
    assert_null(ht_backend_at(n));
    const ht_backend best = echo_backend("best", 1000);
    assert_works(ht_backend_register, &best);
    assert_string_equal(ht_backend_default()->name, "best");
    assert_works(ht_backend_load, NULL, "x", NULL, &m);
    assert_string_equal(ht_backend_of(m)->name, "best");
    ht_backend_close(m);
}

UNIT_TEST(wrong_tables_are_refused) {
    ht_error err = {0};
    ht_backend b = echo_backend("native", 1);
    assert_fails(HT_ERR_ARGUMENT, "\"native\" is already registered", ht_backend_register, &b);
    b.name = "";
    assert_int_equal(ht_backend_register(&b, &err), HT_ERR_ARGUMENT);
    b = echo_backend("new", 1);
    b.load = NULL;
    assert_int_equal(ht_backend_register(&b, &err), HT_ERR_ARGUMENT);
    b = echo_backend("new", 1);
    b.size = 3;
    assert_int_equal(ht_backend_register(&b, &err), HT_ERR_ARGUMENT);
    assert_null(ht_backend_get("new"));
    static char names[40][8];
    ht_status st = HT_OK;
    for (int i = 0; i < 40 && !st; i++) {
        names[i][0] = (char)('A' + i % 26), names[i][1] = (char)('a' + i / 26);
        b = echo_backend(names[i], 1);
        st = ht_backend_register(&b, &err);
    }
    assert_int_equal(st, HT_ERR_LIMIT);
}

/* ---- native ---- */

static bool keep_part(const ht_answer_piece *piece, void *user) {
    strncat(user, piece->text, piece->n);
    return true;
}

UNIT_TEST(native_answers_as_sessions_do) {
    ht_backend_model *m;
    ht_model *model;
    ht_backend_info info;
    ht_metrics metrics;
    char text[2][2048] = {"", ""};
    const char *path = tiny_write(&(tiny_options){0});
    const ht_generate_options how = OPTIONS(ht_generate_options, with.max_tokens = 20, with.ignore_eos = true);
    assert_works(ht_backend_load, "native", path, NULL, &m);
    assert_works(ht_backend_native_model, m, "sessions", &model);
    ht_chat *chat = test_chat((test_message[]){{"user", "Hello"}}, 1);
    for (int i = 0; i < 2; i++) { /* the second time from what the first has left */
        *text[0] = *text[1] = '\0';
        ht_session *s = tiny_session(model, 512);
        assert_works(ht_generate_chat, s, chat, &how, keep_part, text[0], NULL);
        assert_works(ht_backend_chat, m, chat, &how, keep_part, text[1], &metrics);
        assert_string_equal(text[0], text[1]);
        assert_true(*text[0]);
        assert_true(i ? metrics.reused_tokens > 0 : metrics.reused_tokens == 0);
        ht_session_free(s);
    }
    int32_t ids[10];
    tiny_ids(ids, 10, 1);
    const ht_backend_prompt prompt = {.ids = ids, .n_ids = 10};
    assert_works(ht_backend_generate, m, &prompt, &how, NULL, NULL, NULL, &metrics);
    assert_int_equal(metrics.prompt_tokens, 10);
    assert_int_equal(metrics.generated_tokens, 20);
    assert_works(ht_backend_get_info, m, &info);
    assert_string_equal(info.architecture, "llama");
    assert_string_equal(info.device, "cpu");
    assert_string_equal(info.chat_format, ht_chat_format_name(model));
    assert_int_equal(info.context, ht_model_context(model));
    assert_int_equal(info.vocab, TINY_VOCAB);
    ht_chat_free(chat);
    ht_backend_close(m);
}

typedef struct canceller {
    ht_backend_model *m;
    int pieces;
} canceller;

static bool cancel_all(const char *text, size_t n, void *user) {
    canceller *c = user;
    (void)text, (void)n;
    c->pieces++;
    return ht_backend_cancel(c->m, NULL) == HT_OK;
}

typedef struct key_reader {
    int n, last; /* heads seen; after `last` of them it wants no more; 0: never */
    float sum;
} key_reader;

static bool read_keys(const ht_backend_keys *k, void *user) {
    key_reader *r = user;
    assert_int_equal(k->layer, r->n / k->n_heads);
    assert_int_equal(k->head, r->n % k->n_heads);
    assert_true(k->layer < k->n_layers);
    for (int64_t i = 0; i < k->n_tokens * k->head_dim; i++)
        r->sum += k->keys[i] * k->keys[i] + k->values[i] * k->values[i];
    return ++r->n != r->last;
}

UNIT_TEST(native_keys_come_head_by_head) {
    ht_backend_model *m;
    ht_backend_info info;
    const ht_backend_prompt prompt = {.text = "hello"};
    assert_works(ht_backend_load, "native", tiny_write(&(tiny_options){0}), NULL, &m);
    assert_works(ht_backend_get_info, m, &info);
    key_reader all = {0}, some = {.last = 2};
    assert_works(ht_backend_inspect, m, &prompt, NULL, read_keys, &all);
    assert_true(all.n >= info.n_layers && all.n % info.n_layers == 0 && all.sum > 0);
    assert_fails(HT_ERR_CANCELLED, "", ht_backend_inspect, m, &prompt, NULL, read_keys, &some);
    assert_int_equal(some.n, 2);
    ht_backend_close(m);
}

UNIT_TEST(native_calls_are_cancelled) {
    ht_backend_model *m;
    ht_metrics metrics;
    ht_cancel flag = {0};
    const ht_generate_options how = OPTIONS(ht_generate_options, with.cancel = &flag, with.ignore_eos = true);
    assert_works(ht_backend_load, "native", tiny_write(&(tiny_options){0}), NULL, &m);
    canceller c = {.m = m};
    const ht_backend_prompt prompt = {.text = "hello"};
    assert_fails(HT_ERR_CANCELLED, "", ht_backend_generate, m, &prompt, &how, cancel_all, &c, NULL, &metrics);
    assert_true(c.pieces >= 1 && metrics.generated_tokens < 256);
    ht_cancel_request(&flag);
    assert_fails(HT_ERR_CANCELLED, "", ht_backend_generate, m, &prompt, &how, cancel_all, &c, NULL, &metrics);
    assert_int_equal(metrics.generated_tokens, 0);
    ht_backend_close(m);
}

UNIT_TEST(a_flag_follows_another_one) {
    ht_cancel other = {0};
    ht_cancel_both both = ht_cancel_following(&other), alone = ht_cancel_following(NULL);
    assert_false(ht_cancel_requested(&both.flag) || ht_cancel_requested(&alone.flag));
    ht_cancel_request(&other);
    assert_true(ht_cancel_requested(&both.flag));
    ht_cancel_reset(&other);
    assert_false(ht_cancel_requested(&both.flag));
    ht_cancel_request(&both.flag);
    ht_cancel_request(&alone.flag);
    assert_true(ht_cancel_requested(&both.flag) && ht_cancel_requested(&alone.flag));
    assert_false(ht_cancel_requested(&other));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_program_adds_backends),       cmocka_unit_test(what_a_table_lacks_is_refused_by_name),
        cmocka_unit_test(native_answers_as_sessions_do), cmocka_unit_test(native_calls_are_cancelled),
        cmocka_unit_test(native_keys_come_head_by_head), cmocka_unit_test(the_default_is_the_preferred_one),
        cmocka_unit_test(wrong_tables_are_refused),      cmocka_unit_test(a_flag_follows_another_one),
    };
    return cmocka_run_group_tests(tests, scratch_start, scratch_finish);
}
