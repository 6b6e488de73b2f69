/* Files of prompts: one per line, as text or as a JSON object, read on demand. */
#ifndef HEARTH_APP_PROMPTS_H
#define HEARTH_APP_PROMPTS_H

#include "options.h"

#include <hearth/prompt.h>

#include <stdio.h>
#include <sys/types.h>

typedef struct prompt_file {
    FILE *file;
    const char *path;
    bool jsonl;     /* every line is an object: the suffix is .jsonl, or the first line begins with a brace */
    off_t *offset;  /* [n] byte offset of each non-blank line */
    size_t *number; /* [n] its line number in the file, from 1 */
    size_t n;
    uint64_t hash; /* of the lines */
} prompt_file;

/* Indexes the file's lines; "-" is standard input, copied to a temporary file. Call prompts_close also on failure. */
ht_status prompts_open(const char *path, prompt_file *out, ht_error *err);
void prompts_close(prompt_file *p);

/* A parsed line. */
typedef struct prompt_line {
    ht_json *object; /* NULL: the line is text */
    ht_chat *chat;   /* exactly one of chat, text and ids is set */
    char *text;
    int32_t *ids;
    size_t n_ids;
} prompt_line;

typedef bool prompt_member(const char *name);
/* Reads line i into *line, in the model's chat format unless it has none, --raw is given or `m` is NULL (embeddings).
 * An object may have a prompt's fields, "id", and those that `is_other` accepts (NULL: none). Errors name the line. */
ht_status prompts_read(prompt_file *p, size_t i, const options *o, const ht_model *m, prompt_member *is_other,
                       prompt_line *line, ht_error *err);
/* Reads line i as a text, or as an object whose field "text" it is; other fields are ignored. The caller frees *text. */
ht_status prompts_read_text(prompt_file *p, size_t i, char **text, ht_error *err);
/* Prefixes an error message with the line number. */
ht_status prompts_fail(const prompt_file *p, size_t i, ht_status status, ht_error *err);
void prompt_line_clear(prompt_line *line);
ht_prompt prompt_of(const prompt_line *line);
/* Reads a JSON list of token ids into fresh memory. */
ht_status prompt_ids(const ht_json *list, int32_t **ids, size_t *n, ht_error *err);
/* The "id" of line i; NULL: none. The caller releases it. */
ht_json *prompts_id(prompt_file *p, size_t i);

#endif
