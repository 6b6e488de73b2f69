/* Rounding of weights to blocks (device/device.h) and their packing (formats/block_pack.h): every type that can be packed,
 * read back by ht_dequantize; the same bytes of every instruction set, however many rows go together; errors below those of
 * plain rounding; what is on a type's grid already, extremes, and importance weights. */
#include "base/half.h"
#include "formats/affine.h"
#include "formats/block_pack.h"
#include "formats/blocks.h"
#include "support/kernels.h"
#include "support/test.h"
#include "support/weights.h"

#include <float.h>
#include <math.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static ht_device *devices[TEST_MAX_DEVICES];
static int n_devices;

static int start(void **state) {
    (void)state;
    n_devices = test_devices(1, devices);
    return n_devices > 0 ? 0 : -1;
}

/* ---- types ---- */

/* The numbers of a type's blocks: groups of elements, integer scales and minima of groups where there are any. */
typedef struct traits {
    int group, n_groups, low, high;
    int scale_low, scale_high, min_high; /* 0: none */
    bool has_min;
    const int *table; /* of numbers; NULL: a number is itself */
    ht_weight_type floats;
} traits;

#define VALUE(x) x
static const int iq4[16] = {HT_IQ4_VALUES(VALUE)}, e2m1[16] = {HT_E2M1_VALUES(VALUE)};
#undef VALUE

static traits traits_of(ht_weight_type type) {
    const ht_weight_type h = HT_W_F16;
    switch (type) {
    case HT_W_Q4_0: return (traits){32, 1, -8, 7, 0, 0, 0, false, NULL, h};
    case HT_W_Q4_1: return (traits){32, 1, 0, 15, 0, 0, 0, true, NULL, h};
    case HT_W_Q5_0: return (traits){32, 1, -16, 15, 0, 0, 0, false, NULL, h};
    case HT_W_Q5_1: return (traits){32, 1, 0, 31, 0, 0, 0, true, NULL, h};
    case HT_W_Q8_0: return (traits){32, 1, -127, 127, 0, 0, 0, false, NULL, h};
    case HT_W_Q2_K: return (traits){16, 16, 0, 3, 0, 15, 15, true, NULL, h};
    case HT_W_Q3_K: return (traits){16, 16, -4, 3, -32, 31, 0, false, NULL, h};
    case HT_W_Q4_K: return (traits){32, 8, 0, 15, 0, 63, 63, true, NULL, h};
    case HT_W_Q5_K: return (traits){32, 8, 0, 31, 0, 63, 63, true, NULL, h};
    case HT_W_Q6_K: return (traits){16, 16, -32, 31, -128, 127, 0, false, NULL, h};
    case HT_W_IQ4_NL: return (traits){32, 1, 0, 15, 0, 0, 0, false, iq4, h};
    case HT_W_IQ4_XS: return (traits){32, 8, 0, 15, -32, 31, 0, false, iq4, h};
    case HT_W_MXFP4: return (traits){32, 1, 0, 15, 0, 0, 0, false, e2m1, HT_W_F32};
    default: {
        const ht_affine a = ht_affine_of(type);
        assert_true(a.bits > 0);
        return (traits){a.group, 1, 0, (1 << a.bits) - 1, 0, 0, 0, true, NULL, a.scale};
    }
    }
}

static const char *name_of(ht_weight_type type) { return ht_weight_type_info_of(type)->name; }
static int block_of(ht_weight_type type) { return ht_weight_type_info_of(type)->block; }

static float stored_float(ht_weight_type floats, float x) {
    return floats == HT_W_F32   ? x
           : floats == HT_W_F16 ? ht_f16_to_f32(ht_f32_to_f16(x))
                                : ht_bf16_to_f32(ht_f32_to_bf16(x));
}

#define EACH_TYPE(type)                                                                                                \
    ht_weight_type type = (ht_weight_type)0;                                                                           \
    type < HT_W_COUNT;                                                                                                 \
    type = (ht_weight_type)(type + 1)

/* ---- packing ---- */

