/* Prefix caches in files: an engine that loads one reuses what the other had, with the same bits; what is damaged, foreign or
 * newer is refused as a whole. */
#include "device/device.h"
#include "generate/engine_internal.h"
#include "generate/state_file.h"
#include "support/adapters.h"
#include "support/engine_run.h"
#include "support/options.h"
#include "support/scratch.h"
#include "support/test.h"
#include "support/tiny_model.h"

#include <hearth/state.h>

#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { MOST = 800, WINDOW = 40 };

static const tiny_options kinds[] = {{.type = HT_W_Q8_0},
                                     {.type = HT_W_Q8_0, .window = WINDOW},
                                     {.window = 300, .kv = HT_F32},
                                     {.type = HT_W_Q8_0, .kv = HT_I8},
                                     {.kv = HT_BF16, .window = WINDOW},
                                     {.kv = HT_BF16, .latent = true},
                                     {.type = HT_W_Q8_0, .recurrent = true}};
enum { N_KINDS = sizeof kinds / sizeof *kinds };

static int32_t ids[MOST], other[MOST];

static int setup(void **state) {
    (void)state;
    scratch_make();
    tiny_ids(ids, MOST, 7);
    for (int i = 0; i < MOST; i++) other[i] = (ids[i] + 1) % TINY_IM_START;
    return 0;
}

static void save(ht_engine *e, const char *name) { assert_works(ht_engine_save_cache, e, scratch_path(name)); }

static void load(ht_engine *e, const char *name) { assert_works(ht_engine_load_cache, e, scratch_path(name)); }

static ht_status refuse(ht_engine *e, const char *name, ht_error *err) {
    const ht_engine_statistics was = ht_engine_get_statistics(e);
    *err = (ht_error){0};
    const ht_status status = ht_engine_load_cache(e, scratch_path(name), err);
    const ht_engine_statistics is = ht_engine_get_statistics(e);
    if (!status) fail_msg("%s is loaded", name);
    assert_true(err->status == status && err->message[0]);
    assert_int_equal(is.prefix_bytes, was.prefix_bytes);
    assert_int_equal(is.prefix_tokens, was.prefix_tokens);
    assert_int_equal(atomic_load(&e->account.bytes), is.prefix_bytes);
    return status;
}

/* ---- what is there again ---- */

UNIT_TEST(loaded_prefixes_are_reused) {
    static const engine_question mine = {.salt = "mine"};
    for (int k = test_is_late(); k < (test_is_late() ? 2 : N_KINDS); k++) {
        ht_model *m = tiny_load(&kinds[k]);
        ht_adapter *a = test_adapter_for(m, 2, 1, 3);
        ht_engine *e = engine_open(m, 0, SIZE_MAX);
        (void)engine_warm(e, other, 600, &(engine_question){.adapter = a});
        (void)engine_warm(e, ids, 700, NULL);
        (void)engine_warm(e, ids, 90, &mine);
        const engine_answer first = engine_ask(e, other, 300, NULL);
        const ht_engine_statistics f = ht_engine_get_statistics(e);
        save(e, "cache");
        ht_engine_close(e);
        /* Steps of other lengths have other rings. */
        for (int32_t steps = 64; steps <= 512; steps += 448) {
            e = engine_open(m, steps, SIZE_MAX);
            load(e, "cache");
            const ht_engine_statistics now = ht_engine_get_statistics(e);
            assert_int_equal(now.prefix_tokens, f.prefix_tokens);
            assert_int_equal(now.prefix_bytes, f.prefix_bytes);
            const engine_answer again = engine_ask(e, other, 300, NULL), more = engine_ask(e, ids, 750, NULL),
                                want = engine_alone(m, ids, 750, NULL);
            const bool recurrent = kinds[k].recurrent; /* with states at page ends, and at ends of what was computed */
            assert_int_equal(again.reuse.end, recurrent ? HT_REUSE_STATE : HT_REUSE_ALL);
            assert_int_equal(again.reuse.reused, recurrent ? 256 : 299);
            assert_memory_equal(again.token, first.token, sizeof first.token);
            assert_int_equal(more.reuse.end, HT_REUSE_ENDS);
            assert_int_equal(more.reuse.reused, 700);
            assert_memory_equal(more.token, want.token, sizeof want.token);
            const ht_reuse salted = engine_warm(e, ids, 200, &mine);
            assert_int_equal(salted.end, HT_REUSE_ENDS);
            assert_int_equal(salted.reused, 90);
            assert_int_equal(engine_warm(e, ids, 200, &(engine_question){.salt = "x"}).end, HT_REUSE_NEW);
            assert_int_equal(engine_warm(e, other, 600, &(engine_question){.adapter = a}).reused,
                             recurrent ? 512 : 599);
            ht_engine_close(e);
        }
        ht_adapter_free(a);
        ht_model_free(m);
    }
}

