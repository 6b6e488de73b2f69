/* Matrix operation tables, which cpu/matrix.c assembles: the ops of one instruction set with its kernels, and the
 * products that implement them. */
#ifndef HT_CPU_MATRIX_OPS_H
#define HT_CPU_MATRIX_OPS_H

#include "cpu/matrix_kernels.h"

/* A product: y[i][r] = sum_k x[i][k] * w[r][k] + bias[r] for i < n_x and all rows r. */
typedef struct ht_product {
    const ht_matrix *m;
    const float *x;
    int64_t ldx, n_x;  /* ldx and ldy: distance of rows in elements */
    const float *bias; /* NULL: none */
    float *y;
    int64_t ldy;
    int32_t
        top_k; /* only the top_k highest outputs of each row of y, and all equal to the lowest of these, are needed: any
                      other may be HT_MASKED_LOGIT instead. 0: all */
} ht_product;

/* The row of the table a matrix points at. */
typedef struct ht_cpu_ops {
    ht_matrix_ops base;

    /* Products take activations that are quantised row by row as the rows are computed (device/stage.h). */
    bool takes_rows_once;

    /* Scratch bytes of `mul` for n_x rows: enough for fewer, too, but for one of a coarse head. */
    size_t (*mul_scratch)(const ht_matrix *m, int64_t n_x, int n_threads);

    /* The bits of y[i][r] depend only on x[i], w[r], bias[r] and k: never on n_x, i, other rows or the number of threads. */
    void (*mul)(const ht_product *p, void *scratch, ht_pool *pool);

    const ht_matrix_kernels *kernels;
    bool coarse_head; /* the form of cpu/coarse_head.h */
    bool high;        /* activations in two planes */
} ht_cpu_ops;

static inline const ht_cpu_ops *ht_cpu_ops_of(const ht_matrix *m) { return (const ht_cpu_ops *)(const void *)m->ops; }
static inline const ht_matrix_kernels *ht_kernels_of(const ht_matrix *m) { return ht_cpu_ops_of(m)->kernels; }
static inline bool ht_is_coarse_head(const ht_matrix *m) { return ht_cpu_ops_of(m)->coarse_head; }
static inline bool ht_is_high(const ht_matrix *m) { return ht_cpu_ops_of(m)->high; }

/* The functions of ht_cpu_ops. */
size_t ht_fast_scratch(const ht_matrix *m, int64_t n_x, int n_threads);
void ht_fast_mul(const ht_product *p, void *scratch, ht_pool *pool);
size_t ht_dense_scratch(const ht_matrix *m, int64_t n_x, int n_threads);
void ht_dense_mul(const ht_product *p, void *scratch, ht_pool *pool);
ht_status ht_f8_row(const ht_matrix *m, int64_t row, float *out, ht_error *err);
size_t ht_stored_bytes(ht_weight_type type, int64_t n_rows, int64_t k);
ht_status ht_stored_pack(ht_matrix *m, int64_t row, int64_t n, const void *stored, ht_error *err);
ht_status ht_stored_row(const ht_matrix *m, int64_t row, float *out, ht_error *err);
size_t ht_reference_scratch(const ht_matrix *m, int64_t n_x, int n_threads);
void ht_reference_mul(const ht_product *p, void *scratch, ht_pool *pool);

/* y = x W, with x [n_x, n_rows] and y [n_x, k], for a matrix of any type and precision: exact weights in f32, each sum in the
 * order of the rows of W whatever n_x and the threads. */
size_t ht_back_scratch(const ht_matrix *m, int n_threads);
void ht_back_mul(const ht_product *p, void *scratch, ht_pool *pool);

#endif
