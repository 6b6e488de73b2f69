/* NVFP4 weights of safetensors as ModelOpt and compressed-tensors write them: two numbers of 4 bits to a byte, an fp8
 * scale for every 16 columns, and one for the whole tensor. ModelOpt calls them `X.weight`, `X.weight_scale` and
 * `X.weight_scale_2`; compressed-tensors `X.weight_packed`, `X.weight_scale` and `X.weight_global_scale`, by which is
 * divided. Experts may lie in one tensor, [experts, rows, columns], for which ModelOpt leaves `.weight` out: `X`,
 * `X_weight_scale`, `X_weight_scale_2`. (MLX's are models/mlx.h's.) The first two are one tensor, whose rows
 * models/tensor_read.h joins. */
#ifndef HT_MODELS_NVFP4_H
#define HT_MODELS_NVFP4_H

#include "models/checkpoint.h"

/* Checks every such weight of the text model. */
ht_status ht_nvfp4_open(const ht_checkpoint_files *c, ht_error *err);

/* The tensor with the numbers of the weight "X.weight" where it is not called so; or NULL. */
const ht_safetensor *ht_nvfp4_numbers(const ht_checkpoint_files *c, const char *name);
/* As ht_mlx_complete: makes of the numbers the whole, and of their scales nothing. */
void ht_nvfp4_complete(const ht_checkpoint_files *c, const char *name, ht_stored_tensor *t);
/* What products with the weight `name` are multiplied by: n numbers, one for each of its n matrices. A tensor whose rows
 * are those of several weights may have a number for each: n_shares of them, of which `share` is asked for. *found is
 * false when there is nothing to multiply by. */
ht_status ht_nvfp4_whole_scales(const ht_checkpoint_files *c, const char *name, int64_t n, int share, int n_shares,
                                float *out, bool *found, ht_error *err);

#endif
