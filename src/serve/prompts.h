/* Prompts of text completions: texts and token ids of requests, as ids. */
#ifndef HT_SERVE_PROMPTS_H
#define HT_SERVE_PROMPTS_H

#include "serve/generation.h"

/* Ids of a text, special ones that it spells included, at the beginning of a sequence or in the middle of one. The caller frees *ids with
 * ht_ids_free. False: with a failure that names the member. */
bool serve_encode_text(serve_call *c, const char *text, bool begins, const char *member, int32_t **ids, size_t *n);
/* One prompt or several: a text, token ids, texts and ids one after the other, or a list of such. */
enum { SERVE_MOST_PROMPTS = 1024 };
extern const serve_shape serve_prompt_shape;
#define SERVE_IS_PROMPTS                                                                                               \
    { .types = SERVE_JSON_TEXT | SERVE_JSON_LIST, .fewest = 1, .item = &serve_prompt_shape }
typedef bool serve_read_prompt_fn(serve_call *c, const ht_json *value, const char *member, serve_prompt *out);
/* A prompt that is a text, a list of token ids, or a list of texts and ids one after the other; one without tokens is refused. */
serve_read_prompt_fn serve_read_prompt;
/* Reads the generation's prompts from such a member, each by `read`; g->n is set before. */
bool serve_read_prompts(serve_generation *g, const char *member, serve_read_prompt_fn *read);

/* Ids that are put together. Zero-initialised: none. */
typedef struct serve_ids {
    int32_t *id; /* freed with free, as ht_ids_free does */
    size_t n, capacity;
} serve_ids;

bool serve_ids_append(serve_ids *to, const int32_t *ids, size_t n, serve_failure *f);
/* The ids of a text in the middle of a sequence; special tokens that it spells are text unless `special` is set. */
bool serve_ids_append_text(serve_call *c, serve_ids *to, const char *text, bool special, const char *member);

#endif
