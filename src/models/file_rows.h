/* File-backed rows: a table of which only rows are asked for, such as an embedding that is not the output head as well,
 * stays in the file, and a row is read when it is needed. A file that was written to since is an error, as its rows
 * would be others. */
#ifndef HT_MODELS_FILE_ROWS_H
#define HT_MODELS_FILE_ROWS_H

#include "device/device.h"
#include "models/checkpoint.h"

/* A matrix that has rows but no products, of a stored tensor [n_rows, k]. It keeps the file open by itself. */
ht_status ht_file_rows_new(const ht_stored_tensor *stored, ht_matrix **out, ht_error *err);
void ht_file_rows_free(ht_matrix *m); /* NULL is fine */

#endif
