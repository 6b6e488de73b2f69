/* Files: fetching, reading, and replacing a file so that it appears whole or not at all. */
#include "base/checked.h"
#include "base/file.h"
#include "support/scratch.h"
#include "support/test.h"

#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

static void contains(const ht_error *err, const char *part) {
    if (!strstr(err->message, part)) fail_msg("\"%s\" lacks \"%s\"", err->message, part);
}

/* A shared file outlives the one it was shared from, and its name; both notice writing. */
UNIT_TEST(sharing) {
    char back[4];
    scratch_write("s", "0123456789", 10);
    ht_file *f, *shared;
    ht_error err = {0};
    assert_int_equal(ht_file_open(scratch_path("s"), &f, &err), HT_OK);
    assert_int_equal(ht_file_share(f, &shared, &err), HT_OK);
    assert_int_equal(ht_file_unchanged(f, &err), HT_OK);
    ht_file_close(f);
    assert_int_equal(ht_file_unchanged(shared, &err), HT_OK);
    assert_int_equal(truncate(scratch_path("s"), 9), 0);
    assert_fails(HT_ERR_IO, "s: has changed since it was opened; open it again", ht_file_unchanged, shared);
    ht_file_close(shared);

    scratch_write("s", "0123456789", 10);
    assert_int_equal(ht_file_open(scratch_path("s"), &f, &err), HT_OK);
    assert_int_equal(ht_file_share(f, &shared, &err), HT_OK);
    remove(scratch_path("s"));
    scratch_write("s", "another", 7);
    assert_int_equal(ht_file_unchanged(shared, &err), HT_OK);
    assert_int_equal(ht_file_read_at(shared, 6, back, 4, &err), HT_OK);
    assert_memory_equal(back, "6789", 4);
    ht_file_close(f);
    ht_file_close(shared);

    /* The same length, written later. */
    assert_int_equal(ht_file_open(scratch_path("s"), &f, &err), HT_OK);
    struct timespec times[2] = {{.tv_nsec = UTIME_OMIT}, {.tv_sec = 1000000000}};
    assert_int_equal(utimensat(AT_FDCWD, scratch_path("s"), times, 0), 0);
    assert_int_equal(ht_file_unchanged(f, &err), HT_ERR_IO);
    ht_file_close(f);
}

UNIT_TEST(fetching) {
    char page[10000], back[100];
    for (size_t i = 0; i < sizeof page; i++) page[i] = (char)(i * 7);
    scratch_write("a", page, sizeof page);
    scratch_write("empty", "", 0);
    ht_file *f;
    ht_error err = {0};
    assert_int_equal(ht_file_open(scratch_path("a"), &f, &err), HT_OK);
    assert_int_equal(f->size, sizeof page);
    assert_int_equal(ht_file_fetch(f, 0, &err), HT_OK);
    assert_int_equal(f->loaded, 0);
    assert_int_equal(ht_file_fetch(f, 5000, &err), HT_OK);
    assert_int_equal(ht_file_fetch(f, sizeof page, &err), HT_OK);
    assert_int_equal(f->loaded, sizeof page);
    assert_memory_equal(f->data, page, sizeof page);
    assert_int_equal(ht_file_read_at(f, 9900, back, 100, &err), HT_OK);
    assert_memory_equal(back, page + 9900, 100);
    assert_fails(HT_ERR_IO, "the file ends before offset 10001; it was 10000 bytes when it was opened", ht_file_read_at,
                 f, 9901, back, 100);
    /* Another process shrinks the file: an error, no signal. */
    assert_int_equal(truncate(scratch_path("a"), 5000), 0);
    assert_int_equal(ht_file_read_at(f, 9000, back, 100, &err), HT_ERR_IO);
    assert_memory_equal(f->data, page, sizeof page);
    ht_file_close(f);
    assert_int_equal(ht_file_open(scratch_path("a"), &f, &err), HT_OK);
    assert_int_equal(truncate(scratch_path("a"), 4000), 0);
    assert_fails(HT_ERR_IO, "the file ends before offset 5000; it was 5000 bytes when it was opened", ht_file_fetch, f,
                 5000);
    ht_file_close(f);
    ht_file_close(NULL);

    assert_int_equal(ht_file_open(scratch_path("empty"), &f, &err), HT_OK);
    assert_int_equal(f->size, 0);
    assert_null(f->data);
    assert_int_equal(ht_file_fetch(f, 0, &err), HT_OK);
    ht_file_close(f);

    assert_int_equal(ht_file_open(scratch_path("absent"), &f, &err), HT_ERR_IO);
    assert_null(f);
    contains(&err, "absent: cannot be opened: No such file or directory");
    assert_fails(HT_ERR_IO, "is a directory, expected a regular file", ht_file_open, scratch_directory(), &f);
    assert_fails(HT_ERR_IO, "is a device, expected a regular file", ht_file_open, "/dev/zero", &f);
    assert_int_equal(mkfifo(scratch_path("pipe"), 0600), 0);
    assert_int_equal(ht_file_open(scratch_path("pipe"), &f, &err), HT_ERR_IO); /* and does not wait for a writer */
}

