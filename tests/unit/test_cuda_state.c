/* Recurrent layers on a GPU against the plain kernels of the CPU, on the same inputs; skipped where there is no GPU.
 * However rows are cut into steps, they give the same bits. */
#include "base/math.h"
#include "device/device.h"
#include "support/gpu.h"
#include "support/operands.h"
#include "support/test.h"
#include "support/weights.h"

#include <math.h>
#include <stdio.h>

enum { MOST = 100 /* sequences */ };

/* ---- rows of sequences ---- */

/* Operands of all rows, in one matrix, sequence by sequence; results and states of all sequences. */
typedef struct texts {
    int n_seq;
    const int *length;
    int64_t width, n_out, state; /* of a row, of a row's result, values of a state */
    float *rows;
} texts;

typedef struct results {
    float *out, *state;
} results;

static int64_t rows_of(const texts *t) {
    int64_t n = 0;
    for (int s = 0; s < t->n_seq; s++) n += t->length[s];
    return n;
}

static int64_t first_of(const texts *t, int s) { return rows_of(&(texts){.n_seq = s, .length = t->length}); }

/* Runs an operation of `n` rows. */
typedef void run_fn(ht_device *d, const void *how, float *rows, int64_t n, float *out, const ht_step *step);

/* States of a device, which begin as zeros; the pages that the first step writes hold NaN. */
typedef struct states {
    ht_device *d;
    ht_kv_layer layer[MOST];
    ht_kv_page page[MOST][2], *pages[MOST][2];
    ht_cache cache[MOST];
} states;

static states *states_make(ht_device *d, const texts *t) {
    states *s = test_room(sizeof *s);
    s->d = d;
    for (int i = 0; i < t->n_seq; i++) {
        for (int p = 0; p < 2; p++) {
            s->page[i][p] = (ht_kv_page){.refs = 1, .data = test_room_on(d, (size_t)t->state * sizeof(float))};
            assert_works(ht_memory_fill, d->memory, s->page[i][p].data, p ? 0xff : 0, (size_t)t->state * sizeof(float));
            s->pages[i][p] = &s->page[i][p];
        }
        s->layer[i] = (ht_kv_layer){.shape = {.state = t->state}, .n_pages = 2, .pages = s->pages[i]};
        s->cache[i] = (ht_cache){.n_layers = 1, .layer = &s->layer[i]};
    }
    return s;
}

static void states_free(states *s, const texts *t) {
    for (int i = 0; i < t->n_seq; i++)
        for (int p = 0; p < 2; p++) test_room_free(s->d, s->page[i][p].data, (size_t)t->state * sizeof(float));
    free(s);
}

/* Rows begin[s] .. end[s] - 1 of every sequence. */
static void run_step(states *kv, const texts *t, run_fn *run, const void *how, const int *begin, const int *end,
                     float *out) {
    int32_t start[MOST + 1] = {0}, n = 0;
    int which[MOST];
    ht_cache *cache[MOST];
    for (int s = 0; s < t->n_seq; s++) {
        if (begin[s] == end[s]) continue;
        start[n + 1] = start[n] + end[s] - begin[s];
        cache[n] = &kv->cache[s];
        which[n++] = s;
    }
    if (n == 0) return;
    float *rows = test_room((size_t)(start[n] * t->width) * sizeof *rows);
    float *y = test_room((size_t)(start[n] * t->n_out) * sizeof *y);
    for (int i = 0; i < n; i++)
        memcpy(rows + start[i] * t->width, t->rows + (first_of(t, which[i]) + begin[which[i]]) * t->width,
               (size_t)((start[i + 1] - start[i]) * t->width) * sizeof *rows);
    const ht_batch batch = {.n_tok = start[n], .n_seq = n, .seq_start = start};
    run(kv->d, how, rows, start[n], y, &(ht_step){.batch = &batch, .kv = cache});
    for (int i = 0; i < n; i++) {
        ht_kv_page **pages = kv->pages[which[i]], *before = pages[0];
        memcpy(out + (first_of(t, which[i]) + begin[which[i]]) * t->n_out, y + start[i] * t->n_out,
               (size_t)((start[i + 1] - start[i]) * t->n_out) * sizeof *y);
        pages[0] = pages[1];
        pages[1] = before;
    }
    free(rows), free(y);
}

