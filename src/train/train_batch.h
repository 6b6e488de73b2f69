/* Training batches: the rows of one step, flat and ragged, with what each is to predict. */
#ifndef HT_TRAIN_TRAIN_BATCH_H
#define HT_TRAIN_TRAIN_BATCH_H

#include <stdint.h>

/* Sequences lie end to end without padding and do not see one another: rows seq_start[s] to seq_start[s + 1] - 1 are those of
 * sequence s, one fewer than it has ids. All arrays are lent. */
typedef struct ht_train_batch {
    int32_t n_tok, n_seq;
    const int32_t *id;        /* [n_tok] what the row reads */
    const int32_t *pos;       /* [n_tok] from 0 in each sequence */
    const int32_t *seq_start; /* [n_seq + 1] */
    const int32_t *target;    /* [n_tok] the id that follows; -1: not learned */
    int64_t n_learned;        /* targets that are learned */
} ht_train_batch;

#endif
