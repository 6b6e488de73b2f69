/* simd.h for 64-bit ARM: four registers. */
#ifndef HT_CPU_VECTOR_SIMD_NEON_H
#define HT_CPU_VECTOR_SIMD_NEON_H

#include <arm_neon.h>

typedef struct v16f {
    float32x4_t a, b, c, d;
} v16f;
typedef struct v16i {
    int32x4_t a, b, c, d;
} v16i;
typedef struct m16 {
    uint32x4_t a, b, c, d;
} m16;

#define HT_UNARY(name, type, out, op)                                                                                  \
    HT_INLINE out name(type x) { return (out){op(x.a), op(x.b), op(x.c), op(x.d)}; }
#define HT_BINARY(name, type, out, op)                                                                                 \
    HT_INLINE out name(type x, type y) { return (out){op(x.a, y.a), op(x.b, y.b), op(x.c, y.c), op(x.d, y.d)}; }

#define HT_TERNARY(name, op)                                                                                           \
    HT_INLINE v16f name(v16f x, v16f y, v16f z) {                                                                      \
        return (v16f){op(z.a, x.a, y.a), op(z.b, x.b, y.b), op(z.c, x.c, y.c), op(z.d, x.d, y.d)};                     \
    }

HT_INLINE m16 m16_first(int n) {
    const int32_t lanes[4] = {0, 1, 2, 3};
    int32x4_t lane = vld1q_s32(lanes);
    return (m16){vcltq_s32(lane, vdupq_n_s32(n)), vcltq_s32(lane, vdupq_n_s32(n - 4)),
                 vcltq_s32(lane, vdupq_n_s32(n - 8)), vcltq_s32(lane, vdupq_n_s32(n - 12))};
}

HT_INLINE v16f v16f_set1(float x) {
    float32x4_t v = vdupq_n_f32(x);
    return (v16f){v, v, v, v};
}
HT_INLINE v16f v16f_load(const float *p) {
    return (v16f){vld1q_f32(p), vld1q_f32(p + 4), vld1q_f32(p + 8), vld1q_f32(p + 12)};
}
HT_INLINE v16f v16f_load_n(const float *p, int n) {
    if (n == 16) return v16f_load(p);
    float values[16] = {0};
    memcpy(values, p, (size_t)n * sizeof *p);
    return v16f_load(values);
}
HT_INLINE void v16f_store(float *p, v16f v) {
    vst1q_f32(p, v.a);
    vst1q_f32(p + 4, v.b);
    vst1q_f32(p + 8, v.c);
    vst1q_f32(p + 12, v.d);
}
HT_INLINE void v16f_store_n(float *p, v16f v, int n) {
    if (n == 16) {
        v16f_store(p, v);
        return;
    }
    float values[16];
    v16f_store(values, v);
    memcpy(p, values, (size_t)n * sizeof *p);
}

HT_INLINE v16f v16f_load_quads(const float *p0, const float *p1, const float *p2, const float *p3) {
    return (v16f){vld1q_f32(p0), vld1q_f32(p1), vld1q_f32(p2), vld1q_f32(p3)};
}
HT_INLINE void ht_transpose_4x4(float32x4_t *v0, float32x4_t *v1, float32x4_t *v2, float32x4_t *v3) {
    float32x4x2_t p = vtrnq_f32(*v0, *v1), q = vtrnq_f32(*v2, *v3);
    *v0 = vcombine_f32(vget_low_f32(p.val[0]), vget_low_f32(q.val[0]));
    *v1 = vcombine_f32(vget_low_f32(p.val[1]), vget_low_f32(q.val[1]));
    *v2 = vcombine_f32(vget_high_f32(p.val[0]), vget_high_f32(q.val[0]));
    *v3 = vcombine_f32(vget_high_f32(p.val[1]), vget_high_f32(q.val[1]));
}
HT_INLINE void v16f_transpose_quads(v16f v[4]) {
    ht_transpose_4x4(&v[0].a, &v[1].a, &v[2].a, &v[3].a);
    ht_transpose_4x4(&v[0].b, &v[1].b, &v[2].b, &v[3].b);
    ht_transpose_4x4(&v[0].c, &v[1].c, &v[2].c, &v[3].c);
    ht_transpose_4x4(&v[0].d, &v[1].d, &v[2].d, &v[3].d);
}

