/* Recurrent layers, SHORT_CONV and STATE_SCAN: against naive forms in double, and bit for bit the same on every instruction
 * set and however the rows are cut into steps. The scan of flat rows and its gradient. */
#include "support/kernels.h"
#include "support/operands.h"
#include "support/test.h"
#include "support/weights.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { MOST = 3 /* sequences */, GUARD = 7 /* values of a state that are not the operation's, on either side */ };

typedef struct scan_case {
    const char *name;
    int64_t heads, key_heads, key_dim, value_dim;
    bool per_channel, rated;
    int step; /* elements between those of the last axes */
    int n_seq, length[MOST];
} scan_case;

static const scan_case cases[] = {
    {"Qwen3.5", 4, 2, 128, 128, false, true, 1, 2, {75, 3}},
    {"smaller keys", 4, 2, 64, 128, false, true, 1, 1, {40}},
    {"Kimi-Linear", 3, 3, 128, 128, true, true, 1, 1, {66}},
    {"Mamba-2", 8, 1, 128, 64, false, false, 1, 2, {70, 65}},
    {"odd sizes", 6, 3, 5, 7, false, true, 1, 3, {600, 1, 30}},
    {"one vector and a tail", 2, 1, 33, 17, true, true, 2, 2, {130, 64}},
    {"tails", 4, 4, 9, 53, true, false, 1, 1, {90}},
    {"a tail of one", 2, 2, 16, 33, false, true, 3, 1, {20}},
    {"a vector", 2, 1, 1, 16, false, false, 2, 2, {9, 5}},
    {"one number", 1, 1, 1, 1, true, true, 1, 2, {70, 3}},
};

/* ---- rows ---- */

/* Where the operands begin in a row of one matrix of them all, in elements of which one of `step` is used. */
typedef struct row_layout {
    int64_t q, k, v, decay, rate, width;
} row_layout;

static row_layout layout_of(const scan_case *c) {
    row_layout l = {.q = 1};
    l.k = l.q + c->key_heads * c->key_dim;
    l.v = l.k + c->key_heads * c->key_dim;
    l.decay = l.v + c->heads * c->value_dim;
    l.rate = l.decay + c->heads * (c->per_channel ? c->key_dim : 1);
    l.width = l.rate + (c->rated ? c->heads : 0);
    return l;
}

/* Rows of one sequence, [length][width]. */
static float *random_rows(const scan_case *c, int length, uint64_t *seed) {
    const row_layout l = layout_of(c);
    float *x = test_random_floats(length * l.width, 1, seed);
    for (int64_t i = 0; i < length * l.width; i++) {
        const int64_t at = i % l.width;
        if (at < l.v) x[i] *= 1.7f / sqrtf((float)c->key_dim);
        if (at >= l.decay) x[i] = fabsf(x[i]);
        if (at >= l.decay && at < l.rate) x[i] = 1 - x[i] * x[i];
    }
    return x;
}

static ht_view part_of(float *rows, int64_t n_rows, int64_t width, int64_t at, int step, int n_dims, int64_t heads,
                       int64_t n) {
    ht_view v = {.data = rows + at * step, .dtype = HT_F32, .n_dims = n_dims, .shape = {n_rows, heads, n}};
    v.stride[0] = width * step;
    v.stride[1] = n * step;
    v.stride[2] = step;
    return v;
}

/* Views of the operands in rows whose elements are `step` apart. */
static void views_of(const scan_case *c, float *rows, int64_t n, ht_view in[5]) {
    const row_layout l = layout_of(c);
    in[0] = part_of(rows, n, l.width, l.q, c->step, 3, c->key_heads, c->key_dim);
    in[1] = part_of(rows, n, l.width, l.k, c->step, 3, c->key_heads, c->key_dim);
    in[2] = part_of(rows, n, l.width, l.v, c->step, 3, c->heads, c->value_dim);
    in[3] =
        part_of(rows, n, l.width, l.decay, c->step, c->per_channel ? 3 : 2, c->heads, c->per_channel ? c->key_dim : 1);
    in[4] = c->rated ? part_of(rows, n, l.width, l.rate, c->step, 2, c->heads, 1) : test_absent();
}

