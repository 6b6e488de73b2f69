/* Attention of few queries per KV head, which would fill at most half of a vector: lanes are keys instead. */
#ifndef HT_CPU_VECTOR_SDPA_FEW_H
#define HT_CPU_VECTOR_SDPA_FEW_H

#include "cpu/vector/simd.h"
#include "device/kernel.h"

enum { SDPA_FEW_ROWS = 8 }; /* most queries of one KV head */

size_t HT_ISA_NAME(ht_sdpa_few_scratch)(const ht_call *call);
void HT_ISA_NAME(ht_sdpa_few)(const ht_call *call);

#endif
