/* Matrix products: against plain loops, and bit for bit against the order that cpu/matrix_kernels.h documents; the same
 * bits for any number of rows beside each other and any number of threads; rows given back exactly. */
#include "base/checked.h"
#include "base/half.h"
#include "cpu/matrix.h"
#include "cpu/matrix_kernels.h"
#include "cpu/matrix_ops.h"
#include "formats/affine.h"
#include "support/multiply.h"
#include "support/test.h"
#include "support/weights.h"

#include <float.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

typedef struct product {
    ht_weight_type type;
    int64_t n_rows, k;
    uint8_t *stored;
    float *dense; /* [n_rows][k] */
    float *bias;
    test_block *blocks; /* [n_rows][k / 32]; NULL for dense types */
    bool in_words;      /* whether the kernel multiplies words */
} product;

static product product_of(ht_weight_type type, int64_t n_rows, int64_t k, uint8_t *stored, uint64_t seed) {
    product p = {.type = type, .n_rows = n_rows, .k = k, .stored = stored};
    size_t row = test_row_bytes(type, k);
    p.dense = test_alloc((size_t)(n_rows * k) * sizeof(float));
    p.bias = test_alloc((size_t)n_rows * sizeof(float));
    for (int64_t r = 0; r < n_rows; r++) {
        ht_dequantize(type, p.stored + (size_t)r * row, k, p.dense + r * k);
        p.bias[r] = test_random_float(&seed);
    }
    if (ht_weight_type_info_of(type)->block > 1) {
        p.blocks = test_alloc((size_t)(n_rows * (k / 32)) * sizeof *p.blocks);
        for (int64_t i = 0; i < n_rows * (k / 32); i++)
            p.blocks[i] = test_block_of(type, p.stored + (size_t)(i / (k / 32)) * row, i % (k / 32));
    }
    return p;
}

static product make_product(ht_weight_type type, int64_t n_rows, int64_t k, uint64_t seed) {
    uint8_t *stored = test_alloc((size_t)n_rows * test_row_bytes(type, k));
    test_random_weights(type, n_rows, k, &seed, stored);
    return product_of(type, n_rows, k, stored, seed);
}

static void free_product(product *p) {
    free(p->stored);
    free(p->dense);
    free(p->bias);
    free(p->blocks);
}

static ht_matrix pack(const product *p, ht_cpu_isa isa, ht_precision precision) {
    return test_pack(ht_cpu_matrix_ops(isa, p->type, precision), p->type, p->n_rows, p->k, p->stored);
}

/* ---- what the result must be ---- */

/* A block of activations as numbers: planes, the scale of each, and half the step of their sum. */
typedef struct numbers {
    int planes, q[2][32];
    float scale[2], peak;
    double half_step;
} numbers;

static float peak_of(const float *x) {
    float peak = 0.0f;
    for (int i = 0; i < 32; i++) peak = fmaxf(peak, fabsf(x[i]));
    return peak;
}

/* In high precision: 128 high + low. */
static numbers split_block(const float *x) {
    numbers n = {.planes = 2, .peak = peak_of(x)};
    float by = n.peak > 0x1p-110f ? 16256.0f / n.peak : 0.0f;
    for (int i = 0; i < 32; i++) {
        int q = (int)(fmaf(x[i], by, 12582912.0f) - 12582912.0f);
        n.q[0][i] = (int)floor((q + 64) / 128.0);
        n.q[1][i] = q - 128 * n.q[0][i];
        assert_true(abs(n.q[0][i]) <= 127 && abs(n.q[1][i]) <= 64);
    }
    n.scale[1] = n.peak / 16256.0f;
    n.scale[0] = 128 * n.scale[1];
    n.half_step = 0.505 * n.peak / 16256;
    return n;
}

/* The best of three. */
static numbers quantise_block(const float *x) {
    float peak = peak_of(x), least = INFINITY;
    numbers best = {.planes = 1, .peak = peak, .half_step = 0.505 * peak / 125};
    float s = peak / 127.0f, by = peak > 0x1p-110f ? 256.0f * 127.0f / peak : 0.0f;
    for (int level = 128; level >= 126; level--) {
        int try[32], sum = 0;
        float step = 128.0f / (float)level;
        for (int i = 0; i < 32; i++) {
            int y = (int)(fmaf(x[i], by, 12582912.0f) - 12582912.0f);
            try[i] = (y * level + 16384) >> 15;
            int e = (2 * (y * level - 32768 * try[i])) >> 8;
            sum += e * e;
        }
        float error = (float)sum * (step * step);
        if (!(error < least)) continue;
        least = error;
        best.scale[0] = s * step;
        memcpy(best.q[0], try, sizeof try);
    }
    return best;
}

