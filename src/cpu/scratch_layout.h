/* Scratch layout: cache-line-aligned parts of one block of memory. With at = NULL the layout only counts bytes. */
#ifndef HT_CPU_SCRATCH_LAYOUT_H
#define HT_CPU_SCRATCH_LAYOUT_H

#include <stddef.h>
#include <stdint.h>

typedef struct ht_scratch_layout {
    char *at;
    size_t used;
} ht_scratch_layout;

/* Reserves n elements of `bytes` bytes; NULL while counting. */
static inline void *ht_scratch_take(ht_scratch_layout *d, int64_t n, size_t bytes) {
    void *p = d->at ? d->at + d->used : NULL;
    d->used += ((size_t)n * bytes + 63) & ~(size_t)63;
    return p;
}

#endif
