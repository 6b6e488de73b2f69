/* Fused stages on the CPU: the chains of device/device.h. */
#ifndef HT_CPU_CHAIN_H
#define HT_CPU_CHAIN_H

#include "device/kernel.h"

size_t ht_cpu_chain_bytes(const ht_chain *chain, int n_threads);
size_t ht_cpu_lay_chain(const ht_chain *chain);
void ht_cpu_run_chain(const ht_chain *chain);

#endif
