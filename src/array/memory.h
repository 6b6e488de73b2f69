/* The allocator behind arrays, weights, caches and plans: counted, limited, with a cache of freed buffers.
 * Thread-safe. The public side (limits, counters) is in <hearth/memory.h>. */
#ifndef HT_ARRAY_MEMORY_H
#define HT_ARRAY_MEMORY_H

#include <hearth/status.h>

#include <stddef.h>

/* 64-byte aligned memory, its content undefined; at least one byte. `what` is used in the message. */
ht_status ht_memory_alloc(size_t bytes, const char *what, void **out, ht_error *err);
/* `bytes` as given to ht_memory_alloc. NULL is fine. */
void ht_memory_free(void *p, size_t bytes);

#endif
