/* GGUF parsing: values read back as written, and every check of a hostile file with its message. */
#include "formats/gguf.h"
#include "support/gguf_writer.h"
#include "support/test.h"

#include <stdlib.h>
#include <string.h>

/* Parses an exact copy, so that a sanitizer sees any read past the end. */
static ht_status parse(const unsigned char *file, size_t size, ht_gguf **g, ht_error *err) {
    unsigned char *copy = malloc(size ? size : 1);
    if (size) memcpy(copy, file, size);
    ht_status st = ht_gguf_parse(copy, size, "f.gguf", g, err);
    if (!st) {
        ht_gguf_free(*g);
        *g = NULL;
    }
    free(copy);
    return st;
}

static void expect_failure(gguf_writer *w, ht_status status, const char *part) {
    size_t size;
    ht_gguf *g = (void *)1;
    ht_error err = {0};
    unsigned char *file = gguf_finish(w, &size);
    assert_int_equal(parse(file, size, &g, &err), status);
    assert_null(g);
    assert_int_equal(err.status, status);
    assert_memory_equal(err.message, "f.gguf: ", 8);
    if (!strstr(err.message, part)) fail_msg("message \"%s\" lacks \"%s\"", err.message, part);
    free(file);
}

static gguf_writer sample(void) {
    static const char *const tokens[] = {"a", "", "\xe2\x96\x81the"};
    float values[64];
    for (int i = 0; i < 64; i++) values[i] = (float)i / 4;
    gguf_writer w = gguf_writer_new();
    gguf_put_str(&w, "general.architecture", "llama");
    gguf_put_u32(&w, "llama.block_count", 30);
    gguf_put_i32(&w, "negative", -5);
    gguf_put_u64(&w, "large", UINT64_MAX);
    gguf_put_f32(&w, "theta", 10000.5f);
    gguf_put_bool(&w, "yes", true);
    gguf_put_strs(&w, "tokens", tokens, 3);
    gguf_put_i32s(&w, "types", (int32_t[]){1, -2, 3}, 3);
    gguf_put_f32s(&w, "scores", (float[]){0.5f, -1}, 2);
    gguf_put_raw(&w, "pattern", HT_GGUF_ARRAY, "\7\0\0\0\2\0\0\0\0\0\0\0\0\1", 14);
    gguf_put_tensor(&w, "w.weight", HT_W_F32, 2, (int64_t[]){8, 8}, values);
    gguf_put_tensor(&w, "b.weight", HT_W_Q4_0, 1, (int64_t[]){64}, NULL);
    gguf_put_tensor(&w, "e.weight", HT_W_Q6_K, 4, (int64_t[]){256, 1, 1, 2}, NULL);
    return w;
}

UNIT_TEST(values_are_read_back) {
    gguf_writer w = sample();
    size_t size, offset = 0;
    unsigned char *file = gguf_finish(&w, &size);
    ht_gguf *g;
    assert_works(ht_gguf_parse, file, size, "f", &g);
    assert_int_equal(ht_gguf_n_values(g), 10);

    uint64_t u;
    double f;
    bool b;
    ht_bytes s;
    int64_t i;
    assert_true(ht_gguf_get_string(g, "general.architecture", &s));
    assert_int_equal(s.len, 5);
    assert_memory_equal(s.data, "llama", 5);
    assert_true(ht_gguf_get_u64(g, "llama.block_count", &u) && u == 30);
    assert_true(ht_gguf_get_f64(g, "llama.block_count", &f) && f == 30);
    assert_false(ht_gguf_get_u64(g, "negative", &u));
    assert_true(ht_gguf_get_f64(g, "negative", &f) && f == -5);
    assert_true(ht_gguf_get_u64(g, "large", &u) && u == UINT64_MAX);
    assert_false(ht_gguf_get_f64(g, "large", &f)); /* no double has this value */
    assert_true(ht_gguf_get_f64(g, "theta", &f) && f == 10000.5);
    assert_false(ht_gguf_get_u64(g, "theta", &u));
    assert_true(ht_gguf_get_bool(g, "yes", &b) && b);
    assert_false(ht_gguf_get_u64(g, "yes", &u));
    assert_false(ht_gguf_get_bool(g, "theta", &b));
    assert_false(ht_gguf_get_string(g, "theta", &s));
    assert_false(ht_gguf_get_u64(g, "tokens", &u));
    assert_null(ht_gguf_find(g, "absent"));
    assert_null(ht_gguf_find(g, ""));

    const ht_gguf_value *v = ht_gguf_find(g, "tokens");
    assert_int_equal(v->type, HT_GGUF_ARRAY);
    assert_int_equal(v->item_type, HT_GGUF_STRING);
    assert_int_equal(v->n_items, 3);
    assert_true(ht_gguf_next_string(v, &offset, &s) && s.len == 1 && s.data[0] == 'a');
    assert_true(ht_gguf_next_string(v, &offset, &s) && s.len == 0);
    assert_true(ht_gguf_next_string(v, &offset, &s) && s.len == 6);
    assert_false(ht_gguf_next_string(v, &offset, &s));
    assert_false(ht_gguf_item_i64(v, 0, &i));

    v = ht_gguf_find(g, "types");
    assert_true(ht_gguf_item_i64(v, 1, &i) && i == -2);
    assert_true(ht_gguf_item_f64(v, 1, &f) && f == -2);
    assert_false(ht_gguf_item_i64(v, 3, &i));
    v = ht_gguf_find(g, "scores");
    assert_true(ht_gguf_item_f64(v, 1, &f) && f == -1);
    assert_false(ht_gguf_item_i64(v, 1, &i));
    v = ht_gguf_find(g, "pattern");
    assert_true(ht_gguf_item_i64(v, 0, &i) && i == 0);
    assert_true(ht_gguf_item_i64(v, 1, &i) && i == 1);
    assert_ptr_equal(ht_gguf_value_at(g, 9), v);

    ht_gguf_free(g);
    free(file);
}

