/* Panel decoding: a panel's planes (cpu/pack.h) to registers, the weights of one block and the scales of one unit. */
#ifndef HT_CPU_VECTOR_DECODE_H
#define HT_CPU_VECTOR_DECODE_H

#include "cpu/pack.h"
#include "cpu/vector/simd_int.h"
#include "formats/blocks.h"

/* Properties that distinguish the kernels of quantised types, constant once inlined. */
typedef struct ht_qkind {
    int bits, codes;
    int step_bits; /* bits of weights for v16d_step */
    int halves, has_min;
} ht_qkind;

/* The whole sum of a row of activations in two planes. */
HT_INLINE v16i ht_join_planes(v16i high, v16i low) { return v16i_add(v16i_shl(high, HT_PLANE_BITS), low); }

/* x with bits shifted left by n, or right when n is negative. */
HT_INLINE v16i ht_shift(v16i x, int n) { return n == 0 ? x : n > 0 ? v16i_shl(x, n) : v16i_shr(x, -n); }
HT_INLINE v16i ht_bytes(int value) { return v16i_set1(value * 0x01010101); }

#define HT_CODE_OF_8(value) (uint8_t)((value) + HT_DOT_BIAS_8)
#define HT_CODE_OF_5(value) (uint8_t)((value) + 12)

/* W[0] to W[7] from codes. */
HT_INLINE void ht_look_up_weights(int codes, v16i w[8]) {
    static const uint8_t iq4[16] = {HT_IQ4_VALUES(HT_CODE_OF_8)}, e2m1[16] = {HT_E2M1_VALUES(HT_CODE_OF_5)};
    const uint8_t *table = codes == HT_CODES_IQ4 ? iq4 : e2m1;
    for (int j = 0; j < 8; j++) w[j] = v16i_lookup(table, w[j]);
}

/* W[0] to W[7] of the block at `unit`, as v16d_step takes them. */
HT_INLINE void ht_decode_weights(int bits, int codes, const uint8_t *unit, v16i w[8]) {
    if (bits == 8) {
        for (int j = 0; j < 8; j++) w[j] = v16d_weights8(v16i_load_bytes(unit + 64 * j));
        return;
    }
    int from = 0;
    if (bits >= 4) {
        for (int j = 0; j < 4; j++) {
            v16i n = v16i_load_bytes(unit + 64 * j);
            w[j] = v16i_and(n, ht_bytes(15));
            w[j + 4] = v16i_high_nibbles(n);
        }
        unit += 256;
        from = 4;
    }
    if (bits - from >= 2) {
        for (int i = 0; i < 2; i++) {
            v16i p = v16i_load_bytes(unit + 64 * i);
            for (int c = 0; c < 4; c++) {
                v16i pair = ht_shift(p, from - 2 * c), mask = ht_bytes(3 << from);
                w[4 * i + c] = from ? v16i_insert(w[4 * i + c], pair, mask) : v16i_and(pair, mask);
            }
        }
        unit += 128;
        from += 2;
    }
    if (bits > from) {
        v16i h = v16i_load_bytes(unit);
        for (int j = 0; j < 8; j++) w[j] = v16i_insert(w[j], ht_shift(h, from - j), ht_bytes(1 << from));
    }
    if (codes) ht_look_up_weights(codes, w);
}

HT_INLINE v16f ht_halves_at(const uint8_t *p) { return v16f_load_f16((const uint16_t *)(const void *)p); }

/* Decodes 16 e4m3 scales as halves, times 128: exponents differ by 8 from those of halves, and stored weights are
 * doubled. Conversion of subnormal halves is exact even if f32 denormals are flushed. */
HT_INLINE v16f ht_ue4m3_halves(v16i codes) {
    uint16_t half[16];
    v16i_store_u16(half, v16i_shl(v16i_and(codes, v16i_set1(127)), 7));
    v16f value = v16f_mul(v16f_load_f16(half), v16f_set1(128.0f));
    return v16f_select(v16i_eq(codes, v16i_set1(127)), v16f_set1(0.0f), value);
}

/* Scales or biases of MLX's groups, by their type. */
HT_INLINE v16f ht_affine_scales_at(ht_weight_type type, const uint8_t *p) {
    if (type == HT_W_F32) return v16f_load((const float *)(const void *)p);
    return type == HT_W_F16 ? ht_halves_at(p) : v16f_load_bf16((const uint16_t *)(const void *)p);
}