/* All rows, `chunk` of a sequence at a time, together or one sequence after another. */
static results run_texts(ht_device *d, const texts *t, run_fn *run, const void *how, int chunk, bool together) {
    results r = {.out = test_room((size_t)(rows_of(t) * t->n_out) * sizeof(float)),
                 .state = test_room((size_t)(t->n_seq * t->state) * sizeof(float))};
    states *kv = states_make(d, t);
    for (int turn = 0; turn < (together ? 1 : t->n_seq); turn++) {
        int begin[MOST] = {0}, end[MOST] = {0};
        for (bool more = true; more;) {
            more = false;
            for (int s = 0; s < t->n_seq; s++) {
                begin[s] = end[s];
                if (!together && s != turn) continue;
                end[s] = end[s] + chunk < t->length[s] ? end[s] + chunk : t->length[s];
                more = more || end[s] < t->length[s];
            }
            run_step(kv, t, run, how, begin, end, r.out);
        }
    }
    for (int s = 0; s < t->n_seq; s++)
        assert_works(ht_memory_read, d->memory, r.state + s * t->state, kv->pages[s][0]->data,
                     (size_t)t->state * sizeof(float));
    for (int64_t i = 0; i < t->n_seq * t->state;
         i++) /* values that are not the operation's keep what their page began with */
        if (ht_float_bits(r.state[i]) == UINT32_MAX) r.state[i] = 0;
    states_free(kv, t);
    return r;
}

static void results_free(results *r) { free(r->out), free(r->state); }

static void expect_alike(const char *what, const float *got, const float *want, int64_t n, double tolerance) {
    for (int64_t i = 0; i < n; i++)
        if (!test_alike(HT_F32, got, want, i, tolerance))
            fail_msg("%s: %lld of %lld is %.9g, expected %.9g", what, (long long)i, (long long)n, (double)got[i],
                     (double)want[i]);
}

/* The GPU's results of all rows at once are close to the CPU's, and those of other cuts have their bits; gives them. */
static results compare_steps(const char *name, const texts *t, run_fn *run, const void *how, double tolerance,
                             int number) {
    static const struct {
        int chunk;
        bool together;
    } cuts[] = {{512, false}, {1, true}, {7, true}, {9, false}};
    char what[128];
    results want = run_texts(beside_device[CPU], t, run, how, 512, true);
    const results got = run_texts(beside_device[GPU], t, run, how, 512, true);
    snprintf(what, sizeof what, "%s, results", name);
    expect_alike(what, got.out, want.out, rows_of(t) * t->n_out, tolerance);
    snprintf(what, sizeof what, "%s, states", name);
    expect_alike(what, got.state, want.state, t->n_seq * t->state, tolerance);
    for (int i = 0; i < (int)(sizeof cuts / sizeof *cuts); i++) {
        if (!test_takes(i + number, 4)) continue;
        results again = run_texts(beside_device[GPU], t, run, how, cuts[i].chunk, cuts[i].together);
        snprintf(what, sizeof what, "%s, %d rows at a time%s", name, cuts[i].chunk, cuts[i].together ? "" : ", apart");
        expect_alike(what, again.out, got.out, rows_of(t) * t->n_out, 0);
        expect_alike(what, again.state, got.state, t->n_seq * t->state, 0);
        results_free(&again);
    }
    results_free(&want);
    return got;
}

/* ---- short convolutions ---- */

typedef struct conv_case {
    const char *name;
    int64_t n, taps, first, channels;
    bool bias;
    int n_seq, length[3];
} conv_case;

typedef struct convolution {
    const conv_case *c;
    float *w, *bias;
} convolution;

