#include "support/lora_steps.h"

#include "base/checked.h"
#include "support/test.h"
#include "support/weights.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* Random values, and NaN where kernels may read but must not use what they read. */
static void *values_on(ht_device *d, int64_t n, uint64_t *seed, size_t *bytes) {
    float *x = test_random_floats(n + HT_LORA_SPARE, 1, seed);
    *bytes = (size_t)(n + HT_LORA_SPARE) * sizeof *x;
    for (int64_t i = n; i < n + HT_LORA_SPARE; i++) x[i] = NAN;
    void *there = test_room_on(d, *bytes);
    assert_int_equal(ht_memory_write(d->memory, there, x, *bytes, NULL), HT_OK);
    free(x);
    return there;
}

void adapters_make(adapters *f, ht_device *d, const lora_shape *s) {
    uint64_t seed = 3;
    const int64_t rank[LORA_PAIRS] = {s->rank, ht_max_i64(1, s->rank / 2), s->rank + 3},
                  n = ht_max_i64(1, s->n_experts);
    *f = (adapters){.d = d, .s = *s};
    if (f->s.x_step == 0) f->s.x_step = 1;
    for (int i = 0; i < LORA_PAIRS; i++) {
        const int64_t of_a = s->head_rows ? (s->transposed ? s->n_out : s->n_in) : n * s->n_in,
                      of_b = n * (s->head_rows ? s->head_rows : s->n_out);
        const float *a = f->values[i][0] = values_on(d, rank[i] * of_a, &seed, &f->bytes[i][0]),
                    *b = f->values[i][1] = values_on(d, rank[i] * of_b, &seed, &f->bytes[i][1]);
        f->pair[i] = (ht_lora_pair){.n_experts = s->head_rows ? 0 : s->n_experts,
                                    .rank = rank[i],
                                    .n_in = s->head_rows ? of_a : s->n_in,
                                    .n_out = s->head_rows ? of_b : s->n_out};
        if (s->transposed)
            f->pair[i].a_rows = a, f->pair[i].b_rows = b;
        else
            f->pair[i].a = a, f->pair[i].b = b;
    }
    f->use[0][LORA_PROJECTION] = f->use[3][LORA_PROJECTION] = (ht_lora_use){&f->pair[0], 0.75f};
    f->use[1][2 * LORA_PROJECTION] = (ht_lora_use){&f->pair[1], -1.5f};
    f->use[1][2 * LORA_PROJECTION + 1] = (ht_lora_use){&f->pair[2], 0.3f};
    f->use[2][0] = (ht_lora_use){&f->pair[2], 1}; /* at the other projection */
    for (int i = 0; i < LORA_SETS; i++) f->set[i] = (ht_lora_set){i == 1 ? 2 : 1, f->use[i]};
}

void adapters_free(adapters *f) {
    for (int i = 0; i < LORA_PAIRS; i++)
        for (int k = 0; k < 2; k++) test_room_free(f->d, f->values[i][k], f->bytes[i][k]);
}

const sequences lora_mixes[LORA_MIXES] = {
    {1, {1}, {0}, false},
    {1, {2}, {1}, true},
    {7, {1, 1, 1, 1, 1, 1, 1}, {0, 3, -1, 1, 2, -1, 0}, false},
    {5, {3, 40, 1, 70, 2}, {-1, 0, 1, 3, 2}, false},
    {4, {9, 2, 31, 1}, {1, -1, 0, 3}, true},
};

int sequence_of(const sequences *q, int64_t row) {
    int s = 0;
    for (int64_t token = q->asked ? 2 * row + 1 : row; token >= q->rows[s]; s++) token -= q->rows[s];
    return s;
}

lora_data lora_data_make(const lora_shape *s, const sequences *q) {
    uint64_t seed = 11;
    lora_data v = {.x_row = s->n_in * ht_max_i64(1, s->x_step) + 5};
    for (int i = 0; i < q->n; i++) v.n += q->rows[i];
    if (q->asked) v.n /= 2;
    v.items = v.n * s->per_row;
    v.x = test_random_floats(v.items * v.x_row, 1, &seed);
    v.y = test_random_floats(v.items * s->n_out, 1, &seed);
    v.ids = test_room((size_t)v.items * sizeof *v.ids);
    for (int64_t i = 0; i < v.items; i++)
        v.ids[i] = s->n_experts ? (int32_t)(test_random(&seed) % (uint32_t)s->n_experts) : 0;
    return v;
}

