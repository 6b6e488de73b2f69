/* Attention over KV caches: against a naive one in double, and bit for bit the same however the work is cut. */
#include "base/half.h"
#include "cpu/kv.h"
#include "support/attend_texts.h"
#include "support/test.h"
#include "support/weights.h"

#include <float.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* 8 bits: per 32 numbers (or what is left of the vector) a bf16 scale, rounded up from max / 127. */
static void hold_block(const float *x, int n, float *held) {
    float max = 0;
    for (int i = 0; i < n; i++) max = fmaxf(max, fabsf(x[i]));
    float least = max / 127, scale = ht_bf16_to_f32((uint16_t)(ht_float_bits(least) >> 16));
    if (scale < least) scale = ht_bf16_to_f32((uint16_t)((ht_float_bits(least) >> 16) + 1));
    for (int i = 0; i < n; i++) held[i] = scale > 0 ? scale * rintf(x[i] * (1 / scale)) : 0;
}

static float *held_vectors(ht_dtype dtype, const float *x, int64_t n_vectors, int head_dim) {
    float *held = malloc((size_t)(n_vectors * head_dim) * sizeof *held);
    assert_non_null(held);
    for (int64_t i = 0; i < n_vectors * head_dim; i++)
        held[i] = dtype == HT_F16    ? ht_f16_to_f32(ht_f32_to_f16(x[i]))
                  : dtype == HT_BF16 ? ht_bf16_to_f32(ht_f32_to_bf16(x[i]))
                                     : x[i];
    for (int64_t i = 0; i < n_vectors && dtype == HT_I8; i++)
        for (int d = 0; d < head_dim; d += 32)
            hold_block(x + i * head_dim + d, head_dim - d < 32 ? head_dim - d : 32, held + i * head_dim + d);
    return held;
}

/* k and v as the caches should hold them. */
typedef struct held {
    float *k[MOST_TEXTS], *v[MOST_TEXTS];
} held;

static held held_make(const texts *t) {
    const attend_case *c = t->c;
    held h = {0};
    for (int s = 0; s < c->n_seq; s++) {
        h.k[s] = held_vectors(c->dtype, t->k[s], (int64_t)c->length[s] * c->n_kv_heads, c->head_dim);
        h.v[s] =
            held_vectors(c->dtype, c->v_dim ? t->k[s] : t->v[s], (int64_t)c->length[s] * c->n_kv_heads, c->head_dim);
    }
    return h;
}

/* ---- the naive form ---- */

static double score_of(const texts *t, const held *of, int s, int i, int h, int j) {
    const attend_case *c = t->c;
    int kv_head = h / (c->n_heads / c->n_kv_heads);
    const float *q = t->q[s] + ((int64_t)i * c->n_heads + h) * c->head_dim;
    const float *k = of->k[s] + ((int64_t)j * c->n_kv_heads + kv_head) * c->head_dim;
    double dot = 0.0;
    for (int d = 0; d < c->head_dim; d++) dot += (double)q[d] * (double)k[d];
    dot *= (double)(1 / sqrtf((float)c->head_dim));
    return c->softcap > 0.0f ? (double)c->softcap * tanh(dot / (double)c->softcap) : dot;
}

/* Largest difference from the naive result over some rows of sequence s, and all rows near page boundaries. */
static double worst_difference(const texts *t, const held *of, int s, const float *out) {
    const attend_case *c = t->c;
    double worst = 0.0;
    double *w = malloc((size_t)c->length[s] * sizeof *w);
    for (int i = 0; i < c->length[s]; i++) {
        int in_page = i % HT_KV_PAGE;
        if (i % 29 != 0 && in_page != 0 && in_page != 1 && in_page != 255 && i != c->length[s] - 1) continue;
        int first = c->window > 0 && i >= c->window ? i - (int)c->window + 1 : 0;
        if (c->chunked) first = i / (int)c->window * (int)c->window;
        for (int h = 0; h < c->n_heads; h++) {
            double max = c->sinks ? (double)t->sinks[h] : -INFINITY, sum = 0.0;
            for (int j = first; j <= i; j++) max = fmax(max, w[j] = score_of(t, of, s, i, h, j));
            if (c->sinks) sum = exp((double)t->sinks[h] - max);
            for (int j = first; j <= i; j++) sum += w[j] = exp(w[j] - max);
            for (int d = 0; d < attend_values(c); d++) {
                double y = 0.0;
                const float *v = of->v[s] + (int64_t)(h / (c->n_heads / c->n_kv_heads)) * c->head_dim + d;
                for (int j = first; j <= i; j++) y += w[j] * (double)v[(int64_t)j * c->n_kv_heads * c->head_dim];
                double difference = fabs(y / sum - (double)out[((int64_t)i * c->n_heads + h) * attend_values(c) + d]);
                if (!(difference <= worst)) worst = difference; /* a NaN is the worst of all */
            }
        }
    }
    free(w);
    return worst;
}

/* ---- cases ---- */

