/* Attention over KV caches: against a naive one in double, and bit for bit the same however the work is cut. */
#include "base/half.h"
#include "cpu/kv.h"
#include "support/kernels.h"
#include "support/test.h"
#include "support/weights.h"

#include <float.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_SEQUENCES = 3 };

typedef struct attend_case {
    const char *name;
    int n_heads, n_kv_heads, head_dim;
    ht_dtype dtype;
    int64_t window, ring_pages; /* 0: all keys; growing */
    float scale, softcap;
    int n_sequences, length[MAX_SEQUENCES];
} attend_case;

/* q, k and v of every position of every sequence; k and v also as the cache should hold them. */
typedef struct texts {
    const attend_case *c;
    float *q[MAX_SEQUENCES], *k[MAX_SEQUENCES], *v[MAX_SEQUENCES], *held_k[MAX_SEQUENCES], *held_v[MAX_SEQUENCES];
} texts;

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

static texts texts_make(const attend_case *c) {
    texts t = {.c = c};
    uint64_t state = 7;
    for (int s = 0; s < c->n_sequences; s++) {
        int64_t kv = (int64_t)c->length[s] * c->n_kv_heads * c->head_dim;
        t.q[s] = test_random_floats((int64_t)c->length[s] * c->n_heads * c->head_dim, 4.0f, &state);
        t.k[s] = test_random_floats(kv, 2.0f, &state);
        t.v[s] = test_random_floats(kv, 1.0f, &state);
        t.held_k[s] = held_vectors(c->dtype, t.k[s], kv / c->head_dim, c->head_dim);
        t.held_v[s] = held_vectors(c->dtype, t.v[s], kv / c->head_dim, c->head_dim);
    }
    return t;
}

static void texts_free(texts *t) {
    for (int s = 0; s < MAX_SEQUENCES; s++)
        free(t->q[s]), free(t->k[s]), free(t->v[s]), free(t->held_k[s]), free(t->held_v[s]);
}

/* ---- caches ---- */

typedef struct caches {
    ht_cache cache[MAX_SEQUENCES];
    ht_kv_layer layer[MAX_SEQUENCES];
    ht_cache *pointer[MAX_SEQUENCES];
} caches;

static void caches_make(const attend_case *c, caches *out) {
    memset(out, 0, sizeof *out);
    for (int s = 0; s < c->n_sequences; s++) {
        int64_t pages = c->ring_pages ? c->ring_pages : (c->length[s] + HT_KV_PAGE - 1) / HT_KV_PAGE;
        size_t vector = (size_t)c->head_dim * ht_dtype_bytes(c->dtype);
        if (c->dtype == HT_I8) vector += 2 * (((size_t)c->head_dim + 31) / 32);
        size_t bytes = 2 * (size_t)c->n_kv_heads * HT_KV_PAGE * vector;
        out->layer[s] = (ht_kv_layer){.shape = {c->n_kv_heads, c->head_dim, c->dtype},
                                      .window = c->window,
                                      .ring_pages = c->ring_pages,
                                      .n_pages = pages,
                                      .pages = calloc((size_t)pages, sizeof(ht_kv_page *))};
        for (int64_t p = 0; p < pages; p++) {
            ht_kv_page *page = out->layer[s].pages[p] = malloc(sizeof *page);
            *page = (ht_kv_page){.refs = 1, .data = malloc(bytes)};
            memset(page->data, 0xff, bytes); /* NaN: what is not visible must not matter */
        }
        out->cache[s] = (ht_cache){.n_layers = 1, .layer = &out->layer[s]};
        out->pointer[s] = &out->cache[s];
    }
}

static void caches_free(caches *c) {
    for (int s = 0; s < MAX_SEQUENCES; s++) {
        for (int64_t p = 0; p < c->layer[s].n_pages; p++) free(c->layer[s].pages[p]->data), free(c->layer[s].pages[p]);
        free(c->layer[s].pages);
    }
}

/* ---- running ---- */

