/* Sorting by lanes of numbers of one width without sign. Included by sort_lanes.h for each, with WIDTH 32 or 64.
 *
 * Parts are split by a pivot until they fit into sixteen registers, which are sorted by comparing and exchanging. The two
 * sides of a split lie in two buffers at the places that they will have, so that nothing is copied back. */

#define JOINED_(f, w) f##_##w
#define JOINED(f, w)  JOINED_(f, w)
#define NAMED(f)      JOINED(f, WIDTH)

/* Compares lanes with those of `partner`; where bit i of `high` is set lane i takes the larger one. */
#define EXCHANGE(v, partner, high)                                                                                     \
    do {                                                                                                               \
        const __m512i other_ = (partner);                                                                              \
        (v) = MASK_MAX(MIN((v), other_), (high), (v), other_);                                                         \
    } while (0)

#if WIDTH == 32
typedef __mmask16 NAMED(mask);
#define ITEM       uint32_t
#define MIN        _mm512_min_epu32
#define MAX        _mm512_max_epu32
#define MASK_MAX   _mm512_mask_max_epu32
#define BELOW      _mm512_cmplt_epu32_mask
#define PACK       _mm512_maskz_compress_epi32
#define LOAD_SOME  _mm512_mask_loadu_epi32
#define STORE_SOME _mm512_mask_storeu_epi32
#define LANES      16
#define FIRST(n)   ((__mmask16)((1u << (n)) - 1))
#define ALL        ((__mmask16)0xffff)
#define SET1(x)    _mm512_set1_epi32((int)(x))
#define APART_1(v) _mm512_shuffle_epi32((v), _MM_PERM_CDAB)
#define APART_2(v) _mm512_shuffle_epi32((v), _MM_PERM_BADC)
#define APART_4(v) _mm512_shuffle_i32x4((v), (v), 0xb1)
#define APART_8(v) _mm512_shuffle_i32x4((v), (v), 0x4e)

static inline __m512i NAMED(reversed)(__m512i v) {
    return _mm512_permutexvar_epi32(_mm512_set_epi32(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15), v);
}

/* A register that rises and then falls, or the other way, in order. */
static inline __m512i NAMED(merge_lanes)(__m512i v) {
    EXCHANGE(v, APART_8(v), 0xff00);
    EXCHANGE(v, APART_4(v), 0xf0f0);
    EXCHANGE(v, APART_2(v), 0xcccc);
    EXCHANGE(v, APART_1(v), 0xaaaa);
    return v;
}

static inline __m512i NAMED(sort_lanes)(__m512i v) {
    EXCHANGE(v, APART_1(v), 0x6666);
    EXCHANGE(v, APART_2(v), 0x3c3c);
    EXCHANGE(v, APART_1(v), 0x5a5a);
    EXCHANGE(v, APART_4(v), 0x0ff0);
    EXCHANGE(v, APART_2(v), 0x33cc);
    EXCHANGE(v, APART_1(v), 0x55aa);
    return NAMED(merge_lanes)(v);
}

