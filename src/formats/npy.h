/* Writing a float32 matrix as a NumPy .npy file, row by row, so that it appears whole or not at all.
 *
 * Format: numpy.lib.format, version 1.0. The values are written little-endian in C order. */
#ifndef HT_FORMATS_NPY_H
#define HT_FORMATS_NPY_H

#include <hearth/status.h>

#include <stdint.h>

typedef struct ht_npy_writer ht_npy_writer;

/* Begins a file of n_rows x n_columns values (both from 0). Nothing is at `path` before the commit. */
ht_status ht_npy_open(const char *path, int64_t n_rows, int64_t n_columns, ht_npy_writer **out, ht_error *err);
/* Appends n_rows rows, contiguous; more than were announced is an error. */
ht_status ht_npy_put_rows(ht_npy_writer *w, const float *values, int64_t n_rows, ht_error *err);
/* Puts the file in place and frees the writer; when rows are missing or the disk is full, there is no file. */
ht_status ht_npy_commit(ht_npy_writer *w, ht_error *err);
/* Gives up and frees the writer. NULL is fine. */
void ht_npy_discard(ht_npy_writer *w);

#endif
