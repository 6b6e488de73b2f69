/* Codebook types unpacked, eight weights at a time in the bytes of a 64-bit word. Bit layouts: formats/blocks.h. */
#include "formats/codebook.h"

#include "base/half.h"
#include "formats/blocks.h"
#include "formats/codebook_tables.h"

#include <string.h>

/* Byte i is bias + magnitude i, or bias - magnitude i where bit i of `signs` is set. */
static inline uint64_t with_signs(uint64_t magnitudes, uint8_t signs, unsigned bias) {
    uint64_t bit = signs * HT_EACH_BYTE & 0x8040201008040201u; /* byte i: bit i of signs */
    uint64_t negative = ((bit + 127 * HT_EACH_BYTE) >> 7 & HT_EACH_BYTE) * 255;
    uint64_t plus = bias * HT_EACH_BYTE + magnitudes, minus = bias * HT_EACH_BYTE - magnitudes;
    return plus ^ ((plus ^ minus) & negative);
}

/* Writes q[8 * i .. 8 * i + 7]. */
static inline void put(ht_codebook_group *out, int i, uint64_t bytes) {
    for (int k = 0; k < 8; k++) out->q[8 * i + k] = (uint8_t)(bytes >> 8 * k);
}

static uint32_t word_at(const uint8_t *p) { return ht_u16_at(p) | (uint32_t)ht_u16_at(p + 2) << 16; }

static int nibble_of(const uint8_t *p, int i) { return p[i / 2] >> 4 * (i & 1) & 15; }

/* ---- IQ2, IQ3: magnitudes and signs ---- */

enum { IQ2_BIAS = 43, IQ3_XXS_BIAS = 62, IQ3_S_BIAS = 15 };

static float iq2_scale(float d, int s) { return d * (0.5f + (float)s) * 0.25f; }

static void iq2_xxs(const void *p, int g, ht_codebook_group *out) {
    const ht_block_iq2_xxs *b = p;
    const uint8_t *number = b->qs + 8 * g;
    uint32_t rest = word_at(number + 4);
    out->scale[0] = iq2_scale(ht_half_at(b->d.b), (int)(rest >> 28));
    for (int i = 0; i < 4; i++)
        put(out, i,
            with_signs(ht_grid_iq2_values(ht_grid_iq2_xxs[number[i]]), ht_signs_of(rest >> 7 * i & 127), IQ2_BIAS));
}

static void iq2_xs(const void *p, int g, ht_codebook_group *out) {
    const ht_block_iq2_xs *b = p;
    float d = ht_half_at(b->d.b);
    for (int h = 0; h < 2; h++) out->scale[h] = iq2_scale(d, nibble_of(b->scales, 2 * g + h));
    for (int i = 0; i < 4; i++) {
        uint32_t both = ht_u16_at(b->qs + 8 * g + 2 * i);
        put(out, i, with_signs(ht_grid_iq2_values(ht_grid_iq2_xs[both & 511]), ht_signs_of(both >> 9), IQ2_BIAS));
    }
}

static void iq2_s(const void *p, int g, ht_codebook_group *out) {
    const ht_block_iq2_s *b = p;
    float d = ht_half_at(b->d.b);
    for (int h = 0; h < 2; h++) out->scale[h] = iq2_scale(d, nibble_of(b->scales, 2 * g + h));
    for (int i = 0; i < 4; i++) {
        int number = b->qs[4 * g + i] | (b->qh[g] >> 2 * i & 3) << 8;
        put(out, i, with_signs(ht_grid_iq2_values(ht_grid_iq2_s[number]), b->signs[4 * g + i], IQ2_BIAS));
    }
}

static void iq3_xxs(const void *p, int g, ht_codebook_group *out) {
    const ht_block_iq3_xxs *b = p;
    const uint8_t *number = b->qs + 8 * g;
    uint32_t rest = word_at(b->scales + 4 * g);
    out->scale[0] = ht_half_at(b->d.b) * (0.5f + (float)(rest >> 28)) * 0.5f;
    for (int i = 0; i < 4; i++) {
        uint64_t values = ht_grid_iq3_xxs_values(ht_grid_iq3_xxs[number[2 * i]]) |
                          (uint64_t)ht_grid_iq3_xxs_values(ht_grid_iq3_xxs[number[2 * i + 1]]) << 32;
        put(out, i, with_signs(values, ht_signs_of(rest >> 7 * i & 127), IQ3_XXS_BIAS));
    }
}

