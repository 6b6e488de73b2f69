/* Products of small f32 matrices that lie in the cache: the building block of blocked kernels. */
#ifndef HT_CPU_VECTOR_PANEL_H
#define HT_CPU_VECTOR_PANEL_H

#include "cpu/vector/lanes.h"

/* A left operand whose element (i, l) is at[i * row + l * step]. */
typedef struct panel_left {
    const float *at;
    int64_t row, step;
} panel_left;

typedef enum panel_mode {
    PANEL_SET,      /* c = the sum */
    PANEL_ADD,      /* c + the sum, which begins at 0 */
    PANEL_CONTINUE, /* the sum, which begins at c */
    PANEL_SCALE     /* c * factor[i] + the sum */
} panel_mode;

/* c [m, n] of left [m, k] and b [k, n]: columns 16 p to 16 p + 15 of row l of b are at b[l * b_step + p * b_panel], and
 * can be read where n ends before. A sum is a chain of fused multiply-adds in the order of l; the sum of each further chunk of
 * steps begins at 0 and is added to c. */
typedef struct panel_product {
    panel_left left;
    int64_t
        tile; /* of packed rows: floats from the first of ht_panel_rows(m) rows to the next; 0: rows are not packed */
    const float *b;
    int64_t b_step, b_panel;
    float *c;
    int64_t c_row, m, n, k;
    int64_t chunk; /* steps, or 0: all */
    panel_mode mode;
    const float *factor;
} panel_product;

void HT_ISA_NAME(ht_panel_multiply)(const panel_product *t);
/* How many of m rows are multiplied at a time: all of them, or 4 to 16. */
int HT_ISA_NAME(ht_panel_rows)(int64_t m);

/* c [m, n] = a [m, k] b [k, n], or the sums of c go on; rows of b and c follow at b_row and c_row. */
static inline void panel_multiply(panel_left a, const float *b, int64_t b_row, int64_t k, int64_t m, int64_t n,
                                  float *c, int64_t c_row, bool add) {
    HT_ISA_NAME(ht_panel_multiply)
    (&(panel_product){.left = a,
                      .b = b,
                      .b_step = b_row,
                      .b_panel = 16,
                      .c = c,
                      .c_row = c_row,
                      .m = m,
                      .n = n,
                      .k = k,
                      .mode = add ? PANEL_CONTINUE : PANEL_SET});
}

/* Rows of n elements of any dtype and strides, as f32, padded with zeros to `padded`, a multiple of sixteen. */
static inline void panel_load(ht_dtype t, const void *from, int64_t at, int64_t row, int64_t step, int64_t m, int64_t n,
                              float *to, int64_t padded, float scale) {
    v16f factor = v16f_set1(scale);
#define PANEL_LOAD(type, load)                                                                                         \
    for (int64_t i = 0; i < m; i++)                                                                                    \
        for (int64_t j = 0; j < n; j += 16)                                                                            \
            v16f_store(to + i * padded + j, v16f_mul(load((const type *)from + at + i * row + j), factor));
    if (step == 1 && n == padded) { /* whole vectors: the dtype need not be asked for at each */
        if (t == HT_F32)
            PANEL_LOAD(float, v16f_load)
        else if (t == HT_F16)
            PANEL_LOAD(uint16_t, v16f_load_f16)
        else
            PANEL_LOAD(uint16_t, v16f_load_bf16)
        return;
    }
#undef PANEL_LOAD
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
