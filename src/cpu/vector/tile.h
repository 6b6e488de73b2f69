/* Tile sizes, prefetches, and the stores of a tile of results to y. */
#ifndef HT_CPU_VECTOR_TILE_H
#define HT_CPU_VECTOR_TILE_H

#include "cpu/matrix_kernels.h"
#include "cpu/vector/simd.h"

#if defined(HT_ISA_avx512)
/* 12 sums of integers and 12 of floats in 32 registers; of two planes 16 and 8 */
enum { TILE_ROWS = 6, TILE_PLANE_ROWS = 8, TILE_PANELS = 2 };
enum {
    DIRECT_ROWS = 8,
    DIRECT_MOST = 32,
    DIRECT_MOST_PLANES = 32
}; /* registers in addition to a decoded block: eight sums, and eight of weights */
/* Rows whose steps are interleaved: the schedulers of some processors are too small to reach past the dependency chain
 * of one row. With two halves, each row needs one more sum. */
enum { DIRECT_ABREAST = 8, DIRECT_ABREAST_HALVES = 4 };
#else
enum { TILE_ROWS = 4, TILE_PLANE_ROWS = 4, TILE_PANELS = 1 }; /* a panel's 16 lanes are several registers already */
enum { DIRECT_ROWS = 4, DIRECT_MOST = 8, DIRECT_MOST_PLANES = 4 };
enum { DIRECT_ABREAST = 2, DIRECT_ABREAST_HALVES = 2 };
#endif

/* How matrix_int8.c treats sums and results that exceed the registers. */
#if defined(HT_ISA_YMM)
enum { TILE_SPLITS = 1, TILE_SPILLS = 0 };
#elif defined(HT_ISA_ARM)
enum { TILE_SPLITS = 0, TILE_SPILLS = 1 };
#else
enum { TILE_SPLITS = 0, TILE_SPILLS = 0 };
#endif

/* Whether the cache lines of a block are prefetched one by one between the steps of its products: see matrix_int8.c. */
#if defined(HT_ISA_avx512)
enum { FETCH_BY_STEP = 1 };
#else
enum { FETCH_BY_STEP = 0 };
#endif

/* Prefetches the cache line at p, which need not be valid memory: `far` into the L2 cache, `near` into L1. */
#if defined(HT_ISA_avx512) /* volatile asm: otherwise the compiler moves all prefetches to the front */
HT_INLINE void ht_fetch_far(const void *p) { __asm__ volatile("prefetcht1 %0" : : "m"(*(const char *)p)); }
HT_INLINE void ht_fetch_near(const void *p) { __asm__ volatile("prefetcht0 %0" : : "m"(*(const char *)p)); }
#else
HT_INLINE void ht_fetch_far(const void *p) { __builtin_prefetch(p, 0, 2); }
HT_INLINE void ht_fetch_near(const void *p) { __builtin_prefetch(p, 0, 3); }
#endif

/* Weights are prefetched twice. The far prefetch reaches memory in time where hardware prefetching stops, at the ends
 * of pages and panels. The near one moves lines from L2 to L1, so that no load stalls and delays later requests. */
enum { HT_FETCH_FAR = 16384, HT_FETCH_NEAR = 2048 };
HT_INLINE void ht_fetch_ahead(const void *p) {
    ht_fetch_far((const char *)p + HT_FETCH_FAR);
    ht_fetch_near((const char *)p + HT_FETCH_NEAR);
}

/* Rows of panel `panel` that exist: 0 to 16. */
HT_INLINE int ht_lanes_of(const ht_gemm_out *out, int64_t panel) {
    int64_t left = out->n - HT_PANEL * panel;
    return left >= HT_PANEL ? HT_PANEL : left > 0 ? (int)left : 0;
}

HT_INLINE v16f ht_load_out(const ht_gemm_out *out, int row, int panel, int lanes) {
    const float *p = out->y + row * out->ldy + out->row + HT_PANEL * panel;
    return lanes == HT_PANEL ? v16f_load(p) : v16f_load_n(p, lanes);
}

