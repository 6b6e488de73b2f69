/* Sessions on a small model: the bits do not depend on chunks, company or history; limits, rewinding, cancellation. */
#include "device/device.h"
#include "generate/session_internal.h"
#include "support/options.h"
#include "support/scratch.h"
#include "support/test.h"
#include "support/tiny_model.h"
#include "support/weights.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

enum { TOKENS = 1300, WINDOW = 40 };

/* A growing and a sliding model, in integer and in float arithmetic, and one whose windows are chunks. */
enum { CHUNKED = 3, LATENT, RECURRENT, N_MODELS };
static ht_model *models[N_MODELS];
static int32_t ids[TOKENS];
static float *expected[N_MODELS]; /* [TOKENS, vocab] by single chunks of 512 */

static void assert_same_rows(const float *rows, int model, int64_t first, int64_t n) {
    const float *want = expected[model] + first * TINY_VOCAB;
    for (int64_t i = 0; i < n; i++)
        if (memcmp(rows + (first + i) * TINY_VOCAB, want + i * TINY_VOCAB, TINY_VOCAB * sizeof(float)) != 0)
            fail_msg("model %d: the logits of position %lld differ", model, (long long)(first + i));
}

static int setup(void **state) {
    (void)state;
    scratch_make();
    models[0] = tiny_load(&(tiny_options){.type = HT_W_Q8_0});
    models[1] = tiny_load(&(tiny_options){.window = WINDOW, .type = HT_W_Q8_0});
    models[2] = tiny_load(&(tiny_options){.window = WINDOW, .kv = HT_F32});
    models[CHUNKED] = tiny_load(&(tiny_options){.window = WINDOW, .chunked = true, .type = HT_W_Q8_0});
    models[LATENT] = tiny_load(&(tiny_options){.latent = true, .type = HT_W_Q8_0});
    models[RECURRENT] = tiny_load(&(tiny_options){.recurrent = true, .type = HT_W_Q8_0});
    tiny_ids(ids, TOKENS, 7);
    for (int m = 0; m < N_MODELS; m++) {
        ht_session *s = tiny_session(models[m], 512);
        tiny_forward(s, ids, TOKENS, true, expected[m] = tiny_rows(TOKENS));
        ht_session_free(s);
    }
    return 0;
}

static int teardown(void **state) {
    (void)state;
    for (int m = 0; m < N_MODELS; m++) {
        ht_model_free(models[m]);
        free(expected[m]);
    }
    scratch_remove();
    return 0;
}

/* ---- bits ---- */

UNIT_TEST(chunks_do_not_change_bits) {
    static const int32_t chunks[] = {1, 37, 64, 256, 1300};
    float *rows = tiny_rows(TOKENS);
    for (int m = 0; m < N_MODELS; m++)
        for (size_t c = 0; c < sizeof chunks / sizeof *chunks; c++) {
            if (!test_takes_today(m + (int64_t)c, 6)) continue;
            ht_session *s = tiny_session(models[m], chunks[c]);
            memset(rows, 0, (size_t)TOKENS * TINY_VOCAB * sizeof *rows);
            tiny_forward(s, ids, TOKENS, true, rows);
            assert_same_rows(rows, m, 0, TOKENS);
            assert_int_equal(ht_session_length(s), TOKENS);
            ht_session_reset(s); /* and in a used cache, in uneven calls, last rows alone */
            memset(rows, 0, (size_t)TOKENS * TINY_VOCAB * sizeof *rows);
            for (int at = 0, n = 1; at < TOKENS; at += n, n = 3 * n + 1) {
                if (n > TOKENS - at) n = TOKENS - at;
                tiny_forward(s, ids + at, (size_t)n, false, rows);
                assert_same_rows(rows, m, at + n - 1, 1);
                if (n > 1) assert_true(rows[(int64_t)at * TINY_VOCAB] == 0); /* the others were not asked for */
            }
            ht_session_free(s);
        }
    free(rows);
}

