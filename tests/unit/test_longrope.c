/* Longrope: the divisors of RoPE's frequencies go by the length of a sequence. Whatever a session has computed before, its
 * logits are those of a fresh one with the same tokens, to the bit. */
#include "generate/prefill.h"
#include "generate/session_internal.h"
#include "support/adapters.h"
#include "support/engine_run.h"
#include "support/options.h"
#include "support/scratch.h"
#include "support/test.h"
#include "support/tiny_model.h"

#include <hearth/hearth.h>

#include <string.h>

/* Sequences of up to SHORT tokens, more than a page of keys, are short ones. */
enum { SHORT = 300, MOST = 480 };

static ht_model *model, *draft, *shorter; /* `shorter`: the same weights, with another limit */
static ht_adapter *adapter;
static int32_t ids[MOST];

static int setup(void **state) {
    (void)state;
    scratch_make();
    model = tiny_load(&(tiny_options){.type = HT_W_F32, .short_length = SHORT});
    draft = tiny_load(&(tiny_options){.type = HT_W_Q8_0});
    shorter = tiny_load(&(tiny_options){.short_length = SHORT - 9});
    adapter = test_adapter_for(model, 4, 1, 3);
    tiny_ids(ids, MOST, 7);
    return 0;
}

static int teardown(void **state) {
    (void)state;
    ht_adapter_free(adapter);
    ht_model_free(model);
    ht_model_free(draft);
    ht_model_free(shorter);
    scratch_remove();
    return 0;
}

static ht_session *open_session(ht_adapter *with, int32_t chunk) {
    ht_session *s = tiny_session(model, chunk);
    assert_works(ht_session_set_adapters, s, &with, NULL, with != NULL);
    return s;
}

static bool keep_last(const float *logits, int64_t first, int64_t n_rows, int32_t vocab, void *to) {
    (void)first;
    memcpy(to, logits + (n_rows - 1) * vocab, (size_t)vocab * sizeof *logits);
    return true;
}

/* Appends n ids; the logits after the last one. */
static void append(ht_session *s, const int32_t *id, int64_t n, float row[TINY_VOCAB]) {
    assert_works(ht_session_forward, s, id, (size_t)n, NULL, keep_last, row);
}

static void same_as_fresh(const float row[TINY_VOCAB], const int32_t *id, int64_t n, ht_adapter *with) {
    float want[TINY_VOCAB];
    ht_session *s = open_session(with, 512);
    append(s, id, n, want);
    ht_session_free(s);
    if (memcmp(row, want, sizeof want) != 0) fail_msg("after %d tokens: not the logits of a fresh session", (int)n);
}

/* Appends the next n of `ids`, and checks the logits. */
static void go_on(ht_session *s, int64_t n) {
    float row[TINY_VOCAB];
    const int64_t length = ht_session_length(s);
    append(s, ids + length, n, row);
    same_as_fresh(row, ids, length + n, NULL);
    assert_int_equal(s->cache->length, length + n);
    assert_int_equal(s->cache->is_long, length + n > SHORT);
}

/* Rows that the model's steps have computed so far. */
static int64_t rows_so_far(void) { return ht_scheduler_get_stats(model->scheduler).rows; }

/* All rows of a long sequence differ from those of its beginning, but for the first, which RoPE does not rotate. */
UNIT_TEST(every_row_goes_by_the_length) {
    float *rows[3];
    for (int i = 0; i < 3; i++) {
        ht_session *s = tiny_session(model, i == 1 ? 7 : 512);
        rows[i] = tiny_rows(MOST);
        tiny_forward(s, ids, SHORT - 1 + (size_t)i, true, rows[i]);
        ht_session_free(s);
    }
    assert_memory_equal(rows[0], rows[1], (size_t)(SHORT - 1) * TINY_VOCAB * sizeof(float));
    for (int i = 1; i < SHORT; i++) assert_true(memcmp(rows[1] + i * TINY_VOCAB, rows[2] + i * TINY_VOCAB, 1024) != 0);
    for (int i = 0; i < 3; i++) free(rows[i]);
}

/* One recomputation, and only one, with and without an adapter. */
UNIT_TEST(one_token_after_the_other) {
    for (int k = 0; k < 2; k++) {
        ht_adapter *with = k ? adapter : NULL;
        ht_session *s = open_session(with, 64);
        int64_t steps = 0;
        for (int64_t n = 0; n < SHORT + 6; n += n ? 1 : SHORT - 4) {
            float row[TINY_VOCAB];
            const int64_t before = rows_so_far();
            append(s, ids + n, n ? 1 : SHORT - 4, row);
            steps += rows_so_far() - before;
            same_as_fresh(row, ids, ht_session_length(s), with);
        }
        assert_int_equal(steps, SHORT + 6 + SHORT);
        ht_session_free(s);
    }
}

