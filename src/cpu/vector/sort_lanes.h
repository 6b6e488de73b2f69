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

/* The words of `v` whose bits are set, side by side. One instruction with VBMI2, which this instruction set does not ask
 * for; else words are packed as lanes of 32 bits, a half each. */
static inline __m512i pack_words(__mmask32 which, __m512i v) {
    if (__builtin_cpu_supports("avx512vbmi2")) {
        __m512i packed;
        __asm__("vpcompressw %1, %0%{%2%}%{z%}" : "=v"(packed) : "v"(v), "Yk"(which));
        return packed;
    }
    const __mmask16 low = (__mmask16)which, high = (__mmask16)(which >> 16);
    const int lows = __builtin_popcount(low);
    const __m512i from = _mm512_cvtepu16_epi32(_mm512_castsi512_si256(v));
    const __m512i from_high = _mm512_cvtepu16_epi32(_mm512_extracti64x4_epi64(v, 1));
    const __m256i first = _mm512_cvtepi32_epi16(_mm512_maskz_compress_epi32(low, from));
    const __m256i second = _mm512_cvtepi32_epi16(_mm512_maskz_compress_epi32(high, from_high));
    const __m512i halves = _mm512_inserti64x4(_mm512_castsi256_si512(first), second, 1);
    const __m512i lanes = _mm512_set_epi16(31, 30, 29, 28, 27, 26, 25, 24, 23, 22, 21, 20, 19, 18, 17, 16, 15, 14, 13,
                                           12, 11, 10, 9, 8, 7, 6, 5, 4, 3, 2, 1, 0);
    const __mmask32 behind = ~(__mmask32)0 << lows; /* lows: at most 16 */
    return _mm512_permutexvar_epi16(_mm512_mask_add_epi16(lanes, behind, lanes, _mm512_set1_epi16((short)(16 - lows))),
                                    halves);
}

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