static numbers *quantise_row(ht_precision precision, const float *x, int64_t k) {
    numbers *row = test_alloc((size_t)(k / 32) * sizeof *row);
    for (int64_t b = 0; b < k / 32; b++)
        row[b] = precision == HT_PRECISION_HIGH ? split_block(x + 32 * b) : quantise_block(x + 32 * b);
    return row;
}

/* One output in the documented order: two planes are one number of more bits. */
static float emulate_quantised(const product *p, const numbers *x, int64_t row) {
    float y = 0.0f;
    for (int64_t b = 0; b < p->k / 32; b++) {
        const test_block *w = &p->blocks[row * (p->k / 32) + b];
        int dot[2] = {0}, sum[2] = {0};
        for (int i = 0; i < 32; i++) {
            int h = w->halves == 2 ? i / 16 : 0;
            int q = x[b].planes == 2 ? 128 * x[b].q[0][i] + x[b].q[1][i] : x[b].q[0][i];
            dot[h] += w->q[i] * q;
            sum[h] += q;
        }
        float t = (float)dot[0] * w->scale[0];
        if (w->halves == 2) t = t + (float)dot[1] * w->scale[1];
        for (int h = 0; h < w->halves && w->has_min; h++) t = fmaf(w->min[h], (float)sum[h], t);
        y = fmaf(t, x[b].scale[x[b].planes - 1], y);
    }
    return y;
}

static float emulate_dense(const product *p, const float *x, int64_t row) {
    const float *w = p->dense + row * p->k;
    float y = 0.0f;
    for (int64_t c = 0; c < p->k; c += HT_DENSE_CHUNK) {
        float part = 0.0f;
        for (int64_t i = c; i < ht_min_i64(c + HT_DENSE_CHUNK, p->k); i++) part = fmaf(w[i], x[i], part);
        y = c ? y + part : part;
    }
    return y;
}

/* Weights of 16 bits as words. */
static float emulate_words(const product *p, const float *x, int64_t row) {
    const float *w = p->dense + row * p->k;
    float y = 0.0f;
    for (int64_t c = 0; c < p->k; c += 32) {
        int64_t end = ht_min_i64(c + 32, p->k), t = 0;
        float peak = 0.0f;
        int e = -110;
        bool broken = false;
        for (int64_t i = c; i < end; i++) {
            int of_w;
            peak = fmaxf(peak, fabsf(x[i]));
            if (!isfinite(w[i]))
                broken = true;
            else if (frexpf(w[i], &of_w) != 0.0f && of_w > e)
                e = of_w;
        }
        /* An f16 block of denormals alone is scaled as the least normal number is: no bits of it are lost either way. */
        if (p->type == HT_W_F16 && e < -14) e = -14;
        float s = peak / (float)HT_WORD_X, inverse = s > 0.0f ? 1.0f / s : 0.0f,
              u = broken ? NAN : ldexpf(1.0f, e - 13);
        for (int64_t i = c; i < end; i++)
            if (isfinite(w[i])) t += (int64_t)nearbyint(ldexp(w[i], 13 - e)) * (int64_t)nearbyintf(x[i] * inverse);
        assert_true(t < INT32_MAX && t > INT32_MIN);
        y = fmaf((float)(int32_t)t * u, s, y);
    }
    return y;
}

/* The product in f64, and a bound of what a correct kernel may be off: of activations that become numbers q, half the
 * coarsest step of each block; and the rounding of sums. */
static double exact(const product *p, const float *x, const numbers *q, int64_t row, double *bound) {
    const float *w = p->dense + row * p->k;
    double sum = 0, size = 0, steps = 0;
    for (int64_t c = 0; c < p->k; c++) {
        sum += (double)w[c] * x[c];
        size += fabs((double)w[c] * x[c]);
    }
    for (int64_t b = 0; q && b < p->k / 32; b++) {
        double peak = q[b].peak, weights = 0;
        for (int i = 0; i < 32; i++) weights += fabs((double)w[32 * b + i]);
        steps += q[b].half_step * weights;
        /* Scaled weight and offset are added apart: their sizes count, not that of their sum. */
        size += 40 * peak * weights;
    }
    *bound = steps + 4e-7 * size * sqrt((double)p->k + 8) + 1e-30;
    return sum;
}

