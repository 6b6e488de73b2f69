/* An adapter in training: A and B of every chosen projection, as arrays in a fixed order. */
#ifndef HT_TRAIN_TRAINABLE_H
#define HT_TRAIN_TRAINABLE_H

#include "models/adapter.h"
#include "models/forward.h"

#include <hearth/train.h>

struct ht_trainable {
    ht_model *m;
    int n;
    ht_adapter_pair *pair; /* [n], sorted by slot; their arrays are evaluated, retained, and of one dtype */
    ht_array **exact;      /* [2 n] f32 master parameters, evaluated and retained; NULL: the pairs are the parameters */
    char **name;           /* [2 n] */
    char *base;            /* base model that adapters name; NULL: none */
    float dropout;
    int64_t n_parameters;
};

/* Keeps f32 master parameters from now on; the pairs are their rounded copies. Steps below the rounding error of the
 * pairs' dtype then accumulate. No effect if that dtype is f32. */
ht_status ht_trainable_keep_exact(ht_trainable *t, ht_error *err);
/* Copies the options, or the defaults for NULL. */
ht_status ht_trainable_options(const ht_lora_options *given, ht_lora_options *out, ht_error *err);
/* The pairs, with dropout drawn from `key` (HT_NONE: no dropout); lent. */
ht_adapters ht_trainable_adapters(const ht_trainable *t, ht_array *key);
/* Writes the 2 n parameters in the order that optimisers expect. */
void ht_trainable_list(const ht_trainable *t, ht_array **out);

/* ---- the loss of a model on a batch ---- */

/* Fails as ht_trainable_gradients does. */
ht_status ht_model_loss_check(const ht_model *m, const ht_train_batch *batch, ht_error *err);

/* -log p(target) of every learned row of the batch, or the loss of every anchor, in order, f32 [n_learned]; with
 * `checkpointing`, layers are computed again for the gradient. The batch is copied. NULL on failure. */
ht_array *ht_model_loss_rows(ht_scope *s, const ht_model *m, const ht_train_batch *batch, const ht_adapters *adapters,
                             bool checkpointing);

/* The pooled vectors of all sequences, of length 1, f32 [n_seq, hidden]. */
ht_array *ht_model_vectors(ht_scope *s, const ht_model *m, const ht_train_batch *batch, const ht_adapters *adapters,
                           bool checkpointing);

/* The sum of the losses, f32 [], and gradients of every pair's A and B, grad[2 i] and grad[2 i + 1]; false: failed. */
bool ht_model_loss_gradients(ht_scope *s, const ht_model *m, const ht_train_batch *batch, const ht_adapters *adapters,
                             bool checkpointing, ht_array **sum, ht_array **grad);

#endif
