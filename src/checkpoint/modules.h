/* Modules after the transformer, for embeddings and reranking: dense layers, classifiers; and prompts.
 *
 * Directories state it in files of sentence-transformers (modules.json), GGUF files in metadata and in the tensors
 * `dense_2`, `dense_3`, `cls` and `cls.output`. Small weights, as f32 in host memory. */
#ifndef HT_CHECKPOINT_MODULES_H
#define HT_CHECKPOINT_MODULES_H

#include "checkpoint/checkpoint.h"

typedef enum ht_dense_activation {
    HT_DENSE_IDENTITY,
    HT_DENSE_TANH,
    HT_DENSE_SIGMOID,
    HT_DENSE_RELU,
    HT_DENSE_GELU
} ht_dense_activation;

/* A linear layer and an activation, applied to single vectors. */
typedef struct ht_dense {
    int64_t n_in, n_out;
    float *weight; /* [n_in, n_out], transposed, so that the loop over outputs is the inner one */
    float *bias;   /* [n_out]; NULL: none */
    ht_dense_activation activation;
} ht_dense;

enum { HT_DENSE_MOST = 4 };
typedef struct ht_dense_stack {
    int n;
    ht_dense layer[HT_DENSE_MOST];
} ht_dense_stack;

typedef struct ht_named_prompt {
    char *name, *text;
} ht_named_prompt;

typedef struct ht_modules {
    /* Embeddings. */
    char unsupported[64];    /* a module that they need and that is not supported; "": none */
    bool skips_prompt;       /* pooling leaves out the tokens of the prompt */
    int64_t max_tokens;      /* of a text that is truncated; 0: the context */
    bool lowercase;          /* texts are tokenized in lower case */
    ht_dense_stack dense;    /* after pooling */
    ht_named_prompt *prompt; /* [n_prompts] */
    size_t n_prompts;
    const char *default_prompt; /* the name of one of them; NULL: none */
    /* Reranking. */
    bool is_reranker;            /* by its name or its files */
    bool yes_and_no;             /* the classifier's outputs are those of "yes" and "no" */
    ht_dense_stack classifier;   /* from the pooled state to one logit, or to those of "yes" and "no" */
    char *rerank_prompt;         /* of GGUF, with {query} and {document}; NULL: none */
    int64_t yes_token, no_token; /* whose logits make the score; -1: not stated */
} ht_modules;

/* Reads and checks all of it. HT_ERR_FORMAT for damaged files and for shapes that do not fit. The caller frees *out,
 * also on failure. */
ht_status ht_modules_read(const ht_checkpoint_files *c, const ht_config *config, ht_modules *out, ht_error *err);
void ht_modules_free(ht_modules *m);
/* The pooling of a directory, a name of ht_config.pooling: "several" if it combines more than one, "" without. */
ht_status ht_modules_pooling(const ht_checkpoint_files *c, const char **out, ht_error *err);
/* The names of the outputs of a GGUF file's classifier, an array of strings; NULL: none. */
const ht_gguf_value *ht_modules_labels(const ht_checkpoint_files *c);
/* Field i of 1_Pooling/config.json for a pooling, whose name in ht_config.pooling is *name; NULL after the last. */
const char *ht_modules_pooling_field(size_t i, const char **name);
/* Whether the tensor of a GGUF file belongs to these modules. */
bool ht_modules_has(const ht_config *config, const char *name);

#endif
