/* Adapters of a step against plain loops in f64, on every instruction set: odd sizes, experts, steps of sequences with and without
 * adapters. A row gets the same bits alone and beside others, on any number of threads; a row without adapters keeps its own. */
#include "base/checked.h"
#include "support/kernels.h"
#include "support/multiply.h"
#include "support/test.h"
#include "support/weights.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { N_PAIRS = 3, N_SETS = 4, N_PROJECTIONS = 2, PROJECTION = 1, MOST_SEQUENCES = 8 };

typedef struct shape {
    int64_t n_in, n_out, rank;
    int64_t n_experts, per_row; /* 0 and 1: dense */
    bool x_of_items;            /* of experts: x [T, m, k] */
    int64_t x_step;             /* stride of x within a row; 0: 1 */
} shape;

typedef struct pair_values {
    float *a, *b; /* transposed, exactly as long as kernels may read */
} pair_values;

typedef struct fixture {
    shape s;
    pair_values values[N_PAIRS];
    ht_lora_pair pair[N_PAIRS];
    ht_lora_use use[N_SETS][N_PROJECTIONS * 2];
    ht_lora_set set[N_SETS];
} fixture;

/* n random floats, and NaN where kernels may read but must not use what they read. */
static float *with_spare(int64_t n, uint64_t *seed) {
    float *x = malloc((size_t)(n + HT_LORA_SPARE) * sizeof *x);
    assert_non_null(x);
    for (int64_t i = 0; i < n + HT_LORA_SPARE; i++) x[i] = i < n ? test_random_float(seed) : NAN;
    return x;
}

/* Pairs of three ranks; sets of one adapter, of two, of one that leaves the projection alone, and the first once more. */
static void make(fixture *f, shape s) {
    uint64_t seed = 3;
    const int64_t rank[N_PAIRS] = {s.rank, ht_max_i64(1, s.rank / 2), s.rank + 3}, n = ht_max_i64(1, s.n_experts);
    *f = (fixture){.s = s};
    for (int i = 0; i < N_PAIRS; i++) {
        f->values[i] = (pair_values){with_spare(n * rank[i] * s.n_in, &seed), with_spare(n * rank[i] * s.n_out, &seed)};
        f->pair[i] = (ht_lora_pair){s.n_experts, rank[i], s.n_in, s.n_out, f->values[i].a, f->values[i].b};
    }
    f->use[0][PROJECTION] = f->use[3][PROJECTION] = (ht_lora_use){&f->pair[0], 0.75f};
    f->use[1][2 * PROJECTION] = (ht_lora_use){&f->pair[1], -1.5f};
    f->use[1][2 * PROJECTION + 1] = (ht_lora_use){&f->pair[2], 0.3f};
    f->use[2][0] = (ht_lora_use){&f->pair[2], 1}; /* at the other projection */
    for (int i = 0; i < N_SETS; i++) f->set[i] = (ht_lora_set){i == 1 ? 2 : 1, f->use[i]};
}

static void discard(fixture *f) {
    for (int i = 0; i < N_PAIRS; i++) {
        free(f->values[i].a);
        free(f->values[i].b);
    }
}

/* Sequences of a step, with the set of each; -1: none. `asked`: only every other row is an output row. */
typedef struct sequences {
    int n;
    int32_t rows[MOST_SEQUENCES];
    int set[MOST_SEQUENCES];
    bool asked;
} sequences;

static int32_t rows_of(const sequences *q) {
    int32_t n = 0;
    for (int i = 0; i < q->n; i++) n += q->rows[i];
    return n;
}

/* Sequence of row `row` of the kernel. */
static int sequence_of(const sequences *q, int64_t row) {
    int s = 0;
    for (int64_t token = q->asked ? 2 * row + 1 : row; token >= q->rows[s]; s++) token -= q->rows[s];
    return s;
}

