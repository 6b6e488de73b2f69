/* Attention and adapters on a GPU beside the plain kernels of the CPU, on the same inputs; skipped where there is no GPU. A row
 * gives the same bits in every step that it may be a part of. */
#include "base/checked.h"
#include "base/dtype.h"
#include "base/half.h"
#include "cpu/cpu.h"
#include "cpu/element.h"
#include "device/device.h"
#include "support/gpu.h"
#include "support/kernels.h"
#include "support/operands.h"
#include "support/test.h"
#include "support/weights.h"

#include <hearth/array.h>

#include <math.h>
#include <stdio.h>
#include <string.h>

enum { MOST_SEQUENCES = 8, MOST_PAGES = 12 };

static float *random_floats(int64_t n, float size, uint64_t *seed) {
    float *x = malloc((size_t)(n + 1) * sizeof *x);
    assert_non_null(x);
    for (int64_t i = 0; i < n; i++) x[i] = size * test_random_float(seed);
    return x;
}

/* ---- attention over pages ---- */

typedef struct attend_case {
    const char *name;
    int n_heads, n_kv_heads, head_dim;
    ht_dtype dtype;
    int64_t window, ring_pages; /* 0: all keys; growing */
    float softcap;
    int n_seq, length[3];
} attend_case;

static const attend_case attend_cases[] = {
    {"SmolLM2's heads, f16", 9, 3, 64, HT_F16, 0, 0, 0, 2, {300, 259}},
    {"one KV head of 256, bf16", 4, 1, 256, HT_BF16, 0, 0, 0, 1, {270}},
    {"Qwen's heads, f32", 14, 2, 64, HT_F32, 0, 0, 0, 1, {258}},
    {"heads of 512, f32", 2, 1, 512, HT_F32, 0, 0, 0, 1, {40}},
    {"heads of 520, f32", 1, 1, 520, HT_F32, 0, 0, 0, 1, {12}},
    {"heads of 776, 8 bits", 8, 1, 776, HT_I8, 0, 0, 0, 1, {5}},
    {"heads of 1280, f16", 2, 1, 1280, HT_F16, 0, 0, 0, 1, {12}},
    {"window, growing", 4, 2, 32, HT_F16, 100, 0, 0, 2, {400, 90}},
    {"window, ring reused", 4, 2, 32, HT_F16, 256, 4, 0, 2, {1100, 301}},
    {"window of a few keys, ring reused", 2, 2, 16, HT_BF16, 5, 3, 0, 1, {800}},
    {"odd head_dim 6, softcap", 4, 2, 6, HT_F16, 0, 0, 5, 3, {257, 1, 255}},
    {"odd head_dim 5, 8 bits", 4, 2, 5, HT_I8, 0, 0, 5, 2, {257, 3}},
    {"odd head_dim 72, f32", 2, 1, 72, HT_F32, 70, 0, 50, 1, {300}},
    {"more queries than a tile takes", 24, 1, 8, HT_F32, 0, 0, 0, 1, {257}},
    {"8 bits", 9, 3, 64, HT_I8, 0, 0, 0, 2, {300, 259}},
    {"odd head_dim 72, 8 bits, window", 4, 2, 72, HT_I8, 100, 3, 0, 1, {600}},
    {"head_dim 80, no grouping", 5, 5, 80, HT_F16, 0, 0, 0, 1, {258}},
    {"many pages", 2, 1, 8, HT_F16, 0, 0, 0, 1, {1300}},
    {"Llama's heads, f16", 8, 2, 128, HT_F16, 0, 0, 0, 2, {330, 20}},
    {"Llama's heads, bf16", 4, 1, 128, HT_BF16, 0, 0, 0, 1, {270}},
    {"heads of 96, 8 bits, softcap", 8, 2, 96, HT_I8, 0, 0, 20, 1, {290}},
    {"heads of 112, 8 bits", 3, 1, 112, HT_I8, 0, 0, 0, 1, {261}},
    {"heads of 256, f16, window, softcap", 4, 2, 256, HT_F16, 60, 0, 30, 1, {300}},
    {"heads of 512, f16", 2, 1, 512, HT_F16, 0, 0, 0, 1, {270}},
    {"heads of 192, 8 bits", 2, 1, 192, HT_I8, 0, 0, 0, 1, {258}},
    {"window of a few keys, f16", 8, 1, 64, HT_F16, 7, 0, 0, 1, {530}},
};

/* What a case computes from, and the caches of one device. */
typedef struct texts {
    const attend_case *c;
    float *q[3], *k[3], *v[3];
} texts;

