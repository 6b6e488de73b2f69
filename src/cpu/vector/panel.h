/* Products of small f32 matrices that lie in the cache: what blocked kernels are built of. */
#ifndef HT_CPU_VECTOR_PANEL_H
#define HT_CPU_VECTOR_PANEL_H

#include "cpu/vector/lanes.h"

/* Sums that fit beside the operands: 24 registers of 32 with AVX-512, 12 of 16 with AVX2, 24 of 32 with NEON. */
#if defined(HT_ISA_avx512)
enum { PANEL_ROWS = 6, PANEL_LANES = 4 };
#else
enum { PANEL_ROWS = 3, PANEL_LANES = 2 };
#endif

/* A left operand whose element (i, l) is at[i * row + l * step]. */
typedef struct panel_left {
    const float *at;
    int64_t row, step;
} panel_left;

HT_INLINE void panel_block(panel_left a, const float *b, int64_t b_row, int64_t k, float *c, int64_t c_row, bool add,
                           int rows, int lanes) {
    v16f sum[PANEL_ROWS][PANEL_LANES];
    HT_UNROLL
    for (int i = 0; i < rows; i++) HT_UNROLL
    for (int j = 0; j < lanes; j++) sum[i][j] = add ? v16f_load(c + i * c_row + 16 * j) : v16f_zero();
    for (int64_t l = 0; l < k; l++) {
        v16f y[PANEL_LANES];
        HT_UNROLL
        for (int j = 0; j < lanes; j++) y[j] = v16f_load(b + l * b_row + 16 * j);
        HT_UNROLL
        for (int i = 0; i < rows; i++) {
            v16f x = v16f_set1(a.at[i * a.row + l * a.step]);
            HT_UNROLL
            for (int j = 0; j < lanes; j++) sum[i][j] = v16f_fma(x, y[j], sum[i][j]);
        }
    }
    HT_UNROLL
    for (int i = 0; i < rows; i++) HT_UNROLL
    for (int j = 0; j < lanes; j++) v16f_store(c + i * c_row + 16 * j, sum[i][j]);
}

HT_INLINE void panel_rows(panel_left a, const float *b, int64_t b_row, int64_t k, int64_t m, float *c, int64_t c_row,
                          bool add, int lanes) {
    int64_t i = 0;
    for (; i + PANEL_ROWS <= m; i += PANEL_ROWS, a.at += PANEL_ROWS * a.row)
        panel_block(a, b, b_row, k, c + i * c_row, c_row, add, PANEL_ROWS, lanes);
    for (; i < m; i++, a.at += a.row) panel_block(a, b, b_row, k, c + i * c_row, c_row, add, 1, lanes);
}

/* c [m, n] = a [m, k] b [k, n], or c plus that; n is a multiple of sixteen, rows of b and c follow at b_row and c_row. */
static inline void panel_multiply(panel_left a, const float *b, int64_t b_row, int64_t k, int64_t m, int64_t n,
                                  float *c, int64_t c_row, bool add) {
    int64_t j = 0;
    for (; j + 16 * PANEL_LANES <= n; j += 16 * PANEL_LANES)
        panel_rows(a, b + j, b_row, k, m, c + j, c_row, add, PANEL_LANES);
    for (; j < n; j += 16) panel_rows(a, b + j, b_row, k, m, c + j, c_row, add, 1);
}

/* Rows of n elements of any dtype and strides, as f32, padded with zeros to `padded`, a multiple of sixteen. */
static inline void panel_load(ht_dtype t, const void *from, int64_t at, int64_t row, int64_t step, int64_t m, int64_t n,
                              float *to, int64_t padded, float scale) {
    v16f factor = v16f_set1(scale);
    for (int64_t i = 0; i < m; i++)
        for (int64_t j = 0; j < padded; j += 16) {
            v16f v = v16f_zero();
            if (j < n) v = lanes_load(t, from, at + i * row + j * step, step, lanes_of(n - j));
            v16f_store(to + i * padded + j, v16f_mul(v, factor));
        }
}

/* [m, n] turned to [n, m]; both are multiples of sixteen, rows follow at x_row and y_row. */
static inline void panel_transpose(const float *x, int64_t x_row, int64_t m, int64_t n, float *y, int64_t y_row) {
    for (int64_t i = 0; i < m; i += 16)
        for (int64_t j = 0; j < n; j += 4) {
            v16f v[4];
            for (int r = 0; r < 4; r++) {
                const float *p = x + (i + r) * x_row + j;
                v[r] = v16f_load_quads(p, p + 4 * x_row, p + 8 * x_row, p + 12 * x_row);
            }
            v16f_transpose_quads(v);
            for (int r = 0; r < 4; r++) v16f_store(y + (j + r) * y_row + i, v[r]);
        }
}

#endif
