/* Panels: the packed form of quantised and dense weights, one layout for every instruction set and for one row of
 * activations as for many.
 *
 * A panel holds 16 rows of W. For quantised types it is two planes, each read front to back:
 *
 *   quants   one unit of 64 * bits bytes per block of 32 columns
 *   scales   one unit per scale group (32 columns, or 256 for the K types)
 *
 * A block of 16 x 32 weights is modelled as eight registers of 64 bytes, W[0] to W[7]; byte 4 r + i of W[j] is the
 * weight of row r, column 4 j + i, as an unsigned number (the stored number plus the type's `bias`). So one 32-bit lane
 * belongs to one row, and a dot-product instruction adds four columns of 16 rows. The planes of W are kept apart:
 *
 *   4 bits   N[0..3]: N[j] = W[j] | W[j + 4] << 4
 *   1 bit    H:       bit j of H is the bit of W[j]
 *   2 bits   P[0..1]: bits 2 c, 2 c + 1 of P[i] are those of W[4 i + c]
 *   8 bits   W[0..7]
 *
 * Codes, indices into a table of values, use the planes of 4 bits. 5 bits are N then H, 6 bits N then P, 3 bits P then
 * H: low bits first. Scale units are described in pack.c. Dense types hold 16 rows per column: f32, f16 and f8 [k][16],
 * bf16 [k / 2][16][2], for pairwise bf16 products. Rows and columns past the end of a matrix are zero.
 *
 * Unpacked types (formats/codebook.h) keep their blocks as stored in the file, block g of all 16 rows before block
 * g + 1. */
#ifndef HT_CPU_PACK_H
#define HT_CPU_PACK_H

#include "device/matrix.h"

#include <stdbool.h>

enum {
    HT_PANEL = 16,    /* rows per panel */
    HT_QBLOCK = 32,   /* columns per block of activations */
    HT_QBLOCK_W = 512 /* weights of a block of a panel, and bytes once they are one byte each */
};

/* Meaning of the numbers in the planes. */
typedef enum ht_codes {
    HT_CODES_NONE, /* weights */
    HT_CODES_IQ4,  /* 4-bit codes of 8-bit weights */
    HT_CODES_E2M1  /* 4-bit codes of 5-bit weights */
} ht_codes;

typedef struct ht_panel_layout {
    int bits;        /* per weight; 0: dense */
    int bias;        /* subtracted from the unsigned weight */
    int halves;      /* scales per block of 32: 1 or 2 */
    bool has_min;    /* an offset is added to the scaled weight */
    int group;       /* blocks of 32 per scale unit */
    int scale_bytes; /* per scale unit of a panel */
    ht_codes codes;
    bool unpacked; /* there are no planes; `bits` are those of an unpacked weight */
    bool affine;   /* MLX's groups (formats/affine.h), of `group` blocks that share a scale and a bias */
} ht_panel_layout;

/* X(type, bits, bias, halves, has_min, group, scale_bytes, codes): the layouts as constants for the kernels. */
#define HT_QUANTISED_TYPES(X)                                                                                          \
    X(Q4_0, 4, 8, 1, 0, 1, 32, HT_CODES_NONE)                                                                          \
    X(Q4_1, 4, 0, 1, 1, 1, 64, HT_CODES_NONE)                                                                          \
    X(Q5_0, 5, 16, 1, 0, 1, 32, HT_CODES_NONE)                                                                         \
    X(Q5_1, 5, 0, 1, 1, 1, 64, HT_CODES_NONE)                                                                          \
    X(Q8_0, 8, 128, 1, 0, 1, 32, HT_CODES_NONE)                                                                        \
    X(Q2_K, 2, 0, 2, 1, 8, 320, HT_CODES_NONE)                                                                         \
    X(Q3_K, 3, 4, 2, 0, 8, 224, HT_CODES_NONE)                                                                         \
    X(Q4_K, 4, 0, 1, 1, 8, 256, HT_CODES_NONE)                                                                         \
    X(Q5_K, 5, 0, 1, 1, 8, 256, HT_CODES_NONE)                                                                         \
    X(Q6_K, 6, 32, 2, 0, 8, 288, HT_CODES_NONE)                                                                        \
    X(IQ4_NL, 4, 128, 1, 0, 1, 32, HT_CODES_IQ4)                                                                       \
    X(IQ4_XS, 4, 128, 1, 0, 8, 128, HT_CODES_IQ4)                                                                      \
    X(MXFP4, 4, 12, 1, 0, 1, 16, HT_CODES_E2M1)                                                                        \
    X(NVFP4, 4, 12, 2, 0, 2, 64, HT_CODES_E2M1)                                                                        \
    X(TQ2_0, 2, 1, 1, 0, 8, 32, HT_CODES_NONE)

/* X(type, bits, bias, halves, group): unpacked types, for the kernels that take their bytes. */
#define HT_UNPACKED_TYPES(X)                                                                                           \
    X(TQ1_0, 2, 1, 1, 8)                                                                                               \
    X(Q1_0, 2, 1, 1, 4)                                                                                                \
    X(IQ1_S, 5, 9, 1, 8)                                                                                               \
    X(IQ1_M, 5, 9, 2, 8)                                                                                               \
    X(IQ2_XXS, 7, 43, 1, 8)                                                                                            \
    X(IQ2_XS, 7, 43, 2, 8)                                                                                             \
    X(IQ2_S, 7, 43, 2, 8)                                                                                              \
    X(IQ3_XXS, 7, 62, 1, 8)                                                                                            \
    X(IQ3_S, 5, 15, 1, 8)

/* Bits of a weight once it is a byte. */
static inline int ht_weight_bits(int bits, ht_codes codes) {
    return codes == HT_CODES_IQ4 ? 8 : codes == HT_CODES_E2M1 ? 5 : bits;
}

/* Dense types have 0 bits. */
const ht_panel_layout *ht_panel_layout_of(ht_weight_type type);

/* Bytes of one panel, a multiple of 64, and the offset of its scales. */
size_t ht_panel_bytes(ht_weight_type type, int64_t k);

size_t ht_panels_bytes(ht_weight_type type, int64_t n_rows, int64_t k);
ht_status ht_panels_pack(ht_matrix *m, int64_t row, int64_t n, const void *stored, ht_error *err);
ht_status ht_panels_row(const ht_matrix *m, int64_t row, float *out, ht_error *err); /* never fails */

static inline int64_t ht_panel_count(int64_t n_rows) { return (n_rows + HT_PANEL - 1) / HT_PANEL; }

#endif