/* Rows [0, n) of the step's kernel call, from values of the caller: y is overwritten when `out` is y. */
static void run(ht_device *d, const fixture *f, const sequences *q, int64_t n, float *x, float *y, int32_t *ids,
                float *out) {
    const shape *s = &f->s;
    int32_t start[MOST_SEQUENCES + 1] = {0}, *out_row = test_alloc((size_t)(n + 1) * sizeof *out_row);
    const ht_lora_set *lora[MOST_SEQUENCES];
    for (int i = 0; i < q->n; i++) {
        start[i + 1] = start[i] + q->rows[i];
        lora[i] = q->set[i] < 0 ? NULL : &f->set[q->set[i]];
    }
    for (int32_t i = 0; i < n; i++) out_row[i] = q->asked ? 2 * i + 1 : i;
    const ht_batch batch = {
        .n_tok = start[q->n], .n_seq = q->n, .n_out = (int32_t)n, .seq_start = start, .out_row = out_row};
    const ht_step step = {.batch = &batch, .lora = lora};
    const ht_lora_params p = {PROJECTION, s->n_experts};
    const int64_t x_step = s->x_step ? s->x_step : 1, x_row = s->n_in * x_step + 5, m = s->per_row;
    ht_view in[3] = {test_view(y, HT_F32, 2, (int64_t[]){n, s->n_out}),
                     {x, HT_F32, 2, {n, s->n_in}, {x_row, x_step}},
                     test_absent()};
    if (s->n_experts) {
        in[0] = test_view(y, HT_F32, 3, (int64_t[]){n, m, s->n_out});
        if (s->x_of_items) in[1] = (ht_view){x, HT_F32, 3, {n, m, s->n_in}, {m * x_row, x_row, x_step}};
        in[2] = test_view(ids, HT_I32, 2, (int64_t[]){n, m});
    }
    ht_view to = in[0];
    to.data = out;
    test_run_ok(d, HT_OP_LORA, &p, 3, in, &to, &step);
    free(out_row);
}

/* One item in f64, and the sum of magnitudes, by which its error is measured. */
static void expect_item(const fixture *f, int set, int64_t expert, const float *x, const float *y, double *want,
                        double *size) {
    const shape *s = &f->s;
    const int64_t step = s->x_step ? s->x_step : 1;
    for (int64_t j = 0; j < s->n_out; j++) {
        want[j] = (double)y[j];
        size[j] = fabs(want[j]);
    }
    for (int i = 0; set >= 0 && i < f->set[set].n; i++) {
        const ht_lora_use *use = &f->set[set].use[PROJECTION * f->set[set].n + i];
        if (!use->pair) continue;
        const ht_lora_pair *p = use->pair;
        for (int64_t r = 0; r < p->rank; r++) {
            double low = 0, sum = 0;
            for (int64_t k = 0; k < p->n_in; k++) {
                const double term = (double)x[k * step] * (double)p->a[(expert * p->n_in + k) * p->rank + r];
                low += term;
                sum += fabs(term);
            }
            for (int64_t j = 0; j < p->n_out; j++) {
                const double b = (double)use->scale * (double)p->b[(expert * p->rank + r) * p->n_out + j];
                want[j] += b * low;
                size[j] += fabs(b) * sum;
            }
        }
    }
}

typedef struct data {
    int64_t n, items, x_row; /* x_row: of an item, or of a row */
    float *x, *y;
    int32_t *ids;
} data;

static data make_data(const fixture *f, const sequences *q) {
    const shape *s = &f->s;
    uint64_t seed = 11;
    data d = {.n = q->asked ? rows_of(q) / 2 : rows_of(q), .x_row = s->n_in * (s->x_step ? s->x_step : 1) + 5};
    d.items = d.n * s->per_row;
    d.x = test_random_floats(d.items * d.x_row, 1, &seed);
    d.y = test_random_floats(d.items * s->n_out, 1, &seed);
    d.ids = test_alloc((size_t)(d.items + 1) * sizeof *d.ids);
    for (int64_t i = 0; i < d.items; i++)
        d.ids[i] = s->n_experts ? (int32_t)(test_random(&seed) % (uint32_t)s->n_experts) : 0;
    return d;
}

