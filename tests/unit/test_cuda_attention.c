/* Attention and adapters on a GPU beside the plain kernels of the CPU, on the same inputs; skipped where there is no GPU. A row
 * gives the same bits in every step that it may be a part of. */
#include "base/checked.h"
#include "base/dtype.h"
#include "base/half.h"
#include "cpu/cpu.h"
#include "cpu/element.h"
#include "device/device.h"
#include "support/attend_texts.h"
#include "support/gpu.h"
#include "support/lora_steps.h"
#include "support/operands.h"
#include "support/test.h"
#include "support/weights.h"

#include <hearth/array.h>

#include <math.h>
#include <stdio.h>
#include <string.h>

/* ---- attention over pages ---- */

static const attend_case attend_cases[] = {
    {"SmolLM2's heads, f16", 9, 3, 64, HT_F16, 0, 0, 0, 2, {300, 259}, NO_SINKS, false, 0},
    {"one KV head of 256, bf16", 4, 1, 256, HT_BF16, 0, 0, 0, 1, {270}, NO_SINKS, false, 0},
    {"Qwen's heads, f32", 14, 2, 64, HT_F32, 0, 0, 0, 1, {258}, NO_SINKS, false, 0},
    {"heads of 512, f32", 2, 1, 512, HT_F32, 0, 0, 0, 1, {40}, NO_SINKS, false, 0},
    {"heads of 520, f32", 1, 1, 520, HT_F32, 0, 0, 0, 1, {12}, NO_SINKS, false, 0},
    {"heads of 776, 8 bits", 8, 1, 776, HT_I8, 0, 0, 0, 1, {5}, NO_SINKS, false, 0},
    {"heads of 1280, f16", 2, 1, 1280, HT_F16, 0, 0, 0, 1, {12}, NO_SINKS, false, 0},
    {"window, growing", 4, 2, 32, HT_F16, 100, 0, 0, 2, {400, 90}, NO_SINKS, false, 0},
    {"window, ring reused", 4, 2, 32, HT_F16, 256, 4, 0, 2, {1100, 301}, NO_SINKS, false, 0},
    {"window of a few keys, ring reused", 2, 2, 16, HT_BF16, 5, 3, 0, 1, {800}, NO_SINKS, false, 0},
    {"odd head_dim 6, softcap", 4, 2, 6, HT_F16, 0, 0, 5, 3, {257, 1, 255}, NO_SINKS, false, 0},
    {"odd head_dim 5, 8 bits", 4, 2, 5, HT_I8, 0, 0, 5, 2, {257, 3}, NO_SINKS, false, 0},
    {"odd head_dim 72, f32", 2, 1, 72, HT_F32, 70, 0, 50, 1, {300}, NO_SINKS, false, 0},
    {"more queries than a tile takes", 24, 1, 8, HT_F32, 0, 0, 0, 1, {257}, NO_SINKS, false, 0},
    {"8 bits", 9, 3, 64, HT_I8, 0, 0, 0, 2, {300, 259}, NO_SINKS, false, 0},
    {"odd head_dim 72, 8 bits, window", 4, 2, 72, HT_I8, 100, 3, 0, 1, {600}, NO_SINKS, false, 0},
    {"head_dim 80, no grouping", 5, 5, 80, HT_F16, 0, 0, 0, 1, {258}, NO_SINKS, false, 0},
    {"many pages", 2, 1, 8, HT_F16, 0, 0, 0, 1, {1300}, NO_SINKS, false, 0},
    {"Llama's heads, f16", 8, 2, 128, HT_F16, 0, 0, 0, 2, {330, 20}, NO_SINKS, false, 0},
    {"Llama's heads, bf16", 4, 1, 128, HT_BF16, 0, 0, 0, 1, {270}, NO_SINKS, false, 0},
    {"heads of 96, 8 bits, softcap", 8, 2, 96, HT_I8, 0, 0, 20, 1, {290}, NO_SINKS, false, 0},
    {"heads of 112, 8 bits", 3, 1, 112, HT_I8, 0, 0, 0, 1, {261}, NO_SINKS, false, 0},
    {"heads of 256, f16, window, softcap", 4, 2, 256, HT_F16, 60, 0, 30, 1, {300}, NO_SINKS, false, 0},
    {"heads of 512, f16", 2, 1, 512, HT_F16, 0, 0, 0, 1, {270}, NO_SINKS, false, 0},
    {"heads of 192, 8 bits", 2, 1, 192, HT_I8, 0, 0, 0, 1, {258}, NO_SINKS, false, 0},
    {"window of a few keys, f16", 8, 1, 64, HT_F16, 7, 0, 0, 1, {530}, NO_SINKS, false, 0},
    {"sinks, f16, streamed", 8, 1, 64, HT_F16, 0, 0, 0, 2, {330, 20}, FAR_SINKS, false, 0},
    {"sinks, bf16, window", 9, 3, 64, HT_BF16, 70, 0, 0, 2, {300, 259}, NEAR_SINKS, false, 0},
    {"sinks, 8 bits, softcap", 8, 2, 72, HT_I8, 0, 0, 5, 1, {270}, FAR_SINKS, false, 0},
    {"sinks, f32", 8, 2, 24, HT_F32, 0, 0, 0, 2, {600, 3}, FAR_SINKS, false, 0},
    {"sinks, heads of 256", 4, 1, 256, HT_F16, 100, 0, 30, 1, {300}, NEAR_SINKS, false, 0},
    {"sinks, many pages", 2, 1, 8, HT_F16, 0, 0, 0, 1, {1300}, NEAR_SINKS, false, 0},
    {"chunks of 100, f16", 8, 1, 64, HT_F16, 100, 0, 0, 2, {330, 20}, NO_SINKS, true, 0},
    {"chunks of 256, ring reused", 4, 2, 32, HT_F16, 256, 4, 0, 2, {1100, 301}, NO_SINKS, true, 0},
    {"chunks of 7, ring reused, sinks", 2, 2, 16, HT_BF16, 7, 3, 0, 1, {800}, FAR_SINKS, true, 0},
    {"chunks of 270, 8 bits", 4, 2, 40, HT_I8, 270, 0, 5, 1, {600}, NO_SINKS, true, 0},
    {"chunks of 30, f32", 2, 1, 72, HT_F32, 30, 0, 0, 1, {300}, NEAR_SINKS, true, 0},
    {"DeepSeek's latents, f16", 5, 1, 576, HT_F16, 0, 0, 0, 1, {262}, NO_SINKS, false, 512},
    {"DeepSeek's latents, 8 bits", 9, 1, 576, HT_I8, 0, 0, 0, 2, {40, 3}, NO_SINKS, false, 512},
    {"Mistral's latents, bf16", 4, 1, 320, HT_BF16, 0, 0, 0, 1, {270}, NO_SINKS, false, 256},
    {"Mistral's latents, 8 bits", 4, 1, 320, HT_I8, 0, 0, 0, 1, {270}, NO_SINKS, false, 256},
    {"latents, f16, streamed", 8, 1, 72, HT_F16, 0, 0, 0, 2, {330, 20}, NO_SINKS, false, 64},
    {"latents of odd sizes, 8 bits, streamed", 9, 1, 72, HT_I8, 0, 0, 0, 2, {300, 3}, NO_SINKS, false, 67},
    {"latents of odd sizes, f32, sinks", 5, 1, 30, HT_F32, 0, 0, 5, 2, {257, 3}, NEAR_SINKS, false, 21},
    {"latents of two heads, ring reused", 6, 2, 24, HT_F16, 100, 3, 0, 1, {600}, NO_SINKS, false, 17},
};

