/* Large allocations, in huge pages if the system has them. */
#ifndef HT_BASE_PAGES_H
#define HT_BASE_PAGES_H

#include <stddef.h>

/* At least `bytes` bytes, 64-byte aligned; from 4 MiB on in huge pages, if the system has them. The caller frees them with
 * free(). NULL when memory ran out. */
void *ht_pages_new(size_t bytes);

/* The same with mmap: ht_pages_unmap returns the memory to the system at once, where free() may keep it. Worth it from
 * about 1 MiB. */
void *ht_pages_map(size_t bytes);
void ht_pages_unmap(void *p, size_t bytes); /* the size of the mapping */

/* ht_pages_new for n items of `size` bytes, zeroed: for tables that are read before they are written. Memory of calloc
 * is mapped to a shared zero page at the first read and again at the first write, with a TLB shootdown to every thread. */
void *ht_pages_zeroed(size_t n, size_t size);

#endif
