/* Blocks of an arena, the last of which has room. */
#include "grammar/arena.h"

#include "base/checked.h"

#include <stdalign.h>
#include <stdlib.h>
#include <string.h>

enum { BLOCK = 8192 };

struct ht_arena_block {
    struct ht_arena_block *before;
    size_t used, size;
    alignas(max_align_t) unsigned char bytes[];
};

void ht_arena_free(ht_arena *a) {
    while (a->last) {
        struct ht_arena_block *before = a->last->before;
        free(a->last);
        a->last = before;
    }
    *a = (ht_arena){0};
}

void *ht_arena_take(ht_arena *a, size_t n, size_t size) {
    size_t need;
    if (!ht_mul_size(n ? n : 1, size ? size : 1, &need) || !ht_align_size(need, alignof(max_align_t), &need))
        return NULL;
    if (!a->last || a->last->size - a->last->used < need) {
        const size_t room = need > BLOCK ? need : BLOCK;
        size_t whole;
        if (!ht_add_size(room, sizeof(struct ht_arena_block), &whole)) return NULL;
        struct ht_arena_block *block = calloc(1, whole);
        if (!block) return NULL;
        block->size = room;
        block->before = a->last;
        a->last = block;
        a->bytes += whole;
    }
    void *taken = a->last->bytes + a->last->used;
    a->last->used += need;
    return taken;
}

char *ht_arena_copy(ht_arena *a, const void *bytes, size_t n) {
    char *copy = n < SIZE_MAX ? ht_arena_take(a, n + 1, 1) : NULL;
    if (copy && n) memcpy(copy, bytes, n);
    return copy;
}
