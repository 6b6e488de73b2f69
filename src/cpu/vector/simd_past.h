/* What simd.h lacks for results and operands that a cache should not keep.
 *
 *   v16f_store_past(p, v)  round the caches, where there are such stores; p begins a line of 64 bytes. ht_bypass_end has to
 *                          follow, on the same thread, before others read
 *   m16_store_4_past(p, m) likewise, 64 bytes */
#ifndef HT_CPU_VECTOR_SIMD_PAST_H
#define HT_CPU_VECTOR_SIMD_PAST_H

#include "cpu/vector/simd.h"

HT_INLINE void v16f_store_past(float *p, v16f v) {
#if defined(HT_ISA_avx512)
    _mm512_stream_ps(p, v);
#elif defined(HT_ISA_YMM)
    _mm256_stream_ps(p, v.a);
    _mm256_stream_ps(p + 8, v.b);
#else
    v16f_store(p, v);
#endif
}

HT_INLINE void m16_store_4_past(uint8_t *p, const m16 m[4]) {
#if defined(HT_ISA_avx512)
    _mm512_stream_si512((void *)p, m16_bytes_4(m));
#elif defined(HT_ISA_YMM)
    _Alignas(32) uint8_t room[64];
    m16_store_4(room, m);
    for (int i = 0; i < 64; i += 32)
        _mm256_stream_si256((__m256i *)(void *)(p + i), _mm256_load_si256((const __m256i *)(const void *)(room + i)));
#else
    m16_store_4(p, m);
#endif
}

#endif