static void run_conv(ht_device *d, const void *how, float *rows, int64_t n, float *out, const ht_step *step) {
    const convolution *v = how;
    const conv_case *c = v->c;
    const ht_view in[3] = {test_view(rows, HT_F32, 2, (int64_t[]){n, c->n}),
                           test_view(v->w, HT_F32, 2, (int64_t[]){c->n, c->taps}),
                           c->bias ? test_view(v->bias, HT_F32, 1, &c->n) : test_absent()};
    const ht_view to = test_view(out, HT_F32, 2, (int64_t[]){n, c->n});
    test_run_ok(d, HT_OP_SHORT_CONV, &(ht_short_conv_params){0, c->first, c->channels}, 3, in, &to, step);
}

UNIT_TEST(short_convolutions) {
    if (!beside_device[GPU]) skip();
    static const conv_case cases[] = {
        {"Qwen3.5's taps", 150, 4, 0, 150, false, 2, {40, 3}},
        {"LFM2's taps, some of the channels", 33, 3, 20, 60, true, 3, {17, 1, 16}},
        {"one tap", 9, 1, 0, 9, true, 1, {5}},
        {"two taps", 130, 2, 1, 131, false, 2, {1, 33}},
        {"more taps than rows", 5, 7, 0, 5, true, 2, {20, 2}},
    };
    uint64_t seed = 3;
    for (EACH(i, cases)) {
        const conv_case *c = &cases[i];
        texts t = {.n_seq = c->n_seq,
                   .length = c->length,
                   .width = c->n,
                   .n_out = c->n,
                   .state = (c->taps - 1) * c->channels + 5};
        convolution v = {c, test_random_floats(c->n * c->taps, 1, &seed), test_random_floats(c->n, 1, &seed)};
        t.rows = test_random_floats(rows_of(&t) * t.width, 1, &seed);
        results r = compare_steps(c->name, &t, run_conv, &v, 0, (int)i);
        results_free(&r);
        free(v.w), free(v.bias), free(t.rows);
    }
}

/* ---- scans ---- */

typedef struct scan_case {
    const char *name;
    int64_t heads, key_heads, key_dim, value_dim;
    bool of_keys, rated, aligned;
    int64_t first; /* value of the state */
    int n_seq, length[3];
} scan_case;

static const scan_case scan_cases[] = {
    {"Qwen3.5", 2, 1, 128, 128, false, true, true, 0, 2, {75, 3}},
    {"smaller keys", 4, 2, 64, 48, false, true, true, 2, 1, {20}},
    {"Kimi-Linear", 1, 1, 128, 128, true, true, true, 4, 1, {66}},
    {"Mamba-2", 4, 1, 128, 64, false, false, true, 0, 2, {17, 65}},
    {"Falcon-H1", 2, 1, 256, 64, false, false, true, 0, 1, {30}},
    {"wide keys", 1, 1, 130, 34, false, true, false, 1, 2, {67, 9}},
    {"wide keys with decays of their own", 2, 2, 200, 20, true, true, true, 0, 1, {18}},
    {"odd sizes", 6, 3, 5, 7, false, true, false, 3, 3, {80, 1, 30}},
    {"tails", 2, 2, 9, 53, true, false, false, 0, 1, {90}},
    {"one number", 1, 1, 1, 1, true, true, false, 7, 2, {70, 3}},
};

/* Where the operands begin in a row. */
typedef struct row_layout {
    int64_t q, k, v, decay, rate, width;
} row_layout;

static row_layout layout_of(const scan_case *c) {
    const int64_t round = c->aligned ? 3 : 0, keys = (c->key_heads * c->key_dim + round) & ~round;
    row_layout l = {.q = c->aligned ? 4 : 1};
    l.k = l.q + keys;
    l.v = l.k + keys;
    l.decay = (l.v + c->heads * c->value_dim + round) & ~round;
    l.rate = l.decay + c->heads * (c->of_keys ? c->key_dim : 1);
    l.width = (l.rate + (c->rated ? c->heads : 0) + round) & ~round;
    return l;
}