/* `n` rows of a sequence, spread to `step`, to memory of the size of the rows. */
static void spread(const scan_case *c, const float *rows, int64_t n, float *to) {
    for (int64_t i = 0; i < n * layout_of(c).width; i++) to[i * c->step] = rows[i];
}

/* ---- the naive form ---- */

static int64_t key_head_of(const scan_case *c, int64_t h) { return h / (c->heads / c->key_heads); }

/* out [n, heads, value_dim] and the state after n rows, from a state of zeros. `rows` as in one sequence, in double. */
static void naive(const scan_case *c, const double *rows, int64_t n, double *out, double *state) {
    const row_layout l = layout_of(c);
    memset(state, 0, (size_t)(c->heads * c->key_dim * c->value_dim) * sizeof *state);
    for (int64_t t = 0; t < n; t++)
        for (int64_t h = 0; h < c->heads; h++) {
            const double *row = rows + t * l.width, *q = row + l.q + key_head_of(c, h) * c->key_dim;
            const double *k = row + l.k + key_head_of(c, h) * c->key_dim, *v = row + l.v + h * c->value_dim;
            double *s = state + h * c->key_dim * c->value_dim, *y = out + (t * c->heads + h) * c->value_dim;
            for (int64_t j = 0; j < c->value_dim; j++) {
                double d = v[j];
                y[j] = 0;
                for (int64_t i = 0; i < c->key_dim; i++) {
                    s[i * c->value_dim + j] *= row[l.decay + (c->per_channel ? h * c->key_dim + i : h)];
                    if (c->rated) d -= s[i * c->value_dim + j] * k[i];
                }
                if (c->rated) d *= row[l.rate + h];
                for (int64_t i = 0; i < c->key_dim; i++) {
                    s[i * c->value_dim + j] += k[i] * d;
                    y[j] += s[i * c->value_dim + j] * q[i];
                }
            }
        }
}

static double *doubles(const float *x, int64_t n) {
    double *y = test_room((size_t)n * sizeof *y);
    for (int64_t i = 0; x && i < n; i++) y[i] = (double)x[i];
    return y;
}

static void expect_close(const char *name, const char *what, const float *got, const double *want, int64_t n) {
    for (int64_t i = 0; i < n; i++)
        if (!(fabs((double)got[i] - want[i]) <= 2e-5 * fmax(1, fabs(want[i]))))
            fail_msg("%s: %s %lld is %g, not %g", name, what, (long long)i, (double)got[i], want[i]);
}

/* ---- steps ---- */

/* Sequences whose rows go through the steps of a cache layer, and their results. */
typedef struct sequences {
    int n_seq;
    const int *length;
    int64_t width, n_out;       /* of a row, of a row's result */
    int64_t parts, part, state; /* a state: `parts` times `part` values, each with guards; values in all */
    float *rows[MOST], *out[MOST];
    float *page[MOST][2];
} sequences;

/* Runs an operation of views of a step's rows, to rows of a result. */
typedef void run_fn(ht_device *d, const void *c, float *rows, int64_t n, float *out, const ht_step *step);

static void states_make(sequences *s) {
    for (int i = 0; i < s->n_seq; i++) {
        s->out[i] = test_room((size_t)(s->length[i] * s->n_out) * sizeof(float));
        for (int p = 0; p < 2; p++) {
            s->page[i][p] = test_room((size_t)s->state * sizeof(float));
            memset(s->page[i][p], p ? 0xff : 0, (size_t)s->state * sizeof(float));
        }
    }
}

static void states_free(sequences *s) {
    for (int i = 0; i < s->n_seq; i++) free(s->out[i]), free(s->page[i][0]), free(s->page[i][1]);
}

/* Rows begin[i] .. end[i] - 1 of each sequence i. With `together`, of sequences without rows, too, and the cache has as many
 * layers as do not fit the processor's. */
