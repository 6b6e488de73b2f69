/* Laying out rows of weights on the GPU: the arguments of the kernel of cuda/lay_out.cu. */
#ifndef HT_CUDA_LAY_OUT_H
#define HT_CUDA_LAY_OUT_H

#include "cuda/matrix_move.h"

/* X(module, kernel) */
#define HT_CUDA_KERNELS_OF_LAY_OUT(X) X(lay_out, ht_cuda_lay_out)

/* Rows at distances of stored_bytes and row_bytes, the latter filled with zeros. */
typedef struct ht_cuda_lay_out_arguments {
    ht_cuda_row first;
    int64_t n, stored_bytes, row_bytes;
} ht_cuda_lay_out_arguments;

#endif
