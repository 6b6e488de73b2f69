/* What memory is free: the system's word, the control groups', and what is refused for the lack of it. */
#include "checkpoint/kv_size.h"
#include "device/device.h"
#include "models/memory_check.h"
#include "support/scratch.h"
#include "support/test.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

/* Writes root/path, making the folders on the way. */
static void put(const char *path, const char *text) {
    char folder[256];
    for (const char *slash = path; (slash = strchr(slash, '/')); slash++) {
        snprintf(folder, sizeof folder, "%.*s", (int)(slash - path), path);
        (void)mkdir(scratch_path(folder), 0700);
    }
    scratch_write(path, text, strlen(text));
}

static size_t free_bytes(void) {
    size_t bytes;
    assert_true(ht_memory_check_free_under(scratch_directory(), &bytes));
    return bytes;
}

static const char meminfo[] = "MemTotal:       8000000 kB\nMemFree:          10000 kB\nMemAvailable:   4000000 kB\n";

UNIT_TEST(without_groups) {
    size_t bytes;
    assert_false(ht_memory_check_free_under(scratch_directory(), &bytes));
    put("proc/meminfo", meminfo);
    assert_true(free_bytes() == (size_t)4000000 * 1024);
    put("proc/self/cgroup", "0::/user.slice\n"); /* no such folder: no limit */
    assert_true(free_bytes() == (size_t)4000000 * 1024);
}

UNIT_TEST(unified_groups) {
    put("proc/meminfo", meminfo);
    put("proc/self/cgroup", "0::/a/b\n");
    put("sys/fs/cgroup/a/b/memory.max", "max\n");
    put("sys/fs/cgroup/a/b/memory.current", "5000\n");
    assert_true(free_bytes() == (size_t)4000000 * 1024);
    /* The parent binds its children. Cached file pages are given back when needed. */
    put("sys/fs/cgroup/a/memory.max", "1000000\n");
    put("sys/fs/cgroup/a/memory.current", "700000\n");
    assert_int_equal(free_bytes(), 300000);
    put("sys/fs/cgroup/a/memory.stat", "anon 500000\nfile 200000\ninactive_file 150000\nactive_file 50000\n");
    assert_int_equal(free_bytes(), 450000);
    put("sys/fs/cgroup/a/b/memory.max", "6000\n");
    assert_int_equal(free_bytes(), 1000);
    put("sys/fs/cgroup/a/b/memory.current", "7000\n"); /* over its limit already */
    assert_int_equal(free_bytes(), 0);
}

UNIT_TEST(older_groups) {
    put("proc/meminfo", meminfo);
    put("proc/self/cgroup", "5:cpu,cpuacct:/x\n4:memory:/job\n0::/\n");
    put("sys/fs/cgroup/memory/job/memory.limit_in_bytes", "900000\n");
    put("sys/fs/cgroup/memory/job/memory.usage_in_bytes", "100000\n");
    put("sys/fs/cgroup/memory/memory.limit_in_bytes", "9223372036854771712\n");
    put("sys/fs/cgroup/memory/memory.usage_in_bytes", "123456\n");
    assert_int_equal(free_bytes(), 800000);
}

UNIT_TEST(nonsense) {
    put("proc/meminfo", "MemAvailable: lots\n");
    size_t bytes;
    assert_false(ht_memory_check_free_under(scratch_directory(), &bytes));
    put("proc/meminfo", meminfo);
    put("proc/self/cgroup", "\n:\n0\n1:memory\n0::/../../..\n");
    assert_true(free_bytes() == (size_t)4000000 * 1024);
}

UNIT_TEST(this_machine) {
    size_t bytes;
    if (!ht_memory_check_free(&bytes)) skip(); /* no /proc here */
    assert_true(bytes > 1000000);
}

/* ---- what is wanted ---- */

static const ht_layer_kv kv[2] = {{{2, 64, HT_F16, false, 0}, 0, false}, {{2, 64, HT_F16, false, 0}, 512, false}};
enum { PAGE_BYTES = 256 * 2 * 2 * 64 * 2 }; /* f16 */

UNIT_TEST(cache_bytes) {
    assert_int_equal(ht_kv_bytes(kv, 1, HT_F16, ht_kv_saved_page_bytes, 0, HT_LEAST_STEP_ROWS, 1 << 20), 0);
    assert_int_equal(ht_kv_bytes(kv, 1, HT_F16, ht_kv_saved_page_bytes, 1, HT_LEAST_STEP_ROWS, 1 << 20), PAGE_BYTES);
    assert_int_equal(ht_kv_bytes(kv, 1, HT_F16, ht_kv_saved_page_bytes, 257, HT_LEAST_STEP_ROWS, 1 << 20),
                     2 * PAGE_BYTES);
    assert_int_equal(ht_kv_bytes(kv, 1, HT_F32, ht_kv_saved_page_bytes, 257, HT_LEAST_STEP_ROWS, 1 << 20),
                     4 * PAGE_BYTES);
    assert_int_equal(ht_kv_bytes(kv, 1, HT_I8, ht_kv_saved_page_bytes, 257, HT_LEAST_STEP_ROWS, 1 << 20),
                     2 * (PAGE_BYTES / 2) * 68 / 64);
    size_t one = ht_kv_bytes(kv + 1, 1, HT_F16, ht_kv_saved_page_bytes, 100000, HT_LEAST_STEP_ROWS, 1 << 20),
           more = ht_kv_bytes(kv + 1, 1, HT_F16, ht_kv_saved_page_bytes, 200000, HT_LEAST_STEP_ROWS, 1 << 20);
    assert_true(one == more && one < 8 * PAGE_BYTES); /* a ring stops growing */
}

