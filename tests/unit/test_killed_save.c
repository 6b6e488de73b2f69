/* A process that is killed while it saves leaves what was there before, or what it saved: each scenario runs in a child that
 * is killed at one of its calls that change files, before the call and, when it writes, half-way through; by scripts/soak, at
 * every one.
 * Linked with --wrap for those calls (tests/CMakeLists.txt). */
#include "support/file_calls.h"
#include "support/scratch.h"
#include "support/test.h"
#include "support/tiny_model.h"

#include <hearth/adapter.h>
#include <hearth/engine.h>
#include <hearth/state.h>
#include <hearth/train.h>

#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

/* ---- what is saved: after one step, and after two ---- */

enum { OLD, NEW, VERSIONS };

static ht_model *model;
static ht_trainer *trainer[VERSIONS];
static ht_adapter *adapter[VERSIONS];
static ht_session *session[VERSIONS];
static ht_engine *engine[VERSIONS];

static ht_status save_checkpoint(int version, const char *path, ht_error *err) {
    return ht_trainer_save(trainer[version], path, err);
}

static ht_status save_peft(int version, const char *path, ht_error *err) {
    return ht_adapter_save(adapter[version], model, path, HT_ADAPTER_PEFT, err);
}

static ht_status save_mlx(int version, const char *path, ht_error *err) {
    return ht_adapter_save(adapter[version], model, path, HT_ADAPTER_MLX, err);
}

static ht_status save_gguf(int version, const char *path, ht_error *err) {
    return ht_adapter_save(adapter[version], model, path, HT_ADAPTER_GGUF, err);
}

static ht_status save_state(int version, const char *path, ht_error *err) {
    return ht_session_save(session[version], path, err);
}

static ht_status save_cache(int version, const char *path, ht_error *err) {
    return ht_engine_save_cache(engine[version], path, err);
}

typedef ht_status save_function(int version, const char *path, ht_error *err);

static void save(save_function *function, int version, const char *path) {
    ht_error err = {0};
    if (function(version, path, &err)) fail_msg("%s", err.message);
}

/* ---- what is there ---- */

typedef struct content { /* of a file, or of all files of an adapter's directory, one after the other */
    char *bytes;
    size_t n;
} content;

static bool append_file(content *c, const char *path) {
    struct stat st;
    if (stat(path, &st) != 0) return false;
    FILE *f = fopen(path, "rb");
    assert_non_null(f);
    const size_t n = (size_t)st.st_size;
    c->bytes = realloc(c->bytes, c->n + n + 1);
    assert_non_null(c->bytes);
    assert_int_equal(fread(c->bytes + c->n, 1, n, f), n);
    (void)fclose(f);
    c->n += n;
    return true;
}

static content content_of(const char *path) {
    static const char *const names[] = {"adapter_config.json", "adapter_model.safetensors", "adapters.safetensors"};
    content c = {0};
    struct stat st;
    if (stat(path, &st) != 0) return c;
    if (!S_ISDIR(st.st_mode)) {
        assert_true(append_file(&c, path));
        return c;
    }
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        char file[1200];
        (void)snprintf(file, sizeof file, "%s/%s", path, names[i]);
        (void)append_file(&c, file);
    }
    return c;
}

static bool equal(const content *a, const content *b) {
    return a->n == b->n && !a->bytes == !b->bytes && (!a->n || !memcmp(a->bytes, b->bytes, a->n));
}

/* ---- every call ---- */

typedef struct saving {
    save_function *function;
    const char *path;
} saving;

static bool save_new(void *user) {
    const saving *s = user;
    ht_error err;
    return !s->function(NEW, s->path, &err);
}

/* Over nothing, or over the old version. Returns how many calls a save makes. */
static int kill_everywhere(save_function *function, bool over_old) {
    content want[VERSIONS] = {{0}, {0}};
    for (int version = over_old ? OLD : NEW; version <= NEW; version++) {
        const char *path = scratch_path_apart("it");
        save(function, version, path);
        want[version] = content_of(path);
        assert_true(want[version].n > 0);
    }
    const int apart = test_cases(3, 1);
    bool dies = true;
    int k = 0;
    for (; dies; k += apart) {
        const char *path = scratch_path_apart("it");
        if (over_old) save(function, OLD, path);
        dies = file_calls_killed(k, save_new, &(saving){function, path});
        content is = content_of(path);
        if (!equal(&is, &want[NEW]) && (!dies || !equal(&is, &want[OLD])))
            fail_msg("call %d left neither the old nor the new", k);
        free(is.bytes);
        save(function, NEW, path); /* what was left over is in nobody's way */
        is = content_of(path);
        assert_true(equal(&is, &want[NEW]));
        free(is.bytes);
    }
    free(want[OLD].bytes);
    free(want[NEW].bytes);
    return k - apart;
}

static void try_all(save_function *function, int least) {
    for (int over_old = 0; over_old < 2; over_old++) {
        const int calls = kill_everywhere(function, over_old);
        if (calls < least) fail_msg("%d calls, expected %d or more", calls, least);
    }
}

UNIT_TEST(checkpoints) { try_all(save_checkpoint, 10); }

UNIT_TEST(adapters) {
    try_all(save_peft, 15);
    try_all(save_mlx, 15);
    try_all(save_gguf, 5);
}

UNIT_TEST(states) {
    try_all(save_state, 8);
    try_all(save_cache, 8);
}

static int set_up(void **state) {
    static const char text[] = "{\"text\": \"abcdefgh\"}\n{\"text\": \"ijkl\"}\n";
    if (scratch_start(state)) return 1;
    scratch_write("train.jsonl", text, sizeof text - 1);
    model = tiny_load(&(tiny_options){.n_threads = 1}); /* a child of fork has one thread */
    ht_trainer_options o;
    ht_trainer_options_init(&o, sizeof o);
    o.data = scratch_path("train.jsonl");
    o.iters = VERSIONS;
    for (int version = OLD; version <= NEW; version++) {
        ht_error err = {0};
        ht_train_step step;
        if (ht_trainer_new(model, &o, &trainer[version], &err)) fail_msg("%s", err.message);
        for (int i = 0; i <= version; i++)
            if (ht_trainer_step(trainer[version], &step, &err)) fail_msg("%s", err.message);
        if (ht_trainer_adapter(trainer[version], &adapter[version], &err)) fail_msg("%s", err.message);
        if (ht_session_new(model, NULL, &session[version], &err) ||
            ht_session_forward(session[version], (int32_t[]){3, 1, 4}, (size_t)(2 + version), NULL, NULL, NULL, &err))
            fail_msg("%s", err.message);
        /* A child of fork has none of the engine's threads, and saves without them. */
        ht_request request;
        ht_request_init(&request, sizeof request);
        request.ids = (int32_t[]){3, 1, 4, 1, 5, 9, 2, 6, 5};
        request.n_ids = (size_t)(8 + version);
        if (ht_engine_open(model, NULL, &engine[version], &err) ||
            ht_engine_warm(engine[version], &request, NULL, &err))
            fail_msg("%s", err.message);
    }
    return 0;
}

static int tear_down(void **state) {
    for (int version = OLD; version <= NEW; version++) {
        ht_adapter_free(adapter[version]);
        ht_session_free(session[version]);
        ht_engine_close(engine[version]);
        ht_trainer_free(trainer[version]);
    }
    ht_model_free(model);
    return scratch_finish(state);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(checkpoints), cmocka_unit_test(adapters),
                                       cmocka_unit_test(states)};
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
