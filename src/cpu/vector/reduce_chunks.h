/* Chunked reductions along the last axis of f32, f16 and bf16 arrays: chunks of a row or column are reduced by
 * themselves, on any thread, and joined in order, so that no result depends on the number of threads. */
#ifndef HT_CPU_VECTOR_REDUCE_CHUNKS_H
#define HT_CPU_VECTOR_REDUCE_CHUNKS_H

#include "cpu/vector/columns.h"
#include "device/kernel.h"

enum {
    HT_CHUNK = 4096,                 /* elements of a row or column */
    HT_CHUNK_COLUMNS = COLUMNS_WIDTH /* side by side, at most */
};

typedef struct ht_part {
    double middle, sum; /* as the reduction defines them */
} ht_part;

typedef struct ht_chunk_ops {
    ht_part (*of_row)(const float *x, int64_t n);
    /* Of w columns side by side, whose n elements are `step` apart: with the bits of rows. */
    void (*of_columns)(ht_dtype t, const void *x, int64_t step, int64_t n, int64_t w, ht_part *to);
    ht_part (*joined)(ht_part a, double n_a, ht_part b, double n_b);
    double (*result)(const ht_call *call, ht_part p, int64_t n);
    int64_t grain;
} ht_chunk_ops;

/* False: dtypes or shape are not of this kind, and nothing was done. */
bool HT_ISA_NAME(ht_reduce_chunks)(const ht_call *call, const ht_chunk_ops *ops);
size_t HT_ISA_NAME(ht_reduce_chunks_scratch)(const ht_call *call);

#endif
