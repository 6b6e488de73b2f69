/* What the panels of a product hold of a line: words of 32 bits, each an element in f32 or, in the sets that multiply pairs of
 * bf16 (HT_PAIRS), two adjacent steps, the first of them in the lower half; a last step that has no other is followed by 0.
 *
 *   words_fma(x, y, sum)   sum += x y; of pairs, the second steps' product and then the first ones', each rounded once, with
 *                          denormals taken as 0 and 0 in their place, as VDPBF16PS does it */
#ifndef HT_CPU_VECTOR_WORDS_H
#define HT_CPU_VECTOR_WORDS_H

#include "cpu/vector/simd.h"

#include <hearth/dtype.h>

#if defined(HT_ISA_avx512bf16)
#define HT_PAIRS 1
#endif

#if defined(HT_PAIRS)

enum { WORD_STEPS = 2 };
#define WORD_DTYPE HT_BF16

#if defined(HT_ISA_avx512bf16)
HT_INLINE v16f words_fma(v16f x, v16f y, v16f sum) { return _mm512_dpbf16_ps(sum, (__m512bh)x, (__m512bh)y); }
#else
#include "cpu/vector/bf16_lanes.h"
HT_INLINE v16f words_fma(v16f x, v16f y, v16f sum) {
    const v16i a = v16f_bits(x), b = v16f_bits(y);
    sum = bf16_flushed(v16f_fma(bf16_odd(a), bf16_odd(b), bf16_flushed(sum)));
    return bf16_flushed(v16f_fma(bf16_even(a), bf16_even(b), sum));
}
#endif

#else

enum { WORD_STEPS = 1 };
#define WORD_DTYPE HT_F32

HT_INLINE v16f words_fma(v16f x, v16f y, v16f sum) { return v16f_fma(x, y, sum); }

#endif

#endif
