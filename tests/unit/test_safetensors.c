/* Safetensors: headers read back, checkpoints of several files, and every check of a hostile file with its message. */
#include "formats/safetensors.h"
#include "support/safetensors_writer.h"
#include "support/scratch.h"
#include "support/test.h"
#include "support/warnings.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static ht_status parse(const unsigned char *file, size_t size, ht_error *err) {
    ht_safetensors *s = (void *)1;
    unsigned char *copy = malloc(size ? size : 1); /* exact, so that a sanitizer sees any read past the end */
    if (size) memcpy(copy, file, size);
    ht_status st = ht_safetensors_parse(copy, size, "f.safetensors", &s, err);
    if (st) assert_null(s);
    ht_safetensors_close(s);
    free(copy);
    return st;
}

static void expect_header(const char *header, size_t n_data, ht_status status, const char *part) {
    size_t size;
    ht_error err = {0};
    unsigned char *file = safetensors_raw(header, n_data, &size);
    ht_status st = parse(file, size, &err);
    free(file);
    if (st != status || !strstr(err.message, part)) fail_msg("status %d for %s (%s)", st, header, err.message);
    if (status) assert_memory_equal(err.message, "f.safetensors: ", 15);
}

static unsigned char *sample(size_t *size) {
    safetensors_writer w = {0};
    ht_text_append_str(&w.header, "\"__metadata__\":{\"format\":\"pt\"}");
    safetensors_put(&w, "a.weight", "F32", 2, (int64_t[]){2, 3}, "abcdefghijklmnopqrstuvwx", 24);
    safetensors_put(&w, "scalar", "BF16", 0, NULL, "yz", 2);
    safetensors_put(&w, "none", "F16", 2, (int64_t[]){0, 7}, NULL, 0);
    safetensors_put(&w, "ids", "I64", 1, (int64_t[]){1}, NULL, 8);
    safetensors_put(&w, "nibbles", "F4", 1, (int64_t[]){6}, NULL, 3);
    return safetensors_finish(&w, size);
}

UNIT_TEST(tensors_are_read_back) {
    size_t size;
    unsigned char *file = sample(&size);
    ht_safetensors *s;
    assert_works(ht_safetensors_parse, file, size, "f", &s);
    assert_int_equal(ht_safetensors_count(s), 5);
    const ht_safetensor *t = ht_safetensors_find(s, "a.weight");
    assert_string_equal(t->dtype, "F32");
    assert_int_equal(t->weight_type, HT_W_F32);
    assert_int_equal(t->rank, 2);
    assert_int_equal(t->shape[1], 3);
    assert_int_equal(t->n_bytes, 24);
    assert_memory_equal(t->data, "abcdefghijklmnopqrstuvwx", 24);
    assert_ptr_equal(t->data, file + t->offset);
    t = ht_safetensors_find(s, "scalar");
    assert_int_equal(t->rank, 0);
    assert_memory_equal(t->data, "yz", 2);
    assert_int_equal(t->weight_type, HT_W_BF16);
    t = ht_safetensors_find(s, "ids");
    assert_int_equal(t->weight_type, -1);
    assert_string_equal(t->dtype, "I64");
    assert_int_equal(ht_safetensors_find(s, "none")->n_bytes, 0);
    assert_null(ht_safetensors_find(s, "__metadata__"));
    assert_null(ht_safetensors_find(s, "a"));
    assert_string_equal(ht_safetensors_metadata(s, "format"), "pt");
    assert_null(ht_safetensors_metadata(s, "other"));
    ht_safetensors_close(s);
    free(file);
}