/* An adapter that is loaded anew finds what it was computed for, at its scale; other adapters do not, and can be skipped. */
UNIT_TEST(prefixes_of_adapters_are_theirs) {
    ht_model *m = tiny_load(&kinds[0]);
    ht_adapter *first[] = {test_adapter_for(m, 2, 1, 3), test_adapter_for(m, 2, 1, 4)},
               *again[] = {test_adapter_for(m, 2, 1, 3), test_adapter_for(m, 2, 1, 4)};
    ht_engine *e = engine_open(m, 0, SIZE_MAX);
    int64_t skipped;
    (void)engine_warm(e, ids, 90, NULL);
    (void)engine_warm(e, ids, 300, &(engine_question){.adapter = first[0]});
    (void)engine_warm(e, ids, 400, &(engine_question){.adapter = first[1], .scale = 0.5f});
    save(e, "adapted");
    for (int i = 0; i < 2; i++) ht_adapter_free(first[i]);
    ht_engine_close(e);
    e = engine_open(m, 0, SIZE_MAX);
    load(e, "adapted");
    assert_int_equal(ht_engine_get_statistics(e).prefix_tokens, 790);
    const engine_question tuned = {.adapter = again[0]};
    const engine_answer is = engine_ask(e, ids, 300, &tuned), want = engine_alone(m, ids, 300, &tuned);
    assert_int_equal(is.reuse.reused, 299);
    assert_memory_equal(is.token, want.token, sizeof is.token);
    assert_int_equal(engine_warm(e, ids, 400, &(engine_question){.adapter = again[1], .scale = 0.5f}).reused, 399);
    assert_int_equal(engine_warm(e, ids, 400, &(engine_question){.adapter = again[1]}).end, HT_REUSE_ADAPTER);
    assert_int_equal(engine_warm(e, ids, 90, NULL).reused, 89);
    ht_engine_close(e);
    /* The order of the adapters given does not matter, and tokens of others are counted. */
    const struct {
        int n;
        int64_t kept, skipped;
    } cases[] = {{0, 90, 700}, {1, 390, 400}, {2, 790, 0}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        e = engine_open(m, 0, SIZE_MAX);
        assert_works(ht_engine_load_cache_of, e, scratch_path("adapted"), again, cases[i].n, &skipped);
        assert_int_equal(ht_engine_get_statistics(e).prefix_tokens, cases[i].kept);
        assert_int_equal(skipped, cases[i].skipped);
        ht_engine_close(e);
    }
    for (int i = 0; i < 2; i++) ht_adapter_free(again[i]);
    ht_model_free(m);
}

/* ---- room ---- */

/* Tokens at the beginning of a prompt that are kept, without computing it. */
static int64_t kept(ht_engine *e, const int32_t *token) {
    ht_cache *c;
    ht_prefix_found found;
    assert_int_equal(ht_cache_new(e->model, 64, &c, NULL), HT_OK);
    assert_int_equal(ht_prefix_cache_find(e->prefix, &(ht_prefix_key){0}, token, MOST, c, &found, NULL), HT_OK);
    ht_prefix_cache_unlock(e->prefix, found.lock);
    ht_cache_free(c);
    return found.matched;
}

