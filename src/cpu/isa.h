/* Instruction sets of the CPU device: which ones this build holds kernels for, which one the machine can run. */
#ifndef HT_CPU_ISA_H
#define HT_CPU_ISA_H

#include <hearth/status.h>

#include <stdbool.h>

/* In order of preference, worst first. */
typedef enum ht_cpu_isa {
    HT_CPU_REFERENCE, /* plain C, always there */
    HT_CPU_NEON,      /* ARMv8.2 with dot products */
    HT_CPU_I8MM,      /* NEON and its products of 8-bit matrices */
    HT_CPU_AVX2,      /* with FMA, F16C, BMI2 */
    HT_CPU_AVXVNNI,   /* AVX2 and its byte dot products */
    HT_CPU_AVX512,    /* F, BW, DQ, VL, CD, VNNI */
    HT_CPU_BF16,      /* AVX-512 and its dot products of bf16 */
    HT_CPU_AMX,       /* AVX-512 and tiles of bf16 */
    HT_CPU_ISA_COUNT
} ht_cpu_isa;

/* HT_EACH_ISA(X): X(name, HT_CPU_..., kernels) for every instruction set this build holds vector kernels for. One that adds
 * nothing but dot products of integers to another has those alone; its other kernels are those of the set that `kernels` names.
 * One that adds nothing but instructions for bf16 has products of bf16 arrays alone (cpu/matmul_bf16.h). HT_EACH_DOT_ISA are
 * those that have dot products of integers of their own, HT_EACH_BF16_ISA the others. */
#ifdef HT_HAVE_neon
#define HT_WITH_NEON(X) X(neon, HT_CPU_NEON, neon)
#else
#define HT_WITH_NEON(X)
#endif
#ifdef HT_HAVE_i8mm
#define HT_WITH_I8MM(X) X(i8mm, HT_CPU_I8MM, neon)
#else
#define HT_WITH_I8MM(X)
#endif
#ifdef HT_HAVE_avx2
#define HT_WITH_AVX2(X) X(avx2, HT_CPU_AVX2, avx2)
#else
#define HT_WITH_AVX2(X)
#endif
#ifdef HT_HAVE_avxvnni
#define HT_WITH_AVXVNNI(X) X(avxvnni, HT_CPU_AVXVNNI, avx2)
#else
#define HT_WITH_AVXVNNI(X)
#endif
#ifdef HT_HAVE_avx512
#define HT_WITH_AVX512(X) X(avx512, HT_CPU_AVX512, avx512)
#else
#define HT_WITH_AVX512(X)
#endif
#ifdef HT_HAVE_avx512bf16
#define HT_WITH_BF16(X) X(avx512bf16, HT_CPU_BF16, avx512)
#else
#define HT_WITH_BF16(X)
#endif
#ifdef HT_HAVE_amx
#define HT_WITH_AMX(X) X(amx, HT_CPU_AMX, avx512)
#else
#define HT_WITH_AMX(X)
#endif
#define HT_EACH_DOT_ISA(X)  HT_WITH_NEON(X) HT_WITH_I8MM(X) HT_WITH_AVX2(X) HT_WITH_AVXVNNI(X) HT_WITH_AVX512(X)
#define HT_EACH_BF16_ISA(X) HT_WITH_BF16(X) HT_WITH_AMX(X)
#define HT_EACH_ISA(X)      HT_EACH_DOT_ISA(X) HT_EACH_BF16_ISA(X)

/* "reference", "neon", "i8mm", "avx2", "avxvnni", "avx512", "avx512bf16", "amx"; "?" for a value that is none. */
const char *ht_cpu_isa_name(ht_cpu_isa isa);
/* What a processor must offer for it: "AVX2, FMA, F16C, BMI2"; "nothing" for the plain one. */
const char *ht_cpu_isa_needs(ht_cpu_isa isa);
bool ht_cpu_isa_built_in(ht_cpu_isa isa);
bool ht_cpu_isa_on_machine(ht_cpu_isa isa); /* processor and operating system support it */
/* Whether this build has its kernels and both the processor and the operating system support it. */
bool ht_cpu_isa_available(ht_cpu_isa isa);
/* The last one that is available, but for one that is slower than another here. */
ht_cpu_isa ht_cpu_isa_best(void);
/* The one of HT_EACH_DOT_ISA whose dot products it uses: its own, or those of another to which it adds others only. */
ht_cpu_isa ht_cpu_isa_dots(ht_cpu_isa isa);
/* By name; one that is unknown or not available is an error that lists those that are. NULL: the best one. */
ht_status ht_cpu_isa_find(const char *name, ht_cpu_isa *out, ht_error *err);

#endif
