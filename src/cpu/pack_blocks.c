/* Panel packing: stored blocks to the units of a panel. A 32-bit word of a block holds four neighbouring weights or
 * their bits, and a panel stores the same word of all 16 rows contiguously. So packing transposes words of the file and
 * then moves bits within words, 16 rows at a time. cpu/pack.h and pack_types.c describe the results. */
#include "cpu/pack_types.h"
#include "formats/blocks.h"

#include <stddef.h>
#include <string.h>

enum { HALVES = 2 * HT_PANEL }; /* bytes of one half per row */

#define LOW  0x0F0F0F0Fu /* the low nibble of each byte */
#define HIGH 0xF0F0F0F0u

typedef const uint8_t *const rows[HT_PANEL];
typedef uint32_t words[HT_PANEL]; /* the same word of every row */
typedef uint32_t quad __attribute__((vector_size(16)));

static inline quad load_quad(const uint8_t *from) {
    quad q;
    memcpy(&q, from, sizeof q);
    return q;
}

/* The four words at offset `at` of every row. */
static inline void gather4(rows row, size_t at, words out[4]) {
    for (int r = 0; r < HT_PANEL; r += 4) {
        quad a = load_quad(row[r] + at), b = load_quad(row[r + 1] + at);
        quad c = load_quad(row[r + 2] + at), d = load_quad(row[r + 3] + at);
        quad ab = __builtin_shufflevector(a, b, 0, 4, 1, 5), cd = __builtin_shufflevector(c, d, 0, 4, 1, 5);
        quad ef = __builtin_shufflevector(a, b, 2, 6, 3, 7), gh = __builtin_shufflevector(c, d, 2, 6, 3, 7);
        quad columns[4] = {__builtin_shufflevector(ab, cd, 0, 1, 4, 5), __builtin_shufflevector(ab, cd, 2, 3, 6, 7),
                           __builtin_shufflevector(ef, gh, 0, 1, 4, 5), __builtin_shufflevector(ef, gh, 2, 3, 6, 7)};
        for (int i = 0; i < 4; i++) memcpy(&out[i][r], &columns[i], sizeof(quad));
    }
}

static inline void gather8(rows row, size_t at, words out[8]) {
    gather4(row, at, out);
    gather4(row, at + 16, out + 4);
}

static inline void put_halves(rows row, size_t at, uint8_t *to) {
    for (int r = 0; r < HT_PANEL; r++) memcpy(to + 2 * r, row[r] + at, 2);
}

/* The four bytes of each word to four planes of 16. */
static inline void put_bytes(const words w, uint8_t *to) {
    for (int i = 0; i < 4; i++)
        for (int r = 0; r < HT_PANEL; r++) to[HT_PANEL * i + r] = (uint8_t)(w[r] >> 8 * i);
}

/* ---- planes of one block ---- */

/* N: nibbles of 32 weights, those at `shift` of each byte. */
static inline void put_nibbles(const words w[8], int shift, uint8_t *to) {
    words n;
    for (int j = 0; j < 4; j++, to += sizeof n) {
        for (int r = 0; r < HT_PANEL; r++) n[r] = (w[j][r] >> shift & LOW) | (w[j + 4][r] >> shift & LOW) << 4;
        memcpy(to, n, sizeof n);
    }
}

/* P: pairs of bits, those at `shift` of each byte. */
static inline void put_pairs(const words w[8], int shift, uint8_t *to) {
    words p;
    for (int half = 0; half < 2; half++, w += 4, to += sizeof p) {
        for (int r = 0; r < HT_PANEL; r++)
            p[r] = (w[0][r] >> shift & 0x03030303u) | (w[1][r] >> shift & 0x03030303u) << 2 |
                   (w[2][r] >> shift & 0x03030303u) << 4 | (w[3][r] >> shift & 0x03030303u) << 6;
        memcpy(to, p, sizeof p);
    }
}

/* H: bit `bit` of each byte. */
static inline void put_bits(const words w[8], int bit, uint8_t *to) {
    words h = {0};
    for (int j = 0; j < 8; j++)
        for (int r = 0; r < HT_PANEL; r++) h[r] |= (w[j][r] >> bit & 0x01010101u) << j;
    memcpy(to, h, sizeof h);
}

static inline uint32_t swap_bits(uint32_t v, uint32_t mask, int distance) {
    uint32_t t = (v >> distance ^ v) & mask;
    return v ^ t ^ t << distance;
}

/* H from a word of 32 bits per row: bit 4 j + i becomes bit j of byte i. Each step exchanges two bits of the bit index
 * j2 j1 j0 i1 i0: 4 and 1, 3 and 0, 2 and 1, 1 and 0. */
