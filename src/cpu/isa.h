/* Instruction sets of the CPU device: which ones this build holds kernels for, which one the machine can run. */
#ifndef HT_CPU_ISA_H
#define HT_CPU_ISA_H

#include <hearth/status.h>

#include <stdbool.h>

/* In order of preference, worst first. */
typedef enum ht_cpu_isa {
    HT_CPU_REFERENCE, /* plain C, always there */
    HT_CPU_NEON,      /* ARMv8.2 with dot products */
    HT_CPU_AVX2,      /* with FMA, F16C, BMI2 */
    HT_CPU_AVX512,    /* F, BW, DQ, VL, CD, VNNI, VBMI */
    HT_CPU_ISA_COUNT
} ht_cpu_isa;

/* "reference", "neon", "avx2", "avx512"; "?" for a value that is none. */
const char *ht_cpu_isa_name(ht_cpu_isa isa);
/* Whether this build has its kernels and both the processor and the operating system support it. */
bool ht_cpu_isa_available(ht_cpu_isa isa);
ht_cpu_isa ht_cpu_isa_best(void);
/* By name; one that is unknown or not available is an error that lists those that are. NULL: the best one. */
ht_status ht_cpu_isa_find(const char *name, ht_cpu_isa *out, ht_error *err);

#endif