UNIT_TEST(tensors_are_read_back) {
    gguf_writer w = sample();
    size_t size;
    unsigned char *file = gguf_finish(&w, &size);
    ht_gguf *g;
    assert_works(ht_gguf_parse, file, size, "f", &g);
    assert_int_equal(ht_gguf_n_tensors(g), 3);
    const ht_gguf_tensor *t = ht_gguf_find_tensor(g, "w.weight");
    assert_ptr_equal(t, ht_gguf_tensor_at(g, 0));
    assert_int_equal(t->n_dims, 2);
    assert_int_equal(t->n_bytes, 256);
    assert_int_equal((size_t)(t->data - file) % 32, 0);
    float last;
    memcpy(&last, t->data + 252, 4);
    assert_true(last == 63.0f / 4);
    t = ht_gguf_find_tensor(g, "e.weight");
    assert_int_equal(t->type, HT_W_Q6_K);
    assert_int_equal(t->dims[3], 2);
    assert_int_equal(t->n_bytes, 420);
    t = ht_gguf_find_tensor(g, "b.weight");
    assert_int_equal(t->n_bytes, 36);
    assert_int_equal(t->dims[1], 1);
    assert_null(ht_gguf_find_tensor(g, "w"));
    ht_gguf_free(g);
    free(file);
}

UNIT_TEST(vocabulary_only_file) {
    gguf_writer w = gguf_writer_new();
    gguf_put_str(&w, "a", "b");
    w.version = 2;
    size_t size;
    ht_gguf *g;
    unsigned char *file = gguf_finish(&w, &size);
    assert_works(parse, file, size, &g);
    free(file);
    file = gguf_finish(&w, &size); /* nothing at all */
    assert_works(parse, file, size, &g);
    free(file);
}

