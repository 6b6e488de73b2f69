/* Packed weights of every type on the CUDA device: their rows bit for bit, and all products with them against exact weights in f64,
 * the same bits however many rows are multiplied at once. Where there is no CUDA driver there is nothing to test. */
#include "array/array.h"
#include "array/op.h"
#include "device/params.h"
#include "formats/affine.h"
#include "models/pack.h"
#include "support/gpu.h"
#include "support/test.h"
#include "support/weights.h"

#include <hearth/hearth.h>

#include <math.h>
#include <string.h>

/* ---- matrices ---- */

typedef struct fixture {
    ht_matrix *m;
    float *dense; /* [n_rows, k] */
    bool exact;   /* products are in f32; else of f16 */
} fixture;

enum { SCALE_ROWS = 7 };

/* In blocks of parts that lanes load, or of others. */
static void scale_blocks(fixture *f, uint64_t *seed) {
    ht_error err = {0};
    const int64_t columns = f->m->k % 3 ? 16 : 20;
    const int64_t across = (f->m->k + columns - 1) / columns;
    const int64_t n = across * ((f->m->n_rows + SCALE_ROWS - 1) / SCALE_ROWS);
    float *scales = malloc((size_t)n * sizeof *scales);
    for (int64_t i = 0; i < n; i++) scales[i] = test_random_float(seed);
    must(ht_matrix_set_scales(f->m, scales, n, SCALE_ROWS, columns, &err), &err);
    for (int64_t r = 0; r < f->m->n_rows; r++)
        for (int64_t c = 0; c < f->m->k; c++)
            f->dense[r * f->m->k + c] *= scales[r / SCALE_ROWS * across + c / columns];
    free(scales);
}

static fixture make_for(ht_precision precision, ht_weight_type type, int64_t n_rows, int64_t k, uint64_t seed) {
    ht_error err = {0};
    fixture f = {.exact = precision == HT_PRECISION_REFERENCE || type == HT_W_F32};
    const ht_matrix_kind kind = {.precision = precision, .type = type, .n_rows = n_rows, .k = k};
    const size_t row = test_row_bytes(type, k), bytes = (size_t)n_rows * row;
    uint8_t *stored = malloc(bytes);
    f.dense = malloc((size_t)(n_rows * k) * sizeof *f.dense);
    test_random_weights(type, n_rows, k, &seed, stored);
    ht_dequantize(type, stored, n_rows * k, f.dense);
    must(ht_matrix_new(beside_device[GPU], &kind, "weights", &f.m, &err), &err);
    assert_true(f.m->packed_bytes <= bytes * 103 / 100 + 64);
    must(ht_memory_alloc(beside_device[GPU]->memory, f.m->packed_bytes, "weights", &f.m->packed, &err), &err);
    if (ht_weight_is_f8(type)) scale_blocks(&f, &seed);
    for (int64_t r = 0; r < n_rows; r += HT_MATRIX_SLAB) {
        const int64_t n = n_rows - r < HT_MATRIX_SLAB ? n_rows - r : HT_MATRIX_SLAB;
        must(f.m->ops->pack(f.m, r, n, stored + (size_t)r * row, &err), &err);
    }
    free(stored);
    return f;
}

static fixture make(ht_weight_type type, int64_t n_rows, int64_t k, uint64_t seed) {
    return make_for(HT_PRECISION_HIGH, type, n_rows, k, seed);
}

static void discard(fixture *f) {
    ht_memory_free(beside_device[GPU]->memory, f->m->packed, f->m->packed_bytes);
    ht_matrix_free(f->m);
    free(f->dense);
}

static const char *name_of(const fixture *f) { return ht_weight_type_info_of(f->m->type)->name; }

/* ---- comparing ---- */

static float *random_floats(int64_t n, uint64_t seed) {
    float *x = malloc((size_t)n * sizeof *x);
    for (int64_t i = 0; i < n; i++) x[i] = test_random_float(&seed);
    return x;
}

static float *read_floats(ht_scope *s, ht_array *a, int64_t n) {
    float *out = beside_read(s, a);
    assert_int_equal(ht_array_size(a), n);
    return out;
}

/* A sum of products in f64, and of their sizes. */
typedef struct exact {
    double sum, size;
} exact;

