/* Quantised groups (hearth/quantize.h): dequantisation and quantisation of one group. */
#ifndef HT_FORMATS_GROUPS_H
#define HT_FORMATS_GROUPS_H

#include <hearth/dtype.h>
#include <hearth/quantize.h>

enum { HT_GROUP_MOST = 128 }; /* elements per group */

/* Fills in the mode's defaults for fields that are 0; false for an unsupported combination. */
bool ht_groups_complete(ht_quantization *how);
const char *ht_groups_name(ht_quantization_mode mode);

/* Element i of a tensor of scales or biases as f32: `dtype` floats, or the mode's 8-bit scale codes. */
float ht_groups_scale(ht_quantization_mode mode, ht_dtype dtype, const void *scales, int64_t i);

/* Dequantises one group: `numbers` are its packed q values, `out` gets how->group elements. */
void ht_groups_decode(const ht_quantization *how, const uint8_t *numbers, float scale, float bias, float *out);

/* One quantised group; the first group * bits / 8 bytes of `numbers` are the packed q values. */
typedef struct ht_group {
    uint8_t numbers[HT_GROUP_MOST];
    float scale, bias; /* affine mode */
    uint8_t code;      /* 8-bit scale code, other modes */
} ht_group;
/* Computes scale, bias and code of a group from its minimum and maximum (NaNs excluded); low = INFINITY, high =
 * -INFINITY for a group of NaNs alone. ht_groups_encode also packs `numbers`. */
void ht_groups_encode(const ht_quantization *how, const float *x, ht_group *out);

#endif
