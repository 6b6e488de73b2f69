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
    bool per_channel, rated, alternate;
    int step; /* elements between those of the last axes */
    int n_seq, length[MOST];
} scan_case;

static const scan_case cases[] = {
    {"Qwen3.5", 4, 2, 128, 128, false, true, false, 1, 2, {75, 3}},
    {"Qwen3.5 in a GGUF file", 4, 2, 64, 128, false, true, true, 1, 1, {40}},
    {"Kimi-Linear", 3, 3, 128, 128, true, true, false, 1, 1, {66}},
    {"Mamba-2", 8, 1, 128, 64, false, false, false, 1, 2, {70, 65}},
    {"odd sizes", 6, 3, 5, 7, false, true, true, 1, 3, {600, 1, 30}},
    {"one vector and a tail", 2, 1, 33, 17, true, true, false, 2, 2, {130, 64}},
    {"tails", 4, 4, 9, 53, true, false, false, 1, 1, {90}},
    {"a tail of one", 2, 2, 16, 33, false, true, false, 3, 1, {20}},
    {"a vector", 2, 1, 1, 16, false, false, true, 2, 2, {9, 5}},
    {"one number", 1, 1, 1, 1, true, true, false, 1, 2, {70, 3}},
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

static int64_t key_head_of(const scan_case *c, int64_t h) {
    return c->alternate ? h % c->key_heads : h / (c->heads / c->key_heads);
}

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
    int64_t width, n_out, state; /* of a row, of a row's result, values of a state */
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

/* Rows begin[i] .. end[i] - 1 of each sequence i. */
static void run_step(ht_device *d, sequences *s, run_fn *run, const void *c, const int *begin, const int *end) {
    ht_kv_page page[MOST][2];
    ht_kv_page *pages[MOST][2];
    ht_kv_layer layer[MOST];
    ht_cache cache[MOST], *kv[MOST];
    int32_t start[MOST + 1] = {0}, which[MOST], n = 0;
    for (int i = 0; i < s->n_seq; i++) {
        if (begin[i] == end[i]) continue;
        for (int p = 0; p < 2; p++) {
            page[n][p] = (ht_kv_page){.refs = 1, .data = s->page[i][p]};
            pages[n][p] = &page[n][p];
        }
        layer[n] = (ht_kv_layer){.shape = {.state = s->state}, .n_pages = 2, .pages = pages[n]};
        cache[n] = (ht_cache){.n_layers = 1, .layer = &layer[n]};
        kv[n] = &cache[n];
        start[n + 1] = start[n] + end[i] - begin[i];
        which[n++] = i;
    }
    if (n == 0) return;
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
            run_step(d, s, run, c, begin, end);
        }
    }
}

/* Both NaN, or the same bits. */
static void expect_same(const char *name, const char *isa, const float *want, const float *got, int64_t n) {
    for (int64_t i = 0; i < n; i++)
        if (!test_alike(HT_F32, want, got, i, 0))
            fail_msg("%s, %s: element %lld is %a, not %a", name, isa, (long long)i, (double)got[i], (double)want[i]);
}

/* Values around the operation's state are as states_make left them. */
static void expect_guards(const char *name, const float *page, int64_t n) {
    const unsigned char *bytes = (const unsigned char *)page, *end = (const unsigned char *)(page + n - GUARD);
    for (size_t i = 0; i < GUARD * sizeof *page; i++)
        if ((bytes[i] != 0 && bytes[i] != 0xff) || bytes[i] != *bytes || end[i] != *bytes)
            fail_msg("%s: values around the state are written", name);
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
                        expect_same(name, devices[d]->instruction_set, s->page[i][0] + GUARD, other.page[i][0] + GUARD,
                                    s->state - 2 * GUARD);
                    }
                    for (int i = 0; i < s->n_seq; i++) {
                        expect_guards(name, other.page[i][0], s->state);
                        expect_guards(name, other.page[i][1], s->state);
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
    test_run_ok(d, HT_OP_STATE_SCAN, &(ht_state_scan_params){0, c->alternate, GUARD}, 5, in, &to, step);
}

static sequences sequences_of(const scan_case *c) {
    return (sequences){.n_seq = c->n_seq,
                       .length = c->length,
                       .width = layout_of(c).width * c->step,
                       .n_out = c->heads * c->value_dim,
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

/* The scan of flat rows of all sequences has the bits of that with a cache. */
static void expect_rows(const scan_case *c, const sequences *s) {
    int64_t rows = 0;
    for (int i = 0; i < s->n_seq; i++) rows += s->length[i];
    float *x = test_room((size_t)(rows * s->width) * sizeof *x), *y = test_room((size_t)(rows * s->n_out) * sizeof *y);
    int32_t *first = test_room((size_t)rows * sizeof *first);
    rows = 0;
    for (int i = 0; i < s->n_seq; i++) {
        memcpy(x + rows * s->width, s->rows[i], (size_t)(s->length[i] * s->width) * sizeof *x);
        for (int r = 0; r < s->length[i]; r++) first[rows + r] = (int32_t)rows;
        rows += s->length[i];
    }
    ht_view in[6];
    views_of(c, x, rows, in);
    in[5] = test_view(first, HT_I32, 1, &rows);
    const ht_view to = test_view(y, HT_F32, 3, (int64_t[]){rows, c->heads, c->value_dim});
    for (int threads = 1; threads < 4; threads += 2) {
        ht_device *devices[TEST_MAX_DEVICES];
        const int n = test_devices(threads, devices);
        for (int d = 0; d < n; d++) {
            test_run_ok(devices[d], HT_OP_STATE_SCAN_ROWS, &(ht_state_scan_params){.keys_alternate = c->alternate}, 6,
                        in, &to, NULL);
            const float *at = y;
            for (int i = 0; i < s->n_seq; at += s->length[i++] * s->n_out)
                expect_same(c->name, devices[d]->instruction_set, s->out[i], at, s->length[i] * s->n_out);
        }
    }
    free(x), free(y), free(first);
}

UNIT_TEST(scans_have_the_same_bits_however_cut) {
    uint64_t seed = 11;
    for (EACH(i, cases)) {
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

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(scans_have_the_same_bits_however_cut),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
