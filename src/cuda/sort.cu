/* Sorting, the largest elements, and random numbers.
 *
 * Elements are mapped to unsigned keys of the same order, NaN last, as cpu/reference/sort.c does. A block sorts a tile
 * of a row in shared memory; the sorted lists of longer rows are merged two by two in global memory. Items with an
 * index are distinct, which makes the sort stable. */
#include "cuda/kernel.cuh"
#include "cuda/sort.h"

enum { EACH = HT_CUDA_SORT_EACH };

/* ---- keys ---- */

/* NaN has the largest key. */
static __device__ uint64_t key_of_float(uint64_t bits, int width, uint64_t infinity) {
    const uint64_t sign = (uint64_t)1 << (width - 1), all = sign | (sign - 1);
    if ((bits & ~sign) > infinity) return all;
    return bits & sign ? ~bits & all : bits | sign;
}

static __device__ uint64_t infinity_of(ht_dtype t) {
    switch (t) {
    case HT_F16: return 0x7c00;
    case HT_BF16: return 0x7f80;
    case HT_F32: return 0x7f800000;
    default: return (uint64_t)0x7ff00000 << 32;
    }
}

static __device__ int width_of(ht_dtype t) {
    switch (t) {
    case HT_BOOL:
    case HT_U8:
    case HT_I8: return 8;
    case HT_U16:
    case HT_I16:
    case HT_F16:
    case HT_BF16: return 16;
    case HT_U32:
    case HT_I32:
    case HT_F32: return 32;
    default: return 64;
    }
}

static __device__ uint64_t bits_at(int width, const void *p, int64_t i) {
    switch (width) {
    case 8: return ((const uint8_t *)p)[i];
    case 16: return ((const uint16_t *)p)[i];
    case 32: return ((const uint32_t *)p)[i];
    default: return ((const uint64_t *)p)[i];
    }
}

/* Key of an element's bits. When sorting indices, -0 equals 0. */
static __device__ uint64_t key_of(ht_dtype t, uint64_t v, bool places) {
    const int width = width_of(t);
    const uint64_t sign = (uint64_t)1 << (width - 1);
    if (ht_dtype_is_float(t)) return key_of_float(places && v == sign ? 0 : v, width, infinity_of(t));
    if (t == HT_BOOL) return v != 0;
    return ht_dtype_is_signed(t) ? v ^ sign : v;
}

/* Key for TOP_K: larger elements have smaller keys. */
static __device__ uint64_t falling_key(uint32_t bits) {
    const bool small = (bits & 0x7f800000u) == 0; /* a denormal is a zero, as where the CPU compares floats */
    return ~(uint32_t)key_of_float(small ? 0 : bits, 32, 0x7f800000);
}

static __device__ void store_element(ht_dtype t, void *p, int64_t i, uint64_t key) {
    const int width = width_of(t);
    const uint64_t sign = (uint64_t)1 << (width - 1);
    if (ht_dtype_is_float(t))
        key = key & sign ? key ^ sign : ~key;
    else if (ht_dtype_is_signed(t))
        key ^= sign;
    switch (width) {
    case 8: ((uint8_t *)p)[i] = (uint8_t)key; break;
    case 16: ((uint16_t *)p)[i] = (uint16_t)key; break;
    case 32: ((uint32_t *)p)[i] = (uint32_t)key; break;
    default: ((uint64_t *)p)[i] = key;
    }
}

/* ---- items ---- */

typedef struct place32 {
    uint64_t bits;
} place32;

static __device__ bool comes_first(uint32_t a, uint32_t b) { return a < b; }
static __device__ bool comes_first(uint64_t a, uint64_t b) { return a < b; }
static __device__ bool comes_first(place32 a, place32 b) { return a.bits < b.bits; }
static __device__ bool comes_first(ht_cuda_placed a, ht_cuda_placed b) {
    return a.key < b.key || (a.key == b.key && a.place < b.place);
}

