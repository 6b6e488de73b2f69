/* Growable arrays, the hash table, the arena and base64 of base/. */
#include "base/arena.h"
#include "base/base64.h"
#include "base/grow.h"
#include "base/hash.h"
#include "base/table.h"
#include "support/test.h"

UNIT_TEST(arrays_grow) {
    int *one = NULL, *many = NULL;
    size_t capacity = 0;
    for (int i = 0; i < 1000; i++) {
        assert_true(HT_GROW_ONE(one, i));
        assert_true(HT_GROW(many, capacity, i + 1));
        one[i] = many[i] = i;
    }
    for (int i = 0; i < 1000; i++) assert_true(one[i] == i && many[i] == i);
    assert_true(HT_GROW(many, capacity, 5000) && capacity == 5000);
    const int *const before = many;
    assert_false(HT_GROW(many, capacity, SIZE_MAX / 2)); /* the bytes overflow */
    assert_false(HT_RESIZE(many, SIZE_MAX / 2));
    assert_true(many == before && capacity == 5000 && many[999] == 999);
    free(one);
    free(many);
}

static uint32_t find(const ht_table *t, uint64_t hash, uint32_t number) {
    size_t probe = 0;
    uint32_t found;
    while ((found = ht_table_next(t, hash, &probe)) != HT_TABLE_END && found != number) {}
    return found;
}

UNIT_TEST(the_table_grows_and_is_cut) {
    ht_table t = {0};
    enum { N = 20000 };
    assert_int_equal(find(&t, 1, 0), HT_TABLE_END);
    for (uint32_t i = 0; i < N; i++) assert_int_equal(ht_table_add(&t, ht_hash_number(i), i), HT_OK);
    for (uint32_t n = N; n; n /= 3) {
        ht_table_truncate(&t, n);
        assert_int_equal(t.n, n);
        for (uint32_t i = 0; i < N; i++) assert_int_equal(find(&t, ht_hash_number(i), i), i < n ? i : HT_TABLE_END);
    }
    ht_table_free(&t);
}

/* Insertion of keys with one hash is refused before it becomes quadratic. */
UNIT_TEST(collisions_are_refused) {
    ht_table t = {0};
    for (uint32_t i = 0; i < HT_TABLE_PROBES_MAX; i++) assert_int_equal(ht_table_add(&t, 7, i), HT_OK);
    for (size_t i = 0, probe = 0; i < HT_TABLE_PROBES_MAX; i++) assert_int_equal(ht_table_next(&t, 7, &probe), i);
    assert_int_equal(ht_table_add(&t, 7, HT_TABLE_PROBES_MAX), HT_ERR_FORMAT);
    ht_table_free(&t);
}

UNIT_TEST(the_arena_gives_zeroed_memory) {
    ht_arena a = {0};
    static const size_t sizes[] = {0, 1, 17, 40000, 3, 200000, 64};
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        unsigned char *p = ht_arena_take(&a, sizes[i], 1);
        assert_non_null(p);
        assert_int_equal((uintptr_t)p % _Alignof(max_align_t), 0);
        for (size_t k = 0; k < sizes[i]; k++) assert_int_equal(p[k], 0);
        memset(p, 0xFF, sizes[i]);
    }
    assert_null(ht_arena_take(&a, SIZE_MAX / 2, 4));
    assert_string_equal(ht_arena_copy(&a, "text", 3), "tex");
    assert_true(a.used >= 240085 && a.bytes >= a.used);
    ht_arena_free(&a);
    assert_int_equal(a.bytes, 0);
}

UNIT_TEST(base64_is_read_and_written) {
    static const struct {
        const char *bytes, *text;
        size_t n;
    } cases[] = {{"", "", 0},
                 {"f", "Zg==", 1},
                 {"fo", "Zm8=", 2},
                 {"foo", "Zm9v", 3},
                 {"\xFB\xFF\x00", "+/8A", 3},
                 {"foobar", "Zm9vYmFy", 6}};
    static const char *const wrong[] = {"Zg=", "Zg", "Z===", "====", "Zg==Zg==", "Zm9 ", "Zm8\n", "Zm-_"};
    ht_text out = {0};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        ht_text_clear(&out);
        ht_base64_encode(cases[i].bytes, cases[i].n, &out);
        assert_int_equal(out.len, strlen(cases[i].text));
        if (out.len) assert_string_equal(out.data, cases[i].text);
        ht_text_clear(&out);
        assert_true(ht_base64_decode(cases[i].text, strlen(cases[i].text), &out));
        assert_int_equal(out.len, cases[i].n);
        if (out.len) assert_memory_equal(out.data, cases[i].bytes, out.len);
    }
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++)
        assert_false(ht_base64_decode(wrong[i], strlen(wrong[i]), &out));
    ht_text_discard(&out);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(arrays_grow),
        cmocka_unit_test(base64_is_read_and_written),
        cmocka_unit_test(the_table_grows_and_is_cut),
        cmocka_unit_test(collisions_are_refused),
        cmocka_unit_test(the_arena_gives_zeroed_memory),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
