/* Adapters of a step: the arguments of the kernels of cuda/lora.cu. An item is a row of y, or with experts one of a
 * row's m. A run is adjacent items whose sequences have the same adapters; a tile is up to `tile` items of one run. */
#ifndef HT_CUDA_LORA_H
#define HT_CUDA_LORA_H

#include "cuda/fault.h"

/* X(module, kernel) */
#define HT_CUDA_KERNELS_OF_LORA(X)                                                                                     \
    X(lora, ht_cuda_lora_down)                                                                                         \
    X(lora, ht_cuda_lora_up)

enum {
    HT_CUDA_LORA_THREADS = 256, /* of a block */
    HT_CUDA_LORA_TILE = 8,      /* items that share a block's reads of A and B; with experts, each has its own */
    HT_CUDA_LORA_RANKS = 32,    /* of A that a block takes */
    HT_CUDA_LORA_SLAB = 128,    /* ranks of B that are summed before they are added to y */
    HT_CUDA_LORA_OWN = 3072     /* bytes of tables that are passed with the arguments */
};

typedef struct ht_cuda_lora_use {
    const float *a, *b;     /* [n_in, rank], [rank, n_out] of the first expert */
    int64_t a_step, b_step; /* floats from one expert's matrix to the next one's */
    int64_t b_row;          /* floats from one row of B to the next */
    int32_t rank;
    int32_t low; /* ranks of the uses before it */
    float scale;
} ht_cuda_lora_use;

typedef struct ht_cuda_lora_run {
    int64_t item, n;     /* items [item, item + n) */
    int64_t low;         /* index of the first item's products A x; `ranks` of each item */
    int64_t tile;        /* tiles of the runs before */
    int32_t use, n_uses; /* in the table */
    int32_t ranks;
} ht_cuda_lora_run;

typedef struct ht_cuda_lora_arguments {
    ht_cuda_view x, ids;
    float *y;   /* [items, n_out] */
    float *low; /* A x, scaled */
    int64_t n_in, n_out;
    int64_t per_row;   /* items of a row */
    int64_t n_experts; /* 0: dense */
    int32_t tile, n_runs;
    ht_cuda_reporter report;
    const void *table; /* runs, then uses; NULL: at `own` */
    uint64_t own[HT_CUDA_LORA_OWN / 8];
} ht_cuda_lora_arguments;

#endif