/* What was fetched stays where it is while more is. */
UNIT_TEST(fetching_in_steps) {
    enum { SIZE = 5000001 };
    unsigned char *bytes = malloc(SIZE);
    for (size_t i = 0; i < SIZE; i++) bytes[i] = (unsigned char)(i * 31 >> 8);
    scratch_write("long", bytes, SIZE);
    ht_file *f;
    assert_works(ht_file_open, scratch_path("long"), &f);
    const unsigned char *data = f->data;
    for (size_t n = 1; n < SIZE; n += 70001) {
        assert_works(ht_file_fetch, f, n);
        assert_true(f->loaded >= n && f->loaded <= SIZE);
    }
    assert_works(ht_file_fetch, f, SIZE);
    assert_ptr_equal(f->data, data);
    assert_memory_equal(f->data, bytes, SIZE);
    ht_file_close(f);
    free(bytes);
}

UNIT_TEST(reading_whole) {
    char *data = (void *)1;
    size_t size;
    ht_error err = {0};
    scratch_write("a", "hello", 5);
    scratch_write("empty", "", 0);
    assert_int_equal(ht_file_read_all(scratch_path("a"), 5, &data, &size, &err), HT_OK);
    assert_int_equal(size, 5);
    assert_string_equal(data, "hello");
    free(data);
    assert_int_equal(ht_file_read_all(scratch_path("empty"), 5, &data, &size, &err), HT_OK);
    assert_string_equal(data, "");
    free(data);
    assert_int_equal(ht_file_read_all(scratch_path("a"), 4, &data, &size, &err), HT_ERR_LIMIT);
    assert_null(data);
    contains(&err, "a: is 5 bytes, at most 4 are accepted");
    assert_int_equal(ht_file_read_all(scratch_path("absent"), 4, &data, &size, &err), HT_ERR_IO);
}

UNIT_TEST(paths) {
    char *p = ht_path_join("a", "b");
    assert_string_equal(p, "a/b");
    free(p);
    p = ht_path_join("a/", "b");
    assert_string_equal(p, "a/b");
    free(p);
    p = ht_path_join("", "b");
    assert_string_equal(p, "b");
    free(p);
    scratch_write("a", "", 0);
    assert_true(ht_path_exists(scratch_path("a")));
    assert_false(ht_path_is_directory(scratch_path("a")));
    assert_true(ht_path_is_directory(scratch_directory()));
    assert_false(ht_path_exists(scratch_path("b")));
}

static void expect_content(const char *name, const char *want) {
    char *data;
    size_t size;
    assert_works(ht_file_read_all, scratch_path(name), 1000, &data, &size);
    assert_string_equal(data, want);
    free(data);
}

static mode_t mode_of(const char *name) {
    struct stat st;
    assert_int_equal(stat(scratch_path(name), &st), 0);
    return st.st_mode & 0777;
}

UNIT_TEST(writing) {
    ht_writer *w, *second;
    mode_t mask = umask(027);
    assert_works(ht_writer_open, scratch_path("a"), &w);
    umask(mask);
    assert_works(ht_writer_put, w, "....world", 9);
    assert_works(ht_writer_put_at, w, 0, "hell", 4);
    assert_works(ht_writer_put, w, "!", 1);
    assert_false(ht_path_exists(scratch_path("a")));
    assert_works(ht_writer_commit, w);
    expect_content("a", "hellworld!");
    assert_int_equal(mode_of("a"), 0640);
    assert_int_equal(scratch_count(), 1);

    /* Replacing keeps the permissions; the old content stays until the commit; two writers do not meet. */
    assert_int_equal(chmod(scratch_path("a"), 0604), 0);
    assert_works(ht_writer_open, scratch_path("a"), &w);
    assert_works(ht_writer_open, scratch_path("a"), &second);
    assert_works(ht_writer_put, w, "new", 3);
    assert_works(ht_writer_put, second, "second", 6);
    expect_content("a", "hellworld!");
    assert_works(ht_writer_commit, w);
    expect_content("a", "new");
    assert_int_equal(mode_of("a"), 0604);
    ht_writer_discard(second);
    ht_writer_discard(NULL);
    expect_content("a", "new");
    assert_int_equal(scratch_count(), 1);

    /* A link stays a link. */
    assert_int_equal(symlink("a", scratch_path("link")), 0);
    assert_works(ht_writer_open, scratch_path("link"), &w);
    assert_works(ht_writer_put, w, "through", 7);
    assert_works(ht_writer_commit, w);
    expect_content("a", "through");
    struct stat st;
    assert_int_equal(lstat(scratch_path("link"), &st), 0);
    assert_true(S_ISLNK(st.st_mode));
}

