/* Fused stages on the CPU (device/stage.h). */
#ifndef HT_CPU_FUSED_STAGE_H
#define HT_CPU_FUSED_STAGE_H

#include "device/stage.h"

extern const ht_stage_ops ht_cpu_stages;

#endif