static __device__ void make(uint32_t *item, uint64_t key, int64_t) { *item = (uint32_t)key; }
static __device__ void make(uint64_t *item, uint64_t key, int64_t) { *item = key; }
static __device__ void make(place32 *item, uint64_t key, int64_t i) { item->bits = key << 32 | (uint64_t)i; }
static __device__ void make(ht_cuda_placed *item, uint64_t key, int64_t i) {
    item->key = key;
    item->place = (uint64_t)i;
}

/* Behind all items, or equal to the last. */
static __device__ void make_last(uint32_t *item) { *item = ~(uint32_t)0; }
static __device__ void make_last(uint64_t *item) { *item = ~(uint64_t)0; }
static __device__ void make_last(place32 *item) { item->bits = ~(uint64_t)0; }
static __device__ void make_last(ht_cuda_placed *item) { item->key = item->place = ~(uint64_t)0; }

static __device__ void store(ht_dtype t, void *out, int64_t i, uint32_t item) { store_element(t, out, i, item); }
static __device__ void store(ht_dtype t, void *out, int64_t i, uint64_t item) { store_element(t, out, i, item); }
static __device__ void store(ht_dtype, void *out, int64_t i, place32 item) {
    ((uint32_t *)out)[i] = (uint32_t)item.bits;
}
static __device__ void store(ht_dtype, void *out, int64_t i, ht_cuda_placed item) {
    ((uint32_t *)out)[i] = (uint32_t)item.place;
}

/* ---- merging ---- */

/* How many of the first `diagonal` items of two merged lists come from the first list, which wins ties. */
template <typename T>
static __device__ int64_t split_of(const T *a, int64_t na, const T *b, int64_t nb, int64_t diagonal) {
    int64_t low = diagonal > nb ? diagonal - nb : 0, high = diagonal < na ? diagonal : na;
    while (low < high) {
        const int64_t middle = (low + high) / 2;
        if (comes_first(b[diagonal - 1 - middle], a[middle]))
            high = middle;
        else
            low = middle + 1;
    }
    return low;
}

/* Merges the EACH items of two lists in shared memory from `diagonal` on, or all that remain. */
template <typename T> static __device__ void merge_some(const T *a, int na, const T *b, int nb, int diagonal, T *out) {
    if (diagonal > na + nb) diagonal = na + nb;
    int i = (int)split_of(a, na, b, nb, diagonal), j = diagonal - i;
#pragma unroll
    for (int k = 0; k < EACH; k++) {
        const bool of_b = i >= na || (j < nb && comes_first(b[j], a[i]));
        if (of_b && j >= nb)
            make_last(&out[k]);
        else
            out[k] = of_b ? b[j++] : a[i++];
    }
}

/* Sorts a tile of blockDim.x * EACH items. */
template <typename T> static __device__ void sort_tile(T *tile) {
    T mine[EACH];
    const int first = (int)threadIdx.x * EACH, n = (int)blockDim.x * EACH;
    for (int k = 0; k < EACH; k++) mine[k] = tile[first + k];
#pragma unroll
    for (int round = 0; round < EACH; round++) /* odd-even transposition */
#pragma unroll
        for (int k = round & 1; k + 1 < EACH; k += 2)
            if (comes_first(mine[k + 1], mine[k])) {
                const T other = mine[k];
                mine[k] = mine[k + 1];
                mine[k + 1] = other;
            }
    for (int k = 0; k < EACH; k++) tile[first + k] = mine[k];
    __syncthreads();
    for (int width = EACH; width < n; width *= 2) {
        const int start = first & ~(2 * width - 1);
        merge_some(tile + start, width, tile + start + width, width, first - start, mine);
        __syncthreads();
        for (int k = 0; k < EACH; k++) tile[first + k] = mine[k];
        __syncthreads();
    }
}

/* Writes `count` sorted items of a tile, from index `first` on of a row or a list within it. */
template <typename T>
static __device__ void store_tile(const ht_cuda_sort_arguments &a, const T *tile, int64_t row, int64_t first,
                                  int64_t count) {
    for (int64_t i = threadIdx.x; i < count; i += blockDim.x)
        if (a.to)
            ((T *)a.to)[row * a.n + first + i] = tile[i];
        else if (first + i < a.limit)
            store(a.x.dtype, a.out, row * a.limit + first + i, tile[i]);
}