static ht_block_numbers random_numbers(ht_weight_type type, uint64_t *state) {
    const traits t = traits_of(type);
    ht_block_numbers n = {.d = stored_float(t.floats, test_random_float(state)),
                          .m = t.has_min ? stored_float(t.floats, test_random_float(state)) : 0};
    if (type == HT_W_MXFP4) n.d = ldexpf(1.0f, (int)(test_random(state) % 200) - 90);
    for (int g = 0; g < t.n_groups; g++) {
        const int scales = t.scale_high - t.scale_low + 1;
        if (t.scale_high) n.scale[g] = (int8_t)(t.scale_low + (int)(test_random(state) % (uint32_t)scales));
        if (t.min_high) n.min[g] = (uint8_t)(test_random(state) % (uint32_t)(t.min_high + 1));
    }
    for (int i = 0; i < block_of(type); i++) n.q[i] = (uint8_t)(test_random(state) % (uint32_t)(t.high - t.low + 1));
    return n;
}

/* Element i of a block by its numbers, as formats/block_pack.h has it. */
static float element_of(const traits *t, const ht_block_numbers *n, int i) {
    const int g = i / t->group;
    const float number = (float)(t->table ? t->table[n->q[i]] : n->q[i] + t->low);
    const float scale = t->scale_high ? n->d * (float)n->scale[g] : n->d;
    const float min = t->min_high ? n->m * (float)n->min[g] : n->m;
    return t->has_min ? scale * number - min : scale * number;
}

UNIT_TEST(packed_and_read) {
    int n_types = 0;
    for (EACH_TYPE(type)) {
        if (!ht_block_is_packed(type)) continue;
        const traits t = traits_of(type);
        uint64_t seed = (uint64_t)type + 1;
        uint8_t *block = test_room(ht_weight_type_info_of(type)->block_bytes);
        float read[HT_BLOCK_LENGTH];
        assert_int_equal(t.group * t.n_groups, block_of(type));
        for (int round = 0; round < 200; round++) {
            const ht_block_numbers n = random_numbers(type, &seed);
            memset(block, round % 2 ? 0xff : 0, ht_weight_type_info_of(type)->block_bytes);
            ht_block_pack(type, &n, block);
            ht_dequantize(type, block, block_of(type), read);
            for (int i = 0; i < block_of(type); i++)
                if (read[i] != element_of(&t, &n, i))
                    fail_msg("%s: element %d is %.9g, not %.9g", name_of(type), i, (double)read[i],
                             (double)element_of(&t, &n, i));
        }
        free(block);
        n_types++;
    }
    assert_int_equal(n_types, 13 + 6 * 3 * 3); /* GGUF's; MLX's bits, groups and floats */
}

/* ---- values ---- */

static float normal(uint64_t *state) {
    float sum = 0;
    for (int i = 0; i < 6; i++) sum += test_random_float(state);
    return 0.7f * sum;
}

enum { N_KINDS = 12 };

/* What stands in a group: a normal distribution and others, one element, constants, zeros, one sign, sizes that differ. */
static float element(int kind, int i, uint64_t *state) {
    const float x = normal(state);
    switch (kind % N_KINDS) {
    case 0: return 0.0f;
    case 1: return i % 32 == 5 ? 1.5f : 0.0f;
    case 2: return 0.3125f;
    case 3: return -7.0f;
    case 4: return fabsf(x) + 0.1f;
    case 5: return -fabsf(x) - 2.0f;
    case 6: return ldexpf(x, (int)(test_random(state) % 24) - 16);
    case 7: return i % 32 == 9 ? 40.0f : 0.02f * x;
    case 8: return x * 1e-41f;
    case 9: return (float)(int)(test_random(state) % 15) - 7.0f;
    default: return 0.05f * x;
    }
}

static void fill(float *x, int64_t n, int kind, int group, uint64_t *state) {
    for (int64_t i = 0; i < n; i++)
        x[i] = element(kind < 0 ? (int)(i / group % N_KINDS) : kind, (int)(i % group), state);
}

static bool round_on(const ht_device *d, ht_weight_type type, const float *x, int64_t n, int64_t k,
                     const float *importance, void *to) {
    memset(to, 0x5a, test_row_bytes(type, k) * (size_t)n);
    return d->round_weights(type, x, n, k, importance, to);
}

/* Rounded by the best instruction set, and read back. */
static void rounded(ht_weight_type type, const float *x, int64_t n, int64_t k, const float *importance, float *out) {
    uint8_t *blocks = test_room(test_row_bytes(type, k) * (size_t)n);
    if (!round_on(devices[n_devices - 1], type, x, n, k, importance, blocks)) fail_msg("%s: too large", name_of(type));
    ht_dequantize(type, blocks, n * k, out);
    free(blocks);
}

/* ---- instruction sets ---- */

