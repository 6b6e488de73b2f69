/* Element types of arrays: their names, sizes, and the type in which two of them meet. */
#ifndef HEARTH_DTYPE_H
#define HEARTH_DTYPE_H

#include <hearth/status.h>

#include <stddef.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Functions document whether they accept a value outside of HT_BOOL .. HT_DTYPE_COUNT - 1, which is not a dtype. */
typedef enum ht_dtype {
    HT_DTYPE_NONE = 0, /* no dtype: the value of a zeroed variable */
    HT_BOOL,
    HT_U8,
    HT_U16,
    HT_U32,
    HT_U64,
    HT_I8,
    HT_I16,
    HT_I32,
    HT_I64,
    HT_F16,
    HT_BF16,
    HT_F32,
    HT_F64,        /* on the CPU, for checking */
    HT_DTYPE_COUNT /* no dtype either: one past the last, the length of a table by dtype; more types make it larger */
} ht_dtype;

/* Bytes of one element; 0 for a value that is no dtype. */
HT_API size_t ht_dtype_bytes(ht_dtype dtype);
/* "f32", "bool", ...; "?" for a value that is no dtype. */
HT_API const char *ht_dtype_name(ht_dtype dtype);
/* The dtype in which operands of two dtypes meet, as MLX defines it: the larger of a kind; bool gives way to all,
 * integers to floating point; signed and unsigned meet in the signed type that holds both, u64 and a signed one in
 * f32; f16 and bf16 in f32. HT_DTYPE_NONE for a value that is no dtype. */
HT_API ht_dtype ht_dtype_promote(ht_dtype a, ht_dtype b);

#ifdef __cplusplus
}
#endif
#endif
