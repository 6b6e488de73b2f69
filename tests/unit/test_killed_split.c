/* Parts of a GGUF file that are written beside each other, when a call that changes files fails, and when the process is killed at
 * it: there is the old set or the new one or none that loads, never some of both; a failure leaves what was there. By scripts/soak
 * at every call.
 * Linked with --wrap for those calls (tests/CMakeLists.txt). */
#include "checkpoint/checkpoint.h"
#include "support/file_calls.h"
#include "support/options.h"
#include "support/scratch.h"
#include "support/test.h"

#include <hearth/convert.h>

#include <stdio.h>
#include <string.h>

/* ---- sets of as many parts, with the same tensors of other values ---- */

enum { OLD, NEW, NONE, PARTS = 4 };

static const char *const sources[] = {"tests/golden/tiny/llama-q4_1.gguf", "tests/golden/tiny/llama-q8_0.gguf"};
static int64_t part_bytes[2];

static ht_status write_parts(int version, const char *path, ht_convert_report *report, ht_error *err) {
    ht_convert_options o = OPTIONS(ht_convert_options, with.max_file_bytes = part_bytes[version], with.n_threads = 1,
                                   with.report = report);
    return ht_convert(sources[version], path, &o, err);
}

static void must_write(int version, const char *path) {
    ht_error err = {0};
    if (write_parts(version, path, NULL, &err)) fail_msg("%s", err.message);
}

/* The set at `path`-00001-of-00004.gguf: OLD, NEW, or NONE that loads. Fails when it loads and is neither. */
static int version_at(const char *path) {
    char first[1100];
    ht_error err = {0};
    ht_checkpoint_files *c;
    int found = NONE;
    snprintf(first, sizeof first, "%.*s-00001-of-%05d.gguf", (int)(strlen(path) - 5), path, PARTS);
    if (ht_checkpoint_open(first, &c, &err)) return NONE;
    for (int version = OLD; version <= NEW && found == NONE; version++) {
        ht_checkpoint_files *from;
        if (ht_checkpoint_open(sources[version], &from, &err)) fail_msg("%s", err.message);
        bool same = ht_checkpoint_n_tensors(c) == ht_checkpoint_n_tensors(from);
        for (size_t i = 0; same && i < ht_checkpoint_n_tensors(c); i++) {
            ht_stored_tensor a, b;
            char x[32768], y[32768];
            ht_checkpoint_tensor_at(c, i, &a);
            ht_checkpoint_tensor_at(from, i, &b);
            assert_true(a.n_bytes <= sizeof x && b.n_bytes <= sizeof y);
            same = a.n_bytes == b.n_bytes && a.type == b.type &&
                   !ht_file_read_at(a.file, a.offset, x, a.n_bytes, &err) &&
                   !ht_file_read_at(b.file, b.offset, y, b.n_bytes, &err) && !memcmp(x, y, a.n_bytes);
        }
        ht_checkpoint_close(from);
        if (same) found = version;
    }
    ht_checkpoint_close(c);
    if (found == NONE) fail_msg("%s: loads, and is neither the old set nor the new one", first);
    return found;
}

/* Whether a part behind the first one finds a set that loads, where the first does not. */
static bool loads_from_behind(const char *path) {
    char name[1100];
    ht_error err = {0};
    ht_checkpoint_files *c;
    for (int i = 2; i <= PARTS; i++) {
        snprintf(name, sizeof name, "%.*s-%05d-of-%05d.gguf", (int)(strlen(path) - 5), path, i, PARTS);
        if (ht_checkpoint_open(name, &c, &err)) continue;
        ht_checkpoint_close(c);
        return true;
    }
    return false;
}

static int count_entries(const char *path) {
    char command[1100];
    int n = -1;
    snprintf(command, sizeof command, "ls -A '%.*s' | wc -l", (int)(ht_base_name(path) - path), path);
    FILE *f = popen(command, "r");
    assert_non_null(f);
    assert_int_equal(fscanf(f, "%d", &n), 1);
    (void)pclose(f);
    return n;
}

static bool write_new(void *path) {
    ht_error err;
    return !write_parts(NEW, path, NULL, &err);
}

static void a_killed_process_leaves_no_mixture(void **state) {
    (void)state;
    for (int over_old = 0; over_old < 2; over_old++) {
        const int apart = test_cases(13, 1);
        bool ends = false;
        int k = 0, seen[3] = {0, 0, 0};
        for (; !ends; k += apart) {
            const char *path = scratch_path_apart("it.gguf");
            if (over_old) must_write(OLD, path);
            ends = !file_calls_killed(k, write_new, (void *)(uintptr_t)path);
            const int found = version_at(path);
            seen[found]++;
            if (found == NONE && loads_from_behind(path)) fail_msg("call %d left parts that load", k);
            if (ends && found != NEW) fail_msg("nothing new after the last of %d calls", k);
            must_write(NEW, path); /* what was left over is in nobody's way */
            assert_int_equal(version_at(path), NEW);
        }
        if (k < 40) fail_msg("%d calls", k);
        assert_true(seen[over_old ? OLD : NONE] > test_cases(3, 10) && seen[NEW] > 0);
    }
}

static void a_failure_leaves_what_was_there(void **state) {
    (void)state;
    for (int over_old = 0; over_old < 2; over_old++) {
        bool ends = false;
        int k = over_old;
        for (; !ends; k += test_cases(4, 1)) {
            const char *path = scratch_path_apart("it.gguf");
            ht_error err = {0};
            if (over_old) must_write(OLD, path);
            file_calls_fail(k);
            const ht_status status = write_parts(NEW, path, NULL, &err);
            ends = !file_calls_stop() && status == HT_OK;
            const int found = version_at(path), want = status == HT_OK ? NEW : over_old ? OLD : NONE;
            if (found != want) fail_msg("call %d: status %d, and found %d", k, (int)status, found);
            if (status && !strstr(err.message, "cannot be written")) fail_msg("call %d: \"%s\"", k, err.message);
            assert_int_equal(count_entries(path), found == NONE ? 0 : PARTS);
        }
        if (k < 30) fail_msg("%d calls", k);
    }
}

/* Sizes with which both have as many parts. */
static int set_up(void **state) {
    if (scratch_start(state)) return 1;
    for (int version = OLD; version <= NEW; version++)
        for (int64_t bytes = 1000;; bytes += 100) {
            ht_error err = {0};
            ht_convert_report report;
            part_bytes[version] = bytes;
            if (write_parts(version, scratch_path("size"), &report, &err)) {
                print_error("%s\n", err.message);
                return 1;
            }
            char command[400];
            snprintf(command, sizeof command, "rm -r '%s'", scratch_path("size"));
            if (system(command)) return 1;
            if (report.n_files == PARTS) break;
            if (report.n_files < PARTS) return 1;
        }
    return 0;
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(a_killed_process_leaves_no_mixture),
                                       cmocka_unit_test(a_failure_leaves_what_was_there)};
    return cmocka_run_group_tests(tests, set_up, scratch_finish);
}