/* What the pages hold in their saved form, and that they take it back. */
static void check_pages(const caches *a, const caches *b, const attend_case *c) {
    ht_error err = {0};
    const ht_kv_shape *form = &a->layer[0].shape;
    const size_t bytes = ht_kv_saved_bytes(form);
    char *saved[2] = {malloc(HT_KV_PAGE * bytes), malloc(HT_KV_PAGE * bytes)};
    for (int s = 0; s < c->n_seq; s++)
        for (int64_t p = 0; p < a->layer[s].n_pages; p++) {
            const int64_t whole = c->length[s] - p * HT_KV_PAGE,
                          n = a->layer[s].ring_pages || whole > HT_KV_PAGE ? HT_KV_PAGE : whole;
            if (a->layer[s].ring_pages && c->length[s] < (p + 1) * HT_KV_PAGE) continue;
            must(a->d->kv->read(a->d, form, a->page[s][p], 0, n, saved[0], &err), &err);
            must(b->d->kv->read(b->d, form, b->page[s][p], 0, n, saved[1], &err), &err);
            assert_memory_equal(saved[0], saved[1], (size_t)n * bytes);
            const int64_t first = n / 3, some = n - first;
            must(a->d->kv->write(a->d, form, a->page[s][p], 0, n, saved[0], &err), &err);
            must(a->d->kv->write(a->d, form, a->page[s][p], first, some, saved[0], &err), &err);
            must(a->d->kv->read(a->d, form, a->page[s][p], first, some, saved[1] + (size_t)first * bytes, &err), &err);
            assert_memory_equal(saved[1] + (size_t)first * bytes, saved[0], (size_t)some * bytes);
        }
    free(saved[0]), free(saved[1]);
}