template <typename T> static __device__ void sort_tiles(const ht_cuda_sort_arguments &a, T *tile, bool places) {
    const int size = (int)blockDim.x * EACH, last = a.x.n_dims - 1;
    const ht_dtype t = a.x.dtype;
    const int width = width_of(t);
    const int64_t tiles = (a.n + size - 1) / size, step = a.x.stride[last];
    for (int64_t at = blockIdx.x; at < a.rows * tiles; at += gridDim.x) {
        const int64_t row = at / tiles, first = at % tiles * size, left = a.n - first;
        const int64_t begin = ht_offset_of(a.x, last, row) + first * step;
        for (int i = (int)threadIdx.x; i < size; i += (int)blockDim.x)
            if (i < left) {
                const uint64_t v = bits_at(width, a.x.data, begin + i * step);
                make(&tile[i], a.largest ? falling_key((uint32_t)v) : key_of(t, v, places), first + i);
            } else {
                make_last(&tile[i]);
            }
        __syncthreads();
        sort_tile(tile);
        store_tile(a, tile, row, first, left < size ? left : size);
        __syncthreads();
    }
}

static inline __device__ int64_t least(int64_t a, int64_t b) { return a < b ? a : b; }

template <typename T> static __device__ void merge_lists(const ht_cuda_sort_arguments &a, T *tile) {
    __shared__ int64_t split[2];
    const int64_t size = (int64_t)blockDim.x * EACH;
    const int64_t pairs = (a.n + 2 * a.width - 1) / (2 * a.width);
    const int64_t tiles = (least(2 * a.width, a.limit) + size - 1) / size; /* of a pair */
    for (int64_t at = blockIdx.x; at < a.rows * pairs * tiles; at += gridDim.x) {
        const int64_t row = at / (pairs * tiles), pair = at / tiles % pairs, first = at % tiles * size;
        const int64_t begin = pair * 2 * a.width, left = a.n - begin;
        const int64_t na = least(least(left, a.width), a.limit);
        const int64_t nb = left > a.width ? least(least(left - a.width, a.width), a.limit) : 0;
        const int64_t count = least(least(na + nb, a.limit) - first, size); /* may be negative */
        const T *one = (const T *)a.from + row * a.n + begin, *other = one + a.width;
        if (threadIdx.x < 2 && count > 0)
            split[threadIdx.x] = split_of(one, na, other, nb, first + (threadIdx.x ? count : 0));
        __syncthreads();
        if (count > 0) {
            const int64_t from_one = split[0], from_other = first - from_one;
            const int n_one = (int)(split[1] - from_one), n_other = (int)count - n_one;
            for (int i = (int)threadIdx.x; i < count; i += (int)blockDim.x)
                tile[i] = i < n_one ? one[from_one + i] : other[from_other + i - n_one];
            __syncthreads();
            T mine[EACH];
            merge_some(tile, n_one, tile + n_one, n_other, (int)threadIdx.x * EACH, mine);
            __syncthreads();
            for (int k = 0; k < EACH; k++) tile[(int)threadIdx.x * EACH + k] = mine[k];
            __syncthreads();
            store_tile(a, tile, row, begin + first, count);
        }
        __syncthreads();
    }
}

HT_CUDA_KERNEL(ht_cuda_sort_tiles, ht_cuda_sort_arguments) {
    HT_CUDA_SHARED(unsigned char, tile);
    switch (a.kind) {
    case HT_CUDA_ITEM_KEY32: sort_tiles(a, (uint32_t *)tile, false); break;
    case HT_CUDA_ITEM_KEY64: sort_tiles(a, (uint64_t *)tile, false); break;
    case HT_CUDA_ITEM_PLACE32: sort_tiles(a, (place32 *)tile, true); break;
    default: sort_tiles(a, (ht_cuda_placed *)tile, true);
    }
}

