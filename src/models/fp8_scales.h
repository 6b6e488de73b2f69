/* Scales of fp8 weights, which lie beside them as tensors of their own: `x.weight_scale_inv`, `x.weight_scale` or
 * `x.scales`, by which a weight is multiplied. One for the whole matrix, one per row, or one per block of the size that
 * config.json states (models/quantized.h), as `transformers` reads them. */
#ifndef HT_MODELS_FP8_SCALES_H
#define HT_MODELS_FP8_SCALES_H

#include "device/matrix.h"
#include "models/checkpoint.h"

typedef struct ht_fp8_scales {
    bool any;
    ht_stored_tensor stored;
    int64_t rows, columns; /* that share one */
    int64_t per_row;       /* of them beside each other */
    int64_t n_matrices;    /* 1, or several of one shape one after another */
    int64_t n_rows;        /* of each */
} ht_fp8_scales;

/* Those of the tensor `name`, [rows, columns] of an 8-bit float, or [n_matrices, rows, columns] when that is not 0; an error
 * when they are of another shape, or missing where config.json says that there are some. */
ht_status ht_fp8_scales_find(const ht_checkpoint_files *c, const char *name, int64_t n_matrices, int64_t rows,
                             int64_t columns, ht_fp8_scales *out, ht_error *err);
/* Whether `t` is no weight but a scale, of one in 8-bit floats or NVFP4 or of what meets it: then *of is that weight. */
bool ht_fp8_scales_belong(const ht_checkpoint_files *c, const ht_stored_tensor *t, ht_stored_tensor *of);
/* Reads those of matrix `index` from row `row` on into m. */
ht_status ht_fp8_scales_read(const ht_fp8_scales *s, int64_t index, int64_t row, ht_matrix *m, ht_error *err);

#endif