/* A session that asks for no chunk has the device's number of rows, or the context where that is shorter. */
UNIT_TEST(steps_are_as_long_as_the_device_has_them) {
    ht_session *s;
    ht_model *small = tiny_load(&(tiny_options){.context = 100});
    assert_works(ht_session_new, small, NULL, &s);
    assert_int_equal(s->chunk, 100);
    ht_session_free(s);
    ht_model_free(small);
    float *rows = tiny_rows(TOKENS);
    for (int m = 0; m < N_MODELS; m++) {
        if (!test_takes_today(m, 3)) continue;
        assert_works(ht_session_new, models[m], OPTIONS_AT(ht_session_options, with.chunk = 37), &s);
        assert_int_equal(s->chunk, 37);
        ht_session_free(s);
        assert_works(ht_session_new, models[m], NULL, &s);
        assert_int_equal(s->chunk, models[m]->device->step_rows);
        tiny_forward(s, ids, TOKENS, false, rows);
        assert_same_rows(rows, m, TOKENS - 1, 1);
        ht_session_free(s);
    }
    free(rows);
}

/* The whole rows differ between positions and from zero, so that the comparisons above can fail. */
UNIT_TEST(logits_are_not_trivial) {
    for (int m = 0; m < N_MODELS; m++)
        for (int i = 1; i < TOKENS; i++) {
            const float *row = expected[m] + (int64_t)i * TINY_VOCAB;
            assert_memory_not_equal(row, row - TINY_VOCAB, TINY_VOCAB * sizeof *row);
            assert_true(row[0] != 0 && row[TINY_VOCAB - 1] != 0);
        }
}

typedef struct job {
    int model;
    float *rows;
    ht_status status;
} job;

static void *run_alone(void *arg) {
    job *j = arg;
    ht_session *s;
    ht_error err = {0};
    j->status = ht_session_new(models[j->model], OPTIONS_AT(ht_session_options, with.chunk = 100), &s, &err);
    if (!j->status)
        j->status = ht_session_forward(s, ids, TOKENS / 2, OPTIONS_AT(ht_forward_options, with.all_rows = true),
                                       tiny_copy_rows, j->rows, &err);
    for (int i = TOKENS / 2; i < TOKENS / 2 + 40 && !j->status; i++)
        j->status = ht_session_forward(s, &ids[i], 1, NULL, tiny_copy_rows, j->rows, &err);
    ht_session_free(s);
    return NULL;
}

UNIT_TEST(sessions_in_two_threads) {
    for (int m = 0; m < 2; m++) {
        pthread_t thread[2];
        job jobs[2] = {{.model = m, .rows = tiny_rows(TOKENS)}, {.model = m, .rows = tiny_rows(TOKENS)}};
        for (int i = 0; i < 2; i++) assert_int_equal(pthread_create(&thread[i], NULL, run_alone, &jobs[i]), 0);
        for (int i = 0; i < 2; i++) {
            pthread_join(thread[i], NULL);
            assert_int_equal(jobs[i].status, HT_OK);
            assert_same_rows(jobs[i].rows, m, 0, TOKENS / 2 + 40);
            free(jobs[i].rows);
        }
    }
}

static int32_t likeliest(const float *row) {
    int32_t best = 0;
    for (int32_t i = 1; i < TINY_VOCAB; i++)
        if (row[i] > row[best]) best = i;
    return best;
}

UNIT_TEST(together_is_as_alone) {
    enum { N = 4, STEPS = 30 };
    static const int begin[N] = {1, 250, 511, 1000};
    for (int m = 0; m < N_MODELS; m++) {
        ht_session *s[N];
        float *logits = malloc((size_t)N * TINY_VOCAB * sizeof *logits);
        for (int i = 0; i < N; i++) {
            s[i] = tiny_session(models[m], i == 1 ? 2 : 64);
            tiny_forward(s[i], ids, (size_t)begin[i], false, NULL);
        }
        for (int step = 0; step < STEPS; step++) {
            int32_t next[N];
            int n = step % 3 == 2 ? N - 1 : N; /* one drops out now and then */
            for (int i = 0; i < n; i++) next[i] = ids[ht_session_length(s[i])];
            if (step % 2) { /* the tokens alone */
                assert_works(ht_session_decode_together, s, next, n, NULL, next);
                for (int i = 0; i < n; i++)
                    assert_int_equal(next[i], likeliest(expected[m] + (ht_session_length(s[i]) - 1) * TINY_VOCAB));
                continue;
            }
            assert_works(ht_session_forward_together, s, next, n, NULL, logits);
            for (int i = 0; i < n; i++)
                assert_memory_equal(logits + (int64_t)i * TINY_VOCAB,
                                    expected[m] + (ht_session_length(s[i]) - 1) * TINY_VOCAB,
                                    TINY_VOCAB * sizeof *logits);
        }
        for (int i = 0; i < N; i++) ht_session_free(s[i]);
        free(logits);
    }
}

