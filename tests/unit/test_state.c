/* State files: a restored session goes on with the bits of the saved one; what is damaged, foreign or newer is refused, and
 * leaves the session as it was. */
#include "generate/session_internal.h"
#include "support/adapters.h"
#include "support/options.h"
#include "support/scratch.h"
#include "support/test.h"
#include "support/tiny_model.h"

#include <hearth/hearth.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { TOKENS = 800, MORE = 60, WINDOW = 40 };

static int32_t ids[TOKENS];

static void ok(ht_status status, const ht_error *err) {
    if (status) fail_msg("%s", err->message);
}

static int setup(void **state) {
    (void)state;
    scratch_make();
    tiny_ids(ids, TOKENS, 7);
    return 0;
}

static char *saved(const ht_session *s, const char *name) {
    static char path[512];
    ht_error err = {0};
    snprintf(path, sizeof path, "%s", scratch_path(name));
    ok(ht_session_save(s, path, &err), &err);
    return path;
}

static ht_status load(ht_session *s, const char *name, ht_error *err) {
    *err = (ht_error){0};
    return ht_session_load(s, scratch_path(name), err);
}

/* ---- bits ---- */

static const tiny_options kinds[] = {{.type = HT_W_Q8_0},
                                     {.type = HT_W_Q8_0, .window = WINDOW},
                                     {.window = WINDOW, .kv = HT_F32},
                                     {.type = HT_W_Q4_0, .kv = HT_I8},
                                     {.type = HT_W_Q4_0, .kv = HT_BF16, .window = WINDOW},
                                     {.type = HT_W_Q8_0, .window = WINDOW, .chunked = true},
                                     {.type = HT_W_Q8_0, .latent = true},
                                     {.latent = true, .kv = HT_I8},
                                     {.type = HT_W_Q8_0, .recurrent = true}};
enum { N_KINDS = sizeof kinds / sizeof *kinds };

UNIT_TEST(restored_sessions_go_on_with_the_same_bits) {
    static const int lengths[] = {700, 257, 0, 1, 255, 256};
    float *want = tiny_rows(TOKENS), *got = tiny_rows(TOKENS);
    for (int k = 0; k < N_KINDS; k++) {
        ht_model *m = tiny_load(&kinds[k]);
        for (int i = 0; i < (TEST_SLOW || test_is_late() ? 2 : 6); i++) {
            const int n = lengths[i];
            ht_error err;
            ht_session *s = tiny_session(m, 64), *other = tiny_session(m, 64);
            tiny_forward(s, ids, (size_t)n, true, NULL);
            saved(s, "state");
            tiny_forward(other, ids + 5, 100, true, NULL); /* which goes */
            ok(load(other, "state", &err), &err);
            assert_int_equal(ht_session_length(other), n);
            if (n) assert_memory_equal(ht_session_tokens(other), ids, (size_t)n * sizeof *ids);
            assert_int_equal(ht_session_cache_bytes(other) + ht_cache_growth(other->cache, n),
                             ht_session_cache_bytes(s) + ht_cache_growth(s->cache, n));
            for (int back = 0; back < 2; back++) { /* and from where both can go back */
                const int64_t from = ht_session_length(s);
                tiny_forward(s, ids + from, (size_t)(n + MORE - from), true, want);
                tiny_forward(other, ids + from, (size_t)(n + MORE - from), true, got);
                assert_memory_equal(got + from * TINY_VOCAB, want + from * TINY_VOCAB,
                                    (size_t)(n + MORE - from) * TINY_VOCAB * sizeof(float));
                for (int64_t p = 0; p < n; p++)
                    assert_int_equal(ht_cache_kept(other->cache, p), ht_cache_kept(s->cache, p));
                ok(ht_session_truncate(s, n / 2, &err), &err);
                ok(ht_session_truncate(other, n / 2, &err), &err);
            }
            ht_session_free(s);
            ht_session_free(other);
        }
        ht_model_free(m);
    }
    free(want), free(got);
}

/* A sampled answer, too, goes on where the saved one was; the last token has not been computed when it is saved. */
UNIT_TEST(answers_go_on) {
    const ht_sampler_options lively = OPTIONS(ht_sampler_options, with.temperature = 1.5f, with.seed = 9);
    ht_model *m = tiny_load(&kinds[1]);
    ht_error err = {0};
    for (int sampled = 0; sampled < 2; sampled++) {
        ht_generate_options o = OPTIONS(ht_generate_options, with.max_tokens = 40, with.ignore_eos = true,
                                        with.sampler = sampled ? &lively : NULL);
        ht_session *s = tiny_session(m, 64), *other = tiny_session(m, 64);
        ok(ht_generate(s, ids, 100, &o, NULL, NULL, NULL, &err), &err);
        assert_int_equal(ht_session_length(s), 140);
        saved(s, "answer");
        ok(load(other, "answer", &err), &err);
        ok(ht_generate(s, NULL, 0, &o, NULL, NULL, NULL, &err), &err);
        ok(ht_generate(other, NULL, 0, &o, NULL, NULL, NULL, &err), &err);
        assert_int_equal(ht_session_length(other), 180);
        assert_memory_equal(ht_session_tokens(other), ht_session_tokens(s), 180 * sizeof *ids);
        ht_session_free(s);
        ht_session_free(other);
    }
    ht_model_free(m);
}

