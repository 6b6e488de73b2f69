/* The table of one instruction set's matrix kernels. */
#include "cpu/vector/matrix_f32.h"
#include "cpu/vector/matrix_int8.h"
#include "cpu/vector/tile.h"

extern const ht_matrix_kernels HT_ISA_NAME(ht_matrix_kernels);

#define DIRECT(type, ...)  [HT_W_##type] = HT_ISA_NAME(ht_direct_##type),
#define DECODE(type, ...)  [HT_W_##type] = HT_ISA_NAME(ht_decode_##type),
#define DECODED(type, ...) [HT_W_##type] = HT_ISA_NAME(ht_decoded_##type),
#define DENSE(type)        [HT_W_##type] = HT_ISA_NAME(ht_dense_##type),
#define WIDEN(type)        [HT_W_##type] = HT_ISA_NAME(ht_widen_##type),

const ht_matrix_kernels HT_ISA_NAME(ht_matrix_kernels) = {
    .tile_rows = TILE_ROWS,
    .tile_panels = TILE_PANELS,
    .quantise = HT_ISA_NAME(ht_quantise_tile),
    .offsets = HT_ISA_NAME(ht_tile_offsets),
    .direct = {HT_QUANTISED_TYPES(DIRECT)},
    .decode = {HT_QUANTISED_TYPES(DECODE)},
    .decoded = {HT_QUANTISED_TYPES(DECODED)},
    .dense = {HT_DENSE_TYPES(DENSE)},
    .widen = {HT_DENSE_TYPES(WIDEN)},
    .transpose = HT_ISA_NAME(ht_transpose_panel),
};
