/* Sequences that go on from what a prefix cache kept have the bits of a fresh prefill; and how a prefix cache behaves in the
 * cases that random ones (test_prefix_cache.c) meet seldom. */
#include "device/device.h"
#include "generate/prefix_cache.h"
#include "generate/session_internal.h"
#include "support/adapters.h"
#include "support/scratch.h"
#include "support/test.h"
#include "support/tiny_model.h"
#include "support/weights.h"

#include <stdlib.h>
#include <string.h>

enum { MOST = 900, CHUNK = 64, WINDOW = 40, NAN_TOKEN = 269 };

static ht_model *growing, *sliding, *recurrent;
static int32_t ids[MOST];
static const ht_prefix_key plain;

static int setup(void **state) {
    (void)state;
    scratch_make();
    growing = tiny_load(&(tiny_options){.nan_token = NAN_TOKEN});
    sliding = tiny_load(&(tiny_options){.window = WINDOW, .type = HT_W_Q8_0});
    recurrent = tiny_load(&(tiny_options){.type = HT_W_Q8_0, .recurrent = true});
    tiny_ids(ids, MOST, 7);
    for (int i = 0; i < MOST; i++) ids[i] -= ids[i] == NAN_TOKEN;
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

/* ---- sessions and the cache they share ---- */

typedef struct shared {
    ht_model *m;
    ht_prefix_cache *c;
    ht_kv_account account;
    size_t node; /* bytes of a node with all pages */
} shared;

static shared open_shared(ht_model *m, size_t nodes) {
    shared s = {.m = m};
    for (int32_t l = 0; l < m->n_cache_layers; l++) s.node += m->device->kv->page_bytes(&m->kv[l].shape);
    assert_int_equal(ht_prefix_cache_new(m, nodes * s.node, &s.c, NULL), HT_OK);
    return s;
}

static void close_shared(shared *s) {
    assert_int_equal(s->account.bytes, ht_prefix_cache_get_figures(s->c).bytes);
    ht_prefix_cache_free(s->c);
    assert_int_equal(s->account.bytes, 0);
}

static ht_adapter *adapter; /* of keys with one */

static void set_adapters(ht_session *q, const ht_prefix_key *key) {
    assert_works(ht_session_set_adapters, q, &adapter, key->scales, key->n_adapters);
}

/* A session with what is kept of the first n - 1 tokens. */
static ht_session *begin(shared *s, const ht_prefix_key *key, const int32_t *token, int64_t n, ht_prefix_found *found) {
    ht_session *q = tiny_session(s->m, CHUNK);
    ht_error err = {0};
    ht_cache_set_account(q->cache, &s->account);
    set_adapters(q, key);
    if (ht_prefix_cache_find(s->c, key, token, n, q->cache, found, &err) || ht_session_reserve_tokens(q, MOST, &err))
        fail_msg("%s", err.message);
    memcpy(q->token, token, (size_t)found->used * sizeof *token);
    q->n_tokens = found->used;
    return q;
}

static void keep(shared *s, const ht_prefix_key *key, const ht_session *q, bool tail) {
    ht_prefix_cache_keep(s->c, key, q->token, q->cache->length, q->cache, tail);
}

static void end(shared *s, ht_session *q, const ht_prefix_found *found) {
    ht_prefix_cache_unlock(s->c, found->lock);
    ht_session_free(q);
}

/* Computes n tokens and keeps them, also after each step as an engine does; returns what was found. */
static ht_prefix_found run(shared *s, const ht_prefix_key *key, const int32_t *token, int64_t n, bool each_step) {
    ht_prefix_found found;
    ht_session *q = begin(s, key, token, n, &found);
    while (q->n_tokens < n) {
        const int64_t some = n - q->n_tokens < CHUNK ? n - q->n_tokens : CHUNK;
        tiny_forward(q, token + q->n_tokens, (size_t)some, false, NULL);
        if (each_step) keep(s, key, q, false);
    }
    keep(s, key, q, true);
    end(s, q, &found);
    return found;
}

/* What would be found, without computing. */
static ht_prefix_found look(shared *s, const ht_prefix_key *key, const int32_t *token, int64_t n) {
    ht_prefix_found found;
    ht_session *q = begin(s, key, token, n, &found);
    end(s, q, &found);
    found.lock = NULL;
    return found;
}

static void expect_end(shared *s, const ht_prefix_key *key, const int32_t *token, int64_t n, ht_reuse_end end_is,
                       int64_t matched, int64_t used) {
    const ht_prefix_found f = look(s, key, token, n);
    assert_int_equal(f.end, end_is);
    assert_int_equal(f.matched, matched);
    assert_int_equal(f.used, used);
    if (end_is == HT_REUSE_DIFFERS) assert_int_equal(f.token, token[matched]);
}

static int messages; /* tokens between message ends; 0: none */

/* The first n tokens of ids, with others from `parts` on. */
static const int32_t *variant(int64_t n, int64_t parts, int32_t by) {
    static int32_t token[4][MOST];
    static int next;
    int32_t *t = token[next++ % 4];
    memcpy(t, ids, (size_t)n * sizeof *t);
    for (int64_t i = parts; i < n; i++) t[i] = (t[i] + by) % 250;
    for (int64_t i = 50; i < n && messages; i += messages) t[i] = TINY_IM_END;
    return t;
}

/* ---- bits ---- */

/* The logits of all positions from the shared beginning on are those of a fresh session. */
static void same_bits(shared *s, const ht_prefix_key *key, const int32_t *token, int64_t n) {
    float *want = tiny_rows(MOST), *got = tiny_rows(MOST);
    ht_prefix_found found;
    ht_session *fresh = tiny_session(s->m, 200), *q = begin(s, key, token, n, &found);
    set_adapters(fresh, key);
    tiny_forward(fresh, token, (size_t)n, true, want);
    while (q->n_tokens < n) {
        const int64_t some = n - q->n_tokens < CHUNK ? n - q->n_tokens : CHUNK;
        tiny_forward(q, token + q->n_tokens, (size_t)some, true, got);
        keep(s, key, q, false);
    }
    assert_memory_equal(got + found.used * TINY_VOCAB, want + found.used * TINY_VOCAB,
                        (size_t)(n - found.used) * TINY_VOCAB * sizeof *got);
    keep(s, key, q, true);
    end(s, q, &found);
    ht_session_free(fresh);
    free(want), free(got);
}

UNIT_TEST(hits_have_the_bits_of_a_prefill) {
    uint64_t random = 11;
    for (int which = test_is_late(); which < 3; which++) {
        ht_model *m = (ht_model *[]){growing, sliding, recurrent}[which];
        messages = which == 2 ? 97 : 0;
        adapter = test_adapter_for(m, 2, 1, 5);
        const ht_digest a = ht_adapter_digest(adapter);
        const float half = 0.5f;
        const ht_prefix_key keys[] = {
            {0}, {.adapters = &a, .n_adapters = 1}, {.adapters = &a, .scales = &half, .n_adapters = 1}};
        shared s = open_shared(m, 9);
        for (int i = 0, cases = test_cases(TEST_SLOW || test_is_late() ? 6 : 25, 1500); i < cases; i++) {
            static const int64_t parts[] = {20, 250, 256, 300, 520, MOST};
            const int64_t at = parts[test_random(&random) % 6],
                          n = 2 + (int64_t)(test_random(&random) * 4 % (MOST - 2));
            same_bits(&s, &keys[test_random(&random) % 5 % 3], variant(MOST, at, (int32_t)(test_random(&random) % 3)),
                      n);
        }
        messages = 0;
        assert_true(ht_prefix_cache_get_figures(s.c).hits > 0);
        close_shared(&s);
        ht_adapter_free(adapter);
    }
}

/* Keys that are no numbers, behind those that are shared, change nothing. */
UNIT_TEST(not_a_number_behind_a_prefix) {
    shared s = open_shared(growing, 20);
    int32_t token[MOST];
    memcpy(token, ids, sizeof token);
    for (int i = 100; i < 140; i++) token[i] = NAN_TOKEN;
    (void)run(&s, &plain, token, 140, false);
    expect_end(&s, &plain, ids, 160, HT_REUSE_DIFFERS, 100, 100);
    same_bits(&s, &plain, ids, 160);
    close_shared(&s);
}

/* ---- how a lookup ends ---- */

/* ---- nodes ---- */

static int64_t nodes(const shared *s) { return ht_prefix_cache_get_figures(s->c).nodes; }

/* A part of a page takes the place of a shorter one, until the page is full; tails that nobody would take are not kept. */
UNIT_TEST(parts_of_pages_grow) {
    shared s = open_shared(growing, 20);
    ht_prefix_found found;
    ht_session *q = begin(&s, &plain, ids, MOST, &found);
    for (int64_t n = 0; n < 300; n += 50) {
        tiny_forward(q, ids + n, 50, false, NULL);
        keep(&s, &plain, q, true);
        assert_int_equal(nodes(&s), n < 250 ? 1 : 2);
        assert_int_equal(ht_prefix_cache_get_figures(s.c).tokens, n + 50);
    }
    end(&s, q, &found);
    (void)run(&s, &plain, variant(520, 290, 1), 290 + 30, false); /* beside it, not in its place */
    assert_int_equal(nodes(&s), 3);
    (void)run(&s, &plain, ids, 515, false); /* three tokens of a page */
    assert_int_equal(ht_prefix_cache_get_figures(s.c).tokens, 512 + 64);
    (void)run(&s, &(ht_prefix_key){.salt = "short"}, ids, 7, false);
    assert_int_equal(nodes(&s), 3);
    close_shared(&s);
}

/* A long prompt that is kept at its end alone has lost the keys of its sliding layers: what can be used is told, and a
 * sibling that has fewer tokens but all pages serves better. Who computes it again fills the pages in. */
UNIT_TEST(sliding_pages_come_later) {
    shared s = open_shared(sliding, 40);
    (void)run(&s, &plain, ids, 800, false);
    const size_t bytes = ht_prefix_cache_get_figures(s.c).bytes;
    assert_true(bytes < 4 * s.node);
    expect_end(&s, &plain, ids, 800, HT_REUSE_ALL, 800, 799);
    expect_end(&s, &plain, ids, 300, HT_REUSE_WINDOW, 300, 0);
    expect_end(&s, &plain, variant(600, 200, 1), 600, HT_REUSE_WINDOW, 200, 0);
    (void)run(&s, &plain, variant(100, 60, 1), 100, false);
    expect_end(&s, &plain, ids, 300, HT_REUSE_WINDOW, 300, 60); /* of the sibling */
    (void)run(&s, &plain, ids, 100, false);
    expect_end(&s, &plain, variant(300, 100, 1), 300, HT_REUSE_DIFFERS, 100, 100); /* from what goes on */
    same_bits(&s, &plain, ids, 300); /* keeps its pages, in the nodes that are there */
    expect_end(&s, &plain, ids, 300, HT_REUSE_ALL, 300, 299);
    expect_end(&s, &plain, ids, 700, HT_REUSE_ALL, 700, 699);
    expect_end(&s, &plain, ids, 540, HT_REUSE_WINDOW, 540, 300);
    assert_true(ht_prefix_cache_get_figures(s.c).bytes > bytes);
    same_bits(&s, &plain, ids, 540);
    expect_end(&s, &plain, ids, 540, HT_REUSE_ALL, 540, 539);
    assert_int_equal(nodes(&s), 5); /* four, and the one that parts at 60 */
    close_shared(&s);
}

/* States are kept at ends of messages and pages, and after all tokens: what matched beyond them is computed again. Message
 * ends stand for the page ends after them; those that lookups use stay as the sequence grows. */
UNIT_TEST(states_are_kept_at_few_positions) {
    shared s = open_shared(recurrent, 40);
    int32_t token[MOST], way[MOST];
    memcpy(token, ids, sizeof token);
    token[99] = token[179] = token[619] = TINY_IM_END;
    static const struct {
        int64_t parts, used;
    } cases[] = {{150, 0},   {179, 0},   {180, 180}, {300, 180}, {511, 180},
                 {513, 512}, {619, 512}, {650, 620}, {699, 620}};
    (void)run(&s, &plain, token, 700, true);
    expect_end(&s, &plain, token, 700, HT_REUSE_STATE, 700, 620);
    expect_end(&s, &plain, token, 701, HT_REUSE_ALL, 700, 700);
    expect_end(&s, &plain, token, 740, HT_REUSE_ENDS, 700, 700);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        memcpy(way, token, sizeof way);
        way[cases[i].parts]++;
        const bool exact = cases[i].used == cases[i].parts;
        expect_end(&s, &plain, way, 700, exact ? HT_REUSE_DIFFERS : HT_REUSE_STATE, cases[i].parts, cases[i].used);
    }
    const int64_t before = nodes(&s);
    same_bits(&s, &plain, way, 700);                              /* from 620 on, beside the first */
    same_bits(&s, &plain, token, MOST);                           /* from 700 on */
    assert_int_equal(nodes(&s), before + 2);                      /* one for what differs, and one more page */
    expect_end(&s, &plain, token, 300, HT_REUSE_STATE, 300, 180); /* which two lookups have used */
    same_bits(&s, &plain, token, 300);
    close_shared(&s);
}