typedef struct caches {
    ht_device *d;
    ht_kv_layer layer[3];
    ht_cache cache[3];
    ht_kv_page *page[3][MOST_PAGES];
} caches;

static texts texts_make(const attend_case *c) {
    texts t = {.c = c};
    uint64_t seed = 7;
    for (int s = 0; s < c->n_seq; s++) {
        const int64_t kv = (int64_t)c->length[s] * c->n_kv_heads * c->head_dim;
        t.q[s] = random_floats((int64_t)c->length[s] * c->n_heads * c->head_dim, 4, &seed);
        t.k[s] = random_floats(kv, 2, &seed);
        t.v[s] = random_floats(kv, 1, &seed);
    }
    return t;
}

static void texts_free(texts *t) {
    for (int s = 0; s < 3; s++) free(t->q[s]), free(t->k[s]), free(t->v[s]);
}

static void caches_make(ht_device *d, const attend_case *c, caches *out) {
    memset(out, 0, sizeof *out);
    out->d = d;
    for (int s = 0; s < c->n_seq; s++) {
        ht_kv_layer *l = &out->layer[s];
        *l = (ht_kv_layer){.shape = {c->n_kv_heads, c->head_dim, c->dtype},
                           .window = c->window,
                           .ring_pages = c->ring_pages,
                           .n_pages = c->ring_pages ? c->ring_pages : (c->length[s] + HT_KV_PAGE - 1) / HT_KV_PAGE,
                           .pages = out->page[s]};
        assert_true(l->n_pages <= MOST_PAGES);
        out->cache[s] = (ht_cache){.n_layers = 1, .layer = l};
        for (int64_t p = 0; p < l->n_pages; p++) {
            ht_error err = {0};
            must(ht_kv_page_new(d, &l->shape, NULL, &l->pages[p], &err), &err);
            /* NaN: what is not visible must not matter */
            must(ht_memory_fill(d->memory, l->pages[p]->data, 0xff, d->kv->page_bytes(&l->shape), &err), &err);
        }
    }
}

static void caches_free(caches *c) {
    for (int s = 0; s < 3; s++)
        for (int64_t p = 0; p < c->layer[s].n_pages; p++) ht_kv_page_release(c->d, &c->layer[s].shape, c->page[s][p]);
}

/* The output rows of a step alone: the same bits as in the whole step. */
static void check_asked(ht_device *d, const ht_step *of, const ht_attend_params *params, const ht_view *q,
                        const float *whole) {
    const int64_t per_q = q->shape[1] * q->shape[2];
    ht_batch batch = *of->batch;
    int32_t *row = malloc((size_t)batch.n_tok * sizeof *row);
    float *asked = malloc((size_t)(batch.n_tok * per_q) * sizeof *asked),
          *y = malloc((size_t)(batch.n_tok * per_q) * sizeof *y);
    batch.n_out = 0;
    for (int32_t i = batch.n_tok > 4 ? 4 : 0; i < batch.n_tok; i += 5) {
        memcpy(asked + batch.n_out * per_q, (const float *)q->data + i * per_q, (size_t)per_q * sizeof *asked);
        row[batch.n_out++] = i;
    }
    batch.out_row = row;
    const int64_t dims[3] = {batch.n_out, q->shape[1], q->shape[2]};
    const ht_view in[3] = {test_view(asked, HT_F32, 3, dims), test_absent(), test_absent()};
    const ht_view to = test_view(y, HT_F32, 3, dims);
    ht_attend_params narrowed = *params;
    narrowed.asked = true;
    beside_run_ok(d, HT_OP_ATTEND, &narrowed, 3, in, &to, &(ht_step){.batch = &batch, .kv = of->kv});
    for (int32_t i = 0; i < batch.n_out; i++)
        assert_memory_equal(y + i * per_q, whole + row[i] * per_q, (size_t)per_q * sizeof *y);
    free(row), free(asked), free(y);
}

