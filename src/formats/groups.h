/* Quantised groups as hearth/quantize.h describes them: their contents, and quantisation to them. */
#ifndef HT_FORMATS_GROUPS_H
#define HT_FORMATS_GROUPS_H

#include <hearth/dtype.h>
#include <hearth/quantize.h>

enum { HT_GROUP_MOST = 128 }; /* elements */

/* Fills in what is 0; false when there are no such groups. */
bool ht_groups_complete(ht_quantization *how);
const char *ht_groups_name(ht_quantization_mode mode);

/* The value of scale or bias i of an array of them: floating point, or what the 8 bits of the mode mean. */
float ht_groups_scale(ht_quantization_mode mode, ht_dtype dtype, const void *scales, int64_t i);

/* The elements of the group whose numbers begin at `numbers`. */
void ht_groups_decode(const ht_quantization *how, const uint8_t *numbers, float scale, float bias, float *out);

/* A group as it is stored: `numbers` has group * bits / 8 bytes. */
typedef struct ht_group {
    uint8_t numbers[HT_GROUP_MOST];
    float scale, bias; /* affine */
    uint8_t code;      /* of the scale, other modes */
} ht_group;
/* All but the numbers, for elements of which these are the least and the largest but for NaN; INFINITY and -INFINITY
 * when there are no others. */
void ht_groups_fit(const ht_quantization *how, float low, float high, ht_group *out);
void ht_groups_encode(const ht_quantization *how, const float *x, ht_group *out);

#endif