/* Whose logits are not numbers is said, and no session has taken the step. */
UNIT_TEST(a_step_without_numbers_is_not_taken) {
    enum { N = 3, NAN_TOKEN = 5, LENGTH = 20 };
    static const int32_t fine[N] = {17, 18, 19}, broken[N] = {17, NAN_TOKEN, 19};
    ht_error err = {0};
    ht_model *m = tiny_load(&(tiny_options){.nan_token = NAN_TOKEN});
    ht_session *s[N];
    int32_t prompt[LENGTH], next[N];
    for (int k = 0; k < LENGTH; k++) prompt[k] = 20 + 37 * k % 200;
    for (int i = 0; i < N; i++) tiny_forward(s[i] = tiny_session(m, 64), prompt, (size_t)(LENGTH - i), false, NULL);
    assert_int_equal(ht_session_decode_together(s, broken, N, NULL, next, &err), HT_ERR_INTERNAL);
    assert_true(strstr(err.message, "session 1 of the step") && strstr(err.message, "nan"));
    for (int i = 0; i < N; i++) assert_int_equal(ht_session_length(s[i]), LENGTH - i);
    assert_int_equal(ht_session_decode_together(s, fine, N, NULL, next, &err), HT_OK);
    for (int i = 0; i < N; i++) {
        float row[TINY_VOCAB];
        ht_session *alone = tiny_session(m, 64);
        tiny_forward(alone, prompt, (size_t)(LENGTH - i), false, NULL);
        assert_int_equal(ht_session_forward_together(&alone, &fine[i], 1, NULL, row, &err), HT_OK);
        assert_int_equal(next[i], likeliest(row));
        ht_session_free(alone);
        ht_session_free(s[i]);
    }
    ht_model_free(m);
}

/* ---- going back ---- */

/* States are kept at the page ends 512, 1024 and 1280, and before the last step: all later tokens are computed again. */
UNIT_TEST(rewinding_gives_the_same_bits) {
    static const struct {
        int64_t place, state;
    } cases[] = {{0, 0}, {1, 0}, {255, 0}, {256, 0}, {257, 0}, {512, 512}, {700, 512}, {1279, 1024}, {1299, 1280}};
    float *rows = tiny_rows(TOKENS);
    ht_session *s = NULL;
    for (size_t i = 0; i < 2 * sizeof cases / sizeof *cases; i++) {
        const int m = i % 2 ? RECURRENT : 0;
        const int64_t place = cases[i / 2].place;
        if (!test_takes_today((int64_t)i / 2, 4)) continue;
        ht_session_free(s);
        s = tiny_session(models[m], 128);
        for (int again = 0; again < 2; again++) {
            tiny_forward(s, ids + ht_session_length(s), (size_t)(TOKENS - ht_session_length(s)), false, NULL);
            size_t full = ht_session_cache_bytes(s);
            assert_works(ht_session_truncate, s, place);
            assert_int_equal(ht_session_length(s), place);
            assert_int_equal(s->cache->length, m ? cases[i / 2].state : place);
            if (!m) assert_int_equal(ht_session_cache_bytes(s), ht_cache_bytes(models[0], place, 128));
            if (place < 1024) assert_true(ht_session_cache_bytes(s) < full);
            tiny_forward(s, ids + place, (size_t)(TOKENS - place), true, rows);
            assert_same_rows(rows, m, place, TOKENS - place);
        }
    }
    assert_fails(HT_ERR_ARGUMENT, "keeping 1301 tokens of a session that holds 1300", ht_session_truncate, s,
                 TOKENS + 1);
    assert_fails(HT_ERR_ARGUMENT, "", ht_session_truncate, s, -1);
    ht_session_free(s);
    free(rows);
}