HT_INLINE float32x4_t ht_load_4xf16(const uint16_t *p) { return vcvt_f32_f16(vreinterpret_f16_u16(vld1_u16(p))); }
HT_INLINE v16f v16f_load_f16(const uint16_t *p) {
    return (v16f){ht_load_4xf16(p), ht_load_4xf16(p + 4), ht_load_4xf16(p + 8), ht_load_4xf16(p + 12)};
}
HT_INLINE void ht_store_4xf16(uint16_t *p, float32x4_t v) { vst1_u16(p, vreinterpret_u16_f16(vcvt_f16_f32(v))); }
HT_INLINE void v16f_store_f16(uint16_t *p, v16f v) {
    ht_store_4xf16(p, v.a);
    ht_store_4xf16(p + 4, v.b);
    ht_store_4xf16(p + 8, v.c);
    ht_store_4xf16(p + 12, v.d);
}
HT_INLINE float32x4_t ht_load_4xbf16(const uint16_t *p) { return vreinterpretq_f32_u32(vshll_n_u16(vld1_u16(p), 16)); }
HT_INLINE v16f v16f_load_bf16(const uint16_t *p) {
    return (v16f){ht_load_4xbf16(p), ht_load_4xbf16(p + 4), ht_load_4xbf16(p + 8), ht_load_4xbf16(p + 12)};
}

HT_BINARY(v16f_add, v16f, v16f, vaddq_f32)
HT_BINARY(v16f_sub, v16f, v16f, vsubq_f32)
HT_BINARY(v16f_mul, v16f, v16f, vmulq_f32)
HT_BINARY(v16f_div, v16f, v16f, vdivq_f32)
HT_UNARY(v16f_sqrt, v16f, v16f, vsqrtq_f32)
HT_UNARY(v16f_round, v16f, v16f, vrndnq_f32)
HT_TERNARY(v16f_fma, vfmaq_f32) /* z + x y */
HT_TERNARY(v16f_fnma, vfmsq_f32)

HT_BINARY(v16f_lt, v16f, m16, vcltq_f32)
HT_BINARY(v16f_gt, v16f, m16, vcgtq_f32)
HT_BINARY(v16f_eq, v16f, m16, vceqq_f32)
HT_BINARY(v16i_eq, v16i, m16, vceqq_s32)
HT_BINARY(m16_and, m16, m16, vandq_u32)
HT_BINARY(m16_or, m16, m16, vorrq_u32)
HT_INLINE m16 v16f_is_nan(v16f x) {
    m16 ordered = v16f_eq(x, x);
    return (m16){vmvnq_u32(ordered.a), vmvnq_u32(ordered.b), vmvnq_u32(ordered.c), vmvnq_u32(ordered.d)};
}
HT_INLINE v16f v16f_select(m16 m, v16f x, v16f y) {
    return (v16f){vbslq_f32(m.a, x.a, y.a), vbslq_f32(m.b, x.b, y.b), vbslq_f32(m.c, x.c, y.c),
                  vbslq_f32(m.d, x.d, y.d)};
}
HT_INLINE bool m16_any(m16 m) { return vmaxvq_u32(vorrq_u32(vorrq_u32(m.a, m.b), vorrq_u32(m.c, m.d))) != 0; }
/* NEON's minimum returns NaN if either operand is NaN; simd.h specifies the second operand. */
HT_INLINE float32x4_t ht_min4(float32x4_t x, float32x4_t y) { return vbslq_f32(vcltq_f32(x, y), x, y); }
HT_INLINE float32x4_t ht_max4(float32x4_t x, float32x4_t y) { return vbslq_f32(vcgtq_f32(x, y), x, y); }
HT_BINARY(v16f_min, v16f, v16f, ht_min4)
HT_BINARY(v16f_max, v16f, v16f, ht_max4)

HT_INLINE v16i v16i_set1(int32_t x) {
    int32x4_t v = vdupq_n_s32(x);
    return (v16i){v, v, v, v};
}
HT_INLINE v16i v16i_load(const int32_t *p) {
    return (v16i){vld1q_s32(p), vld1q_s32(p + 4), vld1q_s32(p + 8), vld1q_s32(p + 12)};
}
HT_INLINE void v16i_store(int32_t *p, v16i v) {
    vst1q_s32(p, v.a);
    vst1q_s32(p + 4, v.b);
    vst1q_s32(p + 8, v.c);
    vst1q_s32(p + 12, v.d);
}
HT_INLINE void ht_store_4xu16(uint16_t *p, int32x4_t v) { vst1_u16(p, vmovn_u32(vreinterpretq_u32_s32(v))); }
HT_INLINE void v16i_store_u16(uint16_t *p, v16i v) {
    ht_store_4xu16(p, v.a);
    ht_store_4xu16(p + 4, v.b);
    ht_store_4xu16(p + 8, v.c);
    ht_store_4xu16(p + 12, v.d);
}
HT_BINARY(v16i_add, v16i, v16i, vaddq_s32)
HT_BINARY(v16i_sub, v16i, v16i, vsubq_s32)
HT_BINARY(v16i_max, v16i, v16i, vmaxq_s32)
HT_BINARY(v16i_and, v16i, v16i, vandq_s32)
HT_BINARY(v16i_or, v16i, v16i, vorrq_s32)
HT_BINARY(v16i_xor, v16i, v16i, veorq_s32)
/* vshlq takes a vector of counts; a negative count shifts right arithmetically. */
HT_INLINE v16i v16i_shl(v16i x, int n) {
    int32x4_t s = vdupq_n_s32(n);
    return (v16i){vshlq_s32(x.a, s), vshlq_s32(x.b, s), vshlq_s32(x.c, s), vshlq_s32(x.d, s)};
}
HT_INLINE int32x4_t ht_shr4(int32x4_t x, int32x4_t minus_n) {
    return vreinterpretq_s32_u32(vshlq_u32(vreinterpretq_u32_s32(x), minus_n));
}
HT_INLINE v16i v16i_shr(v16i x, int n) {
    int32x4_t s = vdupq_n_s32(-n);
    return (v16i){ht_shr4(x.a, s), ht_shr4(x.b, s), ht_shr4(x.c, s), ht_shr4(x.d, s)};
}
HT_INLINE v16i v16i_sra(v16i x, int n) { return v16i_shl(x, -n); }
HT_UNARY(v16i_from_f, v16f, v16i, vcvtq_s32_f32)
HT_UNARY(v16f_from_i, v16i, v16f, vcvtq_f32_s32)
HT_UNARY(v16f_bits, v16f, v16i, vreinterpretq_s32_f32)
HT_UNARY(v16f_from_bits, v16i, v16f, vreinterpretq_f32_s32)

