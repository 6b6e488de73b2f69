/* Embeddings of requests: inputs in the forms of the dialects, and vectors as JSON. */
#ifndef HT_SERVE_EMBEDDINGS_H
#define HT_SERVE_EMBEDDINGS_H

#include "serve/call.h"

#include <hearth/embed.h>

/* Words of the field "pooling". The first is "none", for a vector of each token. */
extern const char *const serve_poolings[];
/* The checked field, one of them; the default is HT_POOLING_MODEL. */
ht_pooling serve_read_pooling(const serve_call *c);
enum { SERVE_MOST_INPUTS = 2048 };
extern const serve_shape serve_input_shape;
#define SERVE_IS_INPUTS                                                                                                \
    {                                                                                                                  \
        .types = SERVE_JSON_TEXT | SERVE_JSON_LIST, .filled = true, .fewest = 1, .most = SERVE_MOST_INPUTS,            \
        .item = &serve_input_shape                                                                                     \
    }

/* Embeds an input: a text, a list of texts, token ids, or a list of lists of token ids. Blocks until the model is done,
 * and sets the call's state. HT_POOLING_MODEL fails for a model without pooling. The caller frees *out. */
bool serve_embed_inputs(serve_call *c, const ht_json *input, const ht_embed_options *o, ht_embeddings **out);
/* Reads "dimensions", an integer; the default is the whole vector. */
bool serve_read_dimensions(serve_call *c, const ht_embeddings *e, int64_t *n);
/* Reports inputs that were truncated, in the response's header. */
void serve_report_truncated(serve_call *c, const ht_embeddings *e);
/* The first n numbers of a vector, as a list or as base64 of little-endian floats. p > 0 divides by the p-norm; p = 0
 * scales the largest magnitude to 32760; p < 0 leaves the numbers as they are. */
ht_json *serve_embedding_json(const float *values, int64_t n, int32_t p, bool as_base64);

#endif
