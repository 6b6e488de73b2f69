/* Trainer: an adapter, its optimiser, data and step count; shared by the files that step, save and resume. */
#ifndef HT_TRAIN_TRAINER_H
#define HT_TRAIN_TRAINER_H

#include "train/batches.h"
#include "train/trainable.h"

enum { HT_TRAIN_MOST_FAILURES = 5 }; /* steps in a row that are not finite */

/* A file's samples and their order; NULL in both: none. */
typedef struct ht_train_source {
    ht_data *data;
    ht_batches *batches;
} ht_train_source;

struct ht_trainer {
    ht_model *m;
    ht_trainer_options o; /* lent pointers are NULL: */
    double dropout;
    ht_dtype dtype;
    char model[HT_FINGERPRINT_SIZE], template[HT_FINGERPRINT_SIZE]; /* of the base model */
    char *data_path, *valid_path;
    ht_trainable *trainable;
    ht_optimizer *optimizer;
    ht_train_source train, valid;
    ht_schedule schedule;
    int64_t iters, per_epoch; /* steps in all, and of an epoch */
    int64_t held_out_batches;
    ht_retrieval retrieval; /* of the last evaluation of HT_METHOD_EMBED */
    int64_t iter;           /* steps done */
    int64_t skipped, skipped_in_a_row;
    int32_t last_n_samples; /* of the last batch */
    bool checkpointing;
    size_t step_bytes;     /* forecast of what a step allocates at its peak */
    size_t peak_bytes;     /* forecast of the process's memory at its peak */
    int64_t time;          /* passed to templates, seconds since 1970 */
    size_t reserved_bytes; /* of freed memory kept for steps */
};

/* Sets the time that templates see; re-reads the data where the template writes dates. Unchanged on failure. */
ht_status ht_trainer_set_time(ht_trainer *t, int64_t time, ht_error *err);

/* optimizer.c: the options with defaults filled in, as in checkpoints. Lent as long as the optimiser lives. */
const ht_optimizer_options *ht_optimizer_get_options(const ht_optimizer *o);

#endif
