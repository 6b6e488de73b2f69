#include "base/dtype.h"

static const struct {
    const char *name;
    size_t bytes;
} table[HT_DTYPE_COUNT] = {
    [HT_BOOL] = {"bool", 1}, [HT_U8] = {"u8", 1},   [HT_U16] = {"u16", 2}, [HT_U32] = {"u32", 4}, [HT_U64] = {"u64", 8},
    [HT_I8] = {"i8", 1},     [HT_I16] = {"i16", 2}, [HT_I32] = {"i32", 4}, [HT_I64] = {"i64", 8}, [HT_F16] = {"f16", 2},
    [HT_BF16] = {"bf16", 2}, [HT_F32] = {"f32", 4}, [HT_F64] = {"f64", 8},
};

static bool is_dtype(ht_dtype t) { return t > HT_DTYPE_NONE && t < HT_DTYPE_COUNT; }

size_t ht_dtype_bytes(ht_dtype dtype) { return is_dtype(dtype) ? table[dtype].bytes : 0; }

const char *ht_dtype_name(ht_dtype dtype) { return is_dtype(dtype) ? table[dtype].name : "?"; }

/* ---- promotion ---- */

static ht_dtype larger(ht_dtype a, ht_dtype b) { return a > b ? a : b; }

/* Promotion of unsigned with signed: the smallest signed dtype that represents both; f32 for u64, which none represents. */
static ht_dtype promote_signs(ht_dtype unsigned_type, ht_dtype signed_type) {
    if (unsigned_type == HT_U64) return HT_F32;
    return larger((ht_dtype)(HT_I16 + (unsigned_type - HT_U8)), signed_type);
}

ht_dtype ht_dtype_promote(ht_dtype a, ht_dtype b) {
    if (!is_dtype(a) || !is_dtype(b)) return HT_DTYPE_NONE;
    if (a == b || b == HT_BOOL) return a;
    if (a == HT_BOOL) return b;
    if (ht_dtype_is_float(a) && ht_dtype_is_float(b)) return a == HT_F64 || b == HT_F64 ? HT_F64 : HT_F32;
    if (ht_dtype_is_float(a)) return a;
    if (ht_dtype_is_float(b)) return b;
    if (ht_dtype_is_signed(a) == ht_dtype_is_signed(b)) return larger(a, b);
    return ht_dtype_is_signed(b) ? promote_signs(a, b) : promote_signs(b, a);
}
