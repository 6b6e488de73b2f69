/* NVFP4 weights in safetensors by ModelOpt and compressed-tensors: two 4-bit q per byte, an fp8 scale per 16 columns,
 * one f32 global scale.
 *
 *   ModelOpt            X.weight         X.weight_scale   X.weight_scale_2
 *   compressed-tensors  X.weight_packed  X.weight_scale   X.weight_global_scale (a divisor)
 *   ModelOpt, stacked   X                X_weight_scale   X_weight_scale_2, [experts, rows, columns]
 *
 * tensor_read.h joins q and fp8 scales. MLX's NVFP4: checkpoint/mlx.h. */
#ifndef HT_CHECKPOINT_NVFP4_H
#define HT_CHECKPOINT_NVFP4_H

#include "checkpoint/checkpoint.h"

/* Checks every NVFP4 weight of the text model. */
ht_status ht_nvfp4_check(const ht_checkpoint_files *c, ht_error *err);

/* The q tensor of weight "X.weight" under another name ("X.weight_packed"), or NULL. */
const ht_safetensor *ht_nvfp4_numbers(const ht_checkpoint_files *c, const char *name);
/* Like ht_mlx_complete: turns the location of q into that of the joined weight, and of its scales into an empty
 * tensor. */
void ht_nvfp4_complete(const ht_checkpoint_files *c, const ht_safetensor *s, ht_stored_tensor *t);
/* Reads the global scales of weight `name` as multipliers, one for each of its n matrices. A tensor with the rows of
 * n_shares weights may have one per matrix and share: then that of `share`. *found is false when there is none. */
ht_status ht_nvfp4_whole_scales(const ht_checkpoint_files *c, const char *name, int64_t n, int share, int n_shares,
                                float *out, bool *found, ht_error *err);

#endif
