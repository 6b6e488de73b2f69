/* Arrays to files and back, from C; what Python's tests compare with NumPy and MLX is not repeated here. */
#include "formats/npy_header.h"
#include "support/arrays.h"
#include "support/scratch.h"
#include "support/test.h"

#include <string.h>

static void an_array_comes_back(void **state) {
    (void)state;
    ht_scope *s = ht_scope_new(test_stream);
    ht_error err = {0};
    ht_array *x = ht_transpose(s, test_counting(s, (int64_t[]){2, 3}, 2), NULL);
    assert_int_equal(ht_npy_save(s, scratch_path("a"), x, &err), HT_OK);
    ht_array *back = ht_npy_load(s, scratch_path("a"));
    float got[6];
    assert_int_equal(ht_array_dim(back, 0), 3);
    assert_int_equal(ht_array_read(s, back, got, sizeof got, &err), HT_OK);
    assert_memory_equal(got, ((float[]){0, 3, 1, 4, 2, 5}), sizeof got);
    ht_scope_free(s);
}

static void named_arrays_come_back(void **state) {
    (void)state;
    ht_scope *s = ht_scope_new(test_stream);
    ht_error err = {0};
    ht_array *arrays[] = {test_counting(s, (int64_t[]){4}, 1), ht_full(s, 7, HT_BF16, NULL, 0)};
    assert_int_equal(ht_safetensors_save(s, scratch_path("b"), (const char *[]){"a", "b"}, arrays, 2,
                                         (const char *[]){"k"}, (const char *[]){"v"}, 1, &err),
                     HT_OK);
    ht_array_file *f;
    assert_int_equal(ht_array_file_open(scratch_path("b"), &f, &err), HT_OK);
    assert_int_equal(ht_array_file_count(f), 2);
    assert_string_equal(ht_array_file_name(f, 1), "b");
    assert_string_equal(ht_array_file_metadata(f), "{\"k\":\"v\"}");
    ht_array *b = ht_array_file_read(s, f, 1);
    assert_int_equal(ht_array_dtype(b), HT_BF16);
    assert_null(ht_array_file_read(s, f, 2));
    ht_array_file_close(f);
    ht_scope_free(s);
}

static void bad_headers_are_refused(void **state) {
    (void)state;
    static const char *const dicts[] = {
        "{'descr': '<f4', 'fortran_order': False, 'shape': (9, ), }",
        "{'descr': '<f4', 'fortran_order': False, 'shape': (4611686018427387904, 8), }",
        "{'descr': '<f4', 'fortran_order': False, 'shape': (1, 1, 1, 1, 1, 1, 1, 1, 1), }",
        "{'descr': '>f4', 'fortran_order': False, 'shape': (1,), }",
        "{'descr': '<f4', 'fortran_order': Maybe, 'shape': (1,), }",
        "{'descr': '<f4', 'shape': (1,), }",
        "{'descr': '<f4', 'fortran_order': False, 'shape': (-1,), }",
        "{'descr': '<f4', 'descr': '<f4', 'fortran_order': False, 'shape': (1,), }",
        "{'descr': [('a', '<f4')], 'fortran_order': False, 'shape': (1,), }",
        "{'descr': '<f4",
        "",
    };
    for (size_t i = 0; i < sizeof dicts / sizeof *dicts; i++) {
        char file[256] = "\x93NUMPY\x01";
        size_t n = strlen(dicts[i]);
        file[8] = (char)n;
        memcpy(file + 10, dicts[i], n);
        ht_npy_header h;
        ht_error err = {0};
        assert_int_not_equal(ht_npy_read_header(file, 10 + n + 4, 10 + n + 4, "x", &h, &err), HT_OK);
        assert_int_equal(strncmp(err.message, "x: ", 3), 0);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(an_array_comes_back, scratch_start, scratch_finish),
        cmocka_unit_test_setup_teardown(named_arrays_come_back, scratch_start, scratch_finish),
        cmocka_unit_test(bad_headers_are_refused),
    };
    return cmocka_run_group_tests(tests, test_open_stream, test_close_stream);
}