/* At places that a ring lost all tokens are computed again; the others keep theirs. */
UNIT_TEST(rings_go_back_to_what_they_hold) {
    enum { CHUNK = 100, PAGES = 2, LENGTH = 1200 }; /* 139 adjacent positions lie in at most 2 pages */
    enum { HELD = 768 };                            /* 1200 positions end in page 4: the ring holds pages 3 and 4 */
    float *rows = tiny_rows(TOKENS);
    for (int m = 1; m < LATENT; m++) {
        /* The first position whose window the ring holds: a chunk begins there, or it is the last of its window. */
        const int64_t least = m == CHUNKED ? (HELD + WINDOW - 1) / WINDOW * WINDOW : HELD + WINDOW - 1;
        const int64_t places[] = {LENGTH, LENGTH - 1, 1024, 1023, 900, least, least - 1, 600, 1, 0};
        ht_session *s = tiny_session(models[m], CHUNK);
        assert_int_equal(s->cache->layer[0].ring_pages, PAGES);
        assert_int_equal(s->cache->layer[5].ring_pages, 0);
        for (size_t i = 0; i < sizeof places / sizeof *places; i++) {
            if (!test_takes_today(m + (int64_t)i, 3)) continue;
            const int64_t place = places[i];
            tiny_forward(s, ids + ht_session_length(s), (size_t)(LENGTH - ht_session_length(s)), false, NULL);
            for (int64_t k = 1; k < LENGTH; k++) assert_int_equal(ht_cache_kept(s->cache, k), k < least ? 0 : k);
            assert_works(ht_session_truncate, s, place);
            assert_int_equal(ht_session_length(s), place);
            assert_int_equal(s->cache->length, place < least ? 0 : place);
            tiny_forward(s, ids + place, (size_t)(LENGTH - place), true, rows);
            assert_same_rows(rows, m, place, LENGTH - place);
        }
        ht_session_free(s);
    }
    free(rows);
}

/* A ring that went on, back and on again has lost what the furthest step pushed out, not only the last one. */
UNIT_TEST(rings_remember_how_far_they_were_written) {
    ht_session *s = tiny_session(models[1], 100);
    tiny_forward(s, ids, 1020, false, NULL); /* page 3: the ring holds pages 2 and 3 */
    assert_works(ht_session_truncate, s, 600);
    tiny_forward(s, ids + 600, 430, false, NULL); /* into page 4: page 2 is gone */
    assert_works(ht_session_truncate, s, 1010);
    assert_int_equal(ht_cache_kept(s->cache, 800), 0);
    assert_works(ht_session_truncate, s, 807);
    float *rows = tiny_rows(TOKENS);
    tiny_forward(s, ids + 807, 100, true, rows);
    assert_same_rows(rows, 1, 807, 100);
    ht_session_free(s);
    free(rows);
}

/* What a step may not see must not matter, even if it is no number. */
UNIT_TEST(stale_positions_do_not_matter) {
    float *rows = tiny_rows(TOKENS);
    for (int m = 0; m < N_MODELS; m++) {
        ht_session *s = tiny_session(models[m], 50);
        tiny_forward(s, ids, 300, false, NULL);
        for (int32_t l = 0; l < s->cache->n_layers; l++) {
            const ht_kv_layer *layer = &s->cache->layer[l];
            const bool of_state = layer->shape.state > 0; /* what the next step writes */
            const int64_t first = of_state ? 0 : 300 % HT_KV_PAGE, n = of_state ? 1 : HT_KV_PAGE - first;
            const size_t bytes = (size_t)n * ht_kv_saved_bytes(&layer->shape);
            void *nothing = malloc(bytes);
            assert_non_null(nothing);
            memset(nothing, 0xFF, bytes);
            ht_device *d = models[m]->device;
            assert_int_equal(
                d->kv->write(d, &layer->shape, layer->pages[ht_kv_page_of(layer, 300)], first, n, nothing, NULL),
                HT_OK);
            free(nothing);
        }
        tiny_forward(s, ids + 300, 100, true, rows);
        assert_same_rows(rows, m, 300, 100);
        ht_session_free(s);
    }
    free(rows);
}

/* ---- memory ---- */

/* Bytes that a session holds and may still take for the positions it has. A recurrent one may take a state for its next
 * step, after a snapshot, and a snapshot at a message's end. */
static size_t bytes_at_length(const ht_session *s) {
    return ht_session_cache_bytes(s) + ht_cache_growth(s->cache, s->cache->length);
}