UNIT_TEST(same_bytes) {
    static const int64_t sizes[][2] = {{1, 1}, {1, 3}, {3, 5}, {5, 7}, {16, 1}, {17, 1}, {2, 16}}; /* rows, blocks */
    for (EACH_TYPE(type))
        for (size_t s = 0; ht_block_is_packed(type) && s < sizeof sizes / sizeof *sizes; s++)
            for (int with = 0; with < 2; with++) {
                if (TEST_SLOW && (s + (size_t)type + (size_t)with) % 5) continue;
                const int64_t n = sizes[s][0], k = sizes[s][1] * block_of(type);
                const size_t row = test_row_bytes(type, k), bytes = row * (size_t)n;
                uint64_t seed = s + 3;
                float *x = test_room((size_t)(n * k) * sizeof *x),
                      *importance = test_room((size_t)k * sizeof *importance);
                uint8_t *want = test_room(bytes), *got = test_room(bytes);
                fill(x, n * k, -1, traits_of(type).group, &seed);
                for (int64_t i = 0; i < k; i++) importance[i] = expf(3.0f * normal(&seed));
                const float *how = with ? importance : NULL;
                assert_true(round_on(devices[0], type, x, n, k, how, want));
                for (int d = 1; d < n_devices; d++) {
                    assert_true(round_on(devices[d], type, x, n, k, how, got));
                    if (memcmp(got, want, bytes) != 0)
                        fail_msg("%s, %s, [%lld, %lld]: other bytes than the plain kernel's",
                                 devices[d]->instruction_set, name_of(type), (long long)n, (long long)k);
                }
                for (int64_t r = 0; r < n; r++) { /* rows are rounded alike on their own */
                    uint8_t *alone = test_room(row);
                    assert_true(round_on(devices[n_devices - 1], type, x + r * k, 1, k, how, alone));
                    if (memcmp(alone, want + (size_t)r * row, row) != 0)
                        fail_msg("%s: row %lld of [%lld, %lld] is another one by itself", name_of(type), (long long)r,
                                 (long long)n, (long long)k);
                    free(alone);
                }
                free(x), free(importance), free(want), free(got);
            }
}

/* ---- errors ---- */

/* Plain rounding: each group's range, or its largest element, becomes all numbers; elements get the nearest. */
static void plain_group(const traits *t, const float *x, float *scale, float *min) {
    float low = x[0], high = x[0], peak = 0;
    for (int i = 0; i < t->group; i++) {
        low = fminf(low, x[i]);
        high = fmaxf(high, x[i]);
        peak = fmaxf(peak, fabsf(x[i]));
    }
    if (t->min_high) low = fminf(low, 0);
    *min = t->has_min ? -low : 0;
    *scale = t->has_min ? (high - low) / (float)(t->high - t->low) : peak / (float)(t->table == iq4 ? 113 : t->high);
    if (t->table == e2m1) *scale = peak > 0 ? exp2f(ceilf(log2f(peak / 12))) : 0;
}

static uint8_t plain_number(const traits *t, float y) {
    if (!t->table) return (uint8_t)(fminf(fmaxf(rintf(y), (float)t->low), (float)t->high) - (float)t->low);
    int best = 0;
    for (int i = 1; i < 16; i++)
        if (fabsf((float)t->table[i] - y) < fabsf((float)t->table[best] - y)) best = i;
    return (uint8_t)best;
}

static void plain_block(ht_weight_type type, const float *x, float *out) {
    const traits t = traits_of(type);
    ht_block_numbers n = {0};
    float scale[HT_BLOCK_GROUPS], min[HT_BLOCK_GROUPS], most = 0, most_min = 0;
    uint8_t block[256];
    for (int g = 0; g < t.n_groups; g++) {
        plain_group(&t, x + g * t.group, &scale[g], &min[g]);
        most = fmaxf(most, scale[g]);
        most_min = fmaxf(most_min, min[g]);
    }
    n.d = stored_float(t.floats, t.scale_high ? most / (float)t.scale_high : scale[0]);
    n.m = stored_float(t.floats, t.min_high ? most_min / (float)t.min_high : min[0]);
    for (int g = 0; g < t.n_groups; g++) {
        if (t.scale_high && n.d > 0) n.scale[g] = (int8_t)rintf(scale[g] / n.d);
        if (t.min_high && n.m > 0) n.min[g] = (uint8_t)rintf(min[g] / n.m);
        const float s = t.scale_high ? n.d * (float)n.scale[g] : n.d, m = t.min_high ? n.m * (float)n.min[g] : n.m;
        for (int i = g * t.group; i < (g + 1) * t.group; i++) n.q[i] = plain_number(&t, s != 0 ? (x[i] + m) / s : 0);
    }
    ht_block_pack(type, &n, block);
    ht_dequantize(type, block, block_of(type), out);
}

