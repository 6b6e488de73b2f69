/* Matrix product kernels, one table per instruction set, and the order of their sums; cpu/matrix_*.c cut the work for
 * them.
 *
 * The order of every quantised product, for one output y of row x of activations and row w of weights:
 *
 *   x is cut into blocks of 32 columns. With p = max |x|, y = x * (256 * 127 / p) is rounded once, to the nearest
 *   integer; it is 0 where p is at most 2^-110. A block's numbers are q = (y * l + 2^14) >> 15, and its scale is
 *   s = p / 127 * (128 / l), for l = 128, 127 or 126: the one with the least sum of e^2, times (128 / l)^2, for
 *   e = (y * l - 2^15 q) >> 7. The block's sum over its 32 columns (or its two halves, for types with a scale per 16) of
 *   stored weight times q is exact, in integers. Then
 *
 *     t = sum_0 * scale_0                       sum of (weight - bias) * q, times the weight's scale
 *     t = t + sum_1 * scale_1                   types with two scales per block; both products are rounded
 *     t = fma(min_h, sum of q in half h, t)     types with a minimum, each half in order
 *     y = fma(t, s, y)                          y begins at 0, blocks in order
 *
 *   and y = y + bias at the end.
 *
 * High precision: x is cut into the same blocks. With p = max |x|, q = round(x * (HT_PLANES_X / p)), rounded once, to nearest
 * even, 0 where p is at most 2^-110, and s = p / HT_PLANES_X, NaN where p is no number or infinite. q = 128 hi + lo with lo in
 * [-64, 63]: two planes of bytes. Their sums become one, exact in integers, which is rounded to f32. The rest is as
 * above.
 *
 * `scale` and `min` are the products the file implies (d * scale, -(dmin * min)), which
 *   are exact in f32. Nothing else rounds, so every instruction set gives the same bits.
 *
 * Products in f32: y is the sum, in order, of one partial sum per HT_DENSE_CHUNK columns, each of which begins at 0 and
 * takes one fma per column in order. So are products with f32 weights everywhere, and with f16 and bf16 weights where
 * the instruction set has no dot product of words.
 *
 * Products in words: where it has one, f16 and bf16 weights and what they meet become integers of 14 bits, which are
 * exact for all weights of a block but those smaller than a 32nd (bf16; f16: a quarter) of its largest. x and each row
 * of w are cut into blocks of 32 columns, the last one shorter.
 *
 *   x: scale s = max |x| / HT_WORD_X, numbers q = round(x * (1 / s)), to nearest even, 0 where s is 0
 *   w: scale u = 2^(e - 13) with the least e for which all |w| < 2^e, and at least -110; numbers v = round(w / u), to
 *      nearest even; u is NaN where a weight of the block is a NaN or an infinity
 *   t = sum of v * q                          exact, under 2^31; then rounded to f32
 *   y = fma(t * u, s, y)                      y begins at 0, blocks in order; the product t * u is exact
 *
 *   and y = y + bias at the end. */
#ifndef HT_CPU_MATRIX_KERNELS_H
#define HT_CPU_MATRIX_KERNELS_H

#include "base/pool.h"
#include "cpu/pack.h"

enum {
    HT_QCHUNK = 20,       /* blocks of 32 columns that are decoded at a time, at most */
    HT_DENSE_CHUNK = 128, /* columns per partial sum */
    HT_WORD_X = 8191,     /* magnitude of the largest activation of a block */
    HT_PLANES_X = 16256,  /* the same in two planes: 127 * 128, so that neither plane is ever -128 */
    HT_PLANE_BITS = 7,    /* of the second plane */
    HT_PLANE_STEP = 1 << HT_PLANE_BITS,
    HT_WCHUNK = 16 /* blocks of 32 columns that are converted to words at a time, at most */
};

/* Formats of activations for integer products. */
typedef enum ht_form {
    HT_FORM_BYTES,  /* 8 bits, for quantised weights in fast precision */
    HT_FORM_PLANES, /* 15 bits as two rows of 8, for quantised weights in high precision */
    HT_FORM_WORDS,  /* for f16 and bf16 weights, where the instruction set multiplies them so */
    HT_FORM_COUNT
} ht_form;
static inline int ht_form_planes(ht_form form) { return form == HT_FORM_PLANES ? 2 : 1; }