/* What a ring takes is known before, however far it goes, and whoever else holds its pages: the places of those that had gone
 * hold the first that was there. */
UNIT_TEST(rings_take_what_is_said) {
    static const int64_t to[] = {601, 768, 780, 1000, 1030, 4000};
    for (size_t i = 0; i < 3 * sizeof to / sizeof *to; i++) {
        shared s = open_shared(sliding, 40);
        ht_prefix_found found;
        (void)run(&s, &plain, ids, 800, false);
        ht_session *q = begin(&s, &plain, ids, 601, &found);
        assert_int_equal(found.used, 600);
        assert_null(ht_cache_page(q->cache, 0, 1));
        ht_prefix_found same;
        ht_session *other = i % 3 == 2 ? begin(&s, &plain, ids, 601, &same) : NULL;
        if (i % 3 == 1) /* nobody else holds the page in which it ends */
            assert_true(ht_prefix_cache_evict(s.c) && ht_prefix_cache_evict(s.c));
        const size_t before = s.account.bytes, growth = ht_cache_growth(q->cache, to[i / 3]);
        assert_int_equal(ht_cache_reserve(q->cache, to[i / 3], NULL), HT_OK);
        assert_int_equal(s.account.bytes, before + growth);
        assert_int_equal(ht_cache_growth(q->cache, to[i / 3]), 0);
        end(&s, q, &found);
        if (other) end(&s, other, &same);
        close_shared(&s);
    }
}

