/* File-backed rows: a matrix used for row lookups only, such as an untied embedding, stays in the file and rows are
 * read on demand. A file modified meanwhile is an error. */
#ifndef HT_MODELS_FILE_ROWS_H
#define HT_MODELS_FILE_ROWS_H

#include "checkpoint/checkpoint.h"
#include "device/device.h"

/* Matrix [n_rows, k] with row lookup and without products. Opens its own file handles. */
ht_status ht_file_rows_new(const ht_stored_tensor *source, ht_matrix **out, ht_error *err);
void ht_file_rows_free(ht_matrix *m); /* NULL is fine */

#endif
