/* Endpoints that llama-server's clients know: tokens of texts and back, prompts as templates write them. */
#ifndef HT_SERVE_LLAMA_EXTRAS_H
#define HT_SERVE_LLAMA_EXTRAS_H

#include "serve/call.h"

/* Each answers a call, as a route runs it, with its tables of members. */
bool serve_tokenize(serve_call *c);
extern const serve_field *const serve_tokenize_fields[];
bool serve_detokenize(serve_call *c);
extern const serve_field *const serve_detokenize_fields[];
bool serve_apply_template(serve_call *c);

#endif
