/* Reductions, scans and softmax: the arguments of the kernels of cuda/reduce.cu. */
#ifndef HT_CUDA_REDUCE_H
#define HT_CUDA_REDUCE_H

#include "cuda/rows.h"

/* X(module, kernel). Reductions are of rows or their chunks, or join the chunks of each row. */
#define HT_CUDA_KERNELS_OF_REDUCE(X)                                                                                   \
    X(reduce, ht_cuda_sum_float)                                                                                       \
    X(reduce, ht_cuda_sum_int)                                                                                         \
    X(reduce, ht_cuda_prod_float)                                                                                      \
    X(reduce, ht_cuda_prod_int)                                                                                        \
    X(reduce, ht_cuda_extreme)                                                                                         \
    X(reduce, ht_cuda_var)                                                                                             \
    X(reduce, ht_cuda_exp_sum_f32)                                                                                     \
    X(reduce, ht_cuda_exp_sum_f64)                                                                                     \
    HT_CUDA_FLOATS(X, reduce, ht_cuda_softmax)                                                                         \
    X(reduce, ht_cuda_softmax_of_sums)                                                                                 \
    X(reduce, ht_cuda_scan_float)                                                                                      \
    X(reduce, ht_cuda_scan_int)                                                                                        \
    X(reduce, ht_cuda_scan_affine)

/* Threads of a block, and of one output in columns; adjacent columns are adjacent threads. */
enum { HT_CUDA_REDUCE_THREADS = 256, HT_CUDA_COLUMN_TEAM = 8, HT_CUDA_COLUMNS = 32 };
/* Elements that a thread loads before it uses the first. */
enum { HT_CUDA_REDUCE_GROUP = 8 };
/* Bytes of an accumulator at most. */
enum { HT_CUDA_ACCUMULATOR_BYTES = 24 };

/* out[row] = reduction of n elements. The accumulators of a row's chunks are in `part`. SOFTMAX: kernels leave an
 * accumulator of every row in `sums`; out[row, i] = exp(x - max) / sum. */
typedef struct ht_cuda_reduce_arguments {
    ht_cuda_rows in;
    void *out, *part, *sums;
    int64_t n_rows, n, chunk, n_chunks;
    int64_t inner; /* SOFTMAX: elements from one to the next of a row of `out` */
    int32_t op, ddof;
    ht_dtype out_dtype;
    int32_t team; /* threads of a row, a power of 2 */
    bool columns; /* adjacent threads have adjacent rows */
    bool joins;
} ht_cuda_reduce_arguments;

/* Softmax of rows that a team keeps in registers. */
typedef struct ht_cuda_softmax_arguments {
    ht_cuda_rows in, out;
    int64_t n_rows, n;
    int32_t team;
} ht_cuda_softmax_arguments;

/* Phase of a scan over lines in chunks: lines of one chunk need only the last phase. */
typedef enum ht_cuda_scan_phase {
    HT_CUDA_SCAN_TOTALS, /* part[line, chunk] = the chunk's total */
    HT_CUDA_SCAN_PARTS,  /* part[line, chunk] = the total of the chunks before */
    HT_CUDA_SCAN_LINES,
} ht_cuda_scan_phase;

/* Elements that a block scans at a time, elements of a chunk of a line, and the longest line that one thread scans. */
enum {
    HT_CUDA_SCAN_TILE = 8 * HT_CUDA_REDUCE_THREADS,
    HT_CUDA_SCAN_CHUNK = 4 * HT_CUDA_SCAN_TILE,
    HT_CUDA_SCAN_SHORT = 64,
};

/* Scans along lines of n elements, element i of `out` at i * inner. RECURRENCE also has the factors `by`. */
typedef struct ht_cuda_scan_arguments {
    ht_cuda_rows in, by;
    void *out, *part;
    int64_t n_lines, n, inner, chunk, n_chunks;
    int32_t op, phase;
    ht_dtype dtype;
    bool reverse, inclusive;
    bool by_threads; /* a thread scans a chunk, of adjacent lines; else a block does */
} ht_cuda_scan_arguments;

#endif