/* Of w, every `step`th. */
static void add_products(exact *e, const float *x, const float *w, int64_t n, int64_t step) {
    for (int64_t i = 0; i < n; i++) {
        const double product = (double)x[i] * (double)w[i * step];
        e->sum += product;
        e->size += fabs(product);
    }
}

/* A sum of products in f32 is within so many roundings of its terms, and within one of each factor where they are f16. */
static void expect_sum(const fixture *f, const char *what, float got, exact e, double tolerance) {
    if (!(fabs((double)got - e.sum) <= tolerance * e.size + 1e-30))
        fail_msg("%s %s: %.9g, expected %.9g", name_of(f), what, (double)got, e.sum);
}

/* Row i of y = x W^T. */
static void expect_row(const fixture *f, const float *x, const float *bias, const float *y) {
    const int64_t k = f->m->k;
    for (int64_t r = 0; r < f->m->n_rows; r++) {
        exact e = {bias ? (double)bias[r] : 0, bias ? fabs((double)bias[r]) : 0};
        add_products(&e, x, f->dense + r * k, k, 1);
        expect_sum(f, "linear", y[r], e, f->exact ? 2e-6 : 1e-3);
    }
}

static void expect_gradient(const fixture *f, const float *dy, const float *dx) {
    for (int64_t c = 0; c < f->m->k; c++) {
        exact e = {0};
        add_products(&e, dy, f->dense + c, f->m->n_rows, f->m->k);
        expect_sum(f, "linear_back", dx[c], e, 2e-6);
    }
}

/* ---- tests ---- */

static void check_rows(const fixture *f) {
    const int64_t n = f->m->n_rows, k = f->m->k;
    ht_error err = {0};
    float *row = malloc((size_t)k * sizeof *row);
    for (int64_t r = 0; r < n; r++) {
        must(f->m->ops->row(f->m, r, row, &err), &err);
        if (memcmp(row, f->dense + r * k, (size_t)k * sizeof *row) != 0)
            fail_msg("%s: row %lld of [%lld, %lld] differs", name_of(f), (long long)r, (long long)n, (long long)k);
    }
    free(row);
    const int32_t ids[3] = {(int32_t)n - 1, 0, (int32_t)(n / 2)};
    for (int scaled = 0; scaled < 2; scaled++) {
        ht_scope *s = ht_scope_new(beside_stream[GPU]);
        const ht_linear_params p = {f->m, scaled ? 0.25f : 1};
        ht_array *index = ht_array_from(s, ids, HT_I32, (int64_t[]){3}, 1);
        float *got = read_floats(s, ht_apply(s, HT_OP_EMBED, &p, &index, 1), 3 * k);
        for (int64_t i = 0; i < 3 * k; i++)
            if (got[i] != p.scale * f->dense[ids[i / k] * k + i % k])
                fail_msg("%s: embedding %lld is %g, not %g", name_of(f), (long long)i, (double)got[i],
                         (double)(p.scale * f->dense[ids[i / k] * k + i % k]));
        free(got);
        ht_scope_free(s);
    }
}

static void check_linear(const fixture *f) {
    static const int64_t counts[] = {70, 1, 2, 8, 11, 35};
    const int64_t n = f->m->n_rows, k = f->m->k, most = counts[0];
    float *x = random_floats(most * k, 3), *bias = random_floats(n, 4), *all = NULL;
    for (size_t i = 0; i < sizeof counts / sizeof *counts; i++) {
        if (i > 0 && !test_takes((int)i + (int)f->m->type, 12)) continue;
        ht_scope *s = ht_scope_new(beside_stream[GPU]);
        const ht_linear_params p = {f->m, 1};
        ht_array *in[2] = {ht_array_from(s, x, HT_F32, (int64_t[]){counts[i], k}, 2),
                           ht_array_from(s, bias, HT_F32, &n, 1)};
        float *y = read_floats(s, ht_apply(s, HT_OP_LINEAR, &p, in, 2), counts[i] * n);
        if (!all) {
            for (int64_t r = 0; r < most; r += 17) expect_row(f, x + r * k, bias, y + r * n);
            all = y;
        } else {
            if (memcmp(y, all, (size_t)(counts[i] * n) * sizeof *y) != 0)
                fail_msg("%s [%lld, %lld]: %lld rows give other bits than %lld", name_of(f), (long long)n, (long long)k,
                         (long long)counts[i], (long long)most);
            free(y);
        }
        ht_scope_free(s);
    }
    free(x);
    free(bias);
    free(all);
}

