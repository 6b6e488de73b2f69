/* Unused tensors of a checkpoint: one log line, never an error. */
#ifndef HT_MODELS_UNUSED_TENSORS_H
#define HT_MODELS_UNUSED_TENSORS_H

#include "models/checkpoint.h"

/* used: [n_tensors], in the order of ht_checkpoint_tensor_at. */
void ht_unused_tensors_note(const ht_checkpoint_files *c, const bool *used);

#endif
