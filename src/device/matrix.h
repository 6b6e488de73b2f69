/* Packed weights: matrices in the layout that a device multiplies by. Weights are packed once, at load, and packing is
 * lossless: the stored values can be read back exactly.
 *
 * A device has one ht_matrix_ops table per weight type and precision, and others for output heads, which support top-k
 * products. Tables that stay in their file (models/pack.h) have rows but no products. */
#ifndef HT_DEVICE_MATRIX_H
#define HT_DEVICE_MATRIX_H

#include "formats/weight_type.h"

#include <hearth/precision.h>
#include <hearth/status.h>

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct ht_matrix ht_matrix;
struct ht_device;

/* Operations on matrices of a weight type. Products are kernels of the device. */
typedef struct ht_matrix_ops {
    const char *name; /* for messages and benchmarks: "Q4_1 panels (avx512)" */

    /* Packed bytes of a matrix [n_rows, k]: at most 3 % and 64 bytes more than in the file. */
    size_t (*packed_bytes)(ht_weight_type type, int64_t n_rows, int64_t k);

    /* Packs rows [row, row + n) from their stored form (consecutive rows, as in the file, in host memory) into m->packed.
     * Threads may pack different ranges at once. `row` is a multiple of HT_MATRIX_SLAB; n is too, unless the range ends at
     * the last row. */
    ht_status (*pack)(ht_matrix *m, int64_t row, int64_t n, const void *stored, ht_error *err);

    /* Writes the exact f32 values of row `row` to out[0 .. k), host memory. Thread-safe. */
    ht_status (*row)(const ht_matrix *m, int64_t row, float *out, ht_error *err);

    /* Lower bound of a product's memory traffic when only the highest outputs of a row are needed (ht_call.top_k), in
     * bytes of m->packed. NULL: all of them. */
    size_t (*top_bytes)(const ht_matrix *m);
} ht_matrix_ops;

/* Value of outputs that a top-k product skips: below every computed output, and finite, so that samplers can scan and
 * scale the row. */
#define HT_MASKED_LOGIT (-1e30f)

enum { HT_MATRIX_SLAB = 64 };

struct ht_matrix {
    const ht_matrix_ops *ops;
    struct ht_device *device; /* lent; NULL: a table in its file */
    ht_weight_type type;
    int64_t n_rows, k; /* y = W x with W [n_rows, k] */
    void *packed;      /* memory of the device, lent, 64-byte aligned; NULL: not in memory */
    size_t packed_bytes;
    /* Block scales of 8-bit floats, memory of the device: weight (r, c) is multiplied by
     * scales[r / scale_rows * n + c / scale_columns], where n is the number of scales in a row. NULL: no scales. */
    float *scales;
    size_t scale_bytes;
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
