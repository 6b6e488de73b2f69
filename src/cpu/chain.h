/* Chains of calls on the CPU (device/kernel.h). */
#ifndef HT_CPU_CHAIN_H
#define HT_CPU_CHAIN_H

#include "device/kernel.h"

void ht_cpu_run_chain(const ht_chain *chain);
size_t ht_cpu_chain_scratch(const ht_chain *chain);

#endif