UNIT_TEST(unwritable_places) {
    ht_writer *w = (void *)1;
    ht_error err = {0};
    assert_int_equal(ht_writer_open(scratch_path("none/a"), &w, &err), HT_ERR_IO);
    assert_null(w);
    contains(&err, "none/a: cannot be written: No such file or directory");
    assert_fails(HT_ERR_IO, "it is a directory, expected a regular file or none", ht_writer_open, scratch_directory(),
                 &w);
    assert_fails(HT_ERR_IO, "/dev/null: cannot be written: it is a device", ht_writer_open, "/dev/null", &w);

    /* The target becomes a directory meanwhile: the commit says why and leaves nothing of its own. */
    assert_int_equal(ht_writer_open(scratch_path("a"), &w, &err), HT_OK);
    assert_int_equal(mkdir(scratch_path("a"), 0700), 0);
    assert_fails(HT_ERR_IO, "a: cannot be written: Is a directory", ht_writer_commit, w);
    assert_int_equal(scratch_count(), 1);
}

/* A full disk, by a limit on the size of files. */
UNIT_TEST(a_full_disk) {
    struct rlimit old, small;
    assert_int_equal(getrlimit(RLIMIT_FSIZE, &old), 0);
    small = (struct rlimit){.rlim_cur = 100, .rlim_max = old.rlim_max};
    void (*handler)(int) = signal(SIGXFSZ, SIG_IGN);
    ht_writer *w;
    ht_error err = {0};
    char bytes[300] = {0};
    assert_int_equal(ht_writer_open(scratch_path("a"), &w, &err), HT_OK);
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &small), 0);
    ht_status put = ht_writer_put(w, bytes, sizeof bytes, &err), put_at = ht_writer_put_at(w, 200, bytes, 1, NULL);
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &old), 0);
    signal(SIGXFSZ, handler);
    ht_writer_discard(w);
    assert_int_equal(put, HT_ERR_IO);
    assert_int_equal(put_at, HT_ERR_IO);
    contains(&err, "a: cannot be written: File too large");
    assert_int_equal(scratch_count(), 0);
}

UNIT_TEST(checked_arithmetic) {
    size_t n;
    int64_t i;
    assert_true(ht_add_size(SIZE_MAX - 1, 1, &n) && n == SIZE_MAX);
    assert_false(ht_add_size(SIZE_MAX, 1, &n));
    assert_true(ht_mul_size(SIZE_MAX / 2, 2, &n));
    assert_false(ht_mul_size(SIZE_MAX / 2 + 1, 2, &n));
    assert_true(ht_mul_size(0, SIZE_MAX, &n) && n == 0);
    assert_true(ht_add_i64(INT64_MIN, -0, &i));
    assert_false(ht_add_i64(INT64_MIN, -1, &i));
    assert_false(ht_mul_i64(INT64_MIN, -1, &i));
    assert_true(ht_align_size(0, 32, &n) && n == 0);
    assert_true(ht_align_size(1, 32, &n) && n == 32);
    assert_true(ht_align_size(32, 32, &n) && n == 32);
    assert_true(ht_align_size(7, 1, &n) && n == 7);
    assert_false(ht_align_size(SIZE_MAX - 30, 32, &n));
    assert_true(ht_align_size(SIZE_MAX - 31, 32, &n) && n == SIZE_MAX - 31);
    assert_true(ht_ceil_div_i64(7, 2) == 4 && ht_ceil_div_i64(8, 2) == 4 && ht_ceil_div_i64(0, 5) == 0);
    assert_true(ht_ceil_div_i64(INT64_MAX, INT64_MAX) == 1 && ht_ceil_div_i64(INT64_MAX, 2) == INT64_MAX / 2 + 1);
    assert_true(ht_min_size(1, 2) == 1 && ht_max_size(1, 2) == 2 && ht_min_i64(-1, 2) == -1 && ht_max_i64(-1, 2) == 2);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(fetching, scratch_start, scratch_finish),
        cmocka_unit_test_setup_teardown(sharing, scratch_start, scratch_finish),
        cmocka_unit_test_setup_teardown(fetching_in_steps, scratch_start, scratch_finish),
        cmocka_unit_test_setup_teardown(reading_whole, scratch_start, scratch_finish),
        cmocka_unit_test_setup_teardown(paths, scratch_start, scratch_finish),
        cmocka_unit_test_setup_teardown(writing, scratch_start, scratch_finish),
        cmocka_unit_test_setup_teardown(unwritable_places, scratch_start, scratch_finish),
        cmocka_unit_test_setup_teardown(a_full_disk, scratch_start, scratch_finish),
        cmocka_unit_test(checked_arithmetic),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