/* Sixteen registers, each in order: columns are sorted side by side, by a network of Green's, and then turned. */
static inline __attribute__((always_inline)) void sort_columns(__m512i v[16]) {
    __m512i w[16], low;
#define ORDER(a, b) low = MIN(v[a], v[b]), v[b] = MAX(v[a], v[b]), v[a] = low
    ORDER(0, 1), ORDER(2, 3), ORDER(4, 5), ORDER(6, 7);
    ORDER(8, 9), ORDER(10, 11), ORDER(12, 13), ORDER(14, 15);
    ORDER(0, 2), ORDER(1, 3), ORDER(4, 6), ORDER(5, 7);
    ORDER(8, 10), ORDER(9, 11), ORDER(12, 14), ORDER(13, 15);
    ORDER(0, 4), ORDER(1, 5), ORDER(2, 6), ORDER(3, 7);
    ORDER(8, 12), ORDER(9, 13), ORDER(10, 14), ORDER(11, 15);
    ORDER(0, 8), ORDER(1, 9), ORDER(2, 10), ORDER(3, 11);
    ORDER(4, 12), ORDER(5, 13), ORDER(6, 14), ORDER(7, 15);
    ORDER(5, 10), ORDER(6, 9), ORDER(3, 12), ORDER(13, 14);
    ORDER(4, 8), ORDER(7, 11), ORDER(1, 2), ORDER(1, 4);
    ORDER(7, 13), ORDER(2, 8), ORDER(11, 14), ORDER(2, 4);
    ORDER(5, 6), ORDER(9, 10), ORDER(11, 13), ORDER(3, 8);
    ORDER(7, 12), ORDER(6, 8), ORDER(10, 12), ORDER(3, 5);
    ORDER(7, 9), ORDER(3, 4), ORDER(5, 6), ORDER(7, 8);
    ORDER(9, 10), ORDER(11, 12), ORDER(6, 7), ORDER(8, 9);
#undef ORDER
    HT_UNROLL
    for (int i = 0; i < 16; i += 2) {
        w[i] = _mm512_unpacklo_epi32(v[i], v[i + 1]);
        w[i + 1] = _mm512_unpackhi_epi32(v[i], v[i + 1]);
    }
    HT_UNROLL
    for (int i = 0; i < 16; i += 4) {
        v[i] = _mm512_unpacklo_epi64(w[i], w[i + 2]);
        v[i + 1] = _mm512_unpackhi_epi64(w[i], w[i + 2]);
        v[i + 2] = _mm512_unpacklo_epi64(w[i + 1], w[i + 3]);
        v[i + 3] = _mm512_unpackhi_epi64(w[i + 1], w[i + 3]);
    }
    HT_UNROLL
    for (int i = 0; i < 4; i++) {
        const __m512i a = _mm512_shuffle_i32x4(v[i], v[i + 4], 0x88), b = _mm512_shuffle_i32x4(v[i], v[i + 4], 0xdd);
        const __m512i c = _mm512_shuffle_i32x4(v[i + 8], v[i + 12], 0x88);
        const __m512i d = _mm512_shuffle_i32x4(v[i + 8], v[i + 12], 0xdd);
        w[i] = _mm512_shuffle_i32x4(a, c, 0x88);
        w[i + 4] = _mm512_shuffle_i32x4(b, d, 0x88);
        w[i + 8] = _mm512_shuffle_i32x4(a, c, 0xdd);
        w[i + 12] = _mm512_shuffle_i32x4(b, d, 0xdd);
    }
    HT_UNROLL
    for (int i = 0; i < 16; i++) v[i] = w[i];
}
#else
typedef __mmask8 NAMED(mask);
#define ITEM       uint64_t
#define MIN        _mm512_min_epu64
#define MAX        _mm512_max_epu64
#define MASK_MAX   _mm512_mask_max_epu64
#define BELOW      _mm512_cmplt_epu64_mask
#define PACK       _mm512_maskz_compress_epi64
#define LOAD_SOME  _mm512_mask_loadu_epi64
#define STORE_SOME _mm512_mask_storeu_epi64
#define LANES      8
#define FIRST(n)   ((__mmask8)((1u << (n)) - 1))
#define ALL        ((__mmask8)0xff)
#define SET1(x)    _mm512_set1_epi64((long long)(x))
#define APART_1(v) _mm512_shuffle_epi32((v), _MM_PERM_BADC)
#define APART_2(v) _mm512_permutex_epi64((v), 0x4e)
#define APART_4(v) _mm512_shuffle_i64x2((v), (v), 0x4e)

static inline __m512i NAMED(reversed)(__m512i v) {
    return _mm512_permutexvar_epi64(_mm512_set_epi64(0, 1, 2, 3, 4, 5, 6, 7), v);
}

static inline __m512i NAMED(merge_lanes)(__m512i v) {
    EXCHANGE(v, APART_4(v), 0xf0);
    EXCHANGE(v, APART_2(v), 0xcc);
    EXCHANGE(v, APART_1(v), 0xaa);
    return v;
}

static inline __m512i NAMED(sort_lanes)(__m512i v) {
    EXCHANGE(v, APART_1(v), 0x66);
    EXCHANGE(v, APART_2(v), 0x3c);
    EXCHANGE(v, APART_1(v), 0x5a);
    return NAMED(merge_lanes)(v);
}
#endif

enum { NAMED(BASE_SORT) = 16 * LANES };

/* Two runs of n registers, each in order, as one. */
static inline __attribute__((always_inline)) void NAMED(merge_runs)(__m512i *v, int n) {
    HT_UNROLL
    for (int i = 0; i < n / 2; i++) { /* the second one backwards */
        __m512i a = NAMED(reversed)(v[n + i]), b = NAMED(reversed)(v[2 * n - 1 - i]);
        v[n + i] = b;
        v[2 * n - 1 - i] = a;
    }
    if (n == 1) v[1] = NAMED(reversed)(v[1]);
    HT_UNROLL
    for (int apart = n; apart >= 1; apart /= 2) {
        HT_UNROLL
        for (int i = 0; i < 2 * n; i++) {
            if (i & apart) continue;
            __m512i low = MIN(v[i], v[i + apart]);
            v[i + apart] = MAX(v[i], v[i + apart]);
            v[i] = low;
        }
    }
    HT_UNROLL
    for (int i = 0; i < 2 * n; i++) v[i] = NAMED(merge_lanes)(v[i]);
}