static inline void put_fifth(rows row, size_t at, uint8_t *to) {
    words h;
    for (int r = 0; r < HT_PANEL; r++) memcpy(&h[r], row[r] + at, 4);
    for (int r = 0; r < HT_PANEL; r++) {
        uint32_t v = swap_bits(h[r], 0x0000CCCCu, 14);
        v = swap_bits(v, 0x00AA00AAu, 7);
        v = swap_bits(v, 0x0C0C0C0Cu, 2);
        h[r] = swap_bits(v, 0x22222222u, 1);
    }
    memcpy(to, h, sizeof h);
}

/* N from 16 bytes with the nibbles of weights i and i + 16: the words as they are. */
static inline void put_stored_nibbles(rows row, size_t at, uint8_t *to) {
    words n[4];
    gather4(row, at, n);
    memcpy(to, n, sizeof n);
}

/* ---- 32 columns ---- */

static void pack_q4_0(rows row, uint8_t *quants, uint8_t *scales) {
    put_halves(row, offsetof(ht_block_q4_0, d), scales);
    put_stored_nibbles(row, offsetof(ht_block_q4_0, qs), quants);
}

static void pack_q4_1(rows row, uint8_t *quants, uint8_t *scales) {
    put_halves(row, offsetof(ht_block_q4_1, d), scales);
    put_halves(row, offsetof(ht_block_q4_1, m), scales + HALVES);
    put_stored_nibbles(row, offsetof(ht_block_q4_1, qs), quants);
}

static void pack_q5_0(rows row, uint8_t *quants, uint8_t *scales) {
    put_halves(row, offsetof(ht_block_q5_0, d), scales);
    put_stored_nibbles(row, offsetof(ht_block_q5_0, qs), quants);
    put_fifth(row, offsetof(ht_block_q5_0, qh), quants + 256);
}

static void pack_q5_1(rows row, uint8_t *quants, uint8_t *scales) {
    put_halves(row, offsetof(ht_block_q5_1, d), scales);
    put_halves(row, offsetof(ht_block_q5_1, m), scales + HALVES);
    put_stored_nibbles(row, offsetof(ht_block_q5_1, qs), quants);
    put_fifth(row, offsetof(ht_block_q5_1, qh), quants + 256);
}

static void pack_q8_0(rows row, uint8_t *quants, uint8_t *scales) {
    words w[8];
    put_halves(row, offsetof(ht_block_q8_0, d), scales);
    gather8(row, offsetof(ht_block_q8_0, qs), w);
    for (int j = 0; j < 8; j++)
        for (int r = 0; r < HT_PANEL; r++) w[j][r] ^= 0x80808080u;
    memcpy(quants, w, sizeof w);
}

static void pack_iq4_nl(rows row, uint8_t *quants, uint8_t *scales) {
    put_halves(row, offsetof(ht_block_iq4_nl, d), scales);
    put_stored_nibbles(row, offsetof(ht_block_iq4_nl, qs), quants);
}

static void pack_mxfp4(rows row, uint8_t *quants, uint8_t *scales) {
    for (int r = 0; r < HT_PANEL; r++) scales[r] = row[r][offsetof(ht_block_mxfp4, e)];
    put_stored_nibbles(row, offsetof(ht_block_mxfp4, qs), quants);
}

/* ---- 64 columns ---- */

/* A byte of a group of 16 holds columns i and i + 8. A panel pairs columns i and i + 16, of adjacent groups. */
static void pack_nvfp4(rows row, uint8_t *quants, uint8_t *scales) {
    words d, w[4], n[4];
    for (int r = 0; r < HT_PANEL; r++) memcpy(&d[r], row[r] + offsetof(ht_block_nvfp4, d), 4);
    put_bytes(d, scales);
    for (size_t b = 0; b < 2; b++, quants += sizeof n) {
        gather4(row, offsetof(ht_block_nvfp4, qs) + 16 * b, w);
        for (int i = 0; i < 2; i++)
            for (int r = 0; r < HT_PANEL; r++) {
                n[i][r] = (w[i][r] & LOW) | (w[i + 2][r] & LOW) << 4;
                n[i + 2][r] = (w[i][r] >> 4 & LOW) | (w[i + 2][r] & HIGH);
            }
        memcpy(quants, n, sizeof n);
    }
}

void ht_pack_coarse_block(const uint8_t *const row[HT_PANEL], uint8_t *first, uint8_t *rest, uint8_t *scales) {
    words w[8];
    put_halves(row, offsetof(ht_block_q8_0, d), scales);
    gather8(row, offsetof(ht_block_q8_0, qs), w);
    for (int j = 0; j < 8; j++)
        for (int r = 0; r < HT_PANEL; r++) w[j][r] ^= 0x80808080u;
    put_nibbles(w, 3, first);
    put_bits(w, 7, first + 256);
    put_pairs(w, 0, rest);
    put_bits(w, 2, rest + 128);
}

