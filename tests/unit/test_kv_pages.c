/* Pages of KV caches: shared by sessions that fork, copied when they are written to, saved to host memory and restored. */
#include "device/device.h"
#include "generate/session_internal.h"
#include "support/options.h"
#include "support/scratch.h"
#include "support/test.h"
#include "support/tiny_model.h"

#include <stdlib.h>
#include <string.h>

enum { TOKENS = 800, WINDOW = 40, MORE = 100 };

/* A growing and a sliding model, in integer and in float arithmetic. */
enum { N_MODELS = 3 };
static ht_model *models[N_MODELS];
static int32_t ids[TOKENS];

static int setup(void **state) {
    (void)state;
    scratch_make();
    models[0] = tiny_load(&(tiny_options){.type = HT_W_Q8_0});
    models[1] = tiny_load(&(tiny_options){.window = WINDOW, .type = HT_W_Q8_0});
    models[2] = tiny_load(&(tiny_options){.window = WINDOW, .kv = HT_F32});
    tiny_ids(ids, TOKENS, 7);
    return 0;
}

static int teardown(void **state) {
    (void)state;
    for (int m = 0; m < N_MODELS; m++) ht_model_free(models[m]);
    scratch_remove();
    return 0;
}

static ht_session *fork_of(const ht_session *s) {
    ht_session *fork;
    assert_works(ht_session_fork, s, &fork);
    return fork;
}

/* Three continuations of one beginning, two of them the same, in turns: each has the bits of a session alone. */
UNIT_TEST(forks_go_their_own_ways) {
    static const int lengths[] = {1, 255, 256, 300,
                                  690}; /* in a page, at its end, behind it, and past the window's ring */
    float *rows = tiny_rows(TOKENS), *want[2] = {tiny_rows(TOKENS), tiny_rows(TOKENS)};
    const size_t bytes = MORE * TINY_VOCAB * sizeof(float);
    for (int m = 0; m < N_MODELS; m++)
        for (int i = 0; i < (TEST_SLOW || test_is_late() ? 2 : 5); i++) {
            if (test_is_late() && !test_takes(m + i, 2)) continue;
            const int n = lengths[i];
            const int32_t *next[2] = {ids + n, ids + 50};
            for (int way = 0; way < 2; way++) {
                ht_session *alone = tiny_session(models[m], 50);
                tiny_forward(alone, ids, (size_t)n, false, NULL);
                tiny_forward(alone, next[way], MORE, true, want[way]);
                ht_session_free(alone);
            }
            ht_session *s = tiny_session(models[m], 50);
            tiny_forward(s, ids, (size_t)n, false, NULL);
            ht_session *fork = fork_of(s), *second = fork_of(fork);
            assert_int_equal(ht_session_length(fork), n);
            assert_memory_equal(ht_session_tokens(fork), ids, (size_t)n * sizeof *ids);
            tiny_forward(fork, next[1], MORE, true, rows);
            assert_memory_equal(rows + n * TINY_VOCAB, want[1] + n * TINY_VOCAB, bytes);
            tiny_forward(s, next[0], MORE, true, rows);
            assert_memory_equal(rows + n * TINY_VOCAB, want[0] + n * TINY_VOCAB, bytes);
            ht_session_free(s); /* what the second still holds stays */
            ht_session_free(fork);
            memset(rows, 0, (size_t)TOKENS * TINY_VOCAB * sizeof *rows);
            tiny_forward(second, next[0], MORE, true, rows);
            assert_memory_equal(rows + n * TINY_VOCAB, want[0] + n * TINY_VOCAB, bytes);
            ht_session_free(second);
        }
    free(rows), free(want[0]), free(want[1]);
}

/* Only a page that is written to is copied, and once. */
UNIT_TEST(forks_share_memory) {
    ht_session *s = tiny_session(models[0], 50);
    tiny_forward(s, ids, 700, false, NULL);
    const size_t page = ht_session_cache_bytes(s) / 3;
    size_t before = ht_memory_get(models[0]->device).active_bytes;
    ht_session *fork = fork_of(s);
    assert_int_equal(ht_memory_get(models[0]->device).active_bytes, before);
    ht_session *idle = tiny_session(models[0], 50);
    tiny_forward(idle, ids, 10, false, NULL); /* as much memory for computing as the fork will take */
    size_t computing = ht_memory_get(models[0]->device).active_bytes - before - page;
    before = ht_memory_get(models[0]->device).active_bytes;
    tiny_forward(fork, ids, 10, false, NULL);
    assert_int_equal(ht_memory_get(models[0]->device).active_bytes - before, page + computing);
    before = ht_memory_get(models[0]->device).active_bytes;
    tiny_forward(fork, ids, 10, false, NULL);
    tiny_forward(s, ids, 10, false, NULL); /* the page is its own by now */
    assert_int_equal(ht_memory_get(models[0]->device).active_bytes, before);
    ht_session_free(idle);
    ht_session_free(fork);
    ht_session_free(s);
}

