/* Attention of arrays, SDPA and ATTEND_ROWS, and its gradient: the arguments of the kernels of cuda/attention.cu. Flat
 * rows are one batch, in which each query has its own range of keys. */
#ifndef HT_CUDA_ATTENTION_H
#define HT_CUDA_ATTENTION_H

#include "cuda/fault.h"

/* X(module, kernel): f32 computes for f16, bf16 and f32. */
#define HT_CUDA_KERNELS_OF_ATTENTION(X)                                                                                \
    X(attention, ht_cuda_attention_f32)                                                                                \
    X(attention, ht_cuda_attention_f64)                                                                                \
    X(attention, ht_cuda_attention_softmax_f32)                                                                        \
    X(attention, ht_cuda_attention_softmax_f64)                                                                        \
    X(attention, ht_cuda_attention_grad_q_f32)                                                                         \
    X(attention, ht_cuda_attention_grad_q_f64)                                                                         \
    X(attention, ht_cuda_attention_grad_k_f32)                                                                         \
    X(attention, ht_cuda_attention_grad_k_f64)                                                                         \
    X(attention, ht_cuda_attention_grad_v_f32) X(attention, ht_cuda_attention_grad_v_f64)

enum {
    HT_CUDA_ATTENTION_SIDE = 16,     /* a block has SIDE x SIDE threads */
    HT_CUDA_ATTENTION_TILE_F32 = 64, /* queries and keys of a tile */
    HT_CUDA_ATTENTION_TILE_F64 = 32,
    HT_CUDA_ATTENTION_WIDE = 128, /* dimensions of a result that a block computes */
    HT_CUDA_ATTENTION_STATS = 3   /* numbers of a query's softmax */
};

typedef struct ht_cuda_attention_arguments {
    ht_cuda_view q, k, v;      /* [B, heads, n, d] */
    ht_cuda_view mask, sinks;  /* n_dims is -1 if absent */
    ht_cuda_view result, grad; /* of a gradient: [B, heads, n, dv] */
    ht_cuda_view out, out_k;   /* the result, or the gradients of q and k */
    ht_cuda_view out_v;
    ht_cuda_view own, first; /* of flat rows: the last key of each query, and the first of its sequence */
    void *stats; /* of a gradient: [B, heads, n][3], f32 or f64: largest score, 1 / sum, sum(weight * gradient) */
    bool flat_rows, causal;
    bool chunked;   /* kind of window of flat rows */
    bool two_sided; /* flat rows: query i is row i, and its window begins before it */
    int64_t window; /* 0: none */
    float scale, softcap;
    ht_cuda_reporter report;
} ht_cuda_attention_arguments;

#endif