/* ---- 256 columns, b: blocks of 32 ---- */

static void pack_iq4_xs(rows row, uint8_t *quants, uint8_t *scales) {
    static_assert(offsetof(ht_block_iq4_xs, scales_l) == offsetof(ht_block_iq4_xs, scales_h) + 2,
                  "one behind the other");
    put_halves(row, offsetof(ht_block_iq4_xs, d), scales);
    for (size_t i = 0; i < 6; i++) /* the low ones first */
        for (int r = 0; r < HT_PANEL; r++)
            scales[HALVES + HT_PANEL * i + (size_t)r] = row[r][offsetof(ht_block_iq4_xs, scales_h) + (i + 2) % 6];
    for (size_t b = 0; b < 8; b++) put_stored_nibbles(row, offsetof(ht_block_iq4_xs, qs) + 16 * b, quants + 256 * b);
}

static void pack_tq2_0(rows row, uint8_t *quants, uint8_t *scales) {
    words w[8];
    put_halves(row, offsetof(ht_block_tq2_0, d), scales);
    for (size_t h = 0; h < 2; h++) {
        gather8(row, offsetof(ht_block_tq2_0, qs) + 32 * h, w);
        for (int s = 0; s < 4; s++, quants += 128) put_pairs(w, 2 * s, quants);
    }
}

static void pack_q2_k(rows row, uint8_t *quants, uint8_t *scales) {
    words w[8];
    put_halves(row, offsetof(ht_block_q2_k, d), scales);
    put_halves(row, offsetof(ht_block_q2_k, dmin), scales + HALVES);
    gather4(row, offsetof(ht_block_q2_k, scales), w);
    for (int i = 0; i < 4; i++) put_bytes(w[i], scales + 2 * HALVES + 4 * HT_PANEL * i);
    for (size_t h = 0; h < 2; h++) {
        gather8(row, offsetof(ht_block_q2_k, qs) + 32 * h, w);
        for (int s = 0; s < 4; s++, quants += 128) put_pairs(w, 2 * s, quants);
    }
}

/* The 12 bytes of scales are laid out as in the unit: nibbles of g and g + 8, then pairs of bits. The format subtracts
 * 4 where the mask bit is clear; with the mask bit as third bit of q, that is q - 4. */
static void pack_q3_k(rows row, uint8_t *quants, uint8_t *scales) {
    words w[8], mask[8];
    put_halves(row, offsetof(ht_block_q3_k, d), scales);
    for (int i = 0; i < 12; i++)
        for (int r = 0; r < HT_PANEL; r++)
            scales[HALVES + HT_PANEL * i + r] = row[r][offsetof(ht_block_q3_k, scales) + (size_t)i];
    gather8(row, offsetof(ht_block_q3_k, hmask), mask);
    for (int b = 0; b < 8; b++, quants += 192) {
        if (b % 4 == 0) gather8(row, offsetof(ht_block_q3_k, qs) + 8 * (size_t)b, w);
        put_pairs(w, 2 * (b % 4), quants);
        put_bits(mask, b, quants + 128);
    }
}

/* d, dmin and the 12 bytes after them, which ht_k_scale_min decodes. s[1] and s[2] hold the scales and minima of groups
 * 0 to 3 and the high bits of those of groups 4 to 7; s[3] holds the low nibbles of the latter. */
static inline void put_k_scales(rows row, uint8_t *scales) {
    static_assert(offsetof(ht_block_q4_k, scales) == 4 && offsetof(ht_block_q5_k, scales) == 4, "behind d and dmin");
    words s[4], low, high;
    gather4(row, 0, s);
    for (int r = 0; r < HT_PANEL; r++) {
        uint16_t d = (uint16_t)s[0][r], dmin = (uint16_t)(s[0][r] >> 16);
        memcpy(scales + 2 * r, &d, 2);
        memcpy(scales + HALVES + 2 * r, &dmin, 2);
        low[r] = (s[1][r] & LOW) | (s[2][r] & LOW) << 4;
        high[r] = (s[1][r] >> 4 & 0x03030303u) | (s[2][r] >> 4 & 0x03030303u) << 2 | (s[1][r] >> 6 & 0x03030303u) << 4 |
                  (s[2][r] & 0xC0C0C0C0u);
    }
    scales += 2 * HALVES;
    put_bytes(low, scales);
    put_bytes(s[3], scales + 4 * HT_PANEL);
    put_bytes(high, scales + 8 * HT_PANEL);
}