/* Squared error of a block, in the weights of rounding: the group's root mean square plus the element's size. */
static double weighted_error(const traits *t, int n, const float *x, const float *y, const float *importance) {
    double error = 0;
    for (int first = 0; first < n; first += t->group) {
        double squares = 0;
        for (int i = first; i < first + t->group; i++) squares += (double)x[i] * (double)x[i];
        const double typical = sqrt(squares / t->group);
        for (int i = first; i < first + t->group; i++) {
            const double r = (double)y[i] - (double)x[i];
            error += (typical + fabs((double)x[i])) * (importance ? (double)importance[i] : 1) * r * r;
        }
    }
    return error;
}

/* What the error may be above that of plain rounding: sums of f32, and the last place of the stored floats. */
static double slack(const traits *t) { return t->floats == HT_W_BF16 ? 0x1p-16 : 0x1p-22; }

static void compare_with_plain(ht_weight_type type, int kind, int n_blocks) {
    static const float zeros[HT_BLOCK_LENGTH];
    const traits t = traits_of(type);
    const int block = block_of(type), n = n_blocks * block;
    float *x = test_room((size_t)n * sizeof *x), *got = test_room((size_t)n * sizeof *got), plain[HT_BLOCK_LENGTH];
    uint64_t seed = (uint64_t)(kind + 1);
    double sum = 0, plain_sum = 0;
    fill(x, n, kind, t.group, &seed);
    rounded(type, x, 1, n, NULL, got);
    for (int b = 0; b < n; b += block) {
        plain_block(type, x + b, plain);
        const double error = weighted_error(&t, block, x + b, got + b, NULL);
        const double want = weighted_error(&t, block, x + b, plain, NULL);
        if (error > want * 1.25 + slack(&t) * weighted_error(&t, block, x + b, zeros, NULL))
            fail_msg("%s, values %d, block %d: error %.9g, of plain rounding %.9g", name_of(type), kind, b / block,
                     error, want);
        sum += error;
        plain_sum += want;
    }
    if (kind >= 10 && !(sum < plain_sum))
        fail_msg("%s, values %d: error %.9g, of plain rounding %.9g", name_of(type), kind, sum, plain_sum);
    free(x), free(got);
}

UNIT_TEST(below_plain_rounding) {
    for (EACH_TYPE(type))
        for (int kind = 0; ht_block_is_packed(type) && kind < N_KINDS; kind++)
            if (kind != 8 && (!TEST_EMULATED || ((int)type + kind) % 3 == 0))
                compare_with_plain(type, kind, TEST_SLOW ? 6 : 24); /* denormals are zeros in sums */
}

/* ---- what is on the grid ---- */

/* A block as other programs round them: each group has elements at both ends of its numbers, one group the largest scale and the
 * largest minimum, and floats that are not negative go with an offset. */
static ht_block_numbers full_range_numbers(ht_weight_type type, uint64_t *state) {
    const traits t = traits_of(type);
    ht_block_numbers n = random_numbers(type, state);
    if (t.has_min) n.d = fabsf(n.d);
    if (t.min_high) n.m = fabsf(n.m);
    for (int g = 0; g < t.n_groups; g++) {
        const uint32_t at = test_random(state) % (uint32_t)t.group;
        n.q[g * t.group + (int)at] = (uint8_t)(t.table == e2m1 ? 15 : 0);
        n.q[g * t.group + (int)(at + 1) % t.group] = (uint8_t)(t.table == e2m1 ? 7 : t.high - t.low);
    }
    const uint32_t g = test_random(state) % (uint32_t)t.n_groups, h = test_random(state) % (uint32_t)t.n_groups;
    if (t.scale_high) n.scale[g] = (int8_t)(t.scale_low < 0 ? t.scale_low : t.scale_high);
    if (t.min_high) n.min[h] = (uint8_t)t.min_high;
    return n;
}

/* How far, of the block's largest element, a value on the grid may move. Offsets and scales that are not powers of two are found
 * to the precision of f32 sums; where groups have integer scales, a group whose integers are near zero may be as near with others. */