/* 2^n is applied in two factors, so that neither leaves the range of normal numbers. */
HT_INLINE v16f v16f_scale(v16f v, v16f n) {
    v16i whole = {vcvtmq_s32_f32(n.a), vcvtmq_s32_f32(n.b), vcvtmq_s32_f32(n.c), vcvtmq_s32_f32(n.d)};
    v16i half = v16i_sra(whole, 1);
    v16i bias = v16i_set1(127);
    v16f first = v16f_from_bits(v16i_shl(v16i_add(half, bias), 23));
    v16f second = v16f_from_bits(v16i_shl(v16i_add(v16i_sub(whole, half), bias), 23));
    return v16f_mul(v16f_mul(v, first), second);
}

HT_INLINE float v16f_sum(v16f x) {
    float32x4_t v = vaddq_f32(vaddq_f32(x.a, x.c), vaddq_f32(x.b, x.d));
    float32x2_t w = vadd_f32(vget_low_f32(v), vget_high_f32(v));
    return vget_lane_f32(w, 0) + vget_lane_f32(w, 1);
}
HT_INLINE float v16f_hmax(v16f x) {
    float32x4_t v = ht_max4(ht_max4(x.a, x.c), ht_max4(x.b, x.d));
    v = ht_max4(v, vextq_f32(v, v, 2));
    float p = vgetq_lane_f32(v, 0), q = vgetq_lane_f32(v, 1);
    return p > q ? p : q;
}

/* Byte indices of 32-bit table entries: entry i takes bytes 4 i .. 4 i + 3. */
HT_INLINE uint8x16_t ht_bytes_of(int32x4_t i, uint32_t last) {
    const uint32x4_t which = vandq_u32(vreinterpretq_u32_s32(i), vdupq_n_u32(last));
    return vreinterpretq_u8_u32(vmlaq_n_u32(vdupq_n_u32(0x03020100), which, 0x04040404));
}
HT_INLINE int32x4_t ht_choose4(uint8x16x2_t t, int32x4_t i) {
    return vreinterpretq_s32_u8(vqtbl2q_u8(t, ht_bytes_of(i, 7)));
}
HT_INLINE int32x4_t ht_choose4_16(uint8x16x4_t t, int32x4_t i) {
    return vreinterpretq_s32_u8(vqtbl4q_u8(t, ht_bytes_of(i, 15)));
}
HT_INLINE v16i v16i_choose(const int32_t table[8], v16i i) {
    const uint8x16x2_t t = {{vreinterpretq_u8_s32(vld1q_s32(table)), vreinterpretq_u8_s32(vld1q_s32(table + 4))}};
    return (v16i){ht_choose4(t, i.a), ht_choose4(t, i.b), ht_choose4(t, i.c), ht_choose4(t, i.d)};
}
HT_INLINE v16i v16i_choose_16(const int32_t table[16], v16i i) {
    const uint8x16x4_t t = {{vreinterpretq_u8_s32(vld1q_s32(table)), vreinterpretq_u8_s32(vld1q_s32(table + 4)),
                             vreinterpretq_u8_s32(vld1q_s32(table + 8)), vreinterpretq_u8_s32(vld1q_s32(table + 12))}};
    return (v16i){ht_choose4_16(t, i.a), ht_choose4_16(t, i.b), ht_choose4_16(t, i.c), ht_choose4_16(t, i.d)};
}

#undef HT_UNARY
#undef HT_BINARY
#undef HT_TERNARY

#endif
