/* Memory allocator of arrays, weights, KV caches and plans, with counters, limits and a cache of freed buffers.
 * Thread-safe. <hearth/memory.h> has the public side. */
#ifndef HT_ARRAY_MEMORY_H
#define HT_ARRAY_MEMORY_H

#include <hearth/status.h>

#include <stddef.h>

/* Allocates max(bytes, 1) bytes, 64-byte aligned, uninitialised. `what` names the allocation in the error message. */
ht_status ht_memory_alloc(size_t bytes, const char *what, void **out, ht_error *err);
/* Frees memory of ht_memory_alloc; `bytes` is its size as requested. NULL is fine. */
void ht_memory_free(void *p, size_t bytes);

/* Bytes that an allocation of `bytes` takes. */
size_t ht_memory_rounded(size_t bytes);
/* Freed buffers are kept, whatever the cache limit, as long as they and what was allocated since the first reservation are at
 * most `bytes`: for work that allocates the same again and again, and whose peak is known. Reservations add up. */
void ht_memory_reserve(size_t bytes);
void ht_memory_unreserve(size_t bytes); /* of an earlier reservation */

#endif