/* One step: rows begin[s] .. end[s] - 1 of every sequence s. */
static void attend_step(caches *kv, const texts *t, const int *begin, const int *end, bool asked, float *const out[]) {
    const attend_case *c = t->c;
    const int64_t per_q = (int64_t)c->n_heads * c->head_dim, per_kv = (int64_t)c->n_kv_heads * c->head_dim;
    int32_t start[4] = {0}, kv_len[3], n_seq = 0;
    ht_cache *pointer[3];
    int which[3];
    for (int s = 0; s < c->n_seq; s++) {
        if (begin[s] == end[s]) continue;
        start[n_seq + 1] = start[n_seq] + end[s] - begin[s];
        kv_len[n_seq] = end[s];
        pointer[n_seq] = &kv->cache[s];
        which[n_seq++] = s;
    }
    const int64_t rows = start[n_seq];
    if (rows == 0) return;
    float *q = malloc((size_t)(rows * per_q) * sizeof *q), *y = malloc((size_t)(rows * per_q) * sizeof *y);
    float *k = malloc((size_t)(rows * per_kv) * sizeof *k), *v = malloc((size_t)(rows * per_kv) * sizeof *v);
    int32_t *pos = malloc((size_t)rows * sizeof *pos);
    for (int i = 0; i < n_seq; i++) {
        const int s = which[i], n = end[s] - begin[s];
        memcpy(q + start[i] * per_q, t->q[s] + begin[s] * per_q, (size_t)(n * per_q) * sizeof *q);
        memcpy(k + start[i] * per_kv, t->k[s] + begin[s] * per_kv, (size_t)(n * per_kv) * sizeof *k);
        memcpy(v + start[i] * per_kv, t->v[s] + begin[s] * per_kv, (size_t)(n * per_kv) * sizeof *v);
        for (int r = 0; r < n; r++) pos[start[i] + r] = begin[s] + r;
    }
    const ht_batch batch = {.n_tok = (int32_t)rows, .n_seq = n_seq, .pos = pos, .seq_start = start, .kv_len = kv_len};
    const ht_step step = {.batch = &batch, .kv = pointer};
    const ht_attend_params params = {.scale = 1 / sqrtf((float)c->head_dim), .softcap = c->softcap};
    const ht_view in[3] = {test_view(q, HT_F32, 3, (int64_t[]){rows, c->n_heads, c->head_dim}),
                           test_view(k, HT_F32, 3, (int64_t[]){rows, c->n_kv_heads, c->head_dim}),
                           test_view(v, HT_F32, 3, (int64_t[]){rows, c->n_kv_heads, c->head_dim})};
    const ht_view to = test_view(y, HT_F32, 3, (int64_t[]){rows, c->n_heads, c->head_dim});
    beside_run_ok(kv->d, HT_OP_ATTEND, &params, 3, in, &to, &step);
    if (asked) check_asked(kv->d, &step, &params, &in[0], y);
    for (int i = 0; i < n_seq; i++)
        memcpy(out[which[i]] + begin[which[i]] * per_q, y + start[i] * per_q,
               (size_t)((end[which[i]] - begin[which[i]]) * per_q) * sizeof *y);
    free(q), free(y), free(k), free(v), free(pos);
}

/* All texts from empty caches: `chunk` rows of a sequence at a time, the last `single` one by one; in one step, or one sequence
 * after another. */
static void attend_texts(caches *kv, const texts *t, int chunk, int single, bool together, float *const out[]) {
    const attend_case *c = t->c;
    for (int turn = 0; turn < (together ? 1 : c->n_seq); turn++) {
        int begin[3] = {0}, end[3] = {0};
        for (bool more = true; more;) {
            more = false;
            for (int s = 0; s < c->n_seq; s++) {
                if (!together && s != turn) continue;
                const int many = c->length[s] - single, next = end[s] < many ? end[s] + chunk : end[s] + 1;
                begin[s] = end[s];
                end[s] = end[s] < many && next > many ? many : next;
                if (end[s] > c->length[s]) end[s] = c->length[s];
                more |= end[s] < c->length[s];
            }
            attend_step(kv, t, begin, end, single > 0, out);
        }
    }
}

static void results_make(const attend_case *c, float *out[]) {
    for (int s = 0; s < c->n_seq; s++) {
        const size_t bytes = (size_t)c->length[s] * (size_t)c->n_heads * (size_t)c->head_dim * sizeof(float);
        out[s] = malloc(bytes);
        memset(out[s], 0xff, bytes);
    }
}

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
        const int64_t n = (int64_t)c->length[s] * c->n_heads * c->head_dim;
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
        int chunk, single;
        bool together;
        const char *how;
    } cuts[] = {{512, 0, true, "512 at a time"},
                {512, 3, false, "the last ones alone, one sequence after another"},
                {37, 2, true, "37 at a time, together"}};
    texts t = texts_make(c);
    float *expected[3] = {0}, *first[3] = {0}, *again[3] = {0};
    caches ours, theirs;
    caches_make(beside_device[CPU], c, &theirs);
    results_make(c, expected);
    attend_texts(&theirs, &t, c->ring_pages ? 64 : 512, 0, true, expected);
    for (int i = 0; i < (int)(sizeof cuts / sizeof *cuts); i++) {
        if (i > 0 && !test_takes(i + number, 8)) continue;
        caches_make(beside_device[GPU], c, &ours);
        results_make(c, again);
        attend_texts(&ours, &t, c->ring_pages && cuts[i].chunk > 64 ? 64 : cuts[i].chunk, cuts[i].single,
                     cuts[i].together, again);
        if (i == 0) check_pages(&ours, &theirs, c);
        caches_free(&ours);
        if (i == 0) {
            compare_texts(c, again, expected, false, "the plain kernel");
            memcpy(first, again, sizeof first);
            continue;
        }
        compare_texts(c, again, first, true, cuts[i].how);
        for (int s = 0; s < c->n_seq; s++) free(again[s]);
    }
    for (int s = 0; s < c->n_seq; s++) free(first[s]), free(expected[s]);
    caches_free(&theirs);
    texts_free(&t);
}