static const float *x_of(const fixture *f, const data *d, int64_t item) {
    return d->x + (f->s.x_of_items ? item : item / f->s.per_row) * d->x_row;
}

static void check_values(const fixture *f, const sequences *q, const data *d, const float *got) {
    const int64_t n = f->s.n_out;
    double *want = test_alloc((size_t)n * sizeof *want), *size = test_alloc((size_t)n * sizeof *size);
    for (int64_t i = 0; i < d->items; i++) {
        const int set = q->set[sequence_of(q, i / f->s.per_row)];
        expect_item(f, set, d->ids[i], x_of(f, d, i), d->y + i * n, want, size);
        for (int64_t j = 0; j < n; j++)
            if (fabs((double)got[i * n + j] - want[j]) > 3e-6 * size[j])
                fail_msg("[%lld, %lld] rank %lld: item %lld, column %lld is %g, expected %g", (long long)n,
                         (long long)f->s.n_in, (long long)f->s.rank, (long long)i, (long long)j, (double)got[i * n + j],
                         want[j]);
        if (set < 0 || set == 2) assert_memory_equal(got + i * n, d->y + i * n, (size_t)n * sizeof *got);
    }
    free(want);
    free(size);
}

/* Each row alone in its step has the bits of all together. */
static void check_alone(ht_device *device, const fixture *f, const sequences *q, const data *d, const float *together) {
    const shape *s = &f->s;
    const int64_t m = s->per_row, n = m * s->n_out;
    float *out = test_alloc((size_t)n * sizeof *out);
    for (int64_t row = 0; row < d->n; row++) {
        const sequences alone = {1, {1}, {q->set[sequence_of(q, row)]}, false};
        run(device, f, &alone, 1, d->x + row * (s->x_of_items ? m : 1) * d->x_row, d->y + row * n, d->ids + row * m,
            out);
        assert_memory_equal(out, together + row * n, (size_t)n * sizeof *out);
    }
    free(out);
}

static void check(const shape *s, const sequences *q) {
    fixture f;
    make(&f, *s);
    data d = make_data(&f, q);
    const size_t bytes = (size_t)(d.items * s->n_out) * sizeof(float);
    float *first = test_alloc(bytes), *again = test_alloc(bytes);
    ht_device *one[TEST_MAX_DEVICES], *three[TEST_MAX_DEVICES];
    const int n = test_devices(1, one);
    test_devices(3, three);
    for (int i = 0; i < n; i++) {
        run(one[i], &f, q, d.n, d.x, d.y, d.ids, first);
        check_values(&f, q, &d, first);
        check_alone(three[i], &f, q, &d, first);
        memcpy(again, d.y, bytes);
        run(three[i], &f, q, d.n, d.x, again, d.ids, again); /* in place */
        assert_memory_equal(again, first, bytes);
    }
    free(first);
    free(again);
    free(d.x);
    free(d.y);
    free(d.ids);
    discard(&f);
}

static const sequences mixes[] = {
    {1, {1}, {0}, false},
    {1, {2}, {1}, true},
    {7, {1, 1, 1, 1, 1, 1, 1}, {0, 3, -1, 1, 2, -1, 0}, false},
    {5, {3, 40, 1, 70, 2}, {-1, 0, 1, 3, 2}, false},
    {4, {9, 2, 31, 1}, {1, -1, 0, 3}, true},
};

static void check_mixes(const shape *s) {
    for (size_t i = 0; i < sizeof mixes / sizeof *mixes; i++) check(s, &mixes[i]);
}