UNIT_TEST(pages_are_as_forecast) {
    ht_model_info *info; /* of the recurrent model */
    assert_works(ht_model_info_read, tiny_write(&(tiny_options){.recurrent = true, .type = HT_W_Q8_0}), &info);
    for (int m = 0; m < N_MODELS; m++) {
        if (!test_takes_today(m, 3)) continue;
        size_t before = ht_memory_get(models[m]->device).active_bytes;
        ht_session *s = tiny_session(models[m], 64);
        assert_int_equal(ht_session_cache_bytes(s), 0);
        for (int at = 0; at < TOKENS; at += 50) {
            tiny_forward(s, ids + at, 50, false, NULL);
            assert_int_equal(bytes_at_length(s), ht_cache_bytes(models[m], at + 50, 64));
            if (m == RECURRENT)
                assert_int_equal(bytes_at_length(s), ht_model_info_kv_bytes(info, HT_F16, at + 50));
            else
                assert_int_equal(ht_session_cache_bytes(s), bytes_at_length(s));
        }
        ht_session_reset(s);
        assert_int_equal(ht_session_cache_bytes(s), 0);
        assert_int_equal(ht_session_length(s), 0);
        ht_session_free(s);
        assert_int_equal(ht_memory_get(models[m]->device).active_bytes, before);
    }
    ht_model_info_free(info);
    /* Two growing layers of 2 heads of 16 in f16: 32 KiB a page. */
    assert_int_equal(ht_cache_bytes(models[0], 1, 512), 2 * 32768);
    assert_int_equal(ht_cache_bytes(models[0], 257, 512), 4 * 32768);
    /* Five rings of four pages at most (551 positions), and one growing layer. */
    assert_int_equal(ht_cache_bytes(models[1], 4096, 512), (5 * 4 + 16) * 32768);
}

typedef struct chat {
    ht_session *s;
    ht_kv_account account;
    uint64_t random;
    int64_t asked; /* end of the last question */
} chat;

static int32_t chat_draw(chat *c, int32_t n) { return (int32_t)(test_random(&c->random) % (uint32_t)n); }

/* Ends the last answer, asks a question and computes an answer token by token. */
static void chat_go_on(chat *c) {
    int32_t token[64];
    int n = 3 + chat_draw(c, 50);
    tiny_ids(token, n + 3, test_random(&c->random));
    token[0] = token[n] = TINY_IM_END;
    tiny_forward(c->s, token, (size_t)n + 3, false, NULL);
    c->asked = ht_session_length(c->s) - 2;
    for (n = 2 + chat_draw(c, 60); n > 0; n--) tiny_forward(c->s, ids + n, 1, false, NULL);
}

/* States of a chat take what is forecast, at each message: one less while the last step's is that of a snapshot. A chat
 * that drops its reasoning goes back to the end of each question, and may hold fewer snapshots. */
UNIT_TEST(chats_are_as_forecast) {
    ht_model *m = models[RECURRENT];
    size_t states = 0; /* bytes of one of each layer */
    for (int32_t l = 0; l < m->n_cache_layers; l++)
        if (m->kv[l].shape.state) states += m->device->kv->page_bytes(&m->kv[l].shape);
    for (int reasons = 0; reasons < 2; reasons++) {
        chat c = {.s = tiny_session(m, 64), .random = 5};
        ht_cache_set_account(c.s->cache, &c.account);
        int messages = 0;
        while (ht_session_length(c.s) < (TEST_SLOW ? 1200 : 3700)) {
            chat_go_on(&c);
            messages++;
            const int64_t n = ht_session_length(c.s), snapshots = ht_cache_snapshots(c.s->cache);
            const size_t held = ht_session_cache_bytes(c.s), forecast = ht_cache_bytes(m, n, 64);
            const bool is_shared = ht_cache_snapshot_at(c.s->cache, snapshots - 1) == n - 1;
            assert_int_equal(held, c.account.bytes);
            assert_int_equal(ht_cache_kept(c.s->cache, c.asked), c.asked);
            assert_true(held <= forecast);
            if (!reasons) {
                assert_int_equal(held + (is_shared ? states : 0), forecast);
                assert_int_equal(bytes_at_length(c.s), forecast);
                continue;
            }
            const int64_t longer = n + 200; /* the reasoning is longer than the answer */
            while (ht_session_length(c.s) < longer) tiny_forward(c.s, ids, 10, false, NULL);
            assert_true(ht_session_cache_bytes(c.s) <= ht_cache_bytes(m, longer, 64));
            assert_works(ht_session_truncate, c.s, c.asked);
            assert_int_equal(c.s->cache->length, c.asked);
            tiny_forward(c.s, ids, 20, false, NULL);
        }
        assert_true(messages > 15);
        ht_session_free(c.s);
        assert_int_equal(c.account.bytes, 0);
    }
}