/* Queries and weights are f16 beside pages of f16, in two parts of bf16 beside those of bf16 and of 8 bits, and f32 beside those of f32. */
static double tolerance_of_pages(ht_dtype dtype) { return dtype == HT_F16 ? 2e-3 : dtype == HT_F32 ? 3e-5 : 2e-4; }

static void compare_texts(const attend_case *c, float *const got[], float *const expected[], bool bits,
                          const char *how) {
    for (int s = 0; s < c->n_seq; s++) {
        const int64_t n = (int64_t)c->length[s] * c->n_heads * attend_values(c);
        for (int64_t i = 0; i < n; i++) {
            const double off = fabs((double)got[s][i] - (double)expected[s][i]);
            if (bits ? memcmp(&got[s][i], &expected[s][i], 4) != 0 : !(off < tolerance_of_pages(c->dtype)))
                fail_msg("%s, %s: sequence %d, %lld is %.9g, expected %.9g", c->name, how, s, (long long)i,
                         (double)got[s][i], (double)expected[s][i]);
        }
    }
}

/* The other cuts have to give the values of the first one: both in a soak, else one of them for every fourth `number`. */
static void attend_case_on(const attend_case *c, int number) {
    static const struct {
        attend_cut cut;
        const char *how;
    } cuts[] = {{{512, 0, true, 0}, "512 at a time"},
                {{512, 3, false, 1}, "the last ones alone, one sequence after another"},
                {{37, 2, true, 1}, "37 at a time, together"}};
    texts t = texts_make(c);
    float *expected[3] = {0}, *first[3] = {0}, *again[3] = {0};
    caches ours, theirs;
    caches_make(beside_device[CPU], c, &theirs);
    results_make(c, expected);
    attend_texts(&theirs, &t, (attend_cut){c->ring_pages ? 64 : 512, 0, true, 0}, expected);
    for (int i = 0; i < (int)(sizeof cuts / sizeof *cuts); i++) {
        if (i > 0 && !test_takes(i + number, 8)) continue;
        caches_make(beside_device[GPU], c, &ours);
        results_make(c, again);
        attend_cut cut = cuts[i].cut;
        if (c->ring_pages && cut.chunk > 64) cut.chunk = 64;
        attend_texts(&ours, &t, cut, again);
        if (i == 0) check_pages(&ours, &theirs, c);
        caches_free(&ours);
        if (i == 0) {
            compare_texts(c, again, expected, false, "the plain kernel");
            memcpy(first, again, sizeof first);
            continue;
        }
        compare_texts(c, again, first, true, cuts[i].how);
        results_free(c, again);
    }
    results_free(c, first), results_free(c, expected);
    caches_free(&theirs);
    texts_free(&t);
}

UNIT_TEST(attention_over_pages) {
    if (!beside_device[GPU]) skip();
    for (int i = 0; i < (int)(sizeof attend_cases / sizeof *attend_cases); i++) {
        attend_case c = attend_cases[i];
        const bool plain = !c.sinks && !c.chunked && !c.v_dim;
        if (i > 16 && plain && !test_takes(i, 3)) continue; /* more heads of the same kinds */
        if (!test_takes(i, 9)) {                            /* the heads of one KV head are enough of most */
            c.n_heads /= c.n_kv_heads;
            c.n_kv_heads = 1;
        }
        attend_case_on(&c, i);
    }
}

