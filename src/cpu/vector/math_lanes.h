/* base/math_lanes.h on sixteen lanes. */
#ifndef HT_CPU_VECTOR_MATH_LANES_H
#define HT_CPU_VECTOR_MATH_LANES_H

#include "base/math_wide.h"
#include "cpu/vector/math.h"

/* a b - c, rounded once. */
#if defined(HT_ISA_avx512)
HT_INLINE v16f v16f_fms(v16f a, v16f b, v16f c) { return _mm512_fmsub_ps(a, b, c); }
#elif defined(HT_ISA_YMM)
HT_INLINE v16f v16f_fms(v16f a, v16f b, v16f c) {
    return (v16f){_mm256_fmsub_ps(a.a, b.a, c.a), _mm256_fmsub_ps(a.b, b.b, c.b)};
}
#else
HT_INLINE v16f v16f_fms(v16f a, v16f b, v16f c) { return v16f_neg(v16f_fnma(a, b, c)); }
#endif

#define HT_V(thing)     v16##thing
#define HT_MASK         m16
#define HT_M(thing)     m16_##thing
#define HT_LANES_INLINE HT_INLINE
#include "base/math_lanes.h"
#undef HT_V
#undef HT_MASK
#undef HT_M
#undef HT_LANES_INLINE

HT_INLINE v16f v16f_tan(v16f x) {
    v16f y = v16f_tan_near(x);
    const m16 far = v16f_gt(v16f_abs(x), v16f_set1(0x1.fffffep+16f));
    if (m16_any(far)) {
        float one[16];
        v16f_store(one, x);
        for (int i = 0; i < 16; i++) one[i] = ht_tan_f32(one[i]);
        y = v16f_select(far, v16f_load(one), y);
    }
    return y;
}

#endif
