#include "base/table.h"

#include "base/pages.h"

#include <stdlib.h>

void ht_table_free(ht_table *t) {
    free(t->slot);
    *t = (ht_table){0};
}

static bool place(ht_table *t, uint64_t slot) {
    const size_t begin = (size_t)(slot >> 32), mask = t->n_slots - 1;
    for (size_t i = 0; i < HT_TABLE_PROBES_MAX && i < t->n_slots; i++)
        if (!t->slot[(begin + i) & mask]) {
            t->slot[(begin + i) & mask] = slot;
            t->n++;
            return true;
        }
    return false;
}

/* Entries of equal hashes keep their order: each run of used slots is copied from its beginning. */
static ht_status grow(ht_table *t, size_t n_slots) {
    ht_table larger = {.n_slots = n_slots};
    larger.slot = ht_pages_zeroed(n_slots, sizeof *larger.slot);
    if (!larger.slot) return HT_ERR_MEMORY;
    size_t begin = 0; /* after a free slot: a run may go round the end */
    while (begin < t->n_slots && t->slot[begin]) begin++;
    bool ok = true;
    for (size_t i = 0; ok && i < t->n_slots; i++) {
        const uint64_t slot = t->slot[(begin + i) & (t->n_slots - 1)];
        ok = !slot || place(&larger, slot);
    }
    free(ok ? t->slot : larger.slot);
    if (ok) *t = larger;
    return ok ? HT_OK : HT_ERR_FORMAT;
}

bool ht_table_reserve(ht_table *t, size_t n) {
    size_t n_slots = t->n_slots ? t->n_slots : 16;
    if (n > (size_t)1 << 30) return false;
    while (n_slots < 2 * n) n_slots *= 2;
    return n_slots == t->n_slots || !grow(t, n_slots);
}

ht_status ht_table_add(ht_table *t, uint64_t hash, uint32_t number) {
    ht_status status = HT_OK;
    if (2 * (t->n + 1) > t->n_slots) {
        if (t->n_slots >= (size_t)1 << 31) return HT_ERR_MEMORY;
        status = grow(t, t->n_slots ? (t->n_slots < 4096 ? 4 : 2) * t->n_slots : 64);
    }
    if (status) return status;
    return place(t, (hash >> 32) << 32 | (uint64_t)(number + 1)) ? HT_OK : HT_ERR_FORMAT;
}

void ht_table_truncate(ht_table *t, uint32_t n) {
    const size_t mask = t->n_slots - 1;
    size_t begin = 0; /* a free slot: after it each entry moves to the first free slot of its run */
    while (begin < t->n_slots && t->slot[begin]) begin++;
    for (size_t i = 0; i < t->n_slots; i++) {
        uint64_t *at = &t->slot[(begin + i) & mask], slot = *at;
        if (!slot) continue;
        *at = 0;
        t->n--;
        if ((uint32_t)slot <= n) (void)place(t, slot);
    }
}
