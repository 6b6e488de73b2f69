/* Ordering and finding numbers of 16, 32 and 64 bits without sign: by lanes (sort_lanes_of.h) where those of a register can be
 * packed by a mask, with AVX2 by a table for at most eight; else, and for parts that had bad luck with pivots, by digits
 * (sort_items.h). */
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

#if defined(HT_ISA_avx512)
#define HT_SORT_LANES    1 /* numbers of 32 and 64 bits by lanes */
#define HT_SORT_LANES_16 1 /* and those of 16 bits */

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

/* Places from `first` on of which bits are set, at `to`, where `left` may be written; gives how many. From MANY_PLACES on
 * that is the better way to write them. */
enum { MANY_PLACES = 0 };
static inline int store_places(uint32_t *to, int64_t left, uint32_t which, int64_t first) {
    const __m512i iota = _mm512_set_epi32(15, 14, 13, 12, 11, 10, 9, 8, 7, 6, 5, 4, 3, 2, 1, 0);
    (void)left;
    for (int half = 0; half < 32 && which >> half; half += 16) {
        const __mmask16 some = (__mmask16)(which >> half);
        const int count = __builtin_popcount(some);
        _mm512_mask_storeu_epi32(
            to, (__mmask16)((1u << count) - 1),
            _mm512_maskz_compress_epi32(some, _mm512_add_epi32(_mm512_set1_epi32((int)first + half), iota)));
        to += count;
    }
    return __builtin_popcount(which);
}

#elif defined(HT_ISA_YMM)
#define HT_SORT_LANES               1
#define HT_SORT_LANES_16            0

/* Which lanes are where when those of a mask come first, a byte for each 32 bits. */
#define PUT(m, k, bits, at, others) (((others) << ((m) >> (k)&1 ? (bits) : 0)) | ((m) >> (k)&1 ? UINT64_C(at) : 0))
#define EIGHT(m)                    PUT(m, 0, 8, 0, PUT(m, 1, 8, 1, PUT(m, 2, 8, 2, PUT(m, 3, 8, 3, HIGH_FOUR(m)))))
#define HIGH_FOUR(m)                PUT(m, 4, 8, 4, PUT(m, 5, 8, 5, PUT(m, 6, 8, 6, PUT(m, 7, 8, 7, UINT64_C(0)))))
#define FOUR(m)                     PUT(m, 0, 16, 0x100, PUT(m, 1, 16, 0x302, PUT(m, 2, 16, 0x504, PUT(m, 3, 16, 0x706, UINT64_C(0)))))
#define ONES_OF(m)                  (((m)&1) + ((m) >> 1 & 1) + ((m) >> 2 & 1) + ((m) >> 3 & 1))
#define PACK_8(m)                                                                                                      \
    (EIGHT(m) | EIGHT(~(m)) << 4 * (ONES_OF(m) + ONES_OF((m) >> 4)) << 4 * (ONES_OF(m) + ONES_OF((m) >> 4)))
#define PACK_4(m)     (FOUR(m) | FOUR(~(m)) << 8 * ONES_OF(m) << 8 * ONES_OF(m))
#define NEXT_4(f, m)  f(m), f((m) + 1), f((m) + 2), f((m) + 3)
#define NEXT_16(f, m) NEXT_4(f, m), NEXT_4(f, (m) + 4), NEXT_4(f, (m) + 8), NEXT_4(f, (m) + 12)
#define NEXT_64(f, m) NEXT_16(f, m), NEXT_16(f, (m) + 16), NEXT_16(f, (m) + 32), NEXT_16(f, (m) + 48)
static const uint64_t packing_32[] = {NEXT_64(PACK_8, 0), NEXT_64(PACK_8, 64), NEXT_64(PACK_8, 128),
                                      NEXT_64(PACK_8, 192)};
static const uint64_t packing_64[] = {NEXT_16(PACK_4, 0)};

static inline __m256i lanes_of_bytes(uint64_t bytes) { return _mm256_cvtepu8_epi32(_mm_cvtsi64_si128((int64_t)bytes)); }

enum { MANY_PLACES = 64 };
static inline int store_places(uint32_t *to, int64_t left, uint32_t which, int64_t first) {
    const int count = __builtin_popcount(which);
    if (left >= 8) {
        const __m256i place =
            _mm256_add_epi32(_mm256_set1_epi32((int)first), _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7));
        const __m256i packed = _mm256_permutevar8x32_epi32(place, lanes_of_bytes(packing_32[which]));
        _mm256_storeu_si256((__m256i *)(void *)to, packed);
    } else
        for (; which; which &= which - 1) *to++ = (uint32_t)first + (uint32_t)__builtin_ctz(which);
    return count;
}

#else
#define HT_SORT_LANES    0
#define HT_SORT_LANES_16 0
#endif

#if HT_SORT_LANES
#define WIDTH 32
#include "cpu/vector/sort_base_of.h"
#include "cpu/vector/sort_lanes_of.h"
#undef WIDTH
#define WIDTH 64
#include "cpu/vector/sort_base_of.h"
#include "cpu/vector/sort_lanes_of.h"
#undef WIDTH
#endif
#if HT_SORT_LANES_16
#define WIDTH 16 /* behind 32, of which it takes what pairs of lanes need */
#include "cpu/vector/sort_base_of.h"
#include "cpu/vector/sort_lanes_of.h"
#undef WIDTH
#endif

#define BY_LANES(w)                                                                                                    \
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

#define BY_DIGITS(w)                                                                                                   \
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
    static void deal_places_##w(const uint##w##_t *keys, int64_t n, const placed_##w *at, uint32_t *places) {          \
        int64_t next[3] = {0, at->below, at->below + at->equal};                                                       \
        for (int64_t i = 0; i < n; i++)                                                                                \
            places[next[(keys[i] >= at->number) + (keys[i] > at->number)]++] = (uint32_t)i;                            \
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

#if HT_SORT_LANES_16
BY_LANES(16)
#else
BY_DIGITS(16)
#endif
#if HT_SORT_LANES
BY_LANES(32)
BY_LANES(64)
#else
BY_DIGITS(32)
BY_DIGITS(64)
#endif

#endif
