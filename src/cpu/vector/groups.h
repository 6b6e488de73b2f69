/* Groups of quantised elements (hearth/quantize.h) in lanes. A chunk is sixteen lanes of adjacent elements: element i
 * of lane l is element l * each + i of the chunk. */
#ifndef HT_CPU_VECTOR_GROUPS_H
#define HT_CPU_VECTOR_GROUPS_H

#include "cpu/vector/lanes.h"
#include "cpu/vector/simd_groups.h"
#include "device/kernel.h"
#include "formats/affine.h"
#include "formats/groups.h"

typedef enum group_kind { GROUP_INTEGERS, GROUP_E2M1, GROUP_E4M3 } group_kind;

typedef struct group_format {
    ht_quantization_mode mode;
    group_kind kind;
    int bits, group, each; /* `each`: elements per lane */
} group_format;

static inline group_format group_format_of(const ht_quantization *how) {
    group_kind kind = how->mode == HT_QUANT_AFFINE ? GROUP_INTEGERS : how->bits == 4 ? GROUP_E2M1 : GROUP_E4M3;
    return (group_format){how->mode, kind, how->bits, how->group, HT_NUMBERS_OF_LANE(how->bits)};
}

/* X(kind, bits) for every format, to instantiate a function with constant arguments. */
#define GROUP_FORMATS(X)                                                                                               \
    X(GROUP_INTEGERS, 2)                                                                                               \
    X(GROUP_INTEGERS, 3)                                                                                               \
    X(GROUP_INTEGERS, 4)                                                                                               \
    X(GROUP_INTEGERS, 5)                                                                                               \
    X(GROUP_INTEGERS, 6)                                                                                               \
    X(GROUP_INTEGERS, 8)                                                                                               \
    X(GROUP_E2M1, 4)                                                                                                   \
    X(GROUP_E4M3, 8)

HT_INLINE int64_t group_chunk_bytes(int bits) { return 2 * bits * HT_NUMBERS_OF_LANE(bits); }

/* Loads the chunk at p; bytes beyond `left` read as zero. */
HT_INLINE v16i group_load(const uint8_t *p, int64_t left, int bits) {
    if (left >= 64) return v16i_unpack(p, bits);
    uint8_t padded[64] = {0};
    memcpy(padded, p, (size_t)left);
    return v16i_unpack(padded, bits);
}

/* Element i of every lane, unscaled. */
HT_INLINE v16f group_number(v16i lanes, int i, group_kind kind, int bits) {
    if (kind == GROUP_E2M1) return v16f_e2m1(lanes, i);
    if (kind == GROUP_E4M3) return v16f_e4m3(lanes, i);
    return v16f_low_bits(v16i_shr(lanes, i * bits), bits);
}

/* Sixteen adjacent elements, packed in 2 * bits bytes, unscaled. */
HT_INLINE v16f group_numbers_at(const uint8_t *p, group_kind kind, int bits) {
    uint64_t unpacked[2];
    if (bits == 8)
        memcpy(unpacked, p, sizeof unpacked);
    else
        for (int i = 0; i < 2; i++) unpacked[i] = ht_affine_spread(bits, p + i * bits);
    return group_number(v16i_load_u8((const uint8_t *)unpacked), 0, kind, kind == GROUP_INTEGERS ? 8 : bits);
}

/* Loads scales or biases [first, first + n) as f32. `to` has space for n rounded up to sixteen. */
static inline void group_scales(const group_format *f, const ht_view *v, int64_t first, int64_t n, float *to) {
    for (int64_t i = 0; i < n; i += 16) {
        int lanes = lanes_count(n - i);
        if (f->kind == GROUP_INTEGERS) {
            v16f_store(to + i, lanes_load(v->dtype, v->data, first + i, 1, lanes));
            continue;
        }
        const uint8_t *codes = (const uint8_t *)v->data + first + i;
        uint8_t padded[16] = {0};
        if (lanes < 16) codes = memcpy(padded, codes, (size_t)lanes);
        v16i c = v16i_load_u8(codes);
        v16f_store(to + i, f->mode == HT_QUANT_NVFP4 ? v16f_e4m3(c, 0) : v16f_from_bits(v16i_shl(c, 23)));
    }
}

/* Per-lane scales of a chunk, whose first group's scale is scales[0]; reads up to sixteen scales. */
HT_INLINE v16f group_scale_lanes(const float *scales, int each, int group) {
    switch (group / each) { /* lanes per group */
    case 2: return v16f_twice(scales);
    case 4: {
        v16f low = v16f_select(m16_first(4), v16f_set1(scales[0]), v16f_set1(scales[1]));
        v16f high = v16f_select(m16_first(12), v16f_set1(scales[2]), v16f_set1(scales[3]));
        return v16f_select(m16_first(8), low, high);
    }
    case 8: return v16f_select(m16_first(8), v16f_set1(scales[0]), v16f_set1(scales[1]));
    default: return v16f_set1(scales[0]);
    }
}

#endif
