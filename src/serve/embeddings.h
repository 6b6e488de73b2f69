/* Embeddings of requests: inputs as the dialects have them, and vectors as JSON. */
#ifndef HT_SERVE_EMBEDDINGS_H
#define HT_SERVE_EMBEDDINGS_H

#include "serve/call.h"

#include <hearth/embed.h>

extern const char *const serve_poolings[]; /* by ht_pooling */
enum { SERVE_MOST_INPUTS = 2048 };
extern const serve_shape serve_input_shape;
#define SERVE_IS_INPUTS                                                                                                \
    {                                                                                                                  \
        .types = SERVE_JSON_TEXT | SERVE_JSON_LIST, .filled = true, .fewest = 1, .most = SERVE_MOST_INPUTS,            \
        .item = &serve_input_shape                                                                                     \
    }

/* Vectors of an input: a text, a list of texts, token ids, or a list of lists of token ids. Waits for the model, and takes the call's state. The caller
 * frees *out. */
bool serve_embed_inputs(serve_call *c, const ht_json *input, const ht_embed_options *o, ht_embeddings **out);
/* The member "dimensions" (of the shape of whole numbers), which are all when it is not there. */
bool serve_read_dimensions(serve_call *c, const ht_embeddings *e, int64_t *n);
/* The first n of a vector's numbers, as a list or as base64 of little-endian floats: divided by their norm p (1: the sum of their sizes,
 * 2: the length, and so on), by the largest size in units of 1/32760 for p = 0, or as they are for p < 0. */
ht_json *serve_embedding_json(const ht_embedding *e, int64_t n, int32_t p, bool as_base64);

#endif
