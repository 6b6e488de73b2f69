/* Scales of fp8 weights, multipliers in separate tensors: `x.weight_scale_inv`, `x.weight_scale` or `x.scales`. One per
 * matrix, per row, or per block (block size: scheme.h), as in `transformers`. */
#ifndef HT_CHECKPOINT_FP8_SCALES_H
#define HT_CHECKPOINT_FP8_SCALES_H

#include "checkpoint/checkpoint.h"

typedef struct ht_fp8_scales {
    bool any;
    ht_stored_tensor tensor;
    int64_t rows, columns; /* block size of one scale */
    int64_t per_row;       /* scales in a row of blocks */
    int64_t n_matrices;    /* matrices with separate scales, stacked; 1: shared by all */
    int64_t n_rows;        /* per matrix */
} ht_fp8_scales;

/* Finds the scales of fp8 tensor `name`, [rows, columns], or [n_matrices, rows, columns] unless n_matrices is 0.
 * out->any is false for unscaled weights. Error for another shape, and for missing scales that config.json implies. */
ht_status ht_fp8_scales_find(const ht_checkpoint_files *c, const char *name, int64_t n_matrices, int64_t rows,
                             int64_t columns, ht_fp8_scales *out, ht_error *err);
/* Block scales of one matrix in memory: that of (r, c) is values[r / rows * per_row + c / columns]. */
typedef struct ht_block_scales {
    float *values; /* from malloc; NULL: none */
    int64_t n, per_row, rows, columns;
} ht_block_scales;
/* Reads the scales of matrix `index`, rows [row, row + n_rows). The caller frees out->values. */
ht_status ht_fp8_scales_read(const ht_fp8_scales *s, int64_t index, int64_t row, int64_t n_rows, ht_block_scales *out,
                             ht_error *err);

#endif
