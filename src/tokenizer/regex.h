/* Regular expressions of tokenizer files, matched by PCRE2 with the semantics of Oniguruma (used by Hugging Face
 * `tokenizers`). Constructs that differ are translated or rejected by name. */
#ifndef HT_TOKENIZER_REGEX_H
#define HT_TOKENIZER_REGEX_H

#include <hearth/status.h>

#include <stdbool.h>
#include <stddef.h>

typedef struct ht_regex ht_regex;
typedef struct ht_regex_work ht_regex_work; /* match state of one thread */

ht_status ht_regex_new(const char *pattern, size_t n, ht_regex **out, ht_error *err);
void ht_regex_free(ht_regex *re); /* NULL is fine */

/* NULL when out of memory. */
ht_regex_work *ht_regex_work_new(void);
void ht_regex_work_free(ht_regex_work *w); /* NULL is fine */

typedef struct ht_regex_match {
    bool found;
    size_t begin, end;
} ht_regex_match;

/* First match in text[from, n), which must be valid UTF-8 with `from` at a character boundary. A pattern that exceeds the step
 * limit is an error. */
ht_status ht_regex_find(const ht_regex *re, ht_regex_work *w, const char *text, size_t n, size_t from,
                        ht_regex_match *match, ht_error *err);

#endif