UNIT_TEST(beginning_checks) {
    const struct {
        const char *bytes;
        size_t n;
        const char *part;
    } cases[] = {
        {"", 0, "has 0 bytes, which is too short"},
        {"\2\0\0\0\0\0\0", 7, "has 7 bytes, which is too short"},
        {"\0\0\0\0\0\0\0\0", 8, "does not start with `{`"},
        {"\3\0\0\0\0\0\0\0{}", 10, "claims a header of 3 bytes, only 2 remain"},
        {"\1\341\365\5\0\0\0\0{}", 10, "claims a header of 100000001 bytes, at most 100000000"},
        {"\377\377\377\377\377\377\377\377{}", 10, "at most 100000000"},
        {"GGUF\3\0\0\0{}", 10, "is it a safetensors file?"},
        {"version https://git-lfs.github.com/spec/v1\n", 43, "Git LFS pointer"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        assert_fails(HT_ERR_FORMAT, cases[i].part, parse, (const unsigned char *)cases[i].bytes, cases[i].n);
}

UNIT_TEST(json_checks) {
    expect_header("{}", 0, HT_OK, "");
    expect_header("{}   ", 0, HT_OK, "");
    expect_header("{\"__metadata__\":{}}", 0, HT_OK, "");
    expect_header("{\"__metadata__\":null}", 0, HT_OK, "");
    expect_header(" {}", 0, HT_ERR_FORMAT, "does not start with `{`");
    expect_header("[]", 0, HT_ERR_FORMAT, "does not start with `{`");
    expect_header("{}\n", 0, HT_ERR_FORMAT, "does not end with `}` and spaces");
    expect_header("{}\t ", 0, HT_ERR_FORMAT, "does not end with `}` and spaces");
    expect_header("{} {}", 0, HT_ERR_FORMAT, "line 1, column 4: expected nothing after the value");
    expect_header("{\"a\xff\":1}", 0, HT_ERR_FORMAT, "not valid UTF-8");
    expect_header("{\"\":{\"dtype\":\"F32\",\"shape\":[],\"data_offsets\":[0,4]}}", 4, HT_ERR_FORMAT,
                  "tensor is empty");
    expect_header("{\"a\\u001b\":{\"dtype\":\"F32\",\"shape\":[],\"data_offsets\":[0,4]}}", 4, HT_ERR_FORMAT,
                  "contains a control character");
    expect_header("{\"a\":{\"dtype\":\"U8\",\"shape\":[0],\"data_offsets\":[0,0]},"
                  "\"a\":{\"dtype\":\"U8\",\"shape\":[0],\"data_offsets\":[0,0]}}",
                  0, HT_ERR_FORMAT, "expected each member once");
    expect_header("{\"a\":{\"dtype\":\"U8\",\"dtype\":\"U8\",\"shape\":[0],\"data_offsets\":[0,0]}}", 0, HT_ERR_FORMAT,
                  "expected each member once");
    expect_header("{\"__metadata__\":[]}", 0, HT_ERR_FORMAT, "`__metadata__` is not an object");
    expect_header("{\"__metadata__\":{\"a\":null}}", 0, HT_ERR_FORMAT, "is null, expected strings only");
    expect_header("{\"__metadata__\":{\"a\":1}}", 0, HT_ERR_FORMAT, "expected strings only");
    char deep[500] = "{\"a\":";
    memset(deep + 5, '[', 200);
    memset(deep + 205, ']', 200);
    strcpy(deep + 405, "}");
    expect_header(deep, 0, HT_ERR_LIMIT, "line 1, column 197: nested deeper than 192 levels");
}

/* One tensor `t` with this inside and 8 bytes of data. */
static void expect_tensor(const char *inside, const char *part) {
    char header[600];
    snprintf(header, sizeof header, "{\"t\":%s}", inside);
    expect_header(header, 8, HT_ERR_FORMAT, part);
}

UNIT_TEST(tensor_checks) {
    const char exactly[] = "not an object of exactly dtype, shape and data_offsets";
    expect_tensor("3", exactly);
    expect_tensor("{\"dtype\":\"F32\",\"shape\":[2]}", exactly);
    expect_tensor("{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[0,8],\"x\":0}", exactly);
    expect_tensor("{\"Dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[0,8]}", "`t` has no dtype");
    expect_tensor("{\"dtype\":1,\"shape\":[2],\"data_offsets\":[0,8]}", "`dtype` is 1, expected a string");
    expect_tensor("{\"dtype\":\"F32\",\"Shape\":[2],\"data_offsets\":[0,8]}", "`t` has no shape");
    expect_tensor("{\"dtype\":\"F32\",\"shape\":2,\"data_offsets\":[0,8]}", "`shape` is 2, expected an array");
    expect_tensor("{\"dtype\":\"F32\",\"shape\":[-2],\"data_offsets\":[0,8]}", "dimension 0 of tensor `t` is -2");
    expect_tensor("{\"dtype\":\"F32\",\"shape\":[1,2.0],\"data_offsets\":[0,8]}",
                  "dimension 1 of tensor `t` is 2, expected");
    expect_tensor("{\"dtype\":\"F32\",\"shape\":[1,\"2\"],\"data_offsets\":[0,8]}",
                  "is the string \"2\", expected an integer");
    expect_tensor("{\"dtype\":\"U8\",\"shape\":[8,1,1,1,1,1,1,1,1],\"data_offsets\":[0,8]}",
                  "has 9 dimensions, at most 8");
    expect_tensor("{\"dtype\":\"U8\",\"shape\":[4294967296,4294967296],\"data_offsets\":[0,8]}",
                  "more elements than can be");
    expect_tensor("{\"dtype\":\"F32\",\"shape\":[4611686018427387904],\"data_offsets\":[0,8]}",
                  "more bytes than can be");
    expect_tensor("{\"dtype\":\"F32\",\"shape\":[99999999999999999999],\"data_offsets\":[0,8]}", "expected an integer");
    expect_tensor("{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[0]}", "not a pair of integers");
    expect_tensor("{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[0,8,8]}", "not a pair of integers");
    expect_tensor("{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[0,8.0]}", "not a pair of integers");
    expect_tensor("{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":{}}", "expected an array");
    expect_tensor("{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[-8,0]}", "the file has 8 bytes of data");
    expect_tensor("{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[8,0]}", "is at bytes 8 to 0");
    expect_tensor("{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[4,12]}", "is at bytes 4 to 12");
    expect_tensor("{\"dtype\":\"F32\",\"shape\":[3],\"data_offsets\":[0,8]}",
                  "`t` has 3 elements of type F32, which is not the 8");
    expect_tensor("{\"dtype\":\"F4\",\"shape\":[15],\"data_offsets\":[0,8]}", "15 elements of type F4");
    expect_tensor("{\"dtype\":\"F16\",\"shape\":[2],\"data_offsets\":[0,4]}",
                  "end at byte 4 of the data, the file has 8");
    expect_tensor("{\"dtype\":\"F16\",\"shape\":[2],\"data_offsets\":[4,8]}",
                  "starts at byte 4 of the data, expected 0: tensors leave");
    expect_header("{\"t\":{\"dtype\":\"Q4\",\"shape\":[2],\"data_offsets\":[0,8]}}", 8, HT_ERR_UNSUPPORTED,
                  "the dtype of tensor `t` is the string \"Q4\", which");
    expect_header("{}", 1, HT_ERR_FORMAT, "its tensors end at byte 0 of the data, the file has 1");
    expect_header("{\"a\":{\"dtype\":\"U8\",\"shape\":[4],\"data_offsets\":[4,8]},"
                  "\"b\":{\"dtype\":\"U8\",\"shape\":[5],\"data_offsets\":[0,5]}}",
                  8, HT_ERR_FORMAT, "`a` starts at byte 4 of the data, expected 5: tensors overlap");
    expect_header("{\"a\":{\"dtype\":\"U8\",\"shape\":[8],\"data_offsets\":[0,8]},"
                  "\"b\":{\"dtype\":\"U8\",\"shape\":[8],\"data_offsets\":[0,8]}}",
                  8, HT_ERR_FORMAT, "overlap");
    expect_header("{\"a\":{\"dtype\":\"U8\",\"shape\":[4],\"data_offsets\":[4,8]},"
                  "\"e\":{\"dtype\":\"U8\",\"shape\":[0],\"data_offsets\":[4,4]},"
                  "\"b\":{\"dtype\":\"U8\",\"shape\":[4],\"data_offsets\":[0,4]}}",
                  8, HT_OK, "");
    expect_header("{\"e\":{\"dtype\":\"U8\",\"shape\":[0],\"data_offsets\":[2,2]},"
                  "\"b\":{\"dtype\":\"U8\",\"shape\":[4],\"data_offsets\":[0,4]}}",
                  4, HT_ERR_FORMAT, "overlap");
}

UNIT_TEST(every_truncation_and_bit_flip) {
    size_t size;
    unsigned char *file = sample(&size);
    ht_error err = {0};
    assert_works(parse, file, size);
    for (size_t n = 0; n < size; n++) assert_int_not_equal(parse(file, n, &err), HT_OK);
    size_t header = 8 + file[0] + 256u * file[1], accepted = 0;
    for (size_t bit = 0; bit < header * 8; bit++) {
        file[bit / 8] ^= (unsigned char)(1u << bit % 8);
        accepted += parse(file, size, &err) == HT_OK;
        file[bit / 8] ^= (unsigned char)(1u << bit % 8);
    }
    assert_true(accepted < header * 4);
    free(file);
}

/* -- checkpoints of several files -- */

static void write_shard(const char *file, const char *tensor) {
    safetensors_writer w = {0};
    size_t size;
    safetensors_put(&w, tensor, "F32", 1, (int64_t[]){1}, tensor, 4);
    unsigned char *bytes = safetensors_finish(&w, &size);
    scratch_write(file, bytes, size);
    free(bytes);
}

static void write_index(const char *map) {
    char text[1000];
    snprintf(text, sizeof text, "{\"metadata\":{\"total_size\":8},\"weight_map\":%s}", map);
    scratch_write("model.safetensors.index.json", text, strlen(text));
}

static void expect_open(const char *path, ht_status status, const char *part) {
    ht_safetensors *s;
    ht_error err = {0};
    ht_status st = ht_safetensors_open(path, &s, &err);
    if (st != status || !strstr(err.message, part)) fail_msg("status %d: %s", st, err.message);
    if (st) assert_null(s);
    ht_safetensors_close(s);
}

UNIT_TEST(shards_with_an_index) {
    const char *dir = scratch_directory();
    write_shard("one.safetensors", "aaaa");
    write_shard("two.safetensors", "bbbb");
    write_index("{\"aaaa\":\"one.safetensors\",\"bbbb\":\"two.safetensors\"}");
    ht_safetensors *s;
    assert_works(ht_safetensors_open, dir, &s);
    assert_int_equal(ht_safetensors_n_files(s), 2);
    const ht_safetensor *t = ht_safetensors_find(s, "bbbb");
    char bytes[4];
    assert_memory_equal(t->data, "bbbb", 4);
    assert_works(ht_file_read_at, ht_safetensors_file(s, t->file), t->offset, bytes, 4);
    assert_memory_equal(bytes, "bbbb", 4);
    ht_safetensors_close(s);

    const char *const outside[] = {"../x", "/etc/passwd", "a\\\\b", "..", ".", "", "a\\u0007"};
    for (size_t i = 0; i < sizeof outside / sizeof *outside; i++) {
        char map[100];
        snprintf(map, sizeof map, "{\"aaaa\":\"%s\"}", outside[i]);
        write_index(map);
        expect_open(dir, HT_ERR_FORMAT, "expected a file name without directories");
    }
    write_index("{\"aaaa\":1}");
    expect_open(dir, HT_ERR_FORMAT, "a file of weight_map is 1, expected a file name");
    write_index("{}");
    expect_open(dir, HT_ERR_FORMAT, "`weight_map` is empty");
    write_index("[]");
    expect_open(dir, HT_ERR_FORMAT, "`weight_map` is an array of 0, expected an object");
    scratch_write("model.safetensors.index.json", "{}", 2);
    expect_open(dir, HT_ERR_FORMAT, "index.json: `weight_map` is missing");
    scratch_write("model.safetensors.index.json", "{\n  x", 5);
    expect_open(dir, HT_ERR_FORMAT, "index.json: line 2, column 3: expected the name of a member in quotes");
    write_shard("two.safetensors", "aaaa");
    write_index("{\"aaaa\":\"one.safetensors\",\"bbbb\":\"two.safetensors\"}");
    expect_open(dir, HT_ERR_FORMAT, "tensor `aaaa` is in two files");
}

/* Opens with so many warnings, which say `part`, and has these tensors, of one letter each. */
static void expect_warned(const char *tensors, int n_files, int n_warnings, const char *part) {
    ht_safetensors *s;
    warnings_begin();
    assert_works(ht_safetensors_open, scratch_directory(), &s);
    const char *warnings = warnings_end(n_warnings);
    if (!strstr(warnings, part)) fail_msg("\"%s\" lacks \"%s\"", warnings, part);
    assert_int_equal(ht_safetensors_n_files(s), n_files);
    assert_int_equal(ht_safetensors_count(s), strlen(tensors));
    for (const char *c = tensors; *c; c++) {
        char name[5] = {*c, *c, *c, *c}, bytes[4];
        const ht_safetensor *t = ht_safetensors_find(s, name);
        if (!t) fail_msg("`%s` is not found", name);
        assert_works(ht_file_read_at, ht_safetensors_file(s, t->file), t->offset, bytes, 4);
        assert_memory_equal(bytes, name, 4);
    }
    ht_safetensors_close(s);
}

/* An index that is wrong costs a warning, as long as every tensor is somewhere. */
UNIT_TEST(an_index_that_is_wrong) {
    const char *dir = scratch_directory();
    write_shard("one.safetensors", "aaaa");
    write_shard("two.safetensors", "bbbb");
    write_index("{\"aaaa\":\"two.safetensors\",\"bbbb\":\"one.safetensors\"}");
    expect_warned("ab", 2, 1, "index.json: names another file than the right one for 2 tensors: `aaaa` is in one.safe");
    write_index("{\"aaaa\":\"one.safetensors\",\"bbbb\":\"two.safetensors\",\"cccc\":\"two.safetensors\"}");
    expect_warned("ab", 2, 1, "index.json: names 1 tensor that no file has: `cccc`\n");
    write_index("{\"aaaa\":\"one.safetensors\",\"bbbb\":\"one.safetensors\"}");
    expect_warned("ab", 2, 1, "for 1 tensor: `bbbb` is in two.safetensors\n");
    write_index("{\"aaaa\":\"one.safetensors\",\"bbbb\":\"three.safetensors\"}");
    expect_warned("ab", 2, 1, "for 1 tensor: `bbbb` is in two.safetensors\n");
    write_index("{\"aaaa\":\"one.safetensors\"}"); /* other weights are none of its business */
    expect_warned("a", 1, 0, "");
    scratch_write("broken.safetensors", "x", 1);
    write_index("{\"aaaa\":\"one.safetensors\",\"cccc\":\"one.safetensors\"}");
    expect_warned("a", 1, 1, "no file has: `cccc`");
    write_index("{\"aaaa\":\"one.safetensors\",\"cccc\":\"three.safetensors\"}");
    expect_open(dir, HT_ERR_IO, "index.json: names three.safetensors, which is missing, and tensor `cccc` is in no");
    write_index("{\"dddd\":\"one.safetensors\",\"bbbb\":\"three.safetensors\",\"cccc\":\"four.safetensors\"}");
    expect_open(dir, HT_ERR_IO, "index.json: names four.safetensors, which is missing, and tensor `cccc` is in no");
    write_index("{\"aaaa\":\"one.safetensors\",\"bbbb\":\"three.safetensors\",\"cccc\":\"one.safetensors\"}");
    expect_warned("ab", 2, 2, "names 1 tensor that no file has: `cccc`\n");
    write_index("{\"aaaa\":\"three.safetensors\",\"bbbb\":\"four.safetensors\"}");
    expect_open(dir, HT_ERR_FORMAT, "index.json: names three.safetensors, which is missing; without the index: ");
}

UNIT_TEST(an_index_left_over) {
    write_index("{\"aaaa\":\"model-00001-of-00002.safetensors\",\"bbbb\":\"model-00002-of-00002.safetensors\"}");
    expect_open(scratch_directory(), HT_ERR_IO, "index.json: names model-00001-of-00002.safetensors, which is missing");
    write_shard("weights.safetensors", "cccc");
    expect_warned("c", 1, 1, "index.json: names model-00001-of-00002.safetensors, which is missing; the index is ign");
    write_shard("model-00001-of-00001.safetensors", "dddd");
    expect_warned("d", 1, 1, "is ignored");
    write_shard("model.safetensors", "eeee");
    expect_warned("e", 1, 1, "is ignored");
    write_shard("model-00002-of-00002.safetensors", "bbbb");
    expect_warned("e", 1, 1, "is ignored");
    write_shard("model-00001-of-00002.safetensors", "aaaa");
    expect_warned("ab", 2, 0, "");
}

UNIT_TEST(files_without_an_index) {
    const char *dir = scratch_directory();
    expect_open(dir, HT_ERR_IO, "no weights found, expected");
    expect_open(scratch_path("absent"), HT_ERR_IO, "No such file");
    write_shard("adapter.safetensors", "aaaa");
    expect_open(dir, HT_OK, "");
    expect_open(scratch_path("adapter.safetensors"), HT_OK, "");
    write_shard("weights.safetensors", "aaaa"); /* other files beside it are no part of the model */
    write_shard("mtp.safetensors", "bbbb");
    expect_open(dir, HT_OK, "");
    write_shard("other.safetensors", "aaaa");
    expect_open(dir, HT_ERR_FORMAT, "has 2 *.safetensors files and no model.safetensors.index.json");
    write_shard("model-00002-of-00003.safetensors", "bbbb");
    write_shard("model-00001-of-00003.safetensors", "aaaa");
    expect_open(dir, HT_ERR_IO, "model-00003-of-00003.safetensors: cannot be opened");
    write_shard("model-00003-of-00003.safetensors", "cccc");
    ht_safetensors *s;
    assert_works(ht_safetensors_open, dir, &s);
    assert_int_equal(ht_safetensors_count(s), 3);
    assert_string_equal(ht_safetensors_at(s, 2)->name, "cccc");
    ht_safetensors_close(s);
    write_shard("model-00001-of-00002.safetensors", "aaaa");
    expect_open(dir, HT_ERR_FORMAT, "shards of two different checkpoints");
    write_shard("model.safetensors", "dddd");
    assert_works(ht_safetensors_open, dir, &s);
    assert_int_equal(ht_safetensors_count(s), 1);
    ht_safetensors_close(s);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(tensors_are_read_back),
        cmocka_unit_test(beginning_checks),
        cmocka_unit_test(json_checks),
        cmocka_unit_test(tensor_checks),
        cmocka_unit_test(every_truncation_and_bit_flip),
        cmocka_unit_test_setup_teardown(shards_with_an_index, scratch_start, scratch_finish),
        cmocka_unit_test_setup_teardown(an_index_that_is_wrong, scratch_start, scratch_finish),
        cmocka_unit_test_setup_teardown(an_index_left_over, scratch_start, scratch_finish),
        cmocka_unit_test_setup_teardown(files_without_an_index, scratch_start, scratch_finish),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
