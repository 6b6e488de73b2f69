/* ht_discover: what the callback is given, and how a search ends early. The tests of the command have the trees. */
#include "support/scratch.h"
#include "support/test.h"

#include <hearth/hearth.h>

#include <string.h>

typedef struct seen {
    int n, most;
    bool good;
} seen;

static bool count(const ht_find *f, void *user) {
    seen *s = user;
    s->n++;
    s->good = s->good && f->info && !f->problem && strstr(f->path, "tests/golden/tiny/") && f->info->runs &&
              f->info->n_files > 0 && f->info->file_bytes > f->info->weight_bytes && !*f->info->tokenizer_kind &&
              !*f->info->chat_format;
    return s->n < s->most;
}

static void finds(void **state) {
    (void)state;
    ht_error err = {0};
    seen all = {.most = 1000, .good = true};
    if (ht_discover("tests/golden/tiny", count, &all, &err)) fail_msg("%s", err.message);
    assert_true(all.good && all.n >= 30);
    size_t held = ht_memory_get(NULL).active_bytes;
    seen few = {.most = 3, .good = true};
    assert_int_equal(ht_discover("tests/golden/tiny", count, &few, &err), HT_ERR_CANCELLED);
    assert_true(few.good && few.n == 3);
    assert_int_equal(ht_memory_get(NULL).active_bytes, held);
}

static bool keep_problem(const ht_find *f, void *user) {
    assert_null(f->info);
    *(ht_error *)user = *f->problem;
    return true;
}

static void problems(void **state) {
    (void)state;
    ht_error err = {0}, problem = {0};
    assert_fails(HT_ERR_IO, "does/not/exist", ht_discover, "does/not/exist", count, NULL);
    assert_int_equal(ht_discover("does/not/exist", count, NULL, NULL), HT_ERR_IO);
    scratch_write("bad.gguf", "GGUF\3\0\0\0", 8);
    if (ht_discover(scratch_directory(), keep_problem, &problem, &err)) fail_msg("%s", err.message);
    assert_int_equal(problem.status, HT_ERR_FORMAT);
    assert_non_null(strstr(problem.message, "bad.gguf"));
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(finds), in_scratch(problems)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