/* Scales and minima of a unit, each a vector of 16 rows, one for every half of its blocks. */
HT_INLINE void ht_decode_scales(ht_weight_type type, const uint8_t *u, v16f *scale, v16f *min) {
    const v16f d = type == HT_W_MXFP4 || type == HT_W_NVFP4 ? v16f_zero() : ht_halves_at(u);
    switch (type) {
    case HT_W_MXFP4: /* 2^(e - 128); the least two would be denormal, which is as good as 0 */
        scale[0] = v16f_from_bits(v16i_shl(v16i_sub(v16i_max(v16i_load_u8(u), v16i_set1(1)), v16i_set1(1)), 23));
        return;
    case HT_W_NVFP4:
        for (int g = 0; g < 4; g++) scale[g] = ht_ue4m3_halves(v16i_load_u8(u + 16 * g));
        return;
    case HT_W_Q4_1:
    case HT_W_Q5_1:
        min[0] = ht_halves_at(u + 32);
        scale[0] = d;
        return;
    case HT_W_Q2_K: {
        v16f dmin = v16f_neg(ht_halves_at(u + 32));
        for (int g = 0; g < 16; g++) {
            v16i both = v16i_load_u8(u + 64 + 16 * g);
            scale[g] = v16f_mul(d, v16f_from_i(v16i_and(both, v16i_set1(15))));
            min[g] = v16f_mul(dmin, v16f_from_i(v16i_shr(both, 4)));
        }
        return;
    }
    case HT_W_Q3_K:
        for (int g = 0; g < 16; g++) {
            v16i low = v16i_and(v16i_shr(v16i_load_u8(u + 32 + 16 * (g & 7)), g < 8 ? 0 : 4), v16i_set1(15));
            v16i high = v16i_and(v16i_shr(v16i_load_u8(u + 160 + 16 * (g & 3)), 2 * (g / 4)), v16i_set1(3));
            v16i code = v16i_or(low, v16i_shl(high, 4));
            scale[g] = v16f_mul(d, v16f_from_i(v16i_sub(code, v16i_set1(32))));
        }
        return;
    case HT_W_Q4_K:
    case HT_W_Q5_K: {
        v16f dmin = v16f_neg(ht_halves_at(u + 32));
        _Alignas(64) uint8_t six[4][64]; /* scales 0-3, minima 0-3, scales 4-7, minima 4-7: a byte per group and row */
        v16i high = v16i_load_bytes(u + 192);
        for (int i = 0; i < 2; i++) {
            v16i low = v16i_load_bytes(u + 64 + 64 * i);
            v16i s = v16i_or(v16i_and(low, ht_bytes(15)), v16i_and(ht_shift(high, 4 - 4 * i), ht_bytes(48)));
            v16i m =
                v16i_or(v16i_and(v16i_shr(low, 4), ht_bytes(15)), v16i_and(ht_shift(high, 2 - 4 * i), ht_bytes(48)));
            v16i_store((int32_t *)(void *)six[2 * i], s);
            v16i_store((int32_t *)(void *)six[2 * i + 1], m);
        }
        for (int g = 0; g < 8; g++) {
            scale[g] = v16f_mul(d, v16f_from_i(v16i_load_u8(six[g / 4 * 2] + 16 * (g & 3))));
            min[g] = v16f_mul(dmin, v16f_from_i(v16i_load_u8(six[g / 4 * 2 + 1] + 16 * (g & 3))));
        }
        return;
    }
    case HT_W_Q6_K:
        for (int g = 0; g < 16; g++) scale[g] = v16f_mul(d, v16f_from_i(v16i_load_s8(u + 32 + 16 * g)));
        return;
    case HT_W_IQ4_XS:
        for (int g = 0; g < 8; g++) {
            v16i low = v16i_and(v16i_shr(v16i_load_u8(u + 32 + 16 * (g / 2)), 4 * (g & 1)), v16i_set1(15));
            v16i high = v16i_and(v16i_shr(v16i_load_u8(u + 96 + 16 * (g / 4)), 2 * (g & 3)), v16i_set1(3));
            v16i code = v16i_or(low, v16i_shl(high, 4));
            scale[g] = v16f_mul(d, v16f_from_i(v16i_sub(code, v16i_set1(32))));
        }
        return;
    case HT_W_TQ2_0:
        for (int g = 0; g < 8; g++) scale[g] = d;
        return;
    default: scale[0] = d; return;
    }
}

#endif
