/* Layout of the rows of packed weights (cuda/matrix_values.cuh reads them): as in the file, or with the integers apart from
 * their scales, where rows of whole 16 bytes are hardly longer than those of the file. */
#ifndef HT_CUDA_MATRIX_LAYOUT_H
#define HT_CUDA_MATRIX_LAYOUT_H

#include "cuda/cuda.h"
#include "formats/weight_type.h"

typedef struct ht_cuda_layout {
    ht_cuda_form form;
    int64_t row_bytes, stored_bytes; /* of a row */
    int64_t whole;                   /* columns that lanes load for several cycles at a time */
} ht_cuda_layout;

ht_cuda_layout ht_cuda_layout_of(ht_weight_type type, int64_t k);
/* Cycles of 64 columns that a lane loads at a time. */
int ht_cuda_cycles_of(ht_cuda_form form);

/* A row as stored of one as laid out; forms other than those as stored. */
void ht_cuda_restore_row(ht_weight_type type, const ht_cuda_layout *l, int64_t k, const void *packed, void *stored);
/* Lays out n rows on the GPU, of and to memory of the device. Between `begin` and `end`. */
ht_status ht_cuda_lay_out(ht_cuda_device *d, ht_weight_type type, const ht_cuda_layout *l, int64_t k, int64_t n,
                          void *stored, void *packed, ht_error *err);

#endif
