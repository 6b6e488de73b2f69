/* Nearest known word to a mistyped command or option. */
#ifndef HEARTH_APP_NEAREST_H
#define HEARTH_APP_NEAREST_H

#include <stddef.h>

typedef struct nearest {
    const char *typed;
    size_t n;         /* length of `typed` */
    const char *word; /* the nearest so far; NULL: none is near */
    size_t distance;
} nearest;

nearest nearest_to(const char *typed, size_t n);
/* A word is near if its edit distance, with swaps, is at most a third of the typed letters (at least 1).
 * A word is also near if the typed letters, three or more, are a prefix of it. */
void nearest_try(nearest *best, const char *word);

#endif
