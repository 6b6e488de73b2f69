/* What sessions, engines and files do with the checkpoints of every family (tests/golden/families): saved and forked
 * sessions, batches, the prefix cache and speculation have the bits of a plain run; vectors and classes are those of its
 * last position; copies quantised by importance weights are close. test_golden_families.c has the values, test_convert.c
 * the containers. */
#include "base/text.h"
#include "models/model.h"
#include "support/checkpoints.h"
#include "support/cpu_device.h"
#include "support/engine_run.h"
#include "support/options.h"
#include "support/scratch.h"
#include "support/test.h"

#include <hearth/classify.h>
#include <hearth/convert.h>
#include <hearth/embed.h>
#include <hearth/importance.h>
#include <hearth/state.h>

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { TOKENS = 48, SAVED = 29, BEGUN = SAVED + 1, CHUNK = 7, ANSWER = 24 };

static ht_model *load(const char *path) {
    ht_model *m;
    assert_works(ht_model_load, path, OPTIONS_AT(ht_model_options, with.device = cpu_device), &m);
    return m;
}

static ht_session *begin(ht_model *m, int64_t chunk) {
    ht_session *s;
    assert_works(ht_session_new, m, OPTIONS_AT(ht_session_options, with.chunk = chunk), &s);
    return s;
}

static bool copy_rows(const float *logits, int64_t first, int64_t n_rows, int32_t vocab, void *to) {
    memcpy((float *)to + first * vocab, logits, (size_t)(n_rows * vocab) * sizeof *logits);
    return true;
}

/* Appends the ids [first, first + n) of all; their logits go to the same rows of `rows`. */
static void forward(ht_session *s, const int32_t *ids, int64_t first, int64_t n, float *rows) {
    assert_int_equal(ht_session_length(s), first);
    assert_works(ht_session_forward, s, ids + first, (size_t)n, OPTIONS_AT(ht_forward_options, with.all_rows = true),
                 copy_rows, rows);
}

static float *new_rows(const ht_model *m) {
    float *rows = calloc((size_t)(TOKENS * m->vocab), sizeof *rows);
    assert_non_null(rows);
    return rows;
}

static float *rows_of(ht_model *m, const int32_t *ids, int64_t n) {
    float *rows = new_rows(m);
    ht_session *s = begin(m, 0);
    forward(s, ids, 0, n, rows);
    ht_session_free(s);
    return rows;
}

/* ---- the same bits ---- */

/* A family's model, the logits [TOKENS, vocab] of a plain run, and those of a run of the first BEGUN ids. */
typedef struct family_run {
    const char *path;
    ht_model *m;
    int32_t *ids;
    float *rows, *begun;
    int64_t accepted; /* of all families: draft tokens */
} family_run;

static void check_rows(const family_run *r, const char *what, const float *rows, int64_t first, int64_t n) {
    const size_t at = (size_t)(first * r->m->vocab), bytes = (size_t)(n * r->m->vocab) * sizeof *rows;
    const float *wanted = first + n <= BEGUN ? r->begun : r->rows;
    if (memcmp(rows + at, wanted + at, bytes) != 0) fail_msg("%s: %s has other bits", r->path, what);
}

/* The rest of the ids in a session that has the first `from`. */
static void check_rest(const family_run *r, const char *what, ht_session *s, int64_t from) {
    float *rows = new_rows(r->m);
    forward(s, r->ids, from, TOKENS - from, rows);
    check_rows(r, what, rows, from, TOKENS - from);
    free(rows);
}

static void check_sessions(const family_run *r) {
    const char *path = scratch_path("state");
    float *rows = new_rows(r->m);
    ht_session *s = begin(r->m, CHUNK), *fork, *restored = begin(r->m, 0);
    forward(s, r->ids, 0, SAVED, rows);
    check_rows(r, "a run in chunks", rows, 0, SAVED);
    assert_works(ht_session_save, s, path);
    assert_works(ht_session_load, restored, path);
    assert_works(ht_session_fork, s, &fork);
    check_rest(r, "a fork", fork, SAVED);
    check_rest(r, "a session with a fork", s, SAVED);
    check_rest(r, "a restored session", restored, SAVED);
    ht_session_free(s);
    ht_session_free(fork);
    ht_session_free(restored);
    free(rows);
}

/* Two sequences of different lengths in one step. */
static void check_together(const family_run *r) {
    static const int64_t lengths[2] = {SAVED, 11};
    ht_session *s[2] = {begin(r->m, 0), begin(r->m, 0)};
    const int32_t ids[2] = {r->ids[lengths[0]], r->ids[lengths[1]]};
    const size_t n = (size_t)r->m->vocab;
    float *rows = new_rows(r->m), *both = new_rows(r->m);
    for (int i = 0; i < 2; i++) forward(s[i], r->ids, 0, lengths[i], rows);
    assert_works(ht_session_forward_together, s, ids, 2, NULL, both);
    for (int i = 0; i < 2; i++) {
        memcpy(rows + (size_t)lengths[i] * n, both + (size_t)i * n, n * sizeof *both);
        check_rows(r, "a step of two sequences", rows, lengths[i], 1);
        ht_session_free(s[i]);
    }
    free(rows);
    free(both);
}

