/* Contrastive training of embeddings: pooling, the loss of a batch of pairs, and retrieval of held-out texts. */
#ifndef HT_TRAIN_CONTRAST_H
#define HT_TRAIN_CONTRAST_H

#include <hearth/train.h>

/* HT_ERR_UNSUPPORTED, with the poolings that are, for a model whose vectors cannot be trained. */
ht_status ht_contrast_check_model(const ht_model *m, ht_error *err);
/* Checks a batch with anchors as ht_trainable_gradients does. */
ht_status ht_contrast_check(const ht_model *m, const ht_train_batch *batch, ht_error *err);

/* Marks the rows that pooling reads by a target of 0, others by -1; returns how many there are. */
int64_t ht_contrast_rows(const ht_model *m, const ht_train_batch *batch, int32_t *target);
/* The states of these rows, f32 [n, hidden], pooled and scaled to length 1: [n_seq, hidden]. */
ht_array *ht_contrast_vectors(ht_scope *s, const ht_model *m, const ht_train_batch *batch, ht_array *states);

/* The loss of each anchor, f32 [n_anchors], from the vectors of all texts, f32 [n_seq, hidden]. */
ht_array *ht_contrast_losses(ht_scope *s, const ht_train_batch *batch, ht_array *vectors);

/* ---- retrieval ---- */

/* Texts of several batches with their vectors. */
typedef struct ht_held_out ht_held_out;
ht_status ht_held_out_new(ht_held_out **out, ht_error *err);
void ht_held_out_free(ht_held_out *r); /* NULL is fine */
/* Adds the texts of a batch with their vectors, f32 [n_seq, hidden] on the host. */
ht_status ht_held_out_add(ht_held_out *r, const ht_train_batch *batch, const float *vectors, int64_t hidden,
                          ht_error *err);
/* Ranks all candidates for each anchor. */
ht_status ht_held_out_measure(const ht_held_out *r, ht_stream *stream, ht_retrieval *out, ht_error *err);

#endif
