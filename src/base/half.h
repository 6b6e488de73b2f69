/* f16 and bf16 conversion to and from f32 in portable integer code: the reference for every vector conversion.
 * Narrowing rounds to nearest even; overflow gives infinity; a NaN becomes a quiet NaN with the upper payload bits, as
 * with F16C and NEON. Results do not depend on the denormal mode of the thread. */
#ifndef HT_BASE_HALF_H
#define HT_BASE_HALF_H

#include <stdint.h>
#include <string.h>

static inline float ht_float_from_bits(uint32_t bits) {
    float f;
    memcpy(&f, &bits, sizeof f);
    return f;
}

static inline uint32_t ht_float_bits(float f) {
    uint32_t bits;
    memcpy(&bits, &f, sizeof bits);
    return bits;
}

static inline float ht_f16_to_f32(uint16_t h) {
    uint32_t sign = (uint32_t)(h & 0x8000u) << 16, exponent = (h >> 10) & 31, mantissa = h & 0x3FFu;
    if (exponent == 31) /* infinity, or a quiet NaN */
        return ht_float_from_bits(sign | 0x7F800000u | (mantissa << 13) | (mantissa ? 0x400000u : 0));
    if (exponent) return ht_float_from_bits(sign | ((exponent + 112) << 23) | (mantissa << 13));
    if (!mantissa) return ht_float_from_bits(sign);
    /* A denormal half is mantissa * 2^-24 and always a normal float. */
    int shift = __builtin_clz(mantissa) - 21; /* moves the leading one to bit 10 */
    return ht_float_from_bits(sign | ((uint32_t)(113 - shift) << 23) | (((mantissa << shift) & 0x3FFu) << 13));
}

static inline uint16_t ht_f32_to_f16(float f) {
    uint32_t bits = ht_float_bits(f), sign = (bits >> 16) & 0x8000u, magnitude = bits & 0x7FFFFFFFu;
    if (magnitude >= 0x7F800000u)
        return (uint16_t)(sign | 0x7C00u | (magnitude > 0x7F800000u ? 0x200u | ((magnitude >> 13) & 0x3FFu) : 0));
    if (magnitude >= 0x477FF000u) return (uint16_t)(sign | 0x7C00u); /* 65520 and more round to infinity */
    uint32_t dropped, kept;
    if (magnitude >= 0x38800000u) { /* 2^-14: a normal half */
        kept = (magnitude - 0x38000000u) >> 13;
        dropped = (magnitude & 0x1FFFu) << 19;
    } else {
        if (magnitude < 0x33000000u) return (uint16_t)sign; /* under 2^-25 */
        uint32_t mantissa = (magnitude & 0x7FFFFFu) | 0x800000u, shift = 126 - (magnitude >> 23);
        kept = mantissa >> shift;
        dropped = mantissa << (32 - shift);
    }
    /* `dropped`: the bits below the last kept bit, the highest of them at bit 31. */
    kept += dropped > 0x80000000u || (dropped == 0x80000000u && (kept & 1));
    return (uint16_t)(sign | kept);
}

static inline float ht_bf16_to_f32(uint16_t b) { return ht_float_from_bits((uint32_t)b << 16); }

static inline uint16_t ht_f32_to_bf16(float f) {
    uint32_t bits = ht_float_bits(f);
    if ((bits & 0x7FFFFFFFu) > 0x7F800000u) return (uint16_t)((bits >> 16) | 0x40u);
    return (uint16_t)((bits + 0x7FFFu + ((bits >> 16) & 1)) >> 16);
}

/* A little-endian 16-bit value at any address. */
static inline uint16_t ht_u16_at(const void *p) {
    const uint8_t *b = (const uint8_t *)p;
    return (uint16_t)(b[0] | b[1] << 8);
}
static inline float ht_half_at(const void *p) { return ht_f16_to_f32(ht_u16_at(p)); }

#endif