static void check_back(const fixture *f) {
    const int64_t n = f->m->n_rows, k = f->m->k, t = 37;
    float *dy = random_floats(t * n, 5);
    ht_scope *s = ht_scope_new(beside_stream[GPU]);
    const ht_linear_params p = {f->m, 1};
    ht_array *in = ht_array_from(s, dy, HT_F32, (int64_t[]){t, n}, 2);
    float *dx = read_floats(s, ht_apply(s, HT_OP_LINEAR_BACK, &p, &in, 1), t * k);
    for (int64_t r = 0; r < t; r += 12) expect_gradient(f, dy + r * n, dx + r * k);
    free(dx);
    free(dy);
    ht_scope_free(s);
}

static void check_type(ht_precision precision, ht_weight_type type) {
    const int64_t block = ht_weight_type_info_of(type)->block;
    const int64_t lengths[] = {block, block == 1 ? 77 : 3 * block, block == 1 ? 136 : 512 + block,
                               block == 1 ? 1040 : 1024 + 7 * block};
    const bool reference = precision == HT_PRECISION_REFERENCE; /* its kernels are few */
    for (size_t i = reference ? 2 : 0; i < sizeof lengths / sizeof *lengths - reference; i++) {
        if (i != 2 && !test_takes((int)i + (int)type, 12)) continue;
        fixture f = make_for(precision, type, i == 3 ? 70 : 1 + 19 * (int64_t)i, lengths[i], 7 + i);
        check_rows(&f);
        check_linear(&f);
        if (i == 2) check_back(&f);
        discard(&f);
    }
}

UNIT_TEST(rows_and_products_are_those_of_exact_weights) {
    if (!beside_device[GPU]) skip();
    for (int type = 0; type < HT_W_COUNT; type++) {
        check_type(HT_PRECISION_HIGH, (ht_weight_type)type);
        check_type(HT_PRECISION_REFERENCE, (ht_weight_type)type);
    }
}

UNIT_TEST(rows_of_x_may_lie_anywhere) {
    if (!beside_device[GPU]) skip();
    enum { T = 5, K = 96 };
    fixture f = make(HT_W_Q8_0, 9, K, 3);
    float *x = random_floats(T * K, 1), *straight = malloc(T * K * sizeof *x);
    for (int i = 0; i < T * K; i++) straight[i % T * K + i / T] = x[i];
    ht_scope *s = ht_scope_new(beside_stream[GPU]);
    const ht_linear_params p = {f.m, 1};
    ht_array *across = ht_swapaxes(s, ht_array_from(s, x, HT_F32, (int64_t[]){K, T}, 2), 0, 1);
    float *y = read_floats(s, ht_apply(s, HT_OP_LINEAR, &p, (ht_array *[]){across, HT_NONE}, 2), T * 9);
    for (int r = 0; r < T; r++) expect_row(&f, straight + r * K, NULL, y + r * 9);
    free(y);
    ht_scope_free(s);
    free(x);
    free(straight);
    discard(&f);
}

UNIT_TEST(long_rows_come_in_pieces) {
    if (!beside_device[GPU]) skip();
    static const ht_weight_type types[] = {HT_W_F32, HT_W_Q4_0, HT_W_Q6_K, HT_W_Q5_0};
    for (size_t i = 0; i < sizeof types / sizeof *types; i++) {
        fixture f = make(types[i], 3, 12800 + 256 * (int64_t)i, 3);
        check_linear(&f);
        discard(&f);
    }
}

UNIT_TEST(an_id_outside_is_an_error) {
    if (!beside_device[GPU]) skip();
    fixture f = make(HT_W_Q4_0, 9, 64, 3);
    ht_scope *s = ht_scope_new(beside_stream[GPU]);
    const ht_linear_params p = {f.m, 1};
    float out[128];
    ht_error err = {0};
    ht_array *ids = ht_array_from(s, (int32_t[]){8, 9}, HT_I32, (int64_t[]){2}, 1);
    assert_int_not_equal(ht_array_read(s, ht_apply(s, HT_OP_EMBED, &p, &ids, 1), out, sizeof out, &err), HT_OK);
    assert_non_null(strstr(err.message, "index 9 at position 1"));
    ht_scope_free(s);
    discard(&f);
}

