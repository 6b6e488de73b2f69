/* What cpu/matrix.c puts together: the ops of one instruction set with its kernels, and the products behind them. */
#ifndef HT_CPU_MATRIX_OPS_H
#define HT_CPU_MATRIX_OPS_H

#include "cpu/matrix_kernels.h"

/* The row of the table a matrix points at. */
typedef struct ht_cpu_ops {
    ht_matrix_ops base;
    const ht_matrix_kernels *kernels;
    bool split; /* the form of cpu/split.h */
} ht_cpu_ops;

static inline const ht_matrix_kernels *ht_kernels_of(const ht_matrix *m) {
    return ((const ht_cpu_ops *)(const void *)m->ops)->kernels;
}

static inline bool ht_is_split(const ht_matrix *m) { return ((const ht_cpu_ops *)(const void *)m->ops)->split; }

/* One of several products with the same activations: y = W x + bias. */
typedef struct ht_product {
    const ht_matrix *m;
    const float *bias; /* NULL: none */
    float *y;
    int64_t ldy;
    int32_t top_k; /* as mul_top; 0: all outputs are wanted */
} ht_product;

enum { HT_MAX_PRODUCTS = 8 };

/* Products with quantised weights, all of them with the same kernels and k. The activations are given tile by tile
 * (ht_quantised_take, from any thread), each once; then all matrices are multiplied in one go. */
typedef struct ht_quantised {
    const ht_matrix_kernels *kernels;
    int n; /* 1 to HT_MAX_PRODUCTS */
    const ht_product *product;
    ht_qrows x;
    char *offset[HT_MAX_PRODUCTS]; /* of all tiles, shared by products of one type */
    char *decoded;                 /* tile_panels ht_qpanel per worker */
    char *top;                     /* what ht_split_top works in */
} ht_quantised;

size_t ht_quantised_scratch(const ht_product *product, int n, int64_t n_x, int n_threads);
/* n_x > 0; `scratch` is 64-byte aligned and, like `product`, lives as long as *s. */
void ht_quantised_begin(ht_quantised *s, const ht_product *product, int n, int64_t n_x, void *scratch);
/* The rows of one tile (ht_qtile_first, ht_qtile_rows); x is row 0. */
void ht_quantised_take(const ht_quantised *s, int64_t tile, const float *x, int64_t ldx);
void ht_quantised_multiply(const ht_quantised *s, ht_pool *pool);

/* The functions of ht_matrix_ops. */
size_t ht_fast_scratch(const ht_matrix *m, int64_t n_x, int n_threads);
void ht_fast_mul(const ht_matrix *m, const float *x, int64_t ldx, int64_t n_x, const float *bias, float *y, int64_t ldy,
                 void *scratch, ht_pool *pool);
void ht_fast_mul_top(const ht_matrix *m, int32_t top_k, const float *x, int64_t ldx, int64_t n_x, const float *bias,
                     float *y, int64_t ldy, void *scratch, ht_pool *pool);
size_t ht_dense_scratch(const ht_matrix *m, int64_t n_x, int n_threads);
void ht_dense_mul(const ht_matrix *m, const float *x, int64_t ldx, int64_t n_x, const float *bias, float *y,
                  int64_t ldy, void *scratch, ht_pool *pool);
size_t ht_half_scratch(const ht_matrix *m, int64_t n_x, int n_threads);
void ht_half_mul(const ht_matrix *m, const float *x, int64_t ldx, int64_t n_x, const float *bias, float *y, int64_t ldy,
                 void *scratch, ht_pool *pool);
/* 8-bit floats: a row with its scales, and columns [column, column + n) of the panel of rows [row, row + 16) as f32
 * [n][16]. */
ht_status ht_f8_row(const ht_matrix *m, int64_t row, float *out, ht_error *err);
void ht_f8_widen(const ht_matrix *m, int64_t row, int64_t column, int n, float *to);
size_t ht_stored_bytes(ht_weight_type type, int64_t n_rows, int64_t k);
void ht_stored_pack(ht_matrix *m, int64_t row, int64_t n, const void *stored);
ht_status ht_stored_row(const ht_matrix *m, int64_t row, float *out, ht_error *err);
size_t ht_reference_scratch(const ht_matrix *m, int64_t n_x, int n_threads);
void ht_reference_mul(const ht_matrix *m, const float *x, int64_t ldx, int64_t n_x, const float *bias, float *y,
                      int64_t ldy, void *scratch, ht_pool *pool);

#endif
