/* The highest logits of rows: the arguments of the kernels of cuda/top.cu. */
#ifndef HT_CUDA_TOP_H
#define HT_CUDA_TOP_H

#include <stdint.h>

/* X(module, kernel) */
#define HT_CUDA_KERNELS_OF_TOP(X)                                                                                      \
    X(top, ht_cuda_top_of_segments)                                                                                    \
    X(top, ht_cuda_top_of_rows)

/* A block selects at least k of the highest values of a row's segment, HT_CUDA_TOP_EACH values per thread. Allowing
 * some extra candidates saves comparisons. Another block selects the row's highest values among these candidates. */
enum {
    HT_CUDA_TOP_THREADS = 512,
    HT_CUDA_TOP_EACH = 8,
    HT_CUDA_TOP_SEGMENT = HT_CUDA_TOP_THREADS * HT_CUDA_TOP_EACH,
    HT_CUDA_TOP_ROW_THREADS = 1024,
    HT_CUDA_TOP_ROW_EACH = 16,
    HT_CUDA_TOP_CANDIDATES = HT_CUDA_TOP_ROW_THREADS * HT_CUDA_TOP_ROW_EACH, /* of a row, at most */
    HT_CUDA_TOP_MOST = 256,
    HT_CUDA_TOP_MORE = 32
};

typedef struct ht_cuda_top_arguments {
    const float *x; /* [rows, n] */
    int64_t rows, n;
    int32_t k, segments;  /* of a row */
    int32_t room;         /* for the candidates of a segment */
    uint64_t *candidates; /* [rows, segments, room] ranks, 0 for unused entries */
    float *value;         /* [rows, k] */
    int32_t *id;          /* [rows, k] */
} ht_cuda_top_arguments;

#endif
