/* Sums of adjacent columns, bit-identical to row_sum (rows.h): element i of a column goes to partial sum i mod 64, and
 * the partial sums are added pairwise. So the memory layout does not change a sum. */
#ifndef HT_CPU_VECTOR_COLUMNS_H
#define HT_CPU_VECTOR_COLUMNS_H

#include "cpu/vector/lanes.h"

enum { COLUMNS_LANES = 64, COLUMNS_WIDTH = 256 };

/* 64 partial sums for each of COLUMNS_WIDTH columns. */
typedef struct columns_sum {
    _Alignas(64) float lane[COLUMNS_LANES][COLUMNS_WIDTH];
} columns_sum;

/* Clears the partial sums of the first w columns. */
HT_INLINE void columns_begin(columns_sum *s, int64_t w) {
    for (int k = 0; k < COLUMNS_LANES; k++)
        for (int64_t c = 0; c < w; c += 16) v16f_store(s->lane[k] + c, v16f_zero());
}

/* Stores the sums of w columns to `to`, in whole vectors. */
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