static void attention_over_pages(void **state) {
    (void)state;
    if (!beside_device[GPU]) skip();
    for (int i = 0; i < (int)(sizeof attend_cases / sizeof *attend_cases); i++) {
        attend_case c = attend_cases[i];
        if (i > 16 && !test_takes(i, 3)) continue; /* more heads of the same kinds */
        if (!test_takes(i, 9)) {                   /* the heads of one KV head are enough of most */
            c.n_heads /= c.n_kv_heads;
            c.n_kv_heads = 1;
        }
        attend_case_on(&c, i);
    }
}

/* A NaN and an infinity in one position reach the rows behind it alone, in 8 bits as a block of NaN, and in bf16 as NaN. */
static void numbers_that_are_none(void **state) {
    (void)state;
    if (!beside_device[GPU]) skip();
    static const ht_dtype dtypes[] = {HT_F16, HT_I8, HT_F32, HT_BF16};
    for (size_t i = 0; i < sizeof dtypes / sizeof *dtypes; i++) {
        const attend_case c = {"", 4, 2, 40, dtypes[i], 0, 0, 0, 1, {20}};
        texts t = texts_make(&c);
        t.k[0][5 * 80 + 3] = NAN;
        t.v[0][9 * 80 + 70] = INFINITY;
        float *got[3] = {0}, *expected[3] = {0};
        caches ours, theirs;
        caches_make(beside_device[GPU], &c, &ours), caches_make(beside_device[CPU], &c, &theirs);
        results_make(&c, got), results_make(&c, expected);
        attend_texts(&ours, &t, 512, 2, true, got);
        attend_texts(&theirs, &t, 512, 0, true, expected);
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
        free(got[0]), free(expected[0]);
    }
}

/* Single rows behind many positions, whose pages are a few again and again. */
static void long_contexts(void **state) {
    (void)state;
    if (!beside_device[GPU]) skip();
    enum { HEADS = 2, DIM = 8, PAGES = 4, N = 2 };
    static const int32_t pos[N] = {70000, 66001}, start[N + 1] = {0, 1, 2}, kv_len[N] = {70001, 66002};
    const attend_case c = {"", HEADS, 1, DIM, HT_F16, 0, 0, 0, N, {PAGES * HT_KV_PAGE, PAGES * HT_KV_PAGE}};
    const ht_batch batch = {.n_tok = N, .n_seq = N, .pos = pos, .seq_start = start, .kv_len = kv_len};
    uint64_t seed = 13;
    uint16_t saved[HT_KV_PAGE * 2 * DIM];
    float *q = random_floats(N * HEADS * DIM, 4, &seed), *k = random_floats(N * DIM, 1, &seed), y[2][N * HEADS * DIM];
    const ht_view in[3] = {test_view(q, HT_F32, 3, (int64_t[]){N, HEADS, DIM}),
                           test_view(k, HT_F32, 3, (int64_t[]){N, 1, DIM}),
                           test_view(k, HT_F32, 3, (int64_t[]){N, 1, DIM})};
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
        beside_run_ok(kv.d, HT_OP_ATTEND, &(ht_attend_params){.scale = 0.5f}, 3, in, &to,
                      &(ht_step){.batch = &batch, .kv = (ht_cache *[]){&kv.cache[0], &kv.cache[1]}});
        for (int s = 0; s < N; s++) kv.layer[s].n_pages = PAGES;
        caches_free(&kv);
    }
    for (int i = 0; i < N * HEADS * DIM; i++)
        if (!(fabs((double)y[0][i] - (double)y[1][i]) < tolerance_of_pages(HT_F16)))
            fail_msg("%d is %.9g, expected %.9g", i, (double)y[1][i], (double)y[0][i]);
    free(q), free(k);
}

