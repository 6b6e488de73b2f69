/* Weight types of checkpoints: name, block length and block bytes. GGUF blocks: formats/blocks.h, after the `gguf`
 * package (gguf.quants, gguf.constants); MLX's affine groups: formats/affine.h. */
#ifndef HT_FORMATS_WEIGHT_TYPE_H
#define HT_FORMATS_WEIGHT_TYPE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* X(type, bits, group size in columns, dtype of scale and bias) */
#define HT_AFFINE_SCALES(X, bits, group)                                                                               \
    X(MLX##bits##_##group##_F16, bits, group, F16)                                                                     \
    X(MLX##bits##_##group##_BF16, bits, group, BF16) X(MLX##bits##_##group##_F32, bits, group, F32)
#define HT_AFFINE_GROUPS(X, bits)                                                                                      \
    HT_AFFINE_SCALES(X, bits, 32) HT_AFFINE_SCALES(X, bits, 64) HT_AFFINE_SCALES(X, bits, 128)
#define HT_AFFINE_TYPES(X)                                                                                             \
    HT_AFFINE_GROUPS(X, 2)                                                                                             \
    HT_AFFINE_GROUPS(X, 3)                                                                                             \
    HT_AFFINE_GROUPS(X, 4) HT_AFFINE_GROUPS(X, 5) HT_AFFINE_GROUPS(X, 6) HT_AFFINE_GROUPS(X, 8)
#define HT_AFFINE_ENUM(type, ...) HT_W_##type,

typedef enum ht_weight_type {
    HT_W_F32,
    HT_W_F16,
    HT_W_BF16,
    HT_W_Q4_0,
    HT_W_Q4_1,
    HT_W_Q5_0,
    HT_W_Q5_1,
    HT_W_Q8_0,
    HT_W_Q2_K,
    HT_W_Q3_K,
    HT_W_Q4_K,
    HT_W_Q5_K,
    HT_W_Q6_K,
    HT_W_IQ4_NL,
    HT_W_IQ4_XS,
    HT_W_MXFP4,
    HT_W_NVFP4,
    HT_W_TQ2_0,
    HT_W_TQ1_0,
    HT_W_Q1_0,
    HT_W_IQ1_S,
    HT_W_IQ1_M,
    HT_W_IQ2_XXS,
    HT_W_IQ2_XS,
    HT_W_IQ2_S,
    HT_W_IQ3_XXS,
    HT_W_IQ3_S,
    HT_W_F8_E4M3, /* safetensors only; scales, if any, are a separate tensor */
    HT_W_F8_E5M2,
    HT_AFFINE_TYPES(HT_AFFINE_ENUM) /* the last types of the enum */
    HT_W_COUNT
} ht_weight_type;

typedef struct ht_weight_type_info {
    const char *name; /* "Q4_K" */
    int gguf_id;      /* ggml type id, or -1 */
    int block;        /* elements per block; 1 for dense types */
    size_t block_bytes;
} ht_weight_type_info;

/* Never NULL for a valid type. */
const ht_weight_type_info *ht_weight_type_info_of(ht_weight_type type);
/* ht_weight_type of a ggml type id, or -1 when unsupported. */
int ht_weight_type_from_gguf(uint32_t gguf_id);

/* Layout of any ggml type, including types that are not weight types: integers, F64, Q8_1, Q8_K. */
typedef struct ht_gguf_layout {
    const char *name;
    int block;
    size_t block_bytes;
} ht_gguf_layout;
/* False for an unknown ggml type id. */
bool ht_gguf_layout_of(uint32_t gguf_id, ht_gguf_layout *out);
/* ggml type id of a name ("Q4_K", "I32"); -1 when unknown. */
int ht_gguf_type_id(const char *name);

/* Stored as floats, not quantised. `type` may be -1. */
static inline bool ht_weight_is_float(int type) { return type == HT_W_F32 || type == HT_W_F16 || type == HT_W_BF16; }

/* 8-bit floats; scales, if any, are a separate tensor. */
static inline bool ht_weight_is_f8(ht_weight_type type) { return type == HT_W_F8_E4M3 || type == HT_W_F8_E5M2; }

/* Dequantises n consecutive elements (n a multiple of the block) to f32, exactly. Defines the value of every weight
 * type; the fast kernels are tested against it. */
void ht_dequantize(ht_weight_type type, const void *blocks, int64_t n, float *out);

#endif
