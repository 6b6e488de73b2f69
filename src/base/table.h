/* A hash table from hashes to numbers, which index the caller's keys and values: open addressing, linear probing, a load of at
 * most one half. The caller compares keys; slots hold the upper half of the hash, so that nearly all comparisons succeed and the
 * table grows without the keys. The length of a probe is limited: a hostile file could contain names of one hash and make
 * insertion quadratic. Honest keys stay far below the limit. One writer at a time. */
#ifndef HT_BASE_TABLE_H
#define HT_BASE_TABLE_H

#include <hearth/status.h>

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define HT_TABLE_END UINT32_MAX
enum { HT_TABLE_PROBES_MAX = 2048 };

/* A zeroed ht_table is empty. */
typedef struct ht_table {
    uint64_t *slot; /* [n_slots] upper half of the hash, number + 1; 0: free */
    size_t n_slots; /* a power of two, or 0 */
    size_t n;
} ht_table;

void ht_table_free(ht_table *t);
/* Capacity for n entries in all; false when memory ran out, n exceeds 2^30 or keys collide. */
bool ht_table_reserve(ht_table *t, size_t n);
/* Adds a number below 2^31; its key may be in the table already. HT_ERR_MEMORY, or HT_ERR_FORMAT when keys were made to collide. */
ht_status ht_table_add(ht_table *t, uint64_t hash, uint32_t number);
/* Removes all numbers from `n` on. */
void ht_table_truncate(ht_table *t, uint32_t n);

/* The first slot of a hash in a table that is not empty, to prefetch. */
static inline uint64_t *ht_table_slot(const ht_table *t, uint64_t hash) {
    return &t->slot[(size_t)(hash >> 32) & (t->n_slots - 1)];
}

/* The next number whose hash agrees in its upper half, in order of addition; HT_TABLE_END after the last. *probe begins with 0. */
static inline uint32_t ht_table_next(const ht_table *t, uint64_t hash, size_t *probe) {
    const size_t mask = t->n_slots - 1, begin = (size_t)(hash >> 32);
    while (t->n_slots && *probe < HT_TABLE_PROBES_MAX) {
        const uint64_t slot = t->slot[(begin + (*probe)++) & mask];
        if (!slot) break;
        if (slot >> 32 == hash >> 32) return (uint32_t)slot - 1;
    }
    return HT_TABLE_END;
}

/* Replaces the number that ht_table_next has just returned. */
static inline void ht_table_replace(ht_table *t, uint64_t hash, size_t probe, uint32_t number) {
    t->slot[((size_t)(hash >> 32) + probe - 1) & (t->n_slots - 1)] = (hash >> 32) << 32 | (uint64_t)(number + 1);
}

#endif