/* ---- experts ---- */

enum { EXPERTS = 5, SETS = 2, ROWS = 70, COLUMNS = 256 };

typedef struct mixture {
    fixture of[SETS][EXPERTS];
    ht_matrix *pointers[SETS][2 * EXPERTS];
    ht_matrix_list list[SETS];
    ht_linear_gather_params p;
} mixture;

static void make_mixture(mixture *x) {
    for (int s = 0; s < SETS; s++) {
        x->list[s] = (ht_matrix_list){.matrix = x->pointers[s], .n = EXPERTS};
        for (int e = 0; e < EXPERTS; e++) {
            const ht_weight_type type = s ? HT_W_BF16 : e % 2 ? HT_W_Q4_K : HT_W_IQ3_S;
            x->of[s][e] = make(type, ROWS, COLUMNS, 20 + (uint64_t)(s * EXPERTS + e));
            x->pointers[s][e] = x->of[s][e].m;
        }
        ht_matrix_list_find_kinds(&x->list[s]);
        x->p.experts[s] = &x->list[s];
    }
    x->p.n_sets = SETS;
}

static void check_mixture(const mixture *x, int64_t t, bool own_rows) {
    const int64_t m = 3, pairs = t * m, n_x = own_rows ? pairs : t;
    float *rows = random_floats(n_x * COLUMNS, 5), *dy = random_floats(pairs * SETS * ROWS, 6);
    int32_t *ids = malloc((size_t)pairs * sizeof *ids);
    uint64_t seed = 8;
    for (int64_t i = 0; i < pairs; i++)
        ids[i] = (int32_t)(test_random(&seed) % (EXPERTS - 1)); /* the last one: never */
    ht_scope *s = ht_scope_new(beside_stream[GPU]);
    ht_array *in[2] = {own_rows ? ht_array_from(s, rows, HT_F32, (int64_t[]){t, m, COLUMNS}, 3)
                                : ht_array_from(s, rows, HT_F32, (int64_t[]){t, COLUMNS}, 2),
                       ht_array_from(s, ids, HT_I32, (int64_t[]){t, m}, 2)};
    float *y = read_floats(s, ht_apply(s, HT_OP_LINEAR_GATHER, &x->p, in, 2), pairs * SETS * ROWS);
    for (int64_t i = 0; i < pairs; i++)
        for (int set = 0; set < SETS; set++)
            expect_row(&x->of[set][ids[i]], rows + (own_rows ? i : i / m) * COLUMNS, NULL, y + (i * SETS + set) * ROWS);
    ht_array *first[2] = {
        ht_slice(s, in[0], (int64_t[]){0, 0, 0}, (int64_t[]){1, own_rows ? m : COLUMNS, COLUMNS}, NULL),
        ht_slice(s, in[1], (int64_t[]){0, 0}, (int64_t[]){1, m}, NULL)};
    float *alone = read_floats(s, ht_apply(s, HT_OP_LINEAR_GATHER, &x->p, first, 2), m * SETS * ROWS);
    assert_memory_equal(alone, y, (size_t)(m * SETS * ROWS) * sizeof *y); /* whatever comes with it */
    free(alone);
    free(y);
    in[0] = ht_array_from(s, dy, HT_F32, (int64_t[]){t, m, SETS * ROWS}, 3);
    float *dx = read_floats(s, ht_apply(s, HT_OP_LINEAR_GATHER_BACK, &x->p, in, 2), pairs * COLUMNS);
    for (int64_t i = 0; i < pairs; i++)
        for (int64_t c = 0; c < COLUMNS; c++) {
            exact e = {0};
            for (int set = 0; set < SETS; set++)
                add_products(&e, dy + (i * SETS + set) * ROWS, x->of[set][ids[i]].dense + c, ROWS, COLUMNS);
            expect_sum(&x->of[0][ids[i]], "linear_gather_back", dx[i * COLUMNS + c], e, 2e-6);
        }
    free(dx);
    ht_scope_free(s);
    free(rows);
    free(dy);
    free(ids);
}

