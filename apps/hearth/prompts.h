/* Files of prompts: one a line, as text or as a JSON object, read when it is asked for. */
#ifndef HEARTH_APP_PROMPTS_H
#define HEARTH_APP_PROMPTS_H

#include "options.h"

#include <hearth/prompt.h>

#include <stdio.h>
#include <sys/types.h>

typedef struct prompt_file {
    FILE *file;
    const char *path;
    bool jsonl;     /* every line is an object: the file is called .jsonl, or its first line begins with a brace */
    off_t *offset;  /* [n] of lines that are not blank */
    size_t *number; /* [n] of those in the file, from 1 */
    size_t n;
    uint64_t hash; /* of the lines */
} prompt_file;

/* Reads the file once for its index, past a byte order mark; "-" is standard input, which is then kept in a temporary file. To be closed after a failure, too. */
ht_status prompts_open(const char *path, prompt_file *out, ht_error *err);
void prompts_close(prompt_file *p);

/* A line as a prompt. */
typedef struct prompt_line {
    ht_json *object; /* NULL: the line is text */
    ht_chat *chat;   /* one of the three */
    char *text;
    int32_t *ids;
    size_t n_ids;
} prompt_line;

typedef bool prompt_member(const char *name);
/* Reads line i, written in the model's chat format unless there is none, --raw is given, or `m` is NULL, for texts to embed. An object may have the members of a prompt,
 * "id", and those that `is_other` knows (NULL: none). Replaces what is in *line; a failure names the line. */
ht_status prompts_read(prompt_file *p, size_t i, const options *o, const ht_model *m, prompt_member *is_other,
                       prompt_line *line, ht_error *err);
/* Puts the line before the message of what is wrong with it. */
ht_status prompts_fail(const prompt_file *p, size_t i, ht_status status, ht_error *err);
void prompt_line_clear(prompt_line *line);
ht_prompt prompt_of(const prompt_line *line);
/* Ids of a JSON list, in fresh memory. */
ht_status prompt_ids(const ht_json *list, int32_t **ids, size_t *n, ht_error *err);
/* The "id" of line i; NULL: none. The caller gives it back. */
ht_json *prompts_id(prompt_file *p, size_t i);

#endif
