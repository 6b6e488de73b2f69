/* Prompts of text completions: texts and token ids of requests, as ids; and gaps between two texts, marked as models have been trained to see
 * them (fill-in-the-middle). */
#ifndef HT_SERVE_PROMPTS_H
#define HT_SERVE_PROMPTS_H

#include "serve/generation.h"

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
/* The ids of a text, by flags of ht_tokenizer_encode; `member` is what failures name. */
bool serve_ids_append_text(serve_call *c, serve_ids *to, const char *text, unsigned flags, const char *member);
/* Flags of a text that begins a sequence, and may spell special tokens. */
enum { SERVE_BEGINS = HT_ENCODE_PARSE_SPECIAL | HT_ENCODE_ADD_SPECIAL };

/* A file, or a piece of one, that is shown before the gap. Texts are lent. */
typedef struct serve_infill_file {
    const char *name, *text;
} serve_infill_file;

/* What is to be filled in. Texts are lent; special tokens that they spell are text. */
typedef struct serve_infill {
    const char *prefix, *suffix;
    const char *line; /* directly before the gap, after the prefix: the line that is being written; NULL: none */
    const serve_infill_file *file;
    size_t n_files;
} serve_infill;

/* Whether a vocabulary has marks of what is before and after a gap. */
bool serve_has_infill(const ht_tokenizer *t);
/* The prompt for it. 400 when the model has no marks. */
bool serve_infill_prompt(serve_call *c, const serve_infill *in, const char *member, serve_prompt *out);

#endif
