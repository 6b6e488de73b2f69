/* Sorting, the largest elements, and random numbers: the arguments of the kernels of cuda/sort.cu. */
#ifndef HT_CUDA_SORT_H
#define HT_CUDA_SORT_H

#include "cuda/fault.h"

/* X(module, kernel) */
#define HT_CUDA_KERNELS_OF_SORT(X)                                                                                     \
    X(sort, ht_cuda_sort_tiles)                                                                                        \
    X(sort, ht_cuda_merge_lists)                                                                                       \
    X(sort, ht_cuda_random_bits)                                                                                       \
    X(sort, ht_cuda_random_sums)

/* Items to sort: an element's key, alone or with its index in the row, which makes items distinct. */
typedef enum ht_cuda_item_kind {
    HT_CUDA_ITEM_KEY32,   /* u32 */
    HT_CUDA_ITEM_KEY64,   /* u64 */
    HT_CUDA_ITEM_PLACE32, /* u64: a 32-bit key above the index */
    HT_CUDA_ITEM_PLACE64  /* ht_cuda_placed */
} ht_cuda_item_kind;

typedef struct ht_cuda_placed {
    uint64_t key, place;
} ht_cuda_placed;

/* A block sorts HT_CUDA_SORT_EACH items per thread in shared memory. */
enum { HT_CUDA_SORT_EACH = 8, HT_CUDA_SORT_THREADS = 256 };

/* Rows are sorted in tiles, whose sorted lists are then merged two by two. */
typedef struct ht_cuda_sort_arguments {
    ht_cuda_view x; /* the last axis is sorted */
    void *out;      /* [rows, limit] elements of x's dtype, or 32-bit indices */
    int64_t rows, n;
    int64_t limit;   /* number of leading items needed of each row */
    int32_t kind;    /* ht_cuda_item_kind */
    bool largest;    /* the largest come first, and denormals are zeros, as for TOP_K */
    void *from, *to; /* items [rows, n]; `to` is NULL in the step that writes `out` */
    int64_t width;   /* items of the lists that are merged */
} ht_cuda_sort_arguments;

typedef struct ht_cuda_random_bits_arguments {
    ht_cuda_view key;
    void *out;
    int64_t bytes;
    bool unit; /* f32 in [0, 1) instead of words */
} ht_cuda_random_bits_arguments;

typedef struct ht_cuda_random_sums_arguments {
    ht_cuda_view x;
    float *out;
    int64_t rows, n;
} ht_cuda_random_sums_arguments;

#endif