static void iq3_s(const void *p, int g, ht_codebook_group *out) {
    const ht_block_iq3_s *b = p;
    const uint8_t *low = b->qs + 8 * g;
    out->scale[0] = ht_half_at(b->d.b) * (float)(1 + 2 * nibble_of(b->scales, g));
    for (int i = 0; i < 4; i++) {
        int first = low[2 * i] | (b->qh[g] >> 2 * i & 1) << 8, second = low[2 * i + 1] | (b->qh[g] >> (2 * i + 1) & 1)
                                                                                             << 8;
        uint64_t values =
            ht_grid_iq3_s_values(ht_grid_iq3_s[first]) | (uint64_t)ht_grid_iq3_s_values(ht_grid_iq3_s[second]) << 32;
        put(out, i, with_signs(values, b->signs[4 * g + i], IQ3_S_BIAS));
    }
}

/* ---- IQ1: (-1, 0, 1) +- 1/8, in eighths: -9 to 9 ---- */

enum { IQ1_BIAS = 9 };

static uint64_t iq1_values(int number, bool minus) {
    return ht_grid_pairs(ht_grid_iq1[number]) * 8 + (minus ? 0 : 2 * HT_EACH_BYTE);
}

static void iq1_s(const void *p, int g, ht_codebook_group *out) {
    const ht_block_iq1_s *b = p;
    int high = ht_u16_at(b->qh + 2 * g);
    out->scale[0] = ht_half_at(b->d.b) * (float)(2 * (high >> 12 & 7) + 1) * 0.125f;
    for (int i = 0; i < 4; i++) put(out, i, iq1_values(b->qs[4 * g + i] | (high >> 3 * i & 7) << 8, high >> 15));
}

static void iq1_m(const void *p, int g, ht_codebook_group *out) {
    const ht_block_iq1_m *b = p;
    unsigned d = 0;
    for (int i = 0; i < 4; i++) d |= (unsigned)(b->scales[2 * i + 1] >> 4) << 4 * i;
    for (int h = 0; h < 2; h++) {
        int n = 2 * g + h, s = ht_u16_at(b->scales + n / 4 * 2) >> 3 * (n % 4) & 7;
        out->scale[h] = ht_f16_to_f32((uint16_t)d) * (float)(2 * s + 1) * 0.125f;
    }
    for (int i = 0; i < 4; i++) {
        int high = nibble_of(b->qh, 4 * g + i);
        put(out, i, iq1_values(b->qs[4 * g + i] | (high & 7) << 8, high >> 3));
    }
}

/* ---- TQ1: base-3 digits; Q1: signs ---- */

/* Digit n of n_bytes base-3 fractions. */
static inline void digits(const uint8_t *fraction, int n_bytes, int n, uint8_t *to) {
    static const uint8_t powers[] = {1, 3, 9, 27, 81};
    const uint8_t power = powers[n];
    for (int i = 0; i < n_bytes; i++) to[i] = (uint8_t)((uint8_t)(fraction[i] * power) * 3 >> 8);
}

static void tq1_0(const void *p, int g, ht_codebook_group *out) {
    const ht_block_tq1_0 *b = p;
    out->scale[0] = ht_half_at(b->d.b);
    if (g < 5)
        digits(b->qs, 32, g, out->q);
    else
        digits(b->qs + 32, 16, 2 * g - 10, out->q);
    if (g == 5 || g == 6) digits(b->qs + 32, 16, 2 * g - 9, out->q + 16);
    for (int n = 0; g == 7 && n < 4; n++) digits(b->qh, 4, n, out->q + 16 + 4 * n);
}

static void q1_0(const void *p, int g, ht_codebook_group *out) {
    const ht_block_q1_0 *b = p;
    out->scale[0] = ht_half_at(b->d.b);
    for (int i = 0; i < 4; i++) put(out, i, with_signs(HT_EACH_BYTE, (uint8_t)~b->qs[4 * g + i], 1));
}

const ht_codebook_fn *ht_codebook_of(ht_weight_type type) {
    static const ht_codebook_fn all[HT_W_COUNT] = {
        [HT_W_TQ1_0] = {tq1_0, 1, 1},
        [HT_W_Q1_0] = {q1_0, 1, 1},
        [HT_W_IQ1_S] = {iq1_s, IQ1_BIAS, 1},
        [HT_W_IQ1_M] = {iq1_m, IQ1_BIAS, 2},
        [HT_W_IQ2_XXS] = {iq2_xxs, IQ2_BIAS, 1},
        [HT_W_IQ2_XS] = {iq2_xs, IQ2_BIAS, 2},
        [HT_W_IQ2_S] = {iq2_s, IQ2_BIAS, 2},
        [HT_W_IQ3_XXS] = {iq3_xxs, IQ3_XXS_BIAS, 1},
        [HT_W_IQ3_S] = {iq3_s, IQ3_S_BIAS, 1},
    };
    return all[type].unpack ? &all[type] : NULL;
}