static void check_room(ht_memory_check_wanted w, size_t free_now, const char *const *words) {
    ht_error err = {0};
    ht_status status = ht_memory_check(&w, free_now, &err);
    if (!*words) {
        assert_int_equal(status, HT_OK);
        return;
    }
    assert_int_equal(status, HT_ERR_LIMIT);
    for (; *words; words++)
        if (!strstr(err.message, *words)) fail_msg("\"%s\" does not say \"%s\"", err.message, *words);
}
#define CHECK_ROOM(wanted, free_now, ...) check_room(wanted, free_now, (const char *const[]){__VA_ARGS__, NULL})

UNIT_TEST(refusals) {
    ht_memory_check_wanted w = {.name = "m.gguf",
                                .weight_bytes = 10000000,
                                .kv = kv,
                                .n_cache_layers = 1,
                                .kv_dtype = HT_F16,
                                .page_bytes = ht_kv_saved_page_bytes,
                                .context = 1 << 20,
                                .step_rows = HT_LEAST_STEP_ROWS};
    CHECK_ROOM(w, 10000000, NULL);
    CHECK_ROOM(w, 9999999, "m.gguf", "10.0 MB", "weights", "smaller or more strongly quantised");
    w.positions = 1024;
    CHECK_ROOM(w, 10000000 + 4 * PAGE_BYTES, NULL);
    CHECK_ROOM(w, 10000000 + 3 * PAGE_BYTES, "1024 positions", "--kv q8");
    CHECK_ROOM(w, 10000000 + 2 * PAGE_BYTES, "1024 positions", "--context 512");
    CHECK_ROOM(w, 10000000, "smaller or more strongly quantised");
    w.kv_dtype = HT_F32;
    CHECK_ROOM(w, 10000000 + 4 * PAGE_BYTES, "--kv f16");
    CHECK_ROOM(w, 10000000 + 3 * PAGE_BYTES, "--kv q8");
    CHECK_ROOM(w, 10000000 + 2 * PAGE_BYTES, "--context 256");
    w.weight_bytes = SIZE_MAX;
    CHECK_ROOM(w, 10000000, "weights");
    w.weight_bytes = (size_t)3100 * 1000 * 1000;
    CHECK_ROOM(w, 10000000, "3.10 GB");
}

UNIT_TEST(long_texts) {
    assert_works(ht_memory_check_step, NULL, 8192, 1000, 1000);
    assert_fails(HT_ERR_MEMORY, "a text of 8192 tokens needs 3.1 MB to compute in, but only 0.9 MB of memory are free;",
                 ht_memory_check_step, NULL, 8192, 3100000, 900000);
    assert_fails(HT_ERR_MEMORY, "free on cuda; a shorter text would fit", ht_memory_check_step, "cuda", 8192, 2, 1);
}

/* A sliding layer's ring holds the rows of a step and the window before them. */
UNIT_TEST(rings_are_as_long_as_steps) {
    ht_memory_check_wanted w = {.name = "m.gguf",
                                .kv = kv + 1,
                                .n_cache_layers = 1,
                                .kv_dtype = HT_F16,
                                .page_bytes = ht_kv_saved_page_bytes,
                                .positions = 1 << 16,
                                .context = 1 << 20,
                                .step_rows = 512};
    CHECK_ROOM(w, 5 * PAGE_BYTES, NULL);
    CHECK_ROOM(w, 5 * PAGE_BYTES - 1, "65536 positions");
    w.step_rows = 2048;
    CHECK_ROOM(w, 11 * PAGE_BYTES, NULL);
    CHECK_ROOM(w, 11 * PAGE_BYTES - 1, "65536 positions");
    w.positions = 1000; /* fewer than the ring has */
    CHECK_ROOM(w, 4 * PAGE_BYTES, NULL);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        in_scratch(without_groups), in_scratch(unified_groups),     in_scratch(older_groups),
        in_scratch(nonsense),       cmocka_unit_test(this_machine), cmocka_unit_test(cache_bytes),
        cmocka_unit_test(refusals), cmocka_unit_test(long_texts),   cmocka_unit_test(rings_are_as_long_as_steps)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
