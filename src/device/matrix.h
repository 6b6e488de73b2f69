/* Packed weights, in the form a device multiplies by, packed once at load, bijectively: the stored values can be had
 * back exactly. One row of ht_matrix_ops exists per weight type, precision and device; one for output heads whose
 * highest outputs are wanted most often; and one for tables that stay in their file, which have rows but no products
 * (models/file_rows.h). */
#ifndef HT_DEVICE_MATRIX_H
#define HT_DEVICE_MATRIX_H

#include "base/pool.h"
#include "formats/weight_type.h"

#include <hearth/precision.h>
#include <hearth/status.h>

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct ht_matrix ht_matrix;

typedef struct ht_matrix_ops {
    const char *name; /* for messages and benchmarks: "Q4_1 panels (avx512)" */

    /* In a chain the activations are read once, a few rows at a time, while they are made: they need not be kept. */
    bool takes_rows_once;

    /* Bytes of the packed form of n_rows x k. At most 3 % more than in the file. */
    size_t (*packed_bytes)(ht_weight_type type, int64_t n_rows, int64_t k);

    /* Packs rows [row, row + n) from their stored form (rows one after another, as in the file) into m->packed. Row
     * ranges are packed independently, so that slabs can go to several threads: `row` is a multiple of HT_MATRIX_SLAB,
     * and n is too, or reaches the last row. */
    void (*pack)(ht_matrix *m, int64_t row, int64_t n, const void *stored);

    /* Exact f32 values of row `row`, [k]. Fails only where rows are not in memory. Thread-safe. */
    ht_status (*row)(const ht_matrix *m, int64_t row, float *out, ht_error *err);

    /* Scratch bytes that `mul` needs for n_x rows. */
    size_t (*mul_scratch)(const ht_matrix *m, int64_t n_x, int n_threads);

    /* y[i][r] = sum_k x[i][k] * w[r][k] (+ bias[r] when bias is not NULL) for i < n_x and all rows r; ldx and ldy are
     * the distances between rows in elements. An output's bits depend on x[i], w[r], bias[r] and k alone: not on n_x,
     * i, the thread count or the other rows. */
    void (*mul)(const ht_matrix *m, const float *x, int64_t ldx, int64_t n_x, const float *bias, float *y, int64_t ldy,
                void *scratch, ht_pool *pool);

    /* NULL: there is no faster way than `mul`. As `mul`, with its scratch, but only the top_k highest of each row of y,
     * and what equals the lowest of them, need to be there: what is not is HT_LEFT_OUT, and lower than all of them. */
    void (*mul_top)(const ht_matrix *m, int32_t top_k, const float *x, int64_t ldx, int64_t n_x, const float *bias,
                    float *y, int64_t ldy, void *scratch, ht_pool *pool);
    /* Bytes of the packed form that `mul_top` reads in any case. */
    size_t (*top_bytes)(const ht_matrix *m);
} ht_matrix_ops;

/* In the place of an output that nobody needs: finite, so that a row with it can be searched and scaled. */
#define HT_LEFT_OUT (-1e30f)

enum { HT_MATRIX_SLAB = 64 };

struct ht_matrix {
    const ht_matrix_ops *ops;
    ht_weight_type type;
    int64_t n_rows, k; /* y = W x with W [n_rows, k] */
    void *packed;      /* 64-byte aligned; NULL: not in memory */
    size_t packed_bytes;
    bool lent; /* `packed` belongs to someone else */
    /* Of 8-bit floats: what weight (r, c) is multiplied by, scales[r / scale_rows * n + c / scale_columns] with n scales to
     * a row; malloc'ed, owned. NULL: nothing. */
    float *scales;
    int64_t scale_rows, scale_columns;
};

/* Matrices of one shape, of which each row of activations is multiplied by a few. */
typedef struct ht_matrix_list {
    ht_matrix **matrix; /* [n], and behind them [n_kinds] one of each weight type there is among them */
    int32_t n, n_kinds;
} ht_matrix_list;

/* Fills in what stands behind the n matrices, in memory for as many again: who multiplies needs not look at all. */
static inline void ht_matrix_list_find_kinds(ht_matrix_list *l) {
    ht_matrix **kind = l->matrix + l->n;
    l->n_kinds = 0;
    for (int32_t i = 0, k; i < l->n; i++) {
        for (k = 0; k < l->n_kinds && kind[k]->type != l->matrix[i]->type; k++) {}
        if (k == l->n_kinds) kind[l->n_kinds++] = l->matrix[i];
    }
}

#endif
