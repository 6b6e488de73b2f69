/* Chunked reductions along an axis of f32, f16 and bf16 arrays: chunks of rows or columns are reduced independently and
 * combined in order, so results do not depend on the number of threads. */
#ifndef HT_CPU_VECTOR_REDUCE_CHUNKS_H
#define HT_CPU_VECTOR_REDUCE_CHUNKS_H

#include "cpu/vector/lanes.h"
#include "cpu/vector/reduce.h"
#include "device/kernel.h"

enum {
    HT_CHUNK = HT_REDUCE_BLOCK, /* elements per chunk of a row or column */
    HT_CHUNK_COLUMNS = 256      /* most adjacent columns at a time */
};

typedef struct ht_partial {
    double center, sum; /* meaning defined by the reduction */
} ht_partial;

/* Functions of one reduction. */
typedef struct ht_chunk_ops {
    ht_partial (*reduce_row)(const float *x, int64_t n);
    ht_partial (*combine)(ht_partial a, ht_partial b);
    double (*result)(ht_partial p, int64_t n);
    int64_t grain;
} ht_chunk_ops;

/* Runs a chunked reduction. Returns false, computing nothing, if the dtypes or the shape are unsupported. */
bool HT_ISA_NAME(ht_reduce_chunks)(const ht_call *call, const ht_chunk_ops *ops);
size_t HT_ISA_NAME(ht_reduce_chunks_scratch)(const ht_call *call);

#endif
