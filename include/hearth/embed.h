/* Embeddings: texts as vectors, pooled from the hidden states of a model after its final norm.
 *
 * Texts share steps, as many as fit in each, without padding, concurrently with other work on the model. Each gets
 * the bits that it gets alone. */
#ifndef HEARTH_EMBED_H
#define HEARTH_EMBED_H

#include <hearth/adapter.h>
#include <hearth/cancel.h>

#ifdef __cplusplus
extern "C" {
#endif

/* How the hidden states [tokens, hidden] become a text's vector. HT_POOLING_MODEL is the checkpoint's setting:
 * `pooling_type` of a GGUF file, the Pooling module of a directory; without one, HT_POOLING_MEAN of a text encoder and
 * HT_POOLING_LAST of other models. */
typedef enum ht_pooling {
    HT_POOLING_LAST, /* the state of the last token, which alone has attended to all others */
    HT_POOLING_MEAN, /* over all tokens, special ones included */
    HT_POOLING_CLS,  /* the state of the first token */
    HT_POOLING_MODEL,
    HT_POOLING_NONE,          /* no pooling: a vector for every token */
    HT_POOLING_MAX,           /* the largest value of each dimension */
    HT_POOLING_MEAN_SQRT_LEN, /* the sum, divided by the square root of the number of tokens */
    HT_POOLING_WEIGHTEDMEAN   /* the mean with weights 1, 2, 3 ... */
} ht_pooling;
/* "last", "mean", "cls", "model", "none", ...; NULL for another number. A constant. */
HT_API const char *ht_pooling_name(ht_pooling pooling);
/* The pooling that HT_POOLING_MODEL selects for a model; itself if the checkpoint requires an unsupported pooling. */
HT_API ht_pooling ht_model_pooling(const ht_model *m);
/* Name of the model's i-th prompt for embeddings, as "query", and its text; NULL past the last one. Lent until the
 * model is freed. */
HT_API const char *ht_model_prompt(const ht_model *m, size_t i, const char **text);

/* Options of ht_embed_text and ht_embed_ids. */
typedef struct ht_embed_options {
    size_t size;                 /* of the struct, set by ht_embed_options_init */
    ht_pooling pooling;          /* default HT_POOLING_MODEL */
    bool normalize;              /* scale each vector to a length (L2 norm) of 1; default true */
    ht_adapter *const *adapters; /* [n_adapters], as ht_session_set_adapters; default none */
    const float *adapter_scales; /* NULL: 1 each */
    int n_adapters;
    const ht_cancel *cancel; /* ends the call with HT_ERR_CANCELLED; default NULL */
    /* Called periodically with the share of texts that are done, 0 to 1. Default NULL. */
    void (*progress)(double done, void *user);
    void *user; /* handed to `progress` */
    /* The checkpoint's prompt of this name is put before each text; "" for none. Default NULL: its default prompt, if
     * there is one. */
    const char *prompt;
    /* The first values of each vector, as models trained for it (Matryoshka) allow, scaled after that. Default 0: all. */
    int64_t dimensions;
    /* Texts that exceed the context, or the length that the checkpoint states (max_seq_length), lose tokens at the
     * end, but keep special ones that the tokenizer adds. Default false: a text beyond the context fails. */
    bool truncate;
} ht_embed_options;
HT_API void ht_embed_options_init(ht_embed_options *options, size_t size);

/* The result of a text. */
typedef struct ht_embedding {
    ht_status status;    /* of this text alone */
    bool truncated;      /* it lost tokens at the end */
    const char *message; /* "" for HT_OK */
    int64_t n_tokens;    /* that were computed, a prompt's included */
    const float *values; /* [hidden], for HT_POOLING_NONE [n_tokens, hidden]; NULL when it failed */
} ht_embedding;

typedef struct ht_embeddings {
    size_t n;
    int32_t hidden; /* values of a vector: the model's hidden size, its last dense layer's width, or `dimensions` */
    const ht_embedding
        *embeddings;     /* [n], in the order of the texts; lent, as is everything here, until they are freed */
    const float *values; /* f32 [n, hidden], all of them one after the other; zeros for those that failed. For
                            HT_POOLING_NONE those of all tokens; texts that were not computed have none */
    size_t n_failed;
} ht_embeddings;

/* Embeds n NUL-terminated texts of UTF-8, encoded as ht_generate_text does at the beginning of a session. Dense layers
 * of the checkpoint are applied to pooled vectors, and to those of tokens if the checkpoint does not pool.
 * HT_ERR_UNSUPPORTED without a tokenizer, if the checkpoint has a module that is not supported, and with
 * HT_POOLING_MODEL if it requires an unsupported pooling. HT_ERR_ARGUMENT for a prompt that it does not have, and for
 * more dimensions than there are. A failed text has its status, and the others continue: HT_ERR_ARGUMENT without
 * tokens, HT_ERR_LIMIT if it does not fit the context, HT_ERR_INTERNAL if its vector is not finite. Sessions may use
 * the model meanwhile. The caller frees *out. */
HT_API ht_status ht_embed_text(ht_model *m, const char *const *texts, size_t n, const ht_embed_options *options,
                               ht_embeddings **out, ht_error *err);
/* The same from token ids: n_ids[i] of them at ids[i], without a prompt. Also HT_ERR_ARGUMENT for ids outside the
 * vocabulary, and for a prompt in the options. */
HT_API ht_status ht_embed_ids(ht_model *m, const int32_t *const *ids, const size_t *n_ids, size_t n,
                              const ht_embed_options *options, ht_embeddings **out, ht_error *err);
HT_API void ht_embeddings_free(ht_embeddings *e); /* NULL is fine */

#ifdef __cplusplus
}
#endif
#endif
