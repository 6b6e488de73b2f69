/* Nearest known word to a mistyped command or option. */
#ifndef HEARTH_APP_NEAREST_H
#define HEARTH_APP_NEAREST_H

#include <stddef.h>

typedef struct nearest {
    const char *typed;
    size_t n;         /* bytes of it that count */
    const char *word; /* the nearest one so far; NULL while none is near */
    size_t distance;
} nearest;

nearest nearest_to(const char *typed, size_t n);
/* A word is near when at most a third of the typed letters, and one at least, were mistyped: another letter, one missing, one
 * too many, two swapped. One of which three letters or more were typed, and the rest left out, is near too. */
void nearest_try(nearest *best, const char *word);

#endif
