/* An arena: memory that is taken piece by piece and given back all at once. Belongs to one thread at a time. */
#ifndef HT_GRAMMAR_ARENA_H
#define HT_GRAMMAR_ARENA_H

#include <stddef.h>

typedef struct ht_arena {
    struct ht_arena_block *last;
    size_t bytes;
} ht_arena;

/* A zeroed ht_arena is empty. */
void ht_arena_free(ht_arena *a);
/* n elements of `size` bytes, zeroed and aligned for every type; never NULL for n = 0. NULL when memory ran out. */
void *ht_arena_take(ht_arena *a, size_t n, size_t size);
/* A copy of n bytes with a NUL behind them. */
char *ht_arena_copy(ht_arena *a, const void *bytes, size_t n);

#endif