/* What a ring has dropped before it was saved is not there afterwards: going back so far computes all tokens again; and a
 * session of other chunks has other rings. */
UNIT_TEST(rings_know_what_they_hold) {
    float *want = tiny_rows(TOKENS), *got = tiny_rows(TOKENS);
    ht_model *m = tiny_load(&kinds[1]);
    ht_error err = {0};
    ht_session *s = tiny_session(m, 300), *fresh = tiny_session(m, 300);
    tiny_forward(s, ids, 700, true, NULL);
    tiny_forward(fresh, ids, TOKENS, true, want);
    saved(s, "ring");
    static const int32_t chunks[] = {1, 50, 300, 600};
    for (int i = 0; i < 4; i++) {
        ht_session *other = tiny_session(m, chunks[i]);
        ok(load(other, "ring", &err), &err);
        bool lost = false;
        for (int n = 699; n > 0 && !lost; n -= 50) {
            lost = ht_cache_kept(other->cache, n) == 0;
            if (lost) assert_int_equal(ht_cache_kept(other->cache, n - 1), 0);
            ok(ht_session_truncate(other, n, &err), &err);
            tiny_forward(other, ids + n, 30, true, got);
            assert_memory_equal(got + n * TINY_VOCAB, want + n * TINY_VOCAB, 30 * TINY_VOCAB * sizeof(float));
        }
        ht_session_reset(other);
        tiny_forward(other, ids, 300, true, got);
        assert_memory_equal(got, want, 300 * TINY_VOCAB * sizeof(float));
        ok(ht_session_truncate(other, 280, &err), &err);
        ht_session_free(other);
    }
    ht_session_free(s);
    ht_session_free(fresh);
    ht_model_free(m);
    free(want), free(got);
}

/* ---- refusals ---- */

/* The session holds `n` tokens and computes what it would. */
static void still_as_it_was(ht_session *s, int n, const float *want) {
    float *got = tiny_rows(TOKENS);
    ht_error err = {0};
    assert_int_equal(ht_session_length(s), n);
    tiny_forward(s, ids + n, 10, true, got);
    assert_memory_equal(got + n * TINY_VOCAB, want + n * TINY_VOCAB, 10 * TINY_VOCAB * sizeof(float));
    ok(ht_session_truncate(s, n, &err), &err);
    free(got);
}

UNIT_TEST(damage_is_found) {
    float *want = tiny_rows(TOKENS);
    ht_model *m = tiny_load(&(tiny_options){.type = HT_W_Q8_0, .window = WINDOW});
    ht_session *s = tiny_session(m, 64), *other = tiny_session(m, 64);
    ht_error err;
    size_t n;
    tiny_forward(other, ids, 50, true, NULL);
    tiny_forward(s, ids, 60, true, want);
    ht_session_reset(s);
    tiny_forward(s, ids, 23, true, NULL);
    saved(s, "whole");
    char *bytes = scratch_read("whole", &n), *changed = malloc(n + 1);
    const size_t step = (size_t)test_cases(97, 1);
    for (size_t cut = 0; cut < n; cut += cut < 700 ? 1 : step) { /* all of its head, then some */
        scratch_write("cut", bytes, cut);
        assert_fails(HT_ERR_FORMAT, "cut", load, other, "cut");
    }
    uint64_t seed = 5;
    for (int i = 0, most = test_cases(200, 10000); i < most; i++) {
        seed = seed * 6364136223846793005u + 1442695040888963407u;
        const size_t bit = (size_t)(seed >> 20) % (8 * n);
        memcpy(changed, bytes, n);
        changed[bit / 8] ^= (char)(1 << bit % 8);
        scratch_write("flipped", changed, n);
        if (load(other, "flipped", &err) == HT_OK)
            fail_msg("with bit %zu of byte %zu turned, it is restored", bit % 8, bit / 8);
    }
    memcpy(changed, bytes, n);
    changed[n] = 0;
    scratch_write("longer", changed, n + 1);
    assert_int_equal(load(other, "longer", &err), HT_ERR_FORMAT);
    changed[8] = 2;
    scratch_write("newer", changed, n);
    assert_fails(HT_ERR_UNSUPPORTED, "version 2", load, other, "newer");
    scratch_write("text", "a letter to my model, which is no state at all\n", 47);
    assert_fails(HT_ERR_FORMAT, "no state file", load, other, "text");
    assert_int_equal(load(other, "nothing", &err), HT_ERR_IO);
    still_as_it_was(other, 50, want);
    free(bytes), free(changed), free(want);
    ht_session_free(s);
    ht_session_free(other);
    ht_model_free(m);
}

