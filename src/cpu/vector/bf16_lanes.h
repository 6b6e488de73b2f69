/* What instructions that multiply bf16 do to their operands and results, in lanes of simd.h: pairs of bf16 in words of 32
 * bits, of which the even one is the lower half, and denormals that become 0. */
#ifndef HT_CPU_VECTOR_BF16_LANES_H
#define HT_CPU_VECTOR_BF16_LANES_H

#include "cpu/vector/simd.h"

#include <float.h>

HT_INLINE v16f bf16_flushed(v16f v) {
    const v16f zero = v16f_from_bits(v16i_and(v16f_bits(v), v16i_set1(INT32_MIN)));
    return v16f_select(v16f_lt(v16f_abs(v), v16f_set1(FLT_MIN)), zero, v);
}
HT_INLINE v16f bf16_even(v16i pairs) { return bf16_flushed(v16f_from_bits(v16i_shl(pairs, 16))); }
HT_INLINE v16f bf16_odd(v16i pairs) { return bf16_flushed(v16f_from_bits(v16i_and(pairs, v16i_set1(-65536)))); }

#endif