UNIT_TEST(rows_are_multiplied_by_the_experts_they_choose) {
    if (!beside_device[GPU]) skip();
    mixture x = {0};
    make_mixture(&x);
    check_mixture(&x, 1, false);
    check_mixture(&x, 1, true);
    check_mixture(&x, 4, true);
    check_mixture(&x, 50, false); /* tiles of 32 pairs */
    check_mixture(&x, 31, true);
    check_mixture(&x, 130, false); /* images */
    check_mixture(&x, 97, true);
    ht_scope *s = ht_scope_new(beside_stream[GPU]);
    float out[2 * SETS * ROWS];
    ht_error err = {0};
    ht_array *in[2] = {ht_full(s, 1, HT_F32, (int64_t[]){2, COLUMNS}, 2),
                       ht_array_from(s, (int32_t[]){0, EXPERTS}, HT_I32, (int64_t[]){2, 1}, 2)};
    assert_int_not_equal(ht_array_read(s, ht_apply(s, HT_OP_LINEAR_GATHER, &x.p, in, 2), out, sizeof out, &err), HT_OK);
    assert_non_null(strstr(err.message, "index 5 at position 1"));
    ht_scope_free(s);
    for (int i = 0; i < SETS; i++)
        for (int e = 0; e < EXPERTS; e++) discard(&x.of[i][e]);
}

/* More than are among a kernel's arguments, of which few have pairs. */
UNIT_TEST(experts_may_be_many) {
    if (!beside_device[GPU]) skip();
    enum { MANY = 1100, N_KINDS = 3, T = 40, EACH = 2 };
    fixture of[N_KINDS];
    for (int i = 0; i < N_KINDS; i++) of[i] = make(HT_W_Q4_0, ROWS, COLUMNS, 40 + (uint64_t)i);
    ht_matrix *pointers[2 * MANY];
    for (int e = 0; e < MANY; e++) pointers[e] = of[e % N_KINDS].m;
    ht_matrix_list list = {.matrix = pointers, .n = MANY};
    ht_matrix_list_find_kinds(&list);
    const ht_linear_gather_params p = {{&list}, 1};
    for (int64_t t = 1; t <= T; t += T - 1) {
        const int64_t pairs = t * EACH;
        float *rows = random_floats(t * COLUMNS, 5);
        int32_t ids[T * EACH];
        for (int64_t i = 0; i < pairs; i++) ids[i] = (int32_t)(i % 3 ? MANY - 1 - i : i * 27 % MANY);
        ht_scope *s = ht_scope_new(beside_stream[GPU]);
        ht_array *in[2] = {ht_array_from(s, rows, HT_F32, (int64_t[]){t, COLUMNS}, 2),
                           ht_array_from(s, ids, HT_I32, (int64_t[]){t, EACH}, 2)};
        float *y = read_floats(s, ht_apply(s, HT_OP_LINEAR_GATHER, &p, in, 2), pairs * ROWS);
        for (int64_t i = 0; i < pairs; i++)
            expect_row(&of[ids[i] % N_KINDS], rows + i / EACH * COLUMNS, NULL, y + i * ROWS);
        free(y);
        free(rows);
        ht_scope_free(s);
    }
    for (int i = 0; i < N_KINDS; i++) discard(&of[i]);
}

/* ---- losses ---- */

/* Loss and gradient of one row, in f64. */
static double expected_loss(const fixture *f, const ht_head_loss_params *p, const float *x, int64_t target,
                            double factor, double *gradient) {
    const int64_t n = f->m->n_rows, k = f->m->k;
    double *y = malloc((size_t)n * sizeof *y), *slope = malloc((size_t)n * sizeof *slope), max = -INFINITY, sum = 0;
    for (int64_t r = 0; r < n; r++) {
        exact e = {0};
        add_products(&e, x, f->dense + r * k, k, 1);
        y[r] = e.sum * (double)p->scale;
        slope[r] = (double)p->scale;
        if (p->softcap > 0) {
            const double t = tanh(y[r] / (double)p->softcap);
            slope[r] *= 1 - t * t;
            y[r] = (double)p->softcap * t;
        }
        max = fmax(max, y[r]);
    }
    for (int64_t r = 0; r < n; r++) sum += exp(y[r] - max);
    const double lse = max + log(sum), loss = lse - y[target];
    for (int64_t c = 0; c < k; c++) gradient[c] = 0;
    for (int64_t r = 0; r < n; r++)
        for (int64_t c = 0; c < k; c++)
            gradient[c] += (exp(y[r] - lse) - (r == target)) * slope[r] * factor * (double)f->dense[r * k + c];
    free(y);
    free(slope);
    return loss;
}