static ht_view part_of(const scan_case *c, float *rows, int64_t n_rows, int64_t at, int n_dims, int64_t heads,
                       int64_t n) {
    return (ht_view){.data = rows + at,
                     .dtype = HT_F32,
                     .n_dims = n_dims,
                     .shape = {n_rows, heads, n},
                     .stride = {layout_of(c).width, n, 1}};
}

static void views_of(const scan_case *c, float *rows, int64_t n, ht_view in[5]) {
    const row_layout l = layout_of(c);
    in[0] = part_of(c, rows, n, l.q, 3, c->key_heads, c->key_dim);
    in[1] = part_of(c, rows, n, l.k, 3, c->key_heads, c->key_dim);
    in[2] = part_of(c, rows, n, l.v, 3, c->heads, c->value_dim);
    in[3] = part_of(c, rows, n, l.decay, c->of_keys ? 3 : 2, c->heads, c->of_keys ? c->key_dim : 1);
    in[4] = c->rated ? part_of(c, rows, n, l.rate, 2, c->heads, 1) : test_absent();
}

static void run_scan(ht_device *d, const void *how, float *rows, int64_t n, float *out, const ht_step *step) {
    const scan_case *c = how;
    ht_view in[5];
    views_of(c, rows, n, in);
    const ht_view to = test_view(out, HT_F32, 3, (int64_t[]){n, c->heads, c->value_dim});
    test_run_ok(d, HT_OP_STATE_SCAN, &(ht_state_scan_params){0, c->first}, 5, in, &to, step);
}

/* Keys whose products with a state stay of its size, decays and rates between 0 and 1. */
static texts scan_texts(const scan_case *c, uint64_t *seed) {
    const row_layout l = layout_of(c);
    texts t = {.n_seq = c->n_seq,
               .length = c->length,
               .width = l.width,
               .n_out = c->heads * c->value_dim,
               .state = c->first + c->heads * c->key_dim * c->value_dim + 3};
    t.rows = test_random_floats(rows_of(&t) * t.width, 1, seed);
    for (int64_t i = 0; i < rows_of(&t) * t.width; i++) {
        const int64_t at = i % t.width;
        if (at < l.v) t.rows[i] *= 1.7f / sqrtf((float)c->key_dim);
        if (at >= l.decay) t.rows[i] = fabsf(t.rows[i]);
        if (at >= l.decay && at < l.rate) t.rows[i] = 1 - t.rows[i] * t.rows[i];
    }
    return t;
}

/* First rows of the sequences of all rows. */
static int32_t *first_rows(const texts *t) {
    int32_t *first = test_room((size_t)rows_of(t) * sizeof *first);
    for (int s = 0; s < t->n_seq; s++)
        for (int i = 0; i < t->length[s]; i++) first[first_of(t, s) + i] = (int32_t)first_of(t, s);
    return first;
}

/* The scan of flat rows of all sequences has the bits of that with states. */
static void compare_rows(const scan_case *c, const texts *t, const results *r) {
    const int64_t n = rows_of(t);
    int32_t *first = first_rows(t);
    float *y = test_room((size_t)(n * t->n_out) * sizeof *y);
    ht_view in[6];
    views_of(c, t->rows, n, in);
    in[5] = test_view(first, HT_I32, 1, &n);
    const ht_view to = test_view(y, HT_F32, 3, (int64_t[]){n, c->heads, c->value_dim});
    const ht_state_scan_params p = {0};
    test_run_ok(beside_device[GPU], HT_OP_STATE_SCAN_ROWS, &p, 6, in, &to, NULL);
    expect_alike(c->name, y, r->out, n * t->n_out, 0);
    free(first), free(y);
}

