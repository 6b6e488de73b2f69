/* Writing a float32 matrix as a NumPy .npy file, row by row, so that it may be larger than memory and appears whole or
 * not at all.
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

/* Begins a file of n_rows x n_columns values (both from 0). Nothing is at `path` before the commit. */
HT_API ht_status ht_npy_open(const char *path, int64_t n_rows, int64_t n_columns, ht_npy_writer **out, ht_error *err);
/* Appends n_rows rows, contiguous; more than were announced is an error. */
HT_API ht_status ht_npy_put_rows(ht_npy_writer *w, const float *values, int64_t n_rows, ht_error *err);
/* Puts the file in place and frees the writer; when rows are missing or the disk is full, there is no file. */
HT_API ht_status ht_npy_commit(ht_npy_writer *w, ht_error *err);
/* Gives up and frees the writer. NULL is fine. */
HT_API void ht_npy_discard(ht_npy_writer *w);

#ifdef __cplusplus
}
#endif
#endif
