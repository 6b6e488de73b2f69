/* Large allocations, in huge pages where the system has them. */
#ifndef HT_BASE_PAGES_H
#define HT_BASE_PAGES_H

#include <stddef.h>

/* At least `bytes` bytes, aligned to 64; from some megabytes on in large pages, where the system has them. Freed with
 * free; NULL when memory ran out. */
void *ht_pages_new(size_t bytes);

/* The same for n items of `size` bytes, all of them zero: for tables that are written in any order. Memory of calloc is
 * mapped to one page of zeros until it is written, so that a table that is read before it is written is mapped twice, and
 * every thread is told of it. */
void *ht_pages_zeroed(size_t n, size_t size);

#endif
