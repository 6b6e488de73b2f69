/* Integer dot products on the lanes of simd.h. A v16i is also 64 bytes: byte 4 l + i belongs to lane l, so a dot product
 * adds four products of bytes to each lane. All forms are exact, hence alike.
 *
 *   v16i_load_bytes(p)       64 bytes
 *   v16i_load_u8, _s8(p)     16 bytes, one per lane
 *   v16i_set4(p)             the same 4 bytes in every lane
 *   v16i_high_nibbles(v)     of each byte, moved to the low ones
 *   v16i_insert(v, x, mask)  v | x & mask, for a v that has no bit of the mask
 *   v16i_lookup(table, v)    bytes of a table of 16; those of v are 0 to 15
 *
 * A dot product of up to 8 steps of 4 columns:
 *
 *   v16d d = v16d_start(offset);
 *   for (j = 0; j < steps; j++) d = v16d_step(d, w, x, bits, steps, j);
 *   v16i sum = v16d_sum(d, offset);
 *
 * v16d_step4(d, w, p, bits, steps, j) is v16d_step(d, w, v16i_set4(p), bits, steps, j), for an x that is used once.
 *
 * The offset is added once: before the first step where the instruction accumulates, else at the end.
 * w are weights of `bits` bits: unsigned below 8 bits. Weights of 8 bits are stored with 128 added; what a step takes is
 * v16d_weights8(stored), which is the weight plus HT_DOT_BIAS_8. x are signed, -127 to 127. `bits`, `steps` and `j` must
 * be constants once inlined.
 *
 * Dot products of many rows of x with the same 16 x 32 weights. Where an instruction multiplies 2 x 8 by 8 x 2 numbers,
 * rows go in pairs: HT_ABREAST is 2, else 1.
 *
 *   v16r_order(w)            w[0] to w[7] in the order that v16r_step takes
 *   v16r d = v16r_start(offset, offset1);
 *   for (j = 0; j < steps; j++) d = v16r_step(d, w[first + j], v16r_load(x, x1, first + j), bits, steps, j);
 *   v16i sum = v16r_sum(d, i, offset)   of row i < HT_ABREAST
 *
 * x1 and offset1 are those of the other row; without one, the same again. `first` is 0, or 4 for 4 steps. */
#ifndef HT_CPU_VECTOR_SIMD_INT_H
#define HT_CPU_VECTOR_SIMD_INT_H

#include "cpu/vector/simd.h"

/* HT_DOT_PAIRS: steps add pairs of products in 16 bits. HT_DOT_SIGNED: 8-bit weights are signed. */
#if defined(HT_ISA_avx2)
#define HT_DOT_PAIRS 1
#endif
#if defined(HT_ISA_avx2) || defined(HT_ISA_neon)
#define HT_DOT_SIGNED 1
enum { HT_DOT_BIAS_8 = 0 };
#else
enum { HT_DOT_BIAS_8 = 128 };
#endif

HT_INLINE v16i v16i_load_bytes(const void *p) { return v16i_load((const int32_t *)p); }

HT_INLINE v16i v16i_set4(const int8_t *p) {
    int32_t four;
    memcpy(&four, p, sizeof four);
    return v16i_set1(four);
}

#if defined(HT_ISA_ARM)
HT_INLINE int32x4_t ht_high_nibbles(int32x4_t v) {
    return vreinterpretq_s32_u8(vshrq_n_u8(vreinterpretq_u8_s32(v), 4));
}
HT_INLINE v16i v16i_high_nibbles(v16i v) {
    return (v16i){ht_high_nibbles(v.a), ht_high_nibbles(v.b), ht_high_nibbles(v.c), ht_high_nibbles(v.d)};
}
HT_INLINE int32x4_t ht_insert(int32x4_t v, int32x4_t x, int32x4_t mask) {
    return vbslq_s32(vreinterpretq_u32_s32(mask), x, v);
}
HT_INLINE v16i v16i_insert(v16i v, v16i x, v16i mask) {
    return (v16i){ht_insert(v.a, x.a, mask.a), ht_insert(v.b, x.b, mask.b), ht_insert(v.c, x.c, mask.c),
                  ht_insert(v.d, x.d, mask.d)};
}
#else
HT_INLINE v16i v16i_high_nibbles(v16i v) { return v16i_and(v16i_shr(v, 4), v16i_set1(0x0f0f0f0f)); }
HT_INLINE v16i v16i_insert(v16i v, v16i x, v16i mask) { return v16i_or(v, v16i_and(x, mask)); }
#endif

#if defined(HT_ISA_avx512)

typedef v16i v16d;