/* A NaN and an infinity in one position reach the rows behind it alone, in 8 bits as a block of NaN, and in bf16 as NaN. */
UNIT_TEST(numbers_that_are_none) {
    if (!beside_device[GPU]) skip();
    static const ht_dtype dtypes[] = {HT_F16, HT_I8, HT_F32, HT_BF16};
    for (size_t i = 0; i < sizeof dtypes / sizeof *dtypes; i++) {
        const attend_case c = {"", 4, 2, 40, dtypes[i], 0, 0, 0, 1, {20}, NO_SINKS, false, 0};
        texts t = texts_make(&c);
        t.k[0][5 * 80 + 3] = NAN;
        t.v[0][9 * 80 + 70] = INFINITY;
        float *got[3] = {0}, *expected[3] = {0};
        caches ours, theirs;
        caches_make(beside_device[GPU], &c, &ours), caches_make(beside_device[CPU], &c, &theirs);
        results_make(&c, got), results_make(&c, expected);
        attend_texts(&ours, &t, (attend_cut){512, 2, true, 1}, got);
        attend_texts(&theirs, &t, (attend_cut){512, 0, true, 0}, expected);
        check_pages(&ours, &theirs, &c);
        for (int64_t j = 0; j < 20 * 160; j++) {
            const double a = (double)got[0][j], b = (double)expected[0][j];
            if (isfinite(b)                                    ? !(fabs(a - b) < tolerance_of_pages(c.dtype))
                : isnan(b) || (isnan(a) && c.dtype == HT_BF16) ? !isnan(a)
                                                               : a != b)
                fail_msg("%s: %lld is %g, expected %g", ht_dtype_name(c.dtype), (long long)j, a, b);
        }
        caches_free(&ours), caches_free(&theirs);
        texts_free(&t);
        results_free(&c, got), results_free(&c, expected);
    }
}

/* Single rows behind many positions, whose pages are a few again and again. */
UNIT_TEST(long_contexts) {
    if (!beside_device[GPU]) skip();
    enum { HEADS = 2, DIM = 8, PAGES = 4, N = 2 };
    static const int32_t pos[N] = {70000, 66001}, start[N + 1] = {0, 1, 2}, kv_len[N] = {70001, 66002};
    const attend_case c = {.n_heads = HEADS,
                           .n_kv_heads = 1,
                           .head_dim = DIM,
                           .dtype = HT_F16,
                           .n_seq = N,
                           .length = {PAGES * HT_KV_PAGE, PAGES * HT_KV_PAGE}};
    const ht_batch batch = {.n_tok = N, .n_seq = N, .pos = pos, .seq_start = start, .kv_len = kv_len};
    uint64_t seed = 13;
    uint16_t saved[HT_KV_PAGE * 2 * DIM];
    float *q = test_random_floats(N * HEADS * DIM, 4, &seed), *k = test_random_floats(N * DIM, 1, &seed),
          y[2][N * HEADS * DIM];
    float sinks[HEADS] = {0.5f, 6};
    const ht_view in[4] = {
        test_view(q, HT_F32, 3, (int64_t[]){N, HEADS, DIM}), test_view(k, HT_F32, 3, (int64_t[]){N, 1, DIM}),
        test_view(k, HT_F32, 3, (int64_t[]){N, 1, DIM}), test_view(sinks, HT_F32, 1, (int64_t[]){HEADS})};
    for (int of = 0; of < DEVICES; of++) {
        caches kv;
        ht_kv_page *pages[N][70000 / HT_KV_PAGE + 1];
        ht_error err = {0};
        caches_make(beside_device[of], &c, &kv);
        seed = 17;
        for (int s = 0; s < N; s++) {
            ht_kv_layer *l = &kv.layer[s];
            for (int p = 0; p < PAGES; p++) {
                for (int i = 0; i < HT_KV_PAGE * 2 * DIM; i++) saved[i] = ht_f32_to_f16(test_random_float(&seed));
                must(kv.d->kv->write(kv.d, &l->shape, l->pages[p], 0, HT_KV_PAGE, saved, &err), &err);
            }
            l->n_pages = pos[s] / HT_KV_PAGE + 1;
            l->pages = pages[s];
            for (int64_t p = 0; p < l->n_pages; p++)
                pages[s][p] = kv.page[s][p == l->n_pages - 1 ? PAGES - 1 : p % (PAGES - 1)];
        }
        const ht_view to = test_view(y[of], HT_F32, 3, (int64_t[]){N, HEADS, DIM});
        test_run_ok(kv.d, HT_OP_ATTEND, &(ht_attend_params){.scale = 0.5f}, 4, in, &to,
                    &(ht_step){.batch = &batch, .kv = (ht_cache *[]){&kv.cache[0], &kv.cache[1]}});
        for (int s = 0; s < N; s++) kv.layer[s].n_pages = PAGES;
        caches_free(&kv);
    }
    for (int i = 0; i < N * HEADS * DIM; i++)
        if (!(fabs((double)y[0][i] - (double)y[1][i]) < tolerance_of_pages(HT_F16)))
            fail_msg("%d is %.9g, expected %.9g", i, (double)y[1][i], (double)y[0][i]);
    free(q), free(k);
}

