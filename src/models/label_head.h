/* Classification head of a text encoder, for rerankers and classifiers. */
#ifndef HT_MODELS_LABEL_HEAD_H
#define HT_MODELS_LABEL_HEAD_H

#include "models/model.h"

/* HT_ERR_UNSUPPORTED for a model without such a head (ht_config.n_labels is 0). */
ht_status ht_label_head_need(const ht_model *m, ht_error *err);
/* False without the head's first matrix. Some GGUF files of BERT lack it, the pooler: their scores are not those of the
 * original model. */
bool ht_label_head_is_whole(const ht_model *m);
/* Scores [n, n_labels] of n texts before any softmax or sigmoid, from their pooled hidden states [n, hidden]: the first
 * token's, or the mean over all tokens with ht_config.label_mean. A text's bits do not depend on the others.
 * Thread-safe. */
ht_status ht_label_head_scores(const ht_model *m, const float *pooled, int64_t n, float *scores, ht_error *err);

#endif
