/* Indexing, gathering and scattering slices: the arguments of the kernels of cuda/index.cu.
 *
 * Updates are stably sorted by destination before they are combined, and one thread combines those of an element in
 * sequence. The result is the reference's for any mode and dtype, and does not depend on thread order. A sorted item is
 * a 64-bit number: the destination's index above, the update's in the low `shift` bits. Slices of several elements
 * along an indexed axis may overlap in part, so each element is an update. */
#ifndef HT_CUDA_INDEX_H
#define HT_CUDA_INDEX_H

#include "cuda/fault.h"

/* X(module, kernel) */
#define HT_CUDA_KERNELS_OF_INDEX(X)                                                                                    \
    X(index, ht_cuda_take)                                                                                             \
    X(index, ht_cuda_index_items)                                                                                      \
    X(index, ht_cuda_scatter_set)                                                                                      \
    X(index, ht_cuda_scatter_combine)

/* Indices into one axis, one per row or item; index i adds i * stride. */
typedef struct ht_cuda_index {
    ht_cuda_view view;    /* over the rows or items; absent: n_dims is -1 */
    int64_t size, length; /* of the axis; -size <= i < length are valid */
    int64_t stride;
    int64_t repeat, n; /* index number of a row or an item: number / repeat % n */
    int32_t axis;
    ht_cuda_reporter reporter;
} ht_cuda_index;

/* out[row] = slice of x at the row's base plus its index plus `offset` of earlier indices. In words of `bytes` bytes,
 * at most 16, as are all strides. */
typedef struct ht_cuda_take_arguments {
    int64_t rows, size; /* words of a slice */
    ht_cuda_index index;
    const int64_t *offset; /* [index.n]; NULL: there is one index */
    ht_cuda_view base;     /* x over the rows, without the indexed axis */
    ht_cuda_view slice;    /* x over a slice */
    void *out;
    int32_t bytes;
} ht_cuda_take_arguments;

/* items[i] = first + base(i) + index(i), or adds the index. The low `shift` bits are i, if there are any. */
typedef struct ht_cuda_items_arguments {
    int64_t n;
    ht_cuda_index index;
    ht_cuda_view base; /* strides over the items; no data */
    int64_t first;
    int64_t *items; /* NULL: indices are only checked */
    int32_t shift;
    bool add;
} ht_cuda_items_arguments;

/* out[destination of an item] = update, or that combined with it. */
typedef struct ht_cuda_scatter_arguments {
    int64_t n, size; /* items, and elements or words of each */
    const uint64_t *items;
    ht_cuda_view to, from;             /* out over destinations, updates over items */
    ht_cuda_view to_slice, from_slice; /* of one shape */
    int32_t shift, bytes;              /* bytes: of a word that is set, up to 16 */
    int32_t mode;                      /* ht_scatter_mode */
    ht_dtype dtype;
} ht_cuda_scatter_arguments;

#endif
