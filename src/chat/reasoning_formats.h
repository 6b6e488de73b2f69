/* Formats of reasoning: how models mark it in their answers. */
#ifndef HT_CHAT_REASONING_FORMATS_H
#define HT_CHAT_REASONING_FORMATS_H

#include "template/template.h"

typedef struct ht_reasoning_format {
    const char *mark; /* templates with this text use the format */
    const char *open, *close;
    const char *title;           /* the first line of reasoning, which is not shown; NULL: none */
    bool anywhere;               /* else at the beginning of an answer, or after reasoning or calls */
    const char *before, *behind; /* white space around `close`, where the template does not show it; NULL: none */
} ht_reasoning_format;

/* The format of a template's source; models write "<think>" whatever the template, so never NULL. */
const ht_reasoning_format *ht_reasoning_format_of(const char *source);
/* The format whose marks the template's source contains; NULL: it contains none. */
const ht_reasoning_format *ht_reasoning_format_in(const ht_chat_template *t);
/* Whether a prompt of n bytes ends within reasoning. *with_title: after its title. */
bool ht_reasoning_is_open(const ht_reasoning_format *format, const char *prompt, size_t n, bool *with_title);

#endif
