/* Products on the CUDA device: near what the CPU's plain kernels give, the same bits however many rows and columns are computed
 * together, and quantised arrays bit for bit. Skipped where there is no GPU; CTest runs it with a driver on the host, too. */
#include "array/op.h"
#include "base/half.h"
#include "support/gpu.h"
#include "support/kernels.h"
#include "support/test.h"
#include "support/weights.h"

#include <hearth/hearth.h>

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

static ht_array *numbers(ht_scope *s, uint64_t seed, ht_dtype t, const int64_t *shape, int n_dims) {
    int64_t n = 1;
    for (int i = 0; i < n_dims; i++) n *= shape[i];
    float *x = malloc((size_t)n * sizeof *x + 1);
    for (int64_t i = 0; i < n; i++) x[i] = test_random_float(&seed);
    ht_array *a = ht_astype(s, ht_array_from(s, x, HT_F32, shape, n_dims), t);
    free(x);
    return a;
}

static double unit_of(ht_dtype t) {
    return t == HT_F16 ? 0x1p-10 : t == HT_BF16 ? 0x1p-7 : t == HT_F32 ? 0x1p-20 : 0x1p-48;
}

/* Of f64 arrays. */
static void expect_near(const char *what, beside_build_fn *build, const void *how, double tolerance) {
    beside_results r = beside_make(build, how);
    const double *want = r.of[CPU], *got = r.of[GPU];
    for (int64_t i = 0; i < r.size; i++)
        if (!(fabs(want[i] - got[i]) <= tolerance))
            fail_msg("%s: element %lld is %g, not %g", what, (long long)i, got[i], want[i]);
    beside_free(&r);
}

typedef struct sizes {
    int64_t lead_a, lead_b, m, k, n;
} sizes;

typedef struct product {
    sizes of;
    ht_dtype dtype;
    int turned; /* operands in memory: a 1, b 2 */
} product;

static ht_array *multiply(ht_scope *s, const void *how) {
    const product *p = how;
    const sizes *c = &p->of;
    const int swap[3] = {0, 2, 1};
    ht_array *a = numbers(s, 1, p->dtype,
                          p->turned & 1 ? (int64_t[]){c->lead_a, c->k, c->m} : (int64_t[]){c->lead_a, c->m, c->k}, 3);
    ht_array *b = numbers(s, 2, p->dtype,
                          p->turned & 2 ? (int64_t[]){c->lead_b, c->n, c->k} : (int64_t[]){c->lead_b, c->k, c->n}, 3);
    if (p->turned & 1) a = ht_transpose(s, a, swap);
    return ht_astype(s, ht_matmul(s, a, b, p->turned & 2), HT_F64);
}

UNIT_TEST(products_are_near_those_of_the_cpu) {
    static const sizes cases[] = {{1, 1, 1, 1, 1},   {1, 1, 1, 300, 70}, {1, 1, 1, 2000, 65}, {1, 1, 7, 513, 130},
                                  {2, 1, 9, 33, 64}, {1, 3, 65, 257, 3}, {3, 3, 70, 15, 66},  {1, 1, 130, 700, 1},
                                  {2, 2, 4, 0, 5},   {2, 2, 0, 4, 5},    {1, 1, 64, 256, 64}};
    if (!beside_stream[GPU]) skip();
    for (ht_dtype t = HT_F16; t <= HT_F64; t++)
        for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
            for (int turned = 0; turned < 4; turned++) {
                if (!test_takes((int)i + (int)t + turned, 12)) continue;
                const product p = {cases[i], t, turned};
                char what[64];
                snprintf(what, sizeof what, "%s case %zu, turned %d", ht_dtype_name(t), i, turned);
                expect_near(what, multiply, &p, unit_of(t) * (1 + (double)p.of.k / 4));
            }
}

/* Rows `first` on of x times the first `n` columns, which are rows of w where it is transposed. */
static ht_array *part_of(ht_scope *s, const ht_quantization *how, ht_dtype t, int64_t k, int64_t first, int64_t m,
                         int64_t n) {
    enum { ROWS = 130, COLUMNS = 192 };
    ht_array *x = numbers(s, 3, t, (int64_t[]){ROWS, k}, 2), *w = numbers(s, 4, t, (int64_t[]){COLUMNS, k}, 2),
             *parts[3];
    x = ht_slice(s, x, (int64_t[]){first, 0}, (int64_t[]){first + m, k}, NULL);
    w = ht_slice(s, w, (int64_t[]){0, 0}, (int64_t[]){n, k}, NULL);
    if (!how) return ht_astype(s, ht_matmul(s, x, w, true), HT_F64);
    if (!ht_quantize(s, w, how, parts)) return NULL;
    return ht_astype(s, ht_quantized_matmul(s, x, parts, true, how), HT_F64);
}

