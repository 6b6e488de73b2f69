/* Packs stored tensors into matrices of a device, all in one parallel run. */
#ifndef HT_MODELS_PACK_H
#define HT_MODELS_PACK_H

#include "checkpoint/checkpoint.h"
#include "device/device.h"

/* Properties that decide how a matrix is packed. */
typedef struct ht_matrix_kind {
    ht_precision precision;
    ht_weight_type type;
    int64_t n_rows, k;
    bool is_head; /* its outputs are logits; often only the highest are needed */
} ht_matrix_kind;

/* Creates a matrix without memory; HT_ERR_UNSUPPORTED if the device lacks this kind. `name` is for messages. The
 * caller sets `packed` to packed_bytes of device memory, 64-byte aligned, that outlives the matrix. The device must
 * outlive the matrix, too. */
ht_status ht_matrix_new(ht_device *d, const ht_matrix_kind *kind, const char *name, ht_matrix **out, ht_error *err);
void ht_matrix_free(ht_matrix *m); /* NULL is fine */
/* Sets the matrix's n block scales (device/matrix.h), one for each block of rows x columns. */
ht_status ht_matrix_set_scales(ht_matrix *m, const float *scales, int64_t n, int64_t rows, int64_t columns,
                               ht_error *err);
/* Bytes such a matrix would take, or 0 when the device has no such kind. */
size_t ht_matrix_bytes(const ht_device *d, const ht_matrix_kind *kind);

/* A matrix and the tensor that fills it. Packing restores the order of rows. */
typedef struct ht_pack_task {
    ht_matrix *m;
    ht_stored_tensor stored;
    ht_order order; /* of the stored rows */
    size_t at;      /* offset of the packed form in the memory of all matrices */
} ht_pack_task;

/* Callbacks during packing; each may be NULL. */
typedef struct ht_pack_hooks {
    ht_status (*meanwhile)(void *user, ht_error *err); /* run once by one of the threads; its failure ends packing */
    void *meanwhile_user;
    bool (*progress)(double done, void *user); /* on the calling thread; false cancels */
    void *progress_user;
    double begin, end; /* progress before and after */
} ht_pack_hooks;

/* Fills n matrices from their files, block by block on all threads of the device. Reads rather than maps the rows: a
 * shrinking file is then an error, and its pages do not count as the process's memory. */
ht_status ht_matrices_pack(const ht_pack_task *tasks, int64_t n, const ht_pack_hooks *hooks, ht_device *d,
                           ht_error *err);
/* Runs other work in n pieces with the same hooks; the first failure ends it. */
typedef ht_status ht_pack_piece(void *arg, int64_t i, int worker, ht_error *err);
ht_status ht_pack_in_pieces(int64_t n, ht_pack_piece *piece, void *arg, const ht_pack_hooks *hooks, ht_device *d,
                            ht_error *err);

/* ---- rows in the file ---- */

/* Matrix [n_rows, k] for row lookups only, such as an untied embedding. It opens the file and reads rows on demand;
 * a file modified meanwhile is an error. */
ht_status ht_file_rows_new(const ht_stored_tensor *source, ht_matrix **out, ht_error *err);
void ht_file_rows_free(ht_matrix *m); /* NULL is fine */

#endif
