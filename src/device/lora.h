/* LoRA adapters as operands of a step: sequences may use different ones, so they are not constants of a plan.
 *
 * y = y + scale * B (A x), summed over the adapters of the row's sequence (Hu et al., 2021) */
#ifndef HT_DEVICE_LORA_H
#define HT_DEVICE_LORA_H

#include <stdint.h>

struct ht_step;
struct ht_lora_params;

enum { HT_LORA_SPARE = 16 }; /* readable floats after the last value of A and of B; kernels ignore their values */

/* The matrices of one adapter for one projection, both transposed; with experts, of all experts one after another. */
typedef struct ht_lora_pair {
    int64_t n_experts; /* 0: dense */
    int64_t rank, n_in, n_out;
    const float *a; /* [n_in, rank] */
    const float *b; /* [rank, n_out] */
    /* A [rank, n_in] and B [n_out, rank], for projections of heads, which also multiply transposed; else NULL. */
    const float *a_rows, *b_rows;
} ht_lora_pair;

/* The matrices of an operation with a pair: x times A [k, rank], then times B [rank, n]. */
typedef struct ht_lora_matrices {
    const float *a, *b;
    int64_t a_step, b_step; /* floats from one expert's or head's matrix to the next one's */
    int64_t b_row;          /* floats from one row of B to the next */
} ht_lora_matrices;

ht_lora_matrices ht_lora_matrices_of(const ht_lora_pair *pair, const struct ht_lora_params *p);

/* One adapter at one projection. */
typedef struct ht_lora_use {
    const ht_lora_pair *pair; /* NULL: the adapter does not change the projection */
    float scale;
} ht_lora_use;

/* The adapters of a sequence. Sums are in their order. */
typedef struct ht_lora_set {
    int32_t n;
    const ht_lora_use *use; /* [projections of the model][n] */
} ht_lora_set;

/* Adjacent rows of an operation whose sequences have the same matrices at a projection. */
typedef struct ht_lora_run {
    const ht_lora_use *use; /* NULL: none */
    int32_t n_uses;
    int64_t first, n;
} ht_lora_run;

/* The run of rows that begins at `row`. *sequence is the row's sequence or an earlier one, and advances to it. n_rows
 * is the operation's row count: all rows of the step, or its output rows. */
ht_lora_run ht_lora_next_run(const struct ht_step *step, int64_t projection, int64_t n_rows, int64_t row,
                             int32_t *sequence);

#endif
