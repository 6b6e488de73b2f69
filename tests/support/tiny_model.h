/* A very small model with random weights and a byte-level tokenizer, loaded from a GGUF that is written for it. */
#ifndef TESTS_SUPPORT_TINY_MODEL_H
#define TESTS_SUPPORT_TINY_MODEL_H

#include "formats/weight_type.h"

#include <hearth/grammar.h>
#include <hearth/session.h>

typedef struct tiny_options {   /* zero: the default */
    int64_t window;             /* 0: llama, all layers grow; else gemma3, five layers of six slide */
    bool chunked;               /* the windows restart at every multiple of `window`; set after loading */
    int64_t context;            /* 4096 */
    ht_weight_type type;        /* HT_W_F32; or HT_W_Q8_0 */
    int n_threads;              /* 2 */
    const char *device;         /* "cpu" */
    ht_dtype kv;                /* f16 */
    bool reference;             /* in reference precision */
    const char *chat_template;  /* none: it is chatml by its tokens */
    const char *const *special; /* NULL-terminated, tokens from TINY_MORE on that are special; and behind them */
    const char *const *words;   /* tokens of so much text, at most TINY_MORE_MOST in all */
    bool unsettled;             /* without sampling values; else it takes the most likely token */
    int64_t short_length;       /* longest sequence with longrope's divisors for short ones; 0: no longrope */
    bool latent;                /* deepseek2, without experts: the cache holds keys alone */
    bool recurrent;             /* lfm2: short convolutions in two layers of three */
    const char *pooling;        /* none; "mean", "cls", "last", "rank" */
    bool dense;                 /* dense_2 [48, 64] and dense_3 [40, 48] */
    int classifier;             /* outputs of cls.output: 1, or 2 with the labels "yes" and "no"; 0: none */
    const char *rerank_prompt;  /* none; with {query} and {document} */
    int32_t nan_token;          /* with HT_W_F32, the token whose embedding is NaN; 0: none */
} tiny_options;

/* Tokens 0 to 255 are the bytes in the order of the GPT-2 alphabet's code points, then come merges, then these. */
enum { TINY_VOCAB = 288, TINY_IM_START = 270, TINY_IM_END = 271, TINY_EOS = 272, TINY_MORE = 273, TINY_MORE_MOST = 15 };

/* Writes the file; the scratch directory must exist. Returns its path, valid as scratch_path says. */
const char *tiny_write(const tiny_options *o);
/* Writes and loads; fails the test when that fails. */
ht_model *tiny_load(const tiny_options *o);
/* Teardown of a group whose setup made the scratch directory and set *state to the model. */
int tiny_teardown(void **state);
/* n ids without pattern, none of them special. */
void tiny_ids(int32_t *ids, int n, uint64_t seed);

/* A session with prefill steps of at most chunk rows; what follows fails the test when it fails. */
ht_session *tiny_session(ht_model *m, int32_t chunk);
/* A grammar that the caller frees. */
ht_grammar *tiny_regex(ht_model *m, const char *pattern);
/* Zeros for the logits of n positions, [n, TINY_VOCAB]; the caller frees them. */
float *tiny_rows(int n);
/* An ht_logits_fn that copies rows to their positions in the array of tiny_rows that user is. */
bool tiny_copy_rows(const float *logits, int64_t first, int64_t n_rows, int32_t vocab, void *user);
/* Appends n ids; the logits after all of them, or after the last, go to rows unless it is NULL. */
void tiny_forward(ht_session *s, const int32_t *ids, size_t n, bool all, float *rows);

#endif
