#include <hearth/dtype.h>

static const struct {
    const char *name;
    size_t bytes;
} table[HT_DTYPE_COUNT] = {
    [HT_BOOL] = {"bool", 1}, [HT_U8] = {"u8", 1},   [HT_U16] = {"u16", 2}, [HT_U32] = {"u32", 4}, [HT_U64] = {"u64", 8},
    [HT_I8] = {"i8", 1},     [HT_I16] = {"i16", 2}, [HT_I32] = {"i32", 4}, [HT_I64] = {"i64", 8}, [HT_F16] = {"f16", 2},
    [HT_BF16] = {"bf16", 2}, [HT_F32] = {"f32", 4}, [HT_F64] = {"f64", 8},
};

size_t ht_dtype_bytes(ht_dtype dtype) { return (unsigned)dtype < HT_DTYPE_COUNT ? table[dtype].bytes : 0; }

const char *ht_dtype_name(ht_dtype dtype) { return (unsigned)dtype < HT_DTYPE_COUNT ? table[dtype].name : "?"; }
