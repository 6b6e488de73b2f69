/* Sorting numbers of 32 bits without sign by lanes, where there are sixteen of them that can be packed by a mask: parts are
 * split by a pivot until they fit into eight registers, which are sorted by comparing and exchanging. */
#ifndef HT_CPU_VECTOR_SORT_LANES_H
#define HT_CPU_VECTOR_SORT_LANES_H

#include "cpu/vector/simd.h"

#include <stdbool.h>
#include <stdint.h>
#include <string.h>

#ifdef HT_ISA_avx512

enum { LANES = 16, BASE_VECTORS = 8, BASE_SORT = BASE_VECTORS * LANES };

/* Compares lane i with lane i ^ distance; where bit i of `high` is set the larger one stays. */
#define EXCHANGE(v, partner, high)                                                                                     \
    do {                                                                                                               \
        const __m512i other_ = (partner);                                                                              \
        (v) = _mm512_mask_mov_epi32(_mm512_min_epu32((v), other_), (high), _mm512_max_epu32((v), other_));             \
    } while (0)

#define APART_1(v) _mm512_shuffle_epi32((v), _MM_PERM_CDAB)
#define APART_2(v) _mm512_shuffle_epi32((v), _MM_PERM_BADC)
#define APART_4(v) _mm512_shuffle_i32x4(_mm512_permutex_epi64((v), 0x4e), _mm512_permutex_epi64((v), 0x4e), 0xe4)
#define APART_8(v) _mm512_shuffle_i32x4((v), (v), 0x4e)

static inline __m512i reversed(__m512i v) {
    return _mm512_permutexvar_epi32(_mm512_set_epi32(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15), v);
}

/* A register that rises and then falls, or the other way, in order. */
static inline __m512i merge_lanes(__m512i v) {
    EXCHANGE(v, APART_8(v), 0xff00);
    EXCHANGE(v, APART_4(v), 0xf0f0);
    EXCHANGE(v, APART_2(v), 0xcccc);
    EXCHANGE(v, APART_1(v), 0xaaaa);
    return v;
}

static inline __m512i sort_lanes(__m512i v) {
    EXCHANGE(v, APART_1(v), 0x6666);
    EXCHANGE(v, APART_2(v), 0x3c3c);
    EXCHANGE(v, APART_1(v), 0x5a5a);
    EXCHANGE(v, APART_4(v), 0x0ff0);
    EXCHANGE(v, APART_2(v), 0x33cc);
    EXCHANGE(v, APART_1(v), 0x55aa);
    return merge_lanes(v);
}

/* Two runs of n registers, each in order, as one. */
static inline __attribute__((always_inline)) void merge_runs(__m512i *v, int n) {
    for (int i = 0; i < n / 2; i++) { /* the second one backwards */
        __m512i a = reversed(v[n + i]), b = reversed(v[2 * n - 1 - i]);
        v[n + i] = b;
        v[2 * n - 1 - i] = a;
    }
    if (n == 1) v[1] = reversed(v[1]);
    for (int apart = n; apart >= 1; apart /= 2)
        for (int i = 0; i < 2 * n; i++) {
            if (i & apart) continue;
            __m512i low = _mm512_min_epu32(v[i], v[i + apart]);
            v[i + apart] = _mm512_max_epu32(v[i], v[i + apart]);
            v[i] = low;
        }
    for (int i = 0; i < 2 * n; i++) v[i] = merge_lanes(v[i]);
}

static inline __attribute__((always_inline)) void sort_vectors(uint32_t *a, int64_t n, int vectors) {
    __m512i v[BASE_VECTORS];
    const __m512i none = _mm512_set1_epi32(-1);
    for (int i = 0; i < vectors; i++) {
        const int64_t left = n - i * LANES;
        const __mmask16 here = left >= LANES ? 0xffff : left > 0 ? (__mmask16)((1u << left) - 1) : 0;
        v[i] = sort_lanes(_mm512_mask_loadu_epi32(none, here, a + i * LANES));
    }
    for (int run = 1; run < vectors; run *= 2)
        for (int i = 0; i < vectors; i += 2 * run) merge_runs(v + i, run);
    for (int i = 0; i < vectors; i++) {
        const int64_t left = n - i * LANES;
        const __mmask16 here = left >= LANES ? 0xffff : left > 0 ? (__mmask16)((1u << left) - 1) : 0;
        _mm512_mask_storeu_epi32(a + i * LANES, here, v[i]);
    }
}

