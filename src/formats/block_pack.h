/* Packs blocks of weight types, the inverse of ht_dequantize (formats/blocks.h, formats/affine.h). */
#ifndef HT_FORMATS_BLOCK_PACK_H
#define HT_FORMATS_BLOCK_PACK_H

#include "formats/weight_type.h"

enum { HT_BLOCK_GROUPS = 16, HT_BLOCK_LENGTH = 256 };

/* A block: element i of group g is d * scale[g] * q - m * min[g], in types without scales of groups d * q, or d * q - m where they
 * have an offset. */
typedef struct ht_block_numbers {
    float d, m; /* numbers that the type's f16, or other float, holds; NVFP4 and MXFP4: a power of two */
    int8_t scale[HT_BLOCK_GROUPS];
    uint8_t min[HT_BLOCK_GROUPS];
    uint8_t q[HT_BLOCK_LENGTH]; /* from the type's lowest number on; of types with a table, the index */
} ht_block_numbers;

/* Whether the type's blocks can be packed: Q4_0 to Q8_0, the K types, IQ4_NL, IQ4_XS, MXFP4, MLX's affine groups. */
bool ht_block_is_packed(ht_weight_type type);
/* Writes one block of such a type. */
void ht_block_pack(ht_weight_type type, const ht_block_numbers *n, void *block);

#endif