static void run_step(ht_device *d, sequences *s, run_fn *run, const void *c, const int *begin, const int *end,
                     bool together) {
    ht_kv_page page[MOST][2];
    ht_kv_page *pages[MOST][2];
    ht_kv_layer layer[MOST];
    ht_cache cache[MOST], *kv[MOST];
    int32_t start[MOST + 1] = {0}, which[MOST], n = 0;
    for (int i = 0; i < s->n_seq; i++) {
        if (begin[i] == end[i] && !together) continue;
        for (int p = 0; p < 2; p++) {
            page[n][p] = (ht_kv_page){.refs = 1, .data = s->page[i][p]};
            pages[n][p] = &page[n][p];
        }
        layer[n] = (ht_kv_layer){.shape = {.state = s->state}, .n_pages = 2, .pages = pages[n]};
        cache[n] = (ht_cache){.n_layers = together ? 1 << 20 : 1, .layer = &layer[n]};
        kv[n] = &cache[n];
        start[n + 1] = start[n] + end[i] - begin[i];
        which[n++] = i;
    }
    if (n == 0 || start[n] == 0) return;
    float *rows = test_room((size_t)(start[n] * s->width) * sizeof *rows);
    float *out = test_room((size_t)(start[n] * s->n_out) * sizeof *out);
    for (int i = 0; i < n; i++)
        memcpy(rows + start[i] * s->width, s->rows[which[i]] + begin[which[i]] * s->width,
               (size_t)((start[i + 1] - start[i]) * s->width) * sizeof *rows);
    const ht_batch batch = {.n_tok = start[n], .n_seq = n, .seq_start = start};
    run(d, c, rows, start[n], out, &(ht_step){.batch = &batch, .kv = kv});
    for (int i = 0; i < n; i++) {
        float *before = s->page[which[i]][0];
        memcpy(s->out[which[i]] + begin[which[i]] * s->n_out, out + start[i] * s->n_out,
               (size_t)((start[i + 1] - start[i]) * s->n_out) * sizeof *out);
        s->page[which[i]][0] = s->page[which[i]][1];
        s->page[which[i]][1] = before;
    }
    free(rows), free(out);
}

/* All rows, `chunk` of a sequence at a time, of all sequences in one step or one sequence after another. */
static void run_steps(ht_device *d, sequences *s, run_fn *run, const void *c, int chunk, bool together) {
    for (int turn = 0; turn < (together ? 1 : s->n_seq); turn++) {
        int begin[MOST] = {0}, end[MOST] = {0};
        for (bool more = true; more;) {
            more = false;
            for (int i = 0; i < s->n_seq; i++) {
                if (!together && i != turn) continue;
                begin[i] = end[i];
                end[i] = end[i] + chunk < s->length[i] ? end[i] + chunk : s->length[i];
                more |= end[i] < s->length[i];
            }
            run_step(d, s, run, c, begin, end, together);
        }
    }
}

/* Both NaN, or the same bits. */
static void expect_same(const char *name, const char *isa, const float *want, const float *got, int64_t n) {
    for (int64_t i = 0; i < n; i++)
        if (!test_alike(HT_F32, want, got, i, 0))
            fail_msg("%s, %s: element %lld is %a, not %a", name, isa, (long long)i, (double)got[i], (double)want[i]);
}

/* Values around the parts of a state are as states_make left them. */
static void expect_guards(const char *name, const sequences *s, const float *page) {
    const unsigned char *bytes = (const unsigned char *)page;
    const size_t guard = GUARD * sizeof *page, part = (size_t)(s->part + 2 * GUARD) * sizeof *page;
    for (size_t p = 0; p < (size_t)s->parts; p++)
        for (size_t i = 0; i < guard; i++) {
            const unsigned char before = bytes[p * part + i], behind = bytes[(p + 1) * part - guard + i];
            if ((before != 0 && before != 0xff) || before != *bytes || behind != *bytes)
                fail_msg("%s: values around the state are written", name);
        }
}

/* The same outputs and states on every device, with 1 to 4 threads and however cut; those of the first device are left in
 * *s. */