static inline __attribute__((always_inline)) void NAMED(merge_all)(__m512i *v, int vectors, int n) {
    if (vectors < 2 * n) return;
    HT_UNROLL
    for (int i = 0; i < vectors; i += 2 * n) NAMED(merge_runs)(v + i, n);
}

static inline NAMED(mask) NAMED(lanes_left)(int64_t left) { return left >= LANES ? ALL : left > 0 ? FIRST(left) : 0; }

static inline __attribute__((always_inline)) void NAMED(sort_vectors)(const ITEM *from, ITEM *to, int64_t n,
                                                                      int vectors) {
    __m512i v[16];
    const __m512i none = _mm512_set1_epi32(-1);
    HT_UNROLL
    for (int i = 0; i < vectors; i++) v[i] = LOAD_SOME(none, NAMED(lanes_left)(n - i * LANES), from + i * LANES);
#if WIDTH == 32
    if (vectors == 16)
        sort_columns(v);
    else
#endif
    {
        HT_UNROLL
        for (int i = 0; i < vectors; i++) v[i] = NAMED(sort_lanes)(v[i]);
    }
    NAMED(merge_all)(v, vectors, 1);
    NAMED(merge_all)(v, vectors, 2);
    NAMED(merge_all)(v, vectors, 4);
    NAMED(merge_all)(v, vectors, 8);
    HT_UNROLL
    for (int i = 0; i < vectors; i++) STORE_SOME(to + i * LANES, NAMED(lanes_left)(n - i * LANES), v[i]);
}

/* from[0 .. n) in order, at `to`. */
static void NAMED(sort_base)(const ITEM *from, ITEM *to, int64_t n) {
    if (n <= LANES)
        NAMED(sort_vectors)(from, to, n, 1);
    else if (n <= 2 * LANES)
        NAMED(sort_vectors)(from, to, n, 2);
    else if (n <= 4 * LANES)
        NAMED(sort_vectors)(from, to, n, 4);
    else if (n <= 8 * LANES)
        NAMED(sort_vectors)(from, to, n, 8);
    else
        NAMED(sort_vectors)(from, to, n, 16);
}

static inline ITEM NAMED(middle_of)(ITEM a, ITEM b, ITEM c) {
    const ITEM low = a < b ? a : b, high = a < b ? b : a, top = high < c ? high : c;
    return low > top ? low : top;
}

/* Of few elements the middle one of three middle ones of three, of many that of a fixed part of a sorted sample. */
enum { NAMED(SAMPLE) = 4 * LANES };
static ITEM NAMED(pivot_of)(const ITEM *a, int64_t n, int part) {
    if (n < 16 * NAMED(BASE_SORT)) {
        const int64_t step = n / 10;
        const ITEM *p = a + step / 2;
        return NAMED(middle_of)(NAMED(middle_of)(p[0], p[step], p[2 * step]),
                                NAMED(middle_of)(p[3 * step], p[4 * step], p[5 * step]),
                                NAMED(middle_of)(p[6 * step], p[7 * step], p[8 * step]));
    }
    ITEM some[NAMED(SAMPLE)];
    for (int i = 0; i < NAMED(SAMPLE); i++) some[i] = a[(2 * i + 1) * n / (2 * NAMED(SAMPLE))];
    NAMED(sort_vectors)(some, some, NAMED(SAMPLE), 4);
    return some[part];
}

/* Those of from[0 .. n) below the pivot go to the front of `low`, which may be `from`, the others to the end of high[0 .. n).
 * Returns how many are in front. */