static void check_loss(const fixture *f, int64_t t, float scale, float softcap) {
    const int64_t n = f->m->n_rows, k = f->m->k;
    const ht_head_loss_params p = {f->m, scale, softcap};
    float *x = random_floats(t * k, 9), *factor = random_floats(t, 10);
    int32_t *target = malloc((size_t)t * sizeof *target);
    double *gradient = malloc((size_t)k * sizeof *gradient);
    uint64_t seed = 11;
    for (int64_t i = 0; i < t; i++) target[i] = i % 3 == 1 ? -1 : (int32_t)(test_random(&seed) % (uint32_t)n);
    ht_scope *s = ht_scope_new(beside_stream[GPU]);
    ht_array *in[4] = {ht_array_from(s, x, HT_F32, (int64_t[]){t, k}, 2), ht_array_from(s, target, HT_I32, &t, 1), NULL,
                       ht_array_from(s, factor, HT_F32, &t, 1)};
    in[2] = ht_apply(s, HT_OP_HEAD_LOSS, &p, in, 2);
    float *loss = read_floats(s, in[2], 2 * t);
    float *dx = read_floats(s, ht_apply(s, HT_OP_HEAD_LOSS_GRAD, &p, in, 4), t * k);
    for (int64_t i = 0; i < t; i++) {
        double wanted = 0, most = 0;
        for (int64_t c = 0; c < k; c++) gradient[c] = 0;
        if (target[i] >= 0) wanted = expected_loss(f, &p, x + i * k, target[i], (double)factor[i], gradient);
        if (!(fabs((double)loss[i] - wanted) <= 2e-5 * (1 + fabs(wanted))))
            fail_msg("%s: loss %lld is %.9g, expected %.9g", name_of(f), (long long)i, (double)loss[i], wanted);
        if (target[i] < 0) assert_true(loss[t + i] == 0);
        for (int64_t c = 0; c < k; c++) most = fmax(most, fabs(gradient[c]));
        for (int64_t c = 0; c < k; c++)
            if (!(fabs((double)dx[i * k + c] - gradient[c]) <= 1e-4 * most + 1e-9))
                fail_msg("%s: gradient (%lld, %lld) is %.9g, expected %.9g", name_of(f), (long long)i, (long long)c,
                         (double)dx[i * k + c], gradient[c]);
    }
    ht_scope_free(s);
    free(loss);
    free(dx);
    free(x);
    free(factor);
    free(target);
    free(gradient);
}

UNIT_TEST(losses_of_a_head_never_see_all_logits) {
    if (!beside_device[GPU]) skip();
    fixture small = make(HT_W_F8_E4M3, 300, 90, 1), large = make(HT_W_Q8_0, 4200, 64, 2);
    check_loss(&small, 40, 0.01f, 0); /* as its weights are large */
    check_loss(&small, 2, 0.005f, 3);
    check_loss(&large, 5, 1, 0);
    ht_scope *s = ht_scope_new(beside_stream[GPU]);
    const ht_head_loss_params p = {small.m, 1, 0};
    float out[2];
    ht_error err = {0};
    ht_array *in[2] = {ht_full(s, 1, HT_F32, (int64_t[]){1, 90}, 2),
                       ht_array_from(s, (int32_t[]){300}, HT_I32, (int64_t[]){1}, 1)};
    assert_int_not_equal(ht_array_read(s, ht_apply(s, HT_OP_HEAD_LOSS, &p, in, 2), out, sizeof out, &err), HT_OK);
    assert_non_null(strstr(err.message, "index 300"));
    ht_scope_free(s);
    discard(&small);
    discard(&large);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(rows_and_products_are_those_of_exact_weights),
        cmocka_unit_test(rows_of_x_may_lie_anywhere),
        cmocka_unit_test(long_rows_come_in_pieces),
        cmocka_unit_test(an_id_outside_is_an_error),
        cmocka_unit_test(rows_are_multiplied_by_the_experts_they_choose),
        cmocka_unit_test(experts_may_be_many),
        cmocka_unit_test(losses_of_a_head_never_see_all_logits),
    };
    return cmocka_run_group_tests(tests, beside_open, beside_close);
}