typedef enum input {
    INPUT_RANDOM,
    INPUT_ZERO,
    INPUT_HUGE,
    INPUT_SMALL,
    INPUT_TINY,
    INPUT_TINIEST,
    INPUT_NEGATIVE,
    INPUT_EQUAL,
    INPUT_OUTLIER,
    INPUT_COUNT
} input;

static void fill_input(float *x, int64_t n, input kind, uint64_t *state) {
    for (int64_t i = 0; i < n; i++) {
        float v = test_random_float(state);
        switch (kind) {
        case INPUT_ZERO: v = 0.0f; break;
        case INPUT_HUGE: v *= 1e30f; break;
        case INPUT_SMALL: v *= 1e-20f; break;
        case INPUT_TINY: v *= 1e-30f; break;
        case INPUT_TINIEST: v *= 3e-36f; break; /* 1 / scale times 256 is no f32 */
        case INPUT_NEGATIVE: v = -fabsf(v); break;
        case INPUT_EQUAL: v = 0.75f; break;
        case INPUT_OUTLIER: v = i % 37 == 5 ? 100.0f * v : 0.01f * v; break;
        default: break;
        }
        x[i] = v;
    }
}

static void check_outputs(const product *p, ht_precision precision, const float *x, int64_t ldx, int64_t n_x,
                          bool with_bias, const float *y, int64_t ldy, const char *what) {
    bool quantised = precision != HT_PRECISION_REFERENCE && ht_weight_type_info_of(p->type)->block > 1;
    for (int64_t i = 0; i < n_x; i++) {
        const float *xi = x + i * ldx;
        numbers *q = quantised ? quantise_row(precision, xi, p->k) : NULL;
        for (int64_t r = 0; r < p->n_rows; r++) {
            float got = y[i * ldy + r], expected = p->in_words ? emulate_words(p, xi, r)
                                                   : quantised ? emulate_quantised(p, q, r)
                                                               : emulate_dense(p, xi, r);
            double bound, value = exact(p, xi, q, r, &bound) + (with_bias ? p->bias[r] : 0);
            if (with_bias) expected = expected + p->bias[r];
            const bool same = isnan(expected) ? isnan(got) : memcmp(&got, &expected, sizeof got) == 0;
            if (!same || !(p->in_words || fabs((double)got - value) <= bound + 1e-6))
                fail_msg(
                    "%s %s [%lld, %lld] x %lld rows: y[%lld][%lld] is %.9g, its order gives %.9g, f64 %.9g +- %.3g",
                    what, ht_weight_type_info_of(p->type)->name, (long long)p->n_rows, (long long)p->k, (long long)n_x,
                    (long long)i, (long long)r, (double)got, (double)expected, value, bound);
        }
        free(q);
    }
    for (int64_t i = 0; i + 1 < n_x; i++) /* what lies between the rows of y is not ours */
        for (int64_t r = p->n_rows; r < ldy; r++) assert_true(y[i * ldy + r] == -7.0f);
}

static void check_one(const product *p, const ht_matrix *m, ht_precision precision, int64_t n_x, input kind,
                      bool with_bias, int n_threads, uint64_t *state) {
    int64_t ldx = p->k + (int64_t)(test_random(state) % 5), ldy = p->n_rows + (int64_t)(test_random(state) % 20);
    float *x = test_alloc((size_t)(ldx * n_x) * sizeof(float)), *y = test_alloc((size_t)(ldy * n_x) * sizeof(float));
    fill_input(x, ldx * n_x, kind, state);
    for (int64_t i = 0; i < ldy * n_x; i++) y[i] = -7.0f;
    test_multiply(m, x, ldx, n_x, with_bias ? p->bias : NULL, y, ldy, n_threads);
    check_outputs(p, precision, x, ldx, n_x, with_bias, y, ldy, m->ops->name);
    free(x);
    free(y);
}

static const int64_t row_counts[] = {1, 15, 16, 17, 33, 100};
static const int64_t x_counts[] = {1, 2, 3, 7, 8, 9, 37, 64, 65};

