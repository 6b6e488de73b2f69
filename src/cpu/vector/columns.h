/* Column sums side by side, with the bits of row_sum (rows.h): elements of a column go in turn to 64 partial sums,
 * which are added pairwise at the end. Which axis is last in memory changes no result. */
#ifndef HT_CPU_VECTOR_COLUMNS_H
#define HT_CPU_VECTOR_COLUMNS_H

#include "cpu/vector/lanes.h"

enum { COLUMNS_LANES = 64, COLUMNS_WIDTH = 256 };

typedef struct columns_sum {
    _Alignas(64) float lane[COLUMNS_LANES][COLUMNS_WIDTH];
} columns_sum;

/* Of w columns from the first on; later ones are not looked at. */
HT_INLINE void columns_begin(columns_sum *s, int64_t w) {
    for (int k = 0; k < COLUMNS_LANES; k++)
        for (int64_t c = 0; c < w; c += 16) v16f_store(s->lane[k] + c, v16f_zero());
}

/* The sums to `to`, of whole registers; s is used up. */
HT_INLINE void columns_total(columns_sum *s, int64_t w, float *to) {
    for (int64_t c = 0; c < w; c += 16) {
        v16f sum[16];
        HT_UNROLL
        for (int i = 0; i < 16; i++)
            sum[i] = v16f_add(v16f_add(v16f_load(s->lane[i] + c), v16f_load(s->lane[i + 16] + c)),
                              v16f_add(v16f_load(s->lane[i + 32] + c), v16f_load(s->lane[i + 48] + c)));
        HT_UNROLL
        for (int half = 8; half > 0; half /= 2) {
            HT_UNROLL
            for (int i = 0; i < half; i++) sum[i] = v16f_add(sum[i], sum[i + half]);
        }
        v16f_store(to + c, sum[0]);
    }
}

#endif
