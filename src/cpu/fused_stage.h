/* Fused stages on the CPU: those of device/device.h. */
#ifndef HT_CPU_FUSED_STAGE_H
#define HT_CPU_FUSED_STAGE_H

#include "device/kernel.h"

size_t ht_cpu_stage_bytes(const ht_fused_stage *stage, int n_threads);
size_t ht_cpu_layout_stage(const ht_fused_stage *stage);
void ht_cpu_run_stage(const ht_fused_stage *stage);

#endif
