/* Regular expressions in the syntax of ECMA-262 with the flag u, as in JSON Schema. Lookahead and anchors work
 * outside of repetitions; backreferences, lookbehind and word boundaries are rejected by name. */
#ifndef HT_GRAMMAR_REGEX_SYNTAX_H
#define HT_GRAMMAR_REGEX_SYNTAX_H

#include "grammar/regex.h"

/* How the text of a pattern is matched. */
typedef struct ht_regex_syntax {
    /* The bytes of any code point in the ranges, as the matched texts encode it; NULL: its UTF-8. */
    ht_re (*characters)(ht_regexes *s, const ht_code_range *ranges, size_t n);
    bool searches; /* the pattern may match anywhere in a text, as JSON Schema has it; else it matches the whole text */
} ht_regex_syntax;

/* HT_ERR_FORMAT for an invalid pattern, HT_ERR_UNSUPPORTED where no automaton exists; both give the position. */
ht_status ht_regex_parse(ht_regexes *s, const char *pattern, size_t n, const ht_regex_syntax *how, ht_re *out,
                         ht_error *err);

/* ---- sets of code points, for syntaxes that have classes of characters (code_sets.c) ---- */

typedef struct ht_code_set {
    ht_code_range *range;
    size_t n, capacity;
} ht_code_set;

/* A zeroed ht_code_set is empty. Functions return false when memory ran out. */
void ht_code_set_free(ht_code_set *s);
bool ht_code_set_add(ht_code_set *s, uint32_t first, uint32_t last);
/* d, w, s: digits, letters with digits and underscore, white space, as ECMA-262 has them; in capitals, all others. */
bool ht_code_set_add_class(ht_code_set *s, char name);
/* Adds a general category of Unicode: "L", "Lu", "Letter", "gc=Lu", ...; 0: unknown, -1: memory ran out. */
int ht_code_set_add_property(ht_code_set *s, const char *name, size_t n, bool inverted);
/* Replaces the ranges from `first` on by their complement. */
bool ht_code_set_invert(ht_code_set *s, size_t first);

#endif
