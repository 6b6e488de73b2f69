/* Growing arrays of the automaton. */
#ifndef HT_GRAMMAR_AUTOMATON_GROW_H
#define HT_GRAMMAR_AUTOMATON_GROW_H

#include "base/grow.h"
#include "grammar/automaton.h"

#include <stdlib.h>

/* Notes the first failure. */
static inline void ht_automaton_fail(ht_automaton *a, ht_status status) {
    if (!a->status) a->status = status;
}

/* Makes *array hold `need` elements of `size` bytes; false, noted, when memory runs out. */
static inline bool ht_automaton_reserve(ht_automaton *a, void *array, size_t *capacity, size_t need, size_t size) {
    /* Also of none: elements of an array that is NULL have no addresses. */
    if (need <= INT32_MAX && ht_grow(array, capacity, need ? need : 1, size)) return true;
    ht_automaton_fail(a, HT_ERR_MEMORY);
    return false;
}

/* The state of the lexer of the pairs of a lexeme and an expression, ascending, that are on the scratch stack from `begin` on, which are
 * taken off. HT_LEX_DEAD after a failure. */
uint32_t ht_lex_state_of(ht_automaton *a, uint32_t begin);
/* The row before a text that begins with the rule. */
uint32_t ht_automaton_first_row(ht_automaton *a, ht_symbol start);

#endif