/* When memory runs out at a page's end the session stays usable, and goes on with the same bits once there is room. */
UNIT_TEST(running_out_of_memory_changes_nothing) {
    float *rows = tiny_rows(TOKENS);
    static const int tried[] = {0, 1, RECURRENT};
    for (size_t i = 0; i < sizeof tried / sizeof *tried; i++) {
        const int m = tried[i];
        ht_session *s = tiny_session(models[m], 64);
        tiny_forward(s, ids, 256, false, NULL);
        size_t held = ht_session_cache_bytes(s);
        /* Room for one page, or a state, not for all layers'. */
        size_t old = ht_memory_set_limit(models[m]->device, ht_memory_get(models[m]->device).active_bytes +
                                                                (m == RECURRENT ? 1000 : 40000));
        assert_fails(HT_ERR_MEMORY, "the KV cache cannot grow from 256 to 266 positions", ht_session_forward, s,
                     ids + 256, 10, NULL, NULL, NULL);
        assert_int_equal(ht_session_cache_bytes(s), held);
        assert_int_equal(ht_session_length(s), 256);
        ht_memory_set_limit(models[m]->device, old);
        tiny_forward(s, ids + 256, 100, true, rows);
        assert_same_rows(rows, m, 256, 100);
        ht_session_free(s);
    }
    free(rows);
}

/* ---- refusals ---- */

UNIT_TEST(limits_and_ids_are_checked) {
    ht_error err = {0};
    ht_session *s;
    ht_model *small = tiny_load(&(tiny_options){.context = 100});
    assert_int_equal(ht_session_new(small, OPTIONS_AT(ht_session_options, with.chunk = -1), &s, &err), HT_ERR_ARGUMENT);
    assert_null(s);
    assert_int_equal(ht_session_new(small, NULL, &s, &err), HT_OK);
    assert_int_equal(ht_session_forward(s, ids, 101, NULL, NULL, NULL, &err), HT_ERR_LIMIT);
    assert_string_equal(err.message, "prompt of 101 tokens does not fit the context of 100");
    assert_int_equal(ht_session_length(s), 0);
    tiny_forward(s, ids, 60, false, NULL);
    assert_int_equal(ht_session_forward(s, ids, 41, NULL, NULL, NULL, &err), HT_ERR_LIMIT);
    assert_string_equal(err.message, "prompt of 41 tokens does not fit the context of 100, with 60 positions taken");
    int32_t wrong[3] = {5, TINY_VOCAB, -1};
    assert_int_equal(ht_session_forward(s, wrong, 2, NULL, NULL, NULL, &err), HT_ERR_ARGUMENT);
    assert_string_equal(err.message, "token id 288 at place 1 is outside the vocabulary of 288");
    assert_int_equal(ht_session_forward(s, wrong + 2, 1, NULL, NULL, NULL, &err), HT_ERR_ARGUMENT);
    assert_int_equal(ht_session_length(s), 60);
    tiny_forward(s, ids, 0, false, NULL);
    tiny_forward(s, ids, 40, false, NULL);
    assert_int_equal(ht_session_length(s), 100);
    assert_int_equal(ht_session_forward(s, ids, 1, NULL, NULL, NULL, &err), HT_ERR_LIMIT);
    ht_session_free(s);
    ht_model_free(small);
}

UNIT_TEST(bad_company_is_refused) {
    float logits[2 * TINY_VOCAB];
    ht_session *a = tiny_session(models[0], 512), *b = tiny_session(models[1], 512);
    ht_session *mixed[] = {a, b}, *twice[] = {a, a};
    assert_fails(HT_ERR_ARGUMENT, "another model", ht_session_forward_together, mixed, ids, 2, NULL, logits);
    assert_fails(HT_ERR_ARGUMENT, "the same", ht_session_forward_together, twice, ids, 2, NULL, logits);
    assert_fails(HT_ERR_ARGUMENT, "", ht_session_forward_together, mixed, ids, 0, NULL, logits);
    assert_fails(HT_ERR_ARGUMENT, "session 0 of the step: token id -5", ht_session_forward_together, mixed,
                 (const int32_t[]){-5}, 1, NULL, logits);
    assert_int_equal(ht_session_length(a), 0);
    ht_session_free(a);
    ht_session_free(b);
}

/* ---- ending early ---- */

typedef struct stop_after {
    ht_cancel flag;
    int calls, end;
    bool cancel; /* by the flag, else by the callback's answer */
} stop_after;