static void missing_page_is_an_error(void **state) {
    (void)state;
    if (!beside_device[GPU]) skip();
    const attend_case c = {"", 2, 1, 8, HT_F16, 0, 0, 0, 1, {256}};
    caches kv;
    caches_make(beside_device[GPU], &c, &kv);
    float q[16] = {0}, k[8] = {0}, y[16];
    int32_t pos = 256, start[2] = {0, 1}, kv_len = 257;
    const ht_batch batch = {.n_tok = 1, .n_seq = 1, .pos = &pos, .seq_start = start, .kv_len = &kv_len};
    ht_cache *cache = &kv.cache[0];
    const ht_attend_params params = {.scale = 1};
    const ht_view in[3] = {test_view(q, HT_F32, 3, (int64_t[]){1, 2, 8}), test_view(k, HT_F32, 3, (int64_t[]){1, 1, 8}),
                           test_view(k, HT_F32, 3, (int64_t[]){1, 1, 8})};
    const ht_view out = test_view(y, HT_F32, 3, (int64_t[]){1, 2, 8});
    ht_error err = {0};
    assert_int_equal(beside_run(beside_device[GPU], HT_OP_ATTEND, &params, 3, in, &out,
                                &(ht_step){.batch = &batch, .kv = &cache}, false, &err),
                     HT_ERR_INTERNAL);
    assert_non_null(strstr(err.message, "256"));
    caches_free(&kv);
}

/* ---- adapters ---- */

enum { N_PAIRS = 3, N_SETS = 4, N_PROJECTIONS = 2, PROJECTION = 1 };

typedef struct lora_shape {
    int64_t n_in, n_out, rank;
    int64_t n_experts, per_row; /* 0 and 1: dense */
    bool x_of_items;            /* of experts: x [T, m, k] */
    int64_t x_step;             /* stride of x within a row */
} lora_shape;

/* Sequences of a step, with the set of each; -1: none. `asked`: only every other row is an output row. */
typedef struct sequences {
    int n;
    int32_t rows[MOST_SEQUENCES];
    int set[MOST_SEQUENCES];
    bool asked;
} sequences;

typedef struct adapters {
    ht_device *d;
    void *values[N_PAIRS][2];
    size_t bytes[N_PAIRS][2];
    ht_lora_pair pair[N_PAIRS];
    ht_lora_use use[N_SETS][N_PROJECTIONS * 2];
    ht_lora_set set[N_SETS];
} adapters;

/* Random values, and NaN where kernels may read but must not use what they read. */
static void *values_on(ht_device *d, int64_t n, uint64_t *seed, size_t *bytes) {
    float *x = random_floats(n + HT_LORA_SPARE, 1, seed);
    ht_error err = {0};
    *bytes = (size_t)(n + HT_LORA_SPARE) * sizeof *x;
    for (int64_t i = n; i < n + HT_LORA_SPARE; i++) x[i] = NAN;
    void *there = beside_alloc(d, *bytes);
    must(ht_memory_write(d->memory, there, x, *bytes, &err), &err);
    free(x);
    return there;
}

/* Pairs of three ranks; sets of one adapter, of two, of one that leaves the projection alone, and the first once more. */
static void adapters_make(adapters *f, ht_device *d, const lora_shape *s) {
    uint64_t seed = 3;
    const int64_t rank[N_PAIRS] = {s->rank, ht_max_i64(1, s->rank / 2), s->rank + 3}, n = ht_max_i64(1, s->n_experts);
    *f = (adapters){.d = d};
    for (int i = 0; i < N_PAIRS; i++) {
        f->values[i][0] = values_on(d, n * rank[i] * s->n_in, &seed, &f->bytes[i][0]);
        f->values[i][1] = values_on(d, n * rank[i] * s->n_out, &seed, &f->bytes[i][1]);
        f->pair[i] = (ht_lora_pair){s->n_experts, rank[i], s->n_in, s->n_out, f->values[i][0], f->values[i][1]};
    }
    f->use[0][PROJECTION] = f->use[3][PROJECTION] = (ht_lora_use){&f->pair[0], 0.75f};
    f->use[1][2 * PROJECTION] = (ht_lora_use){&f->pair[1], -1.5f};
    f->use[1][2 * PROJECTION + 1] = (ht_lora_use){&f->pair[2], 0.3f};
    f->use[2][0] = (ht_lora_use){&f->pair[2], 1}; /* at the other projection */
    for (int i = 0; i < N_SETS; i++) f->set[i] = (ht_lora_set){i == 1 ? 2 : 1, f->use[i]};
}

static void adapters_free(adapters *f) {
    for (int i = 0; i < N_PAIRS; i++)
        for (int k = 0; k < 2; k++) ht_memory_free(f->d->memory, f->values[i][k], f->bytes[i][k]);
}

