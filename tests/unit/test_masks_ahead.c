/* Masks that are found beside a step: they are those that are found in their place, whenever an order is taken back, whatever is
 * forgotten meanwhile, and without a thread. Linked with --wrap for pthread_create (tests/CMakeLists.txt). */
#include "device/device.h"
#include "generate/masks_ahead.h"
#include "models/model.h"
#include "support/scratch.h"
#include "support/test.h"
#include "support/tiny_model.h"
#include "support/weights.h"

#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

static const char grammar[] = "root ::= item+\nitem ::= \"{\" [a-z]{1,20} (\":\" root)? \"}\" | [0-9]{1,3} \",\"";

static bool no_threads;
int __real_pthread_create(pthread_t *t, const pthread_attr_t *attr, void *(*fn)(void *), void *user);
int __wrap_pthread_create(pthread_t *t, const pthread_attr_t *attr, void *(*fn)(void *), void *user);
int __wrap_pthread_create(pthread_t *t, const pthread_attr_t *attr, void *(*fn)(void *), void *user) {
    return no_threads ? 11 : __real_pthread_create(t, attr, fn, user);
}

/* A device that computes elsewhere, and one whose steps take every core. */
static const ht_queue_ops some_queue;
static const ht_device elsewhere = {.queue = &some_queue, .n_threads = 1};
static const ht_device every_core = {.n_threads = 1 << 20};

static ht_grammar *compile(ht_model *model) {
    ht_grammar *g;
    assert_works(ht_grammar_from_gbnf, model, grammar, strlen(grammar), &g);
    return g;
}

static ht_answer_matcher *matcher(ht_grammar *g) {
    ht_answer_matcher *m;
    assert_int_equal(ht_answer_matcher_new(g, NULL, HT_START_TEXT, &m, NULL), HT_OK);
    return m;
}

static int n_missing(ht_answer_matcher *m, const int32_t *guess, int n) {
    ht_answer_places places;
    ht_answer_matcher_missing(m, guess, n, &places);
    return places.n ? places.of[0].n : 0;
}

/* Some token that the mask allows, but for the end. */
static int32_t choose(ht_answer_matcher *m, uint64_t *seed) {
    const uint32_t *mask;
    int32_t chosen = -1;
    uint32_t n = 0;
    assert_int_equal(ht_answer_matcher_mask(m, &mask, NULL), HT_OK);
    for (int32_t id = 0; id < TINY_VOCAB; id++)
        if (id != TINY_EOS && id != TINY_IM_END && mask[id >> 5] >> (id & 31) & 1 && test_random(seed) % ++n == 0)
            chosen = id;
    assert_true(chosen >= 0);
    return chosen;
}

static void accept(ht_answer_matcher *m, int32_t token) {
    bool allowed;
    assert_int_equal(ht_answer_matcher_accept(m, token, &allowed, NULL), HT_OK);
    assert_true(allowed);
}

/* Tokens of a text of the grammar. */
static void make_text(ht_model *model, int32_t *token, int n, uint64_t seed) {
    ht_grammar *g = compile(model);
    ht_answer_matcher *m = matcher(g);
    for (int i = 0; i < n; i++) accept(m, token[i] = choose(m, &seed));
    ht_answer_matcher_free(m);
    ht_grammar_free(g);
}

/* The thread finds all masks of a text and its guesses, while nobody asks for them. */
UNIT_TEST(finds_masks) {
    enum { N = 12 };
    ht_model *model = tiny_load(&(tiny_options){0});
    int32_t token[N];
    make_text(model, token, N, 1);
    ht_grammar *g = compile(model);
    ht_answer_matcher *m = matcher(g);
    ht_mask_order order = {.next = NULL};
    ht_masks_ahead *t = ht_masks_ahead_new(&elsewhere);
    assert_true(n_missing(m, token, N) > 1);
    ht_masks_ahead_order(t, &order, m, token, N);
    assert_true(order.is_there);
    while (n_missing(m, token, N) > 0) nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
    ht_masks_ahead_end(t, &order);
    assert_false(order.is_there);
    ht_masks_ahead_order(t, &order, m, token, N); /* nothing is left to be found */
    assert_false(order.is_there);
    ht_masks_ahead_free(t);
    ht_answer_matcher_free(m);
    ht_grammar_free(g);
    ht_model_free(model);
}