static float grid_bound(ht_weight_type type) {
    const traits t = traits_of(type);
    if (type == HT_W_Q4_K || type == HT_W_Q5_K || type == HT_W_IQ4_XS) return 2e-3f;
    return t.has_min && !t.min_high ? 1e-5f : 0;
}

UNIT_TEST(on_the_grid) {
    enum { BLOCKS = TEST_EMULATED ? 40 : 400 };
    for (EACH_TYPE(type)) {
        if (!ht_block_is_packed(type)) continue;
        const int block = block_of(type), n = BLOCKS * block;
        uint64_t seed = 11;
        uint8_t *blocks = test_room(test_row_bytes(type, n));
        float *x = test_room((size_t)n * sizeof *x), *got = test_room((size_t)n * sizeof *got);
        for (int b = 0; b < BLOCKS; b++) {
            const ht_block_numbers numbers = full_range_numbers(type, &seed);
            ht_block_pack(type, &numbers, blocks + (size_t)b * test_row_bytes(type, block));
        }
        ht_dequantize(type, blocks, n, x);
        rounded(type, x, 1, n, NULL, got);
        for (int b = 0; b < n; b += block) {
            float peak = 0, most = 0;
            for (int i = b; i < b + block; i++) {
                peak = fmaxf(peak, fabsf(x[i]));
                most = fmaxf(most, fabsf(got[i] - x[i]));
            }
            if (!(most <= grid_bound(type) * peak))
                fail_msg("%s: a value of block %d moves by %g of the largest, %g", name_of(type), b / block,
                         (double)(most / peak), (double)peak);
        }
        free(blocks), free(x), free(got);
    }
}

/* ---- extremes ---- */

enum { EXTREME_BLOCKS = 5 };

/* The largest difference of rounded values, in units of the largest value. */
static float largest_difference(ht_weight_type type, const float *x) {
    const int n = EXTREME_BLOCKS * block_of(type);
    float *got = test_room((size_t)n * sizeof *got), peak = 0, most = 0;
    rounded(type, x, 1, n, NULL, got);
    for (int i = 0; i < n; i++) {
        if (!isfinite(got[i])) fail_msg("%s: element %d of %g is %g", name_of(type), i, (double)x[i], (double)got[i]);
        peak = fmaxf(peak, fabsf(x[i]));
        most = fmaxf(most, fabsf(got[i] - x[i]));
    }
    free(got);
    return peak > 0 ? most / peak : most;
}

static void check_constant(ht_weight_type type, float value, float bound) {
    const int n = EXTREME_BLOCKS * block_of(type);
    float *x = test_room((size_t)n * sizeof *x);
    for (int i = 0; i < n; i++) x[i] = value;
    const float most = largest_difference(type, x);
    if (!(most <= bound)) fail_msg("%s: %g moves by %g of itself", name_of(type), (double)value, (double)most);
    free(x);
}

static void check_single(ht_weight_type type, float value, int at, float bound) {
    const int n = EXTREME_BLOCKS * block_of(type);
    float *x = test_room((size_t)n * sizeof *x);
    memset(x, 0, (size_t)n * sizeof *x);
    x[at] = value;
    const float most = largest_difference(type, x);
    if (!(most <= bound))
        fail_msg("%s: %g alone, in column %d: an element moves by %g of it", name_of(type), (double)value, at,
                 (double)most);
    free(x);
}

UNIT_TEST(constants) {
    static const float values[] = {1.0f, -1.0f, 0.3f, -7.0f, 5.0f, 0.03f, -250.0f};
    for (EACH_TYPE(type)) {
        if (!ht_block_is_packed(type)) continue;
        const bool coarse = type == HT_W_MXFP4; /* of 4, 5, 6 the number in the middle is none of its */
        check_constant(type, 0.0f, 0.0f);
        check_constant(type, 1e-41f, 1e4f); /* near 0, whatever that is of a denormal */
        check_constant(type, -1e-45f, 1e8f);
        for (size_t i = 0; i < sizeof values / sizeof *values; i++) {
            check_constant(type, values[i], coarse ? 0.2001f : 0.005f);
            for (int at = 0; at < block_of(type); at += (TEST_EMULATED ? 7 : 1) + (int)i)
                check_single(type, values[i], at, coarse ? 0.2001f : 0.02f); /* IQ4's tables have no zero */
        }
    }
}