UNIT_TEST(header_checks) {
    ht_gguf *g;
    const struct {
        const char *bytes;
        size_t n;
        ht_status status;
        const char *part;
    } cases[] = {
        {"", 0, HT_ERR_FORMAT, "too short"},
        {"GGU", 3, HT_ERR_FORMAT, "too short"},
        {"PK\3\4____", 8, HT_ERR_FORMAT, "50 4b 03 04, expected `GGUF`"},
        {"version https://git-lfs.github.com/spec/v1\noid sha256:0", 54, HT_ERR_FORMAT, "Git LFS pointer"},
        {"GGUF\0\0\0\3________________", 24, HT_ERR_UNSUPPORTED, "big-endian"},
        {"GGUF\1\0\0\0________________", 24, HT_ERR_UNSUPPORTED, "version 1, versions 2 and 3"},
        {"GGUF\0\0\0\0________________", 24, HT_ERR_UNSUPPORTED, "version 0, versions 2 and 3"},
        {"GGUF\4\0\0\0________________", 24, HT_ERR_UNSUPPORTED, "version 4, versions 2 and 3"},
        {"GGUF\3\0\0\0____", 12, HT_ERR_FORMAT, "cut short"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        assert_fails(cases[i].status, cases[i].part, parse, (const unsigned char *)cases[i].bytes, cases[i].n, &g);
    gguf_writer w = sample();
    w.extra_values = UINT64_MAX - 10;
    expect_failure(&w, HT_ERR_FORMAT, "metadata values, its");
    w = sample();
    w.extra_tensors = 1 << 20;
    expect_failure(&w, HT_ERR_FORMAT, "tensors, its");
    w = sample();
    w.extra_values = 1; /* the first tensor is then taken for a value */
    expect_failure(&w, HT_ERR_FORMAT, "tensor name at byte 391: expected 2251799813685248 bytes");
}

/* The sample with one more value. */
static void expect_refused(const char *key, uint32_t type, const char *bytes, size_t n, ht_status status,
                           const char *part) {
    gguf_writer w = sample();
    gguf_put_raw(&w, key, type, bytes, n);
    expect_failure(&w, status, part);
}

static void expect_key(const char *key, const char *part) {
    expect_refused(key, HT_GGUF_U32, "\1\0\0\0", 4, HT_ERR_FORMAT, part);
}

UNIT_TEST(key_checks) {
    expect_key("", "metadata key 10, at byte 361, is empty");
    expect_key("theta", "metadata key `theta` occurs twice, as number 4 and 10");
    expect_key("a\x1b[2J", "contains a control character");
    expect_key("a\xff", "not valid UTF-8");
    char *key = malloc(65537);
    memset(key, 'k', 65536);
    key[65536] = 0;
    expect_key(key, "is longer than 65535 bytes");
    key[65535] = 0;
    gguf_writer w = sample();
    gguf_put_u32(&w, key, 1);
    gguf_put_u32(&w, key, 1);
    expect_failure(&w, HT_ERR_FORMAT, "kkkk` occurs twice");
    free(key);
}

UNIT_TEST(value_checks) {
    expect_refused("x", 13, "\0\0\0\0", 4, HT_ERR_FORMAT, "`x` has the unknown type 13");
    expect_refused("x", HT_GGUF_ARRAY, "\15\0\0\0\1\0\0\0\0\0\0\0\0", 13, HT_ERR_FORMAT,
                   "`x` is an array of the unknown type 13");
    expect_refused("x", HT_GGUF_ARRAY, "\11\0\0\0\1\0\0\0\0\0\0\0\0", 13, HT_ERR_UNSUPPORTED,
                   "`x` is an array of arrays");
    expect_refused("x", HT_GGUF_ARRAY, "\4\0\0\0\0\0\0\0\0\0\0\100", 12, HT_ERR_FORMAT,
                   "`x` claims 4611686018427387904 values of 4 bytes"); /* 2^62 * 4 bytes overflows */
    expect_refused("x", HT_GGUF_ARRAY, "\10\0\0\0\0\0\0\1\0\0\0\0", 12, HT_ERR_FORMAT, "`x` claims 16777216 strings");
    expect_refused("x", HT_GGUF_ARRAY, "\10\0\0\0\2\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\377\377\377\377\377\377\377\377", 28,
                   HT_ERR_FORMAT, "string 1 of 2 of key `x`");
    expect_refused("x", HT_GGUF_STRING, "\377\377\377\377\377\377\377\377", 8, HT_ERR_FORMAT,
                   "string 0 of 1 of key `x`");
}

UNIT_TEST(alignment_checks) {
    const uint32_t bad[] = {0, 3, 48, (1u << 20) + 1, 1u << 21, UINT32_MAX};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        gguf_writer w = gguf_writer_new();
        gguf_put_u32(&w, "general.alignment", bad[i]);
        expect_failure(&w, HT_ERR_FORMAT, "expected a power of two of at most 1048576");
    }
    gguf_writer w = gguf_writer_new();
    gguf_put_str(&w, "general.alignment", "32");
    expect_failure(&w, HT_ERR_FORMAT, "general.alignment has type string, expected u32");

    const uint32_t good[] = {1, 8, 64, 4096};
    for (size_t i = 0; i < sizeof good / sizeof *good; i++) {
        w = gguf_writer_new();
        w.alignment = good[i];
        gguf_put_tensor(&w, "a", HT_W_F16, 1, (int64_t[]){3}, "\1\2\3\4\5\6");
        gguf_put_tensor(&w, "b", HT_W_F16, 1, (int64_t[]){3}, "\6\5\4\3\2\1");
        size_t size;
        ht_gguf *g;
        unsigned char *file = gguf_finish(&w, &size);
        assert_works(ht_gguf_parse, file, size, "f", &g);
        assert_memory_equal(ht_gguf_find_tensor(g, "b")->data, "\6\5\4\3\2\1", 6);
        ht_gguf_free(g);
        free(file);
    }
}

UNIT_TEST(tensor_checks) {
    const struct {
        uint32_t n_dims;
        uint64_t dims[5];
        uint32_t type;
        uint64_t offset;
        ht_status status;
        const char *part;
    } cases[] = {
        {0, {0}, 0, 0, HT_ERR_FORMAT, "`t` has 0 dimensions, expected 1 to 4"},
        {5, {1, 1, 1, 1, 1}, 0, 0, HT_ERR_FORMAT, "`t` has 5 dimensions, expected 1 to 4"},
        {2, {4, 0}, 0, 0, HT_ERR_FORMAT, "dimension 1 of tensor `t` is zero"},
        {1, {UINT64_MAX}, 0, 0, HT_ERR_FORMAT, "more elements than can be counted"},
        {2, {UINT64_C(1) << 40, UINT64_C(1) << 40}, 0, 0, HT_ERR_FORMAT, "more elements than can be counted"},
        {2, {UINT64_C(1) << 30, UINT64_C(1) << 31}, 0, 0, HT_ERR_FORMAT, "the file has"},
        {1, {UINT64_C(1) << 62}, 0, 0, HT_ERR_FORMAT, "more bytes than can be counted"},
        {1, {32}, 4, 0, HT_ERR_UNSUPPORTED, "`t` has type number 4, which is none that Hearth knows"},
        {1, {32}, UINT32_MAX, 0, HT_ERR_UNSUPPORTED, "type number 4294967295"},
        {2, {128, 2}, 23, 0, HT_ERR_FORMAT, "128 elements, type IQ4_XS needs a multiple of 256"},
        {2, {96, 2}, 40, 0, HT_ERR_FORMAT, "96 elements, type NVFP4 needs a multiple of 64"},
        {2, {48, 2}, 2, 0, HT_ERR_FORMAT, "rows of tensor `t` have 48 elements, type Q4_0 needs a multiple of 32"},
        {2, {128, 2}, 12, 0, HT_ERR_FORMAT, "128 elements, type Q4_K needs a multiple of 256"},
        {1, {1}, 0, 16, HT_ERR_FORMAT, "`t` is at offset 16, expected a multiple of 32"},
        {1, {1}, 0, 32, HT_ERR_FORMAT, "`t` is 4 bytes at offset 32, the file has 32 bytes of tensor data"},
        {1, {9}, 0, 0, HT_ERR_FORMAT, "`t` is 36 bytes at offset 0, the file has 32"},
        {1, {1}, 0, UINT64_MAX - 31, HT_ERR_FORMAT, "`t` is 4 bytes at offset 18446744073709551584"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        gguf_writer w = gguf_writer_new();
        gguf_put_entry(&w, "t", cases[i].n_dims, cases[i].dims, cases[i].type, cases[i].offset);
        ht_text_append(&w.data, (char[32]){0}, 32);
        expect_failure(&w, cases[i].status, cases[i].part);
    }
    gguf_writer w = gguf_writer_new();
    gguf_put_entry(&w, "second", 1, (uint64_t[]){8}, 0, 32);
    gguf_put_entry(&w, "first", 1, (uint64_t[]){9}, 0, 0);
    ht_text_append(&w.data, (char[64]){0}, 64);
    expect_failure(&w, HT_ERR_FORMAT, "tensors `first` and `second` overlap");
    w = sample();
    gguf_put_tensor(&w, "b.weight", HT_W_F32, 1, (int64_t[]){1}, NULL);
    expect_failure(&w, HT_ERR_FORMAT, "tensor `b.weight` occurs twice, as number 1 and 3");
    w = sample();
    gguf_put_tensor(&w, "", HT_W_F32, 1, (int64_t[]){1}, NULL);
    expect_failure(&w, HT_ERR_FORMAT, "tensor name 3, at byte");
    w = sample();
    w.data.len = 0;
    expect_failure(&w, HT_ERR_FORMAT, "the file has 0 bytes of tensor data");
}

UNIT_TEST(every_truncation_and_bit_flip) {
    gguf_writer w = sample();
    size_t size, header = 0, accepted = 0;
    unsigned char *file = gguf_finish(&w, &size);
    ht_gguf *g;
    ht_error err = {0};
    assert_works(ht_gguf_parse, file, size, "f", &g);
    header = (size_t)(ht_gguf_find_tensor(g, "w.weight")->data - file);
    ht_gguf_free(g);
    /* The last tensor ends 12 bytes before its padding does: only those may be missing. */
    for (size_t n = 0; n < size - 28; n++) assert_int_not_equal(parse(file, n, &g, &err), HT_OK);
    for (size_t bit = 0; bit < header * 8; bit++) {
        file[bit / 8] ^= (unsigned char)(1u << bit % 8);
        accepted += parse(file, size, &g, &err) == HT_OK;
        file[bit / 8] ^= (unsigned char)(1u << bit % 8);
    }
    assert_true(accepted < header * 8); /* flips inside texts and values are harmless, others are seen */
    free(file);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(values_are_read_back),
        cmocka_unit_test(tensors_are_read_back),
        cmocka_unit_test(vocabulary_only_file),
        cmocka_unit_test(header_checks),
        cmocka_unit_test(key_checks),
        cmocka_unit_test(value_checks),
        cmocka_unit_test(alignment_checks),
        cmocka_unit_test(tensor_checks),
        cmocka_unit_test(every_truncation_and_bit_flip),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