HT_CUDA_KERNEL(ht_cuda_merge_lists, ht_cuda_sort_arguments) {
    HT_CUDA_SHARED(unsigned char, tile);
    switch (a.kind) {
    case HT_CUDA_ITEM_KEY32: merge_lists(a, (uint32_t *)tile); break;
    case HT_CUDA_ITEM_KEY64: merge_lists(a, (uint64_t *)tile); break;
    case HT_CUDA_ITEM_PLACE32: merge_lists(a, (place32 *)tile); break;
    default: merge_lists(a, (ht_cuda_placed *)tile);
    }
}

/* ---- random numbers ---- */

/* Threefry-2x32 of 20 rounds (cpu/reference/random.c): replaces a pair of counters by a pair of random words. */
static __device__ void threefry(uint32_t key0, uint32_t key1, uint32_t *first, uint32_t *second) {
    const uint32_t keys[3] = {key0, key1, key0 ^ key1 ^ 0x1BD11BDAu};
    const int rotations[8] = {13, 15, 26, 6, 17, 29, 16, 24};
    uint32_t x = *first + keys[0], y = *second + keys[1];
#pragma unroll
    for (int round = 0; round < 20; round++) {
        const int by = rotations[round % 8];
        x += y;
        y = (y << by | y >> (32 - by)) ^ x;
        if (round % 4 != 3) continue;
        const int i = round / 4 + 1;
        x += keys[i % 3];
        y += keys[(i + 1) % 3] + (uint32_t)i;
    }
    *first = x;
    *second = y;
}

static __device__ void store_word(const ht_cuda_random_bits_arguments &a, int64_t i, uint32_t word) {
    if (a.unit)
        ((float *)a.out)[i] = fminf((float)word * 0x1p-32f, 0x1.fffffep-1f);
    else if (a.bytes - 4 * i >= 4)
        ((uint32_t *)a.out)[i] = word;
    else
        for (int64_t k = 4 * i; k < a.bytes; k++, word >>= 8) ((uint8_t *)a.out)[k] = (uint8_t)word;
}

/* A thread has a pair of counters, (i, i + half); for an odd number of words the middle one's second counter is 0. */
HT_CUDA_KERNEL(ht_cuda_random_bits, ht_cuda_random_bits_arguments) {
    const uint32_t *key = (const uint32_t *)a.key.data;
    const uint32_t key0 = key[0], key1 = key[a.key.stride[0]];
    const int64_t n = (a.bytes + 3) / 4, half = (n + 1) / 2;
    for (int64_t i = ht_first(); i < half; i += ht_step()) {
        uint32_t first = (uint32_t)i, second = i + half < n ? (uint32_t)(i + half) : 0;
        threefry(key0, key1, &first, &second);
        store_word(a, i, first);
        if (i + half < n) store_word(a, i + half, second);
    }
}

/* Every partial sum is rounded and depends on the previous one: a block computes the exponentials of part of a row, and
 * one thread adds them. */
HT_CUDA_KERNEL(ht_cuda_random_sums, ht_cuda_random_sums_arguments) {
    enum { PART = 2048, AT_ONCE = 16 };
    __shared__ float part[PART];
    const int last = a.x.n_dims - 1;
    for (int64_t row = blockIdx.x; row < a.rows; row += gridDim.x) {
        const float *from = (const float *)a.x.data + ht_offset_of(a.x, last, row);
        float *to = a.out + row * a.n, sum = 0.0f;
        for (int64_t begin = 0; begin < a.n; begin += PART) {
            const int n = a.n - begin < PART ? (int)(a.n - begin) : PART;
            for (int i = (int)threadIdx.x; i < PART; i += (int)blockDim.x)
                part[i] = i < n ? ht_drawn_exp(from[(begin + i) * a.x.stride[last]]) : 0.0f;
            __syncthreads();
            if (threadIdx.x == 0)
                for (int i = 0; i < n; i += AT_ONCE) {
                    float some[AT_ONCE];
#pragma unroll
                    for (int k = 0; k < AT_ONCE; k++) some[k] = part[i + k];
#pragma unroll
                    for (int k = 0; k < AT_ONCE; k++) part[i + k] = sum += some[k];
                }
            __syncthreads();
            for (int i = (int)threadIdx.x; i < n; i += (int)blockDim.x) to[begin + i] = part[i];
            __syncthreads();
        }
    }
}