/* Sequence of row `row` of the kernel. */
static int sequence_of(const sequences *q, int64_t row) {
    int s = 0;
    for (int64_t token = q->asked ? 2 * row + 1 : row; token >= q->rows[s]; s++) token -= q->rows[s];
    return s;
}

typedef struct lora_data {
    int64_t n; /* rows */
    float *x, *y;
    int32_t *ids;
} lora_data;

static ht_status run_lora(const adapters *f, const lora_shape *s, const sequences *q, const lora_data *v, bool in_place,
                          float *out, ht_error *err) {
    int32_t start[MOST_SEQUENCES + 1] = {0}, *out_row = malloc((size_t)(v->n + 1) * sizeof *out_row);
    const ht_lora_set *lora[MOST_SEQUENCES];
    for (int i = 0; i < q->n; i++) {
        start[i + 1] = start[i] + q->rows[i];
        lora[i] = q->set[i] < 0 ? NULL : &f->set[q->set[i]];
    }
    for (int32_t i = 0; i < v->n; i++) out_row[i] = q->asked ? 2 * i + 1 : i;
    const ht_batch batch = {
        .n_tok = start[q->n], .n_seq = q->n, .n_out = (int32_t)v->n, .seq_start = start, .out_row = out_row};
    const ht_step step = {.batch = &batch, .lora = lora};
    const ht_lora_params p = {PROJECTION, s->n_experts};
    const int64_t x_row = s->n_in * s->x_step + 5, m = s->per_row, n = v->n;
    ht_view in[3] = {test_view(v->y, HT_F32, 2, (int64_t[]){n, s->n_out}),
                     {v->x, HT_F32, 2, {n, s->n_in}, {x_row, s->x_step}},
                     test_absent()};
    if (s->n_experts) {
        in[0] = test_view(v->y, HT_F32, 3, (int64_t[]){n, m, s->n_out});
        if (s->x_of_items) in[1] = (ht_view){v->x, HT_F32, 3, {n, m, s->n_in}, {m * x_row, x_row, s->x_step}};
        in[2] = test_view(v->ids, HT_I32, 2, (int64_t[]){n, m});
    }
    ht_view to = in[0];
    to.data = out;
    const ht_status status = beside_run(f->d, HT_OP_LORA, &p, 3, in, &to, &step, in_place, err);
    free(out_row);
    return status;
}

/* Each row alone in its step has the bits of all together. */
static void check_alone(const adapters *f, const lora_shape *s, const sequences *q, const lora_data *v,
                        const float *together) {
    const int64_t n = s->per_row * s->n_out, x_row = s->n_in * s->x_step + 5;
    float *out = malloc((size_t)n * sizeof *out);
    ht_error err = {0};
    for (int64_t row = 0; row < v->n; row += 1 + v->n / 8) {
        const sequences alone = {1, {1}, {q->set[sequence_of(q, row)]}, false};
        const lora_data own = {1, v->x + row * (s->x_of_items ? s->per_row : 1) * x_row, v->y + row * n,
                               v->ids + row * s->per_row};
        must(run_lora(f, s, &alone, &own, false, out, &err), &err);
        assert_memory_equal(out, together + row * n, (size_t)n * sizeof *out);
    }
    free(out);
}

static void check_lora(const lora_shape *s, const sequences *q) {
    adapters ours, theirs;
    uint64_t seed = 11;
    lora_data v = {0};
    for (int i = 0; i < q->n; i++) v.n += q->rows[i];
    if (q->asked) v.n /= 2;
    const int64_t items = v.n * s->per_row, n = items * s->n_out;
    v.x = random_floats(items * (s->n_in * s->x_step + 5), 1, &seed);
    v.y = random_floats(n, 1, &seed);
    v.ids = malloc((size_t)(items + 1) * sizeof *v.ids);
    for (int64_t i = 0; i < items; i++)
        v.ids[i] = s->n_experts ? (int32_t)(test_random(&seed) % (uint32_t)s->n_experts) : 0;
    adapters_make(&ours, beside_device[GPU], s);
    adapters_make(&theirs, beside_device[CPU], s);
    float *got = malloc((size_t)n * sizeof *got), *expected = malloc((size_t)n * sizeof *expected),
          *again = malloc((size_t)n * sizeof *again);
    ht_error err = {0};
    must(run_lora(&theirs, s, q, &v, false, expected, &err), &err);
    must(run_lora(&ours, s, q, &v, false, got, &err), &err);
    const double size = 1 + sqrt((double)s->n_in * (double)s->rank) * 3;
    for (int64_t i = 0; i < n; i++)
        if (!(fabs((double)got[i] - (double)expected[i]) <= 1e-6 * size))
            fail_msg("[%lld, %lld] rank %lld, %d sequences: %lld is %.9g, expected %.9g", (long long)s->n_out,
                     (long long)s->n_in, (long long)s->rank, q->n, (long long)i, (double)got[i], (double)expected[i]);
    for (int64_t row = 0; row < v.n; row++) {
        const int set = q->set[sequence_of(q, row)];
        const int64_t at = row * s->per_row * s->n_out;
        if (set < 0 || set == 2) assert_memory_equal(got + at, v.y + at, (size_t)(s->per_row * s->n_out) * sizeof *got);
    }
    check_alone(&ours, s, q, &v, got);
    must(run_lora(&ours, s, q, &v, true, again, &err), &err);
    assert_memory_equal(again, got, (size_t)n * sizeof *got);
    adapters_free(&ours), adapters_free(&theirs);
    free(got), free(expected), free(again), free(v.x), free(v.y), free(v.ids);
}