UNIT_TEST(missing_page_is_an_error) {
    if (!beside_device[GPU]) skip();
    expect_missing_page(beside_device[GPU]);
}

/* ---- adapters ---- */

static void check_lora(const lora_shape *s, const sequences *q) {
    adapters ours, theirs;
    lora_data v = lora_data_make(s, q);
    const int64_t n = v.items * s->n_out;
    float *got = test_room((size_t)n * sizeof *got), *expected = test_room((size_t)n * sizeof *expected);
    ht_error err = {0};
    adapters_make(&ours, beside_device[GPU], s);
    adapters_make(&theirs, beside_device[CPU], s);
    must(lora_run(&theirs, q, &v, expected, &err), &err);
    lora_run_all(&ours, q, &v, got);
    const double size = 1 + sqrt((double)s->n_in * (double)s->rank) * 3;
    for (int64_t i = 0; i < n; i++)
        if (!(fabs((double)got[i] - (double)expected[i]) <= 1e-6 * size))
            fail_msg("[%lld, %lld] rank %lld, %d sequences: %lld is %.9g, expected %.9g", (long long)s->n_out,
                     (long long)s->n_in, (long long)s->rank, q->n, (long long)i, (double)got[i], (double)expected[i]);
    adapters_free(&ours), adapters_free(&theirs);
    lora_data_free(&v);
    free(got), free(expected);
}

UNIT_TEST(adapters_of_a_step) {
    if (!beside_device[GPU]) skip();
    static const lora_shape lora_shapes[] = {
        {1, 1, 1, 0, 1, false, 1, 0, 0, false},     {7, 33, 2, 0, 1, false, 1, 0, 0, false},
        {256, 16, 8, 0, 1, false, 1, 0, 0, false},  {257, 300, 15, 0, 1, false, 1, 0, 0, false},
        {600, 47, 16, 0, 1, false, 2, 0, 0, false}, {65, 513, 33, 0, 1, false, 1, 0, 0, false},
        {40, 20, 140, 0, 1, false, 1, 0, 0, false}, {33, 17, 5, 4, 2, false, 1, 0, 0, false},
        {33, 270, 40, 4, 3, true, 2, 0, 0, false},  {64, 33, 5, 3, 3, true, 1, 57, 24, false},
        {24, 64, 19, 3, 3, true, 1, 57, 0, true},
    };
    for (size_t i = 0; i < sizeof lora_shapes / sizeof *lora_shapes; i++)
        for (size_t k = 0; k < LORA_MIXES; k++)
            if (test_takes((int64_t)(i + k), 10)) check_lora(&lora_shapes[i], &lora_mixes[k]);
}

UNIT_TEST(an_expert_that_is_none) {
    if (!beside_device[GPU]) skip();
    expect_unknown_expert(beside_device[GPU]);
}

/* ---- attention of arrays ---- */

/* Runs on both devices, and compares with a tolerance relative to the larger of 1 and the size. */
static void compare(const char *what, ht_op_id op, const void *params, int n_in, const ht_view *in, ht_view out,
                    double tolerance) {
    const size_t bytes = (size_t)ht_view_size(&out) * ht_dtype_bytes(out.dtype) + 1;
    ht_view theirs = out;
    out.data = calloc(1, bytes);
    theirs.data = calloc(1, bytes);
    test_run_ok(beside_device[GPU], op, params, n_in, in, &out, NULL);
    test_run_ok(beside_device[CPU], op, params, n_in, in, &theirs, NULL);
    for (int64_t i = 0; i < ht_view_size(&out); i++)
        if (!test_alike(out.dtype, out.data, theirs.data, i, tolerance))
            fail_msg("%s: %s of %s is %g at %lld of %lld, expected %g", what, test_op_name(op),
                     ht_dtype_name(out.dtype), ht_get_f64(out.dtype, out.data, i), (long long)i,
                     (long long)ht_view_size(&out), ht_get_f64(out.dtype, theirs.data, i));
    free(out.data), free(theirs.data);
}

