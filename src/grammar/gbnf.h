/* Grammars in GBNF, llama.cpp's notation: rules of alternatives, literals, classes of characters, groups and counts, of which
 * the one named `root` is the start. Compiled to rules over lexemes: whatever does not recur is one regular expression. */
#ifndef HT_GRAMMAR_GBNF_H
#define HT_GRAMMAR_GBNF_H

#include "grammar/rules.h"

/* Finished rules of n bytes of UTF-8. HT_ERR_FORMAT, with line and column, for what is no such grammar or has no text;
 * HT_ERR_LIMIT for one that is too large. The caller frees *out. */
ht_status ht_gbnf_parse(const char *text, size_t n, ht_rules **out, ht_error *err);

#endif
