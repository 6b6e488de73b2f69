#include "base/arena.h"

#include "base/checked.h"

#include <stdalign.h>
#include <stdlib.h>
#include <string.h>

enum { SMALLEST_BLOCK = 8 << 10, LARGEST_BLOCK = 64 << 10 };

struct ht_arena_block {
    struct ht_arena_block *next;
    size_t used, size;
    alignas(max_align_t) unsigned char bytes[];
};

void ht_arena_free(ht_arena *a) {
    while (a->block) {
        struct ht_arena_block *next = a->block->next;
        free(a->block);
        a->block = next;
    }
    *a = (ht_arena){0};
}

static struct ht_arena_block *add_block(ht_arena *a, size_t need) {
    const size_t size = ht_max_size(need, ht_min_size(ht_max_size(a->bytes, SMALLEST_BLOCK), LARGEST_BLOCK));
    size_t whole;
    struct ht_arena_block *block = ht_add_size(size, sizeof *block, &whole) ? malloc(whole) : NULL;
    if (!block) return NULL;
    /* A block for one large allocation must not hide the block with free space. */
    struct ht_arena_block **at = a->block && need > LARGEST_BLOCK / 4 ? &a->block->next : &a->block;
    *block = (struct ht_arena_block){.next = *at, .size = size};
    *at = block;
    a->bytes += whole;
    return block;
}

void *ht_arena_take(ht_arena *a, size_t n, size_t size) {
    size_t need;
    if (!ht_mul_size(n ? n : 1, size ? size : 1, &need) || !ht_align_size(need, alignof(max_align_t), &need))
        return NULL;
    struct ht_arena_block *block = a->block;
    if (!block || block->size - block->used < need) block = add_block(a, need);
    if (!block) return NULL;
    void *taken = memset(block->bytes + block->used, 0, need);
    block->used += need;
    a->used += need;
    return taken;
}

char *ht_arena_copy(ht_arena *a, const void *bytes, size_t n) {
    char *copy = n < SIZE_MAX ? ht_arena_take(a, n + 1, 1) : NULL;
    if (copy && n) memcpy(copy, bytes, n);
    return copy;
}