static double tolerance_of(ht_dtype t) {
    return t == HT_F64 ? 1e-12 : t == HT_F32 ? 2e-5 : t == HT_F16 ? 2e-3 : 1.6e-2;
}

typedef struct sdpa_case {
    int64_t batch, heads, kv_heads, n_q, n_k, d, dv;
    bool causal;
    int64_t window;
    int mask; /* 0: none, 1: bool, 2: added, 3: bool with rows that see nothing */
    bool sinks;
    layout how;
} sdpa_case;

static const sdpa_case sdpa_cases[] = {
    {1, 1, 1, 1, 1, 1, 1, false, 0, 0, false, CONTIGUOUS},
    {2, 4, 2, 33, 70, 20, 24, false, 0, 0, true, SHIFTED},
    {1, 2, 1, 70, 70, 64, 64, true, 0, 0, false, CONTIGUOUS},
    {1, 2, 2, 65, 200, 8, 130, true, 0, 2, false, REVERSED_AXES},
    {1, 3, 1, 90, 40, 16, 16, true, 0, 0, false, EVERY_SECOND}, /* the first queries see nothing */
    {2, 2, 1, 130, 130, 5, 3, true, 17, 0, true, BACKWARDS},
    {1, 2, 1, 40, 150, 140, 7, false, 0, 1, false, CONTIGUOUS},
    {1, 2, 1, 70, 131, 9, 11, true, 0, 3, false, CONTIGUOUS},
    {1, 2, 1, 20, 30, 9, 11, false, 0, 3, true, CONTIGUOUS},
    {2, 2, 1, 3, 0, 4, 5, false, 0, 0, false, CONTIGUOUS},
    {2, 2, 1, 0, 3, 4, 5, false, 0, 0, false, CONTIGUOUS},
    {2, 2, 1, 3, 4, 0, 5, false, 0, 0, true, CONTIGUOUS},
    {2, 2, 1, 3, 4, 5, 0, false, 0, 0, false, CONTIGUOUS},
};

static void fill_mask(ht_view *m, int kind) {
    bool *to = m->data;
    for (int64_t i = 0; i < ht_view_size(m); i++) {
        const int64_t query = i / m->shape[3] % m->shape[2];
        to[i] = kind == 3 && query % 3 == 1 ? false : i % 5 != 2;
    }
}

static void sdpa_case_of(const sdpa_case *c, ht_dtype dtype) {
    uint64_t seed = 5;
    const ht_sdpa_params p = {c->d ? (float)(1 / sqrt((double)c->d)) : 1, c->causal, c->window};
    const int64_t q[4] = {c->batch, c->heads, c->n_q, c->d}, k[4] = {c->batch, c->kv_heads, c->n_k, c->d},
                  v[4] = {c->batch, c->kv_heads, c->n_k, c->dv}, m[4] = {c->batch, c->heads, c->n_q, c->n_k},
                  out[4] = {c->batch, c->heads, c->n_q, c->dv};
    operand of[7] = {test_operand(dtype, 4, q, c->how, ORDINARY, &seed),
                     test_operand(dtype, 4, k, c->how, ORDINARY, &seed),
                     test_operand(dtype, 4, v, c->how, ORDINARY, &seed),
                     {.view = test_absent()},
                     {.view = test_absent()}};
    if (c->mask) of[3] = test_operand(c->mask == 2 ? dtype : HT_BOOL, 4, m, CONTIGUOUS, ORDINARY, &seed);
    if (c->mask == 1 || c->mask == 3) fill_mask(&of[3].view, c->mask);
    if (c->sinks) of[4] = test_operand(dtype, 1, &c->heads, c->how, ORDINARY, &seed);
    of[6] = test_operand(dtype, 4, out, c->how, ORDINARY, &seed);
    char what[128];
    snprintf(what, sizeof what, "case %d, %s", (int)(c - sdpa_cases), ht_dtype_name(dtype));
    ht_view in[7];
    for (int i = 0; i < 7; i++) in[i] = of[i].view;
    compare(what, HT_OP_SDPA, &p, 5, in, test_view(NULL, dtype, 4, out), tolerance_of(dtype));
    /* The gradient's result is the plain one's. */
    in[5] =
        test_view(calloc(1, (size_t)(c->batch * c->heads * c->n_q * c->dv) * ht_dtype_bytes(dtype) + 1), dtype, 4, out);
    test_run_ok(beside_device[CPU], HT_OP_SDPA, &p, 5, in, &in[5], NULL);
    const int64_t all = ht_view_size(&in[0]) + ht_view_size(&in[1]) + ht_view_size(&in[2]);
    compare(what, HT_OP_SDPA_GRAD, &p, 7, in, test_view(NULL, dtype, 1, &all), 4 * tolerance_of(dtype));
    free(in[5].data);
    for (int i = 0; i < 7; i++) free(of[i].memory);
}

