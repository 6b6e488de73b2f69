/* Result dtype of sums and products: integers of fewer than 32 bits become i32 or u32. */
#ifndef HT_BASE_TOTAL_H
#define HT_BASE_TOTAL_H

#include "base/dtype.h"

static inline ht_dtype ht_total_of(ht_dtype t) {
    if (ht_dtype_is_float(t) || ht_dtype_bytes(t) >= 4) return t;
    return t == HT_BOOL || ht_dtype_is_signed(t) ? HT_I32 : HT_U32;
}

#endif
