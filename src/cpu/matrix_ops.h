/* What cpu/matrix.c puts together: the ops of one instruction set with its kernels, and the products behind them. */
#ifndef HT_CPU_MATRIX_OPS_H
#define HT_CPU_MATRIX_OPS_H

#include "cpu/matrix_kernels.h"

/* The row of the table a matrix points at. */
typedef struct ht_cpu_ops {
    ht_matrix_ops base;
    const ht_matrix_kernels *kernels;
} ht_cpu_ops;

static inline const ht_matrix_kernels *ht_kernels_of(const ht_matrix *m) {
    return ((const ht_cpu_ops *)(const void *)m->ops)->kernels;
}

/* n rows of k columns, k a multiple of 32. `memory` is 64-byte aligned and lives as long as *out. */
size_t ht_quantised_bytes(int64_t n, int64_t k);
void ht_quantise_rows(const ht_matrix_kernels *kernels, const float *x, int64_t ldx, int64_t n, int64_t k, void *memory,
                      ht_pool *pool, ht_qrows *out);
/* y = W x for activations already quantised by the kernels of m. */
size_t ht_mul_quantised_scratch(const ht_matrix *m, int64_t n_x, int n_threads);
void ht_mul_quantised(const ht_matrix *m, const ht_qrows *x, const float *bias, float *y, int64_t ldy, void *scratch,
                      ht_pool *pool);

/* The functions of ht_matrix_ops. */
size_t ht_fast_scratch(const ht_matrix *m, int64_t n_x, int n_threads);
void ht_fast_mul(const ht_matrix *m, const float *x, int64_t ldx, int64_t n_x, const float *bias, float *y, int64_t ldy,
                 void *scratch, ht_pool *pool);
size_t ht_dense_scratch(const ht_matrix *m, int64_t n_x, int n_threads);
void ht_dense_mul(const ht_matrix *m, const float *x, int64_t ldx, int64_t n_x, const float *bias, float *y,
                  int64_t ldy, void *scratch, ht_pool *pool);
size_t ht_stored_bytes(ht_weight_type type, int64_t n_rows, int64_t k);
void ht_stored_pack(ht_matrix *m, int64_t row, int64_t n, const void *stored);
void ht_stored_row(const ht_matrix *m, int64_t row, float *out);
size_t ht_reference_scratch(const ht_matrix *m, int64_t n_x, int n_threads);
void ht_reference_mul(const ht_matrix *m, const float *x, int64_t ldx, int64_t n_x, const float *bias, float *y,
                      int64_t ldy, void *scratch, ht_pool *pool);

#endif
