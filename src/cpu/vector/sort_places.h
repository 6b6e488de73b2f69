/* Places of elements: of keys of 64 bits, which do not fit into an item with a place, and parted ones. */
#ifndef HT_CPU_VECTOR_SORT_PLACES_H
#define HT_CPU_VECTOR_SORT_PLACES_H

#include "cpu/vector/sort_job.h"

/* ---- places of keys of 64 bits ---- */

/* A place and 64 bits do not fit into an item: it has as many of the upper bits of what a key is above the least one as leave
 * room for the place. */
static void measure(sort_job *job, const uint64_t *keys, int64_t n) {
    uint64_t least = UINT64_MAX, most = 0;
    for (int64_t i = 0; i < n; i++) {
        least = keys[i] < least ? keys[i] : least;
        most = keys[i] > most ? keys[i] : most;
    }
    const int bits = 64 - __builtin_clzll((unsigned long long)(most - least) | 1);
    job->least = least;
    job->shift = bits > 64 - job->low ? bits - (64 - job->low) : 0;
}

/* Items in order, of which some may be alike but for the place and for bits that were left out: those, which are no more than
 * a place has, with the place fit into an item again. `keys` are those of the row, or NULL: loaded again. */
static void settle(const sort_job *job, int64_t row, const uint64_t *keys, uint64_t *items, uint64_t *other,
                   int64_t n) {
    if (job->shift == 0) return;
    const uint64_t places = (UINT64_C(1) << job->low) - 1, left_out = (UINT64_C(1) << job->shift) - 1;
    int64_t n_alike = 0;
    for (int64_t i = 1; i < n; i++) n_alike += (items[i] ^ items[i - 1]) <= places;
    for (int64_t i = 0, end; i < n && n_alike; i = end) {
        const uint64_t alike = items[i] >> job->low;
        for (end = i + 1; end < n && items[end] >> job->low == alike;) end++;
        if (end == i + 1) continue;
        uint64_t different = 0;
        for (int64_t k = i; k < end; k++) {
            const int64_t place = (int64_t)(items[k] & places);
            uint64_t key = 0;
            if (keys)
                key = keys[place];
            else
                load_64(job->x->dtype, element(job, row, place), 1, 1, true, &key);
            other[k - i] = (key - job->least) & left_out;
            different |= other[k - i] ^ other[0];
        }
        if (!different) continue; /* in the order of their places */
        for (int64_t k = i; k < end; k++) items[k] = other[k - i] << job->low | (items[k] & places);
        order_64(items + i, other, end - i, job->low, job->shift, job->counts);
    }
}

/* ---- places parted by the element at kth ---- */

/* `room` is for 2 n keys more. */
#define PART_PLACES(width)                                                                                             \
    static void part_places_##width(const uint##width##_t *keys, uint##width##_t *room, int64_t n,                     \
                                    const sort_job *job, uint32_t *places) {                                           \
        const placed_##width at = find_at_##width(keys, room, n, job->kth, job->n_bits, job->counts);                  \
        deal_places_##width(keys, n, &at, places);                                                                     \
    }
PART_PLACES(16)
PART_PLACES(32)
PART_PLACES(64)

static void part_rows(const sort_job *job, int64_t row, int64_t rows) {
    const int64_t n = job->n;
    uint32_t *places = (uint32_t *)job->call->out.data + row * n;
    char *keys = job->items, *room = keys + (size_t)(rows * n) * job->item_bytes;
    load_keys(job, row, 0, rows * n, keys);
    for (int64_t r = 0; r < rows; r++, places += n, keys += (size_t)n * job->item_bytes)
        if (job->kind == ITEMS_16)
            part_places_16((const uint16_t *)(void *)keys, (uint16_t *)(void *)room, n, job, places);
        else if (job->kind == ITEMS_32)
            part_places_32((const uint32_t *)(void *)keys, (uint32_t *)(void *)room, n, job, places);
        else
            part_places_64((const uint64_t *)(void *)keys, (uint64_t *)(void *)room, n, job, places);
}

/* Places of a row that is in order, or of few different keys. */
#define SORT_PLAINLY(w)                                                                                                \
    static bool sort_plainly_##w(const uint##w##_t *keys, int64_t n, uint32_t *places) {                               \
        if (!is_ordered_##w(keys, n)) return sort_places_of_few_##w(keys, n, places);                                  \
        for (int64_t i = 0; i < n; i++) places[i] = (uint32_t)i;                                                       \
        return true;                                                                                                   \
    }
SORT_PLAINLY(16)
SORT_PLAINLY(32)
SORT_PLAINLY(64)

/* The room is for the items of a row, as much again for sorting them, and keys of all rows. */
static void sort_places(sort_job *job, int64_t row, int64_t rows) {
    const int64_t n = job->n;
    const size_t item_bytes = (size_t)n * job->item_bytes, element_bytes = ht_dtype_bytes(job->x->dtype);
    const size_t key_bytes = (size_t)n * (element_bytes == 1 ? 2 : element_bytes);
    char *items = job->items, *other = items + item_bytes, *keys = other + item_bytes;
    uint32_t *places = (uint32_t *)job->call->out.data + row * n;
    load_keys(job, row, 0, rows * n, keys);
    if (wide_keys(job)) measure(job, (const uint64_t *)(void *)keys, rows * n);
    for (int64_t r = 0; r < rows; r++, keys += key_bytes, places += n) {
        const void *from = keys;
        if (element_bytes <= 2   ? sort_plainly_16(from, n, places)
            : element_bytes == 4 ? sort_plainly_32(from, n, places)
                                 : sort_plainly_64(from, n, places))
            continue;
        add_places(job, from, 0, n, items);
        order(job, items, other, n);
        if (wide_keys(job)) settle(job, row + r, from, (uint64_t *)(void *)items, (uint64_t *)(void *)other, n);
        store(job, row + r, 0, n, items);
    }
}

#endif