HT_INLINE __m128i ht_load_16x8(const void *p) { return _mm_loadu_si128((const __m128i *)p); }
HT_INLINE v16i v16i_load_u8(const uint8_t *p) { return _mm512_cvtepu8_epi32(ht_load_16x8(p)); }
HT_INLINE v16i v16i_load_s8(const uint8_t *p) { return _mm512_cvtepi8_epi32(ht_load_16x8(p)); }

HT_INLINE v16i v16i_lookup(const uint8_t table[16], v16i v) {
    return _mm512_shuffle_epi8(_mm512_broadcast_i32x4(ht_load_16x8(table)), v);
}

HT_INLINE v16i v16d_weights8(v16i stored) { return stored; }
HT_INLINE v16d v16d_start(int32_t offset) { return v16i_set1(offset); }
HT_INLINE v16d v16d_step(v16d d, v16i w, v16i x, int bits, int steps, int j) {
    (void)bits, (void)steps, (void)j;
    return _mm512_dpbusd_epi32(d, w, x);
}
/* The instruction can broadcast four bytes from memory, which saves a register and a sixth of the time of eight rows.
 * gcc 12 does not use this form. */
#if !defined(__clang__)
#define HT_HAS_STEP4
typedef int32_t ht_four __attribute__((may_alias, aligned(1)));
HT_INLINE v16d v16d_step4(v16d d, v16i w, const int8_t *p, int bits, int steps, int j) {
    (void)bits, (void)steps, (void)j;
    __asm__("vpdpbusd %2%{1to16%}, %1, %0" : "+v"(d) : "v"(w), "m"(*(const ht_four *)(const void *)p));
    return d;
}
#endif
HT_INLINE v16i v16d_sum(v16d d, int32_t offset) {
    (void)offset;
    return d;
}

#elif defined(HT_ISA_YMM)

HT_INLINE __m128i ht_load_8x8(const void *p) { return _mm_loadl_epi64((const __m128i *)p); }
HT_INLINE v16i v16i_load_u8(const uint8_t *p) {
    return (v16i){_mm256_cvtepu8_epi32(ht_load_8x8(p)), _mm256_cvtepu8_epi32(ht_load_8x8(p + 8))};
}
HT_INLINE v16i v16i_load_s8(const uint8_t *p) {
    return (v16i){_mm256_cvtepi8_epi32(ht_load_8x8(p)), _mm256_cvtepi8_epi32(ht_load_8x8(p + 8))};
}
HT_INLINE v16i v16i_lookup(const uint8_t table[16], v16i v) {
    __m256i both = _mm256_broadcastsi128_si256(_mm_loadu_si128((const __m128i *)(const void *)table));
    return (v16i){_mm256_shuffle_epi8(both, v.a), _mm256_shuffle_epi8(both, v.b)};
}

#if defined(HT_ISA_avxvnni)

typedef v16i v16d;

HT_INLINE v16i v16d_weights8(v16i stored) { return stored; }
HT_INLINE v16d v16d_start(int32_t offset) { return v16i_set1(offset); }
HT_INLINE v16d v16d_step(v16d d, v16i w, v16i x, int bits, int steps, int j) {
    (void)bits, (void)steps, (void)j;
    return (v16i){_mm256_dpbusd_avx_epi32(d.a, w.a, x.a), _mm256_dpbusd_avx_epi32(d.b, w.b, x.b)};
}
HT_INLINE v16i v16d_sum(v16d d, int32_t offset) {
    (void)offset;
    return d;
}

#else

/* Pairs of products are added in 16 bits for as many steps as fit, then widened. */
typedef struct v16d {
    v16i pairs, sum;
} v16d;

HT_INLINE v16i v16d_weights8(v16i stored) { return v16i_xor(stored, v16i_set1((int32_t)0x80808080u)); }
HT_INLINE v16d v16d_start(int32_t offset) {
    (void)offset;
    return (v16d){v16i_set1(0), v16i_set1(0)};
}
/* Sixteen-bit sums are added where they are written: left to itself, the compiler computes every product first and
 * keeps them all in memory. */
#define HT_ADD_NOW(v) __asm__ volatile("" : "+x"((v).a), "+x"((v).b))
HT_INLINE __m256i ht_widen_pairs(__m256i p) { return _mm256_madd_epi16(p, _mm256_set1_epi16(1)); }
/* Two products of a b-bit weight and an activation reach 2 * (2^b - 1) * 127, which fits 16 bits 8, 4 and 2 times for
 * 4, 5 and 6 bits. At 8 bits the weight is signed: its magnitude takes the unsigned side and its sign goes to x, and
 * 2 * 128 * 127 still fits once. */
