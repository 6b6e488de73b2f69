/* Batches: the samples of each training step, and their rows. They depend only on data, options and step, so
 * training can resume at any step. A shuffled epoch permutes its samples, sorts them by length within windows of 16
 * batches, and shuffles the batches of each window. Every sample occurs once per epoch. */
#ifndef HT_TRAIN_BATCHES_H
#define HT_TRAIN_BATCHES_H

#include "train/data.h"

typedef struct ht_batches_options {
    int32_t batch; /* sequences of a batch, 1 or more */
    /* Fills `batch` sequences of max_length tokens with samples: if shuffled, by first-fit decreasing within a
     * window; in file order, until one does not fit. */
    bool pack;
    /* False: file order. Batch i has samples i * batch to (i + 1) * batch - 1, wrapping around at the end. */
    bool shuffle;
    /* In file order without packing: the last batch is short instead of wrapping, so every sample occurs once. */
    bool once;
    double temperature; /* of the batches of pairs */
    uint64_t seed;
} ht_batches_options;

/* One thread at a time. */
typedef struct ht_batches ht_batches;

/* The data must outlive *out, which the caller frees. HT_ERR_LIMIT when a batch may have more than 2^31 - 1 tokens. */
ht_status ht_batches_new(const ht_data *data, const ht_batches_options *options, ht_batches **out, ht_error *err);
void ht_batches_free(ht_batches *b); /* NULL is fine */

/* The steps of the first epoch; packed and shuffled, others may have a few more or fewer. */
int64_t ht_batches_per_epoch(const ht_batches *b);
/* The batch of a step, from 0, in memory that is lent until the next call and grows to that of the largest batch. */
ht_status ht_batches_get(ht_batches *b, int64_t step, ht_train_batch *out, ht_error *err);
/* Samples of the last batch; the line of the file from which the i-th came, from 1. */
int32_t ht_batches_samples(const ht_batches *b);
int64_t ht_batches_line(const ht_batches *b, int32_t i);

#endif