static void check_answer(const family_run *r, const char *what, const int32_t *token, const engine_answer *wanted) {
    if (memcmp(token, wanted->token, ANSWER * sizeof *token) != 0) fail_msg("%s: %s has other tokens", r->path, what);
}

static void check_answers(family_run *r) {
    const engine_question how = {.max_tokens = ANSWER};
    const engine_answer alone = engine_alone(r->m, r->ids, TOKENS, &how);
    ht_engine *e = engine_open(r->m, 0, (size_t)32 << 20);
    int32_t longer[TOKENS + ANSWER]; /* states are kept where a sequence ended, not in all of it */
    memcpy(longer, r->ids, TOKENS * sizeof *longer);
    memcpy(longer + TOKENS, alone.token, ANSWER * sizeof *longer);
    const engine_answer next = engine_alone(r->m, longer, TOKENS + ANSWER, &how);
    for (int i = 0; i < 2; i++)
        check_answer(r, "an engine's answer", engine_ask(e, r->ids, TOKENS, &how).token, &alone);
    const engine_answer second = engine_ask(e, longer, TOKENS + ANSWER, &how);
    ht_engine_close(e);
    check_answer(r, "an answer with the prefix cache", second.token, &next);
    if (second.reuse.reused < TOKENS + ANSWER - 1) fail_msg("%s: %d tokens reused", r->path, (int)second.reuse.reused);

    ht_session *s = begin(r->m, 0);
    ht_metrics metrics;
    const ht_generate_options o =
        OPTIONS(ht_generate_options, with.max_tokens = ANSWER, with.ignore_eos = true, with.lookup = true);
    assert_works(ht_generate, s, r->ids, TOKENS, &o, NULL, NULL, &metrics);
    check_answer(r, "an answer with speculation", ht_session_tokens(s) + TOKENS, &alone);
    r->accepted += metrics.accepted_tokens;
    ht_session_free(s);
}

/* ---- states ---- */

enum { LONG = 300, PAGE = 256 };

/* All but the first `from` ids have the bits of `wanted` in a session that goes back there. */
static void check_back(const family_run *r, const char *what, ht_session *s, const int32_t *ids, int64_t from,
                       const float *wanted) {
    float *rows = calloc((size_t)(LONG * r->m->vocab), sizeof *rows);
    const size_t at = (size_t)(from * r->m->vocab);
    assert_works(ht_session_truncate, s, from);
    forward(s, ids, from, LONG - from, rows);
    if (memcmp(rows + at, wanted + at, (size_t)((LONG - from) * r->m->vocab) * sizeof *rows) != 0)
        fail_msg("%s: %s that goes back to %d has other bits", r->path, what, (int)from);
    free(rows);
}

/* A recurrent model keeps its states at the page end: sessions go back there, also restored ones; and answers across
 * it are the same with a draft model. */
static void check_states(const family_run *r) {
    static const int64_t places[] = {LONG - 1, LONG - 10, PAGE, PAGE - 1, 5};
    if (!r->m->config->recurrence.kind) return;
    const char *path = scratch_path("state");
    int32_t *ids = checkpoint_ids(r->m, LONG, 5);
    float *wanted = calloc((size_t)(LONG * r->m->vocab), sizeof *wanted);
    ht_session *s = begin(r->m, 0), *chunks = begin(r->m, 37), *restored = begin(r->m, 0);
    forward(s, ids, 0, LONG, wanted);
    check_back(r, "a session in chunks", chunks, ids, 0, wanted);
    assert_works(ht_session_save, s, path);
    assert_works(ht_session_load, restored, path);
    for (size_t i = 0; i < sizeof places / sizeof *places; i++) {
        check_back(r, "a session", i % 2 ? chunks : s, ids, places[i], wanted);
        check_back(r, "a restored session", restored, ids, places[i], wanted);
    }
    const ht_sampler_options lively = OPTIONS(ht_sampler_options, with.temperature = 1, with.seed = 4);
    ht_generate_options o =
        OPTIONS(ht_generate_options, with.max_tokens = ANSWER, with.ignore_eos = true, with.sampler = &lively);
    int32_t alone[ANSWER];
    for (int i = 0; i < 3; i++) {
        ht_session_reset(s);
        o.draft = i ? r->m : NULL;
        o.lookup = i == 2;
        assert_works(ht_generate, s, ids, PAGE - 10, &o, NULL, NULL, NULL);
        if (i == 0) memcpy(alone, ht_session_tokens(s) + PAGE - 10, sizeof alone);
        if (memcmp(alone, ht_session_tokens(s) + PAGE - 10, sizeof alone) != 0)
            fail_msg("%s: an answer with a draft model has other tokens", r->path);
    }
    ht_session_free(s);
    ht_session_free(chunks);
    ht_session_free(restored);
    free(wanted);
    free(ids);
}

