/* Sorting many elements of 8 or 16 bits: how often each of the values comes is counted, and then they are written. */
#ifndef HT_CPU_VECTOR_SORT_COUNTING_H
#define HT_CPU_VECTOR_SORT_COUNTING_H

#include "base/checked.h"
#include "cpu/vector/sort_keys.h"

/* Bytes for the counts. Those of 8 bits are counted in four tables in turn: the next equal one need not wait for the last. */
static inline size_t counting_bytes(ht_dtype t) { return sizeof(uint32_t) << (ht_dtype_bytes(t) == 2 ? 16 : 10); }

/* Whether so many elements are enough for it to be the faster way to sort, or with kth to part them, which one order of
 * elements of 8 bits is as good for as another. */
static inline bool counting_pays(ht_dtype t, int64_t n, int64_t kth) {
    return ht_dtype_bytes(t) == 1 ? n >= 1 << 9 : ht_dtype_bytes(t) == 2 && kth < 0 && n >= 1 << 17;
}

static void sort_by_counting(ht_dtype t, const char *x, int64_t stride, int64_t n, uint32_t *counts, void *out) {
    enum { AT_ONCE = 256, SPREAD = 32 };
    const bool halves = ht_dtype_bytes(t) == 2;
    const int n_keys = halves ? 1 << 16 : 1 << 8, step = halves ? 0 : n_keys;
    uint16_t keys[AT_ONCE];
    memset(counts, 0, counting_bytes(t));
    for (int64_t at = 0; at < n; at += AT_ONCE) {
        const int64_t some = ht_min_i64(AT_ONCE, n - at);
        load_16(t, x + at * stride * (int64_t)ht_dtype_bytes(t), stride, some, false, keys);
        for (int64_t i = 0; i < some; i++) counts[(i & 3) * step + keys[i]]++;
    }
    for (int k = 0; k < n_keys && !halves; k++)
        counts[k] += counts[n_keys + k] + counts[2 * n_keys + k] + counts[3 * n_keys + k];
    uint16_t *to = out;
    const uint16_t *const end = to + n;
    uint8_t *byte = out;
    for (int first = 0; first < n_keys; first += AT_ONCE) {
        uint16_t elements[AT_ONCE]; /* of 8 or 16 bits each */
        for (int k = 0; k < AT_ONCE; k++) keys[k] = (uint16_t)(first + k);
        store_16(t, keys, AT_ONCE, elements);
        for (int k = 0; k < AT_ONCE; k++) {
            const int64_t count = counts[first + k];
            if (!halves) {
                memset(byte, ((const uint8_t *)(const void *)elements)[k], (size_t)count);
                byte += count;
                continue;
            }
            /* Few of each, as is usual, are written without asking how many. */
            const int64_t written = end - to >= SPREAD && count <= SPREAD ? SPREAD : count;
            uint16_t element;
            memcpy(&element, (const char *)elements + 2 * (size_t)k, sizeof element);
            for (int64_t i = 0; i < written; i++) to[i] = element;
            to += count;
        }
    }
}

#endif
