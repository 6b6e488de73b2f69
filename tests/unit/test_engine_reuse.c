/* What an engine reports of its prefix cache: every reason why not more of a prompt was there, with its numbers; and nothing
 * of what was asked with another salt. */
#include "support/adapters.h"
#include "support/engine_run.h"
#include "support/options.h"
#include "support/scratch.h"
#include "support/test.h"
#include "support/tiny_model.h"

#include <string.h>

enum { MOST = 1400, WINDOW = 40 };

static ht_model *growing, *sliding, *recurrent;
static int32_t ids[MOST], other[MOST]; /* the latter: without a common beginning */

static int setup(void **state) {
    (void)state;
    scratch_make();
    growing = tiny_load(&(tiny_options){.type = HT_W_Q8_0});
    sliding = tiny_load(&(tiny_options){.type = HT_W_Q8_0, .window = WINDOW});
    recurrent = tiny_load(&(tiny_options){.type = HT_W_Q8_0, .recurrent = true});
    tiny_ids(ids, MOST, 7);
    for (int i = 0; i < MOST; i++) other[i] = (ids[i] + 1) % TINY_IM_START;
    return 0;
}

static int teardown(void **state) {
    (void)state;
    ht_model_free(growing);
    ht_model_free(sliding);
    ht_model_free(recurrent);
    scratch_remove();
    return 0;
}

/* An answer with the tokens that it has alone. */
static ht_reuse ask(ht_engine *e, ht_model *m, const int32_t *token, size_t n, const engine_question *how) {
    const engine_answer is = engine_ask(e, token, n, how), want = engine_alone(m, token, n, how);
    assert_memory_equal(is.token, want.token, sizeof want.token);
    return is.reuse;
}

static void expect(ht_reuse is, ht_reuse_end end, int64_t cached, int64_t reused) {
    if (is.end != end) fail_msg("\"%s\", expected \"%s\"", ht_reuse_end_name(is.end), ht_reuse_end_name(end));
    assert_int_equal(is.cached, cached);
    assert_int_equal(is.reused, reused);
    if (end == HT_REUSE_DIFFERS) return;
    assert_int_equal(is.place, 0);
    assert_int_equal(is.token, 0);
    assert_int_equal(is.kept_token, 0);
}

UNIT_TEST(new_all_and_ends) {
    ht_engine *e = engine_open(growing, 0, SIZE_MAX);
    expect(engine_warm(e, ids, 300, NULL), HT_REUSE_NEW, 0, 0);
    expect(ask(e, growing, ids, 300, NULL), HT_REUSE_ALL, 300, 299);
    expect(engine_warm(e, ids, 300, NULL), HT_REUSE_ALL, 300, 299);
    expect(ask(e, growing, ids, 257, NULL), HT_REUSE_ALL, 257, 256);
    expect(engine_warm(e, other, 290, NULL), HT_REUSE_NEW, 0, 0);
    expect(engine_warm(e, other, 500, NULL), HT_REUSE_ENDS, 290, 290);
    expect(ask(e, growing, other, 600, NULL), HT_REUSE_ENDS, 500, 500);
    /* The answer is kept with its prompt, but for the last token, which nobody computed. */
    int32_t longer[700];
    const engine_answer answer = engine_alone(growing, other, 600, NULL);
    memcpy(longer, other, 600 * sizeof *longer);
    memcpy(longer + 600, answer.token, 8 * sizeof *longer);
    expect(ask(e, growing, longer, 608, NULL), HT_REUSE_ALL, 607, 607);
    const ht_engine_statistics f = ht_engine_get_statistics(e);
    assert_int_equal(f.prefix_lookups, 8);
    assert_int_equal(f.prefix_hits, 6);
    assert_int_equal(f.reused_tokens, 299 + 299 + 256 + 290 + 500 + 607);
    assert_true(f.prefix_bytes > 0 && f.prefix_bytes == f.kv_bytes);
    ht_engine_close(e);
}