static void sort_base(uint32_t *a, int64_t n) {
    if (n <= LANES)
        sort_vectors(a, n, 1);
    else if (n <= 2 * LANES)
        sort_vectors(a, n, 2);
    else if (n <= 4 * LANES)
        sort_vectors(a, n, 4);
    else
        sort_vectors(a, n, 8);
}

/* The middle one of sixteen. */
static uint32_t pivot_of(const uint32_t *a, int64_t n) {
    uint32_t some[LANES];
    for (int i = 0; i < LANES; i++) some[i] = a[(2 * i + 1) * n / (2 * LANES)];
    sort_vectors(some, LANES, 1);
    return some[LANES / 2];
}

/* Moves those below the pivot to the front, those from it on behind them, in their order; `other` has room for n elements.
 * Returns how many are in front. What is written in front has been read before. */
static int64_t split(uint32_t *a, uint32_t *other, int64_t n, uint32_t pivot) {
    const __m512i middle = _mm512_set1_epi32((int)pivot);
    int64_t front = 0, behind = 0, i = 0;
    for (; i + LANES <= n; i += LANES) {
        const __m512i x = _mm512_loadu_si512(a + i);
        const __mmask16 below = _mm512_cmplt_epu32_mask(x, middle);
        const int count = __builtin_popcount(below);
        _mm512_storeu_si512(a + front, _mm512_maskz_compress_epi32(below, x));
        _mm512_storeu_si512(other + behind, _mm512_maskz_compress_epi32((__mmask16)~below, x));
        front += count;
        behind += LANES - count;
    }
    for (; i < n; i++) {
        const uint32_t x = a[i];
        if (x < pivot)
            a[front++] = x;
        else
            other[behind++] = x;
    }
    memcpy(a + front, other, (size_t)behind * sizeof *a);
    return front;
}

/* Splits a[0 .. n) at a pivot of its own. False when that failed: every element is the pivot or more, and then the pivots
 * are brought to the front, `front` of them, which are in order. */
static bool split_well(uint32_t *a, uint32_t *other, int64_t n, int64_t *front) {
    const uint32_t pivot = pivot_of(a, n);
    *front = split(a, other, n, pivot);
    if (*front > 0) return true;
    *front = pivot == UINT32_MAX ? n : split(a, other, n, pivot + 1);
    return false;
}

/* Sorts; false, with elements moved about, when pivots were bad so often that another way is safer. */
static bool sort_by_lanes(uint32_t *a, uint32_t *other, int64_t n, int depth) {
    while (n > BASE_SORT) {
        if (depth-- == 0) return false;
        int64_t front;
        if (split_well(a, other, n, &front) && !sort_by_lanes(a, other, front, depth)) return false;
        a += front;
        n -= front;
    }
    sort_base(a, n);
    return true;
}

static bool select_by_lanes(uint32_t *a, uint32_t *other, int64_t n, int64_t kth, int depth) {
    while (n > BASE_SORT) {
        if (depth-- == 0) return false;
        int64_t front;
        bool splits = split_well(a, other, n, &front);
        if (kth < front) {
            if (!splits) return true; /* all alike */
            n = front;
            continue;
        }
        a += front;
        kth -= front;
        n -= front;
    }
    sort_base(a, n);
    return true;
}

static int depth_for(int64_t n) { return 2 * (64 - __builtin_clzll((unsigned long long)n | 1)); }

#else

static inline bool sort_by_lanes(uint32_t *a, uint32_t *other, int64_t n, int depth) {
    (void)a, (void)other, (void)n, (void)depth;
    return false;
}
static inline bool select_by_lanes(uint32_t *a, uint32_t *other, int64_t n, int64_t kth, int depth) {
    (void)a, (void)other, (void)n, (void)kth, (void)depth;
    return false;
}
static inline int depth_for(int64_t n) { return (void)n, 0; }

#endif
#endif
