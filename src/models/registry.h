/* The supported model families: one row per architecture, defined in the family's file. */
#ifndef HT_MODELS_REGISTRY_H
#define HT_MODELS_REGISTRY_H

#include "checkpoint/family.h"

/* All families, by architecture. */
/* clang-format off */
#define HT_FAMILIES(X) \
    X(llama) X(mistral) X(mistral3) X(mixtral) X(llama4) X(smollm3) X(arcee) X(seed_oss) \
    X(qwen2) X(qwen2moe) X(qwen3) X(qwen3moe) \
    X(gemma) X(gemma2) X(gemma3) X(gemma3n) X(gemma4) \
    X(phi2) X(phi3) X(phimoe) X(glm4) X(glm4moe) X(granite) X(granitemoe) X(granitehybrid) X(olmo2) X(olmoe) X(command_r) X(cohere2) X(cohere2moe) \
    X(afmoe) X(exaone4) X(hunyuan_dense) X(hunyuan_moe) X(hy_v3) X(ernie4_5) X(ernie4_5_moe) X(minimax_m2) X(gpt_oss) \
    X(stablelm) X(starcoder2) X(nemotron) X(gpt2) \
    X(lfm2) X(lfm2moe) X(kimi_linear) X(qwen35) X(qwen35moe) X(qwen3next) X(nemotron_h) X(falcon_h1) \
    X(deepseek2) X(deepseek_v2) X(glm4_moe_lite) X(mistral4) \
    X(bert) X(nomic_bert) X(modern_bert)
/* clang-format on */

#define HT_DECLARE_FAMILY(name) extern const ht_family ht_family_##name;
HT_FAMILIES(HT_DECLARE_FAMILY)
#undef HT_DECLARE_FAMILY

#endif
