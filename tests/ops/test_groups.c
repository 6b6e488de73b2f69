/* Products by quantised matrices of every mode and number of bits, of every instruction set, against the plain kernel: few
 * rows and many, by rows and by columns of the matrix, sizes that fill neither lanes nor blocks, any bits as numbers. */
#include "base/dtype.h"
#include "cpu/element.h"
#include "support/operands.h"
#include "support/test.h"
#include "support/weights.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void fill(ht_dtype dtype, void *to, int64_t n, float factor, uint64_t *state) {
    for (int64_t i = 0; i < n; i++) ht_set_f32(dtype, to, i, factor * test_random_float(state));
}

typedef struct quantised {
    ht_view numbers, scales, biases;
} quantised;

/* [lead, rows, columns] of random bits; elements are below some 4 in magnitude. */
static quantised random_matrix(const ht_quantization *how, ht_dtype dtype, int64_t lead, int64_t rows, int64_t columns,
                               bool any_bits, uint64_t *state) {
    const bool affine = how->mode == HT_QUANT_AFFINE;
    const int64_t words[3] = {lead, rows, columns * how->bits / 32}, groups[3] = {lead, rows, columns / how->group};
    const int64_t n = lead * rows * words[2], n_groups = lead * rows * groups[2];
    uint32_t *numbers = test_room((size_t)n * 4);
    for (int64_t i = 0; i < n; i++) {
        numbers[i] = test_random(state);
        if (how->mode == HT_QUANT_MXFP8 && !any_bits) numbers[i] &= 0xbfbfbfbfu; /* no NaN */
    }
    quantised q = {.numbers = test_view(numbers, HT_U32, 3, words), .biases = test_absent()};
    void *scales = test_room((size_t)n_groups * 4);
    if (affine) {
        void *biases = test_room((size_t)n_groups * 4);
        fill(dtype, scales, n_groups, 4.0f / (float)(1 << how->bits), state);
        fill(dtype, biases, n_groups, 1.0f, state);
        q.biases = test_view(biases, dtype, 3, groups);
    } else
        for (int64_t i = 0; i < n_groups; i++) {
            uint8_t power = (uint8_t)(how->bits == 8 ? 121 - test_random(state) % 6 : 126 - test_random(state) % 4);
            ((uint8_t *)scales)[i] = how->mode == HT_QUANT_NVFP4 ? (uint8_t)(test_random(state) % 0x38) : power;
        }
    q.scales = test_view(scales, affine ? dtype : HT_U8, 3, groups);
    return q;
}

static void matrix_free(quantised *q) {
    free(q->numbers.data), free(q->scales.data);
    if (!ht_view_absent(&q->biases)) free(q->biases.data);
}

/* Within `tolerance`, or rounding to the type, of what the plain kernel gives; 0: the same bits. */
static void compare(ht_op_id op, const ht_quantize_params *p, int n_in, const ht_view *in, ht_view out,
                    double tolerance, const char *what) {
    char described[128];
    snprintf(described, sizeof described, "mode %d, %d bits in groups of %d, part %d, %s", (int)p->how.mode,
             p->how.bits, p->how.group, p->part, what);
    comparison c = {.op = op, .params = p, .n_in = n_in, .out = out, .tolerance = tolerance, .what = described};
    memcpy(c.in, in, (size_t)n_in * sizeof *in);
    assert_int_equal(test_compare(&c), HT_OK);
}

static void compare_product(const ht_quantize_params *p, const ht_view in[6], const int64_t *dims, const char *what) {
    const ht_dtype dtype = in[0].dtype;
    compare(HT_OP_QUANTIZED_MATMUL, p, 6, in, test_view(NULL, dtype, 3, dims), dtype == HT_F32 ? 3e-5 : 1e-9, what);
}

static const ht_quantization modes[] = {{HT_QUANT_AFFINE, 64, 2},  {HT_QUANT_AFFINE, 32, 2}, {HT_QUANT_AFFINE, 32, 3},
                                        {HT_QUANT_AFFINE, 64, 3},  {HT_QUANT_AFFINE, 32, 4}, {HT_QUANT_AFFINE, 128, 4},
                                        {HT_QUANT_AFFINE, 32, 5},  {HT_QUANT_AFFINE, 64, 5}, {HT_QUANT_AFFINE, 32, 6},
                                        {HT_QUANT_AFFINE, 128, 6}, {HT_QUANT_AFFINE, 32, 8}, {HT_QUANT_AFFINE, 64, 8},
                                        {HT_QUANT_MXFP4, 32, 4},   {HT_QUANT_MXFP8, 32, 8},  {HT_QUANT_NVFP4, 16, 4},
                                        {HT_QUANT_AFFINE, 128, 3}, {HT_QUANT_AFFINE, 128, 2}};