static void run_all_ways(const char *name, sequences *s, run_fn *run, const void *c) {
    static const int chunks[] = {512, 1, 7, 64};
    bool first = true;
    for (int threads = 1; threads <= 4; threads++) {
        ht_device *devices[TEST_MAX_DEVICES];
        const int n = test_devices(threads, devices);
        for (int d = 0; d < n; d++)
            for (int k = 0; k < 4; k++)
                for (int together = 0; together < 2; together++) {
                    if (!first && !test_takes(threads + d + k + together, TEST_SLOW ? 12 : 3)) continue;
                    sequences other = *s;
                    states_make(&other);
                    run_steps(devices[d], &other, run, c, chunks[k], together);
                    for (int i = 0; i < s->n_seq && !first; i++) {
                        expect_same(name, devices[d]->instruction_set, s->out[i], other.out[i],
                                    s->length[i] * s->n_out);
                        for (int64_t p = 0, at = GUARD; p < s->parts; p++, at += s->part + 2 * GUARD)
                            expect_same(name, devices[d]->instruction_set, s->page[i][0] + at, other.page[i][0] + at,
                                        s->part);
                    }
                    for (int i = 0; i < s->n_seq; i++) {
                        expect_guards(name, s, other.page[i][0]);
                        expect_guards(name, s, other.page[i][1]);
                    }
                    if (first)
                        *s = other;
                    else
                        states_free(&other);
                    first = false;
                }
    }
}

/* ---- scans ---- */

static void run_scan(ht_device *d, const void *of, float *rows, int64_t n, float *out, const ht_step *step) {
    const scan_case *c = of;
    ht_view in[5];
    views_of(c, rows, n, in);
    const ht_view to = test_view(out, HT_F32, 3, (int64_t[]){n, c->heads, c->value_dim});
    test_run_ok(d, HT_OP_STATE_SCAN, &(ht_state_scan_params){0, GUARD}, 5, in, &to, step);
}

static sequences sequences_of(const scan_case *c) {
    return (sequences){.n_seq = c->n_seq,
                       .length = c->length,
                       .width = layout_of(c).width * c->step,
                       .n_out = c->heads * c->value_dim,
                       .parts = 1,
                       .part = c->heads * c->key_dim * c->value_dim,
                       .state = c->heads * c->key_dim * c->value_dim + 2 * GUARD};
}

/* Random rows for all sequences; packed[i]: the same, of step 1. */
static void fill(const scan_case *c, sequences *s, float *packed[MOST], uint64_t *seed) {
    for (int i = 0; i < c->n_seq; i++) {
        packed[i] = random_rows(c, c->length[i], seed);
        s->rows[i] = test_random_floats(c->length[i] * s->width, 9, seed);
        spread(c, packed[i], c->length[i], s->rows[i]);
    }
}

/* The rows of all sequences as flat rows. */
typedef struct flat_rows {
    int64_t n;
    float *x;
    int32_t *first;
    ht_view in[7];
    ht_state_scan_params params;
} flat_rows;

static flat_rows flatten(const scan_case *c, const sequences *s) {
    flat_rows f = {.params = {0}};
    for (int i = 0; i < s->n_seq; i++) f.n += s->length[i];
    f.x = test_room((size_t)(f.n * s->width) * sizeof *f.x);
    f.first = test_room((size_t)f.n * sizeof *f.first);
    int64_t at = 0;
    for (int i = 0; i < s->n_seq; at += s->length[i++]) {
        memcpy(f.x + at * s->width, s->rows[i], (size_t)(s->length[i] * s->width) * sizeof *f.x);
        for (int r = 0; r < s->length[i]; r++) f.first[at + r] = (int32_t)at;
    }
    views_of(c, f.x, f.n, f.in);
    f.in[5] = test_view(f.first, HT_I32, 1, &f.n);
    return f;
}

/* The scan of flat rows of all sequences has the bits of that with a cache. */
static void expect_rows(const scan_case *c, const sequences *s) {
    flat_rows f = flatten(c, s);
    float *y = test_room((size_t)(f.n * s->n_out) * sizeof *y);
    const ht_view to = test_view(y, HT_F32, 3, (int64_t[]){f.n, c->heads, c->value_dim});
    for (int threads = 1; threads < 4; threads += 2) {
        ht_device *devices[TEST_MAX_DEVICES];
        const int n = test_devices(threads, devices);
        for (int d = 0; d < n; d++) {
            test_run_ok(devices[d], HT_OP_STATE_SCAN_ROWS, &f.params, 6, f.in, &to, NULL);
            const float *at = y;
            for (int i = 0; i < s->n_seq; at += s->length[i++] * s->n_out)
                expect_same(c->name, devices[d]->instruction_set, s->out[i], at, s->length[i] * s->n_out);
        }
    }
    free(y), free(f.x), free(f.first);
}