/* Steps of several sessions, of which each becomes long at another time; and what a failed step leaves. */
UNIT_TEST(together) {
    enum { N = 4, STEPS = 5 };
    static const int lengths[N] = {20, SHORT - 1, SHORT - 3, SHORT + 90};
    for (int32_t chunk = 1; chunk < 512; chunk += 63) {
        if (!test_takes_today(chunk / 63, 4)) continue;
        ht_session *s[N];
        int32_t next[N];
        float *logits = tiny_rows(N), row[TINY_VOCAB];
        for (int i = 0; i < N; i++) append(s[i] = tiny_session(model, i % 2 ? 512 : chunk), ids, lengths[i], row);
        for (int k = 0; k < STEPS; k++) {
            ht_cancel cancel = {0};
            for (int i = 0; i < N; i++) next[i] = ids[lengths[i] + k];
            ht_cancel_request(&cancel);
            assert_fails(HT_ERR_CANCELLED, "cancelled", ht_session_forward_together, s, next, N,
                         OPTIONS_AT(ht_forward_options, with.cancel = &cancel), logits);
            assert_works(ht_session_forward_together, s, next, N, NULL, logits);
            for (int i = 0; i < N; i++) same_as_fresh(logits + i * TINY_VOCAB, ids, lengths[i] + k + 1, NULL);
        }
        for (int i = 0; i < N; i++) ht_session_free(s[i]);
        free(logits);
    }
}

/* A sequence in parts, announced, is computed as one that is given at once. */
UNIT_TEST(parts) {
    float *whole = tiny_rows(MOST), *rows = tiny_rows(MOST);
    ht_session *s = tiny_session(model, 512);
    tiny_forward(s, ids, MOST, true, whole);
    ht_session_reset(s);
    ht_session_announce(s, MOST);
    for (int n = 0; n < MOST; n += MOST / 4) tiny_forward(s, ids + n, MOST / 4, true, rows);
    assert_memory_equal(rows, whole, (size_t)MOST * TINY_VOCAB * sizeof *rows);
    ht_session_reset(s);
    go_on(s, 20);
    ht_session_free(s);
    free(rows), free(whole);
}

UNIT_TEST(truncation) {
    ht_session *s = tiny_session(model, 64);
    go_on(s, SHORT + 50);
    assert_works(ht_session_truncate, s, SHORT + 10);
    const int64_t before = rows_so_far();
    go_on(s, 1);
    assert_int_equal(rows_so_far() - before, 1 + SHORT + 11); /* a row, and those of the fresh session */
    assert_works(ht_session_truncate, s, 20);
    go_on(s, 1);
    go_on(s, SHORT - 21);
    assert_works(ht_session_truncate, s, SHORT - 30);
    go_on(s, 40);
    assert_works(ht_session_truncate, s, SHORT);
    go_on(s, 1); /* still a long one */
    ht_session_free(s);
}

UNIT_TEST(forks) {
    ht_session *s = tiny_session(model, 64), *fork, *of_long;
    go_on(s, SHORT - 2);
    assert_works(ht_session_fork, s, &fork);
    go_on(fork, 10);
    assert_works(ht_session_fork, fork, &of_long);
    go_on(of_long, 3);
    go_on(s, 2);
    go_on(s, 1);
    go_on(fork, 1);
    ht_session_free(s);
    ht_session_free(fork);
    ht_session_free(of_long);
}

/* Positions are saved if the session goes on with them. */
UNIT_TEST(states) {
    static const struct {
        int64_t computed, kept, saved;
    } cases[] = {{20, 20, 20},    {SHORT, SHORT, SHORT}, {SHORT + 1, SHORT + 1, SHORT + 1},
                 {400, 310, 310}, {400, SHORT, 0},       {400, 20, 0},
                 {20, 0, 0}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        ht_session *s = tiny_session(model, 64), *other = tiny_session(model, 512);
        go_on(s, cases[i].computed);
        assert_works(ht_session_truncate, s, cases[i].kept);
        assert_works(ht_session_save, s, scratch_path("state"));
        go_on(other, 350);
        assert_works(ht_session_load, other, scratch_path("state"));
        assert_int_equal(ht_session_length(other), cases[i].kept);
        assert_int_equal(other->cache->length, cases[i].saved);
        go_on(other, 1);
        go_on(s, 2);
        ht_session_free(s);
        ht_session_free(other);
    }
    /* A token that makes the sequence long, pushed but not computed. */
    ht_session *s = tiny_session(model, 64), *other = tiny_session(model, 64);
    go_on(s, SHORT);
    assert_works(ht_session_push, s, ids[SHORT]);
    assert_works(ht_session_save, s, scratch_path("state"));
    assert_works(ht_session_load, other, scratch_path("state"));
    assert_int_equal(other->cache->length, 0);
    go_on(other, 1);
    ht_session_free(s);
    ht_session_free(other);
}