UNIT_TEST(products) {
    static const int64_t ms[] = {1, 2, 7, 9, 200};
    static const int64_t sizes[][2] = {
        {1, 1}, {17, 1}, {130, 2}, {33, 5}, {300, 2}}; /* rows, and columns in groups of 128 */
    static const ht_dtype dtypes[] = {HT_F32, HT_BF16, HT_F16};
    for (EACH(i, modes))
        for (EACH(s, sizes))
            for (EACH(k, ms))
                for (int transpose = 0; transpose < 2; transpose++) {
                    if (ms[k] == 200 ? s != 1 || i % 4 : ms[k] > 3 && s == 4) continue;
                    if (!test_takes((int)(i + s + k) + transpose, 2) || !test_takes_today((int)(s + k), 2)) continue;
                    uint64_t seed = 77 + i * 5 + s;
                    const ht_dtype dtype = dtypes[(s + k) % 3];
                    const int64_t rows = sizes[s][0];
                    const int64_t columns = sizes[s][1] > 1 ? 64 * sizes[s][1] / modes[i].group * modes[i].group + 128
                                            : modes[i].group < 32 ? 32
                                                                  : modes[i].group;
                    quantised q = random_matrix(&modes[i], dtype, 1, rows, columns, false, &seed);
                    const int64_t in_shape[3] = {1, ms[k], transpose ? columns : rows};
                    const int64_t out_shape[3] = {1, ms[k], transpose ? rows : columns};
                    void *x = test_room((size_t)(in_shape[1] * in_shape[2]) * 4);
                    fill(dtype, x, in_shape[1] * in_shape[2], 1.0f, &seed);
                    const ht_quantize_params p = {.how = modes[i], .transpose = transpose};
                    const ht_view in[6] = {
                        test_view(x, dtype, 3, in_shape), q.numbers, q.scales, q.biases, test_absent(), test_absent()};
                    char what[64];
                    snprintf(what, sizeof what, "%lld rows by [%lld, %lld]%s", (long long)ms[k], (long long)rows,
                             (long long)columns, transpose ? " transposed" : "");
                    compare_product(&p, in, out_shape, what);
                    free(x);
                    matrix_free(&q);
                }
}

/* Every code of the 8-bit floats, among them NaN and what f32 would keep as denormal numbers on the way. */
UNIT_TEST(all_codes) {
    const ht_quantization how = {HT_QUANT_MXFP8, 32, 8};
    uint64_t seed = 5;
    for (int transpose = 0; transpose < 2; transpose++)
        for (int64_t m = 1; m < 14; m += 12) {
            quantised q = random_matrix(&how, HT_F32, 1, 40, 288, true, &seed);
            const int64_t in_shape[3] = {1, m, transpose ? 288 : 40}, out_shape[3] = {1, m, transpose ? 40 : 288};
            float *x = test_room((size_t)(m * in_shape[2]) * sizeof *x);
            memset(x, 0, (size_t)(m * in_shape[2]) * sizeof *x);
            for (int64_t i = 0; i < m; i++) x[i * in_shape[2] + 3 * i] = 2048.0f; /* one element alone */
            const ht_quantize_params p = {.how = how, .transpose = transpose};
            for (int64_t i = 0; i < 256; i++) ((uint8_t *)q.numbers.data)[i] = (uint8_t)i;
            for (int64_t i = 0; i < 9 * 40; i++) ((uint8_t *)q.scales.data)[i] = 127;
            for (int64_t i = 256; i < 288 * 40; i++)
                if ((((uint8_t *)q.numbers.data)[i] & 127) == 127) ((uint8_t *)q.numbers.data)[i] = 1;
            const ht_view in[6] = {
                test_view(x, HT_F32, 3, in_shape), q.numbers, q.scales, q.biases, test_absent(), test_absent()};
            compare_product(&p, in, out_shape, "all codes");
            free(x);
            matrix_free(&q);
        }
}