UNIT_TEST(an_output_does_not_depend_on_others) {
    static const ht_quantization affine = {HT_QUANT_AFFINE, 64, 4}, *hows[] = {NULL, &affine};
    static const int64_t taken[][3] = {{0, 1, 192}, {5, 1, 3},    {7, 5, 192}, {20, 8, 70},  {20, 9, 64},
                                       {60, 64, 4}, {0, 130, 64}, {0, 130, 1}, {64, 66, 190}};
    if (!beside_stream[GPU]) skip();
    for (ht_dtype t = HT_F16; t <= HT_F32; t++)
        for (int h = 0; h < 2; h++) {
            ht_scope *s = ht_scope_new(beside_stream[GPU]);
            double *all = beside_read(s, part_of(s, hows[h], t, 1600, 0, 130, 192));
            for (size_t i = 0; i < sizeof taken / sizeof *taken; i++) {
                if (!test_takes((int)i + (int)t + h, 10)) continue;
                const int64_t first = taken[i][0], m = taken[i][1], n = taken[i][2];
                double *some = beside_read(s, part_of(s, hows[h], t, 1600, first, m, n));
                for (int64_t k = 0; k < m * n; k++)
                    if (some[k] != all[(first + k / n) * 192 + k % n])
                        fail_msg("%s%s case %zu: element %lld differs", ht_dtype_name(t), h ? " quantised" : "", i,
                                 (long long)k);
                free(some);
            }
            free(all);
            ht_scope_free(s);
        }
}

/* ---- quantised arrays ---- */

static const ht_quantization modes[] = {{HT_QUANT_AFFINE, 32, 2}, {HT_QUANT_AFFINE, 64, 3}, {HT_QUANT_AFFINE, 128, 4},
                                        {HT_QUANT_AFFINE, 64, 5}, {HT_QUANT_AFFINE, 32, 6}, {HT_QUANT_AFFINE, 128, 8},
                                        {HT_QUANT_MXFP4, 32, 4},  {HT_QUANT_MXFP8, 32, 8},  {HT_QUANT_NVFP4, 16, 4}};
enum { MODES = sizeof modes / sizeof *modes };

/* Groups of ordinary numbers, of one value, of huge and of tiny ones, with infinities and NaNs. */
static ht_array *groups(ht_scope *s, ht_dtype t) {
    enum { ROWS = 40, COLUMNS = 256 };
    static float x[ROWS * COLUMNS];
    uint64_t r = 9;
    for (int i = 0; i < ROWS * COLUMNS; i++) {
        const int kind = i / 16 % 37 % 11;
        x[i] = 2 * test_random_float(&r);
        if (kind == 1) x[i] = 0.0f;
        if (kind == 2) x[i] = -0.75f;
        if (kind == 3) x[i] *= 1e5f;
        if (kind == 4) x[i] *= 1e-6f;
        if (kind == 5) x[i] = fabsf(x[i]);
        if (kind == 6) x[i] = ldexpf(1.0f, (int)(test_random(&r) % 60) - 30);
        if (kind == 7 && i % 9 == 0) x[i] = NAN;
        if (kind == 8 && i / 16 % 5 == 0) x[i] = i % 2 ? INFINITY : 1.0f;
    }
    ht_array *a = ht_array_from(s, x, HT_F32, (int64_t[]){COLUMNS, ROWS}, 2);
    return ht_transpose(s, ht_astype(s, a, t), NULL);
}

typedef struct quantised {
    const ht_quantization *how;
    ht_dtype dtype;
    int part; /* that is looked at; 3: all of them, dequantised */
} quantised;

static ht_array *quantise(ht_scope *s, const void *how) {
    const quantised *q = how;
    ht_array *parts[3];
    if (!ht_quantize(s, groups(s, q->dtype), q->how, parts)) return NULL;
    return q->part < 3 ? parts[q->part] : ht_dequantize_groups(s, parts, q->how, q->dtype);
}

UNIT_TEST(quantised_arrays_are_those_of_the_cpu) {
    if (!beside_stream[GPU]) skip();
    for (int i = 0; i < MODES; i++)
        for (ht_dtype t = HT_F16; t <= HT_F64; t++)
            for (int part = 0; part < 4; part++) {
                if (!test_takes(i + (int)t, 2) || (part == 2 && modes[i].mode != HT_QUANT_AFFINE)) continue;
                char what[64];
                snprintf(what, sizeof what, "mode %d, %s, part %d", i, ht_dtype_name(t), part);
                beside_same(what, quantise, &(quantised){&modes[i], t, part});
            }
}

typedef struct quantised_product {
    const ht_quantization *how;
    ht_dtype dtype;
    int64_t m;
    bool transpose, by_index;
} quantised_product;

