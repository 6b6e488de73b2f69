/* Portable SIMD layer of the vector kernels: vectors of sixteen lanes on every instruction set.
 *
 * v16f and v16i are sixteen f32 or i32 lanes, m16 is a mask: one AVX-512 register, two AVX2 registers, four NEON
 * registers, or a plain array. Every form does the same lane operations in the same order, so results are bit-identical
 * across instruction sets. Sources are compiled once per instruction set with HT_ISA=name and export
 * HT_ISA_NAME(thing).
 *
 *   loads      v16f_load(p), v16f_load_n(p, n): n in 0..16, lanes from n on are 0; no memory past p[n - 1] is read.
 *              From f16 and bf16 bits: v16f_load_f16, v16f_load_f16_n, v16f_load_bf16, v16f_load_bf16_n
 *              v16f_load_quads(p0, p1, p2, p3): four lanes from each
 *   stores     v16f_store(p, v), v16f_store_n(p, v, n), v16f_store_f16 and v16f_store_bf16 likewise, to nearest even
 *   fused      v16f_fma(a, b, c) = a b + c, v16f_fnma(a, b, c) = c - a b, v16f_fms(a, b, c) = a b - c, rounded once
 *   min, max   v16f_min(a, b) = a < b ? a : b, v16f_max(a, b) = a > b ? a : b: a NaN in either operand gives b
 *   masks      v16f_lt, v16f_gt, v16f_eq are false on NaN; v16f_is_nan; m16_first(n): the first n lanes;
 *              v16f_select(m, a, b) = m ? a : b
 *   rounding   v16f_round: to nearest, ties to even; v16i_from_f truncates; v16f_from_i rounds to nearest
 *   scaling    v16f_scale(v, n) = v * 2^floor(n) for n in [-252, 252]
 *   lookup     v16i_choose(table, i): table[i & 7] per lane; v16i_choose_16(table, i): table[i & 15]
 *   transpose  v16f_transpose_quads(v): lane 4 g + i of v[j] goes to lane 4 g + j of v[i]
 *   reduction  v16f_sum and v16f_hmax combine lane i with i + 8, then i + 4, i + 2, i + 1 */
#ifndef HT_CPU_VECTOR_SIMD_H
#define HT_CPU_VECTOR_SIMD_H

#include <stdbool.h>
#include <stdint.h>
#include <string.h>

#define HT_ISA_PASTE_(a, b) a##_##b
#define HT_ISA_PASTE(a, b)  HT_ISA_PASTE_(a, b)
#define HT_ISA_NAME(thing)  HT_ISA_PASTE(thing, HT_ISA)

/* Vector kernels consist of small functions that must be inlined: a call would spill every vector register. Plain lanes
 * are not forced inline, which would slow sanitizer builds by minutes. */
#if defined(HT_ISA_avx2) || defined(HT_ISA_avxvnni)
#define HT_ISA_YMM 1 /* two 256-bit registers */
#elif defined(HT_ISA_neon) || defined(HT_ISA_i8mm)
#define HT_ISA_ARM 1 /* four 128-bit registers */
#endif
#if defined(HT_ISA_avx512) || defined(HT_ISA_YMM) || defined(HT_ISA_ARM)
#define HT_INLINE static inline __attribute__((always_inline))
/* Full unrolling of a loop whose counter must be constant in the body; by default compilers give up on large bodies. */
#if defined(__clang__)
#define HT_UNROLL _Pragma("clang loop unroll(full)")
#else
#define HT_UNROLL _Pragma("GCC unroll 16")
#endif
#else
#define HT_INLINE static inline
#define HT_UNROLL
#endif

/* Prefetches the cache line at p, which need not be mapped. */
#define HT_PREFETCH(p) __builtin_prefetch((const void *)(p), 0, 3)

#if defined(HT_ISA_avx512)
#include "cpu/vector/simd_avx512.h"
#elif defined(HT_ISA_YMM)
#include "cpu/vector/simd_avx2.h"
#elif defined(HT_ISA_ARM)
#include "cpu/vector/simd_neon.h"
#else
#include "cpu/vector/simd_plain.h"
#endif

/* ---- shared by all instruction sets ---- */

HT_INLINE v16f v16f_zero(void) { return v16f_set1(0.0f); }
HT_INLINE v16f v16f_neg(v16f a) { return v16f_from_bits(v16i_xor(v16f_bits(a), v16i_set1(INT32_MIN))); }
HT_INLINE v16f v16f_abs(v16f a) { return v16f_from_bits(v16i_and(v16f_bits(a), v16i_set1(INT32_MAX))); }
/* |a| with the sign of b, for a >= 0. */
HT_INLINE v16f v16f_with_sign(v16f a, v16f b) {
    return v16f_from_bits(v16i_or(v16f_bits(a), v16i_and(v16f_bits(b), v16i_set1(INT32_MIN))));
}

#if !defined(HT_ISA_avx512) && !defined(HT_ISA_YMM)
HT_INLINE v16f v16f_fms(v16f a, v16f b, v16f c) { return v16f_neg(v16f_fnma(a, b, c)); }
#endif

/* bf16 bits of f32, to nearest even; NaN stays NaN, with its quiet bit set. */
HT_INLINE v16i v16f_bf16_bits(v16f v) {
    v16i bits = v16f_bits(v);
    v16i odd = v16i_and(v16i_shr(bits, 16), v16i_set1(1));
    v16i rounded = v16i_shr(v16i_add(v16i_add(bits, v16i_set1(0x7fff)), odd), 16);
    v16i nan = v16i_or(v16i_shr(bits, 16), v16i_set1(0x40));
    return v16f_bits(v16f_select(v16f_is_nan(v), v16f_from_bits(nan), v16f_from_bits(rounded)));
}
HT_INLINE void v16f_store_bf16(uint16_t *p, v16f v) { v16i_store_u16(p, v16f_bf16_bits(v)); }

HT_INLINE v16f v16f_load_f16_n(const uint16_t *p, int n) {
    uint16_t padded[16] = {0};
    memcpy(padded, p, (size_t)n * sizeof *p);
    return v16f_load_f16(padded);
}
HT_INLINE v16f v16f_load_bf16_n(const uint16_t *p, int n) {
    uint16_t padded[16] = {0};
    memcpy(padded, p, (size_t)n * sizeof *p);
    return v16f_load_bf16(padded);
}
HT_INLINE void v16f_store_f16_n(uint16_t *p, v16f v, int n) {
    uint16_t padded[16];
    v16f_store_f16(padded, v);
    memcpy(p, padded, (size_t)n * sizeof *p);
}
HT_INLINE void v16f_store_bf16_n(uint16_t *p, v16f v, int n) {
    uint16_t padded[16];
    v16f_store_bf16(padded, v);
    memcpy(p, padded, (size_t)n * sizeof *p);
}

#endif
