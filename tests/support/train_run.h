/* A few steps of AdamW on one batch, as tests/golden/make_train.py describes them. Failures end the test. */
#ifndef TESTS_SUPPORT_TRAIN_RUN_H
#define TESTS_SUPPORT_TRAIN_RUN_H

#include "formats/json.h"

#include <hearth/train.h>

typedef struct train_run {
    ht_json *document;
    ht_train_batch batch;
    int32_t *rows; /* the batch's arrays */
    int steps;
    double learning_rate, weight_decay, clip;
    const char *pooling; /* of embedders; NULL: a model that predicts tokens */
} train_run;

train_run train_run_open(const char *path);
void train_run_close(train_run *r);

/* A model in this precision, on two threads. */
ht_model *train_run_model(const char *path, ht_precision precision);
/* An adapter of PEFT's files as parameters of this type. */
ht_trainable *train_run_trainable(ht_model *m, const char *path, ht_dtype dtype);

/* The batch's mean loss; its gradients by all parameters, lazy arrays of the scope. */
double train_run_gradients(const train_run *r, const ht_trainable *t, ht_scope *s, bool checkpointing,
                           ht_array **grads);
/* Takes the steps; losses and norms of gradients before each of them and after the last, r->steps + 1 of each. */
void train_run_steps(const train_run *r, ht_trainable *t, ht_stream *stream, bool checkpointing, double *losses,
                     double *norms);

#endif
