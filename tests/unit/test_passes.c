/* Functions of models that have one form for cached passes and one for plain ones: both give the same. */
#include "models/forward.h"
#include "support/arrays.h"
#include "support/kernels.h"
#include "support/test.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* ht_attend in a cached and in a plain pass, with sinks and chunks: both reach the operations. */
UNIT_TEST(passes_attend_alike) {
    enum { T = 70, HEADS = 4, KV_HEADS = 2, DIM = 16, ALL = T * HEADS * DIM, KV = T * KV_HEADS * DIM };
    static const ht_layer_kv kv = {{KV_HEADS, DIM, HT_F32, false, 0}, 30, true};
    const int64_t q_shape[] = {T, HEADS, DIM}, kv_shape[] = {T, KV_HEADS, DIM}, n = T, n_heads = HEADS;
    uint64_t seed = 5;
    float *of_q = test_random_floats(ALL, 4, &seed), *of_k = test_random_floats(KV, 2, &seed),
          *of_v = test_random_floats(KV, 1, &seed), *cached = malloc(ALL * sizeof *cached),
          *plain = malloc(ALL * sizeof *plain), *without = malloc(ALL * sizeof *without);
    int32_t pos[T];
    ht_error err = {0};
    ht_kv_page *page;
    ht_scope *s = ht_scope_new(test_stream);
    assert_int_equal(ht_kv_page_new(test_device(), &kv.shape, NULL, &page, &err), HT_OK);
    for (int32_t i = 0; i < T; i++) pos[i] = i;
    ht_kv_layer layer = {.shape = kv.shape, .window = kv.window, .chunked = true, .n_pages = 1, .pages = &page};
    ht_cache cache = {.n_layers = 1, .layer = &layer}, *all[] = {&cache};
    const ht_batch batch = {
        .n_tok = T, .n_seq = 1, .pos = pos, .seq_start = (int32_t[]){0, T}, .kv_len = (int32_t[]){T}};
    const ht_step step = {.batch = &batch, .kv = all};
    ht_array *keys, *values;
    const ht_plain_pass pass = {.own = ht_arange(s, 0, T, 1, HT_I32),
                                .first = ht_zeros(s, HT_I32, &n, 1),
                                .kv = &kv,
                                .keys = &keys,
                                .values = &values};
    ht_ctx in_cache = {.s = s, .step = &step}, in_plain = {.s = s, .pass = &pass};
    ht_array *q = ht_array_from(s, of_q, HT_F32, q_shape, 3), *k = ht_array_from(s, of_k, HT_F32, kv_shape, 3),
             *v = ht_array_from(s, of_v, HT_F32, kv_shape, 3);
    ht_attention how = {.scale = 0.25f, .softcap = 20};
    ht_array *y = ht_attend(&in_plain, q, k, v, 0, &how);
    assert_int_equal(ht_array_read(s, y, without, ALL * sizeof *without, &err), HT_OK);
    how.sinks = ht_array_from(s, (float[]){1, -2, 5, 0}, HT_F32, &n_heads, 1);
    y = ht_attend(&in_plain, q, k, v, 0, &how);
    assert_int_equal(ht_array_read(s, y, plain, ALL * sizeof *plain, &err), HT_OK);
    y = ht_attend(&in_cache, q, k, v, 0, &how);
    assert_int_equal(ht_array_read(s, y, cached, ALL * sizeof *cached, &err), HT_OK);
    for (int i = 0; i < ALL; i++) assert_true(fabsf(cached[i] - plain[i]) < 2e-5f);
    /* A row that begins a chunk has one key, whose weight without a sink is 1. */
    for (int d = 0; d < DIM; d++) {
        const int64_t at = (30 * HEADS + 2) * DIM + d, of = (30 * KV_HEADS + 1) * DIM + d;
        assert_true(fabsf(without[at] - of_v[of]) < 2e-6f);
        assert_true(fabsf(plain[at]) <= fabsf(of_v[of]));
    }
    assert_memory_not_equal(plain, without, ALL * sizeof *plain);
    y = ht_attend(&in_cache, q, k, v, 0, &(ht_attention){.scale = 1, .sinks = pass.own});
    assert_true(!y && strstr(ht_scope_error(s)->message, "sinks"));
    ht_scope_free(s);
    ht_kv_page_release(test_device(), &kv.shape, page);
    free(of_q), free(of_k), free(of_v), free(cached), free(plain), free(without);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(passes_attend_alike)};
    return cmocka_run_group_tests(tests, test_open_stream, test_close_stream);
}