/* The most recently used ones come first, what is there already stays, and nothing has to go. */
UNIT_TEST(as_much_as_there_is_room_for) {
    ht_model *m = tiny_load(&kinds[0]);
    const size_t node = engine_node_bytes(m);
    ht_engine *e = engine_open(m, 0, SIZE_MAX);
    (void)engine_warm(e, other, 600, NULL);
    (void)engine_warm(e, ids, 700, NULL);
    save(e, "cache");
    for (int i = 0; i < 2; i++) { /* what is there already takes nothing */
        load(e, "cache");
        assert_int_equal(ht_engine_get_statistics(e).prefix_bytes, 6 * node);
        assert_int_equal(atomic_load(&e->account.bytes), 6 * node);
        save(e, "cache");
    }
    ht_engine_close(e);
    static const int64_t want[][2] = {{256, 0}, {512, 0}, {700, 0}, {700, 256}, {700, 512}, {700, 600}};
    for (size_t nodes = 1; nodes <= 6; nodes++) {
        e = engine_open(m, 0, nodes * node + 100);
        load(e, "cache");
        assert_int_equal(ht_engine_get_statistics(e).prefix_bytes, nodes * node);
        assert_int_equal(ht_engine_get_statistics(e).prefix_evicted, 0);
        assert_int_equal(kept(e, ids), want[nodes - 1][0]);
        assert_int_equal(kept(e, other), want[nodes - 1][1]);
        ht_engine_close(e);
    }
    /* Behind what is there: it goes first. */
    e = engine_open(m, 0, 4 * node);
    (void)engine_warm(e, other, 250, &(engine_question){.salt = "own"});
    load(e, "cache");
    assert_true(ht_prefix_cache_evict(e->prefix));
    assert_true(ht_prefix_cache_evict(e->prefix));
    assert_int_equal(kept(e, ids), 256);
    assert_int_equal(engine_warm(e, other, 250, &(engine_question){.salt = "own"}).reused, 249);
    ht_engine_close(e);
    /* Running answers may have the memory that the prefixes' budget allows. */
    assert_works(ht_engine_open, m, OPTIONS_AT(ht_engine_options, with.kv_bytes = 4 * node), &e);
    atomic_fetch_add(&e->account.bytes, 3 * node);
    load(e, "cache");
    assert_int_equal(ht_engine_get_statistics(e).prefix_bytes, node);
    atomic_fetch_sub(&e->account.bytes, 3 * node);
    ht_engine_close(e);
    /* A context that is shorter. */
    ht_model *small;
    assert_works(ht_model_load, tiny_write(&kinds[0]), OPTIONS_AT(ht_model_options, with.context = 520), &small);
    e = engine_open(small, 0, SIZE_MAX);
    load(e, "cache");
    assert_int_equal(ht_engine_get_statistics(e).prefix_bytes, 4 * node);
    const engine_answer is = engine_ask(e, ids, 510, NULL), alone = engine_alone(small, ids, 510, NULL);
    assert_memory_equal(is.token, alone.token, sizeof is.token);
    ht_engine_close(e);
    ht_model_free(small);
    ht_model_free(m);
}

/* An order of use, nodes whose sliding layers have gone, and states come back as they were. */
UNIT_TEST(a_file_saved_again_is_the_same) {
    for (int k = 1; k < N_KINDS; k += N_KINDS - 2) {
        ht_model *m = tiny_load(&kinds[k]);
        ht_engine *e = engine_open(m, 64, engine_node_bytes(m) * 5 / 2);
        (void)engine_warm(e, ids, 780, NULL); /* the third page is kept, and goes, as the prompt grows */
        save(e, "first");
        ht_engine_close(e);
        e = engine_open(m, 64, SIZE_MAX);
        load(e, "first");
        save(e, "second");
        ht_engine_close(e);
        char command[1200];
        snprintf(command, sizeof command, "cmp %s %s", scratch_path("first"), scratch_path("second"));
        assert_int_equal(system(command), 0);
        ht_model_free(m);
    }
}

static atomic_bool answered;

static void *save_and_load(void *engine) {
    ht_error err = {0};
    char path[512];
    int rounds = 0;
    snprintf(path, sizeof path, "%s/beside", scratch_directory());
    for (; !atomic_load(&answered) || !rounds; rounds++)
        if (ht_engine_save_cache(engine, path, &err) || ht_engine_load_cache(engine, path, &err)) return NULL;
    return engine;
}

