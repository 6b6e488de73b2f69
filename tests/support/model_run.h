/* Runs a loaded model's plan over ids with caches of its own, below sessions: what the tests of models stand on. */
#ifndef TESTS_SUPPORT_MODEL_RUN_H
#define TESTS_SUPPORT_MODEL_RUN_H

#include "models/model.h"

typedef struct model_run {
    const ht_model *model;
    ht_exec *exec;
    ht_cache cache;
    int64_t capacity;        /* positions */
    int32_t chunk, rows;     /* of one sequence in a step, of all */
    const ht_lora_set *lora; /* adapters of an eager run; NULL: none */
    bool eager;              /* evaluate the forward function at every step instead of running the plan */
} model_run;

/* For `capacity` positions, or fewer without longrope, fed at most `chunk` at a time. Failures end the test. */
model_run model_run_open(const ht_model *m, int64_t capacity, int32_t chunk);
void model_run_close(model_run *r);

/* Appends n ids and writes the logits after each, [n, vocab]. */
void model_run_feed(model_run *r, const int32_t *ids, int64_t n, float *logits);
/* The same for two runs of one model and chunk side by side: every step holds rows of both until the shorter one ends. */
void model_run_feed_two(model_run *const runs[2], const int32_t *const ids[2], const int64_t n[2],
                        float *const logits[2]);

#endif