UNIT_TEST(attention_of_arrays) {
    if (!beside_device[GPU]) skip();
    for (size_t i = 0; i < sizeof sdpa_cases / sizeof *sdpa_cases; i++)
        for (size_t t = 0; t < sizeof float_types / sizeof *float_types; t++)
            if (test_takes((int64_t)(i + t), 12)) sdpa_case_of(&sdpa_cases[i], float_types[t]);
}

typedef struct rows_case {
    int64_t heads, kv_heads, d, dv, window;
    float softcap;
    int n;
    int rows[4], skipped[4]; /* of each sequence: queries, and keys before the first one's own */
    layout how;
    bool sinks, chunked, two_sided;
} rows_case;

static void rows_case_of(const rows_case *c, int number) {
    uint64_t seed = 9;
    int64_t n = 0, keys = 0;
    int32_t own[512], first[512];
    for (int s = 0; s < c->n; s++) {
        for (int i = 0; i < c->rows[s]; i++, n++) {
            const int64_t last = c->rows[s] - 1, end = c->window ? ht_min_i64(i + c->window, last) : last;
            own[n] = (int32_t)(keys + (c->two_sided ? end : c->skipped[s] + i));
            first[n] = (int32_t)keys;
        }
        keys += c->skipped[s] + c->rows[s];
    }
    const int64_t q[3] = {n, c->heads, c->d}, k[3] = {keys, c->kv_heads, c->d}, v[3] = {keys, c->kv_heads, c->dv},
                  out[3] = {n, c->heads, c->dv};
    const ht_attend_rows_params p = {(float)(1 / sqrt((double)c->d)), c->softcap, c->window, c->chunked, c->two_sided};
    operand of[5] = {
        test_operand(HT_F32, 3, q, c->how, ORDINARY, &seed), test_operand(HT_F32, 3, k, c->how, ORDINARY, &seed),
        test_operand(HT_F32, 3, v, c->how, ORDINARY, &seed), test_operand(HT_F32, 3, out, c->how, ORDINARY, &seed),
        test_operand(HT_F32, 1, &c->heads, c->how, ORDINARY, &seed)};
    ht_view in[8] = {of[0].view,
                     of[1].view,
                     of[2].view,
                     test_view(own, HT_I32, 1, &n),
                     test_view(first, HT_I32, 1, &n),
                     c->sinks ? of[4].view : test_absent()};
    char what[64];
    snprintf(what, sizeof what, "rows %d", number);
    compare(what, HT_OP_ATTEND_ROWS, &p, 6, in, test_view(NULL, HT_F32, 3, out), 2e-5);
    in[6] = test_view(calloc((size_t)(n * c->heads * c->dv) + 1, 4), HT_F32, 3, out);
    in[7] = of[3].view;
    test_run_ok(beside_device[GPU], HT_OP_ATTEND_ROWS, &p, 6, in, &in[6], NULL);
    const int64_t all = ht_view_size(&in[0]) + ht_view_size(&in[1]) + ht_view_size(&in[2]);
    compare(what, HT_OP_ATTEND_ROWS_GRAD, &p, 8, in, test_view(NULL, HT_F32, 1, &all), 4e-4);
    /* The last sequence alone has the bits of all together. */
    const int s = c->n - 1;
    const int64_t mine = c->rows[s], per = c->heads * c->dv, skipped = n - mine,
                  none = keys - c->rows[s] - c->skipped[s];
    float *alone = calloc((size_t)(mine * per) + 1, sizeof *alone);
    ht_view last[6] = {
        in[0], in[1], in[2], test_view(own + skipped, HT_I32, 1, &mine), test_view(first + skipped, HT_I32, 1, &mine),
        in[5]};
    for (int i = 0; i < 3; i++) {
        const int64_t rows = i ? none : skipped;
        last[i].data = (float *)last[i].data + rows * last[i].stride[0];
        last[i].shape[0] -= rows;
    }
    for (int64_t i = skipped; i < n; i++) {
        own[i] -= (int32_t)none;
        first[i] -= (int32_t)none;
    }
    const ht_view to = test_view(alone, HT_F32, 3, (int64_t[]){mine, c->heads, c->dv});
    test_run_ok(beside_device[GPU], HT_OP_ATTEND_ROWS, &p, 6, last, &to, NULL);
    assert_memory_equal(alone, (const float *)in[6].data + skipped * per, (size_t)(mine * per) * sizeof *alone);
    free(alone), free(in[6].data);
    for (int i = 0; i < 5; i++) free(of[i].memory);
}