/* Column counts that end inside and at the edge of every chunk the kernels cut. */
static int columns(ht_weight_type type, int64_t k[6]) {
    static const int64_t dense[] = {1, 2, 127, 129, 300, 515}, small[] = {32, 64, 96, 576, 544, 1056},
                         middle[] = {128, 384, 640, 1152, 256, 896}, large[] = {256, 512, 768, 1280, 256, 1024};
    int block = ht_weight_type_info_of(type)->block;
    memcpy(k, block == 1 ? dense : block == 32 ? small : block < 256 ? middle : large, sizeof dense);
    return 6;
}

static void check_type(ht_cpu_isa isa, ht_weight_type type, ht_precision precision) {
    uint64_t state = 1000u * (uint64_t)type + 1;
    int64_t k[6];
    int n_k = columns(type, k);
    /* Of every type other shapes on each instruction set: two, which have every kind of input together. */
    const int turn = 5 * (int)type + 7 * (int)isa + 11 * (int)precision, every = TEST_EMULATED ? 36 : 18;
    for (size_t r = 0; r < sizeof row_counts / sizeof *row_counts; r++)
        for (int c = 0; c < n_k; c++) {
            if (!test_takes((int)r * n_k + c + turn, every)) continue;
            product p = make_product(type, row_counts[r], k[c], state + r);
            ht_matrix m = pack(&p, isa, precision);
            int64_t n_x = x_counts[test_random(&state) % 9];
            for (int kind = 0; kind < INPUT_COUNT; kind++)
                if (test_takes(kind + c + (int)r, 2))
                    check_one(&p, &m, precision, kind ? 2 : n_x, (input)kind, (kind + c) % 2, 1 + kind % 2, &state);
            free(m.packed);
            free_product(&p);
        }
    product p = make_product(type, 33, k[3], 77);
    ht_matrix m = pack(&p, isa, precision);
    for (int i = 0; i < (int)(sizeof x_counts / sizeof *x_counts); i++)
        if (test_takes(i + turn, 3)) check_one(&p, &m, precision, x_counts[i], INPUT_RANDOM, i % 2, 2, &state);
    free(m.packed);
    free_product(&p);
}

/* Products with weights of 16 bits that have tests of their own below. */
static bool in_words(int isa, int type, ht_precision precision) {
    bool half = type == HT_W_F16 || type == HT_W_BF16;
    return half && precision != HT_PRECISION_REFERENCE && ht_cpu_multiplies_words((ht_cpu_isa)isa);
}

/* MLX's groups are one code for their many sizes: of kinds of tests that have no path of their own for each, some do. */
static bool is_repetition(int type) {
    const ht_affine a = ht_affine_of((ht_weight_type)type);
    return a.bits && type % 7;
}

/* Where everything takes many times as long, repetitions are left out altogether. */
static bool is_left_out(int isa, int type, ht_precision precision) {
    /* Every type in turn on some of the instruction sets, on others in other precisions. */
    const int share = TEST_WATCHES_THREADS || TEST_EMULATED ? 5 : TEST_SLOW ? 4 : 1;
    if ((type / 4 + type + isa + (int)precision) % test_cases(share, 1)) return true;
    const bool once = TEST_SLOW || precision == HT_PRECISION_REFERENCE || isa == HT_CPU_REFERENCE;
    return is_repetition(type) && test_cases(once, false);
}

static void every_type_everywhere(ht_precision precision) {
    for (int isa = 0; isa < HT_CPU_ISA_COUNT; isa++)
        for (int type = 0; type < HT_W_COUNT; type++)
            if (ht_cpu_isa_available((ht_cpu_isa)isa) && !in_words(isa, type, precision) &&
                !is_left_out(isa, type, precision))
                check_type((ht_cpu_isa)isa, (ht_weight_type)type, precision);
}

UNIT_TEST(test_high) { every_type_everywhere(HT_PRECISION_HIGH); }

UNIT_TEST(test_fast) { every_type_everywhere(HT_PRECISION_FAST); }

UNIT_TEST(test_reference) { every_type_everywhere(HT_PRECISION_REFERENCE); }

/* Row i alone and among others, with 1, 2 and 4 threads in a soak, else one of these: the same bits. Wide and long enough for
 * every path. */
