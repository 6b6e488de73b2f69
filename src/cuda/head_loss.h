/* Losses of a head: the arguments of the kernels of cuda/head_loss.cu. */
#ifndef HT_CUDA_HEAD_LOSS_H
#define HT_CUDA_HEAD_LOSS_H

#include "cuda/fault.h"

/* X(module, kernel) */
#define HT_CUDA_KERNELS_OF_HEAD_LOSS(X)                                                                                \
    X(head_loss, ht_cuda_loss_begin)                                                                                   \
    X(head_loss, ht_cuda_loss_sums)                                                                                    \
    X(head_loss, ht_cuda_loss_end)                                                                                     \
    X(head_loss, ht_cuda_loss_gradients)

/* The state of a row of a head's logits, seen slab by slab. */
typedef struct ht_cuda_loss_state {
    double sum;        /* of exp(logit - max) */
    float max, picked; /* the target's logit */
} ht_cuda_loss_state;

typedef struct ht_cuda_loss_arguments {
    ht_cuda_reporter report;
    const int32_t *targets;
    int64_t target_stride, t, vocab;
    float *logits; /* [t, slab]; of rows `row` to `row` + n of the matrix */
    int64_t slab, row, n;
    float scale, softcap;
    ht_cuda_loss_state *state; /* [t] */
    float *out;                /* ht_cuda_loss_end: [2, t] */
    const float *lse, *factor; /* ht_cuda_loss_gradients */
    int64_t lse_stride, factor_stride;
} ht_cuda_loss_arguments;

#endif
