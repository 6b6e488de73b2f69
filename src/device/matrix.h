/* Packed weights: matrices in the layout that a device multiplies by. Weights are packed once, at load, and packing is
 * lossless: the stored values can be read back exactly.
 *
 * A device has one ht_matrix_ops table per weight type and precision, and others for output heads, which support top-k
 * products. Tables that stay in their file (models/file_rows.h) have rows but no products. */
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

    /* In a fused stage, products quantise their activations row by row as the rows are computed, so that the f32 rows
     * need no memory of their own. */
    bool takes_rows_once;

    /* Packed bytes of a matrix [n_rows, k]: at most 3 % more than in the file. */
    size_t (*packed_bytes)(ht_weight_type type, int64_t n_rows, int64_t k);

    /* Packs rows [row, row + n) from their stored form (consecutive rows, as in the file) into m->packed. Threads may pack
     * different ranges at once. `row` is a multiple of HT_MATRIX_SLAB; n is too, unless the range ends at the last row. */
    void (*pack)(ht_matrix *m, int64_t row, int64_t n, const void *stored);

    /* Writes the exact f32 values of row `row` to out[0 .. k). Fails only when rows are read from a file. Thread-safe. */
    ht_status (*row)(const ht_matrix *m, int64_t row, float *out, ht_error *err);

    /* Scratch bytes of `mul` and `mul_top` for n_x rows: enough for fewer, too, but for one where there is `mul_top`. */
    size_t (*mul_scratch)(const ht_matrix *m, int64_t n_x, int n_threads);

    /* y[i][r] = sum_k x[i][k] * w[r][k] + bias[r] for i < n_x and all rows r; `bias` may be NULL. ldx and ldy are the
     * row strides of x and y in elements. The bits of y[i][r] depend only on x[i], w[r], bias[r] and k: never on n_x,
     * i, other rows or the number of threads. */
    void (*mul)(const ht_matrix *m, const float *x, int64_t ldx, int64_t n_x, const float *bias, float *y, int64_t ldy,
                void *scratch, ht_pool *pool);

    /* Product for top-k sampling: `mul` that computes the top_k highest outputs of each row of y, and all outputs equal
     * to the lowest of these. Every other output either is computed too or is set to HT_LEFT_OUT. NULL: not supported,
     * or not faster than `mul`. */
    void (*mul_top)(const ht_matrix *m, int32_t top_k, const float *x, int64_t ldx, int64_t n_x, const float *bias,
                    float *y, int64_t ldy, void *scratch, ht_pool *pool);
    /* Bytes of m->packed that `mul_top` reads at least: a lower bound of its memory traffic. */
    size_t (*top_bytes)(const ht_matrix *m);
} ht_matrix_ops;

/* Value of an output that `mul_top` did not compute: below every computed output, and finite, so that samplers can scan and
 * scale the row. */
#define HT_LEFT_OUT (-1e30f)

enum { HT_MATRIX_SLAB = 64 };

struct ht_matrix {
    const ht_matrix_ops *ops;
    ht_weight_type type;
    int64_t n_rows, k; /* y = W x with W [n_rows, k] */
    void *packed;      /* lent, 64-byte aligned; NULL: not in memory */
    size_t packed_bytes;
    /* Block scales of 8-bit floats: weight (r, c) is multiplied by scales[r / scale_rows * n + c / scale_columns],
     * where n is the number of scales in a row. Owned, from malloc. NULL: no scales. */
    float *scales;
    int64_t scale_rows, scale_columns;
};

/* Expert matrices of a mixture-of-experts layer, all of one shape: a row of activations is multiplied by a few of them. */
typedef struct ht_matrix_list {
    ht_matrix **matrix; /* [n] matrices, then [n_kinds] pointers: the first matrix of every weight type in the list */
    int32_t n, n_kinds;
} ht_matrix_list;

/* Fills in n_kinds and the pointers after the n matrices, so that products need not scan all experts for their weight
 * types. l->matrix has memory for 2 n pointers. */
static inline void ht_matrix_list_find_kinds(ht_matrix_list *l) {
    ht_matrix **kind = l->matrix + l->n;
    l->n_kinds = 0;
    for (int32_t i = 0, k; i < l->n; i++) {
        for (k = 0; k < l->n_kinds && kind[k]->type != l->matrix[i]->type; k++) {}
        if (k == l->n_kinds) kind[l->n_kinds++] = l->matrix[i];
    }
}

#endif