/* The gradients of rows [at, at + n) of all rows, concatenated. */
static float *gradients(ht_device *d, const scan_case *c, const texts *t, float *grad, int64_t at, int64_t n) {
    int32_t *first = first_rows(t);
    ht_view in[7];
    int64_t size = 0;
    for (int64_t i = at; i < at + n; i++) first[i] -= (int32_t)at;
    views_of(c, t->rows + at * t->width, n, in);
    for (int i = 0; i < 5; i++) size += ht_view_absent(&in[i]) ? 0 : ht_view_size(&in[i]);
    in[5] = test_view(first + at, HT_I32, 1, &n);
    in[6] = test_view(grad + at * t->n_out, HT_F32, 3, (int64_t[]){n, c->heads, c->value_dim});
    float *y = test_room((size_t)size * sizeof *y);
    const ht_view to = test_view(y, HT_F32, 1, &size);
    test_run_ok(d, HT_OP_STATE_SCAN_ROWS_GRAD, &(ht_state_scan_params){0}, 7, in, &to, NULL);
    free(first);
    return y;
}

/* Gradients are close to the CPU's; those of the last sequence alone have the bits of all together. */
static void compare_gradients(const scan_case *c, const texts *t, uint64_t *seed) {
    static const char *const names[] = {"q", "k", "v", "decay", "rate"};
    const int64_t n = rows_of(t), at = first_of(t, t->n_seq - 1);
    float *grad = test_random_floats(n * t->n_out, 1, seed);
    float *want = gradients(beside_device[CPU], c, t, grad, 0, n),
          *got = gradients(beside_device[GPU], c, t, grad, 0, n);
    float *last = gradients(beside_device[GPU], c, t, grad, at, n - at);
    const float *w = want, *g = got, *l = last;
    ht_view in[5];
    views_of(c, t->rows, n, in);
    for (int i = 0; i < (c->rated ? 5 : 4); i++) {
        const int64_t size = ht_view_size(&in[i]), skipped = size / n * at;
        char what[128];
        snprintf(what, sizeof what, "%s, gradient of %s", c->name, names[i]);
        expect_alike(what, g, w, size, 2e-5);
        snprintf(what, sizeof what, "%s, gradient of %s alone", c->name, names[i]);
        expect_alike(what, l, g + skipped, size - skipped, 0);
        w += size, g += size, l += size - skipped;
    }
    free(grad), free(want), free(got), free(last);
}

UNIT_TEST(scans) {
    if (!beside_device[GPU]) skip();
    uint64_t seed = 5;
    for (EACH(i, scan_cases)) {
        const scan_case *c = &scan_cases[i];
        texts t = scan_texts(c, &seed);
        results r = compare_steps(c->name, &t, run_scan, c, 2e-5, (int)i);
        compare_rows(c, &t, &r);
        compare_gradients(c, &t, &seed);
        results_free(&r);
        free(t.rows);
    }
}

/* More sequences than fit into the arguments of a kernel, and rows of many of them. */
UNIT_TEST(many_sequences) {
    if (!beside_device[GPU]) skip();
    const scan_case c = {"many sequences", 1, 1, 8, 4, false, true, false, 0, 0, {0}};
    const conv_case v = {"many sequences", 3, 4, 0, 3, false, 0, {0}};
    int length[MOST];
    uint64_t seed = 6;
    for (int i = 0; i < MOST; i++) length[i] = 1 + i % 3;
    scan_case all = c;
    texts t = {.n_seq = MOST, .length = length};
    all.n_seq = 1;
    all.length[0] = (int)rows_of(&t);
    t = scan_texts(&all, &seed);
    t.n_seq = MOST;
    t.length = length;
    results r = compare_steps(c.name, &t, run_scan, &c, 2e-5, 3);
    compare_rows(&c, &t, &r);
    results_free(&r);
    free(t.rows);
    t.width = t.n_out = v.n;
    t.state = 9;
    const convolution of = {&v, test_random_floats(12, 1, &seed), NULL};
    t.rows = test_random_floats(rows_of(&t) * t.width, 1, &seed);
    r = compare_steps(v.name, &t, run_conv, &of, 0, 3);
    results_free(&r);
    free(t.rows), free(of.w);
}