HT_INLINE v16d v16d_step(v16d d, v16i w, v16i x, int bits, int steps, int j) {
    int room = bits <= 4 ? 8 : bits == 5 ? 4 : bits == 6 ? 2 : 1;
    if (room > steps) room = steps;
    v16i p;
    if (bits == 8) {
        p.a = _mm256_maddubs_epi16(_mm256_abs_epi8(w.a), _mm256_sign_epi8(x.a, w.a));
        p.b = _mm256_maddubs_epi16(_mm256_abs_epi8(w.b), _mm256_sign_epi8(x.b, w.b));
    } else {
        p.a = _mm256_maddubs_epi16(w.a, x.a);
        p.b = _mm256_maddubs_epi16(w.b, x.b);
    }
    if (j % room != 0) {
        p.a = _mm256_add_epi16(d.pairs.a, p.a);
        p.b = _mm256_add_epi16(d.pairs.b, p.b);
        HT_ADD_NOW(p);
    }
    d.pairs = p;
    if (j % room == room - 1) {
        v16i wide = {ht_widen_pairs(p.a), ht_widen_pairs(p.b)};
        d.sum = j < room ? wide : v16i_add(d.sum, wide);
        HT_ADD_NOW(d.sum);
    }
    return d;
}
HT_INLINE v16i v16d_sum(v16d d, int32_t offset) { return v16i_add(d.sum, v16i_set1(offset)); }

#endif

#elif defined(HT_ISA_ARM)

typedef v16i v16d;

HT_INLINE v16i v16i_load_u8(const uint8_t *p) {
    uint8x16_t v = vld1q_u8(p);
    uint16x8_t low = vmovl_u8(vget_low_u8(v)), high = vmovl_u8(vget_high_u8(v));
    return (v16i){
        vreinterpretq_s32_u32(vmovl_u16(vget_low_u16(low))), vreinterpretq_s32_u32(vmovl_u16(vget_high_u16(low))),
        vreinterpretq_s32_u32(vmovl_u16(vget_low_u16(high))), vreinterpretq_s32_u32(vmovl_u16(vget_high_u16(high)))};
}
HT_INLINE v16i v16i_load_s8(const uint8_t *p) {
    int8x16_t v = vreinterpretq_s8_u8(vld1q_u8(p));
    int16x8_t low = vmovl_s8(vget_low_s8(v)), high = vmovl_s8(vget_high_s8(v));
    return (v16i){vmovl_s16(vget_low_s16(low)), vmovl_s16(vget_high_s16(low)), vmovl_s16(vget_low_s16(high)),
                  vmovl_s16(vget_high_s16(high))};
}

HT_INLINE int32x4_t ht_lookup4(uint8x16_t table, int32x4_t v) {
    return vreinterpretq_s32_u8(vqtbl1q_u8(table, vreinterpretq_u8_s32(v)));
}
HT_INLINE v16i v16i_lookup(const uint8_t table[16], v16i v) {
    uint8x16_t t = vld1q_u8(table);
    return (v16i){ht_lookup4(t, v.a), ht_lookup4(t, v.b), ht_lookup4(t, v.c), ht_lookup4(t, v.d)};
}

#if defined(HT_ISA_i8mm)
HT_INLINE v16i v16d_weights8(v16i stored) { return stored; }
HT_INLINE int32x4_t ht_dot4(int32x4_t d, int32x4_t w, int32x4_t x) {
    return vusdotq_s32(d, vreinterpretq_u8_s32(w), vreinterpretq_s8_s32(x));
}
#else
/* The instruction needs signed weights; weights of up to 7 bits are valid as they are. */
HT_INLINE v16i v16d_weights8(v16i stored) { return v16i_xor(stored, v16i_set1((int32_t)0x80808080u)); }
HT_INLINE int32x4_t ht_dot4(int32x4_t d, int32x4_t w, int32x4_t x) {
    return vdotq_s32(d, vreinterpretq_s8_s32(w), vreinterpretq_s8_s32(x));
}
#endif
HT_INLINE v16d v16d_start(int32_t offset) { return v16i_set1(offset); }
HT_INLINE v16d v16d_step(v16d d, v16i w, v16i x, int bits, int steps, int j) {
    (void)bits, (void)steps, (void)j;
    return (v16i){ht_dot4(d.a, w.a, x.a), ht_dot4(d.b, w.b, x.b), ht_dot4(d.c, w.c, x.c), ht_dot4(d.d, w.d, x.d)};
}
HT_INLINE v16i v16d_sum(v16d d, int32_t offset) {
    (void)offset;
    return d;
}

#else

typedef v16i v16d;

HT_INLINE v16i v16i_load_u8(const uint8_t *p) {
    v16i v;
    for (int i = 0; i < 16; i++) v.x[i] = p[i];
    return v;
}
HT_INLINE v16i v16i_load_s8(const uint8_t *p) {
    v16i v;
    for (int i = 0; i < 16; i++) v.x[i] = (int8_t)p[i];
    return v;
}

