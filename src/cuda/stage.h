/* Row-wise calls of a fused stage (device/stage.h) as one kernel: the arguments of cuda/stage.cu. */
#ifndef HT_CUDA_STAGE_H
#define HT_CUDA_STAGE_H

#include "cuda/tensor_product.h"

/* X(module, kernel) */
#define HT_CUDA_KERNELS_OF_STAGE(X) X(stage, ht_cuda_stage_rows)

enum { HT_CUDA_STAGE_STEPS = 8, HT_CUDA_STAGE_OPERANDS = 2 };

/* One call, of rows of one width. */
typedef struct ht_cuda_stage_step {
    int32_t op; /* RMS_NORM, or elementwise */
    int32_t n_in;
    int32_t slot[HT_CUDA_STAGE_OPERANDS]; /* of the block's shared memory, that an operand is in; -1: it is at `in` */
    const float *in[HT_CUDA_STAGE_OPERANDS];
    int64_t stride[HT_CUDA_STAGE_OPERANDS]; /* elements from row to row */
    int32_t to_slot;                        /* -1: nobody reads it here */
    float *out;                             /* [n, width]; NULL: only this kernel reads it */
    float eps, weight_offset;               /* of RMS_NORM, whose second operand is the weight */
} ht_cuda_stage_step;

typedef struct ht_cuda_stage_arguments {
    ht_cuda_stage_step step[HT_CUDA_STAGE_STEPS];
    int32_t n_steps;
    int64_t n, width; /* a multiple of 4 */
    ht_cuda_image to; /* of the last step's output, if it has rows */
} ht_cuda_stage_arguments;

#endif