/* ---- errors ---- */

UNIT_TEST(states_that_are_missing) {
    if (!beside_device[GPU]) skip();
    const scan_case c = {"", 1, 1, 4, 4, false, true, false, 2, 1, {3}};
    uint64_t seed = 8;
    texts t = scan_texts(&c, &seed);
    t.state = 17; /* of 18 */
    states *kv = states_make(beside_device[GPU], &t);
    const int32_t start[2] = {0, 3};
    const ht_batch batch = {.n_tok = 3, .n_seq = 1, .seq_start = start};
    ht_view in[5];
    float y[3 * 4];
    views_of(&c, t.rows, 3, in);
    const ht_view to = test_view(y, HT_F32, 3, (int64_t[]){3, 1, 4});
    const ht_step step = {.batch = &batch, .kv = (ht_cache *[]){&kv->cache[0]}};
    assert_fails(HT_ERR_INTERNAL, "2 pages of 17 values, not 2 of 18", test_run, beside_device[GPU], HT_OP_STATE_SCAN,
                 &(ht_state_scan_params){0, 2}, 5, in, &to, &step);
    states_free(kv, &t);
    free(t.rows);
}

UNIT_TEST(keys_that_are_too_wide) {
    if (!beside_device[GPU]) skip();
    const scan_case c = {"", 1, 1, 257, 1, false, true, false, 0, 1, {1}};
    uint64_t seed = 8;
    texts t = scan_texts(&c, &seed);
    ht_view in[6];
    float y;
    int32_t first = 0;
    const int64_t one = 1;
    views_of(&c, t.rows, 1, in);
    in[5] = test_view(&first, HT_I32, 1, &one);
    const ht_view to = test_view(&y, HT_F32, 3, (int64_t[]){1, 1, 1});
    assert_fails(HT_ERR_UNSUPPORTED, "keys of 257 dimensions are not supported on a GPU, at most 256", test_run,
                 beside_device[GPU], HT_OP_STATE_SCAN_ROWS, &(ht_state_scan_params){0}, 6, in, &to, NULL);
    free(t.rows);
}

UNIT_TEST(sequences_that_are_not_adjacent) {
    if (!beside_device[GPU]) skip();
    static const int32_t bad[][4] = {{1, 1, 2, 3}, {0, 0, 1, 3}, {0, 1, 0, 0}, {0, -1, 0, 0}, {0, 0, 9, 9}};
    const scan_case c = {"", 1, 1, 4, 4, false, true, false, 0, 1, {4}};
    const int64_t n = 4;
    uint64_t seed = 8;
    texts t = scan_texts(&c, &seed);
    ht_view in[6];
    float y[16];
    views_of(&c, t.rows, n, in);
    const ht_view to = test_view(y, HT_F32, 3, (int64_t[]){n, 1, 4});
    for (EACH(i, bad)) {
        int32_t first[4];
        ht_error ours = {0}, theirs = {0};
        memcpy(first, bad[i], sizeof first);
        in[5] = test_view(first, HT_I32, 1, &n);
        const ht_state_scan_params p = {0};
        assert_int_equal(test_run(beside_device[GPU], HT_OP_STATE_SCAN_ROWS, &p, 6, in, &to, NULL, &ours),
                         HT_ERR_ARGUMENT);
        assert_int_equal(test_run(beside_device[CPU], HT_OP_STATE_SCAN_ROWS, &p, 6, in, &to, NULL, &theirs),
                         HT_ERR_ARGUMENT);
        assert_string_equal(ours.message, theirs.message);
    }
    free(t.rows);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(short_convolutions),     cmocka_unit_test(scans),
        cmocka_unit_test(many_sequences),         cmocka_unit_test(states_that_are_missing),
        cmocka_unit_test(keys_that_are_too_wide), cmocka_unit_test(sequences_that_are_not_adjacent),
    };
    return cmocka_run_group_tests(tests, beside_open, beside_close);
}