/* Values of a block up to `size`, of either sign. */
static void fill_up_to(ht_weight_type type, float size, float *x) {
    uint64_t seed = 5;
    for (int i = 0; i < EXTREME_BLOCKS * block_of(type); i++)
        x[i] = (i % 16 == 3 ? -1.0f : i % 16 == 4 ? 1.0f : test_random_float(&seed)) * size;
}

/* What scales of f16 hold is rounded as well as small values are, what they cannot hold is said. */
UNIT_TEST(large_and_small) {
    for (EACH_TYPE(type)) {
        if (!ht_block_is_packed(type)) continue;
        const traits t = traits_of(type);
        const int n = EXTREME_BLOCKS * block_of(type);
        float *x = test_room((size_t)n * sizeof *x);
        uint8_t *blocks = test_room(test_row_bytes(type, n));
        fill_up_to(type, 1.0f, x);
        const float usual = largest_difference(type, x);
        const float largest = t.floats == HT_W_F16 ? 60000.0f : 1e38f,
                    smallest = t.floats == HT_W_F16 ? 0.5f : 0x1p-60f;
        for (float size = smallest; size <= largest; size *= 1024.0f) {
            fill_up_to(type, size, x);
            const float most = largest_difference(type, x);
            if (!(most <= 1.5f * usual))
                fail_msg("%s: values up to %g move by %g of it, up to 1 by %g", name_of(type), (double)size,
                         (double)most, (double)usual);
        }
        static const float beyond[] = {1e12f, 1e20f, 3e38f};
        for (size_t i = 0; t.floats == HT_W_F16 && i < sizeof beyond / sizeof *beyond; i++) {
            fill_up_to(type, 1.0f, x);
            x[n - 1] = beyond[i]; /* of the last block alone */
            for (int d = 0; d < n_devices; d++)
                if (round_on(devices[d], type, x, 1, n, NULL, blocks))
                    fail_msg("%s, %s: took %g", devices[d]->instruction_set, name_of(type), (double)beyond[i]);
        }
        free(x), free(blocks);
    }
}

/* ---- importance ---- */

/* Errors of the columns of which `important` tells, and of all in the weights of importance. */
UNIT_TEST(importance_counts) {
    enum { ROWS = 24 };
    for (EACH_TYPE(type)) {
        if (!ht_block_is_packed(type)) continue;
        const traits t = traits_of(type);
        const int k = 2 * block_of(type), n = ROWS * k;
        float *x = test_room((size_t)n * sizeof *x), *without = test_room((size_t)n * sizeof *x),
              *with = test_room((size_t)n * sizeof *x);
        float *importance = test_room((size_t)k * sizeof *importance);
        uint64_t seed = 21;
        fill(x, n, 10, t.group, &seed);
        for (int c = 0; c < k; c++) importance[c] = c % 8 == 3 ? 50.0f : c % 8 == 5 ? 0.0f : 0.5f;
        rounded(type, x, ROWS, k, NULL, without);
        rounded(type, x, ROWS, k, importance, with);
        double all[2] = {0}, important[2] = {0}, worst = 0, peak = 0;
        for (int row = 0; row < n; row += k) {
            all[0] += weighted_error(&t, k, x + row, without + row, importance);
            all[1] += weighted_error(&t, k, x + row, with + row, importance);
            for (int c = 3; c < k; c += 8) {
                important[0] += pow((double)without[row + c] - (double)x[row + c], 2);
                important[1] += pow((double)with[row + c] - (double)x[row + c], 2);
            }
            for (int c = 0; c < k; c++) {
                worst = fmax(worst, fabs((double)with[row + c] - (double)x[row + c]));
                peak = fmax(peak, fabs((double)x[row + c]));
            }
        }
        if (!(all[1] < all[0]) || !(important[1] < important[0]))
            fail_msg("%s: importance makes errors of %g into %g, of important columns of %g into %g", name_of(type),
                     all[0], all[1], important[0], important[1]);
        if (!(worst < 1.5 * peak)) fail_msg("%s: columns without importance move by %g", name_of(type), worst);
        free(x), free(without), free(with), free(importance);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(packed_and_read),   cmocka_unit_test(same_bytes), cmocka_unit_test(below_plain_rounding),
        cmocka_unit_test(on_the_grid),       cmocka_unit_test(constants),  cmocka_unit_test(large_and_small),
        cmocka_unit_test(importance_counts),
    };
    return cmocka_run_group_tests(tests, start, NULL);
}
