/* Matrix kernel table of one instruction set. */
#include "cpu/vector/matrix_f32.h"
#include "cpu/vector/matrix_int16.h"
#include "cpu/vector/matrix_int8.h"
#include "cpu/vector/matrix_loss.h"
#include "cpu/vector/tile.h"

extern const ht_matrix_kernels HT_ISA_NAME(ht_matrix_kernels);

#define DIRECT(type, ...)   [HT_W_##type] = HT_ISA_NAME(ht_direct_##type),
#define DECODE(type, ...)   [HT_W_##type] = HT_ISA_NAME(ht_decode_##type),
#define DECODED(type, ...)  [HT_W_##type] = HT_ISA_NAME(ht_decoded_##type),
#define DENSE(type)         [HT_W_##type] = HT_ISA_NAME(ht_dense_##type),
#define WIDEN(type, ...)    [HT_W_##type] = HT_ISA_NAME(ht_widen_##type),
#define DIRECT_WORDS(type)  [HT_W_##type] = HT_ISA_NAME(ht_words_direct_##type),
#define DECODE_WORDS(type)  [HT_W_##type] = HT_ISA_NAME(ht_words_decode_##type),
#define WORDS_DECODED(type) [HT_W_##type] = HT_ISA_NAME(ht_words_decoded),
#if HT_DOT_WORDS
#define WITH_WORDS(X) HT_HALF_TYPES(X)
#else
#define WITH_WORDS(X)
#endif

const ht_matrix_kernels HT_ISA_NAME(ht_matrix_kernels) = {
    .tile_rows = TILE_ROWS,
    .direct_rows = DIRECT_ROWS,
    .direct_most = {DIRECT_MOST, DIRECT_MOST_PLANES},
    .tile_panels = TILE_PANELS,
    .prepare[HT_FORM_BYTES] = HT_ISA_NAME(ht_prepare_bytes),
    .prepare[HT_FORM_PLANES] = HT_ISA_NAME(ht_prepare_planes),
#if HT_DOT_WORDS
    .prepare[HT_FORM_WORDS] = HT_ISA_NAME(ht_prepare_words),
#endif
    .offsets = HT_ISA_NAME(ht_row_offsets),
    .direct = {HT_QUANTISED_TYPES(DIRECT) HT_UNPACKED_TYPES(DIRECT) HT_AFFINE_TYPES(DIRECT) WITH_WORDS(DIRECT_WORDS)},
    .decode = {HT_QUANTISED_TYPES(DECODE) HT_UNPACKED_TYPES(DECODE) HT_AFFINE_TYPES(DECODE) WITH_WORDS(DECODE_WORDS)},
    .decoded = {HT_QUANTISED_TYPES(DECODED) HT_UNPACKED_TYPES(DECODED) HT_AFFINE_TYPES(DECODED)
                    WITH_WORDS(WORDS_DECODED)},
    .join_planes = HT_ISA_NAME(ht_join_planes),
    .coarse_bounds = HT_ISA_NAME(ht_coarse_bounds),
    .coarse_direct = HT_ISA_NAME(ht_coarse_direct),
    .coarse_decode = HT_ISA_NAME(ht_coarse_decode),
    .dense = {HT_DENSE_TYPES(DENSE)},
    .widen = {HT_DENSE_TYPES(WIDEN)},
    .widen_blocks = {HT_QUANTISED_TYPES(WIDEN) HT_AFFINE_TYPES(WIDEN)},
    .widen_f8 = {HT_ISA_NAME(ht_widen_e4m3), HT_ISA_NAME(ht_widen_e5m2)},
    .loss_sums = HT_ISA_NAME(ht_loss_sums),
    .loss_gradients = HT_ISA_NAME(ht_loss_gradients),
    .transpose = HT_ISA_NAME(ht_transpose_panel),
};