UNIT_TEST(scans_have_the_same_bits_however_cut) {
    uint64_t seed = 11;
    for (EACH(i, cases)) {
        if (!test_takes_today((int)i, 1)) continue; /* half of them on an emulator */
        const scan_case *c = &cases[i];
        sequences s = sequences_of(c);
        float *packed[MOST];
        fill(c, &s, packed, &seed);
        run_all_ways(c->name, &s, run_scan, c);
        expect_rows(c, &s);
        for (int q = 0; q < c->n_seq; q++) {
            const int64_t n_state = s.state - 2 * GUARD;
            double *out = doubles(NULL, c->length[q] * s.n_out), *last = doubles(NULL, n_state);
            double *rows = doubles(packed[q], c->length[q] * layout_of(c).width);
            naive(c, rows, c->length[q], out, last);
            expect_close(c->name, "output", s.out[q], out, c->length[q] * s.n_out);
            expect_close(c->name, "state", s.page[q][0] + GUARD, last, n_state);
            free(out), free(last), free(rows), free(packed[q]), free(s.rows[q]);
        }
        states_free(&s);
    }
}

/* Decays and rates of 0 and 1, and infinities and NaN in one head, which reach no other one. */
UNIT_TEST(extremes_stay_in_their_head) {
    static const float extremes[] = {INFINITY, -INFINITY, NAN, 3e38F, 1e-40F};
    static const scan_case with = {"extremes", 4, 4, 20, 40, false, true, 1, 2, {70, 9}};
    static const scan_case without = {"extremes, no rate", 4, 4, 20, 40, true, false, 1, 1, {70}};
    for (int of = 0; of < 2; of++) {
        const scan_case *c = of ? &without : &with;
        const row_layout l = layout_of(c);
        uint64_t seed = 3;
        sequences s = sequences_of(c), other = s;
        float *packed[MOST];
        fill(c, &s, packed, &seed);
        for (int q = 0; q < c->n_seq; q++) {
            other.rows[q] = test_room((size_t)(c->length[q] * s.width) * sizeof(float));
            for (int64_t i = 0; i < c->length[q] * l.width; i++) {
                const int64_t at = i % l.width;
                if (at >= l.decay && test_random(&seed) % 3 == 0) s.rows[q][i] = (float)(test_random(&seed) % 2);
            }
            memcpy(other.rows[q], s.rows[q], (size_t)(c->length[q] * s.width) * sizeof(float));
            for (int k = 0; k < 5; k++) { /* of head 1: q, k, v and decay in some row each */
                float *row = other.rows[q] + test_random(&seed) % (uint32_t)c->length[q] * l.width;
                row[k == 4 ? l.decay + (c->per_channel ? c->key_dim + 3 : 1)
                           : (k == 0   ? l.q
                              : k == 1 ? l.k
                                       : l.v) +
                                 (k > 1 ? c->value_dim : c->key_dim) + 3] = extremes[k];
            }
        }
        run_all_ways(c->name, &s, run_scan, c);
        run_all_ways(c->name, &other, run_scan, c);
        bool differs = false;
        for (int q = 0; q < c->n_seq; q++) {
            for (int64_t i = 0; i < c->length[q] * s.n_out; i += c->value_dim)
                if (i / c->value_dim % c->heads != 1)
                    assert_memory_equal(s.out[q] + i, other.out[q] + i, (size_t)c->value_dim * sizeof(float));
                else
                    differs |= memcmp(s.out[q] + i, other.out[q] + i, (size_t)c->value_dim * sizeof(float)) != 0;
            free(packed[q]), free(s.rows[q]), free(other.rows[q]);
        }
        assert_true(differs);
        states_free(&s), states_free(&other);
    }
}