static const sequences mixes[] = {
    {1, {1}, {0}, false},
    {1, {2}, {1}, true},
    {7, {1, 1, 1, 1, 1, 1, 1}, {0, 3, -1, 1, 2, -1, 0}, false},
    {5, {3, 20, 1, 31, 2}, {-1, 0, 1, 3, 2}, false},
    {4, {9, 2, 31, 1}, {1, -1, 0, 3}, true},
};

static void adapters_of_a_step(void **state) {
    (void)state;
    if (!beside_device[GPU]) skip();
    static const lora_shape lora_shapes[] = {
        {1, 1, 1, 0, 1, false, 1},      {7, 33, 2, 0, 1, false, 1},    {256, 16, 8, 0, 1, false, 1},
        {257, 300, 15, 0, 1, false, 1}, {600, 47, 16, 0, 1, false, 2}, {65, 513, 33, 0, 1, false, 1},
        {40, 20, 140, 0, 1, false, 1},  {33, 17, 5, 4, 2, false, 1},   {33, 270, 40, 4, 3, true, 2},
    };
    for (size_t i = 0; i < sizeof lora_shapes / sizeof *lora_shapes; i++)
        for (size_t k = 0; k < sizeof mixes / sizeof *mixes; k++)
            if (test_takes((int64_t)(i + k), 10)) check_lora(&lora_shapes[i], &mixes[k]);
}

static void an_expert_that_is_none(void **state) {
    (void)state;
    if (!beside_device[GPU]) skip();
    const lora_shape s = {8, 8, 2, 3, 2, false, 1};
    adapters f;
    adapters_make(&f, beside_device[GPU], &s);
    float x[64] = {0}, y[64] = {0}, out[64];
    int32_t ids[4] = {0, 2, 1, 3};
    ht_error err = {0};
    assert_int_equal(run_lora(&f, &s, &(sequences){1, {2}, {0}, false}, &(lora_data){2, x, y, ids}, false, out, &err),
                     HT_ERR_ARGUMENT);
    assert_string_equal(err.message, "lora: expert index 3 is out of range in row 1, expected less than 3");
    adapters_free(&f);
}

/* ---- attention of arrays ---- */

/* Runs on both devices, and compares with a tolerance relative to the larger of 1 and the size. */
static void compare(const char *what, ht_op_id op, const void *params, int n_in, const ht_view *in, ht_view out,
                    double tolerance) {
    const size_t bytes = (size_t)ht_view_size(&out) * ht_dtype_bytes(out.dtype) + 1;
    ht_view theirs = out;
    out.data = calloc(1, bytes);
    theirs.data = calloc(1, bytes);
    beside_run_ok(beside_device[GPU], op, params, n_in, in, &out, NULL);
    beside_run_ok(beside_device[CPU], op, params, n_in, in, &theirs, NULL);
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
    beside_run_ok(beside_device[CPU], HT_OP_SDPA, &p, 5, in, &in[5], NULL);
    const int64_t all = ht_view_size(&in[0]) + ht_view_size(&in[1]) + ht_view_size(&in[2]);
    compare(what, HT_OP_SDPA_GRAD, &p, 7, in, test_view(NULL, dtype, 1, &all), 4 * tolerance_of(dtype));
    free(in[5].data);
    for (int i = 0; i < 7; i++) free(of[i].memory);
}

static void attention_of_arrays(void **state) {
    (void)state;
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
} rows_case;

