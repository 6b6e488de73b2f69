/* Long training: memory does not grow, and a run that is gone on with from any of its steps ends with the same bits. By
 * scripts/soak, 2,000 steps and 20 cuts. */
#include "support/scratch.h"
#include "support/test.h"
#include "support/tiny_model.h"

#include <hearth/generate.h>
#include <hearth/train.h>

#include <malloc.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

enum { SAMPLES = 60 };

static ht_model *model;
static char data[512];

/* All that makes steps differ: lengths, packing, shuffling, dropout, batches of a step, a schedule. */
static ht_trainer *open_trainer(int64_t iters) {
    ht_trainer_options o;
    ht_lora_options lora;
    ht_trainer *t;
    ht_trainer_options_init(&o, sizeof o);
    ht_lora_options_init(&lora, sizeof lora);
    lora.dropout = 0.1;
    lora.rank = 2;
    o.lora = &lora;
    o.data = o.valid = data;
    o.valid_batches = 2;
    o.batch = 2;
    o.accumulate = 2;
    o.max_length = 64;
    o.iters = iters;
    o.learning_rate = 1e-2;
    o.schedule = HT_SCHEDULE_COSINE;
    o.warmup = 3;
    assert_works(ht_trainer_new, model, &o, &t);
    return t;
}

static void step(ht_trainer *t) {
    ht_train_step s;
    assert_works(ht_trainer_step, t, &s);
    assert_false(s.skipped);
}

static void save(const ht_trainer *t, const char *name) { assert_works(ht_trainer_save, t, scratch_path(name)); }

/* ---- memory ---- */

/* Bytes that the process has resident. */
static size_t resident(void) {
    FILE *f = fopen("/proc/self/statm", "r");
    unsigned long long all, pages;
    assert_non_null(f);
    assert_int_equal(fscanf(f, "%llu %llu", &all, &pages), 2);
    (void)fclose(f);
    return (size_t)pages * (size_t)sysconf(_SC_PAGESIZE);
}

static bool ignore(const char *text, size_t n, void *user) {
    (void)text, (void)n, (void)user;
    return true;
}

/* What comes with validation: a loss, a sample of the adapter as it is, and both saved. */
static void validate(ht_trainer *t) {
    ht_adapter *a;
    ht_session *session;
    double loss;
    assert_works(ht_trainer_evaluate, t, &loss);
    assert_works(ht_trainer_adapter, t, &a);
    assert_works(ht_adapter_save, a, model, scratch_path("adapter"), HT_ADAPTER_PEFT);
    ht_generate_options how;
    ht_generate_options_init(&how, sizeof how);
    how.max_tokens = 4;
    assert_works(ht_session_new, model, NULL, &session);
    assert_works(ht_session_set_adapters, session, &a, NULL, 1);
    assert_works(ht_generate_text, session, "hello", &how, ignore, NULL, NULL);
    ht_session_free(session);
    ht_adapter_free(a);
    save(t, "checkpoint");
}

UNIT_TEST(memory_stays) {
    if (TEST_SLOW) skip(); /* sanitizers keep what was freed, and find leaks themselves */
    const int steps = test_cases(400, 2000), first = test_cases(200, 600), apart = test_cases(20, 50);
    /* CMakeLists.txt keeps freed memory from the allocator's threads, which would count as allocated. */
    const size_t most_heap = 4 << 10, most_pages = 1 << 20;
    ht_trainer *t = open_trainer(steps);
    size_t heap = 0, pages = 0;
    for (int i = 1; i <= steps; i++) {
        step(t);
        if (i % apart == 0) validate(t);
        if (i != first && i != steps) continue;
        const struct mallinfo2 m = mallinfo2();
        const size_t heap_now = m.uordblks + m.hblkhd, pages_now = resident();
        if (i == first) {
            heap = heap_now;
            pages = pages_now;
        } else if (heap_now > heap + most_heap || pages_now > pages + most_pages)
            fail_msg("after %d steps %zu bytes are allocated and %zu resident; after %d it was %zu and %zu", i,
                     heap_now, pages_now, first, heap, pages);
    }
    ht_trainer_free(t);
}

/* ---- going on ---- */

static void *read_whole(const char *name, size_t *n) {
    FILE *f = fopen(scratch_path(name), "rb");
    assert_non_null(f);
    assert_int_equal(fseek(f, 0, SEEK_END), 0);
    const long size = ftell(f);
    assert_true(size > 0);
    rewind(f);
    void *bytes = malloc((size_t)size);
    assert_non_null(bytes);
    *n = fread(bytes, 1, (size_t)size, f);
    assert_int_equal(*n, size);
    (void)fclose(f);
    return bytes;
}

UNIT_TEST(goes_on_at_any_step) {
    enum { MOST_CUTS = 20 };
    const int steps = test_cases(40, 2000), cuts = test_cases(4, MOST_CUTS);
    int cut[MOST_CUTS];
    uint32_t draw = 12345;
    for (int i = 0; i < cuts; i++) {
        draw = draw * 1664525 + 1013904223;
        cut[i] = (int)(draw >> 8) % steps;
    }
    ht_trainer *t = open_trainer(steps);
    for (int done = 0; done <= steps; done++) {
        char name[32];
        for (int i = 0; i < cuts; i++) {
            (void)snprintf(name, sizeof name, "cut%d", i);
            if (cut[i] == done) save(t, name);
        }
        if (done < steps) step(t);
    }
    save(t, "whole");
    ht_trainer_free(t);
    size_t n, n_again;
    void *whole = read_whole("whole", &n);
    for (int i = 0; i < cuts; i++) {
        char name[32];
        (void)snprintf(name, sizeof name, "cut%d", i);
        t = open_trainer(steps);
        assert_works(ht_trainer_resume, t, scratch_path(name));
        for (int done = cut[i]; done < steps; done++) step(t);
        save(t, "again");
        ht_trainer_free(t);
        void *again = read_whole("again", &n_again);
        if (n != n_again || memcmp(whole, again, n) != 0) fail_msg("going on after step %d gives other bits", cut[i]);
        free(again);
    }
    free(whole);
}

static int set_up(void **state) {
    if (scratch_start(state)) return 1;
    char text[8192];
    size_t n = 0;
    for (int i = 0; i < SAMPLES; i++) {
        n += (size_t)snprintf(text + n, sizeof text - n, "{\"text\": \"");
        for (int k = 0; k < 3 + i * 7 % 50; k++) text[n++] = (char)('a' + (i + k * k) % 26);
        n += (size_t)snprintf(text + n, sizeof text - n, "\"}\n");
    }
    scratch_write("train.jsonl", text, n);
    (void)snprintf(data, sizeof data, "%s", scratch_path("train.jsonl"));
    model = tiny_load(&(tiny_options){.type = HT_W_Q8_0});
    return 0;
}

static int tear_down(void **state) {
    ht_model_free(model);
    return scratch_finish(state);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(memory_stays), cmocka_unit_test(goes_on_at_any_step)};
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
