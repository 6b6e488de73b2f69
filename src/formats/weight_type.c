#include "formats/weight_type.h"

#include "formats/affine.h"
#include "formats/blocks.h"

#include <string.h>

#define SCALE_BYTES_F32  4
#define SCALE_BYTES_F16  2
#define SCALE_BYTES_BF16 2
#define AFFINE(type, bits, group, scale)                                                                               \
    [HT_W_##type] = {#type, -1, group, 2 * SCALE_BYTES_##scale + (group) * (bits) / 8},

static const ht_weight_type_info infos[HT_W_COUNT] = {
    [HT_W_F32] = {"F32", 0, 1, 4},
    [HT_W_F16] = {"F16", 1, 1, 2},
    [HT_W_BF16] = {"BF16", 30, 1, 2},
    [HT_W_Q4_0] = {"Q4_0", 2, HT_BLOCK_SMALL, sizeof(ht_block_q4_0)},
    [HT_W_Q4_1] = {"Q4_1", 3, HT_BLOCK_SMALL, sizeof(ht_block_q4_1)},
    [HT_W_Q5_0] = {"Q5_0", 6, HT_BLOCK_SMALL, sizeof(ht_block_q5_0)},
    [HT_W_Q5_1] = {"Q5_1", 7, HT_BLOCK_SMALL, sizeof(ht_block_q5_1)},
    [HT_W_Q8_0] = {"Q8_0", 8, HT_BLOCK_SMALL, sizeof(ht_block_q8_0)},
    [HT_W_Q2_K] = {"Q2_K", 10, HT_BLOCK_K, sizeof(ht_block_q2_k)},
    [HT_W_Q3_K] = {"Q3_K", 11, HT_BLOCK_K, sizeof(ht_block_q3_k)},
    [HT_W_Q4_K] = {"Q4_K", 12, HT_BLOCK_K, sizeof(ht_block_q4_k)},
    [HT_W_Q5_K] = {"Q5_K", 13, HT_BLOCK_K, sizeof(ht_block_q5_k)},
    [HT_W_Q6_K] = {"Q6_K", 14, HT_BLOCK_K, sizeof(ht_block_q6_k)},
    [HT_W_IQ4_NL] = {"IQ4_NL", 20, HT_BLOCK_SMALL, sizeof(ht_block_iq4_nl)},
    [HT_W_IQ4_XS] = {"IQ4_XS", 23, HT_BLOCK_K, sizeof(ht_block_iq4_xs)},
    [HT_W_MXFP4] = {"MXFP4", 39, HT_BLOCK_SMALL, sizeof(ht_block_mxfp4)},
    [HT_W_NVFP4] = {"NVFP4", 40, HT_BLOCK_NVFP4, sizeof(ht_block_nvfp4)},
    [HT_W_TQ2_0] = {"TQ2_0", 35, HT_BLOCK_K, sizeof(ht_block_tq2_0)},
    [HT_W_TQ1_0] = {"TQ1_0", 34, HT_BLOCK_K, sizeof(ht_block_tq1_0)},
    [HT_W_Q1_0] = {"Q1_0", 41, HT_BLOCK_Q1, sizeof(ht_block_q1_0)},
    [HT_W_IQ1_S] = {"IQ1_S", 19, HT_BLOCK_K, sizeof(ht_block_iq1_s)},
    [HT_W_IQ1_M] = {"IQ1_M", 29, HT_BLOCK_K, sizeof(ht_block_iq1_m)},
    [HT_W_IQ2_XXS] = {"IQ2_XXS", 16, HT_BLOCK_K, sizeof(ht_block_iq2_xxs)},
    [HT_W_IQ2_XS] = {"IQ2_XS", 17, HT_BLOCK_K, sizeof(ht_block_iq2_xs)},
    [HT_W_IQ2_S] = {"IQ2_S", 22, HT_BLOCK_K, sizeof(ht_block_iq2_s)},
    [HT_W_IQ3_XXS] = {"IQ3_XXS", 18, HT_BLOCK_K, sizeof(ht_block_iq3_xxs)},
    [HT_W_IQ3_S] = {"IQ3_S", 21, HT_BLOCK_K, sizeof(ht_block_iq3_s)},
    [HT_W_F8_E4M3] = {"F8_E4M3", -1, 1, 1},
    [HT_W_F8_E5M2] = {"F8_E5M2", -1, 1, 1},
    HT_AFFINE_TYPES(AFFINE)};

const ht_weight_type_info *ht_weight_type_info_of(ht_weight_type type) { return &infos[type]; }

int ht_weight_type_from_gguf(uint32_t gguf_id) {
    for (int i = 0; i < HT_W_COUNT; i++)
        if (infos[i].gguf_id >= 0 && (uint32_t)infos[i].gguf_id == gguf_id) return i;
    return -1;
}

/* Other ggml types: gguf.constants.GGML_QUANT_SIZES without the weight types above. */
static const struct {
    uint32_t id;
    ht_gguf_layout layout;
} others[] = {{9, {"Q8_1", 32, 40}}, {15, {"Q8_K", 256, 292}}, {24, {"I8", 1, 1}}, {25, {"I16", 1, 2}},
              {26, {"I32", 1, 4}},   {27, {"I64", 1, 8}},      {28, {"F64", 1, 8}}};

bool ht_gguf_layout_of(uint32_t gguf_id, ht_gguf_layout *out) {
    int type = ht_weight_type_from_gguf(gguf_id);
    if (type >= 0) {
        *out = (ht_gguf_layout){infos[type].name, infos[type].block, infos[type].block_bytes};
        return true;
    }
    for (size_t i = 0; i < sizeof others / sizeof *others; i++)
        if (others[i].id == gguf_id) {
            *out = others[i].layout;
            return true;
        }
    return false;
}

int ht_gguf_type_id(const char *name) {
    for (int i = 0; i < HT_W_COUNT; i++)
        if (infos[i].gguf_id >= 0 && strcmp(infos[i].name, name) == 0) return infos[i].gguf_id;
    for (size_t i = 0; i < sizeof others / sizeof *others; i++)
        if (strcmp(others[i].layout.name, name) == 0) return (int)others[i].id;
    return -1;
}
