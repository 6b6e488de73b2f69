/* What kernels that reduce columns share: asking for rows before they are needed, and adding up partial sums. */
#ifndef HT_CPU_VECTOR_COLUMNS_H
#define HT_CPU_VECTOR_COLUMNS_H

#include "cpu/vector/simd.h"

enum { COLUMNS_LANES = 64 }; /* partial sums of a column, as row_sum has them of a row */

HT_INLINE void columns_ask_for(const char *p, int64_t bytes) {
    for (int64_t b = 0; b < bytes; b += 64) HT_PREFETCH(p + b);
}

HT_INLINE void columns_add(float *to, const float *what, int64_t w) {
    for (int64_t c = 0; c < w; c += 16) v16f_store(to + c, v16f_add(v16f_load(to + c), v16f_load(what + c)));
}

/* The tree of row_sum_total on n partial sums, which are rows of w columns in whole registers, `stride` apart: what was never
 * added to is 0 and left out. The first row is the result. */
static inline void columns_add_lanes(float *lane, int64_t stride, int64_t n, int64_t w) {
    for (int64_t i = 0; i < 16; i++) {
        if (i + 16 < n) columns_add(lane + i * stride, lane + (i + 16) * stride, w);
        if (i + 48 < n) columns_add(lane + (i + 32) * stride, lane + (i + 48) * stride, w);
        if (i + 32 < n) columns_add(lane + i * stride, lane + (i + 32) * stride, w);
    }
    for (int64_t half = 8; half > 0; half /= 2)
        for (int64_t i = 0; i < half; i++)
            if (i + half < n) columns_add(lane + i * stride, lane + (i + half) * stride, w);
}

#endif
