/* Cross-entropy of a model on a batch as a differentiable function of an adapter's arrays. */
#ifndef HT_TRAIN_MODEL_LOSS_H
#define HT_TRAIN_MODEL_LOSS_H

#include "models/model.h"
#include "train/train_batch.h"

typedef struct ht_model_loss ht_model_loss;

/* Prepares the pass of a batch, which outlives it. HT_ERR_ARGUMENT when no row is learned or an id is outside the
 * vocabulary. The caller frees *out after the scopes of its losses. */
ht_status ht_model_loss_new(const ht_model *m, const ht_train_batch *batch, ht_model_loss **out, ht_error *err);
void ht_model_loss_free(ht_model_loss *l); /* NULL is fine */

/* -log p(target) of every learned row of the batch, in order, f32 [n_learned]; with `checkpointing`, layers are computed again
 * for the gradient. NULL on failure. */
ht_array *ht_model_loss_rows(ht_scope *s, ht_model_loss *l, const ht_adapters *adapters, bool checkpointing);

/* The sum of the losses, f32 [], and its gradients by every pair's A and B: grad[2 i] and grad[2 i + 1], in their dtypes. False
 * on failure. */
bool ht_model_loss_gradients(ht_scope *s, ht_model_loss *l, const ht_adapters *adapters, bool checkpointing,
                             ht_array **sum, ht_array **grad);

#endif
