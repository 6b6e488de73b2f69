/* MLX-quantised weights in safetensors: `X.weight` packs q into 32-bit words, `X.scales` and, for affine groups,
 * `X.biases` are beside it; config.json's `quantization` gives {bits, group_size, mode} and exceptions by module path
 * X. checkpoint/tensor_read.h joins the rows of the three tensors. */
#ifndef HT_CHECKPOINT_MLX_H
#define HT_CHECKPOINT_MLX_H

#include "checkpoint/checkpoint.h"

/* Reads config.json's `quantization` into c->quantization and checks every quantised weight of the text model. */
ht_status ht_mlx_open(ht_checkpoint_files *c, ht_error *err);

/* Turns the location of a packed `X.weight` into that of the joined weight, and of its scales or biases into an empty
 * tensor; other tensors are unchanged. mxfp8 weights become fp8 weights with separate scales. */
void ht_mlx_complete(const ht_checkpoint_files *c, const char *name, ht_stored_tensor *t);

/* Whether config.json describes MLX quantisation. */
bool ht_mlx_describes(const ht_json *root);

#endif
