/* A very small model with random weights and a byte-level tokenizer, loaded from a GGUF that is written for it. */
#ifndef TESTS_SUPPORT_TINY_MODEL_H
#define TESTS_SUPPORT_TINY_MODEL_H

#include "formats/weight_type.h"

#include <hearth/model.h>

typedef struct tiny_options { /* zero: the default */
    int64_t window;           /* 0: llama, all layers grow; else gemma3, five layers of six slide */
    int64_t context;          /* 4096 */
    ht_weight_type type;      /* HT_W_F32; or HT_W_Q8_0 */
    int n_threads;            /* 2 */
    ht_dtype kv;              /* f16 */
    int32_t nan_token;        /* with HT_W_F32, the token whose embedding is NaN; 0: none */
} tiny_options;

/* Tokens 0 to 255 are the bytes in the order of the GPT-2 alphabet's code points, then come merges, then these. */
enum { TINY_VOCAB = 288, TINY_IM_START = 270, TINY_IM_END = 271, TINY_EOS = 272 };

/* Writes the file; the scratch directory must exist. Returns its path, valid as scratch_path says. */
const char *tiny_write(const tiny_options *o);
/* Writes and loads; fails the test when that fails. */
ht_model *tiny_load(const tiny_options *o);
/* n ids without pattern, none of them special. */
void tiny_ids(int32_t *ids, int n, uint64_t seed);

#endif