/* ---- embeddings and classes ---- */

static void check_embeddings(const family_run *r) {
    const int32_t *ids[2] = {r->ids, r->ids + SAVED};
    const size_t n[2] = {SAVED, TOKENS - SAVED};
    ht_embeddings *both, *second;
    assert_works(ht_embed_ids, r->m, ids, n, 2, NULL, &both);
    assert_works(ht_embed_ids, r->m, ids + 1, n + 1, 1, NULL, &second);
    const int32_t hidden = both->hidden;
    for (int i = 0; i < 2; i++) {
        double length = 0;
        for (int32_t k = 0; k < hidden; k++)
            length += (double)both->values[i * hidden + k] * (double)both->values[i * hidden + k];
        if (!(fabs(length - 1) < 1e-4)) fail_msg("%s: a vector of length %g", r->path, sqrt(length));
    }
    assert_memory_equal(both->values + hidden, second->values, (size_t)hidden * sizeof *second->values);
    ht_embeddings_free(both);
    ht_embeddings_free(second);
}

static bool check_class(const ht_classification *c, void *user) {
    const family_run *r = user;
    const int64_t vocab = r->m->vocab, row = (c->index ? SAVED : TOKENS) - 1;
    const float *wanted = (row < BEGUN ? r->begun : r->rows) + row * vocab;
    if (c->status) fail_msg("%s: %s", r->path, c->message);
    if (memcmp(c->logits, wanted, (size_t)vocab * sizeof *wanted) != 0) fail_msg("%s: a class differs", r->path);
    for (int64_t i = 0; i < vocab; i++) assert_true(wanted[i] <= wanted[c->token]);
    return true;
}

static void check_classes(family_run *r) {
    const ht_prompt prompts[2] = {{.ids = r->ids, .n_ids = TOKENS}, {.ids = r->ids, .n_ids = SAVED}};
    assert_works(ht_classify, r->m, prompts, 2, OPTIONS_AT(ht_classify_options, with.logits = true), check_class, r);
}

/* ---- quantised copies ---- */

/* The correlation of two runs' logits; not finite if one of them is not. */
static double correlation(const float *x, const float *y, int64_t n) {
    double xx = 0, xy = 0, yy = 0, mean[2] = {0};
    for (int64_t i = 0; i < n; i++) mean[0] += (double)x[i] / (double)n, mean[1] += (double)y[i] / (double)n;
    for (int64_t i = 0; i < n; i++) {
        const double a = (double)x[i] - mean[0], b = (double)y[i] - mean[1];
        xx += a * a, xy += a * b, yy += b * b;
    }
    return xy / sqrt(xx * yy);
}

/* Importance weights of the directory have the names of the file's tensors; those of latent attention's heads the name of
 * both parts. */
static void check_names(const ht_importance *importance, const char *file) {
    ht_checkpoint_files *c = checkpoint_files(file);
    const int64_t n = ht_importance_get_info(importance).n_entries;
    ht_stored_tensor t;
    assert_true(n > 4);
    for (int64_t i = 0; i < n; i++) {
        const char *name = ht_importance_entry_at(importance, i).name;
        if (!ht_checkpoint_find(c, name, &t) && !strstr(name, ".attn_kv_b.")) fail_msg("%s: no `%s`", file, name);
    }
    ht_checkpoint_close(c);
}

/* A few bits of random weights of 32 columns cost much, more where they choose other experts. */
static void check_quantised(const family_run *r, const char *type, const char *to, const ht_importance *importance) {
    ht_convert_report report;
    ht_error err = {0};
    const ht_convert_options o = OPTIONS(ht_convert_options, with.type = type, with.importance = importance,
                                         with.report = &report, with.n_threads = 2);
    if (ht_convert(r->path, to, &o, &err)) {
        checkpoint_may_refuse(r->path, &err);
        return;
    }
    if (importance) check_names(importance, to);
    if (report.n_rounded < 2) fail_msg("%s: %d tensors as %s", r->path, (int)report.n_rounded, type);
    ht_model *m = load(to);
    /* A window that GGUF cannot express limits the context instead. */
    const int64_t n = ht_model_context(m) < TOKENS ? ht_model_context(m) : TOKENS;
    float *rows = rows_of(m, r->ids, n);
    const double same = correlation(rows, r->rows, n * m->vocab);
    print_message("%s: correlation %.3f as %s\n", r->path, same, type);
    if (!(same > (m->config->n_experts ? 0.5 : 0.7))) fail_msg("%s: correlation %.3f as %s", r->path, same, type);
    free(rows);
    ht_model_free(m);
}