/* A fork and its session take a state each for the one that they share, whichever goes on first, and a page of keys is
 * copied once. All of it is in ht_cache_growth, with a snapshot for a message's end, which does not come. */
UNIT_TEST(forks_take_what_is_forecast) {
    enum { BEGUN = 200, STEPS = 3 };
    ht_model *m = tiny_load(&(tiny_options){.recurrent = true});
    size_t states = 0, page = 0;
    for (int32_t l = 0; l < m->n_cache_layers; l++)
        *(m->kv[l].shape.state ? &states : &page) += m->device->kv->page_bytes(&m->kv[l].shape);
    for (int order = 0; order < 2; order++) {
        ht_kv_account account = {0};
        ht_session *s = tiny_session(m, 50);
        ht_cache_set_account(s->cache, &account);
        tiny_forward(s, ids, BEGUN, false, NULL);
        ht_session *fork = fork_of(s), *both[2] = {order ? fork : s, order ? s : fork};
        const size_t all = account.bytes;
        for (int i = 0; i < 2; i++) {
            const size_t before = account.bytes, growth = ht_cache_growth(both[i]->cache, BEGUN + STEPS);
            for (int k = 0; k < STEPS; k++) tiny_forward(both[i], ids + k, 1, false, NULL);
            assert_int_equal(account.bytes + states, before + growth);
        }
        assert_int_equal(account.bytes, all + 2 * states + page);
        ht_session_free(s);
        ht_session_free(fork);
        assert_int_equal(account.bytes, 0);
    }
    ht_model_free(m);
}

/* Pages that were read to host memory and written to another cache continue with the same bits. */
UNIT_TEST(saved_pages_continue) {
    static const ht_dtype types[] = {HT_F32, HT_F16, HT_BF16, HT_I8};
    const int64_t N = TEST_SLOW || test_is_late() ? 300 : 700;
    float *rows = tiny_rows(TOKENS), *want = tiny_rows(TOKENS);
    for (size_t t = 0; t < sizeof types / sizeof *types; t++) {
        ht_model *m = tiny_load(&(tiny_options){.type = HT_W_Q8_0, .kv = types[t]});
        ht_device *d = m->device;
        ht_session *s = tiny_session(m, 64), *other = tiny_session(m, 64);
        ht_error err = {0};
        tiny_forward(s, ids, (size_t)N, false, NULL);
        assert_int_equal(ht_cache_reserve(other->cache, N, &err), HT_OK);
        for (int32_t l = 0; l < s->cache->n_layers; l++) {
            const ht_kv_layer *from = &s->cache->layer[l], *to = &other->cache->layer[l];
            const size_t bytes = ht_kv_saved_bytes(&from->shape);
            char *saved = malloc(HT_KV_PAGE * bytes), *again = malloc(HT_KV_PAGE * bytes);
            for (int64_t p = 0; p * HT_KV_PAGE < N; p++) {
                const int64_t n = N - p * HT_KV_PAGE < HT_KV_PAGE ? N - p * HT_KV_PAGE : HT_KV_PAGE, half = n / 3;
                assert_int_equal(d->kv->read(d, &from->shape, from->pages[p], 0, n, saved, &err), HT_OK);
                /* in two pieces, the second one first */
                assert_int_equal(
                    d->kv->write(d, &to->shape, to->pages[p], half, n - half, saved + (size_t)half * bytes, &err),
                    HT_OK);
                assert_int_equal(d->kv->write(d, &to->shape, to->pages[p], 0, half, saved, &err), HT_OK);
                assert_int_equal(d->kv->read(d, &to->shape, to->pages[p], half, n - half, again, &err), HT_OK);
                assert_memory_equal(again, saved + (size_t)half * bytes, (size_t)(n - half) * bytes);
            }
            free(saved), free(again);
        }
        for (int i = 0; i < N; i++) assert_int_equal(ht_session_push(other, ids[i], &err), HT_OK);
        other->cache->length = N;
        tiny_forward(s, ids + N, MORE, true, want);
        tiny_forward(other, ids + N, MORE, true, rows);
        assert_memory_equal(rows + N * TINY_VOCAB, want + N * TINY_VOCAB, MORE * TINY_VOCAB * sizeof(float));
        ht_session_free(s);
        ht_session_free(other);
        ht_model_free(m);
    }
    free(rows), free(want);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(forks_go_their_own_ways),
        cmocka_unit_test(forks_share_memory),
        cmocka_unit_test(forks_take_what_is_forecast),
        cmocka_unit_test(saved_pages_continue),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
