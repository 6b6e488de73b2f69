/* Endpoints that llama-server's clients know: tokens of texts and back, prompts as templates write them. */
#ifndef HT_SERVE_LLAMA_EXTRAS_H
#define HT_SERVE_LLAMA_EXTRAS_H

#include "serve/call.h"

/* Each answers a call, as a route runs it, with its tables of members, and the shapes of its answers. */
bool serve_tokenize(serve_call *c);
extern const serve_field *const serve_tokenize_fields[];
extern const serve_shape serve_tokenize_answer;
bool serve_detokenize(serve_call *c);
extern const serve_field *const serve_detokenize_fields[];
extern const serve_shape serve_detokenize_answer;
bool serve_apply_template(serve_call *c);
extern const serve_shape serve_apply_template_answer;

#endif
