/* MLX-quantised weights in safetensors: `X.weight` packs q into 32-bit words, `X.scales` and, for affine groups,
 * `X.biases` hold the parameters of its groups; config.json's `quantization` gives {bits, group_size, mode} and exceptions by module path
 * X. checkpoint/tensor_read.h joins the rows of the three tensors. */
#ifndef HT_CHECKPOINT_MLX_H
#define HT_CHECKPOINT_MLX_H

#include "checkpoint/checkpoint.h"

/* The `quantization` of config.json; NULL: none. Lent. */
const ht_json *ht_mlx_description(const ht_json *root);

/* Checks every quantised weight of the text model. */
ht_status ht_mlx_check(const ht_checkpoint_files *c, ht_error *err);
/* Turns the location of a packed `X.weight` into that of the joined weight, and of its scales or biases into an empty
 * tensor; other tensors are unchanged. mxfp8 weights become fp8 weights with separate scales. */
void ht_mlx_complete(const ht_checkpoint_files *c, const ht_safetensor *s, ht_stored_tensor *t);

#endif