void lora_data_free(lora_data *v) { free(v->x), free(v->y), free(v->ids); }

ht_status lora_run(const adapters *f, const sequences *q, const lora_data *v, float *out, ht_error *err) {
    const lora_shape *s = &f->s;
    int32_t start[MOST_SEQUENCES + 1] = {0}, *out_row = test_room((size_t)v->n * sizeof *out_row);
    const ht_lora_set *lora[MOST_SEQUENCES];
    for (int i = 0; i < q->n; i++) {
        start[i + 1] = start[i] + q->rows[i];
        lora[i] = q->set[i] < 0 ? NULL : &f->set[q->set[i]];
    }
    for (int32_t i = 0; i < v->n; i++) out_row[i] = q->asked ? 2 * i + 1 : i;
    const ht_batch batch = {
        .n_tok = start[q->n], .n_seq = q->n, .n_out = (int32_t)v->n, .seq_start = start, .out_row = out_row};
    const ht_step step = {.batch = &batch, .lora = lora};
    const ht_lora_params p = {LORA_PROJECTION, s->n_experts, s->head_rows, s->first_row, s->transposed};
    const int64_t m = s->per_row, n = v->n;
    ht_view in[3] = {test_view(v->y, HT_F32, 2, (int64_t[]){n, s->n_out}),
                     {v->x, HT_F32, 2, {n, s->n_in}, {v->x_row, s->x_step}},
                     test_absent()};
    if (s->n_experts) {
        in[0] = test_view(v->y, HT_F32, 3, (int64_t[]){n, m, s->n_out});
        if (s->x_of_items) in[1] = (ht_view){v->x, HT_F32, 3, {n, m, s->n_in}, {m * v->x_row, v->x_row, s->x_step}};
        in[2] = test_view(v->ids, HT_I32, 2, (int64_t[]){n, m});
    }
    ht_view to = in[0];
    to.data = out;
    const ht_status status = test_run(f->d, HT_OP_LORA, &p, 3, in, &to, &step, err);
    free(out_row);
    return status;
}

static void run_ok(const adapters *f, const sequences *q, const lora_data *v, float *out) {
    ht_error err = {0};
    if (lora_run(f, q, v, out, &err)) fail_msg("%s", err.message);
}

void lora_run_all(const adapters *f, const sequences *q, const lora_data *v, float *out) {
    const int64_t m = f->s.per_row, each = m * f->s.n_out;
    const size_t bytes = (size_t)each * sizeof *out, all = (size_t)v->n * bytes;
    float *y = test_room(ht_max_size(bytes, all));
    run_ok(f, q, v, out);
    for (int64_t row = 0; row < v->n; row++) {
        const int set = q->set[sequence_of(q, row)];
        const sequences alone = {1, {1}, {set}, false};
        const lora_data own = {
            1, m, v->x_row, v->x + row * (f->s.x_of_items ? m : 1) * v->x_row, v->y + row * each, v->ids + row * m};
        run_ok(f, &alone, &own, y);
        assert_memory_equal(y, out + row * each, bytes);
        if (set < 0 || set == 2) assert_memory_equal(y, own.y, bytes);
    }
    lora_data in_place = *v;
    memcpy(y, v->y, all);
    in_place.y = y;
    run_ok(f, q, &in_place, y);
    assert_memory_equal(y, out, all);
    free(y);
}

void expect_unknown_expert(ht_device *d) {
    adapters f;
    adapters_make(&f, d, &(lora_shape){8, 8, 2, 3, 2, false, 1, 0, 0, false});
    float x[64] = {0}, y[64] = {0}, out[64];
    int32_t ids[4] = {0, 2, 1, 3};
    ht_error err = {0};
    const sequences q = {1, {2}, {0}, false};
    assert_int_equal(lora_run(&f, &q, &(lora_data){2, 4, 13, x, y, ids}, out, &err), HT_ERR_ARGUMENT);
    assert_true(strcmp(err.message, "lora: expert index 3 is out of range in row 1, expected less than 3") == 0);
    adapters_free(&f);
}
