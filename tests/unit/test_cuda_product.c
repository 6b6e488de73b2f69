/* Products on the CUDA device: near what the CPU's plain kernels give, the same bits however many rows and columns are computed
 * together, and quantised arrays bit for bit. Skipped where there is no GPU; CTest runs it with a driver on the host, too. */
#include "array/op.h"
#include "base/half.h"
#include "support/gpu.h"
#include "support/test.h"

#include <hearth/hearth.h>

#include <math.h>
#include <stdlib.h>
#include <string.h>

static uint32_t next(uint64_t *r) {
    *r = *r * 6364136223846793005u + 1442695040888963407u;
    return (uint32_t)(*r >> 32);
}

static ht_array *numbers(ht_scope *s, uint64_t seed, ht_dtype t, const int64_t *shape, int n_dims) {
    int64_t n = 1;
    for (int i = 0; i < n_dims; i++) n *= shape[i];
    float *x = malloc((size_t)n * sizeof *x + 1);
    for (int64_t i = 0; i < n; i++) x[i] = (float)(next(&seed) % 2001) / 1000.0f - 1.0f;
    ht_array *a = ht_astype(s, ht_array_from(s, x, HT_F32, shape, n_dims), t);
    free(x);
    return a;
}

static double *read_all(ht_scope *s, ht_array *a, int64_t *n) {
    ht_error err = {0};
    if (!a) fail_msg("%s", ht_scope_error(s)->message);
    *n = ht_array_size(a);
    double *out = malloc((size_t)*n * sizeof *out + 1);
    if (ht_array_read(s, ht_astype(s, a, HT_F64), out, (size_t)*n * sizeof *out, &err)) fail_msg("%s", err.message);
    return out;
}

typedef struct shapes {
    int64_t lead_a, lead_b, m, k, n;
} shapes;

/* With each operand as it is, or turned in memory. */
static ht_array *product(ht_scope *s, ht_dtype t, const shapes *c, int turned) {
    const int swap[3] = {0, 2, 1};
    ht_array *a =
        numbers(s, 1, t, turned & 1 ? (int64_t[]){c->lead_a, c->k, c->m} : (int64_t[]){c->lead_a, c->m, c->k}, 3);
    ht_array *b =
        numbers(s, 2, t, turned & 2 ? (int64_t[]){c->lead_b, c->n, c->k} : (int64_t[]){c->lead_b, c->k, c->n}, 3);
    if (turned & 1) a = ht_transpose(s, a, swap);
    return ht_matmul(s, a, b, turned & 2);
}

static double unit_of(ht_dtype t) {
    return t == HT_F16 ? 0x1p-10 : t == HT_BF16 ? 0x1p-7 : t == HT_F32 ? 0x1p-20 : 0x1p-48;
}

