/* Elementwise programs for one kernel that interprets them: device/program.h, without pointers to host memory. */
#ifndef HT_CUDA_ELEMENTWISE_H
#define HT_CUDA_ELEMENTWISE_H

#include "cuda/fault.h"

/* X(module, kernel) */
#define HT_CUDA_KERNELS_OF_ELEMENTWISE(X)                                                                              \
    X(elementwise, ht_cuda_elementwise)                                                                                \
    X(elementwise, ht_cuda_elementwise_quads)

enum { HT_CUDA_STEPS = 32, HT_CUDA_INPUTS = 12, HT_CUDA_OUTPUTS = 6, HT_CUDA_STEP_INPUTS = 3 };

typedef struct ht_cuda_step {
    int16_t op;                                          /* ht_op_id */
    int8_t from, to, n_in, in[HT_CUDA_STEP_INPUTS], out; /* as ht_program_step has them */
    double parameter[3]; /* SCALE and SOFTCAP: the number; NAN_TO_NUM: three; DRAWN: the function */
} ht_cuda_step;

typedef struct ht_cuda_elementwise_arguments {
    int64_t n; /* elements */
    int32_t n_steps, n_in, n_dims;
    bool flat; /* all inputs are contiguous: `shape` and `stride` are not needed */
    /* ht_cuda_elementwise_quads: all f32, n < 2^32; the last axis is a multiple of 4, whose quads in every input are
     * adjacent and 16-byte aligned, or one element */
    int64_t shape[HT_CUDA_DIMS];
    const void *in[HT_CUDA_INPUTS];
    int64_t stride[HT_CUDA_INPUTS][HT_CUDA_DIMS];
    int8_t in_type[HT_CUDA_INPUTS];
    void *out[HT_CUDA_OUTPUTS];
    ht_cuda_step step[HT_CUDA_STEPS];
} ht_cuda_elementwise_arguments;

#endif
