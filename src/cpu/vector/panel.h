/* Products of small f32 matrices in cache: the inner kernel of blocked products and attention. */
#ifndef HT_CPU_VECTOR_PANEL_H
#define HT_CPU_VECTOR_PANEL_H

#include "cpu/vector/lanes.h"

/* Left operand of a product: element (i, l) is at[i * row + l * step]. */
typedef struct panel_operand {
    const float *at;
    int64_t row, step;
} panel_operand;

typedef enum panel_mode {
    PANEL_SET,      /* c = sum */
    PANEL_ADD,      /* c = c + sum */
    PANEL_CONTINUE, /* the sum starts from c */
    PANEL_SCALE     /* c = c * factor[i] + sum */
} panel_mode;

/* Product c [m, n] of left [m, k] and b [k, n]. Columns 16 p .. 16 p + 15 of row l of b are at b[l * b_step + p *
 * b_panel] and must be readable beyond n. A sum is one sequence of fused multiply-adds in the order of l; with `chunk`,
 * every chunk of k starts from 0 and is added to c. */
typedef struct panel_product {
    panel_operand left;
    int64_t tile; /* packed left operand: floats from one tile of ht_panel_rows(m) rows to the next; 0: not packed */
    const float *b;
    int64_t b_step, b_panel;
    float *c;
    int64_t c_row, m, n, k;
    int64_t chunk; /* steps of k; 0: all */
    panel_mode mode;
    const float *factor;
} panel_product;

void HT_ISA_NAME(ht_panel_multiply)(const panel_product *t);
/* Rows per register block for m rows: m itself, or 4 to 16. */
int HT_ISA_NAME(ht_panel_rows)(int64_t m);

/* c [m, n] = a [m, k] b [k, n], or c += with sums that start from c (`add`). b_row and c_row are row strides. */
static inline void panel_multiply(panel_operand a, const float *b, int64_t b_row, int64_t k, int64_t m, int64_t n,
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

/* Loads m rows of n elements of any dtype and strides as f32 times `scale`, zero-padded to `padded`, a multiple of
 * sixteen. */
static inline void panel_load(ht_dtype t, const void *from, int64_t at, int64_t row, int64_t step, int64_t m, int64_t n,
                              float *to, int64_t padded, float scale) {
    v16f factor = v16f_set1(scale);
#define PANEL_LOAD(type, load)                                                                                         \
    for (int64_t i = 0; i < m; i++)                                                                                    \
        for (int64_t j = 0; j < n; j += 16)                                                                            \
            v16f_store(to + i * padded + j, v16f_mul(load((const type *)from + at + i * row + j), factor));
    if (step == 1 && n == padded) { /* whole vectors: one dtype test for all */
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
            if (j < n) v = lanes_load(t, from, at + i * row + j * step, step, lanes_count(n - j));
            v16f_store(to + i * padded + j, v16f_mul(v, factor));
        }
}

/* Transposes [m, n] to [n, m], both multiples of sixteen; x_row and y_row are row strides. */
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
