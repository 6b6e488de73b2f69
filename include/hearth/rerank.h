/* Reranking: how relevant documents are to a query, judged by a model that reads both together.
 *
 * A reranker is a text encoder whose classification head has one label, or a decoder: one with a classifier (GGUF:
 * `cls.output`, pooling type rank; safetensors: `score`), with a LogitScore module of sentence-transformers, with a chat
 * template that has the roles "query" and "document", or a Qwen3 model that is named a reranker. Decoders read a prompt
 * with both texts, encoders the pair as their tokenizer's template puts it together. Documents share steps and the
 * prompt up to the query, as in embed.h: each gets the bits that it gets alone. */
#ifndef HEARTH_RERANK_H
#define HEARTH_RERANK_H

#include <hearth/adapter.h>
#include <hearth/cancel.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Options of ht_rerank. */
typedef struct ht_rerank_options {
    size_t size; /* of the struct, set by ht_rerank_options_init */
    /* The task that makes a document relevant, for decoders whose prompt states it. Default NULL: the checkpoint's
     * default prompt (config_sentence_transformers.json), else the sentence of the prompt. Encoders have that prompt
     * before the query. */
    const char *instruction;
    ht_adapter *const *adapters; /* [n_adapters], as ht_session_set_adapters; default none */
    const float *adapter_scales; /* NULL: 1 each */
    int n_adapters;
    bool truncate; /* documents that do not fit the context lose tokens at their end; default false: they fail */
    int64_t document_tokens; /* documents with more tokens lose those at their end; default 0: no limit */
    const ht_cancel *cancel; /* ends the call with HT_ERR_CANCELLED; default NULL */
    /* Called periodically with the share of documents that are done, 0 to 1. Default NULL. */
    void (*progress)(double done, void *user);
    void *user; /* handed to `progress` */
} ht_rerank_options;
HT_API void ht_rerank_options_init(ht_rerank_options *options, size_t size);

/* The result of a document. */
typedef struct ht_relevance {
    ht_status status;    /* of this document alone; unless HT_OK, only this and the next are valid */
    const char *message; /* "" for HT_OK */
    bool truncated;      /* it lost tokens at its end */
    int64_t n_tokens;    /* of its prompt, the query's included */
    double logit;        /* of the head or the classifier, or that of "yes" minus that of "no" */
    double score;        /* sigmoid of the logit, 0 to 1 */
} ht_relevance;

typedef struct ht_ranking {
    size_t n;
    const ht_relevance *documents; /* [n], in their order; lent, as is everything here, until they are freed */
    const size_t *order;           /* [n] indices, the best first; on ties the lowest; those that failed last */
    size_t n_failed;
} ht_ranking;

/* Scores n documents, NUL-terminated texts of UTF-8 like the query. Neither can contain special tokens: they are
 * encoded as text. HT_ERR_UNSUPPORTED without a tokenizer, for a model that is no reranker, and for an instruction if
 * it takes none. A failed document has its status, and the others continue: HT_ERR_ARGUMENT for invalid UTF-8,
 * HT_ERR_LIMIT if it does not fit the context, HT_ERR_INTERNAL if its logit is not finite. Sessions may use the model
 * meanwhile. The caller frees *out. */
HT_API ht_status ht_rerank(ht_model *m, const char *query, const char *const *documents, size_t n,
                           const ht_rerank_options *options, ht_ranking **out, ht_error *err);
HT_API void ht_ranking_free(ht_ranking *r); /* NULL is fine */

#ifdef __cplusplus
}
#endif
#endif