HT_INLINE v16i v16i_lookup(const uint8_t table[16], v16i v) {
    uint8_t b[64];
    memcpy(b, v.x, sizeof b);
    for (int i = 0; i < 64; i++) b[i] = table[b[i]];
    memcpy(v.x, b, sizeof b);
    return v;
}

HT_INLINE v16i v16d_weights8(v16i stored) { return stored; }
HT_INLINE v16d v16d_start(int32_t offset) { return v16i_set1(offset); }
HT_INLINE v16d v16d_step(v16d d, v16i w, v16i x, int bits, int steps, int j) {
    (void)bits, (void)steps, (void)j;
    uint8_t wb[64];
    int8_t xb[64];
    memcpy(wb, w.x, sizeof wb);
    memcpy(xb, x.x, sizeof xb);
    for (int i = 0; i < 64; i++) d.x[i / 4] += wb[i] * xb[i];
    return d;
}
HT_INLINE v16i v16d_sum(v16d d, int32_t offset) {
    (void)offset;
    return d;
}

#endif

#if defined(HT_ISA_i8mm)

enum { HT_ABREAST = 2 };

/* Rows 0 to 7 of the weights, and 8 to 15: of two in a register, their sums with one row of x, the other row's between. */
typedef struct v16r {
    v16i low, high;
} v16r;

/* w[2 j] and w[2 j + 1] become rows 0 to 7 and 8 to 15 of 8 columns. */
HT_INLINE void v16r_order(v16i w[8]) {
    for (int j = 0; j < 8; j += 2) {
        v16i x = w[j], y = w[j + 1];
        w[j] = (v16i){vzip1q_s32(x.a, y.a), vzip2q_s32(x.a, y.a), vzip1q_s32(x.b, y.b), vzip2q_s32(x.b, y.b)};
        w[j + 1] = (v16i){vzip1q_s32(x.c, y.c), vzip2q_s32(x.c, y.c), vzip1q_s32(x.d, y.d), vzip2q_s32(x.d, y.d)};
    }
}
HT_INLINE v16r v16r_start(int32_t offset, int32_t offset1) {
    int32x4_t v = vreinterpretq_s32_u64(vdupq_n_u64((uint64_t)(uint32_t)offset1 << 32 | (uint32_t)offset));
    return (v16r){{v, v, v, v}, {v, v, v, v}};
}
HT_INLINE int8x16_t v16r_load(const int8_t *x, const int8_t *x1, int j) {
    return vcombine_s8(vld1_s8(x + j / 2 * 8), vld1_s8(x1 + j / 2 * 8));
}
HT_INLINE int32x4_t ht_dot_add(int32x4_t d, int32x4_t w, int8x16_t x) {
    return vusmmlaq_s32(d, vreinterpretq_u8_s32(w), x);
}
HT_INLINE v16r v16r_step(v16r d, v16i w, int8x16_t x, int bits, int steps, int j) {
    (void)bits, (void)steps;
    v16i *half = j % 2 ? &d.high : &d.low;
    *half = (v16i){ht_dot_add(half->a, w.a, x), ht_dot_add(half->b, w.b, x), ht_dot_add(half->c, w.c, x),
                   ht_dot_add(half->d, w.d, x)};
    return d;
}
HT_INLINE v16i v16r_sum(v16r d, int i, int32_t offset) {
    (void)offset;
    if (i)
        return (v16i){vuzp2q_s32(d.low.a, d.low.b), vuzp2q_s32(d.low.c, d.low.d), vuzp2q_s32(d.high.a, d.high.b),
                      vuzp2q_s32(d.high.c, d.high.d)};
    return (v16i){vuzp1q_s32(d.low.a, d.low.b), vuzp1q_s32(d.low.c, d.low.d), vuzp1q_s32(d.high.a, d.high.b),
                  vuzp1q_s32(d.high.c, d.high.d)};
}

#else

enum { HT_ABREAST = 1 };

typedef v16d v16r;

HT_INLINE void v16r_order(v16i w[8]) { (void)w; }
HT_INLINE v16r v16r_start(int32_t offset, int32_t offset1) {
    (void)offset1;
    return v16d_start(offset);
}
HT_INLINE v16i v16r_load(const int8_t *x, const int8_t *x1, int j) {
    (void)x1;
    return v16i_set4(x + 4 * j);
}
HT_INLINE v16r v16r_step(v16r d, v16i w, v16i x, int bits, int steps, int j) {
    return v16d_step(d, w, x, bits, steps, j);
}
HT_INLINE v16i v16r_sum(v16r d, int i, int32_t offset) {
    (void)i;
    return v16d_sum(d, offset);
}

#endif

#if !defined(HT_HAS_STEP4)
HT_INLINE v16d v16d_step4(v16d d, v16i w, const int8_t *p, int bits, int steps, int j) {
    return v16d_step(d, w, v16i_set4(p), bits, steps, j);
}
#endif

#endif
