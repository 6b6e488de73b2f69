/* Sampling options of llama-server's completions. */
#ifndef HT_SERVE_LLAMA_SAMPLING_H
#define HT_SERVE_LLAMA_SAMPLING_H

#include "serve/generation.h"

enum { SERVE_LLAMA_ORDER = 128 };

/* Members that are read, beside those of sampling.h. */
extern const serve_field serve_llama_sampling_fields[];
/* Reads all of them; `order` has to live as long as the generation. */
bool serve_llama_read_sampling(serve_generation *g, char order[SERVE_LLAMA_ORDER]);
/* What an answer is drawn by, as its reply says it. */
ht_json *serve_llama_settings(const serve_generation *g);

#endif