/* While answers are computed, pages are copied, and prefixes have to go. */
UNIT_TEST(saving_and_loading_beside_answers) {
    ht_model *m = tiny_load(&kinds[1]);
    ht_engine *e = engine_open(m, 64, engine_node_bytes(m) * 4);
    pthread_t thread;
    void *result;
    atomic_store(&answered, false);
    assert_int_equal(pthread_create(&thread, NULL, save_and_load, e), 0);
    for (size_t i = 0; i < 12; i++) {
        const int32_t *token = i % 3 ? ids : other;
        const size_t n = 100 + i * 37 % 300;
        const engine_question how = {.salt = i % 4 ? NULL : "mine", .max_tokens = 30};
        const engine_answer is = engine_ask(e, token, n, &how), want = engine_alone(m, token, n, &how);
        assert_memory_equal(is.token, want.token, sizeof is.token);
    }
    atomic_store(&answered, true);
    assert_int_equal(pthread_join(thread, &result), 0);
    assert_ptr_equal(result, e);
    assert_int_equal(atomic_load(&e->account.bytes), ht_engine_get_statistics(e).prefix_bytes);
    ht_engine_close(e);
    ht_model_free(m);
}

/* ---- refusals ---- */

static void find_damage(const tiny_options *kind) {
    ht_model *m = tiny_load(kind);
    ht_engine *e = engine_open(m, 64, SIZE_MAX);
    ht_error err;
    size_t n;
    (void)engine_warm(e, ids, 270, NULL);
    (void)engine_warm(e, ids, 20, &(engine_question){.salt = "mine"});
    save(e, "whole");
    ht_engine_close(e);
    e = engine_open(m, 64, SIZE_MAX);
    (void)engine_warm(e, other, 100, NULL);
    char *bytes = scratch_read("whole", &n), *changed = malloc(n + 1);
    const size_t step = (size_t)test_cases(TEST_SLOW ? 9973 : 997, 1);
    for (size_t cut = 0; cut < n;
         cut += cut < 700 ? (size_t)test_cases(TEST_SLOW ? 5 : 1, 1) : step) { /* its head, then some */
        scratch_write("cut", bytes, cut);
        assert_fails(HT_ERR_FORMAT, "cut", refuse, e, "cut");
    }
    uint64_t seed = 5;
    for (int i = 0, most = test_cases(TEST_SLOW ? 60 : 200, 10000); i < most; i++) {
        seed = seed * 6364136223846793005u + 1442695040888963407u;
        const size_t bit = (size_t)(seed >> 20) % (8 * n);
        memcpy(changed, bytes, n);
        changed[bit / 8] ^= (char)(1 << bit % 8);
        scratch_write("flipped", changed, n);
        (void)refuse(e, "flipped", &err);
    }
    memcpy(changed, bytes, n);
    changed[n] = 0;
    scratch_write("longer", changed, n + 1);
    assert_int_equal(refuse(e, "longer", &err), HT_ERR_FORMAT);
    changed[8] = 2;
    scratch_write("newer", changed, n);
    assert_fails(HT_ERR_UNSUPPORTED, "version 2", refuse, e, "newer");
    scratch_write("text", "a letter to my model, which is no state at all\n", 47);
    assert_int_equal(refuse(e, "text", &err), HT_ERR_FORMAT);
    assert_int_equal(refuse(e, "nothing", &err), HT_ERR_IO);
    assert_int_equal(engine_ask(e, other, 101, NULL).reuse.reused, 100); /* as it was */
    load(e, "whole");
    assert_int_equal(engine_ask(e, ids, 270, NULL).reuse.reused, kind->recurrent ? 256 : 269);
    free(bytes), free(changed);
    ht_engine_close(e);
    ht_model_free(m);
}

UNIT_TEST(damage_is_found) {
    find_damage(&kinds[0]);
    find_damage(&kinds[N_KINDS - 1]);
}