static void same_bits(ht_cpu_isa isa, ht_weight_type type, ht_precision precision) {
    enum { ROWS = 65, OUT = 212 };
    const int block = ht_weight_type_info_of(type)->block;
    const int64_t k = block > 32 ? 768 : block > 1 ? 608 : 1130;
    uint64_t seed = 5;
    product p = make_product(type, OUT, k, 3);
    ht_matrix m = pack(&p, isa, precision);
    float *x = test_alloc((size_t)(ROWS * k) * sizeof(float));
    float *alone = test_alloc(ROWS * OUT * sizeof(float)), *many = test_alloc(ROWS * OUT * sizeof(float));
    fill_input(x, ROWS * k, INPUT_RANDOM, &seed);
    const int turn = (int)type + (int)isa + (int)precision;
    int64_t known = 0;
    for (int i = 0; i < (int)(sizeof x_counts / sizeof *x_counts); i++) {
        if (!test_takes(i + turn, 3)) continue;
        for (; known < x_counts[i]; known++)
            test_multiply(&m, x + known * k, k, 1, p.bias, alone + known * OUT, OUT, 1);
        for (int t = 0; t < 3; t++) {
            if (!test_takes(t + i / 3 + turn, 3)) continue;
            test_multiply(&m, x, k, x_counts[i], p.bias, many, OUT, 1 << t);
            assert_memory_equal(alone, many, (size_t)x_counts[i] * OUT * sizeof(float));
        }
    }
    free(x);
    free(alone);
    free(many);
    free(m.packed);
    free_product(&p);
}

UNIT_TEST(test_same_bits) {
    for (int isa = 0; isa < HT_CPU_ISA_COUNT; isa++)
        for (int type = 0; type < HT_W_COUNT; type++)
            for (int precision = 0; precision < 3; precision++)
                if (ht_cpu_isa_available((ht_cpu_isa)isa) && (isa != HT_CPU_REFERENCE || type % 4 == 0) &&
                    !is_left_out(isa, type, (ht_precision)precision))
                    same_bits((ht_cpu_isa)isa, (ht_weight_type)type, (ht_precision)precision);
}

/* Rows come back as they were stored; packing in slabs gives the same bytes; the packed form is hardly larger. */
static void check_packing(ht_weight_type type, ht_precision precision, int64_t n_rows, int64_t k) {
    product p = make_product(type, n_rows, k, 11);
    ht_matrix m = pack(&p, ht_cpu_isa_best(), precision);
    float *row = test_alloc((size_t)k * sizeof(float));
    for (int64_t r = 0; r < n_rows; r++) {
        assert_int_equal(m.ops->row(&m, r, row, NULL), HT_OK);
        assert_memory_equal(row, p.dense + r * k, (size_t)k * sizeof(float));
    }
    ht_matrix slabs = m;
    slabs.packed = test_alloc(m.packed_bytes);
    for (int64_t r = (n_rows - 1) / HT_MATRIX_SLAB * HT_MATRIX_SLAB; r >= 0; r -= HT_MATRIX_SLAB)
        m.ops->pack(&slabs, r, ht_min_i64(HT_MATRIX_SLAB, n_rows - r), p.stored + (size_t)r * test_row_bytes(type, k),
                    NULL);
    assert_memory_equal(slabs.packed, m.packed, m.packed_bytes);
    if (n_rows % 16 == 0 && k >= 512) { /* panels of one block are rounded up to whole cache lines */
        size_t stored = (size_t)n_rows * test_row_bytes(type, k);
        assert_true((double)m.packed_bytes <= 1.03 * (double)stored);
    }
    free(row);
    free(slabs.packed);
    free(m.packed);
    free_product(&p);
}

UNIT_TEST(test_packing) {
    for (int type = 0; type < HT_W_COUNT; type += TEST_WATCHES_THREADS ? 3 : 1)
        for (int precision = 0; precision < (is_repetition(type) ? 1 : 3); precision++) {
            if (TEST_SLOW && (type + precision) % test_cases(3, 1)) continue;
            int64_t k[6];
            const int n = columns((ht_weight_type)type, k);
            for (int r = 0; r < (int)(sizeof row_counts / sizeof *row_counts); r++)
                for (int c = 0; c < n; c++)
                    if (test_takes(c + r + type + precision, 6))
                        check_packing((ht_weight_type)type, (ht_precision)precision, row_counts[r], k[c]);
            check_packing((ht_weight_type)type, (ht_precision)precision, 192, k[3]);
        }
}