static void rows_case_of(const rows_case *c, int number) {
    uint64_t seed = 9;
    int64_t n = 0, keys = 0;
    int32_t own[512], first[512];
    for (int s = 0; s < c->n; s++) {
        for (int i = 0; i < c->rows[s]; i++, n++) {
            own[n] = (int32_t)(keys + c->skipped[s] + i);
            first[n] = (int32_t)keys;
        }
        keys += c->skipped[s] + c->rows[s];
    }
    const int64_t q[3] = {n, c->heads, c->d}, k[3] = {keys, c->kv_heads, c->d}, v[3] = {keys, c->kv_heads, c->dv},
                  out[3] = {n, c->heads, c->dv};
    const ht_attend_rows_params p = {(float)(1 / sqrt((double)c->d)), c->softcap, c->window};
    operand of[4] = {
        test_operand(HT_F32, 3, q, c->how, ORDINARY, &seed), test_operand(HT_F32, 3, k, c->how, ORDINARY, &seed),
        test_operand(HT_F32, 3, v, c->how, ORDINARY, &seed), test_operand(HT_F32, 3, out, c->how, ORDINARY, &seed)};
    ht_view in[7] = {of[0].view, of[1].view, of[2].view, test_view(own, HT_I32, 1, &n),
                     test_view(first, HT_I32, 1, &n)};
    char what[64];
    snprintf(what, sizeof what, "rows %d", number);
    compare(what, HT_OP_ATTEND_ROWS, &p, 5, in, test_view(NULL, HT_F32, 3, out), 2e-5);
    in[5] = test_view(calloc((size_t)(n * c->heads * c->dv) + 1, 4), HT_F32, 3, out);
    in[6] = of[3].view;
    beside_run_ok(beside_device[GPU], HT_OP_ATTEND_ROWS, &p, 5, in, &in[5], NULL);
    const int64_t all = ht_view_size(&in[0]) + ht_view_size(&in[1]) + ht_view_size(&in[2]);
    compare(what, HT_OP_ATTEND_ROWS_GRAD, &p, 7, in, test_view(NULL, HT_F32, 1, &all), 4e-4);
    /* The last sequence alone has the bits of all together. */
    const int s = c->n - 1;
    const int64_t mine = c->rows[s], per = c->heads * c->dv, skipped = n - mine,
                  none = keys - c->rows[s] - c->skipped[s];
    float *alone = calloc((size_t)(mine * per) + 1, sizeof *alone);
    ht_view last[5] = {in[0], in[1], in[2], test_view(own + skipped, HT_I32, 1, &mine),
                       test_view(first + skipped, HT_I32, 1, &mine)};
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
    beside_run_ok(beside_device[GPU], HT_OP_ATTEND_ROWS, &p, 5, last, &to, NULL);
    assert_memory_equal(alone, (const float *)in[5].data + skipped * per, (size_t)(mine * per) * sizeof *alone);
    free(alone), free(in[5].data);
    for (int i = 0; i < 4; i++) free(of[i].memory);
}

static void attention_of_flat_rows(void **state) {
    (void)state;
    if (!beside_device[GPU]) skip();
    static const rows_case rows_cases[] = {
        {1, 1, 4, 4, 0, 0, 1, {1}, {0}, CONTIGUOUS},
        {4, 2, 20, 24, 0, 0, 4, {3, 70, 1, 40}, {0, 0, 5, 100}, SHIFTED},
        {2, 2, 64, 64, 0, 5, 2, {100, 90}, {0, 0}, CONTIGUOUS},
        {2, 1, 9, 140, 13, 0, 3, {80, 50, 5}, {3, 0, 40}, BACKWARDS},
    };
    for (size_t i = 0; i < sizeof rows_cases / sizeof *rows_cases; i++) rows_case_of(&rows_cases[i], (int)i);
}

static void rows_that_go_back(void **state) {
    (void)state;
    if (!beside_device[GPU]) skip();
    float x[12] = {0}, y[12];
    const int64_t n = 3, dims[3] = {3, 1, 4};
    int32_t own[3] = {0, 2, 1}, first[3] = {0, 0, 0};
    const ht_attend_rows_params p = {1, 0, 0};
    const ht_view xs = test_view(x, HT_F32, 3, dims), out = test_view(y, HT_F32, 3, dims);
    const ht_view in[5] = {xs, xs, xs, test_view(own, HT_I32, 1, &n), test_view(first, HT_I32, 1, &n)};
    ht_error ours = {0}, theirs = {0};
    for (int i = 0; i < 3; i++, own[2] = i == 1 ? 3 : 2, first[2] = i == 2 ? -1 : 0) {
        assert_int_equal(beside_run(beside_device[GPU], HT_OP_ATTEND_ROWS, &p, 5, in, &out, NULL, false, &ours),
                         HT_ERR_ARGUMENT);
        assert_int_equal(beside_run(beside_device[CPU], HT_OP_ATTEND_ROWS, &p, 5, in, &out, NULL, false, &theirs),
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