UNIT_TEST(another_token) {
    ht_engine *e = engine_open(growing, 0, SIZE_MAX);
    static const int places[] = {400, 256, 511, 3, 0};
    (void)engine_warm(e, ids, 600, NULL);
    for (int i = 0; i < 5; i++) {
        const int place = places[i];
        int32_t token[550];
        memcpy(token, ids, sizeof token);
        token[place] = other[place];
        const ht_reuse is = i % 2 ? engine_warm(e, token, 550, NULL) : ask(e, growing, token, 550, NULL);
        if (place == 0) {
            expect(is, HT_REUSE_NEW, 0, 0);
            continue;
        }
        expect(is, HT_REUSE_DIFFERS, place, place < 8 ? 0 : place);
        assert_int_equal(is.place, place);
        assert_int_equal(is.token, other[place]);
        assert_int_equal(is.kept_token, ids[place]);
    }
    ht_engine_close(e);
}

UNIT_TEST(too_short) {
    ht_engine *e = engine_open(growing, 0, SIZE_MAX);
    expect(ask(e, growing, ids, 5, NULL), HT_REUSE_SHORT, 0, 0);
    (void)engine_warm(e, ids, 100, NULL);
    expect(ask(e, growing, ids, 5, NULL), HT_REUSE_SHORT, 5, 0);
    expect(ask(e, growing, ids, 1, NULL), HT_REUSE_SHORT, 1, 0);
    expect(ask(e, growing, ids, 9, NULL), HT_REUSE_ALL, 9, 8);
    ht_engine_close(e);
}

UNIT_TEST(evicted) {
    ht_engine *e = engine_open(growing, 0, 2 * engine_node_bytes(growing));
    (void)engine_warm(e, ids, 512, NULL);
    expect(ask(e, growing, ids, 500, NULL), HT_REUSE_ALL, 500, 499);
    (void)engine_warm(e, other, 256, NULL); /* in the place of the second page */
    expect(engine_warm(e, ids, 512, NULL), HT_REUSE_EVICTED, 256, 256);
    (void)engine_warm(e, other, 512, NULL);
    expect(ask(e, growing, ids, 520, NULL), HT_REUSE_EVICTED, 0, 0);
    expect(engine_warm(e, ids, 512, &(engine_question){.salt = "other"}), HT_REUSE_NEW, 0, 0);
    assert_true(ht_engine_get_statistics(e).prefix_evicted > 0);
    assert_true(ht_engine_get_statistics(e).prefix_bytes <= 2 * engine_node_bytes(growing));
    ht_engine_close(e);
}

UNIT_TEST(other_adapters) {
    ht_adapter *a = test_adapter_for(growing, 2, 1, 5), *b = test_adapter_for(growing, 2, 1, 6);
    ht_engine *e = engine_open(growing, 0, SIZE_MAX);
    const engine_question with_a = {.adapter = a}, half_a = {.adapter = a, .scale = 0.5f}, with_b = {.adapter = b};
    (void)engine_warm(e, ids, 400, &with_a);
    expect(ask(e, growing, ids, 300, NULL), HT_REUSE_ADAPTER, 0, 0);
    expect(ask(e, growing, ids, 300, &half_a), HT_REUSE_ADAPTER, 0, 0);
    expect(ask(e, growing, ids, 300, &with_b), HT_REUSE_ADAPTER, 0, 0);
    expect(ask(e, growing, ids, 300, &with_a), HT_REUSE_ALL, 300, 299);
    expect(ask(e, growing, ids, 300, &(engine_question){.adapter = a, .scale = 1}), HT_REUSE_ALL, 300, 299);
    expect(ask(e, growing, ids, 300, &half_a), HT_REUSE_ALL, 300, 299);
    expect(ask(e, growing, ids, 300, &(engine_question){.adapter = b, .salt = "other"}), HT_REUSE_NEW, 0, 0);
    ht_engine_close(e);
    ht_adapter_free(a);
    ht_adapter_free(b);
}

/* A budget of two pages and a half: the third is kept again and again as the prompt grows, at last without its sliding layers,
 * and then there is room for it. */