UNIT_TEST(dense_of_odd_sizes) {
    static const int64_t sizes[][2] = {{1, 1}, {7, 33}, {256, 16}, {257, 100}, {600, 47}};
    static const int64_t ranks[] = {1, 2, 8, 15, 16, 17, 33, 64, 70};
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++)
        for (size_t r = 0; r < sizeof ranks / sizeof *ranks; r++) {
            if (TEST_SLOW && (i + r) % 5) continue;
            check_mixes(&(shape){.n_in = sizes[i][0], .n_out = sizes[i][1], .rank = ranks[r], .per_row = 1});
        }
}

UNIT_TEST(every_rank) {
    for (int64_t rank = 1; rank <= 70; rank += TEST_SLOW ? 23 : 1)
        check(&(shape){.n_in = 65, .n_out = 50, .rank = rank, .per_row = 1}, &mixes[3]);
}

/* More ranks than are taken at a time, and work that threads share. */
UNIT_TEST(large) {
    check(&(shape){.n_in = 1030, .n_out = 520, .rank = 300, .per_row = 1}, &mixes[0]);
    check(&(shape){.n_in = 1030, .n_out = 520, .rank = 130, .per_row = 1}, &mixes[4]);
    check(&(shape){.n_in = 2100, .n_out = 1100, .rank = 50, .per_row = 1}, &(sequences){1, {2}, {1}, false});
}

UNIT_TEST(strided) { check_mixes(&(shape){.n_in = 40, .n_out = 30, .rank = 5, .per_row = 1, .x_step = 3}); }

UNIT_TEST(experts) {
    static const int64_t ranks[] = {1, 8, 19};
    for (size_t r = 0; r < sizeof ranks / sizeof *ranks; r++) {
        check_mixes(&(shape){.n_in = 64, .n_out = 33, .rank = ranks[r], .n_experts = 8, .per_row = 3});
        check_mixes(
            &(shape){.n_in = 33, .n_out = 64, .rank = ranks[r], .n_experts = 5, .per_row = 2, .x_of_items = true});
    }
    check(&(shape){.n_in = 700, .n_out = 640, .rank = 70, .n_experts = 2, .per_row = 1}, &mixes[3]);
    check(&(shape){.n_in = 300, .n_out = 64, .rank = 4, .n_experts = 1, .per_row = 1, .x_of_items = true}, &mixes[3]);
}

UNIT_TEST(unknown_experts_are_refused) {
    fixture f;
    make(&f, (shape){.n_in = 8, .n_out = 8, .rank = 2, .n_experts = 4, .per_row = 1});
    float x[8] = {0}, y[8] = {0};
    int32_t id = 4, start[] = {0, 1}, out_row = 0;
    const ht_batch batch = {.n_tok = 1, .n_seq = 1, .n_out = 1, .seq_start = start, .out_row = &out_row};
    const ht_lora_set *lora[] = {&f.set[0]};
    const ht_view in[] = {test_view(y, HT_F32, 3, (int64_t[]){1, 1, 8}), test_view(x, HT_F32, 2, (int64_t[]){1, 8}),
                          test_view(&id, HT_I32, 2, (int64_t[]){1, 1})};
    ht_device *d[TEST_MAX_DEVICES];
    const int n = test_devices(1, d);
    for (int i = 0; i < n; i++) {
        ht_error err = {0};
        assert_int_equal(test_run(d[i], HT_OP_LORA, &(ht_lora_params){PROJECTION, 4}, 3, in, &in[0],
                                  &(ht_step){.batch = &batch, .lora = lora}, &err),
                         HT_ERR_ARGUMENT);
        assert_non_null(strstr(err.message, "expert index 4"));
        assert_int_equal(test_run(d[i], HT_OP_LORA, &(ht_lora_params){PROJECTION, 4}, 3, in, &in[0], NULL, &err),
                         HT_ERR_INTERNAL);
    }
    discard(&f);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(dense_of_odd_sizes),
        cmocka_unit_test(every_rank),
        cmocka_unit_test(large),
        cmocka_unit_test(strided),
        cmocka_unit_test(experts),
        cmocka_unit_test(unknown_experts_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
