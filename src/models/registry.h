/* The supported model families: one row per architecture, defined in the family's file. */
#ifndef HT_MODELS_REGISTRY_H
#define HT_MODELS_REGISTRY_H

#include "checkpoint/family.h"

/* All families, by architecture. */
#define HT_FAMILIES(X) X(llama) X(mistral) X(qwen2) X(qwen3) X(qwen3moe) X(gemma2) X(gemma3) X(gemma4)

#define HT_DECLARE_FAMILY(name) extern const ht_family ht_family_##name;
HT_FAMILIES(HT_DECLARE_FAMILY)
#undef HT_DECLARE_FAMILY

#endif
