/* MLX-quantised weights of a safetensors checkpoint: `X.weight` holds numbers packed into words, `X.scales` and, of affine
 * groups, `X.biases` lie beside it, and config.json says what they mean (`quantization`: {bits, group_size, mode}, and
 * under the path X what differs there). Together they are one tensor, whose rows models/tensor_read.h joins. */
#ifndef HT_MODELS_MLX_H
#define HT_MODELS_MLX_H

#include "models/checkpoint.h"

/* Finds what config.json says, keeps it in c->quantization, and checks every quantised weight of the text model. */
ht_status ht_mlx_open(ht_checkpoint_files *c, ht_error *err);

/* Makes of a tensor found in the file, if it is the numbers of a quantised weight, the whole; if it is a part of one, nothing:
 * a tensor of no bytes. Leaves all others as they are. Weights of mxfp8 become 8-bit floats with scales beside them. */
void ht_mlx_complete(const ht_checkpoint_files *c, const char *name, ht_stored_tensor *t);

/* Whether a config.json says that weights are quantised this way. */
bool ht_mlx_describes(const json_t *root);

#endif