static void refuse(ht_session *s, const char *name, ht_status status, const char *text) {
    const int64_t n = ht_session_length(s);
    assert_fails(status, text, load, s, name);
    assert_int_equal(ht_session_length(s), n);
}

UNIT_TEST(what_is_foreign_is_refused) {
    ht_model *m = tiny_load(&kinds[0]), *weights = tiny_load(&(tiny_options){.type = HT_W_Q4_0}),
             *window = tiny_load(&kinds[1]), *cache = tiny_load(&(tiny_options){.type = HT_W_Q8_0, .kv = HT_F32});
    ht_session *s = tiny_session(m, 64), *other;
    ht_error err;
    tiny_forward(s, ids, 30, true, NULL);
    saved(s, "foreign");
    struct {
        ht_model *model;
        const char *text;
    } others[] = {{weights, "was saved with \"model "}, {window, "model "}, {cache, "keys and values f16"}};
    for (size_t i = 0; i < sizeof others / sizeof *others; i++) {
        other = tiny_session(others[i].model, 64);
        tiny_forward(other, ids, 5, true, NULL);
        refuse(other, "foreign", HT_ERR_ARGUMENT, others[i].text);
        ht_session_free(other);
    }
    /* Adapters, their scales, and none. */
    ht_adapter *a = test_adapter_for(m, 4, 1, 3), *b = test_adapter_for(m, 4, 1, 4);
    const float one = 1, half = 0.5f;
    other = tiny_session(m, 64);
    ok(ht_session_set_adapters(other, &a, &one, 1, &err), &err);
    refuse(other, "foreign", HT_ERR_ARGUMENT, "was saved without \"adapter ");
    tiny_forward(other, ids, 40, true, NULL);
    saved(other, "adapted");
    refuse(s, "adapted", HT_ERR_ARGUMENT, "was saved with \"adapter ");
    ht_session_reset(other);
    ok(load(other, "adapted", &err), &err);
    ht_session_reset(other);
    ok(ht_session_set_adapters(other, &a, &half, 1, &err), &err);
    refuse(other, "adapted", HT_ERR_ARGUMENT, "times 0.5");
    ok(ht_session_set_adapters(other, &b, &one, 1, &err), &err);
    refuse(other, "adapted", HT_ERR_ARGUMENT, "and this session has \"adapter ");
    ht_session_free(other);
    ht_adapter_free(a);
    ht_adapter_free(b);
    /* A context that it does not fit. */
    ht_model *small;
    ok(ht_model_load(tiny_write(&kinds[0]), OPTIONS_AT(ht_model_options, with.context = 29), &small, &err), &err);
    other = tiny_session(small, 64);
    refuse(other, "foreign", HT_ERR_LIMIT, "holds 30 tokens");
    ht_session_free(other);
    ht_model_free(small);
    /* Memory that is not there. */
    other = tiny_session(m, 64);
    const size_t old = ht_memory_set_limit(m->device, ht_memory_get(m->device).active_bytes + 40000);
    assert_int_equal(load(other, "foreign", &err), HT_ERR_MEMORY);
    ht_memory_set_limit(m->device, old);
    assert_int_equal(ht_session_length(other), 0);
    ok(load(other, "foreign", &err), &err);
    ht_session_free(other);
    ht_session_free(s);
    ht_model_free(m), ht_model_free(weights), ht_model_free(window), ht_model_free(cache);
}

/* What cannot be written leaves what is there. */
UNIT_TEST(failed_saves_change_nothing) {
    ht_model *m = tiny_load(&kinds[0]);
    ht_session *s = tiny_session(m, 64);
    tiny_forward(s, ids, 20, true, NULL);
    assert_fails(HT_ERR_IO, "", ht_session_save, s, scratch_path("no/such/place"));
    assert_fails(HT_ERR_IO, "", ht_session_save, s, scratch_directory());
    ht_session_free(s);
    ht_model_free(m);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(restored_sessions_go_on_with_the_same_bits),
        cmocka_unit_test(answers_go_on),
        cmocka_unit_test(rings_know_what_they_hold),
        cmocka_unit_test(damage_is_found),
        cmocka_unit_test(what_is_foreign_is_refused),
        cmocka_unit_test(failed_saves_change_nothing),
    };
    return cmocka_run_group_tests(tests, setup, scratch_finish);
}