/* A row that holds a NaN or an infinity must not look like numbers, and must not disturb its neighbours. */
UNIT_TEST(test_not_finite) {
    for (int isa = 0; isa < HT_CPU_ISA_COUNT; isa++)
        for (int i = 0; i < 2 * HT_W_COUNT; i++) {
            if (!ht_cpu_isa_available((ht_cpu_isa)isa)) continue;
            uint64_t seed = 9;
            product p = make_product((ht_weight_type)(i / 2), 20, 256, 4);
            ht_matrix m = pack(&p, (ht_cpu_isa)isa, i % 2 ? HT_PRECISION_HIGH : HT_PRECISION_FAST);
            float x[3 * 256], y[3 * 20], alone[20];
            fill_input(x, 3 * 256, INPUT_RANDOM, &seed);
            x[256 + 70] = NAN;
            x[512 + 3] = INFINITY;
            test_multiply(&m, x, 256, 3, NULL, y, 20, 1);
            test_multiply(&m, x, 256, 1, NULL, alone, 20, 1);
            assert_memory_equal(y, alone, sizeof alone);
            for (int r = 0; r < 20; r++) {
                assert_true(isnan(y[20 + r]));
                assert_false(isfinite(y[40 + r]) && p.dense[256 * r + 3] != 0.0f);
            }
            free(m.packed);
            free_product(&p);
        }
}

/* Scratch for n rows is enough for fewer, whatever the parts are that they are cut into. */
UNIT_TEST(test_scratch_grows) {
    static const ht_weight_type types[] = {HT_W_Q4_1, HT_W_Q6_K, HT_W_IQ2_XS, HT_W_BF16};
    static const int64_t shapes[][2] = {{768, 2048}, {14336, 4096}, {4096, 1024}, {19, 256}};
    for (int i = 0; i < 4 * 4 * 3 * 2 * HT_CPU_ISA_COUNT; i++) {
        const ht_cpu_isa isa = (ht_cpu_isa)(i / 96);
        if (!ht_cpu_isa_available(isa)) continue;
        const ht_precision precision = i / 48 % 2 ? HT_PRECISION_FAST : HT_PRECISION_HIGH;
        const int threads = (int[]){2, 8, 64}[i / 16 % 3];
        const ht_weight_type type = types[i % 4];
        const ht_matrix m = {.ops = ht_cpu_matrix_ops(isa, type, precision),
                             .type = type,
                             .n_rows = shapes[i / 4 % 4][0],
                             .k = shapes[i / 4 % 4][1]};
        size_t before = 0;
        for (int64_t n = 1; n <= 600; n++) {
            size_t bytes = ht_cpu_ops_of(&m)->mul_scratch(&m, n, threads);
            assert_true(bytes >= before);
            before = bytes;
        }
    }
}

/* ---- weights of 16 bits in words: every length of the last block, extreme weights and activations ---- */

/* What the weights of a product are like. */
typedef enum weights {
    WEIGHTS_RANDOM,
    WEIGHTS_SPREAD,  /* any bits but infinities and NaN */
    WEIGHTS_LARGEST, /* all as large as they can be: the largest sums */
    WEIGHTS_TINY,    /* about the least exponent, and denormals */
    WEIGHTS_ZERO,
    WEIGHTS_BROKEN, /* an infinity here, a NaN there */
    WEIGHTS_COUNT
} weights;

static uint16_t half_of(ht_weight_type type, float v) {
    return type == HT_W_F16 ? ht_f32_to_f16(v) : ht_f32_to_bf16(v);
}

static uint16_t weight(ht_weight_type type, weights kind, int64_t i, uint64_t *state) {
    const uint16_t exponent = type == HT_W_F16 ? 0x7c00 : 0x7f80;
    uint16_t bits = (uint16_t)test_random(state);
    switch (kind) {
    case WEIGHTS_SPREAD: return (bits & exponent) == exponent ? (uint16_t)(bits ^ 0x4000) : bits;
    case WEIGHTS_LARGEST: return half_of(type, type == HT_W_F16 ? 2047.0f / 1024 : 255.0f / 128);
    case WEIGHTS_TINY: return bits & (type == HT_W_F16 ? 0x87ff : 0x8bff);
    case WEIGHTS_ZERO: return bits & 0x8000;
    case WEIGHTS_BROKEN:
        if (i % 150 == 149) return (uint16_t)(exponent | (bits & 0x8000) | (i % 300 > 150));
        break;
    default: break;
    }
    return half_of(type, test_random_float(state));
}

static product make_words(ht_weight_type type, int64_t n_rows, int64_t k, weights kind, uint64_t *state) {
    uint16_t *stored = test_alloc((size_t)(n_rows * k) * sizeof *stored);
    for (int64_t i = 0; i < n_rows * k; i++) stored[i] = weight(type, kind, i, state);
    product p = product_of(type, n_rows, k, (uint8_t *)stored, *state);
    p.in_words = true;
    return p;
}

