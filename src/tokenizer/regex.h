/* Regular expressions of tokenizer files, matched by PCRE2 with the meaning that Oniguruma (which the reference
 * tokenizers use) gives them. Constructs whose meaning differs are translated or refused by name. */
#ifndef HT_TOKENIZER_REGEX_H
#define HT_TOKENIZER_REGEX_H

#include <hearth/status.h>

#include <stdbool.h>
#include <stddef.h>

typedef struct ht_regex ht_regex;
typedef struct ht_regex_work ht_regex_work; /* one thread's match state */

ht_status ht_regex_new(const char *pattern, size_t n, ht_regex **out, ht_error *err);
void ht_regex_free(ht_regex *re); /* NULL is fine */

/* NULL when memory ran out. */
ht_regex_work *ht_regex_work_new(void);
void ht_regex_work_free(ht_regex_work *w); /* NULL is fine */

/* First match in text[from, n): *found, and its range. The text is valid UTF-8 and `from` a character's beginning. A
 * pattern that takes too many steps is an error. */
ht_status ht_regex_find(const ht_regex *re, ht_regex_work *w, const char *text, size_t n, size_t from, bool *found,
                        size_t *begin, size_t *end, ht_error *err);

#endif
