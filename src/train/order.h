/* The order of an epoch: its samples, batch after batch, drawn from a seed and the number of the epoch. */
#ifndef HT_TRAIN_ORDER_H
#define HT_TRAIN_ORDER_H

#include "train/batches.h"

typedef struct ht_order {
    int64_t n, n_batches;
    uint32_t *sample; /* [n] */
    uint32_t *start;  /* [n_batches + 1] where each batch begins in `sample` */
} ht_order;

/* Batches of an epoch without packing: those of n samples. */
int64_t ht_order_batches(int64_t n, int32_t batch);
/* Not for the file's order without packing, which knows no epochs. *out is freed by ht_order_free. */
ht_status ht_order_make(const ht_data *data, const ht_batches_options *options, int64_t epoch, ht_order *out,
                        ht_error *err);
void ht_order_free(ht_order *o); /* and clears it */

#endif