/* ---- generation ---- */

enum { BEGIN = SHORT - 20, TOKENS = 40 };

/* The likeliest token after the last, again and again, each from a fresh session. */
static void naive(const int32_t *prompt, int n, int32_t out[TOKENS]) {
    int32_t all[MOST];
    memcpy(all, prompt, (size_t)n * sizeof *all);
    for (int i = 0; i < TOKENS; i++) {
        float row[TINY_VOCAB];
        ht_session *s = tiny_session(model, 512);
        append(s, all, n + i, row);
        ht_session_free(s);
        int32_t best = 0;
        for (int32_t v = 1; v < TINY_VOCAB; v++)
            if (row[v] > row[best]) best = v;
        out[i] = all[n + i] = best;
    }
}

UNIT_TEST(guesses) {
    int32_t repeating[BEGIN], want[TOKENS];
    for (int i = 0; i < BEGIN; i++) repeating[i] = ids[i % 11];
    naive(repeating, BEGIN, want);
    ht_model *const drafts[] = {NULL, draft, shorter, model};
    for (int i = 0; i < 8; i++) {
        if (!test_takes_today(i, 3)) continue;
        const ht_generate_options o =
            OPTIONS(ht_generate_options, with.max_tokens = TOKENS, with.ignore_eos = true, with.lookup = i >= 4,
                    with.draft = drafts[i % 4], with.draft_tokens = i % 3 ? 6 : 15);
        ht_metrics metrics;
        ht_session *s = tiny_session(model, i % 2 ? 512 : 16);
        assert_works(ht_generate, s, repeating, BEGIN, &o, NULL, NULL, &metrics);
        assert_memory_equal(ht_session_tokens(s) + BEGIN, want, sizeof want);
        if (i % 4 >= 2) assert_true(metrics.accepted_tokens > 0);
        assert_int_equal(metrics.prompt_tokens, BEGIN);
        ht_session_free(s);
    }
}

/* ---- engines ---- */

static const engine_question long_answer = {.max_tokens = TOKENS};

static ht_reuse ask(ht_engine *e, const int32_t *prompt, int n, const int32_t want[TOKENS]) {
    const engine_answer is = engine_ask(e, prompt, (size_t)n, &long_answer);
    assert_memory_equal(is.token, want, TOKENS * sizeof *want);
    return is.reuse;
}

/* Short and long sequences share nothing. */
static void ask_all(ht_engine *e, const int32_t want[TOKENS], const int32_t later[TOKENS], bool filled) {
    int32_t longer[BEGIN + TOKENS];
    memcpy(longer, ids, BEGIN * sizeof *longer);
    memcpy(longer + BEGIN, want, TOKENS * sizeof *longer);
    if (!filled) assert_int_equal(ask(e, ids, BEGIN, want).reused, 0);
    assert_in_range(ask(e, ids, BEGIN, want).reused, 256, BEGIN - 1);
    assert_int_equal(ask(e, longer, BEGIN + TOKENS, later).reused, BEGIN + TOKENS - 1);
}

UNIT_TEST(prefixes) {
    int32_t want[TOKENS], longer[BEGIN + TOKENS], later[TOKENS];
    naive(ids, BEGIN, want);
    memcpy(longer, ids, BEGIN * sizeof *longer);
    memcpy(longer + BEGIN, want, TOKENS * sizeof *longer);
    naive(longer, BEGIN + TOKENS, later);
    ht_engine *e = engine_open(model, 64, SIZE_MAX), *again = engine_open(model, 0, SIZE_MAX);
    assert_int_equal(engine_warm(e, longer, SHORT, NULL).reused, 0);
    assert_int_equal(engine_warm(e, longer, SHORT + 1, NULL).reused, 0);
    assert_int_equal(ht_engine_clear_cache(e), 2 * SHORT + 1);
    ask_all(e, want, later, false);
    assert_works(ht_engine_save_cache, e, scratch_path("cache"));
    assert_works(ht_engine_load_cache, again, scratch_path("cache"));
    ask_all(again, want, later, true);
    ht_engine_close(e);
    ht_engine_close(again);
}