/* A guess that the grammar does not allow, or that is no token, ends what can be known. */
UNIT_TEST(wrong_guesses) {
    ht_model *model = tiny_load(&(tiny_options){0});
    ht_grammar *g = compile(model);
    ht_answer_matcher *m = matcher(g);
    const int32_t open = ht_tokenizer_find(ht_model_tokenizer(model), "{");
    assert_int_equal(n_missing(m, (int32_t[]){open, open, open}, 3), 2);
    assert_int_equal(n_missing(m, (int32_t[]){-1, open}, 2), 1);
    assert_int_equal(n_missing(m, (int32_t[]){open, TINY_VOCAB}, 2), 2);
    assert_int_equal(n_missing(m, (int32_t[]){TINY_EOS, open}, 2), 1);
    assert_int_equal(ht_answer_matcher_length(m), 0);
    ht_answer_matcher_free(m);
    ht_grammar_free(g);
    ht_model_free(model);
}

/* Several texts of one grammar side by side: each walks as it does alone, while orders are late, taken back at once, or forgotten, and
 * the last matcher and its grammar go while others' masks are being found. */
static void walks(ht_masks_ahead *t, ht_model *model, size_t budget) {
    enum { TEXTS = 5, STEPS = 40 };
    ht_grammar *shared = compile(model);
    if (budget) ht_grammar_set_budget(shared, budget);
    ht_answer_matcher *m[TEXTS], *alone[TEXTS];
    ht_mask_order order[TEXTS];
    uint64_t seed = 7, seeds[TEXTS];
    for (int i = 0; i < TEXTS; i++) {
        ht_grammar *own = compile(model);
        alone[i] = matcher(own);
        ht_grammar_free(own);
        m[i] = matcher(shared);
        order[i] = (ht_mask_order){.next = NULL};
        seeds[i] = (uint64_t)i;
    }
    ht_grammar_free(shared);
    for (int step = 0; step < STEPS; step++) {
        for (int i = 0; i < TEXTS; i++) {
            int32_t guess[3];
            uint64_t s = seeds[i];
            for (int k = 0; k < 3; k++) accept(alone[i], guess[k] = choose(alone[i], &s));
            ht_answer_matcher_truncate(alone[i], (size_t)step);
            ht_masks_ahead_order(t, &order[i], m[i], guess, 3);
        }
        for (int i = 0; i < TEXTS; i++) {
            uint64_t s = seeds[i];
            const uint64_t what = test_random(&seed) % 3;
            if (what == 0) ht_masks_ahead_end(t, &order[i]);
            const int32_t own = choose(alone[i], &seeds[i]);
            assert_int_equal(choose(m[i], &s), own);
            accept(alone[i], own);
            accept(m[i], own);
            atomic_store(&order[i].is_late, true);
            if (what == 1) ht_masks_ahead_end(t, &order[i]);
        }
        for (int i = 0; i < TEXTS; i++) ht_masks_ahead_end(t, &order[i]);
    }
    for (int i = 0; i < TEXTS; i++) ht_masks_ahead_order(t, &order[i], m[i], NULL, 0);
    for (int i = 0; i < TEXTS; i++) {
        ht_masks_ahead_end(t, &order[i]);
        ht_answer_matcher_free(m[i]);
        ht_answer_matcher_free(alone[i]);
    }
}

UNIT_TEST(masks_are_the_same) {
    ht_model *model = tiny_load(&(tiny_options){0});
    ht_masks_ahead *t = ht_masks_ahead_new(&elsewhere);
    for (int round = 0; round < test_cases(4, 200); round++) walks(t, model, round % 2 ? 20000 : 0);
    ht_masks_ahead_free(t);
    ht_model_free(model);
}

/* Where there is no core for a thread, or the system gives none, nothing is ordered. */
UNIT_TEST(without_a_thread) {
    ht_model *model = tiny_load(&(tiny_options){0});
    for (int i = 0; i < 2; i++) {
        ht_masks_ahead *t = ht_masks_ahead_new(i ? &every_core : &elsewhere);
        no_threads = true;
        walks(t, model, 0);
        ht_grammar *g = compile(model);
        ht_answer_matcher *m = matcher(g);
        ht_mask_order order = {.next = NULL};
        ht_masks_ahead_order(t, &order, m, NULL, 0);
        assert_false(order.is_there);
        no_threads = false;
        ht_answer_matcher_free(m);
        ht_grammar_free(g);
        ht_masks_ahead_free(t);
    }
    ht_masks_ahead_free(NULL);
    ht_model_free(model);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(finds_masks, scratch_start, scratch_finish),
        cmocka_unit_test_setup_teardown(wrong_guesses, scratch_start, scratch_finish),
        cmocka_unit_test_setup_teardown(masks_are_the_same, scratch_start, scratch_finish),
        cmocka_unit_test_setup_teardown(without_a_thread, scratch_start, scratch_finish),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
