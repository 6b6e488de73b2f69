/* Tensors of a checkpoint that loading does not use: an error where they would change the results, else one log line. */
#ifndef HT_CHECKPOINT_UNUSED_TENSORS_H
#define HT_CHECKPOINT_UNUSED_TENSORS_H

#include "checkpoint/checkpoint.h"

/* used: [n_tensors], in the order of ht_checkpoint_tensor_at. HT_ERR_UNSUPPORTED, naming it, for a tensor of the text model
 * that the family does not have: the model computes something that Hearth does not. `notes`: log the others. */
ht_status ht_unused_tensors_check(const ht_checkpoint_files *c, const ht_config *config, const bool *used, bool notes,
                                  ht_error *err);

#endif
