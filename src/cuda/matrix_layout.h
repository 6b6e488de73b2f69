/* Layout of the rows of packed weights (cuda/matrix_values.cuh reads them): as in the file, or with the integers apart from
 * their scales, where rows of whole 16 bytes are hardly longer than those of the file. */
#ifndef HT_CUDA_MATRIX_LAYOUT_H
#define HT_CUDA_MATRIX_LAYOUT_H

#include "cuda/matrix.h"
#include "formats/weight_type.h"

typedef struct ht_cuda_layout {
    ht_cuda_form form;
    int64_t row_bytes, stored_bytes; /* of a row */
    int64_t whole;                   /* columns that lanes load for several cycles at a time */
} ht_cuda_layout;

ht_cuda_layout ht_cuda_layout_of(ht_weight_type type, int64_t k);
/* Cycles of 64 columns that a lane loads at a time. */
int ht_cuda_cycles_of(ht_cuda_form form);

/* Between a row as stored and as laid out; forms other than those as stored. `packed` has been filled with zeros. */
void ht_cuda_lay_out_row(ht_weight_type type, const ht_cuda_layout *l, int64_t k, const void *stored, void *packed);
void ht_cuda_restore_row(ht_weight_type type, const ht_cuda_layout *l, int64_t k, const void *packed, void *stored);

#endif
