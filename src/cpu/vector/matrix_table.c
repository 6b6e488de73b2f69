/* Matrix kernel table of one instruction set. */
#include "cpu/vector/matrix_f32.h"
#include "cpu/vector/matrix_int16.h"
#include "cpu/vector/matrix_int8.h"
#include "cpu/vector/matrix_loss.h"
#include "cpu/vector/tile.h"

extern const ht_matrix_kernels HT_ISA_NAME(ht_matrix_kernels);

#define DENSE(type) [HT_W_##type] = HT_ISA_NAME(ht_dense_##type),
#define WIDEN(type) [HT_W_##type] = HT_ISA_NAME(ht_widen_##type),

const ht_matrix_kernels HT_ISA_NAME(ht_matrix_kernels) = {
    .tile_rows = {TILE_ROWS, TILE_PLANE_ROWS / 2},
    .direct_rows = {DIRECT_ROWS, DIRECT_ROWS / 2},
    .direct_most = {DIRECT_MOST, DIRECT_MOST_PLANES},
    .tile_panels = TILE_PANELS,
    .bytes = {HT_ISA_NAME(ht_direct), HT_ISA_NAME(ht_decode), HT_ISA_NAME(ht_decoded)},
    .prepare[HT_FORM_BYTES] = HT_ISA_NAME(ht_prepare_bytes),
    .prepare[HT_FORM_PLANES] = HT_ISA_NAME(ht_prepare_planes),
#if HT_DOT_WORDS
    .prepare[HT_FORM_WORDS] = HT_ISA_NAME(ht_prepare_words),
    .words = {HT_ISA_NAME(ht_words_direct), HT_ISA_NAME(ht_words_decode), HT_ISA_NAME(ht_words_decoded)},
#endif
    .offsets = HT_ISA_NAME(ht_row_offsets),
    .coarse_bounds = HT_ISA_NAME(ht_coarse_bounds),
    .coarse_direct = HT_ISA_NAME(ht_coarse_direct),
    .coarse_decode = HT_ISA_NAME(ht_coarse_decode),
    .dense = {HT_DENSE_TYPES(DENSE)},
    .widen = {HT_DENSE_TYPES(WIDEN)},
    .widen_blocks = HT_ISA_NAME(ht_widen_blocks),
    .widen_f8 = {HT_ISA_NAME(ht_widen_e4m3), HT_ISA_NAME(ht_widen_e5m2)},
    .loss_sums = HT_ISA_NAME(ht_loss_sums),
    .loss_gradients = HT_ISA_NAME(ht_loss_gradients),
    .transpose = HT_ISA_NAME(ht_transpose_panel),
};
