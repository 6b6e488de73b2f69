/* Kinds of dtypes: floating point, signed integer. */
#ifndef HT_BASE_DTYPE_H
#define HT_BASE_DTYPE_H

#include <hearth/dtype.h>

#include <stdbool.h>

static inline bool ht_dtype_is_float(ht_dtype t) { return t >= HT_F16 && t <= HT_F64; }
static inline bool ht_dtype_is_signed(ht_dtype t) { return t >= HT_I8 && t <= HT_I64; }
/* t if floating point, else f32. */
static inline ht_dtype ht_dtype_at_least_float(ht_dtype t) { return ht_dtype_is_float(t) ? t : HT_F32; }

#endif