static bool count_rows(const float *logits, int64_t first, int64_t n_rows, int32_t vocab, void *user) {
    stop_after *c = user;
    (void)logits, (void)first, (void)n_rows, (void)vocab;
    if (++c->calls < c->end) return true;
    if (c->cancel) ht_cancel_request(&c->flag);
    return c->cancel;
}

UNIT_TEST(ending_early_keeps_whole_chunks) {
    float *rows = tiny_rows(TOKENS);
    for (int cancel = 0; cancel < 2; cancel++) {
        ht_session *s = tiny_session(models[1], 64);
        stop_after c = {.end = 3, .cancel = cancel};
        const ht_forward_options how = OPTIONS(ht_forward_options, with.all_rows = true, with.cancel = &c.flag);
        assert_fails(HT_ERR_CANCELLED, "", ht_session_forward, s, ids, 1000, &how, count_rows, &c);
        assert_int_equal(c.calls, 3);
        assert_int_equal(ht_session_length(s), 3 * 64);
        if (cancel) { /* what was requested holds for calls to come */
            assert_fails(HT_ERR_CANCELLED, "", ht_session_forward, s, ids, 1, &how, NULL, NULL);
            assert_fails(HT_ERR_CANCELLED, "", ht_session_forward_together, &s, ids, 1, &how, rows);
            int32_t next;
            assert_fails(HT_ERR_CANCELLED, "", ht_session_decode_together, &s, ids, 1, &how, &next);
            assert_int_equal(ht_session_length(s), 3 * 64);
        }
        tiny_forward(s, ids + 192, 500, true, rows); /* without the flag */
        assert_same_rows(rows, 1, 192, 500);
        ht_session_free(s);
    }
    free(rows);
}

typedef struct canceller {
    ht_cancel flag;
    _Atomic bool begun;
} canceller;

static void *cancel_soon(void *arg) {
    canceller *c = arg;
    while (!atomic_load(&c->begun)) sched_yield();
    ht_cancel_request(&c->flag);
    return NULL;
}

static bool begin(const float *logits, int64_t first, int64_t n_rows, int32_t vocab, void *user) {
    (void)logits, (void)first, (void)n_rows, (void)vocab;
    canceller *c = user;
    atomic_store(&c->begun, true);
    while (!ht_cancel_requested(&c->flag)) sched_yield();
    return true;
}

UNIT_TEST(cancelling_from_another_thread) {
    ht_session *s = tiny_session(models[0], 16);
    canceller c = {0};
    const ht_forward_options how = OPTIONS(ht_forward_options, with.all_rows = true, with.cancel = &c.flag);
    pthread_t thread;
    ht_error err = {0};
    assert_int_equal(pthread_create(&thread, NULL, cancel_soon, &c), 0);
    assert_int_equal(ht_session_forward(s, ids, 200, &how, begin, &c, &err), HT_ERR_CANCELLED);
    assert_string_equal(err.message, "cancelled after 16 tokens");
    assert_int_equal(ht_session_length(s), 16);
    pthread_join(thread, NULL);
    ht_cancel_reset(&c.flag);
    assert_int_equal(ht_session_forward(s, ids + 16, 184, &how, NULL, NULL, &err), HT_OK);
    assert_int_equal(ht_session_length(s), 200);
    ht_session_free(s);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(logits_are_not_trivial),
        cmocka_unit_test(chunks_do_not_change_bits),
        cmocka_unit_test(steps_are_as_long_as_the_device_has_them),
        cmocka_unit_test(sessions_in_two_threads),
        cmocka_unit_test(together_is_as_alone),
        cmocka_unit_test(a_step_without_numbers_is_not_taken),
        cmocka_unit_test(rewinding_gives_the_same_bits),
        cmocka_unit_test(rings_go_back_to_what_they_hold),
        cmocka_unit_test(rings_remember_how_far_they_were_written),
        cmocka_unit_test(stale_positions_do_not_matter),
        cmocka_unit_test(pages_are_as_forecast),
        cmocka_unit_test(chats_are_as_forecast),
        cmocka_unit_test(running_out_of_memory_changes_nothing),
        cmocka_unit_test(limits_and_ids_are_checked),
        cmocka_unit_test(bad_company_is_refused),
        cmocka_unit_test(ending_early_keeps_whole_chunks),
        cmocka_unit_test(cancelling_from_another_thread),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