static void try_family(const char *path, bool is_file, void *user) {
    family_run *r = user;
    r->path = path;
    r->m = load(path);
    r->ids = checkpoint_ids(r->m, TOKENS, 3);
    r->rows = rows_of(r->m, r->ids, TOKENS);
    r->begun = rows_of(r->m, r->ids, BEGUN);
    /* With longrope, RoPE depends on the length. */
    const size_t bytes = (size_t)(BEGUN * r->m->vocab) * sizeof *r->rows;
    if (!memcmp(r->begun, r->rows, bytes) == (r->m->config->rope.kind == HT_ROPE_LONG))
        fail_msg("%s: a longer run has wrong bits", path);
    if (!is_file) {
        check_sessions(r);
        check_together(r);
        check_answers(r);
        check_states(r);
        check_embeddings(r);
        check_classes(r);
        ht_importance *importance;
        assert_works(ht_importance_gather_ids, r->m, r->ids, TOKENS, NULL, &importance);
        check_quantised(r, "Q4_K_M", scratch_path_apart("model.gguf"), importance);
        ht_importance_free(importance);
    }
    check_quantised(r, ht_ends_with(path, "-mlx4") ? "8:32" : "4:32", scratch_path_apart("mlx"), NULL);
    free(r->rows);
    free(r->begun);
    free(r->ids);
    ht_model_free(r->m);
}

static void every_family(void **state) {
    (void)state;
    family_run r = {0};
    family_checkpoints_each(try_family, &r);
    assert_true(r.accepted > 0);
}

/* ---- damaged configurations ---- */

typedef struct numbers {
    int64_t turn;
    int n[2]; /* loaded, refused */
} numbers;

/* Loads the scratch directory's model and computes some tokens: whatever its numbers are, an error or logits. */
static bool load_and_run(const char *what) {
    static const int32_t ids[] = {1, 2, 3, 4, 5, 6, 7, 8, 9};
    ht_error err = {0};
    ht_model *m;
    const ht_model_options o = OPTIONS(ht_model_options, with.device = cpu_device);
    if (ht_model_load(scratch_directory(), &o, &m, &err)) {
        if (!err.message[0]) fail_msg("%s: an error without a message", what);
        return false;
    }
    ht_session *s;
    if (!ht_session_new(m, NULL, &s, &err)) {
        (void)ht_session_forward(s, ids, sizeof ids / sizeof *ids, NULL, NULL, NULL, &err);
        ht_session_free(s);
    }
    ht_model_free(m);
    return true;
}

/* Another value for each number and boolean of config.json, one at a time. */
static void change_numbers(const char *path, bool is_file, void *user) {
    static const char *const values[] = {"-1",   "0",     "1",    "-2",  "3", "7", "1000000000", "9007199254740993",
                                         "-0.5", "1e300", "true", "null"};
    numbers *all = user;
    if (is_file) return;
    char name[300], weights[300];
    snprintf(name, sizeof name, "%s/config.json", path);
    snprintf(weights, sizeof weights, "%s/model.safetensors", path);
    size_t size, n;
    char *text = file_bytes(name, &size), *tensors = file_bytes(weights, &n);
    char *changed = malloc(size + 64);
    assert_non_null(changed);
    scratch_write("model.safetensors", tensors, n);
    for (size_t at = 1, end; at < size; at = end + 1) {
        at += strcspn(text + at, ":[,");
        at += strspn(text + at, ":[, \n");
        end = at + strcspn(text + at, ",]}\n");
        if (at >= size || !strchr("-0123456789tf", text[at])) continue;
        for (size_t i = 0; i < sizeof values / sizeof *values; i++) {
            if (!test_takes(all->turn++, 60)) continue;
            char what[400];
            snprintf(what, sizeof what, "%s at byte %zu: %s", name, at, values[i]);
            const int k = sprintf(changed, "%.*s%s%s", (int)at, text, values[i], text + end);
            scratch_write("config.json", changed, (size_t)k);
            all->n[!load_and_run(what)]++;
        }
    }
    free(changed);
    free(tensors);
    free(text);
}

static void other_numbers(void **state) {
    (void)state;
    numbers all = {0};
    family_checkpoints_each(change_numbers, &all);
    print_message("%d loaded, %d refused\n", all.n[0], all.n[1]);
    assert_true(all.n[0] > 0 && all.n[1] > 0);
}

static int open_all(void **state) { return scratch_start(state) || cpu_device_open(state); }
static int close_all(void **state) { return cpu_device_close(state) || scratch_finish(state); }

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(every_family), cmocka_unit_test(other_numbers)};
    return cmocka_run_group_tests(tests, open_all, close_all);
}