UNIT_TEST(what_is_foreign_is_refused) {
    ht_model *m = tiny_load(&kinds[0]);
    ht_engine *e = engine_open(m, 0, SIZE_MAX), *off = engine_open(m, 0, 0);
    (void)engine_warm(e, ids, 300, NULL);
    save(e, "cache");
    const struct {
        tiny_options o;
        const char *text;
    } others[] = {
        {{.type = HT_W_Q4_0}, "was saved with \"model "},
        {{.type = HT_W_Q8_0, .window = WINDOW}, "and this engine has \"model gemma3"},
        {{.type = HT_W_Q8_0, .kv = HT_F32}, "\"keys and values f16\", and this engine has \"keys and values f32"}};
    for (size_t i = 0; i < sizeof others / sizeof *others; i++) {
        ht_model *foreign = tiny_load(&others[i].o);
        ht_engine *engine = engine_open(foreign, 0, SIZE_MAX);
        assert_fails(HT_ERR_ARGUMENT, others[i].text, refuse, engine, "cache");
        ht_engine_close(engine);
        ht_model_free(foreign);
    }
    /* A session is none, nor the other way round. */
    ht_session *s = tiny_session(m, 64);
    tiny_forward(s, ids, 30, false, NULL);
    assert_works(ht_session_save, s, scratch_path("session"));
    assert_fails(HT_ERR_ARGUMENT, "holds a session, not an engine's prefix cache", refuse, e, "session");
    assert_fails(HT_ERR_ARGUMENT, "holds an engine's prefix cache, not a session", ht_session_load, s,
                 scratch_path("cache"));
    ht_session_free(s);
    /* An engine without one. */
    assert_fails(HT_ERR_ARGUMENT, "prefix_bytes is 0", refuse, off, "cache");
    assert_fails(HT_ERR_ARGUMENT, "prefix_bytes is 0", ht_engine_save_cache, off, scratch_path("none"));
    assert_int_equal(access(scratch_path("none"), F_OK), -1);
    /* Memory that is not there. */
    ht_engine *engine = engine_open(m, 0, SIZE_MAX);
    const size_t old = ht_memory_set_limit(m->device, ht_memory_get(m->device).active_bytes + 40000);
    assert_fails(HT_ERR_MEMORY, "", refuse, engine, "cache");
    ht_memory_set_limit(m->device, old);
    load(engine, "cache");
    ht_engine_close(engine);
    ht_engine_close(off);
    ht_engine_close(e);
    ht_model_free(m);
}