/* Pages of a session, as a file's are added. */
static ht_prefix_node *add(shared *s, ht_prefix_node *parent, const ht_session *q, int64_t first, int32_t n,
                           int32_t layers) {
    ht_kv_page *page[8] = {0};
    ht_prefix_node *node;
    for (int32_t l = 0; l < layers; l++) page[l] = ht_cache_page(q->cache, l, first / HT_KV_PAGE);
    assert_int_equal(
        ht_prefix_cache_add(s->c, &plain, parent, q->token + first, n, layers < 0 ? NULL : page, &node, NULL), HT_OK);
    return node;
}

UNIT_TEST(nodes_are_added) {
    shared s = open_shared(growing, 3);
    ht_prefix_found found;
    ht_session *q = begin(&s, &plain, ids, MOST, &found);
    tiny_forward(q, ids, 600, false, NULL);
    assert_null(add(&s, NULL, q, 0, 256, -1)); /* it is not there */
    ht_prefix_node *first = add(&s, NULL, q, 0, 256, 1);
    assert_non_null(first);
    assert_int_equal(ht_prefix_cache_get_figures(s.c).bytes, s.node / 2);
    expect_end(&s, &plain, ids, 300, HT_REUSE_WINDOW, 256, 0); /* a layer is missing */
    assert_ptr_equal(add(&s, NULL, q, 0, 256, 2), first);
    assert_int_equal(ht_prefix_cache_get_figures(s.c).bytes, s.node);
    assert_ptr_equal(add(&s, NULL, q, 0, 200, 2), first); /* which has more */
    assert_ptr_equal(add(&s, NULL, q, 0, 200, -1), first);
    assert_non_null(add(&s, first, q, 256, 100, 2));
    ht_prefix_node *second = add(&s, first, q, 256, 256, 2); /* in the place of the shorter one, whose page it has */
    assert_int_equal(nodes(&s), 2);
    assert_int_equal(ht_prefix_cache_get_figures(s.c).bytes, 2 * s.node);
    expect_end(&s, &plain, ids, 600, HT_REUSE_ENDS, 512, 512);
    (void)run(&s, &(ht_prefix_key){.salt = "other"}, ids, 200, false);
    assert_int_equal(nodes(&s), 3);
    assert_null(add(&s, second, q, 512, 88, 2)); /* nothing makes room for it */
    assert_ptr_equal(add(&s, first, q, 256, 256, -1), second);
    assert_int_equal(nodes(&s), 3);
    assert_true(ht_prefix_cache_evict(s.c));
    assert_non_null(add(&s, first, q, 256, 256, 2));
    assert_true(ht_prefix_cache_evict(s.c)); /* the oldest, though it came last */
    expect_end(&s, &(ht_prefix_key){.salt = "other"}, ids, 200, HT_REUSE_ALL, 200, 199);
    expect_end(&s, &plain, ids, 600, HT_REUSE_EVICTED, 256, 256);
    end(&s, q, &found);
    close_shared(&s);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(hits_have_the_bits_of_a_prefill),
        cmocka_unit_test(not_a_number_behind_a_prefix),
        cmocka_unit_test(parts_of_pages_grow),
        cmocka_unit_test(sliding_pages_come_later),
        cmocka_unit_test(states_are_kept_at_few_positions),
        cmocka_unit_test(rings_take_what_is_said),
        cmocka_unit_test(nodes_are_added),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
