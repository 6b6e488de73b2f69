/* Quantisation schemes: which tensors of a checkpoint together store a weight. Every checkpoint has one, chosen when it
 * is opened: by its container, by config.json, or by the types of its tensors. */
#ifndef HT_CHECKPOINT_SCHEME_H
#define HT_CHECKPOINT_SCHEME_H

#include "checkpoint/checkpoint.h"
#include "formats/json.h"

/* The matrices whose products have factors. */
typedef struct ht_product_scales {
    const char *name;    /* of the tensor */
    int64_t n;           /* matrices in it */
    int share, n_shares; /* the tensor may hold the rows of n_shares weights; this one's number */
} ht_product_scales;

/* Functions may be NULL if the scheme does not need them. */
typedef struct ht_scheme {
    /* Turns the locations of quantised weights' elements into those of the joined weights, and of their scales into
     * empty tensors. Fails for a broken weight of the text model. */
    ht_status (*join)(ht_checkpoint_files *c, ht_error *err);
    /* The tensor with the elements of "X.weight" where no tensor has that name; NULL when absent. */
    const ht_safetensor *(*elements)(const ht_checkpoint_files *c, const char *name);
    /* Reads one factor for each of of->n matrices. *found is false, and `out` unspecified, without any; *number is the
     * tensor that they are in, unless that belongs to no weight. */
    ht_status (*product_scales)(const ht_checkpoint_files *c, const ht_product_scales *of, float *out, bool *found,
                                size_t *number, ht_error *err);
    bool has_scales; /* scales are separate tensors */
} ht_scheme;

/* Sets c->scheme, c->quantized and c->quantization; `config`: config.json of a directory. */
void ht_scheme_choose(ht_checkpoint_files *c, const ht_json *config);
/* Whether `t` is a scale (of weights or activations) or bias of a quantised weight; *of is the weight. */
bool ht_scheme_owner(const ht_checkpoint_files *c, const ht_stored_tensor *t, ht_stored_tensor *of);

/* Reads `quantization_config` from the root of config.json; an unsupported method is an error of the reader. */
ht_quantized ht_quantized_read(ht_json_reader *r, const ht_json *root);

/* Empties the location of a tensor whose values are part of a joined weight. */
void ht_scheme_absorb(ht_stored_tensor *t);

/* ---- MLX (mlx.c): `X.weight` packs q into 32-bit words, `X.scales` and, for affine groups, `X.biases` hold the parameters of its
 * groups; config.json's `quantization` gives {bits, group_size, mode} and exceptions by module path X. mxfp8 weights become fp8
 * weights with separate scales. ---- */

/* The `quantization` of config.json; NULL: none. Lent. */
const ht_json *ht_mlx_description(const ht_json *root);
ht_status ht_mlx_join(ht_checkpoint_files *c, ht_error *err);

/* ---- NVFP4 of ModelOpt and compressed-tensors (scaled_weights.c): two 4-bit q per byte, an fp8 scale per 16 columns, one f32 global scale.
 *
 *   ModelOpt            X.weight         X.weight_scale   X.weight_scale_2
 *   compressed-tensors  X.weight_packed  X.weight_scale   X.weight_global_scale (a divisor)
 *   ModelOpt, stacked   X                X_weight_scale   X_weight_scale_2, [experts, rows, columns] ---- */

ht_status ht_nvfp4_join(ht_checkpoint_files *c, ht_error *err);
/* ht_scheme.elements: "X.weight_packed". */
const ht_safetensor *ht_nvfp4_numbers(const ht_checkpoint_files *c, const char *name);
/* ht_scheme.product_scales: the global scales as multipliers. A tensor with the rows of several weights may have one
 * for each matrix and share. */
ht_status ht_nvfp4_product_scales(const ht_checkpoint_files *c, const ht_product_scales *of, float *out, bool *found,
                                  size_t *number, ht_error *err);

/* ---- MXFP4 of gpt-oss (scaled_weights.c): X_blocks [..., columns / 32, 16] holds two 4-bit q per byte, X_scales [..., columns / 32] an
 * e8m0 scale per 32 columns. ---- */

ht_status ht_mxfp4_join(ht_checkpoint_files *c, ht_error *err);
/* ht_scheme.elements: "X_blocks". */
const ht_safetensor *ht_mxfp4_blocks(const ht_checkpoint_files *c, const char *name);

/* ---- fp8 (scaled_weights.c): multipliers in `x.weight_scale_inv`, `x.weight_scale` or `x.scales`, one per matrix, per row, or per
 * block, as in `transformers` ---- */

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