/* Sections that fit their checksums and say what cannot be. */
UNIT_TEST(what_makes_no_tree_is_refused) {
    enum { TOKENS = 3, HEAD = 16 };
    ht_model *m = tiny_load(&kinds[0]);
    const size_t each = ht_kv_saved_bytes(&m->kv[0].shape);
    ht_engine *e = engine_open(m, 0, SIZE_MAX);
    ht_state_file f;
    char *origin;
    save(e, "empty");
    load(e, "empty");
    assert_works(ht_state_file_open, scratch_path("empty"), &f);
    assert_works(ht_state_file_read_all, &f, &f.section[0], 1 << 16, &origin);
    ht_state_file_close(&f);
    struct {
        const char *what;
        uint64_t parent, n, salt_bytes;
        int32_t token;
        unsigned char has[2];
        uint64_t pages, nodes, index;
        const char *salt;
    } cases[] = {{"", 0, TOKENS, 0, 5, {1, 1}, 2, 1, 0, ""},
                 {"", 0, TOKENS, 2, 5, {1, 1}, 2, 1, 0, "ab"},
                 {"follows none", 1, TOKENS, 0, 5, {1, 1}, 2, 1, 0, ""},
                 {"follows none", UINT64_MAX, TOKENS, 0, 5, {1, 1}, 2, 1, 0, ""},
                 {"number of tokens", 0, 0, 0, 5, {1, 1}, 2, 1, 0, ""},
                 {"number of tokens", 0, 257, 0, 5, {1, 1}, 2, 1, 0, ""},
                 {"shorter", 0, 256, 0, 5, {1, 1}, 0, 1, 0, ""},
                 {"shorter", 0, UINT64_C(0xFFFF0000) + TOKENS, 0, 5, {1, 1}, 2, 1, 0, ""},
                 {"lacks a layer", 0, 0x10000 + TOKENS, 0, 5, {1, 1}, 2, 1, 0, ""},
                 {"shorter", 0, TOKENS, 1 << 20, 5, {1, 1}, 2, 1, 0, "ab"},
                 {"shorter", 0, TOKENS, UINT32_MAX, 5, {1, 1}, 2, 1, 0, "ab"},
                 {"holds a zero", 0, TOKENS, 2, 5, {1, 1}, 2, 1, 0, "a\0"},
                 {"not in the vocabulary", 0, TOKENS, 0, -1, {1, 1}, 2, 1, 0, ""},
                 {"not in the vocabulary", 0, TOKENS, 0, TINY_VOCAB, {1, 1}, 2, 1, 0, ""},
                 {"lacks a layer", 0, TOKENS, 0, 5, {1, 0}, 1, 1, 0, ""},
                 {"lacks a layer", 0, TOKENS, 0, 5, {1, 2}, 2, 1, 0, ""},
                 {"not as long", 0, TOKENS, 0, 5, {1, 1}, 1, 1, 0, ""},
                 {"not as long", 0, TOKENS, 0, 5, {1, 1}, 3, 1, 0, ""},
                 {"as many nodes", 0, TOKENS, 0, 5, {1, 1}, 2, 2, 0, ""},
                 {"their order", 0, TOKENS, 0, 5, {1, 1}, 2, 1, 1, ""}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        ht_state_writer *w;
        unsigned char head[HEAD], count[8], token[4], *page = calloc(TOKENS, each);
        ht_state_put_number(head, cases[i].parent, 8);
        ht_state_put_number(head + 8, cases[i].n, 4);
        ht_state_put_number(head + 12, cases[i].salt_bytes, 4);
        ht_state_put_number(count, cases[i].nodes, 8);
        ht_state_put_number(token, (uint32_t)cases[i].token, 4);
        assert_works(ht_state_writer_open, scratch_path("made"), 3, &w);
        assert_works(ht_state_writer_begin, w, HT_STATE_ORIGIN, 0);
        assert_works(ht_state_writer_put, w, origin, strlen(origin));
        assert_works(ht_state_writer_begin, w, HT_STATE_CACHE, 0);
        assert_works(ht_state_writer_put, w, count, sizeof count);
        assert_works(ht_state_writer_begin, w, HT_STATE_NODE, cases[i].index);
        assert_works(ht_state_writer_put, w, head, sizeof head);
        if (*cases[i].salt) assert_works(ht_state_writer_put, w, cases[i].salt, 2);
        for (int k = 0; k < TOKENS; k++) assert_works(ht_state_writer_put, w, token, sizeof token);
        assert_works(ht_state_writer_put, w, cases[i].has, sizeof cases[i].has);
        for (uint64_t l = 0; l < cases[i].pages; l++) assert_works(ht_state_writer_put, w, page, TOKENS * each);
        assert_works(ht_state_writer_commit, w);
        free(page);
        if (!*cases[i].what) {
            load(e, "made");
            continue;
        }
        assert_fails(HT_ERR_FORMAT, cases[i].what, refuse, e, "made");
    }
    assert_int_equal(ht_engine_get_statistics(e).prefix_tokens, 2 * TOKENS);
    free(origin);
    ht_engine_close(e);
    ht_model_free(m);
}

/* What a file cannot hold is said, and leaves nothing behind. */
UNIT_TEST(more_nodes_than_a_file_takes) {
    ht_model *m = tiny_load(&kinds[0]);
    ht_engine *e = engine_open(m, 0, SIZE_MAX);
    ht_kv_page *page[2]; /* the same for all of them */
    ht_prefix_node *node;
    for (int l = 0; l < 2; l++) assert_works(ht_kv_page_new, m->device, &m->kv[l].shape, &e->account, &page[l]);
    for (int32_t i = 0; i < HT_STATE_MOST_SECTIONS - 1; i++) {
        char salt[16];
        snprintf(salt, sizeof salt, "%d", (int)(i / 256));
        const ht_prefix_key key = {.salt = salt};
        assert_works(ht_prefix_cache_add, e->prefix, &key, NULL, (int32_t[]){i % 256, 1}, 2, page, &node);
        assert_non_null(node);
    }
    assert_fails(HT_ERR_LIMIT, "65535 pages of tokens, and a file holds at most 65534", ht_engine_save_cache, e,
                 scratch_path("many"));
    assert_int_equal(access(scratch_path("many"), F_OK), -1);
    assert_true(ht_prefix_cache_evict(e->prefix));
    if (!test_is_late()) { /* where every page is waited for */
        save(e, "many");
        load(e, "many");
    }
    for (int l = 0; l < 2; l++) ht_kv_page_release(m->device, &m->kv[l].shape, page[l]);
    ht_engine_close(e);
    ht_model_free(m);
}

