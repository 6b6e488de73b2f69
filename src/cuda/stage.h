/* Row-wise calls of a fused stage (device/stage.h) as one kernel: the arguments of cuda/stage.cu. */
#ifndef HT_CUDA_STAGE_H
#define HT_CUDA_STAGE_H

#include "cuda/tensor_product.h"

/* X(module, kernel) */
#define HT_CUDA_KERNELS_OF_STAGE(X) X(stage, ht_cuda_stage_rows) X(stage, ht_cuda_stage_few)

enum {
    HT_CUDA_STAGE_STEPS = 8,
    HT_CUDA_STAGE_OPERANDS = 2,
    HT_CUDA_STAGE_QUADS = 4,     /* that a thread has at a time */
    HT_CUDA_STAGE_THREADS = 512, /* of a block at most */
    HT_CUDA_STAGE_BLOCKS = 8,    /* of a cluster that has a row of few */
};

/* One call, of rows of one width. */
typedef struct ht_cuda_stage_step {
    int32_t op; /* RMS_NORM, or elementwise */
    int32_t n_in;
    const float *in[HT_CUDA_STAGE_OPERANDS]; /* NULL: the previous step's result */
    int64_t stride[HT_CUDA_STAGE_OPERANDS];  /* elements from row to row */
    float *out;                              /* [n, width]; NULL: only the next step reads it */
    float eps, weight_offset;                /* of RMS_NORM, whose second operand is the weight */
} ht_cuda_stage_step;

/* Steps that each read the previous result. Without steps, `x` itself becomes the swizzled operand. */
typedef struct ht_cuda_stage_arguments {
    ht_cuda_stage_step step[HT_CUDA_STAGE_STEPS];
    int32_t n_steps;
    const float *x;
    int64_t n, ldx, width; /* a multiple of 4 */
    ht_cuda_swizzled to;   /* of the last step's output, if it has rows */
} ht_cuda_stage_arguments;

#endif