/* The rows of a step that are asked for, without the others: the same bits, [rows, per_q] in `whole`. */
static void check_asked(ht_device *d, const ht_step *of, const ht_attend_params *params, const ht_view *q,
                        const float *whole, int64_t per_q) {
    ht_batch batch = *of->batch;
    int32_t *row = malloc((size_t)batch.n_tok * sizeof *row);
    float *asked = malloc((size_t)(batch.n_tok * per_q) * sizeof *asked),
          *y = malloc((size_t)(batch.n_tok * per_q) * sizeof *y);
    for (int every = 3; every <= 7; every += 4) { /* sequences of a few rows may have none of them */
        batch.n_out = 0;
        for (int32_t i = every - 1; i < batch.n_tok; i += every) {
            memcpy(asked + batch.n_out * per_q, (const float *)q->data + i * per_q, (size_t)per_q * sizeof *asked);
            row[batch.n_out++] = i;
        }
        batch.out_row = row;
        const ht_view none = {.n_dims = -1};
        ht_view in[3] = {test_view(asked, HT_F32, 3, (int64_t[]){batch.n_out, q->shape[1], q->shape[2]}), none, none};
        ht_view to = test_view(y, HT_F32, 3, (int64_t[]){batch.n_out, q->shape[1], q->shape[2]});
        ht_attend_params narrowed = *params;
        narrowed.asked = true;
        test_run_ok(d, HT_OP_ATTEND, &narrowed, 3, in, &to, &(ht_step){.batch = &batch, .kv = of->kv});
        for (int32_t i = 0; i < batch.n_out; i++)
            assert_memory_equal(y + i * per_q, whole + row[i] * per_q, (size_t)per_q * sizeof *y);
    }
    free(row), free(asked), free(y);
}

/* One step: rows begin[s] .. end[s] - 1 of every sequence s. */
static void step(ht_device *d, const texts *t, caches *kv, const int *begin, const int *end, float *const out[]) {
    const attend_case *c = t->c;
    int64_t per_q = (int64_t)c->n_heads * c->head_dim, per_kv = (int64_t)c->n_kv_heads * c->head_dim;
    int32_t start[MAX_SEQUENCES + 1] = {0}, kv_len[MAX_SEQUENCES], n_seq = 0;
    ht_cache *pointer[MAX_SEQUENCES];
    int which[MAX_SEQUENCES];
    for (int s = 0; s < c->n_sequences; s++) {
        if (begin[s] == end[s]) continue;
        start[n_seq + 1] = start[n_seq] + end[s] - begin[s];
        kv_len[n_seq] = end[s];
        pointer[n_seq] = kv->pointer[s];
        which[n_seq++] = s;
    }
    int64_t rows = start[n_seq];
    if (rows == 0) return;
    float *q = malloc((size_t)(rows * per_q) * sizeof *q), *y = malloc((size_t)(rows * per_q) * sizeof *y);
    float *k = malloc((size_t)(rows * per_kv) * sizeof *k), *v = malloc((size_t)(rows * per_kv) * sizeof *v);
    int32_t *pos = malloc((size_t)rows * sizeof *pos);
    for (int i = 0; i < n_seq; i++) {
        int s = which[i];
        size_t n = (size_t)(end[s] - begin[s]);
        memcpy(q + start[i] * per_q, t->q[s] + begin[s] * per_q, n * (size_t)per_q * sizeof *q);
        memcpy(k + start[i] * per_kv, t->k[s] + begin[s] * per_kv, n * (size_t)per_kv * sizeof *k);
        memcpy(v + start[i] * per_kv, t->v[s] + begin[s] * per_kv, n * (size_t)per_kv * sizeof *v);
        for (int32_t r = 0; r < (int32_t)n; r++) pos[start[i] + r] = begin[s] + r;
    }
    ht_batch batch = {.n_tok = (int32_t)rows, .n_seq = n_seq, .pos = pos, .seq_start = start, .kv_len = kv_len};
    ht_step at = {.batch = &batch, .kv = pointer};
    ht_attend_params params = {.scale = c->scale, .softcap = c->softcap};
    ht_view in[3] = {test_view(q, HT_F32, 3, (int64_t[]){rows, c->n_heads, c->head_dim}),
                     test_view(k, HT_F32, 3, (int64_t[]){rows, c->n_kv_heads, c->head_dim}),
                     test_view(v, HT_F32, 3, (int64_t[]){rows, c->n_kv_heads, c->head_dim})};
    ht_view to = test_view(y, HT_F32, 3, (int64_t[]){rows, c->n_heads, c->head_dim});
    test_run_ok(d, HT_OP_ATTEND, &params, 3, in, &to, &at);
    check_asked(d, &at, &params, &in[0], y, per_q);
    for (int i = 0; i < n_seq; i++) {
        int s = which[i];
        memcpy(out[s] + begin[s] * per_q, y + start[i] * per_q,
               (size_t)(end[s] - begin[s]) * (size_t)per_q * sizeof *y);
    }
    free(q), free(y), free(k), free(v), free(pos);
}

