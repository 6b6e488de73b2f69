/* Data sets: the samples of a JSONL file, every line read and rendered once, before training begins. Samples stay in memory, 5 bytes a
 * token. */
#ifndef HT_TRAIN_DATA_H
#define HT_TRAIN_DATA_H

#include "train/sample.h"

#include <hearth/cancel.h>

enum { HT_DATA_LENGTH_DEFAULT = 2048 };

typedef struct ht_data_options {
    ht_mask mask;
    ht_long_samples long_samples;
    int64_t max_length;      /* tokens of a sample; 0: 2048; at most the model's context, which goes before it */
    bool skip_bad;           /* lines that are no sample are left out, else they end ht_data_open */
    int64_t time;            /* as in ht_sample_options; 0: when the data is opened */
    const ht_cancel *cancel; /* of ht_data_open; NULL: none */
    void (*progress)(double done, void *user); /* of ht_data_open, now and then, with the share done; NULL: none */
    void *user;
} ht_data_options;

/* Immutable; may be shared between threads. */
typedef struct ht_data ht_data;

/* Reads every line of the file. The data holds the model; the caller frees *out. A line that is no sample (unless skip_bad)
 * is an error that names file, line and reason; so is a file of which no sample is left, with what became of them. */
ht_status ht_data_open(ht_model *m, const char *path, const ht_data_options *options, ht_data **out, ht_error *err);
void ht_data_free(ht_data *d); /* NULL is fine */

const ht_data_report *ht_data_get_report(const ht_data *d); /* lent */
int64_t ht_data_length(const ht_data *d);                   /* samples, at least one */
/* The i-th sample in the order of the file, of 2 ids or more; lent. */
const ht_sample *ht_data_sample(const ht_data *d, int64_t i);
int64_t ht_data_line(const ht_data *d, int64_t i); /* where it is in the file, from 1 */

#endif
