/* Inputs of a reranker: a query and a document as the ids of one sequence. Decoders have a prompt, a template with the
 * roles "query" and "document"; text encoders read a pair of texts. */
#ifndef HT_GENERATE_RERANK_INPUT_H
#define HT_GENERATE_RERANK_INPUT_H

#include "models/model.h"
#include "template/template.h"
#include "tokenizer/tokenizer.h"

typedef struct ht_rerank_input {
    /* Set by the caller, lent. */
    const ht_model *model;
    const char *query;
    const char *instruction; /* NULL: the model's own */
    bool truncate;           /* documents that do not fit the context lose tokens at their end */
    int64_t document_tokens; /* longer ones lose those beyond it; 0: no limit */
    /* Results of ht_rerank_input_open. */
    const ht_chat_template *prompt; /* NULL: a pair of texts */
    ht_chat_template *own_prompt;   /* the same, if it was made for this call */
    char *own_query;                /* `query` after the checkpoint's prompt; NULL: there is none */
    ht_encoding without;            /* the query with an empty document; made for the first limit */
} ht_rerank_input;

/* HT_ERR_UNSUPPORTED for a model that has no such input, and for an instruction that it does not take. The caller
 * closes `in`, also on failure. */
ht_status ht_rerank_input_open(ht_rerank_input *in, ht_error *err);
void ht_rerank_input_close(ht_rerank_input *in);

/* Encodes the query and a document, checked against the model. out->types is NULL for models without token types.
 * *truncated: the document has lost tokens. */
ht_status ht_rerank_input_encode(ht_rerank_input *in, const char *document, ht_encoding *out, bool *truncated,
                                 ht_error *err);

#endif
