/* Runs of plain text: how many characters of it a state of the lexer takes, whatever they are, which tells what tokens of plain text it
 * allows without looking at them. */
#ifndef HT_GRAMMAR_PLAIN_RUN_H
#define HT_GRAMMAR_PLAIN_RUN_H

#include "grammar/automaton.h"

typedef struct ht_plain_run {
    int all;  /* every text of at most so many plain characters goes on, HT_PLAIN_MOST at most */
    int none; /* no text of so many does; HT_PLAIN_MOST + 1 where some do of all numbers that count */
} ht_plain_run;

ht_plain_run ht_plain_run_of(ht_automaton *a, uint32_t state);

#endif