/* Others cannot read what users said; who let them before decides so again. */
UNIT_TEST(a_file_is_its_owners) {
    ht_model *m = tiny_load(&kinds[0]);
    ht_engine *e = engine_open(m, 0, SIZE_MAX);
    struct stat st;
    save(e, "private");
    assert_int_equal(stat(scratch_path("private"), &st), 0);
    assert_int_equal(st.st_mode & 0777, 0600);
    assert_int_equal(chmod(scratch_path("private"), 0640), 0);
    save(e, "private");
    assert_int_equal(stat(scratch_path("private"), &st), 0);
    assert_int_equal(st.st_mode & 0777, 0640);
    assert_fails(HT_ERR_IO, "", ht_engine_save_cache, e, scratch_path("no/such/place"));
    assert_fails(HT_ERR_IO, "", ht_engine_save_cache, e, scratch_directory());
    ht_engine_close(e);
    ht_model_free(m);
}

/* ---- what is forgotten ---- */

UNIT_TEST(what_is_cleared_is_computed_again) {
    ht_model *m = tiny_load(&kinds[0]);
    ht_engine *e = engine_open(m, 0, SIZE_MAX), *off = engine_open(m, 0, 0);
    const engine_answer first = engine_ask(e, ids, 300, NULL);
    (void)engine_warm(e, other, 600, &(engine_question){.salt = "mine"});
    const int64_t kept = ht_engine_get_statistics(e).prefix_tokens;
    assert_true(kept >= 900);
    assert_int_equal(ht_engine_clear_cache(e), kept);
    assert_int_equal(ht_engine_clear_cache(e), 0);
    const ht_engine_statistics f = ht_engine_get_statistics(e);
    assert_int_equal(f.prefix_tokens, 0);
    assert_int_equal(f.prefix_bytes, 0);
    assert_int_equal(f.prefix_evicted, 0); /* nothing needed the room */
    assert_int_equal(atomic_load(&e->account.bytes), 0);
    const engine_answer again = engine_ask(e, ids, 300, NULL);
    assert_int_equal(again.reuse.end, HT_REUSE_NEW);
    assert_memory_equal(again.token, first.token, sizeof first.token);
    assert_int_equal(ht_engine_clear_cache(off), 0);
    ht_engine_close(off);
    ht_engine_close(e);
    ht_model_free(m);
}

/* Answers under way go on with what they stand on, and are those that they were. */
static void *clear_often(void *user) {
    for (int i = 0; i < 200; i++) ht_engine_clear_cache(user);
    return NULL;
}

UNIT_TEST(clearing_beside_answers) {
    ht_model *m = tiny_load(&kinds[0]);
    ht_engine *e = engine_open(m, 0, SIZE_MAX);
    const engine_answer want = engine_alone(m, ids, 600, NULL);
    pthread_t thread;
    assert_int_equal(pthread_create(&thread, NULL, clear_often, e), 0);
    for (int i = 0; i < 6; i++) {
        const engine_answer got = engine_ask(e, ids, 600, NULL);
        assert_memory_equal(got.token, want.token, sizeof want.token);
    }
    pthread_join(thread, NULL);
    (void)ht_engine_clear_cache(e);
    assert_int_equal(atomic_load(&e->account.bytes), 0);
    ht_engine_close(e);
    ht_model_free(m);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(loaded_prefixes_are_reused),
        cmocka_unit_test(prefixes_of_adapters_are_theirs),
        cmocka_unit_test(as_much_as_there_is_room_for),
        cmocka_unit_test(a_file_saved_again_is_the_same),
        cmocka_unit_test(saving_and_loading_beside_answers),
        cmocka_unit_test(damage_is_found),
        cmocka_unit_test(what_is_foreign_is_refused),
        cmocka_unit_test(what_makes_no_tree_is_refused),
        cmocka_unit_test(a_file_is_its_owners),
        cmocka_unit_test(more_nodes_than_a_file_takes),
        cmocka_unit_test(what_is_cleared_is_computed_again),
        cmocka_unit_test(clearing_beside_answers),
    };
    return cmocka_run_group_tests(tests, setup, scratch_finish);
}