static void pack_q4_k(rows row, uint8_t *quants, uint8_t *scales) {
    words w[8];
    put_k_scales(row, scales);
    for (size_t h = 0; h < 4; h++, quants += 512) {
        gather8(row, offsetof(ht_block_q4_k, qs) + 32 * h, w);
        put_nibbles(w, 0, quants);
        put_nibbles(w, 4, quants + 256);
    }
}

static void pack_q5_k(rows row, uint8_t *quants, uint8_t *scales) {
    words w[8], fifth[8];
    put_k_scales(row, scales);
    gather8(row, offsetof(ht_block_q5_k, qh), fifth);
    for (int b = 0; b < 8; b++, quants += 320) {
        if (b % 2 == 0) gather8(row, offsetof(ht_block_q5_k, qs) + 16 * (size_t)b, w);
        put_nibbles(w, 4 * (b % 2), quants);
        put_bits(fifth, b, quants + 256);
    }
}

static void pack_q6_k(rows row, uint8_t *quants, uint8_t *scales) {
    words low[2][8], high[8];
    put_halves(row, offsetof(ht_block_q6_k, d), scales);
    gather4(row, offsetof(ht_block_q6_k, scales), high);
    for (int i = 0; i < 4; i++) put_bytes(high[i], scales + HALVES + 4 * HT_PANEL * i);
    for (size_t h = 0; h < 2; h++) {
        gather8(row, offsetof(ht_block_q6_k, ql) + 64 * h, low[0]);
        gather8(row, offsetof(ht_block_q6_k, ql) + 64 * h + 32, low[1]);
        gather8(row, offsetof(ht_block_q6_k, qh) + 32 * h, high);
        for (int s = 0; s < 4; s++, quants += 384) {
            put_nibbles(low[s & 1], s < 2 ? 0 : 4, quants);
            put_pairs(high, 2 * s, quants + 256);
        }
    }
}

/* ---- MLX's groups: numbers of any width in one stream, spread to bytes first ---- */

static inline void put_affine_block(rows row, size_t at, int bits, uint8_t *to) {
    words w[8];
    for (int r = 0; r < HT_PANEL; r++)
        for (int i = 0; i < 4; i++) {
            uint64_t eight = ht_affine_spread(bits, row[r] + at + (size_t)(bits * i));
            w[2 * i][r] = (uint32_t)eight;
            w[2 * i + 1][r] = (uint32_t)(eight >> 32);
        }
    if (bits == 8) {
        memcpy(to, w, sizeof w);
        return;
    }
    int from = bits >= 4 ? 4 : 0;
    if (from) put_nibbles(w, 0, to), to += 4 * sizeof(words);
    if (bits - from >= 2) put_pairs(w, from, to), to += 2 * sizeof(words), from += 2;
    if (bits > from) put_bits(w, from, to);
}

void ht_pack_affine(const ht_affine *a, rows row, uint8_t *quants, uint8_t *scales) {
    size_t n = (size_t)a->scale_bytes;
    for (size_t r = 0; r < HT_PANEL; r++) {
        memcpy(scales + n * r, row[r], n);
        memcpy(scales + n * (HT_PANEL + r), row[r] + n, n);
    }
    size_t at = 2 * n, step = 4 * (size_t)a->bits;
    for (int b = 0; b < a->group / HT_QBLOCK; b++, at += step, quants += 64 * a->bits)
        switch (a->bits) { /* constants, so that the loops over bits vanish */
        case 2: put_affine_block(row, at, 2, quants); break;
        case 3: put_affine_block(row, at, 3, quants); break;
        case 4: put_affine_block(row, at, 4, quants); break;
        case 5: put_affine_block(row, at, 5, quants); break;
        case 6: put_affine_block(row, at, 6, quants); break;
        default: put_affine_block(row, at, 8, quants); break;
        }
}

static ht_pack_block_fn *const table[HT_W_COUNT] = {
    [HT_W_Q4_0] = pack_q4_0,   [HT_W_Q4_1] = pack_q4_1,   [HT_W_Q5_0] = pack_q5_0,     [HT_W_Q5_1] = pack_q5_1,
    [HT_W_Q8_0] = pack_q8_0,   [HT_W_Q2_K] = pack_q2_k,   [HT_W_Q3_K] = pack_q3_k,     [HT_W_Q4_K] = pack_q4_k,
    [HT_W_Q5_K] = pack_q5_k,   [HT_W_Q6_K] = pack_q6_k,   [HT_W_IQ4_NL] = pack_iq4_nl, [HT_W_IQ4_XS] = pack_iq4_xs,
    [HT_W_MXFP4] = pack_mxfp4, [HT_W_NVFP4] = pack_nvfp4, [HT_W_TQ2_0] = pack_tq2_0,
};

ht_pack_block_fn *ht_pack_block_of(ht_weight_type type) { return table[type]; }
