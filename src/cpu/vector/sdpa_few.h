/* Attention of so few queries of a key head that they would fill half of the lanes at most: keys are in the lanes. */
#ifndef HT_CPU_VECTOR_SDPA_FEW_H
#define HT_CPU_VECTOR_SDPA_FEW_H

#include "cpu/vector/simd.h"
#include "device/kernel.h"

enum { SDPA_FEW_ROWS = 8 }; /* queries of one key head that are few */

size_t HT_ISA_NAME(ht_sdpa_few_scratch)(const ht_call *call);
void HT_ISA_NAME(ht_sdpa_few)(const ht_call *call);

#endif