static const attend_case cases[] = {
    {"SmolLM2's heads, f16", 9, 3, 64, HT_F16, 0, 0, 0.0f, 2, {600, 259}, NO_SINKS, false, 0},
    {"one KV head of 256, bf16", 4, 1, 256, HT_BF16, 0, 0, 0.0f, 1, {300}, NO_SINKS, false, 0},
    {"Qwen's heads, f32", 14, 2, 64, HT_F32, 0, 0, 0.0f, 1, {513}, NO_SINKS, false, 0},
    {"window, growing", 4, 2, 32, HT_F16, 100, 0, 0.0f, 2, {700, 90}, NO_SINKS, false, 0},
    {"window of a page, ring reused", 4, 2, 32, HT_F16, 256, 4, 0.0f, 2, {2100, 511}, NO_SINKS, false, 0},
    {"window of a few keys, ring reused", 2, 2, 16, HT_BF16, 5, 3, 0.0f, 1, {1100}, NO_SINKS, false, 0},
    {"odd head_dim 6, softcap", 4, 2, 6, HT_F16, 0, 0, 5.0f, 3, {257, 1, 255}, NO_SINKS, false, 0},
    {"odd head_dim 72, f32", 2, 1, 72, HT_F32, 70, 0, 50.0f, 1, {512}, NO_SINKS, false, 0},
    {"head_dim 8, many heads", 12, 1, 8, HT_F32, 0, 0, 0.0f, 1, {511}, NO_SINKS, false, 0},
    {"three queries per KV head", 9, 3, 16, HT_F16, 0, 0, 0.0f, 1, {513}, NO_SINKS, false, 0},
    {"SmolLM2's heads, 8 bits", 9, 3, 64, HT_I8, 0, 0, 0.0f, 2, {600, 259}, NO_SINKS, false, 0},
    {"odd head_dim 72, 8 bits, window", 4, 2, 72, HT_I8, 100, 3, 0.0f, 1, {700}, NO_SINKS, false, 0},
    {"odd head_dim 6, 8 bits", 2, 1, 6, HT_I8, 0, 0, 5.0f, 2, {257, 3}, NO_SINKS, false, 0},
    {"head_dim 80, no grouping", 5, 5, 80, HT_F16, 0, 0, 0.0f, 1, {300}, NO_SINKS, false, 0},
    {"sinks, SmolLM2's heads, f16", 9, 3, 64, HT_F16, 0, 0, 0.0f, 2, {600, 259}, FAR_SINKS, false, 0},
    {"sinks, window of a few keys, bf16", 8, 2, 16, HT_BF16, 5, 3, 0.0f, 1, {800}, NEAR_SINKS, false, 0},
    {"sinks, 8 bits, window, softcap", 8, 2, 72, HT_I8, 100, 3, 5.0f, 1, {520}, FAR_SINKS, false, 0},
    {"sinks, odd head_dim 6, f32", 3, 3, 6, HT_F32, 0, 0, 0.0f, 3, {257, 1, 255}, NEAR_SINKS, false, 0},
    {"chunks of 100, growing", 4, 2, 32, HT_F16, 100, 0, 0.0f, 2, {601, 90}, NO_SINKS, true, 0},
    {"chunks of a page, ring reused", 4, 2, 32, HT_F16, 256, 4, 0.0f, 2, {1300, 513}, NO_SINKS, true, 0},
    {"chunks of 7, ring reused, sinks, bf16", 2, 2, 16, HT_BF16, 7, 3, 0.0f, 1, {800}, FAR_SINKS, true, 0},
    {"chunks of 300, 8 bits, softcap", 4, 2, 40, HT_I8, 300, 4, 5.0f, 1, {1201}, NO_SINKS, true, 0},
    {"chunks of one key, f32", 2, 1, 8, HT_F32, 1, 0, 0.0f, 1, {300}, NEAR_SINKS, true, 0},
    {"latent of DeepSeek's kind, f16", 7, 1, 144, HT_F16, 0, 0, 0.0f, 2, {600, 259}, NO_SINKS, false, 128},
    {"latent of odd sizes, f32, softcap", 5, 1, 30, HT_F32, 0, 0, 5.0f, 2, {257, 3}, NO_SINKS, false, 21},
    {"latent, bf16, window, sinks", 13, 1, 20, HT_BF16, 100, 3, 0.0f, 1, {700}, NEAR_SINKS, false, 12},
    {"latent, 8 bits", 9, 1, 72, HT_I8, 0, 0, 0.0f, 3, {300, 1, 255}, NO_SINKS, false, 66},
    {"latents of two heads", 6, 2, 24, HT_F16, 0, 0, 0.0f, 1, {513}, NO_SINKS, false, 16},
};

/* Whether a case is cut in that way: in all of them in a soak, else in two of twelve, other ones on each instruction set, and
 * the plain kernel, whose results are not needed for the others', is left out of the long ones. Where everything takes many times
 * as long there are two threads and half of the cases on each instruction set, the others the day after; an emulator gets
 * half of these, and none but the small ones. */