UNIT_TEST(attention_of_flat_rows) {
    if (!beside_device[GPU]) skip();
    static const rows_case rows_cases[] = {
        {1, 1, 4, 4, 0, 0, 1, {1}, {0}, CONTIGUOUS, false, false, false},
        {3, 3, 32, 32, 0, 0, 4, {3, 70, 1, 40}, {0}, CONTIGUOUS, false, false, true},
        {2, 1, 20, 24, 9, 2, 3, {90, 1, 70}, {0}, SHIFTED, true, false, true},
        {4, 2, 20, 24, 0, 0, 4, {3, 70, 1, 40}, {0, 0, 5, 100}, SHIFTED, false, false, false},
        {2, 2, 64, 64, 0, 5, 2, {100, 90}, {0, 0}, CONTIGUOUS, true, false, false},
        {2, 1, 9, 140, 13, 0, 3, {80, 50, 5}, {3, 0, 40}, BACKWARDS, true, false, false},
        {2, 1, 16, 16, 50, 0, 3, {80, 70, 5}, {3, 0, 40}, CONTIGUOUS, true, true, false},
        {4, 2, 8, 20, 7, 5, 3, {40, 30, 9}, {3, 0, 40}, SHIFTED, false, true, false},
    };
    for (size_t i = 0; i < sizeof rows_cases / sizeof *rows_cases; i++) rows_case_of(&rows_cases[i], (int)i);
}

UNIT_TEST(rows_that_go_back) {
    if (!beside_device[GPU]) skip();
    float x[12] = {0}, y[12];
    const int64_t n = 3, dims[3] = {3, 1, 4};
    int32_t own[3] = {0, 2, 1}, first[3] = {0, 0, 0};
    const ht_attend_rows_params p = {.scale = 1};
    const ht_view xs = test_view(x, HT_F32, 3, dims), out = test_view(y, HT_F32, 3, dims);
    const ht_view in[6] = {xs, xs, xs, test_view(own, HT_I32, 1, &n), test_view(first, HT_I32, 1, &n), test_absent()};
    ht_error ours = {0}, theirs = {0};
    for (int i = 0; i < 3; i++, own[2] = i == 1 ? 3 : 2, first[2] = i == 2 ? -1 : 0) {
        assert_int_equal(test_run(beside_device[GPU], HT_OP_ATTEND_ROWS, &p, 6, in, &out, NULL, &ours),
                         HT_ERR_ARGUMENT);
        assert_int_equal(test_run(beside_device[CPU], HT_OP_ATTEND_ROWS, &p, 6, in, &out, NULL, &theirs),
                         HT_ERR_ARGUMENT);
        assert_string_equal(ours.message, theirs.message);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(attention_over_pages), cmocka_unit_test(numbers_that_are_none),
        cmocka_unit_test(long_contexts),        cmocka_unit_test(missing_page_is_an_error),
        cmocka_unit_test(adapters_of_a_step),   cmocka_unit_test(an_expert_that_is_none),
        cmocka_unit_test(attention_of_arrays),  cmocka_unit_test(attention_of_flat_rows),
        cmocka_unit_test(rows_that_go_back),
    };
    return cmocka_run_group_tests(tests, beside_open, beside_close);
}
