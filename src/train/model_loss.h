/* Cross-entropy of a model on a batch as a differentiable function of an adapter's arrays. */
#ifndef HT_TRAIN_MODEL_LOSS_H
#define HT_TRAIN_MODEL_LOSS_H

#include "models/model.h"

#include <hearth/train.h>

/* HT_ERR_ARGUMENT when no row is learned, or an id is outside the vocabulary. */
ht_status ht_model_loss_check(const ht_model *m, const ht_train_batch *batch, ht_error *err);

/* -log p(target) of every learned row of the batch, in order, f32 [n_learned]; with `checkpointing`, layers are computed again
 * for the gradient. The batch is copied. NULL on failure. */
ht_array *ht_model_loss_rows(ht_scope *s, const ht_model *m, const ht_train_batch *batch, const ht_adapters *adapters,
                             bool checkpointing);

/* The sum of the losses, f32 [], and its gradients by every pair's A and B: grad[2 i] and grad[2 i + 1], in their dtypes. False
 * on failure. */
bool ht_model_loss_gradients(ht_scope *s, const ht_model *m, const ht_train_batch *batch, const ht_adapters *adapters,
                             bool checkpointing, ht_array **sum, ht_array **grad);

#endif
