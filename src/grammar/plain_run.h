/* Runs of plain text: how many characters of it a state of the lexer takes, whatever they are, which tells what tokens of plain text it
 * allows without looking at them. */
#ifndef HT_GRAMMAR_PLAIN_RUN_H
#define HT_GRAMMAR_PLAIN_RUN_H

#include "grammar/automaton.h"
#include "tokenizer/token_trie.h"

enum { HT_PLAIN_FORMS = 8 };

/* The classes of bytes of which plain characters are. */
typedef struct ht_plain_classes {
    ht_byte_set ascii[HT_PLAIN_KINDS]; /* a bit for each class; of each kind what those before it have not */
    ht_byte_set first[HT_PLAIN_FORMS], second[HT_PLAIN_FORMS], next; /* bytes of characters of two to four */
} ht_plain_classes;

void ht_plain_classes_find(const ht_automaton *a, ht_plain_classes *out);

typedef struct ht_plain_run {
    ht_plain_kind kind; /* HT_PLAIN_KINDS: plain tokens have to be looked at as all others */
    int n; /* texts of the kind go on when they are of at most so many characters, HT_PLAIN_MOST at most, and others do not */
} ht_plain_run;

/* That of the widest kind for which there is one. */
ht_plain_run ht_plain_run_of(ht_automaton *a, const ht_plain_classes *classes, uint32_t state);

#endif
