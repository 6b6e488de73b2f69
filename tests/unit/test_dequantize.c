/* What every stored weight means: against the `gguf` package (tests/golden/dequantize.py), bit for bit. */
#include "base/half.h"
#include "formats/blocks.h"
#include "formats/weight_type.h"
#include "golden/dequantize.inc"
#include "support/test.h"

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

static uint32_t crc32_of(const unsigned char *p, size_t n) {
    uint32_t crc = ~0u;
    for (size_t i = 0; i < n; i++) {
        crc ^= p[i];
        for (int b = 0; b < 8; b++) crc = (crc >> 1) ^ (crc & 1 ? 0xEDB88320u : 0);
    }
    return ~crc;
}

/* Checksum of the values as little-endian float32; the blocks are read from an odd address. */
static uint32_t values_crc(ht_weight_type type, const unsigned char *blocks, size_t n_bytes, int64_t n) {
    unsigned char *odd = malloc(n_bytes + 1), *bytes = malloc((size_t)n * 4);
    float *values = malloc((size_t)n * 4);
    memcpy(odd + 1, blocks, n_bytes);
    ht_dequantize(type, odd + 1, n, values);
    for (int64_t i = 0; i < n; i++) {
        uint32_t bits;
        memcpy(&bits, &values[i], 4);
        for (int b = 0; b < 4; b++) bytes[4 * i + b] = (unsigned char)(bits >> (8 * b));
    }
    uint32_t crc = crc32_of(bytes, (size_t)n * 4);
    free(odd);
    free(bytes);
    free(values);
    return crc;
}

UNIT_TEST(values_equal_the_gguf_package) {
    const struct {
        ht_weight_type type;
        const unsigned char *blocks;
        size_t n_bytes;
        int64_t n;
        uint32_t crc;
    } cases[] = {
#define CASE(NAME, blocks) {HT_W_##NAME, blocks, sizeof blocks, NAME##_COUNT, NAME##_CRC}
        CASE(F32, f32_blocks),         CASE(F16, f16_blocks),       CASE(BF16, bf16_blocks),
        CASE(Q4_0, q4_0_blocks),       CASE(Q4_1, q4_1_blocks),     CASE(Q5_0, q5_0_blocks),
        CASE(Q5_1, q5_1_blocks),       CASE(Q8_0, q8_0_blocks),     CASE(Q2_K, q2_k_blocks),
        CASE(Q3_K, q3_k_blocks),       CASE(Q4_K, q4_k_blocks),     CASE(Q5_K, q5_k_blocks),
        CASE(Q6_K, q6_k_blocks),       CASE(IQ4_NL, iq4_nl_blocks), CASE(IQ4_XS, iq4_xs_blocks),
        CASE(MXFP4, mxfp4_blocks),     CASE(NVFP4, nvfp4_blocks),   CASE(TQ2_0, tq2_0_blocks),
        CASE(TQ1_0, tq1_0_blocks),     CASE(IQ1_S, iq1_s_blocks),   CASE(IQ1_M, iq1_m_blocks),
        CASE(IQ2_XXS, iq2_xxs_blocks), CASE(IQ2_XS, iq2_xs_blocks), CASE(IQ2_S, iq2_s_blocks),
        CASE(IQ3_XXS, iq3_xxs_blocks), CASE(IQ3_S, iq3_s_blocks),   CASE(F8_E4M3, f8_e4m3_blocks),
        CASE(F8_E5M2, f8_e5m2_blocks),
#undef CASE
    };
    const size_t n_cases = sizeof cases / sizeof *cases;
    /* The package does not dequantise Q1_0 (one_bit below), nor read MLX's groups (test_mlx.c). */
    assert_int_equal(n_cases, HT_W_MLX2_32_F16 - 1);
    for (size_t i = 0; i < n_cases; i++) {
        const ht_weight_type_info *info = ht_weight_type_info_of(cases[i].type);
        assert_int_equal(cases[i].n * (int64_t)info->block_bytes, (int64_t)cases[i].n_bytes * info->block);
        uint32_t crc = values_crc(cases[i].type, cases[i].blocks, cases[i].n_bytes, cases[i].n);
        if (crc != cases[i].crc) fail_msg("%s: checksum %08x, expected %08x", info->name, crc, cases[i].crc);
    }
}

/* Q1_0: a half, and 128 bits of which a set one is +d. */
UNIT_TEST(one_bit) {
    uint8_t block[18] = {0x00, 0xC1}; /* -2.5 */
    for (int i = 0; i < 16; i++) block[2 + i] = (uint8_t)(37 * i + 11);
    float values[128];
    ht_dequantize(HT_W_Q1_0, block, 128, values);
    for (int i = 0; i < 128; i++) assert_true(values[i] == (block[2 + i / 8] >> (i % 8) & 1 ? -2.5f : 2.5f));
}

