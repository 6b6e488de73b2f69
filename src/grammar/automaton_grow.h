/* Growing arrays of the automaton. */
#ifndef HT_GRAMMAR_AUTOMATON_GROW_H
#define HT_GRAMMAR_AUTOMATON_GROW_H

#include "grammar/automaton.h"

#include <stdlib.h>

/* Notes the first failure. */
static inline void ht_automaton_fail(ht_automaton *a, ht_status status) {
    if (!a->status) a->status = status;
}

/* Makes *array hold `need` elements of `size` bytes; false, noted, when memory runs out. */
static inline bool ht_automaton_reserve(ht_automaton *a, void *array, uint32_t *capacity, size_t need, size_t size) {
    void **of = array;
    if (need <= *capacity && *of)
        return true; /* also of none: places in an array that is not there have no addresses */
    size_t larger = *capacity ? *capacity : 32;
    while (larger < need) larger *= 2;
    void *moved = larger <= INT32_MAX ? realloc(*of, larger * size) : NULL;
    if (!moved) {
        ht_automaton_fail(a, HT_ERR_MEMORY);
        return false;
    }
    *of = moved;
    *capacity = (uint32_t)larger;
    return true;
}

/* The state of the lexer of the pairs of a lexeme and an expression, ascending, that are on the scratch stack from `begin` on, which are
 * taken off. HT_LEX_DEAD after a failure. */
uint32_t ht_lex_state_of(ht_automaton *a, uint32_t begin);
/* The row before a text that begins with the rule. */
uint32_t ht_automaton_first_row(ht_automaton *a, ht_symbol start);

#endif