/* All texts from empty caches, `chunk` rows of each sequence at a time, the sequences in one step or one after another. */
static void run_texts(ht_device *d, const texts *t, int chunk, bool together, float *const out[]) {
    const attend_case *c = t->c;
    caches kv;
    caches_make(c, &kv);
    for (int turn = 0; turn < (together ? 1 : c->n_sequences); turn++) {
        int begin[MAX_SEQUENCES] = {0}, end[MAX_SEQUENCES] = {0};
        for (bool more = true; more;) {
            more = false;
            for (int s = 0; s < c->n_sequences; s++) {
                if (!together && s != turn) continue;
                begin[s] = end[s];
                end[s] = begin[s] + chunk < c->length[s] ? begin[s] + chunk : c->length[s];
                more |= end[s] < c->length[s];
            }
            step(d, t, &kv, begin, end, out);
        }
    }
    caches_free(&kv);
}

static void results_make(const attend_case *c, float *out[]) {
    for (int s = 0; s < c->n_sequences; s++) {
        size_t bytes = (size_t)c->length[s] * (size_t)c->n_heads * (size_t)c->head_dim * sizeof(float);
        out[s] = malloc(bytes);
        memset(out[s], 0xff, bytes);
    }
}

static void results_free(const attend_case *c, float *out[]) {
    for (int s = 0; s < c->n_sequences; s++) free(out[s]);
}

/* ---- the naive form ---- */

static double score_of(const texts *t, int s, int i, int h, int j) {
    const attend_case *c = t->c;
    int kv_head = h / (c->n_heads / c->n_kv_heads);
    const float *q = t->q[s] + ((int64_t)i * c->n_heads + h) * c->head_dim;
    const float *k = t->held_k[s] + ((int64_t)j * c->n_kv_heads + kv_head) * c->head_dim;
    double dot = 0.0;
    for (int d = 0; d < c->head_dim; d++) dot += (double)q[d] * (double)k[d];
    dot *= (double)c->scale;
    return c->softcap > 0.0f ? (double)c->softcap * tanh(dot / (double)c->softcap) : dot;
}

/* Largest difference from the naive result over some rows of sequence s, and all rows near page boundaries. */
static double worst_difference(const texts *t, int s, const float *out) {
    const attend_case *c = t->c;
    double worst = 0.0;
    double *w = malloc((size_t)c->length[s] * sizeof *w);
    for (int i = 0; i < c->length[s]; i++) {
        int in_page = i % HT_KV_PAGE;
        if (i % 29 != 0 && in_page != 0 && in_page != 1 && in_page != 255 && i != c->length[s] - 1) continue;
        int first = c->window > 0 && i >= c->window ? i - (int)c->window + 1 : 0;
        for (int h = 0; h < c->n_heads; h++) {
            double max = -INFINITY, sum = 0.0;
            for (int j = first; j <= i; j++) max = fmax(max, w[j] = score_of(t, s, i, h, j));
            for (int j = first; j <= i; j++) sum += w[j] = exp(w[j] - max);
            for (int d = 0; d < c->head_dim; d++) {
                double y = 0.0;
                const float *v = t->held_v[s] + (int64_t)(h / (c->n_heads / c->n_kv_heads)) * c->head_dim + d;
                for (int j = first; j <= i; j++) y += w[j] * (double)v[(int64_t)j * c->n_kv_heads * c->head_dim];
                double difference = fabs(y / sum - (double)out[((int64_t)i * c->n_heads + h) * c->head_dim + d]);
                if (!(difference <= worst)) worst = difference; /* a NaN is the worst of all */
            }
        }
    }
    free(w);
    return worst;
}

/* ---- cases ---- */

