/* Strided copies between windows, whatever the dtype. */
#ifndef HT_CPU_REFERENCE_STRIDED_COPY_H
#define HT_CPU_REFERENCE_STRIDED_COPY_H

#include "device/kernel.h"

/* Copies `from` to `to`, of the same shape and dtype, on the threads of the pool. */
void ht_move(ht_pool *pool, const ht_view *to, const ht_view *from);

/* n elements of so many bytes, `step` and `by` elements apart, one after another. */
void ht_move_span(char *to, int64_t step, const char *from, int64_t by, int64_t n, size_t bytes);

#endif
