/* Panel contents of each stored block, type by type: the weights as unsigned numbers, the rest as a scale unit. */
#ifndef HT_CPU_PACK_TYPES_H
#define HT_CPU_PACK_TYPES_H

#include "cpu/pack.h"
#include "formats/affine.h"

/* Packs one stored block of each of 16 rows (row[r] is that of row r) to its units of both planes. */
typedef void ht_pack_block_fn(const uint8_t *const row[HT_PANEL], uint8_t *quants, uint8_t *scales);

/* NULL for dense types and MLX's groups. */
ht_pack_block_fn *ht_pack_block_of(ht_weight_type type);

/* The same for Q8_0 split in two (cpu/coarse_head.h): units of 5 and of 3 bits, and one of scales. */
void ht_pack_coarse_block(const uint8_t *const row[HT_PANEL], uint8_t *first, uint8_t *rest, uint8_t *scales);

/* The weight at byte i of W[j], of a unit of `bits` bits. */
uint8_t ht_panel_weight(int bits, const uint8_t *unit, int j, int i);

/* The way back, for one row. */
typedef struct ht_block_codec {
    /* Puts the weights, as unsigned numbers, into an otherwise untouched block. */
    void (*join)(const uint8_t *q, void *block);
    /* Puts the scales of row r (0 to 15) of a scale unit into a block. */
    void (*get)(const uint8_t *unit, int r, void *block);
} ht_block_codec;

/* NULL for dense types and MLX's groups. */
const ht_block_codec *ht_block_codec_of(ht_weight_type type);

/* The same three for MLX's groups, which are one layout in many sizes. */
void ht_pack_affine(const ht_affine *a, const uint8_t *const row[HT_PANEL], uint8_t *quants, uint8_t *scales);
void ht_join_affine(const ht_affine *a, const uint8_t *q, void *block);
void ht_get_affine(const ht_affine *a, const uint8_t *unit, int r, void *block);

#endif