/* Adds the bias, if there is one, and stores. */
HT_INLINE void ht_store_out(const ht_gemm_out *out, int row, int panel, int lanes, v16f v) {
    float *p = out->y + row * out->ldy + out->row + HT_PANEL * panel;
    const float *bias = out->bias ? out->bias + out->row + HT_PANEL * panel : NULL;
    if (lanes == HT_PANEL) {
        if (bias) v = v16f_add(v, v16f_load(bias));
        v16f_store(p, v);
    } else if (lanes) {
        if (bias) v = v16f_add(v, v16f_load_n(bias, lanes));
        v16f_store_n(p, v, lanes);
    }
}

/* Whether a tile of n rows, computed as `rows` of them (HT_WITH_TILE_ROWS), has row i. */
HT_INLINE bool ht_row_exists(int i, int rows, int n) { return i + 1 < rows || n == rows; }

/* Stores the sums of a tile of n rows, computed as `rows`. */
HT_INLINE void ht_store_rows(const ht_gemm_out *out, int first, int rows, int n, int panel, int lanes, const v16f *y) {
    HT_UNROLL
    for (int i = 0; i < rows; i++)
        if (ht_row_exists(i, rows, n)) ht_store_out(out, first + i, panel, lanes, y[i]);
}

/* Makes call(rows) with a constant `rows`, so that loops over rows unroll and sums stay in registers. Odd n > 1 is
 * rounded up; the extra row reads past the tile and is not stored. HT_WITH_TILE_ROWS supports up to TILE_ROWS
 * rows, HT_WITH_DIRECT_ROWS up to DIRECT_ROWS. */
#if defined(HT_ISA_avx512)
#define HT_TILE_ROWS(n, call)                                                                                          \
    case 1: call(1); break;                                                                                            \
    case 2: call(2); break;                                                                                            \
    case 3:                                                                                                            \
    case 4: call(4); break;                                                                                            \
    case 5:                                                                                                            \
    case 6:                                                                                                            \
        call(6);                                                                                                       \
        break;
#define HT_WITH_TILE_ROWS(n, call)                                                                                     \
    switch (n) { HT_TILE_ROWS(n, call) }
#define HT_WITH_DIRECT_ROWS(n, call)                                                                                   \
    switch (n) {                                                                                                       \
        HT_TILE_ROWS(n, call)                                                                                          \
    default: call(8); break;                                                                                           \
    }
#elif defined(HT_ISA_YMM) || defined(HT_ISA_ARM)
#define HT_WITH_TILE_ROWS(n, call)                                                                                     \
    switch (n) {                                                                                                       \
    case 1: call(1); break;                                                                                            \
    case 2: call(2); break;                                                                                            \
    default: call(4); break;                                                                                           \
    }
#else /* plain lanes live in memory: nothing is won by unrolling */
#define HT_WITH_TILE_ROWS(n, call) call(n);
#endif

#ifndef HT_WITH_DIRECT_ROWS
#define HT_WITH_DIRECT_ROWS HT_WITH_TILE_ROWS
#endif

/* As HT_WITH_DIRECT_ROWS for n rows of numbers, with constant `planes` too, which is an assignable int. */
#if defined(HT_ISA_avx512)
#define HT_WITH_PLANE_ROWS(n, call)                                                                                    \
    switch (n) {                                                                                                       \
    case 2: call(2); break;                                                                                            \
    case 4: call(4); break;                                                                                            \
    case 6: call(6); break;                                                                                            \
    default: call(8); break;                                                                                           \
    }
#elif defined(HT_ISA_YMM) || defined(HT_ISA_ARM)
#define HT_WITH_PLANE_ROWS(n, call)                                                                                    \
    switch (n) {                                                                                                       \
    case 2: call(2); break;                                                                                            \
    default: call(4); break;                                                                                           \
    }
#else
#define HT_WITH_PLANE_ROWS(n, call) call(n);
#endif
#define HT_WITH_NUMBER_ROWS(planes, n, call)                                                                           \
    if ((planes) == 2) {                                                                                               \
        (planes) = 2;                                                                                                  \
        HT_WITH_PLANE_ROWS(n, call)                                                                                    \
    } else {                                                                                                           \
        (planes) = 1;                                                                                                  \
        HT_WITH_DIRECT_ROWS(n, call)                                                                                   \
    }

#endif
