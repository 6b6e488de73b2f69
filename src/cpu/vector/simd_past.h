/* What simd.h lacks for results and operands that a cache should not keep.
 *
 *   v16f_store_past(p, v)  round the caches, where there are such stores; p begins a line of 64 bytes. ht_bypass_end has to
 *                          follow, on the same thread, before others read */
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

#endif