static void words_of_any_size(ht_cpu_isa isa, ht_weight_type type) {
    static const int64_t k[] = {1, 2, 3, 16, 17, 31, 32, 33, 63, 64, 65, 511, 512, 513, 560, 1099};
    static const int64_t n_x[] = {1, 2, 3, 4, 5, 6, 7, 8, 13, 64};
    uint64_t state = 1;
    for (size_t r = 0; r < sizeof row_counts / sizeof *row_counts; r++)
        for (size_t c = 0; c < sizeof k / sizeof *k; c++) {
            product p = make_words(type, row_counts[r], k[c], WEIGHTS_RANDOM, &state);
            ht_matrix m = pack(&p, isa, HT_PRECISION_FAST);
            check_one(&p, &m, HT_PRECISION_FAST, n_x[(r + c) % 10], INPUT_RANDOM, (r + c) % 2, 1 + (int)(c % 2),
                      &state);
            free(m.packed);
            free_product(&p);
        }
}

static void extreme_words(ht_cpu_isa isa, ht_weight_type type) {
    uint64_t state = 2;
    for (int w = 0; w < WEIGHTS_COUNT; w++)
        for (int x = 0; x < INPUT_COUNT; x++) {
            /* Results smaller than a float can be are flushed, at a place that the order does not say. */
            if (x == INPUT_TINY || x == INPUT_TINIEST) continue;
            if (type == HT_W_BF16 && (w == WEIGHTS_TINY || w == WEIGHTS_SPREAD) && x == INPUT_SMALL) continue;
            product p = make_words(type, 33, 300, (weights)w, &state);
            ht_matrix m = pack(&p, isa, HT_PRECISION_FAST);
            check_one(&p, &m, HT_PRECISION_FAST, 1, (input)x, false, 1, &state);
            check_one(&p, &m, HT_PRECISION_FAST, 20, (input)x, true, 2, &state);
            free(m.packed);
            free_product(&p);
        }
}

/* As close to the exact product as 14 bits allow: half a step of each side, and the rounding of the sums. */
static void words_are_accurate(ht_cpu_isa isa, ht_weight_type type) {
    enum { K = 1000, OUT = 64 };
    uint64_t state = 5;
    product p = make_words(type, OUT, K, WEIGHTS_RANDOM, &state);
    ht_matrix m = pack(&p, isa, HT_PRECISION_FAST);
    float x[K], y[OUT];
    fill_input(x, K, INPUT_RANDOM, &state);
    test_multiply(&m, x, K, 1, NULL, y, OUT, 1);
    for (int r = 0; r < OUT; r++) {
        double exact = 0, size_x = 0, size_w = 0;
        for (int i = 0; i < K; i++) {
            double w = (double)p.dense[r * K + i];
            exact += w * (double)x[i];
            size_x = fmax(size_x, fabs((double)x[i]));
            size_w = fmax(size_w, fabs(w));
        }
        /* Errors of either sign: their sum grows as the root of their number. */
        double step = size_x * size_w * (1.0 / 8191 + 1.0 / 4096);
        assert_true(fabs((double)y[r] - exact) < 4 * step / sqrt(12.0) * sqrt((double)K));
    }
    free(m.packed);
    free_product(&p);
}

UNIT_TEST(test_words) {
    static const ht_weight_type types[] = {HT_W_F16, HT_W_BF16};
    for (int isa = 0; isa < HT_CPU_ISA_COUNT; isa++)
        for (int t = 0; t < 2; t++) {
            if (!ht_cpu_isa_available((ht_cpu_isa)isa) || !in_words(isa, (int)types[t], HT_PRECISION_FAST)) continue;
            words_of_any_size((ht_cpu_isa)isa, types[t]);
            extreme_words((ht_cpu_isa)isa, types[t]);
            words_are_accurate((ht_cpu_isa)isa, types[t]);
        }
}

int main(void) {
    ht_flush_denormals();
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_packing),    cmocka_unit_test(test_scratch_grows), cmocka_unit_test(test_high),
        cmocka_unit_test(test_fast),       cmocka_unit_test(test_reference),     cmocka_unit_test(test_same_bits),
        cmocka_unit_test(test_not_finite), cmocka_unit_test(test_words),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