UNIT_TEST(keys_out_of_the_window) {
    ht_engine *e = engine_open(sliding, 64, engine_node_bytes(sliding) * 5 / 2);
    (void)engine_warm(e, ids, 1280, NULL);
    expect(ask(e, sliding, ids, 700, NULL), HT_REUSE_WINDOW, 700, 512);
    ht_engine_close(e);
    /* With room for all, each page is kept while its keys are there. */
    e = engine_open(sliding, 64, SIZE_MAX);
    (void)engine_warm(e, ids, 1280, NULL);
    for (size_t n = 100; n <= 1200; n += 100)
        expect(ask(e, sliding, ids, n, NULL), HT_REUSE_ALL, (int64_t)n, (int64_t)n - 1);
    ht_engine_close(e);
}

/* States are kept at page ends and where a sequence ended. */
UNIT_TEST(states_at_few_positions) {
    ht_engine *e = engine_open(recurrent, 0, SIZE_MAX);
    expect(engine_warm(e, ids, 700, NULL), HT_REUSE_NEW, 0, 0);
    expect(ask(e, recurrent, ids, 700, NULL), HT_REUSE_STATE, 700, 512);
    expect(ask(e, recurrent, ids, 400, NULL), HT_REUSE_STATE, 400, 256);
    expect(ask(e, recurrent, ids, 701, NULL), HT_REUSE_ALL, 700, 700);
    expect(engine_warm(e, ids, 1400, NULL), HT_REUSE_STATE, 701, 700);
    expect(ask(e, recurrent, ids, 1300, NULL), HT_REUSE_STATE, 1300, 1280);
    ht_engine_close(e);
}

UNIT_TEST(no_prefix_cache) {
    ht_engine *e = engine_open(growing, 0, 0);
    for (int i = 0; i < 2; i++) {
        expect(ask(e, growing, ids, 300, NULL), HT_REUSE_OFF, 0, 0);
        expect(engine_warm(e, ids, 300, NULL), HT_REUSE_OFF, 0, 0);
    }
    const ht_engine_statistics f = ht_engine_get_statistics(e);
    assert_int_equal(f.prefix_bytes + f.kv_bytes, 0);
    assert_int_equal(f.prefix_lookups, 0);
    ht_engine_close(e);
}

/* What others ask with another salt leaves no trace: each report is that of an engine of one's own, with room and without. */
UNIT_TEST(another_salt_never_shows) {
    ht_adapter *a = test_adapter_for(growing, 2, 1, 5);
    const engine_question mine = {.salt = "mine"}, yours = {.salt = "yours"}, with = {.salt = "mine", .adapter = a};
    static const size_t lengths[] = {5, 9, 100, 256, 300, 600};
    ht_engine *e = engine_open(growing, 0, SIZE_MAX), *own = engine_open(growing, 0, SIZE_MAX);
    for (int i = 0; i < 6; i++) {
        (void)engine_warm(e, ids, 600, &mine);
        (void)engine_warm(e, other, 600, &with);
        const int32_t *token = i % 2 ? ids : other;
        const ht_reuse is = ask(e, growing, token, lengths[i], &yours),
                       want = engine_ask(own, token, lengths[i], &yours).reuse;
        expect(is, want.end, want.cached, want.reused);
        assert_int_equal(
            ask(e, growing, ids, 600 - (size_t)i, &(engine_question){.salt = i % 2 ? "other" : NULL}).reused,
            i < 2 ? 0 : 599 - i);
    }
    ht_engine_close(own);
    ht_engine_close(e);
    e = engine_open(growing, 0, engine_node_bytes(growing)); /* and when it had to go */
    (void)engine_warm(e, ids, 256, &mine);
    (void)engine_warm(e, other, 256, &yours);
    expect(engine_warm(e, ids, 256, &yours), HT_REUSE_NEW, 0, 0);
    expect(engine_warm(e, other, 256, &mine), HT_REUSE_NEW, 0, 0);
    expect(engine_warm(e, ids, 256, &mine), HT_REUSE_EVICTED, 0, 0);
    ht_engine_close(e);
    ht_adapter_free(a);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(new_all_and_ends),
        cmocka_unit_test(another_token),
        cmocka_unit_test(too_short),
        cmocka_unit_test(evicted),
        cmocka_unit_test(other_adapters),
        cmocka_unit_test(keys_out_of_the_window),
        cmocka_unit_test(states_at_few_positions),
        cmocka_unit_test(no_prefix_cache),
        cmocka_unit_test(another_salt_never_shows),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
