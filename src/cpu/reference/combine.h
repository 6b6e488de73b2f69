/* Scatter combination: updates combined with the stored elements. */
#ifndef HT_CPU_REFERENCE_COMBINE_H
#define HT_CPU_REFERENCE_COMBINE_H

#include "device/params.h"

/* For i = 0 .. n - 1, in order: combines from[i * from_stride] with to[to_offset[i]], or with to[i * to_stride] if
 * to_offset is NULL. */
void ht_combine(ht_scatter_mode mode, ht_dtype dtype, void *to, int64_t to_stride, const int64_t *to_offset,
                const void *from, int64_t from_stride, int64_t n);

#endif
