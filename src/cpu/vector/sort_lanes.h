/* Ordering, picking and parting numbers of 32 and 64 bits without sign: by lanes (sort_lanes_of.h) where those of a register
 * can be packed by a mask, else, and for parts that had bad luck with pivots, by sort_items.h, behind which this is included. */
#ifndef HT_CPU_VECTOR_SORT_LANES_H
#define HT_CPU_VECTOR_SORT_LANES_H

#include "cpu/vector/simd.h"

#include <stdbool.h>
#include <stdint.h>
#include <string.h>

#ifdef HT_ISA_avx512

enum { SPLIT_VECTORS = 4 };

/* How often a part may be split before its pivots count as bad. */
static int depth_for(int64_t n) { return 2 * (64 - __builtin_clzll((unsigned long long)n | 1)); }

#define WIDTH 32
#include "cpu/vector/sort_lanes_of.h"
#undef WIDTH
#define WIDTH 64
#include "cpu/vector/sort_lanes_of.h"
#undef WIDTH

#define OF_WIDTH(w)                                                                                                    \
    static void order_##w(uint##w##_t *a, uint##w##_t *other, int64_t n, int low, int n_bits, uint32_t *count) {       \
        (void)low, (void)n_bits;                                                                                       \
        sort_by_lanes_##w(a, a, other, n, 0, depth_for(n), count);                                                     \
    }                                                                                                                  \
    static void pick_##w(uint##w##_t *a, uint##w##_t *other, int64_t n, int64_t kth, int n_bits, uint32_t *count) {    \
        (void)n_bits;                                                                                                  \
        select_by_lanes_##w(a, other, n, kth, count);                                                                  \
    }                                                                                                                  \
    static int64_t part_by_lanes_##w(uint##w##_t *a, uint##w##_t *other, int64_t n, uint##w##_t pivot) {               \
        const int64_t front = split_##w(a, a, other, n, pivot);                                                        \
        memcpy(a + front, other + front, (size_t)(n - front) * sizeof *a);                                             \
        return front;                                                                                                  \
    }

#else

#define OF_WIDTH(w)                                                                                                    \
    static void order_##w(uint##w##_t *a, uint##w##_t *other, int64_t n, int low, int n_bits, uint32_t *count) {       \
        sort_##w(a, other, n, low, n_bits, count);                                                                     \
    }                                                                                                                  \
    static void pick_##w(uint##w##_t *a, uint##w##_t *other, int64_t n, int64_t kth, int n_bits, uint32_t *count) {    \
        select_##w(a, other, n, kth, 0, n_bits, count);                                                                \
    }                                                                                                                  \
    static int64_t part_by_lanes_##w(uint##w##_t *a, uint##w##_t *other, int64_t n, uint##w##_t pivot) {               \
        return part_##w(a, other, n, pivot);                                                                           \
    }

#endif

OF_WIDTH(32)
OF_WIDTH(64)

#endif