UNIT_TEST(wrong_states_and_rows_are_errors) {
    float x[64] = {0}, y[16], numbers[2][8] = {{0}};
    ht_kv_page page[2] = {{.refs = 1, .data = numbers[0]}, {.refs = 1, .data = numbers[1]}};
    ht_kv_layer layer = {.pages = (ht_kv_page *[]){&page[0], &page[1]}};
    ht_cache cache = {.n_layers = 1, .layer = &layer};
    const ht_batch batch = {.n_tok = 2, .n_seq = 1, .seq_start = (int32_t[]){0, 2}};
    const ht_step step = {.batch = &batch, .kv = (ht_cache *[]){&cache}};
    const ht_view keys = test_view(x, HT_F32, 3, (int64_t[]){2, 1, 4}),
                  rows = test_view(x, HT_F32, 2, (int64_t[]){2, 1}),
                  of_values = test_view(x, HT_F32, 3, (int64_t[]){2, 1, 2}),
                  out = test_view(y, HT_F32, 3, of_values.shape);
    const ht_view in[6] = {keys, keys, of_values, rows, rows, test_absent()};
    ht_device *devices[TEST_MAX_DEVICES];
    const int n = test_devices(1, devices);
    for (int d = 0; d < n; d++) {
        for (int pages = 1; pages <= 2; pages++) { /* one page, and then a state that is too small */
            const ht_state_scan_params p = {.first = pages == 2 ? 1 : 0};
            layer.n_pages = pages;
            layer.shape.state = 8;
            assert_fails(HT_ERR_INTERNAL, "cache layer 0 has", test_run, devices[d], HT_OP_STATE_SCAN, &p, 5, in, &out,
                         &step);
        }
        static const int32_t wrong[][2] = {{0, 2}, {1, 1}, {0, -1}, {-1, -1}};
        for (EACH(k, wrong)) {
            ht_view flat[7];
            memcpy(flat, in, sizeof in);
            flat[5] = test_view((void *)(uintptr_t)wrong[k], HT_I32, 1, (int64_t[]){2});
            flat[6] = of_values;
            const ht_view all = test_view(x, HT_F32, 1, (int64_t[]){24});
            const ht_state_scan_params p = {0};
            assert_fails(HT_ERR_ARGUMENT, "begins at row", test_run, devices[d], HT_OP_STATE_SCAN_ROWS, &p, 6, flat,
                         &out, NULL);
            assert_fails(HT_ERR_ARGUMENT, "begins at row", test_run, devices[d], HT_OP_STATE_SCAN_ROWS_GRAD, &p, 7,
                         flat, &all, NULL);
        }
    }
}

/* ---- convolutions ---- */

typedef struct conv_case {
    const char *name;
    int64_t n, taps;
    bool bias;
    int step, n_seq, length[MOST];
    float *w, *b; /* [taps][n], so that the weights are a transposed view; [n] */
} conv_case;

static void run_conv(ht_device *d, const void *of, float *rows, int64_t n, float *out, const ht_step *step) {
    const conv_case *c = of;
    ht_view in[3] = {test_view(rows, HT_F32, 2, (int64_t[]){n, c->n}),
                     test_view(c->w, HT_F32, 2, (int64_t[]){c->n, c->taps}),
                     c->bias ? test_view(c->b, HT_F32, 1, &c->n) : test_absent()};
    in[0].stride[0] = c->n * c->step;
    in[0].stride[1] = c->step;
    in[1].stride[0] = 1;
    in[1].stride[1] = c->n;
    const ht_view to = test_view(out, HT_F32, 2, (int64_t[]){n, c->n});
    test_run_ok(d, HT_OP_SHORT_CONV, &(ht_short_conv_params){0, GUARD, c->n + 2 * GUARD}, 3, in, &to, step);
}

