/* Scatter combination: values joined with those stored at their indices. */
#ifndef HT_CPU_REFERENCE_COMBINE_H
#define HT_CPU_REFERENCE_COMBINE_H

#include "device/params.h"

/* from[i * by] joins to[i * step], or with `place` to[place[i]], for i = 0 .. n - 1 in this order. */
void ht_combine(ht_scatter_mode mode, ht_dtype dtype, void *to, int64_t step, const int64_t *place, const void *from,
                int64_t by, int64_t n);

#endif
