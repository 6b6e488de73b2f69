/* Arena allocator: allocates from blocks and frees them all at once. Not thread-safe. */
#ifndef HT_BASE_ARENA_H
#define HT_BASE_ARENA_H

#include <stddef.h>

/* A zeroed ht_arena is empty. */
typedef struct ht_arena {
    struct ht_arena_block *block; /* the first has free space */
    size_t used;                  /* bytes taken, each piece rounded up to the alignment */
    size_t bytes;                 /* of all blocks */
} ht_arena;

void ht_arena_free(ht_arena *a);
/* n elements of `size` bytes, zeroed and aligned for every type; never NULL for n = 0. NULL when memory ran out. */
void *ht_arena_take(ht_arena *a, size_t n, size_t size);
/* A copy of n bytes with a NUL after them. */
char *ht_arena_copy(ht_arena *a, const void *bytes, size_t n);

#endif