/* The state has channels before and behind those of the convolution, which are another one's: they are left alone. */
UNIT_TEST(convolutions_have_the_same_bits_however_cut) {
    conv_case all[] = {{"LFM2", 96, 3, false, 1, 2, {70, 3}, NULL, NULL},
                       {"Qwen3.5", 600, 4, false, 1, 2, {66, 65}, NULL, NULL},
                       {"Mamba-2", 272, 4, true, 2, 1, {20}, NULL, NULL},
                       {"odd sizes", 21, 7, true, 1, 3, {530, 1, 8}, NULL, NULL},
                       {"one tap", 5, 1, true, 1, 1, {9}, NULL, NULL}};
    uint64_t seed = 2;
    for (EACH(i, all)) {
        conv_case *c = &all[i];
        c->w = test_random_floats(c->n * c->taps, 1, &seed);
        c->b = test_random_floats(c->n, 1, &seed);
        sequences s = {.n_seq = c->n_seq,
                       .length = c->length,
                       .width = c->n * c->step,
                       .n_out = c->n,
                       .parts = c->taps - 1,
                       .part = c->n,
                       .state = (c->taps - 1) * (c->n + 2 * GUARD)};
        for (int q = 0; q < c->n_seq; q++) s.rows[q] = test_random_floats(c->length[q] * s.width, 1, &seed);
        run_all_ways(c->name, &s, run_conv, c);
        for (int q = 0; q < c->n_seq; q++) {
            double *want = doubles(NULL, c->length[q] * c->n);
            for (int64_t k = 0; k < c->length[q] * c->n; k++) {
                const int64_t t = k / c->n, channel = k % c->n;
                want[k] = c->bias ? (double)c->b[channel] : 0;
                for (int64_t j = 0; j < c->taps; j++)
                    if (t - c->taps + 1 + j >= 0)
                        want[k] += (double)c->w[j * c->n + channel] *
                                   (double)s.rows[q][(t - c->taps + 1 + j) * s.width + channel * c->step];
            }
            expect_close(c->name, "output", s.out[q], want, c->length[q] * c->n);
            for (int64_t j = 0; j < c->taps - 1; j++)
                for (int64_t k = 0; k < c->n; k++) {
                    const int64_t t = c->length[q] - c->taps + 1 + j;
                    const float input = t < 0 ? 0 : s.rows[q][t * s.width + k * c->step];
                    assert_true(s.page[q][0][j * (c->n + 2 * GUARD) + GUARD + k] == input);
                }
            free(want), free(s.rows[q]);
        }
        states_free(&s);
        free(c->w), free(c->b);
    }
}

/* ---- gradients ---- */

/* Gradients of the vector kernels against those of the plain ones, which are in double; their bits are the same with any
 * number of threads on every instruction set. */
UNIT_TEST(gradients_have_the_same_bits) {
    uint64_t seed = 5;
    for (EACH(i, cases)) {
        if (!test_takes_today((int)i, 1)) continue; /* half of them on an emulator */
        const scan_case *c = &cases[i];
        sequences s = sequences_of(c);
        float *packed[MOST], *got[2] = {NULL, NULL};
        fill(c, &s, packed, &seed);
        flat_rows f = flatten(c, &s);
        float *grad = test_random_floats(f.n * s.n_out * c->step, 1, &seed);
        f.in[6] = part_of(grad, f.n, s.n_out, 0, c->step, 3, c->heads, c->value_dim);
        int64_t size = 0;
        for (int a = 0; a < 5; a++) size += ht_view_absent(&f.in[a]) ? 0 : ht_view_size(&f.in[a]);
        comparison gradient = {.op = HT_OP_STATE_SCAN_ROWS_GRAD,
                               .params = &f.params,
                               .n_in = 7,
                               .out = test_view(NULL, HT_F32, 1, &size),
                               .tolerance = 2e-4,
                               .what = c->name};
        memcpy(gradient.in, f.in, sizeof f.in);
        assert_int_equal(test_compare(&gradient), HT_OK);
        for (int k = 0; k < 2; k++) got[k] = test_room((size_t)size * sizeof(float));
        for (int threads = 1; threads <= 4; threads++) {
            ht_device *devices[TEST_MAX_DEVICES];
            const int n = test_devices(threads, devices);
            for (int d = 1; d < n; d++) {
                const bool begins = threads == 1 && d == 1;
                const ht_view to = test_view(got[begins ? 0 : 1], HT_F32, 1, &size);
                test_run_ok(devices[d], HT_OP_STATE_SCAN_ROWS_GRAD, &f.params, 7, f.in, &to, NULL);
                if (!begins) expect_same(c->name, devices[d]->instruction_set, got[0], got[1], size);
            }
        }
        for (int q = 0; q < c->n_seq; q++) free(packed[q]), free(s.rows[q]);
        free(got[0]), free(got[1]), free(grad), free(f.x), free(f.first);
    }
}

