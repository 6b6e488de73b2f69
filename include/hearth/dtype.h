/* Element types of arrays. */
#ifndef HEARTH_DTYPE_H
#define HEARTH_DTYPE_H

#include <hearth/status.h>

#include <stddef.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef enum ht_dtype {
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
    HT_F64, /* on the CPU, for checking */
    HT_DTYPE_COUNT
} ht_dtype;

/* Bytes of one element; 0 for a value that is no dtype. */
HT_API size_t ht_dtype_bytes(ht_dtype dtype);
/* "f32", "bool", ...; "?" for a value that is no dtype. */
HT_API const char *ht_dtype_name(ht_dtype dtype);

#ifdef __cplusplus
}
#endif
#endif
