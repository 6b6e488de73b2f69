/* Strided copies of any dtype. */
#ifndef HT_CPU_REFERENCE_STRIDED_COPY_H
#define HT_CPU_REFERENCE_STRIDED_COPY_H

#include "base/pool.h"
#include "device/kernel.h"

/* Copies between views of the same shape and dtype on the threads of the pool. */
void ht_strided_copy(ht_pool *pool, const ht_view *to, const ht_view *from);

/* Copies n elements of `bytes` bytes one by one; strides are in elements. */
void ht_strided_copy_span(char *to, int64_t to_stride, const char *from, int64_t from_stride, int64_t n, size_t bytes);

/* The same, element i from i * from_stride + offset[i]. */
void ht_take_elements(char *to, int64_t to_stride, const char *from, int64_t from_stride, const int64_t *offset,
                      int64_t n, size_t bytes);

#endif
