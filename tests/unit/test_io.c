/* Arrays to files and back, from C; what Python's tests compare with NumPy and MLX is not repeated here. */
#include "formats/npy_header.h"
#include "support/arrays.h"
#include "support/scratch.h"
#include "support/test.h"

#include <string.h>

SCOPE_TEST(an_array_comes_back) {
    ht_array *x = ht_transpose(s, test_counting(s, (int64_t[]){2, 3}, 2), NULL);
    assert_works(ht_npy_save, s, scratch_path("a"), x);
    ht_array *back = ht_npy_load(s, scratch_path("a"));
    float got[6];
    assert_int_equal(ht_array_dim(back, 0), 3);
    assert_works(ht_array_read, s, back, got, sizeof got);
    assert_memory_equal(got, ((float[]){0, 3, 1, 4, 2, 5}), sizeof got);
}

SCOPE_TEST(named_arrays_come_back) {
    ht_array *arrays[] = {test_counting(s, (int64_t[]){4}, 1), ht_full(s, 7, HT_BF16, NULL, 0)};
    assert_works(ht_safetensors_save, s, scratch_path("b"), (const char *[]){"a", "b"}, arrays, 2,
                 &(ht_metadata_pair){"k", "v"}, 1);
    ht_array_file *f;
    assert_works(ht_array_file_open, scratch_path("b"), &f);
    assert_int_equal(ht_array_file_count(f), 2);
    assert_string_equal(ht_array_file_name(f, 1), "b");
    assert_string_equal(ht_array_file_metadata(f), "{\"k\":\"v\"}");
    ht_array *b = ht_array_file_read(s, f, 1);
    assert_int_equal(ht_array_dtype(b), HT_BF16);
    assert_null(ht_array_file_read(s, f, 2));
    ht_array_file_free(f);
}

static void save_npz(ht_scope *s, bool deflate) {
    ht_array *arrays[] = {ht_arange(s, 0, 50000, 1, HT_F32),
                          ht_transpose(s, test_counting(s, (int64_t[]){2, 3}, 2), NULL)};
    assert_works(ht_npz_save, s, scratch_path("n"), (const char *[]){"many", "b"}, arrays, 2, deflate);
}

UNIT_TEST(an_archive_comes_back) {
    static float got[50000];
    for (int deflate = 0; deflate < 2; deflate++) {
        ht_scope *s = ht_scope_new(test_stream);
        save_npz(s, deflate);
        ht_array_file *f;
        assert_works(ht_array_file_open, scratch_path("n"), &f);
        assert_int_equal(ht_array_file_count(f), 2);
        assert_string_equal(ht_array_file_name(f, 0), "many");
        ht_array *many = ht_array_file_read(s, f, 0), *b = ht_array_file_read(s, f, 1);
        assert_works(ht_array_read, s, many, got, sizeof got);
        for (int i = 0; i < 50000; i++) assert_true(got[i] == (float)i);
        assert_int_equal(ht_array_dim(b, 0), 3);
        assert_works(ht_array_read, s, b, got, 6 * sizeof *got);
        assert_memory_equal(got, ((float[]){0, 3, 1, 4, 2, 5}), 6 * sizeof *got);
        ht_array_file_free(f);
        ht_scope_free(s);
    }
}

SCOPE_TEST(names_are_unique) {
    ht_error err = {0};
    ht_array *x = ht_full(s, 1, HT_F32, (int64_t[]){2}, 1), *arrays[] = {x, x};
    const char *const names[] = {"a", "a"};
    assert_int_equal(ht_npz_save(s, scratch_path("n"), names, arrays, 2, false, &err), HT_ERR_ARGUMENT);
    assert_int_equal(ht_gguf_save(s, scratch_path("n"), names, arrays, 2, NULL, &err), HT_ERR_ARGUMENT);
}

SCOPE_TEST(gguf_comes_back) {
    static const char metadata[] = "{\"a\":{\"dtype\":\"i8\",\"value\":[-128,127]},\"b\":\"text\"}";
    ht_error err = {0};
    ht_array *x = test_counting(s, (int64_t[]){2, 3}, 2);
    assert_int_equal(ht_gguf_save(s, scratch_path("g"), (const char *[]){"x"}, &x, 1, metadata, &err), HT_OK);
    ht_array_file *f;
    assert_int_equal(ht_array_file_open(scratch_path("g"), &f, &err), HT_OK);
    assert_string_equal(ht_array_file_metadata(f), metadata);
    float got[6];
    assert_int_equal(ht_array_read(s, ht_array_file_read(s, f, 0), got, sizeof got, &err), HT_OK);
    assert_memory_equal(got, ((float[]){0, 1, 2, 3, 4, 5}), sizeof got);
    ht_array_file_free(f);
    static const char *const wrong[] = {"{\"a\":{\"dtype\":\"i8\",\"value\":128}}", "{\"a\":3}", "[]",
                                        "{\"a\":{\"dtype\":\"f16\",\"value\":1}}",
                                        "{\"a\":{\"dtype\":\"bool\",\"value\":1}}"};
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++)
        assert_int_not_equal(ht_gguf_save(s, scratch_path("g"), (const char *[]){"x"}, &x, 1, wrong[i], &err), HT_OK);
}

UNIT_TEST(bad_headers_are_refused) {
    static const char *const dicts[] = {
        "{'descr': '<f4', 'fortran_order': False, 'shape': (9, ), }",
        "{'descr': '<f4', 'fortran_order': False, 'shape': (4611686018427387904, 8), }",
        "{'descr': '<f4', 'fortran_order': False, 'shape': (1, 1, 1, 1, 1, 1, 1, 1, 1), }",
        "{'descr': '!f4', 'fortran_order': False, 'shape': (1,), }",
        "{'descr': '>c8', 'fortran_order': False, 'shape': (1,), }",
        "{'descr': '>V2', 'fortran_order': False, 'shape': (1,), }",
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

SCOPE_TEST(the_other_byte_order_is_read) {
    static const char dict[] = "{'descr': '>i4', 'fortran_order': True, 'shape': (1, 2), }";
    char file[256] = "\x93NUMPY\x01";
    const size_t n = strlen(dict);
    file[8] = (char)n;
    memcpy(file + 10, dict, n);
    memcpy(file + 10 + n, "\x01\x02\x03\x04\xFF\xFF\xFF\xFE", 8);
    int32_t values[2];
    ht_array *a = ht_npy_parse(s, file, 10 + n + 8, "x");
    assert_works(ht_array_read, s, a, values, sizeof values);
    assert_true(ht_array_dtype(a) == HT_I32 && ht_array_dim(a, 0) == 1 && ht_array_dim(a, 1) == 2);
    assert_true(values[0] == 0x01020304 && values[1] == -2);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(an_array_comes_back, scratch_start, scratch_finish),
        cmocka_unit_test_setup_teardown(named_arrays_come_back, scratch_start, scratch_finish),
        cmocka_unit_test_setup_teardown(an_archive_comes_back, scratch_start, scratch_finish),
        cmocka_unit_test_setup_teardown(names_are_unique, scratch_start, scratch_finish),
        cmocka_unit_test_setup_teardown(gguf_comes_back, scratch_start, scratch_finish),
        cmocka_unit_test(bad_headers_are_refused),
        cmocka_unit_test(the_other_byte_order_is_read),
    };
    return cmocka_run_group_tests(tests, test_open_stream, test_close_stream);
}