static int64_t NAMED(split)(const ITEM *from, ITEM *low, ITEM *high, int64_t n, ITEM pivot) {
    enum { STRIDE = SPLIT_VECTORS * LANES };
    const __m512i middle = SET1(pivot);
    int64_t front = 0, back = n, i = 0;
    for (; i + STRIDE <= n; i += STRIDE) {
        __m512i below[SPLIT_VECTORS], above[SPLIT_VECTORS];
        int count[SPLIT_VECTORS];
        HT_UNROLL
        for (int k = 0; k < SPLIT_VECTORS; k++) {
            const __m512i x = _mm512_loadu_si512(from + i + k * LANES);
            const NAMED(mask) m = BELOW(x, middle);
            count[k] = __builtin_popcount(m);
            below[k] = PACK(m, x);
            above[k] = PACK((NAMED(mask)) ~m, x);
        }
        HT_UNROLL
        for (int k = 0; k < SPLIT_VECTORS; k++) {
            _mm512_storeu_si512(low + front, below[k]);
            front += count[k];
            back -= LANES - count[k];
            STORE_SOME(high + back, FIRST(LANES - count[k]), above[k]);
        }
    }
    for (; i < n; i += LANES) {
        const NAMED(mask) here = NAMED(lanes_left)(n - i);
        const __m512i x = LOAD_SOME(middle, here, from + i);
        const NAMED(mask) m = BELOW(x, middle) & here, rest = (NAMED(mask))(here & ~m);
        const int some = __builtin_popcount(m), others = __builtin_popcount(rest);
        STORE_SOME(low + front, FIRST(some), PACK(m, x));
        front += some;
        back -= others;
        STORE_SOME(high + back, FIRST(others), PACK(rest, x));
    }
    return front;
}

/* Sorts from[0 .. n), which is `to` or `other`, into `to`, where all are >= least. Parts whose pivots were bad too often
 * are sorted by digits. */
static void NAMED(sort_by_lanes)(ITEM *from, ITEM *to, ITEM *other, int64_t n, ITEM least, int depth, uint32_t *count) {
    while (n > NAMED(BASE_SORT)) {
        if (depth-- == 0) {
            if (from != to) memcpy(to, from, (size_t)n * sizeof *to);
            NAMED(sort)(to, other, n, 0, WIDTH, count);
            return;
        }
        ITEM pivot = NAMED(pivot_of)(from, n, NAMED(SAMPLE) / 2);
        ITEM *high = from == to ? other : to;
        int64_t front = 0;
        if (pivot > least) front = NAMED(split)(from, from, high, n, pivot);
        if (front > 0) {
            NAMED(sort_by_lanes)(from, to, other, front, least, depth, count);
            from = high + front;
            least = pivot;
        } else { /* nothing is below: those that equal it are in order */
            if (pivot > least) from = high;
            high = from == to ? other : to;
            if (pivot == (ITEM)-1) {
                if (from != to) memcpy(to, from, (size_t)n * sizeof *to);
                return;
            }
            front = NAMED(split)(from, from, high, n, pivot + 1);
            if (from != to) memcpy(to, from, (size_t)front * sizeof *to);
            from = high + front;
            least = pivot + 1;
        }
        to += front;
        other += front;
        n -= front;
    }
    NAMED(sort_base)(from, to, n);
}

/* Leaves at kth what sorting would put there, and brings what comes before it to the front. */
static void NAMED(select_by_lanes)(ITEM *a, ITEM *other, int64_t n, int64_t kth, uint32_t *count) {
    for (int depth = depth_for(n); n > NAMED(BASE_SORT); depth--) {
        if (depth == 0) {
            NAMED(sort)(a, other, n, 0, WIDTH, count);
            return;
        }
        /* So far to one side of kth that few are left on its own. */
        const int part = (int)(kth * NAMED(SAMPLE) / n), away = NAMED(SAMPLE) / 16 + 1;
        const int on = part < NAMED(SAMPLE) / 2 ? part + away : part - away;
        const ITEM pivot = NAMED(pivot_of)(a, n, on);
        int64_t front = NAMED(split)(a, a, other, n, pivot);
        const bool alike = front == 0;
        if (!alike)
            memcpy(a + front, other + front, (size_t)(n - front) * sizeof *a);
        else if (pivot == (ITEM)-1) {
            memcpy(a, other, (size_t)n * sizeof *a);
            return;
        } else { /* nothing is below: those that equal it come first */
            front = NAMED(split)(other, other, a, n, pivot + 1);
            memcpy(a, other, (size_t)front * sizeof *a);
        }
        if (kth < front) {
            if (alike) return;
            n = front;
        } else {
            a += front;
            kth -= front;
            n -= front;
        }
    }
    NAMED(sort_base)(a, a, n);
}

#undef NAMED
#undef JOINED
#undef JOINED_
#undef ITEM
#undef MIN
#undef MAX
#undef MASK_MAX
#undef BELOW
#undef PACK
#undef LOAD_SOME
#undef STORE_SOME
#undef LANES
#undef FIRST
#undef ALL
#undef SET1
#undef EXCHANGE
#undef APART_1
#undef APART_2
#undef APART_4
#undef APART_8