typedef struct asked {
    int n;          /* tokens of the prompt */
    int32_t *want;  /* [TOKENS] */
    int right, all; /* answers */
} asked;

static void take_answer(const ht_answer_report *end, void *user) {
    asked *a = user;
    a->all++;
    a->right += !end->status && end->metrics.generated_tokens == TOKENS &&
                end->reuse.reused + end->reuse.computed == a->n &&
                memcmp(end->token, a->want, TOKENS * sizeof *a->want) == 0;
}

/* Several answers at once, some of them to the same prompt, with little memory: some are preempted, even if one request has
 * ended when the next comes. */
UNIT_TEST(many_answers) {
    enum { N = 4, ANSWERS = 3 };
    static int32_t want[N][TOKENS];
    asked a[N];
    for (int i = 0; i < N; i++) {
        a[i] = (asked){.n = (const int[]){30, BEGIN, SHORT - 1, SHORT + 60}[i], .want = want[i]};
        naive(ids, a[i].n, want[i]);
    }
    for (int pages = 0; pages < 2; pages++) {
        ht_engine *e;
        const ht_engine_options eo = OPTIONS(ht_engine_options, with.step_tokens = 48,
                                             with.kv_bytes = pages ? 4 * engine_node_bytes(model) : (size_t)64 << 20);
        const ht_generate_options o =
            OPTIONS(ht_generate_options, with.max_tokens = TOKENS, with.ignore_eos = true, with.lookup = pages == 0);
        assert_works(ht_engine_open, model, &eo, &e);
        for (int i = 0; i < N; i++) {
            const ht_request r = OPTIONS(ht_request, with.ids = ids, with.n_ids = (size_t)a[i].n, with.n = ANSWERS,
                                         with.options = &o, with.end = take_answer, with.user = &a[i]);
            a[i].right = a[i].all = 0;
            assert_works(ht_engine_submit, e, &r, NULL);
        }
        ht_engine_wait(e, 0);
        for (int i = 0; i < N; i++) {
            assert_int_equal(a[i].all, ANSWERS);
            assert_int_equal(a[i].right, ANSWERS);
        }
        if (pages) assert_true(ht_engine_get_statistics(e).preempted > 0);
        ht_engine_close(e);
    }
}

/* ---- passes without generation ---- */

enum { N_SEQUENCES = 6 };

static void take_row(void *user, const float *logits, int64_t position, const int32_t *sequence, int32_t n,
                     float *block_max) {
    float(*rows)[TINY_VOCAB] = user;
    (void)position, (void)block_max;
    for (int32_t i = 0; i < n; i++) memcpy(rows[sequence[i]], logits, sizeof *rows);
}

static void fail_sequence(void *user, int32_t sequence, const ht_error *err) {
    (void)user;
    fail_msg("sequence %d: %s", (int)sequence, err->message);
}

static bool keep_on(void *user) { return user != NULL; }

/* Sequences with a common beginning, all at once, and then those of one kind, which begin as the previous ones. */
UNIT_TEST(sequences_at_once) {
    static const int64_t lengths[N_SEQUENCES] = {SHORT + 1, 20, SHORT, MOST, SHORT - 1, SHORT + 40};
    static float rows[N_SEQUENCES][TINY_VOCAB];
    const ht_prefill_calls calls = {take_row, fail_sequence, keep_on, rows};
    ht_prefill *p;
    assert_works(ht_prefill_new, model, &(ht_prefill_options){.n_adapters = 0}, &p);
    for (int kinds = 0; kinds < 4; kinds++) {
        ht_prefill_sequence some[N_SEQUENCES];
        int n = 0;
        for (int i = 0; i < N_SEQUENCES; i++)
            if (kinds % 3 == 0 || (kinds == 1) == (lengths[i] > SHORT))
                some[n++] = (ht_prefill_sequence){.token = ids, .n = lengths[i], .first_out = lengths[i] - 1};
        assert_works(ht_prefill_run, p, some, n, &calls, NULL);
        for (int i = 0; i < n; i++) same_as_fresh(rows[i], ids, some[i].n, NULL);
    }
    ht_prefill_free(p);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(every_row_goes_by_the_length),
                                       cmocka_unit_test(one_token_after_the_other),
                                       cmocka_unit_test(together),
                                       cmocka_unit_test(parts),
                                       cmocka_unit_test(truncation),
                                       cmocka_unit_test(forks),
                                       cmocka_unit_test(states),
                                       cmocka_unit_test(guesses),
                                       cmocka_unit_test(prefixes),
                                       cmocka_unit_test(many_answers),
                                       cmocka_unit_test(sequences_at_once)};
    return cmocka_run_group_tests(tests, setup, teardown);
}
