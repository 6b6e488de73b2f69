/* .npy files: the bytes NumPy expects, and nothing on disk when something goes wrong. */
#include "base/file.h"
#include "support/scratch.h"
#include "support/test.h"

#include <hearth/npy.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

UNIT_TEST(bytes_of_a_small_file) {
    /* numpy.save of [[1, -2], [0.5, nan]] in float32. */
    static const unsigned char values[] = {0, 0, 0x80, 0x3F, 0, 0, 0, 0xC0, 0, 0, 0, 0x3F, 0, 0, 0xC0, 0x7F};
    const char *text = "{'descr': '<f4', 'fortran_order': False, 'shape': (2, 2), }";
    union {
        uint32_t bits;
        float value;
    } nan = {.bits = 0x7FC00000u};
    ht_npy_writer *w;
    assert_works(ht_npy_writer_new, scratch_path("a.npy"), 2, 2, &w);
    assert_works(ht_npy_writer_put, w, (float[]){1, -2}, 1);
    assert_works(ht_npy_writer_put, w, NULL, 0);
    assert_false(ht_path_exists(scratch_path("a.npy")));
    assert_works(ht_npy_writer_put, w, (float[]){0.5f, nan.value}, 1);
    assert_works(ht_npy_writer_commit, w);
    assert_fails(HT_ERR_ARGUMENT, "", ht_npy_writer_commit, w);
    assert_fails(HT_ERR_ARGUMENT, "", ht_npy_writer_put, w, NULL, 0);
    ht_npy_writer_free(w);
    char *file;
    size_t size;
    assert_works(ht_file_read_all, scratch_path("a.npy"), 1000, &file, &size);
    assert_int_equal(size, 128 + 16);
    assert_memory_equal(file, "\x93NUMPY\1\0\x76\0", 10);
    assert_memory_equal(file + 10, text, strlen(text));
    for (size_t i = 10 + strlen(text); i < 127; i++) assert_int_equal(file[i], ' ');
    assert_int_equal(file[127], '\n');
    assert_memory_equal(file + 128, values, 16);
    free(file);
    assert_int_equal(scratch_count(), 1);
}

UNIT_TEST(many_rows) {
    enum { COLUMNS = 5000, ROWS = 7 };
    float *values = malloc(sizeof(float) * COLUMNS * ROWS);
    for (int i = 0; i < COLUMNS * ROWS; i++) values[i] = (float)i;
    ht_npy_writer *w;
    assert_works(ht_npy_writer_new, scratch_path("b.npy"), ROWS, COLUMNS, &w);
    assert_works(ht_npy_writer_put, w, values, 3);
    assert_works(ht_npy_writer_put, w, values + 3 * COLUMNS, 4);
    assert_works(ht_npy_writer_commit, w);
    ht_npy_writer_free(w);
    ht_file *file;
    assert_works(ht_file_open, scratch_path("b.npy"), &file);
    assert_int_equal(file->size, 128 + sizeof(float) * COLUMNS * ROWS);
    assert_works(ht_file_fetch, file, file->size);
    for (int i = 0; i < COLUMNS * ROWS; i++) {
        const unsigned char *b = file->data + 128 + 4 * i;
        uint32_t bits = (uint32_t)b[0] | (uint32_t)b[1] << 8 | (uint32_t)b[2] << 16 | (uint32_t)b[3] << 24, want;
        memcpy(&want, &values[i], 4);
        if (bits != want) fail_msg("value %d", i);
    }
    ht_file_close(file);
    free(values);
}

UNIT_TEST(failures_leave_nothing) {
    ht_npy_writer *w = (void *)1;
    float row[2] = {0};
    assert_fails(HT_ERR_IO, "none/a.npy: cannot be written: No such file", ht_npy_writer_new,
                 scratch_path("none/a.npy"), 1, 2, &w);
    assert_null(w);
    assert_fails(HT_ERR_ARGUMENT, "", ht_npy_writer_new, scratch_path("a.npy"), -1, 2, &w);
    assert_fails(HT_ERR_ARGUMENT, "", ht_npy_writer_new, scratch_path("a.npy"), INT64_MAX, 2, &w);

    assert_works(ht_npy_writer_new, scratch_path("a.npy"), 2, 2, &w);
    assert_works(ht_npy_writer_put, w, row, 1);
    assert_fails(HT_ERR_ARGUMENT, "has 1 rows, was announced with 2", ht_npy_writer_commit, w);
    ht_npy_writer_free(w);

    assert_works(ht_npy_writer_new, scratch_path("a.npy"), 1, 2, &w);
    assert_works(ht_npy_writer_put, w, row, 1);
    assert_fails(HT_ERR_ARGUMENT, "", ht_npy_writer_put, w, row, 1);
    assert_fails(HT_ERR_ARGUMENT, "", ht_npy_writer_put, w, row, -1);
    ht_npy_writer_free(w);
    ht_npy_writer_free(NULL);
    assert_int_equal(scratch_count(), 0);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(bytes_of_a_small_file, scratch_start, scratch_finish),
        cmocka_unit_test_setup_teardown(many_rows, scratch_start, scratch_finish),
        cmocka_unit_test_setup_teardown(failures_leave_nothing, scratch_start, scratch_finish),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