static const attend_case cases[] = {
    {"SmolLM2's heads, f16", 9, 3, 64, HT_F16, 0, 0, 0.125f, 0.0f, 2, {600, 259}},
    {"one KV head of 256, bf16", 4, 1, 256, HT_BF16, 0, 0, 0.0625f, 0.0f, 1, {300}},
    {"Qwen's heads, f32", 14, 2, 64, HT_F32, 0, 0, 0.125f, 0.0f, 1, {513}},
    {"window, growing", 4, 2, 32, HT_F16, 100, 0, 0.2f, 0.0f, 2, {700, 90}},
    {"window of a page, ring reused", 4, 2, 32, HT_F16, 256, 4, 0.2f, 0.0f, 2, {2100, 511}},
    {"window of a few keys, ring reused", 2, 2, 16, HT_BF16, 5, 3, 0.25f, 0.0f, 1, {1100}},
    {"odd head_dim 6, softcap", 4, 2, 6, HT_F16, 0, 0, 0.4f, 5.0f, 3, {257, 1, 255}},
    {"odd head_dim 72, f32", 2, 1, 72, HT_F32, 70, 0, 0.12f, 50.0f, 1, {512}},
    {"head_dim 8, many heads", 12, 1, 8, HT_F32, 0, 0, 0.35f, 0.0f, 1, {511}},
    {"three queries per KV head", 9, 3, 16, HT_F16, 0, 0, 0.25f, 0.0f, 1, {513}},
    {"SmolLM2's heads, 8 bits", 9, 3, 64, HT_I8, 0, 0, 0.125f, 0.0f, 2, {600, 259}},
    {"odd head_dim 72, 8 bits, window", 4, 2, 72, HT_I8, 100, 3, 0.12f, 0.0f, 1, {700}},
    {"odd head_dim 6, 8 bits", 2, 1, 6, HT_I8, 0, 0, 0.4f, 5.0f, 2, {257, 3}},
    {"head_dim 80, no grouping", 5, 5, 80, HT_F16, 0, 0, 0.11f, 0.0f, 1, {300}},
};

/* Whether a case is cut in that way: in all of them in a soak, else in two of twelve, other ones on each instruction set, and
 * the plain kernel, whose results are not needed for the others', is left out of the long ones. Where everything takes many times
 * as long there are two threads and half of the cases on each instruction set; an emulator gets none but the small ones. */
static bool is_cut_so(const attend_case *c, int device, int threads, int chunk, int number) {
    const bool plain = device == 0;
    double keys = 0.0;
    for (int s = 0; s < c->n_sequences; s++)
        keys += (double)c->length[s] * (double)(c->window ? c->window : c->length[s] / 2);
    const bool is_long = keys * c->n_heads * c->head_dim > 2e7;
    if (is_long && (TEST_EMULATED || (plain && test_cases(true, TEST_SLOW)))) return false;
    const int64_t turn = device + (c - cases);
    if (TEST_SLOW)
        return threads == 2 && (chunk == 64 || (chunk == 1 && keys <= 1e5)) && test_takes(turn, TEST_EMULATED ? 1 : 2);
    return plain || test_takes(number + turn, 6);
}

static void run_case(const attend_case *c) {
    texts t = texts_make(c);
    ht_device *devices[TEST_MAX_DEVICES];
    float *expected[MAX_SEQUENCES] = {0}, *got[MAX_SEQUENCES] = {0};
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
                for (int together = 0; together <= (c->n_sequences > 1 ? 1 : 0); together++) {
                    results_make(c, got);
                    run_texts(devices[d], &t, chunk, together, got);
                    bool first = !plain && !expected[0];
                    for (int s = 0; s < c->n_sequences; s++) {
                        size_t bytes = (size_t)c->length[s] * (size_t)c->n_heads * (size_t)c->head_dim * sizeof(float);
                        if (plain || first) {
                            double worst = worst_difference(&t, s, got[s]);
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
    const attend_case c = {"", 2, 1, 8, HT_F16, 0, 0, 1.0f, 0.0f, 1, {256}};
    ht_device *devices[TEST_MAX_DEVICES];
    int n = test_devices(1, devices);
    for (int d = 0; d < n; d++) {
        caches kv;
        caches_make(&c, &kv);
        float q[16] = {0}, k[8] = {0}, y[16];
        int32_t pos = 256, start[2] = {0, 1}, kv_len = 257;
        ht_batch batch = {.n_tok = 1, .n_seq = 1, .pos = &pos, .seq_start = start, .kv_len = &kv_len};
        ht_step at = {.batch = &batch, .kv = kv.pointer};
        ht_attend_params params = {.scale = 1.0f};
        ht_view in[3] = {test_view(q, HT_F32, 3, (int64_t[]){1, 2, 8}), test_view(k, HT_F32, 3, (int64_t[]){1, 1, 8}),
                         test_view(k, HT_F32, 3, (int64_t[]){1, 1, 8})};
        ht_view out = test_view(y, HT_F32, 3, (int64_t[]){1, 2, 8});
        ht_error err = {0};
        assert_int_equal(test_run(devices[d], HT_OP_ATTEND, &params, 3, in, &out, &at, &err), HT_ERR_INTERNAL);
        assert_non_null(strstr(err.message, "256"));
        caches_free(&kv);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(same_bits_however_cut),
        cmocka_unit_test(eight_bit_blocks),
        cmocka_unit_test(missing_page_is_an_error),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
