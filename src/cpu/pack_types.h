/* What a panel keeps of each stored block, type by type: the weights as unsigned numbers, the rest as a scale unit. */
#ifndef HT_CPU_PACK_TYPES_H
#define HT_CPU_PACK_TYPES_H

#include "cpu/pack.h"

typedef struct ht_block_codec {
    /* The weights of one stored block as unsigned numbers, and back into an otherwise untouched block. */
    void (*split)(const void *block, uint8_t *q);
    void (*join)(const uint8_t *q, void *block);
    /* The block's scales to and from row r (0 to 15) of a scale unit. `unit` is zero before the first put. */
    void (*put)(uint8_t *unit, int r, const void *block);
    void (*get)(const uint8_t *unit, int r, void *block);
} ht_block_codec;

/* NULL for dense types. */
const ht_block_codec *ht_block_codec_of(ht_weight_type type);

#endif
