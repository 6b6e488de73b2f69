/* Checkpoints that tests have made of others: their logits and their tensors, compared with those of what they were made of. */
#ifndef TESTS_SUPPORT_CHECKPOINTS_H
#define TESTS_SUPPORT_CHECKPOINTS_H

#include "checkpoint/checkpoint.h"
#include "device/device.h"

#include <hearth/model.h>

/* tests/golden/tiny/NAME, valid until the 16th call after this one. */
const char *tiny_checkpoint(const char *name);
/* Fails unless the error is the one of a checkpoint that the other container has no words for. */
void checkpoint_may_refuse(const char *path, const ht_error *err);
/* Calls fn for all of tests/golden/tiny, GGUF files and directories, by their names. */
void tiny_checkpoints_each(void (*fn)(const char *name, bool is_file, void *user), void *user);
/* Whether a list of names, separated by commas, has the name, or its beginning up to `-` or `.`. */
bool checkpoint_is_listed(const char *list, const char *name);
/* The same for tests/golden/families, by their paths; HEARTH_TEST_FAMILIES selects some. */
void family_checkpoints_each(void (*fn)(const char *path, bool is_file, void *user), void *user);
/* Loads tests/golden/tiny/NAME on a CPU device of so many threads; NULL: the defaults. A failure ends the test. */
ht_model *tiny_checkpoint_load(const char *name, int n_threads, const ht_model_options *o);
/* n ids of the model's vocabulary; the caller frees them. */
int32_t *checkpoint_ids(const ht_model *m, int n, int salt);
/* Opens the files; a failure ends the test, as in all that follows. */
ht_checkpoint_files *checkpoint_files(const char *path);
/* The name of the type of tensor `name`, "BF16". */
const char *checkpoint_type(const char *path, const char *name);
/* The bytes of a directory's tensor as they are in its file; the caller frees them. */
unsigned char *checkpoint_bytes(const ht_checkpoint_files *c, const ht_safetensor *t);
/* Fails unless both directories have the same tensors: names, types, shapes and bytes. */
void checkpoints_same_tensors(const char *a, const char *b);

/* ---- logits ---- */

typedef struct checkpoint_logits {
    float *value; /* [n], from malloc */
    int64_t n;
} checkpoint_logits;

/* Of some ids at the precision `reference`, with a cache in f32. */
checkpoint_logits checkpoint_logits_of(const char *path, ht_device *device);
/* most: of the largest difference, in shares of the largest logit; 0: the same bits. `name` is for messages. */
void checkpoint_same_logits(const char *name, const checkpoint_logits *a, const checkpoint_logits *b, double most);

/* Both, of two checkpoints. */
void checkpoints_same_logits(const char *a, const char *b, ht_device *device, double most);

#endif