UNIT_TEST(type_table) {
    for (int t = 0; t < HT_W_COUNT; t++) {
        const ht_weight_type_info *info = ht_weight_type_info_of((ht_weight_type)t);
        assert_non_null(info->name);
        if (info->gguf_id >= 0) assert_int_equal(ht_weight_type_from_gguf((uint32_t)info->gguf_id), t);
    }
    assert_int_equal(ht_weight_type_from_gguf(4), -1);
    ht_gguf_layout layout;
    assert_true(ht_gguf_layout_of(28, &layout) && layout.block_bytes == 8 && !strcmp(layout.name, "F64"));
    assert_true(ht_gguf_layout_of(14, &layout) && layout.block_bytes == 210 && layout.block == 256);
    assert_false(ht_gguf_layout_of(4, &layout) || ht_gguf_layout_of(UINT32_MAX, &layout));
    assert_int_equal(ht_weight_type_from_gguf(UINT32_MAX), -1);
}

/* The value of a half by its definition, in double. */
static double half_by_definition(uint16_t h) {
    int exponent = (h >> 10) & 31, mantissa = h & 0x3FF;
    double value = exponent ? 1024 + mantissa : mantissa;
    for (int e = exponent ? exponent : 1; e < 25; e++) value /= 2;
    for (int e = 25; e < exponent; e++) value *= 2;
    return h & 0x8000 ? -value : value;
}

UNIT_TEST(every_half_widens_and_narrows) {
    for (uint32_t h = 0; h < 65536; h++) {
        float f = ht_f16_to_f32((uint16_t)h);
        bool special = ((h >> 10) & 31) == 31;
        if (special && (h & 0x3FF)) {
            assert_true(f != f);
            assert_int_equal(ht_f32_to_f16(f), h | 0x200); /* quiet, payload kept */
            continue;
        }
        if (special)
            assert_int_equal(ht_float_bits(f), h & 0x8000 ? 0xFF800000u : 0x7F800000u);
        else if ((double)f != half_by_definition((uint16_t)h) || (ht_float_bits(f) >> 31) != h >> 15)
            fail_msg("half %04x is %g", h, (double)f);
        assert_int_equal(ht_f32_to_f16(f), h);
    }
}

/* Between two neighbouring halves: the nearer one, and the even one from the middle. */
UNIT_TEST(narrowing_rounds_to_nearest_even) {
    for (uint32_t h = 0; h < 0x7C00; h++) {
        double low = half_by_definition((uint16_t)h);
        double high = h == 0x7BFF ? 65536 : half_by_definition((uint16_t)(h + 1)); /* past the largest: infinity */
        float middle = (float)((low + high) / 2);
        float above = ht_float_from_bits(ht_float_bits(middle) + 1),
              below = ht_float_from_bits(ht_float_bits(middle) - 1);
        assert_int_equal(ht_f32_to_f16(middle), h & 1 ? h + 1 : h);
        assert_int_equal(ht_f32_to_f16(above), h + 1);
        assert_int_equal(ht_f32_to_f16(below), h);
        assert_int_equal(ht_f32_to_f16(-middle), 0x8000 | (h & 1 ? h + 1 : h));
    }
    assert_int_equal(ht_f32_to_f16(3.4e38f), 0x7C00);
    assert_int_equal(ht_f32_to_f16(1e-45f), 0);
    assert_int_equal(ht_f32_to_f16(-1e-45f), 0x8000);
}

UNIT_TEST(bfloat16) {
    for (uint32_t b = 0; b < 65536; b++) {
        float f = ht_bf16_to_f32((uint16_t)b);
        assert_int_equal(ht_float_bits(f), b << 16);
        assert_int_equal(ht_f32_to_bf16(f), f != f ? b | 0x40 : b);
    }
    for (uint32_t b = 0; b < 0x7F80; b++) {
        assert_int_equal(ht_f32_to_bf16(ht_float_from_bits(b << 16 | 0x7FFF)), b);
        assert_int_equal(ht_f32_to_bf16(ht_float_from_bits(b << 16 | 0x8000)), b & 1 ? b + 1 : b);
        assert_int_equal(ht_f32_to_bf16(ht_float_from_bits(b << 16 | 0x8001)), b + 1);
    }
    assert_int_equal(ht_f32_to_bf16(ht_float_from_bits(0x7F800001u)), 0x7FC0); /* a NaN does not round to infinity */
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(values_equal_the_gguf_package),
        cmocka_unit_test(one_bit),
        cmocka_unit_test(type_table),
        cmocka_unit_test(every_half_widens_and_narrows),
        cmocka_unit_test(narrowing_rounds_to_nearest_even),
        cmocka_unit_test(bfloat16),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
