/* Instruction sets of the CPU device: compiled kernels, processor detection, and the choice of the best one. */
#ifndef HT_CPU_ISA_H
#define HT_CPU_ISA_H

#include <hearth/status.h>

#include <stdbool.h>
#include <stdint.h>

/* In ascending preference: the best available instruction set is the last one. */
typedef enum ht_cpu_isa {
    HT_CPU_REFERENCE, /* plain C, always available */
    HT_CPU_NEON,      /* ARMv8.2 with DOTPROD */
    HT_CPU_I8MM,      /* NEON with 8-bit matrix multiply */
    HT_CPU_AVX2,      /* AVX2, FMA, F16C, BMI2 */
    HT_CPU_AVXVNNI,   /* AVX2 with VNNI in 256-bit registers */
    HT_CPU_AVX512,    /* F, BW, DQ, VL, CD, VNNI */
    HT_CPU_ISA_COUNT
} ht_cpu_isa;

/* HT_EACH_ISA(X) expands X(name, HT_CPU_..., kernels) for every compiled instruction set. An instruction set that
 * only adds integer dot products has its own matrix kernels and shares the other kernels of the instruction set
 * `kernels`. */
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
#define HT_EACH_ISA(X) HT_WITH_NEON(X) HT_WITH_I8MM(X) HT_WITH_AVX2(X) HT_WITH_AVXVNNI(X) HT_WITH_AVX512(X)

/* Name: "reference", "neon", "i8mm", "avx2", "avxvnni" or "avx512"; "?" for an invalid value. */
const char *ht_cpu_isa_name(ht_cpu_isa isa);
/* Required processor features, as "AVX2, FMA, F16C, BMI2"; "nothing" for the reference. */
const char *ht_cpu_isa_needs(ht_cpu_isa isa);

/* Feature words of a processor and its operating system. All zero: unknown processor. */
typedef struct ht_cpu_features {
    uint32_t ecx_1;                 /* x86: CPUID leaf 1 */
    uint32_t ebx_7, ecx_7, eax_7_1; /* leaf 7, subleaf 0, and EAX of subleaf 1 */
    uint64_t xcr0;                  /* XCR0, the registers that the operating system saves; 0 without XGETBV */
    unsigned long hwcap, hwcap2;    /* ARM: AT_HWCAP and AT_HWCAP2 */
} ht_cpu_features;

/* Whether a processor with these features runs an instruction set. The other architecture's words are 0, so its
 * instruction sets are unsupported. */
bool ht_cpu_features_support(const ht_cpu_features *words, ht_cpu_isa isa);

/* Whether this build contains kernels for the instruction set. */
bool ht_cpu_isa_built_in(ht_cpu_isa isa);
/* Whether the processor and the operating system support the instruction set. */
bool ht_cpu_isa_on_machine(ht_cpu_isa isa);
/* ht_cpu_isa_built_in and ht_cpu_isa_on_machine. */
bool ht_cpu_isa_available(ht_cpu_isa isa);
/* The most preferred available instruction set. */
ht_cpu_isa ht_cpu_isa_best(void);
/* Finds an available instruction set by name; NULL: the best one. The error for any other name lists the available
 * instruction sets. */
ht_status ht_cpu_isa_find(const char *name, ht_cpu_isa *out, ht_error *err);

#endif
