#include "nearest.h"

#include <stdbool.h>
#include <string.h>

enum { LONGEST = 32 }; /* no command or option is longer */

static size_t least(size_t a, size_t b) { return a < b ? a : b; }

/* Optimal string alignment distance, with three rows of the dynamic-programming table. */
static size_t distance(const char *a, size_t n_a, const char *b, size_t n_b) {
    size_t rows[3][LONGEST + 1];
    for (size_t j = 0; j <= n_b; j++) rows[0][j] = j;
    for (size_t i = 1; i <= n_a; i++) {
        size_t *row = rows[i % 3], *above = rows[(i + 2) % 3], *two_above = rows[(i + 1) % 3];
        row[0] = i;
        for (size_t j = 1; j <= n_b; j++) {
            row[j] = least(above[j - 1] + (a[i - 1] != b[j - 1]), least(above[j], row[j - 1]) + 1);
            if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1])
                row[j] = least(row[j], two_above[j - 2] + 1);
        }
    }
    return rows[n_a % 3][n_b];
}

nearest nearest_to(const char *typed, size_t n) {
    return (nearest){.typed = typed, .n = n, .distance = n < 6 ? 1 : n / 3};
}

void nearest_try(nearest *best, const char *word) {
    enum { FEW = 3 };
    size_t n = strlen(word);
    if (best->n > LONGEST || n > LONGEST || !best->n) return;
    bool begins = best->n >= FEW && n > best->n && memcmp(word, best->typed, best->n) == 0;
    size_t d = begins ? 1 : distance(best->typed, best->n, word, n);
    if (d > best->distance || (best->word && d == best->distance)) return;
    best->word = word;
    best->distance = d;
}
