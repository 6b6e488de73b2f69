/* Row-by-row writer of a float32 matrix as a NumPy .npy file, which may be larger than memory and appears whole or
 * not at all. ht_npy_save (io.h) writes an array.
 *
 * Format: numpy.lib.format, version 1.0. The values are written little-endian in C order. One thread at a time. */
#ifndef HEARTH_NPY_H
#define HEARTH_NPY_H

#include <hearth/status.h>

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct ht_npy_writer ht_npy_writer;

/* A writer of a file of n_rows x n_columns values (both from 0). Nothing is at `path` before the commit. The caller
 * frees *out. */
HT_API ht_status ht_npy_writer_new(const char *path, int64_t n_rows, int64_t n_columns, ht_npy_writer **out,
                                   ht_error *err);
/* Appends n_rows rows, contiguous; more than were announced is HT_ERR_ARGUMENT. */
HT_API ht_status ht_npy_writer_put(ht_npy_writer *w, const float *values, int64_t n_rows, ht_error *err);
/* Puts the file in place, after which the writer takes no more rows. There is no file when rows are missing
 * (HT_ERR_ARGUMENT) or the disk is full (HT_ERR_IO). */
HT_API ht_status ht_npy_writer_commit(ht_npy_writer *w, ht_error *err);
/* Frees the writer; uncommitted data leaves no file. NULL is fine. */
HT_API void ht_npy_writer_free(ht_npy_writer *w);

#ifdef __cplusplus
}
#endif
#endif