/* Activations quantised once, for any number of products. Rows are split evenly into tiles of at most tile_rows, or
 * direct_rows if there are few. Tiles are contiguous. A tile of n rows is stored block by block, for sequential reads:
 * numbers [n_blocks][n][32], scale [n_blocks][n], and for bytes sum [n_blocks][2][n], of each half of a block.
 * Different threads may write different rows of a tile. */
typedef struct ht_qrows {
    int64_t n, n_blocks, n_tiles; /* n: rows of activations */
    int64_t tile_rows, n_larger;  /* the first n_larger tiles have a row more than tile_rows */
    int planes;                   /* rows of numbers per row of activations, adjacent: 1 or 2 */
    union {
        int8_t *q;
        int16_t *word;
    };
    float *scale;
    int32_t *sum;
} ht_qrows;

/* Rows of numbers of a tile, and before it. */
static inline int ht_qtile_rows(const ht_qrows *x, int64_t tile) {
    return x->planes * (int)(x->tile_rows + (tile < x->n_larger));
}
static inline int64_t ht_qtile_first(const ht_qrows *x, int64_t tile) {
    return x->planes * (tile * x->tile_rows + (tile < x->n_larger ? tile : x->n_larger));
}

/* First block that a thread quantises, with wraparound, when its rows start at `first`. Staggered, so that threads do
 * not write the same cache lines of a tile. */
static inline int64_t ht_first_block(const ht_qrows *x, int64_t tile, int first) {
    return first * x->n_blocks / ht_qtile_rows(x, tile);
}

/* Tiles [first, last) of rows, and for bytes the offsets for one weight type, [n_blocks][halves][n]: f32 sums for types
 * with a minimum, else the start values of integer sums. */
typedef struct ht_qtiles {
    const ht_qrows *x;
    const void *offset; /* of all tiles of x */
    int64_t first, last;
} ht_qtiles;

/* HT_QCHUNK blocks of one panel, a byte per weight, in the order in which kernels read them. */
typedef struct ht_qpanel {
    uint8_t w[HT_QCHUNK][HT_QBLOCK_W];
    float scale[2 * HT_QCHUNK][HT_PANEL]; /* [block][half], halves as the type has */
    float min[2 * HT_QCHUNK][HT_PANEL];
} ht_qpanel;

/* Both parts of a coarse head (cpu/coarse_head.h), from some panel on. */
typedef struct ht_coarse_panels {
    const uint8_t *first, *rest;
} ht_coarse_panels;

/* HT_WCHUNK blocks of one panel as words: w[block][pair of columns], each [16][2]. */
typedef struct ht_wpanel {
    _Alignas(64) int16_t w[HT_WCHUNK][HT_QBLOCK / 2][2 * HT_PANEL];
    float scale[HT_WCHUNK][HT_PANEL];
} ht_wpanel;

/* Rows row .. row + n - 1 of y = W x + bias; `y` points at row 0 of W, and at row 0 of x. */
typedef struct ht_gemm_out {
    float *y;
    int64_t ldy;
    const float *bias; /* NULL: none */
    int64_t row, n;    /* row is a multiple of HT_PANEL */
} ht_gemm_out;

/* The softmax of a row of logits so far: its maximum, -INFINITY to begin with, and the sum of e^(x - max). */
typedef struct ht_loss_state {
    float max;
    double sum;
} ht_loss_state;

/* Integer products. For a tile with an odd number of rows they read one row past its end. */
typedef struct ht_integer_kernels {
    /* Whole products from the packed panels; `panels` is the first one, of row out->row. */
    void (*direct)(ht_weight_type type, const void *panels, int64_t k, const ht_qtiles *x, const ht_gemm_out *out);
    /* Blocks [block, block + n) of a panel to a ht_qpanel, n <= HT_QCHUNK and block a multiple of 8, or a ht_wpanel,
     * n <= HT_WCHUNK. */
    void (*decode)(ht_weight_type type, const void *panel, int64_t k, int64_t block, int n, void *to);
    /* Adds blocks [block, block + n) of up to tile_panels decoded panels to y; starts it when block is 0. The bias is
     * added when out->bias is not NULL. */
    void (*decoded)(ht_weight_type type, const void *panels, int64_t block, int n, const ht_qtiles *x,
                    const ht_gemm_out *out);
} ht_integer_kernels;