static ht_array *multiply_quantised(ht_scope *s, const void *how) {
    enum { MATRICES = 3, ROWS = 35, COLUMNS = 384 };
    const quantised_product *p = how;
    ht_array *w = numbers(s, 5, HT_F32, (int64_t[]){MATRICES, ROWS, COLUMNS}, 3), *parts[3], *y;
    ht_array *x = numbers(s, 6, p->dtype, (int64_t[]){MATRICES, p->m, p->transpose ? COLUMNS : ROWS}, 3);
    if (!ht_quantize(s, ht_astype(s, w, p->dtype == HT_F64 ? HT_F32 : p->dtype), p->how, parts)) return NULL;
    if (p->by_index) {
        ht_array *left = ht_array_from(s, (int32_t[]){2, 0, 1, 1}, HT_I32, (int64_t[]){2, 2}, 2);
        ht_array *right = ht_array_from(s, (int32_t[]){1, 2}, HT_I32, (int64_t[]){2}, 1);
        y = ht_gather_qmm(s, x, parts, left, right, p->transpose, p->how);
    } else {
        y = ht_quantized_matmul(s, x, parts, p->transpose, p->how);
    }
    return ht_astype(s, y, HT_F64);
}

UNIT_TEST(quantised_products_are_near_those_of_the_cpu) {
    static const int64_t rows[] = {1, 2, 9};
    if (!beside_stream[GPU]) skip();
    for (int i = 0; i < MODES; i++)
        for (int which = 0; which < 4 * 3 * 2 * 2; which++) {
            if (!test_takes(i + which, 5)) continue;
            const quantised_product p = {&modes[i], (ht_dtype)(HT_F16 + which % 4), rows[which / 4 % 3], which / 12 % 2,
                                         which / 24};
            char what[64];
            snprintf(what, sizeof what, "mode %d, case %d", i, which);
            expect_near(what, multiply_quantised, &p, unit_of(p.dtype) * 100);
        }
}

/* ---- indices, and integers ---- */

UNIT_TEST(an_index_outside_is_reported) {
    static const int32_t bad[][2][4] = {{{0, 1, 7, 0}, {0, 0, 0, 9}}, {{0, 1, 1, 0}, {0, 1, -2, 5}}};
    if (!beside_stream[GPU]) skip();
    for (int i = 0; i < 4; i++) {
        ht_error err[DEVICES] = {{0}};
        for (int d = 0; d < DEVICES; d++) {
            ht_scope *s = ht_scope_new(beside_stream[d]);
            const int64_t m = i / 2 ? 0 : 3; /* also of nothing */
            ht_array *a = numbers(s, 1, HT_F32, (int64_t[]){2, m, 5}, 3),
                     *b = numbers(s, 1, HT_F32, (int64_t[]){4, 5, 6}, 3);
            ht_array *left = ht_array_from(s, bad[i % 2][0], HT_I32, (int64_t[]){4}, 1);
            ht_array *right = ht_array_from(s, bad[i % 2][1], HT_I32, (int64_t[]){4}, 1);
            ht_array *y = ht_gather_mm(s, a, b, left, right);
            float out[4 * 3 * 6];
            assert_int_equal(ht_array_read(s, y, out, (size_t)(4 * m * 6) * sizeof *out, &err[d]), HT_ERR_ARGUMENT);
            ht_scope_free(s);
        }
        assert_string_equal(err[CPU].message, err[GPU].message);
    }
}

/* Of kernels alone: the public operation takes floating point. */
UNIT_TEST(integers_multiply_exactly) {
    enum { M = 35, K = 300, N = 40 };
    if (!beside_stream[GPU]) skip();
    for (ht_dtype t = HT_BOOL; t <= HT_I64; t++) {
        static char a[M * K * 8], b[K * N * 8], out[DEVICES][M * N * 8];
        uint64_t r = 11;
        for (size_t i = 0; i < sizeof a; i++) a[i] = (char)(t == HT_BOOL ? test_random(&r) % 2 : test_random(&r));
        for (size_t i = 0; i < sizeof b; i++) b[i] = (char)(t == HT_BOOL ? test_random(&r) % 2 : test_random(&r));
        const ht_view in[2] = {test_view(a, t, 2, (int64_t[]){M, K}), test_view(b, t, 2, (int64_t[]){K, N})};
        for (int d = 0; d < DEVICES; d++) {
            const ht_view y = test_view(out[d], t, 2, (int64_t[]){M, N});
            test_run_ok(beside_device[d], HT_OP_MATMUL, NULL, 2, in, &y, NULL);
        }
        assert_memory_equal(out[CPU], out[GPU], M * N * ht_dtype_bytes(t));
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(products_are_near_those_of_the_cpu),
        cmocka_unit_test(an_output_does_not_depend_on_others),
        cmocka_unit_test(quantised_arrays_are_those_of_the_cpu),
        cmocka_unit_test(quantised_products_are_near_those_of_the_cpu),
        cmocka_unit_test(an_index_outside_is_reported),
        cmocka_unit_test(integers_multiply_exactly),
    };
    return cmocka_run_group_tests(tests, beside_open, beside_close);
}
