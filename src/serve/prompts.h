/* Prompts of text completions: converts texts and token ids to ids, and formats fill-in-the-middle prompts with the
 * model's special tokens. */
#ifndef HT_SERVE_PROMPTS_H
#define HT_SERVE_PROMPTS_H

#include "serve/generation.h"

/* One or several prompts: a text, token ids, a mixed sequence of both, or a list of these. */
enum { SERVE_MOST_PROMPTS = 1024 };
extern const serve_shape serve_prompt_shape;
#define SERVE_IS_PROMPTS                                                                                               \
    { .types = SERVE_JSON_TEXT | SERVE_JSON_LIST, .fewest = 1, .item = &serve_prompt_shape }
typedef bool serve_read_prompt_fn(serve_call *c, const ht_json *value, const char *member, serve_prompt *out);
/* Reads one prompt: a text, a list of token ids, or a mixed list. A prompt without tokens is an error. */
serve_read_prompt_fn serve_read_prompt;
/* Reads the generation's prompts from a field, each with `read`. g->n must be set before. */
bool serve_read_prompts(serve_generation *g, const char *member, serve_read_prompt_fn *read);

/* A growing list of ids. Zero-initialised: empty. */
typedef struct serve_ids {
    int32_t *id; /* freed with free, as ht_ids_free does */
    size_t n, capacity;
} serve_ids;

bool serve_ids_append(serve_ids *to, const int32_t *ids, size_t n, serve_failure *f);
/* Tokenizes a text with flags of ht_tokenizer_encode; errors name the field. */
bool serve_ids_append_text(serve_call *c, serve_ids *to, const char *text, unsigned flags, const char *member);
/* Flags for a text at the start of a sequence, which may contain special tokens. */
enum { SERVE_BEGINS = HT_ENCODE_PARSE_SPECIAL | HT_ENCODE_ADD_SPECIAL };

/* A file or an excerpt, shown before the gap. Texts are lent. */
typedef struct serve_infill_file {
    const char *name, *text;
} serve_infill_file;

/* A fill-in-the-middle request. Texts are lent; special tokens in them are plain text. */
typedef struct serve_infill {
    const char *prefix, *suffix;
    const char *line; /* the incomplete line between the prefix and the gap; NULL: none */
    const serve_infill_file *file;
    size_t n_files;
} serve_infill;

/* Whether a vocabulary has fill-in-the-middle tokens. */
bool serve_has_infill(const ht_tokenizer *t);
/* Builds the prompt. Fails with 400 when the model has no such tokens. */
bool serve_infill_prompt(serve_call *c, const serve_infill *in, const char *member, serve_prompt *out);

#endif