typedef struct ht_matrix_kernels {
    /* Rows of activations, with one plane and with two: of a tile; of a tile in `direct`, not less; and for which
     * decoding weights in registers for every tile is faster than storing them decoded, at most. */
    int tile_rows[2], direct_rows[2], direct_most[2];
    int tile_panels; /* of weights, in `decoded` */

    /* Integer products: bytes with quantised weights, words with f16 and bf16 weights. The functions for words are NULL
     * where f16 and bf16 are multiplied in f32. */
    /* Rows [first, last) of activations of a tile; x is row 0 of all. A last block of fewer columns is for words alone. */
    void (*prepare[HT_FORM_COUNT])(const float *x, int64_t ldx, int64_t k, const ht_qrows *to, int64_t tile, int first,
                                   int last);
    /* The offsets of rows [first, last) of numbers, of bytes or planes, for weights of one type; `offset` is that of all
     * tiles. */
    void (*offsets)(ht_weight_type type, const ht_qrows *x, int64_t tile, int first, int last, void *offset);
    ht_integer_kernels bytes, words;

    /* Coarse heads. The highest bound of each of n panels for one row of activations, q [n_blocks][planes][32]. Integer
     * sums start at `offset`, per block. INFINITY where there is no bound. */
    void (*coarse_bounds)(const uint8_t *first, int64_t n_blocks, int64_t n, int planes, const int8_t *q,
                          const float *scale, const int32_t *offset, float *bound);
    /* As `direct` and `decode` of Q8_0; `decoded` of Q8_0 reads the decoded panels. */
    void (*coarse_direct)(ht_coarse_panels panels, int64_t k, const ht_qtiles *x, const ht_gemm_out *out);
    void (*coarse_decode)(ht_coarse_panels panel, int64_t k, int64_t block, int n, ht_qpanel *to);

    /* Dense. Adds the partial sum of columns [column, column + n) to y, n <= HT_DENSE_CHUNK, column a multiple of it;
     * starts y when column is 0; adds the bias when out->bias is not NULL. `panel` is at `column` of the first panel,
     * panels are `stride` elements apart; x at column 0. */
    void (*dense[HT_W_BF16 + 1])(const void *panel, int64_t stride, int64_t column, int n, const float *x, int64_t ldx,
                                 int n_x, const ht_gemm_out *out);
    /* Blocks [block, block + n) of a panel as exact f32 [32 n][16], column after column; block is a multiple of 8. Not
     * for dense and unpacked types. */
    void (*widen_blocks)(ht_weight_type type, const void *panel, int64_t k, int64_t block, int n, float *to);

    /* Columns [column, column + n) of a panel as f32 [n][16]. */
    void (*widen[HT_W_BF16 + 1])(const void *panel, int64_t column, int n, float *to);
    /* The same for 8-bit floats (e4m3, e5m2), each row multiplied by its scale. */
    void (*widen_f8[2])(const uint8_t *panel, int64_t column, int n, const float scale[HT_PANEL], float *to);

    /* Cross-entropy over a vocabulary, for n products of one row. Logits are products times `scale`, then capped to
     * cap * tanh(x / cap) unless cap is 0. `loss_sums` computes them in place and adds them to the state.
     * `loss_gradients` replaces them by gradients of the loss times `factor` with respect to the products; lse is
     * max + log(sum) of the whole row, target the index of the target or -1. */
    void (*loss_sums)(float *logits, int n, float scale, float cap, ht_loss_state *state);
    void (*loss_gradients)(float *logits, int n, float scale, float cap, float lse, float factor, int target);

    /* 16 rows of n values, ld apart, to f32 [n][16]. */
    void (*transpose)(const float *rows, int64_t ld, int n, float *to);
} ht_matrix_kernels;

#endif