/* Matrices by index: runs of few rows beside runs of many. */
UNIT_TEST(chosen) {
    int32_t right[40], left[40];
    for (int i = 0; i < 40; i++) {
        right[i] = i < 20 ? 2 : i % 5 ? i % 2 : 3;
        left[i] = i % 7;
    }
    const int64_t n = 40;
    for (EACH(i, modes))
        for (int transpose = 0; transpose < 2; transpose++) {
            if (!test_takes_today((int)i + transpose, 3)) continue;
            uint64_t seed = i + 1;
            quantised q = random_matrix(&modes[i], HT_F32, 4, 35, 256, false, &seed);
            const int64_t in_shape[3] = {7, 1, transpose ? 256 : 35}, out_shape[3] = {n, 1, transpose ? 35 : 256};
            void *x = test_room((size_t)(7 * in_shape[2]) * 4);
            fill(HT_F32, x, 7 * in_shape[2], 1.0f, &seed);
            const ht_quantize_params p = {.how = modes[i], .transpose = transpose};
            const ht_view in[6] = {
                test_view(x, HT_F32, 3, in_shape), q.numbers, q.scales, q.biases, test_view(left, HT_I32, 1, &n),
                test_view(right, HT_I32, 1, &n)};
            compare_product(&p, in, out_shape, transpose ? "chosen, transposed" : "chosen");
            free(x);
            matrix_free(&q);
        }
}

/* ---- made and read, to the bit ---- */

/* What stands in a group: numbers of one size or many, values between two codes, none, one alone, and what is no number. */
static float element(int group, int i, uint64_t *state) {
    const float x = test_random_float(state);
    switch (group % 14) {
    case 0: return 0.0f;
    case 1: return i % 2 ? -0.0f : 0.0f;
    case 2: return 3.25f;
    case 3: return ldexpf(x, (int)(test_random(state) % 60) - 30);
    case 4: return i == 5 ? NAN : x;
    case 5: return i == 7 ? INFINITY : x;
    case 6: return i == 3 ? -INFINITY : x * 1e-3f;
    case 7: return NAN;
    case 8: return x * 1e-42f;
    case 9: return x * 3e38f;
    case 10: return (float)(int)(test_random(state) % 97) * 0.25f - 6.0f;
    case 11: return fabsf(x) + 100.0f;
    case 12: return -fabsf(x) - 0.5f;
    default: return 4.0f * x;
    }
}

/* [3, 14 groups] in rows, and as the view of an array whose rows lie the other way. */
UNIT_TEST(made_and_read) {
    enum { ROWS = 3, GROUPS = 14 };
    ht_device *plain[TEST_MAX_DEVICES];
    test_devices(1, plain);
    for (EACH(i, modes))
        for (EACH(d, float_types))
            for (int turned = 0; turned < 2; turned++) {
                if (!test_takes_today((int)(i + d) + turned, 3)) continue;
                const ht_dtype dtype = float_types[d];
                const int group = modes[i].group;
                const int64_t columns = GROUPS * group, words[2] = {ROWS, columns * modes[i].bits / 32};
                const int64_t groups[2] = {ROWS, GROUPS}, whole[2] = {ROWS, columns};
                uint64_t seed = i + 1;
                ht_view w = test_view(test_room((size_t)(ROWS * columns) * 8), dtype, 2, whole);
                if (turned) w.stride[0] = 1, w.stride[1] = ROWS;
                for (int64_t row = 0; row < ROWS; row++)
                    for (int64_t c = 0; c < columns; c++)
                        ht_set_f32(dtype, w.data, row * w.stride[0] + c * w.stride[1],
                                   element((int)(c / group), (int)(c % group), &seed));
                ht_view part[3] = {test_view(NULL, HT_U32, 2, words), test_absent(), test_absent()};
                const bool affine = modes[i].mode == HT_QUANT_AFFINE;
                const size_t bytes[3] = {(size_t)(words[0] * words[1]) * 4, ROWS * GROUPS * 8, ROWS * GROUPS * 8};
                part[1] = test_view(NULL, affine ? dtype : HT_U8, 2, groups);
                if (affine) part[2] = test_view(NULL, dtype, 2, groups);
                ht_quantize_params p = {.how = modes[i], .dtype = dtype};
                for (p.part = 0; p.part < (affine ? 3 : 2); p.part++) {
                    ht_view *out = &part[p.part];
                    compare(HT_OP_QUANTIZE, &p, 1, &w, *out, 0, turned ? "turned" : "rows");
                    out->data = test_room(bytes[p.part]);
                    test_run_ok(plain[0], HT_OP_QUANTIZE, &p, 1, &w, out, NULL);
                }
                p.part = 0;
                compare(HT_OP_DEQUANTIZE, &p, 3, part, test_view(NULL, dtype, 2, whole), 0, "read");
                for (int k = 0; k < 3; k++)
                    if (!ht_view_absent(&part[k])) free(part[k].data);
                free(w.data);
            }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(made_and_read),
        cmocka_unit_test(products),
        cmocka_unit_test(all_codes),
        cmocka_unit_test(chosen),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