static bool is_cut_so(const attend_case *c, int device, int threads, int chunk, int number) {
    const bool plain = device == 0;
    double keys = 0.0;
    for (int s = 0; s < c->n_seq; s++)
        keys += (double)c->length[s] * (double)(c->window ? c->window : c->length[s] / 2);
    const bool is_long = keys * c->n_heads * c->head_dim > 2e7;
    if (is_long && (TEST_EMULATED || (plain && test_cases(true, TEST_SLOW)))) return false;
    const int64_t turn = device + (c - cases);
    if (TEST_SLOW) return threads == 2 && (chunk == 64 || (chunk == 1 && keys <= 1e5)) && test_takes_today(turn, 2);
    return plain || test_takes(number + turn, 6);
}

static void run_case(const attend_case *c) {
    texts t = texts_make(c);
    held of = held_make(&t);
    ht_device *devices[TEST_MAX_DEVICES];
    float *expected[MOST_TEXTS] = {0}, *got[MOST_TEXTS] = {0};
    for (int threads = 1; threads <= 4; threads *= 2) {
        int n = test_devices(threads, devices);
        for (int d = 0; d < n; d++) {
            static const int chunks[] = {1, 37, 64, 512};
            bool plain = d == 0;
            if (plain && threads != (TEST_SLOW ? 2 : 1)) continue;
            for (size_t k = 0; k < (plain ? 1 : sizeof chunks / sizeof *chunks); k++) {
                int chunk = plain ? 64 : chunks[k];
                if (!is_cut_so(c, d, threads, chunk, 4 * (threads / 2) + (int)k)) continue;
                if (c->ring_pages && c->window + chunk > c->ring_pages * HT_KV_PAGE - HT_KV_PAGE + 1) continue;
                for (int together = 0; together <= (c->n_seq > 1 ? 1 : 0); together++) {
                    results_make(c, got);
                    caches kv;
                    caches_make(devices[d], c, &kv);
                    attend_texts(&kv, &t, (attend_cut){chunk, 0, together, 2}, got);
                    caches_free(&kv);
                    bool first = !plain && !expected[0];
                    for (int s = 0; s < c->n_seq; s++) {
                        size_t bytes =
                            (size_t)c->length[s] * (size_t)c->n_heads * (size_t)attend_values(c) * sizeof(float);
                        if (plain || first) {
                            double worst = worst_difference(&t, &of, s, got[s]);
                            if (!(worst < 3e-5))
                                fail_msg("%s, %s: off by %g", c->name, devices[d]->instruction_set, worst);
                        } else if (memcmp(expected[s], got[s], bytes) != 0)
                            fail_msg("%s, %s: other bits with %d threads, chunks of %d, sequences %s", c->name,
                                     devices[d]->instruction_set, threads, chunk, together ? "together" : "apart");
                    }
                    if (first)
                        memcpy(expected, got, sizeof got);
                    else
                        results_free(c, got);
                }
            }
        }
    }
    if (expected[0]) results_free(c, expected);
    for (int s = 0; s < c->n_seq; s++) free(of.k[s]), free(of.v[s]);
    texts_free(&t);
}

UNIT_TEST(same_bits_however_cut) {
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) run_case(&cases[i]);
}

/* Blocks of 8 bits at their edges. */
UNIT_TEST(eight_bit_blocks) {
    int8_t q[2 * 32];
    float x[32] = {0};
    assert_int_equal(ht_kv_quantise(x, 32, q, 1), 0);
    for (int i = 0; i < 32; i++) assert_int_equal(q[i], 0);
    const float sizes[] = {1e-44f, 1e-37f, 0.01f, 1.0f, 126.9f, 3e38f};
    for (size_t s = 0; s < sizeof sizes / sizeof *sizes; s++) {
        for (int i = 0; i < 32; i++) x[i] = sizes[s] * ((float)(i - 16) / 16.0f);
        float scale = ht_bf16_to_f32(ht_kv_quantise(x, 32, q, 2));
        for (int i = 0; i < 32; i++) {
            assert_true(q[2 * i] >= -127);
            double error = fabs((double)x[i] - (double)scale * q[2 * i]);
            assert_true(error <= 0.5001 * (double)scale || (scale == 0 && sizes[s] / 127 < FLT_MIN));
        }
        assert_true(scale <= sizes[s] / 127 * 1.0079f);
    }
    const float bad[] = {NAN, INFINITY, -INFINITY};
    for (size_t b = 0; b < 3; b++) {
        x[7] = bad[b];
        assert_true(isnan(ht_bf16_to_f32(ht_kv_quantise(x, 32, q, 1))));
        assert_true(q[0] != 0 && q[31] != 0); /* so that every number of the block is a NaN */
    }
}

UNIT_TEST(missing_page_is_an_error) {
    ht_device *devices[TEST_MAX_DEVICES];
    int n = test_devices(1, devices);
    for (int d = 0; d < n; d++) expect_missing_page(devices[d]);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(same_bits_however_cut),
        cmocka_unit_test(eight_bit_blocks),
        cmocka_unit_test(missing_page_is_an_error),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
