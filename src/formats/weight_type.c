#include "formats/weight_type.h"

#include "formats/blocks.h"

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
};

const ht_weight_type_info *ht_weight_type_info_of(ht_weight_type type) { return &infos[type]; }

int ht_weight_type_from_gguf(uint32_t gguf_id) {
    for (int i = 0; i < HT_W_COUNT; i++)
        if (infos[i].gguf_id >= 0 && (uint32_t)infos[i].gguf_id == gguf_id) return i;
    return -1;
}
