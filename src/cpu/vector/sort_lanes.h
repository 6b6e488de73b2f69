/* Ordering and finding numbers of 16, 32 and 64 bits without sign: by lanes (sort_lanes_of.h) where those of a register can be
 * packed by a mask, else, and for parts that had bad luck with pivots, by digits (sort_items.h). */
#ifndef HT_CPU_VECTOR_SORT_LANES_H
#define HT_CPU_VECTOR_SORT_LANES_H

#include "cpu/vector/simd.h"

#include <math.h>
#include <stdbool.h>
#include <stdint.h>
#include <string.h>

enum { SMALL_SORT = 24 };

#define ITEM         uint16_t
#define KEY(x)       ((uint64_t)(x))
#define BEFORE(a, b) ((a) < (b))
#define NAME(f)      f##_16
#include "cpu/sort_items.h"
#undef ITEM
#undef NAME
#define ITEM    uint32_t
#define NAME(f) f##_32
#include "cpu/sort_items.h"
#undef ITEM
#undef NAME
#define ITEM    uint64_t
#define NAME(f) f##_64
#include "cpu/sort_items.h"
#undef ITEM
#undef KEY
#undef BEFORE
#undef NAME

/* How often a part may be split before its pivots count as bad. Tests choose other numbers. */
static inline int depth_for(int64_t n) { return 2 * (64 - __builtin_clzll((unsigned long long)n | 1)); }

#ifdef HT_ISA_avx512

#define WIDTH 32
#include "cpu/vector/sort_base_of.h"
#include "cpu/vector/sort_lanes_of.h"
#undef WIDTH
#define WIDTH 64
#include "cpu/vector/sort_base_of.h"
#include "cpu/vector/sort_lanes_of.h"
#undef WIDTH
#define WIDTH 16 /* behind 32, of which it takes what pairs of lanes need */
#include "cpu/vector/sort_base_of.h"
#include "cpu/vector/sort_lanes_of.h"
#undef WIDTH

#define OF_WIDTH(w)                                                                                                    \
    static bool is_ordered_##w(const uint##w##_t *keys, int64_t n) {                                                   \
        const forms_##w as = forms_of_##w(&plain_##w);                                                                 \
        return in_order_##w(keys, n, &as);                                                                             \
    }                                                                                                                  \
    static void order_##w(uint##w##_t *a, uint##w##_t *other, int64_t n, int low, int n_bits, uint32_t *count) {       \
        (void)low, (void)n_bits;                                                                                       \
        if (n > BASE_SORT_##w && is_ordered_##w(a, n)) return;                                                         \
        sort_within_##w(a, other, n, 0, depth_for(n), &(sorting_##w){&plain_##w, count});                              \
    }                                                                                                                  \
    static placed_##w find_at_##w(const uint##w##_t *keys, uint##w##_t *room, int64_t n, int64_t kth, int n_bits,      \
                                  uint32_t *count) {                                                                   \
        (void)n_bits;                                                                                                  \
        return find_##w(keys, &plain_##w, room, room + n, n, kth, depth_for(n), count);                                \
    }                                                                                                                  \
    static int64_t part_by_lanes_##w(uint##w##_t *a, uint##w##_t *other, int64_t n, uint##w##_t pivot) {               \
        bool alike;                                                                                                    \
        const int64_t front = split_##w(a, a, other, n, pivot, &alike);                                                \
        memcpy(a + front, other, (size_t)(n - front) * sizeof *a);                                                     \
        return front;                                                                                                  \
    }

#else

#define OF_WIDTH(w)                                                                                                    \
    typedef struct placed_##w {                                                                                        \
        uint##w##_t number;                                                                                            \
        int64_t below, equal;                                                                                          \
    } placed_##w;                                                                                                      \
    static bool is_ordered_##w(const uint##w##_t *keys, int64_t n) {                                                   \
        for (int64_t i = 1; i < n; i++)                                                                                \
            if (keys[i] < keys[i - 1]) return false;                                                                   \
        return true;                                                                                                   \
    }                                                                                                                  \
    static void order_##w(uint##w##_t *a, uint##w##_t *other, int64_t n, int low, int n_bits, uint32_t *count) {       \
        if (!is_ordered_##w(a, n)) sort_##w(a, other, n, low, n_bits, count);                                          \
    }                                                                                                                  \
    static bool sort_places_of_few_##w(const uint##w##_t *keys, int64_t n, uint32_t *places) {                         \
        (void)keys, (void)n, (void)places;                                                                             \
        return false; /* counting by comparing pays where a register is compared at once */                            \
    }                                                                                                                  \
    static placed_##w find_at_##w(const uint##w##_t *keys, uint##w##_t *room, int64_t n, int64_t kth, int n_bits,      \
                                  uint32_t *count) {                                                                   \
        memcpy(room, keys, (size_t)n * sizeof *room);                                                                  \
        select_##w(room, room + n, n, kth, 0, n_bits, count);                                                          \
        placed_##w found = {.number = room[kth]};                                                                      \
        for (int64_t i = 0; i < n; i++) {                                                                              \
            found.below += keys[i] < found.number;                                                                     \
            found.equal += keys[i] == found.number;                                                                    \
        }                                                                                                              \
        return found;                                                                                                  \
    }                                                                                                                  \
    static int64_t part_by_lanes_##w(uint##w##_t *a, uint##w##_t *other, int64_t n, uint##w##_t pivot) {               \
        return part_##w(a, other, n, pivot);                                                                           \
    }

#endif

OF_WIDTH(16)
OF_WIDTH(32)
OF_WIDTH(64)

#endif