static void products_are_near_those_of_the_cpu(void **state) {
    (void)state;
    static const shapes cases[] = {{1, 1, 1, 1, 1},   {1, 1, 1, 300, 70}, {1, 1, 1, 2000, 65}, {1, 1, 7, 513, 130},
                                   {2, 1, 9, 33, 64}, {1, 3, 65, 257, 3}, {3, 3, 70, 15, 66},  {1, 1, 130, 700, 1},
                                   {2, 2, 4, 0, 5},   {2, 2, 0, 4, 5},    {1, 1, 64, 256, 64}};
    if (!beside_stream[GPU]) skip();
    for (ht_dtype t = HT_F16; t <= HT_F64; t++)
        for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
            for (int turned = 0; turned < 4; turned++) {
                if (!test_takes((int)i + (int)t + turned, 12)) continue;
                double *got[DEVICES];
                int64_t n = 0;
                for (int d = 0; d < DEVICES; d++) {
                    ht_scope *s = ht_scope_new(beside_stream[d]);
                    got[d] = read_all(s, product(s, t, &cases[i], turned), &n);
                    ht_scope_free(s);
                }
                for (int64_t k = 0; k < n; k++)
                    if (!(fabs(got[CPU][k] - got[GPU][k]) <= unit_of(t) * (1 + (double)cases[i].k / 4)))
                        fail_msg("%s case %zu, turned %d: element %lld is %g, not %g", ht_dtype_name(t), i, turned,
                                 (long long)k, got[GPU][k], got[CPU][k]);
                for (int d = 0; d < DEVICES; d++) free(got[d]);
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
    if (!how) return ht_matmul(s, x, w, true);
    if (!ht_quantize(s, w, how, parts)) return NULL;
    return ht_quantized_matmul(s, x, parts[0], parts[1], parts[2], true, how);
}

static void an_output_does_not_depend_on_others(void **state) {
    (void)state;
    static const ht_quantization affine = {HT_QUANT_AFFINE, 64, 4}, *hows[] = {NULL, &affine};
    static const int64_t taken[][3] = {{0, 1, 192}, {5, 1, 3},    {7, 5, 192}, {20, 8, 70},  {20, 9, 64},
                                       {60, 64, 4}, {0, 130, 64}, {0, 130, 1}, {64, 66, 190}};
    if (!beside_stream[GPU]) skip();
    for (ht_dtype t = HT_F16; t <= HT_F32; t++)
        for (int h = 0; h < 2; h++) {
            int64_t size;
            ht_scope *s = ht_scope_new(beside_stream[GPU]);
            double *all = read_all(s, part_of(s, hows[h], t, 1600, 0, 130, 192), &size);
            for (size_t i = 0; i < sizeof taken / sizeof *taken; i++) {
                if (!test_takes((int)i + (int)t + h, 10)) continue;
                const int64_t first = taken[i][0], m = taken[i][1], n = taken[i][2];
                double *some = read_all(s, part_of(s, hows[h], t, 1600, first, m, n), &size);
                for (int64_t k = 0; k < size; k++)
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

/* Of which a GPU has other bits. */
static bool is_nan(ht_dtype t, const char *at) {
    uint16_t half;
    float f;
    double d;
    memcpy(&half, at, sizeof half);
    if (t == HT_F16) return (half & 0x7FFF) > 0x7C00;
    if (t == HT_BF16) return (half & 0x7FFF) > 0x7F80;
    if (t == HT_F32) return memcpy(&f, at, sizeof f), isnan(f);
    return t == HT_F64 && (memcpy(&d, at, sizeof d), isnan(d));
}

static void expect_same(ht_scope *const s[], ht_array *const a[], int mode, const char *what) {
    ht_error err = {0};
    char *got[DEVICES];
    size_t bytes = 0;
    for (int d = 0; d < DEVICES; d++) {
        if (!a[d]) fail_msg("mode %d: %s", mode, ht_scope_error(s[d])->message);
        bytes = (size_t)ht_array_size(a[d]) * ht_dtype_bytes(ht_array_dtype(a[d]));
        got[d] = malloc(bytes + 1);
        if (ht_array_read(s[d], a[d], got[d], bytes, &err)) fail_msg("%s", err.message);
    }
    const ht_dtype t = ht_array_dtype(a[CPU]);
    const size_t width = ht_dtype_bytes(t);
    for (size_t i = 0; i < bytes; i++)
        if (got[CPU][i] != got[GPU][i] &&
            !(is_nan(t, got[CPU] + i / width * width) && is_nan(t, got[GPU] + i / width * width)))
            fail_msg("mode %d, %s: byte %zu is %d, not %d", mode, what, i, got[GPU][i], got[CPU][i]);
    for (int d = 0; d < DEVICES; d++) free(got[d]);
}

/* Groups of ordinary numbers, of one value, of huge and of tiny ones, with infinities and NaNs. */
static ht_array *groups(ht_scope *s, ht_dtype t) {
    enum { ROWS = 40, COLUMNS = 256 };
    static float x[ROWS * COLUMNS];
    uint64_t r = 9;
    for (int i = 0; i < ROWS * COLUMNS; i++) {
        const int kind = i / 16 % 37 % 11;
        x[i] = (float)(next(&r) % 4001) / 1000.0f - 2.0f;
        if (kind == 1) x[i] = 0.0f;
        if (kind == 2) x[i] = -0.75f;
        if (kind == 3) x[i] *= 1e5f;
        if (kind == 4) x[i] *= 1e-6f;
        if (kind == 5) x[i] = fabsf(x[i]);
        if (kind == 6) x[i] = ldexpf(1.0f, (int)(next(&r) % 60) - 30);
        if (kind == 7 && i % 9 == 0) x[i] = NAN;
        if (kind == 8 && i / 16 % 5 == 0) x[i] = i % 2 ? INFINITY : 1.0f;
    }
    ht_array *a = ht_array_from(s, x, HT_F32, (int64_t[]){COLUMNS, ROWS}, 2);
    return ht_transpose(s, ht_astype(s, a, t), NULL);
}

static void quantised_arrays_are_those_of_the_cpu(void **state) {
    (void)state;
    if (!beside_stream[GPU]) skip();
    for (int i = 0; i < MODES; i++)
        for (ht_dtype t = HT_F16; t <= HT_F64; t++) {
            if (!test_takes(i + (int)t, 2)) continue;
            ht_scope *s[DEVICES];
            ht_array *parts[DEVICES][3], *again[DEVICES];
            for (int d = 0; d < DEVICES; d++) {
                s[d] = ht_scope_new(beside_stream[d]);
                if (t == HT_F64 && modes[i].mode == HT_QUANT_AFFINE) {
                    ht_quantize(s[d], groups(s[d], HT_F64), &modes[i], parts[d]);
                } else {
                    ht_quantize(s[d], groups(s[d], t), &modes[i], parts[d]);
                }
                again[d] = ht_dequantize_groups(s[d], parts[d][0], parts[d][1], parts[d][2], &modes[i], t);
            }
            for (int k = 0; k < 3; k++)
                if (parts[CPU][k] != HT_NONE) expect_same(s, (ht_array *[]){parts[CPU][k], parts[GPU][k]}, i, "part");
            expect_same(s, again, i, "dequantised");
            for (int d = 0; d < DEVICES; d++) ht_scope_free(s[d]);
        }
}

static ht_array *quantised_product(ht_scope *s, const ht_quantization *how, ht_dtype t, int64_t m, bool transpose,
                                   bool by_index) {
    enum { MATRICES = 3, ROWS = 35, COLUMNS = 384 };
    ht_array *w = numbers(s, 5, HT_F32, (int64_t[]){MATRICES, ROWS, COLUMNS}, 3), *parts[3];
    ht_array *x = numbers(s, 6, t, (int64_t[]){MATRICES, m, transpose ? COLUMNS : ROWS}, 3);
    if (!ht_quantize(s, ht_astype(s, w, t == HT_F64 ? HT_F32 : t), how, parts)) return NULL;
    if (!by_index) return ht_quantized_matmul(s, x, parts[0], parts[1], parts[2], transpose, how);
    ht_array *left = ht_array_from(s, (int32_t[]){2, 0, 1, 1}, HT_I32, (int64_t[]){2, 2}, 2);
    ht_array *right = ht_array_from(s, (int32_t[]){1, 2}, HT_I32, (int64_t[]){2}, 1);
    return ht_gather_qmm(s, x, parts[0], parts[1], parts[2], left, right, transpose, how);
}

static void quantised_products_are_near_those_of_the_cpu(void **state) {
    (void)state;
    static const int64_t rows[] = {1, 2, 9};
    if (!beside_stream[GPU]) skip();
    for (int i = 0; i < MODES; i++)
        for (int which = 0; which < 4 * 3 * 2 * 2; which++) {
            if (!test_takes(i + which, 5)) continue;
            const ht_dtype t = (ht_dtype)(HT_F16 + which % 4);
            double *got[DEVICES];
            int64_t n = 0;
            for (int d = 0; d < DEVICES; d++) {
                ht_scope *s = ht_scope_new(beside_stream[d]);
                got[d] = read_all(
                    s, quantised_product(s, &modes[i], t, rows[which / 4 % 3], which / 12 % 2, which / 24), &n);
                ht_scope_free(s);
            }
            for (int64_t k = 0; k < n; k++)
                if (!(fabs(got[CPU][k] - got[GPU][k]) <= unit_of(t) * 100))
                    fail_msg("mode %d, case %d: element %lld is %g, not %g", i, which, (long long)k, got[GPU][k],
                             got[CPU][k]);
            for (int d = 0; d < DEVICES; d++) free(got[d]);
        }
}

/* ---- indices, and integers ---- */

static void an_index_outside_is_reported(void **state) {
    (void)state;
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
static void integers_multiply_exactly(void **state) {
    (void)state;
    enum { M = 35, K = 300, N = 40 };
    if (!beside_stream[GPU]) skip();
    for (ht_dtype t = HT_BOOL; t <= HT_I64; t++) {
        const size_t bytes = ht_dtype_bytes(t);
        static char a[M * K * 8], b[K * N * 8], out[DEVICES][M * N * 8];
        uint64_t r = 11;
        for (size_t i = 0; i < sizeof a; i++) a[i] = (char)(t == HT_BOOL ? next(&r) % 2 : next(&r));
        for (size_t i = 0; i < sizeof b; i++) b[i] = (char)(t == HT_BOOL ? next(&r) % 2 : next(&r));
        for (int d = 0; d < DEVICES; d++) {
            ht_memory *memory = ht_memory_of(beside_device[d]);
            ht_error err = {0};
            void *p[3];
            const size_t sizes[3] = {M * K * bytes, K * N * bytes, M * N * bytes};
            for (int i = 0; i < 3; i++)
                assert_int_equal(ht_memory_alloc(memory, sizes[i], "a test", &p[i], &err), HT_OK);
            assert_int_equal(ht_memory_write(memory, p[0], a, sizes[0], &err), HT_OK);
            assert_int_equal(ht_memory_write(memory, p[1], b, sizes[1], &err), HT_OK);
            const ht_view in[2] = {{p[0], t, 2, {M, K}, {K, 1}}, {p[1], t, 2, {K, N}, {N, 1}}};
            const ht_call call = {.n_in = 2, .in = in, .out = {p[2], t, 2, {M, N}, {N, 1}}, .device = beside_device[d]};
            const unsigned begun = beside_device[d]->begin(beside_device[d]);
            assert_int_equal(beside_device[d]->kernels[HT_OP_MATMUL].run(&call, &err), HT_OK);
            assert_int_equal(ht_device_wait(beside_device[d], &(ht_mark){0}, &err), HT_OK);
            beside_device[d]->end(beside_device[d], begun);
            assert_int_equal(ht_memory_read(memory, out[d], p[2], sizes[2], &err), HT_OK);
            for (int i = 0; i < 3; i++) ht_memory_free(memory, p[i], sizes[i]);
        }
        assert_memory_equal(out[CPU], out[GPU], M * N * bytes);
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
