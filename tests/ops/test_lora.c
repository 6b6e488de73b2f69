/* Adapters of a step against plain loops in f64, on every instruction set: odd sizes, experts, steps of sequences with and without
 * adapters. A row gets the same bits alone and beside others, on any number of threads; a row without adapters keeps its own. */
#include "base/checked.h"
#include "support/lora_steps.h"
#include "support/multiply.h"
#include "support/test.h"
#include "support/weights.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* One item in f64, and the sum of magnitudes, by which its error is measured. */
static void expect_item(const adapters *f, int set, int64_t expert, const float *x, const float *y, double *want,
                        double *size) {
    const lora_shape *s = &f->s;
    for (int64_t j = 0; j < s->n_out; j++) {
        want[j] = (double)y[j];
        size[j] = fabs(want[j]);
    }
    for (int i = 0; set >= 0 && i < f->set[set].n; i++) {
        const ht_lora_use *use = &f->set[set].use[LORA_PROJECTION * f->set[set].n + i];
        if (!use->pair) continue;
        const ht_lora_pair *p = use->pair;
        const int64_t row = expert * s->head_rows + s->first_row; /* of a head in B */
        for (int64_t r = 0; r < p->rank; r++) {
            double low = 0, sum = 0;
            for (int64_t k = 0; k < s->n_in; k++) {
                const float a = s->transposed  ? p->b_rows[(row + k) * p->rank + r]
                                : s->head_rows ? p->a[k * p->rank + r]
                                               : p->a[(expert * p->n_in + k) * p->rank + r];
                const double term = (double)x[k * s->x_step] * (double)a;
                low += term;
                sum += fabs(term);
            }
            for (int64_t j = 0; j < s->n_out; j++) {
                const float of_b = s->transposed  ? p->a_rows[r * s->n_out + j]
                                   : s->head_rows ? p->b[r * p->n_out + row + j]
                                                  : p->b[(expert * p->rank + r) * p->n_out + j];
                const double b = (double)use->scale * (double)of_b;
                want[j] += b * low;
                size[j] += fabs(b) * sum;
            }
        }
    }
}

static const float *x_of(const adapters *f, const lora_data *d, int64_t item) {
    return d->x + (f->s.x_of_items ? item : item / f->s.per_row) * d->x_row;
}

static void check_values(const adapters *f, const sequences *q, const lora_data *d, const float *got) {
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
    }
    free(want);
    free(size);
}

static void check(const lora_shape *s, const sequences *q) {
    lora_data d = lora_data_make(s, q);
    const size_t bytes = (size_t)(d.items * s->n_out) * sizeof(float);
    float *first = test_room(bytes), *again = test_room(bytes);
    ht_device *one[TEST_MAX_DEVICES], *three[TEST_MAX_DEVICES];
    const int n = test_devices(1, one);
    test_devices(3, three);
    for (int i = 0; i < n; i++) {
        adapters f;
        ht_error err = {0};
        adapters_make(&f, one[i], s);
        if (lora_run(&f, q, &d, first, &err)) fail_msg("%s", err.message);
        check_values(&f, q, &d, first);
        f.d = three[i]; /* whose memory is the same */
        lora_run_all(&f, q, &d, again);
        assert_memory_equal(again, first, bytes);
        adapters_free(&f);
    }
    free(first), free(again);
    lora_data_free(&d);
}

static void check_mixes(const lora_shape *s) {
    for (size_t i = 0; i < LORA_MIXES; i++) check(s, &lora_mixes[i]);
}

UNIT_TEST(dense_of_odd_sizes) {
    static const int64_t sizes[][2] = {{1, 1}, {7, 33}, {256, 16}, {257, 100}, {600, 47}};
    static const int64_t ranks[] = {1, 2, 8, 15, 16, 17, 33, 64, 70};
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++)
        for (size_t r = 0; r < sizeof ranks / sizeof *ranks; r++) {
            if (TEST_SLOW && (i + r) % 5) continue;
            check_mixes(&(lora_shape){.n_in = sizes[i][0], .n_out = sizes[i][1], .rank = ranks[r], .per_row = 1});
        }
}

UNIT_TEST(every_rank) {
    for (int64_t rank = 1; rank <= 70; rank += TEST_SLOW ? 23 : 1)
        check(&(lora_shape){.n_in = 65, .n_out = 50, .rank = rank, .per_row = 1}, &lora_mixes[3]);
}

/* More ranks than are taken at a time, and work that threads share. */
UNIT_TEST(large) {
    check(&(lora_shape){.n_in = 1030, .n_out = 520, .rank = 300, .per_row = 1}, &lora_mixes[0]);
    check(&(lora_shape){.n_in = 1030, .n_out = 520, .rank = 130, .per_row = 1}, &lora_mixes[4]);
    check(&(lora_shape){.n_in = 2100, .n_out = 1100, .rank = 50, .per_row = 1}, &(sequences){1, {2}, {1}, false});
}

UNIT_TEST(strided) { check_mixes(&(lora_shape){.n_in = 40, .n_out = 30, .rank = 5, .per_row = 1, .x_step = 3}); }

UNIT_TEST(experts) {
    static const int64_t ranks[] = {1, 8, 19};
    for (size_t r = 0; r < sizeof ranks / sizeof *ranks; r++) {
        check_mixes(&(lora_shape){.n_in = 64, .n_out = 33, .rank = ranks[r], .n_experts = 8, .per_row = 3});
        check_mixes(
            &(lora_shape){.n_in = 33, .n_out = 64, .rank = ranks[r], .n_experts = 5, .per_row = 2, .x_of_items = true});
    }
    check(&(lora_shape){.n_in = 700, .n_out = 640, .rank = 70, .n_experts = 2, .per_row = 1}, &lora_mixes[3]);
    check(&(lora_shape){.n_in = 300, .n_out = 64, .rank = 4, .n_experts = 1, .per_row = 1, .x_of_items = true},
          &lora_mixes[3]);
}

UNIT_TEST(heads_of_a_dense_pair) {
    static const int64_t ranks[] = {1, 8, 19};
    for (size_t r = 0; r < sizeof ranks / sizeof *ranks; r++) {
        const lora_shape values = {.n_in = 64,
                                   .n_out = 33,
                                   .rank = ranks[r],
                                   .n_experts = 3,
                                   .per_row = 3,
                                   .x_of_items = true,
                                   .head_rows = 57,
                                   .first_row = 24};
        lora_shape keys = values;
        keys.n_in = 24, keys.n_out = 64, keys.first_row = 0, keys.transposed = true;
        check_mixes(&values);
        check_mixes(&keys);
    }
}

UNIT_TEST(unknown_experts_are_refused) {
    ht_device *d[TEST_MAX_DEVICES];
    const int n = test_devices(1, d);
    for (int i = 0; i < n; i++) {
        ht_error err = {0};
        float x[8] = {0};
        expect_unknown_expert(d[i]);
        const ht_view v = test_view(x, HT_F32, 2, (int64_t[]){1, 8}), in[] = {v, v, test_absent()};
        assert_int_equal(
            test_run(d[i], HT_OP_LORA, &(ht_lora_params){.projection = LORA_PROJECTION}, 3, in, &v, NULL, &err),
            HT_ERR_INTERNAL);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(dense_of_odd_sizes),
        cmocka_unit_test(every_rank),
        cmocka_unit_test(large),
        cmocka_unit_test(strided),
        cmocka_unit_test(experts),
        cmocka_unit_test(heads_of_a_dense_pair),
        cmocka_unit_test(unknown_experts_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