/* The sum of the naive result of all sequences, weighed. */
static double weighed(const scan_case *c, const double *rows, const double *weight) {
    double out[512], state[512], sum = 0;
    int64_t at = 0;
    for (int q = 0; q < c->n_seq; at += c->length[q++]) {
        assert_true(c->length[q] * c->heads * c->value_dim <= 512 && c->heads * c->key_dim * c->value_dim <= 512);
        naive(c, rows + at * layout_of(c).width, c->length[q], out, state);
        for (int64_t i = 0; i < c->length[q] * c->heads * c->value_dim; i++)
            sum += weight[at * c->heads * c->value_dim + i] * out[i];
    }
    return sum;
}

/* Element i of the concatenated gradients: where the number is in rows of `width`. */
static int64_t place_of(const scan_case *c, int64_t n, int64_t i) {
    const row_layout l = layout_of(c);
    const int64_t begin[] = {l.q, l.k, l.v, l.decay, l.rate, l.width};
    int part = 0;
    for (; i >= n * (begin[part + 1] - begin[part]); part++) i -= n * (begin[part + 1] - begin[part]);
    const int64_t per_row = begin[part + 1] - begin[part];
    return i / per_row * l.width + begin[part] + i % per_row;
}

/* Every gradient is a finite difference of the naive form. */
UNIT_TEST(gradients_are_those_of_the_naive_form) {
    static const scan_case small[] = {
        {"delta rule", 4, 2, 3, 5, false, true, 1, 2, {6, 3}},
        {"delta rule, shared keys, decay per channel", 4, 2, 3, 2, true, true, 1, 3, {5, 1, 4}},
        {"no rate", 6, 2, 2, 4, false, false, 1, 1, {9}},
        {"no rate, decay per channel", 2, 1, 5, 3, true, false, 1, 2, {7, 2}},
    };
    uint64_t seed = 7;
    for (EACH(i, small)) {
        const scan_case *c = &small[i];
        sequences s = sequences_of(c);
        float *packed[MOST];
        fill(c, &s, packed, &seed);
        flat_rows f = flatten(c, &s);
        float *grad = test_random_floats(f.n * s.n_out, 1, &seed);
        f.in[6] = test_view(grad, HT_F32, 3, (int64_t[]){f.n, c->heads, c->value_dim});
        const int64_t size = f.n * (s.width - 1);
        float *got = test_room((size_t)size * sizeof *got);
        double *rows = doubles(f.x, f.n * s.width), *weight = doubles(grad, f.n * s.n_out);
        ht_device *devices[TEST_MAX_DEVICES];
        const int n = test_devices(2, devices);
        const ht_view to = test_view(got, HT_F32, 1, &size);
        for (int d = 0; d < n; d++) {
            test_run_ok(devices[d], HT_OP_STATE_SCAN_ROWS_GRAD, &f.params, 7, f.in, &to, NULL);
            for (int64_t k = 0; k < size; k++) {
                double *x = &rows[place_of(c, f.n, k)], kept = *x;
                *x = kept + 1e-5;
                double slope = weighed(c, rows, weight);
                *x = kept - 1e-5;
                slope = (slope - weighed(c, rows, weight)) / 2e-5;
                *x = kept;
                if (!(fabs(slope - (double)got[k]) < 1e-5 * fmax(1, fabs(slope))))
                    fail_msg("%s, %s: gradient %lld is %g, not %g", c->name, devices[d]->instruction_set, (long long)k,
                             (double)got[k], slope);
            }
        }
        for (int q = 0; q < c->n_seq; q++) free(packed[q]), free(s.rows[q]);
        free(got), free(grad), free(rows), free(weight), free(f.x), free(f.first);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(scans_have_the_same_bits_however_cut),
        cmocka_unit_test(extremes_stay_in_their_head),
        cmocka_unit_test(wrong_states_and_rows_are_errors),
        cmocka_unit_test(convolutions_have_the_same_bits_however_cut),
        cmocka_unit_test(gradients_have_the_same_bits),
        cmocka_unit_test(gradients_are_those_of_the_naive_form),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
