/* Sets of code points as lists of ranges, for the notations that have classes of characters. */
#ifndef HT_GRAMMAR_CODE_SETS_H
#define HT_GRAMMAR_CODE_SETS_H

#include "grammar/regex.h"

typedef struct ht_code_set {
    ht_code_range *range;
    size_t n, capacity;
} ht_code_set;

/* A zeroed ht_code_set is empty. Functions return false when memory ran out. */
void ht_code_set_free(ht_code_set *s);
bool ht_code_set_add(ht_code_set *s, uint32_t first, uint32_t last);
/* d, w, s: digits, letters with digits and underscore, white space, as ECMA-262 has them; in capitals, all others. */
bool ht_code_set_add_class(ht_code_set *s, char name);
/* A general category of Unicode: "L", "Lu", "Letter", "gc=Lu", ...; 1: added, 0: no such one, -1: memory ran out. */
int ht_code_set_add_property(ht_code_set *s, const char *name, size_t n, bool inverted);
/* Replaces the ranges from `first` on by those of all code points that are in none of them. */
bool ht_code_set_invert(ht_code_set *s, size_t first);

#endif
