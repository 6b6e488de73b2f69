/* Fill-in-the-middle: prompts of what is before and behind a gap, marked as models have been trained to see it. */
#ifndef HT_SERVE_INFILL_H
#define HT_SERVE_INFILL_H

#include "serve/prompts.h"

/* Ids of a vocabulary's marks; -1: it has none of that kind. */
typedef struct serve_infill_marks {
    int32_t prefix, suffix, middle;
    int32_t repository, file; /* before the name of a repository, and of each of its files */
    bool suffix_first;        /* what is behind the gap comes first, and nothing marks the middle */
} serve_infill_marks;

/* False: the vocabulary has no marks. */
bool serve_infill_marks_of(const ht_tokenizer *t, serve_infill_marks *out);

/* A file, or a piece of one, that is shown before the gap. Texts are lent. */
typedef struct serve_infill_file {
    const char *name, *text;
} serve_infill_file;

/* What is to be filled in. Texts are lent; special tokens that they spell are text. */
typedef struct serve_infill {
    const char *prefix, *suffix;
    const char *line; /* directly before the gap, behind the prefix: the line that is being written; NULL: none */
    const serve_infill_file *file;
    size_t n_files;
} serve_infill;

/* The prompt for it; `member` is what failures name. 400 when the model has no marks. */
bool serve_infill_prompt(serve_call *c, const serve_infill *in, const char *member, serve_prompt *out);

#endif
