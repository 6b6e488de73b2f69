/* Instruction sets of the CPU device: those that this build holds kernels for, and the best one that the machine can
 * run. */
#ifndef HT_CPU_ISA_H
#define HT_CPU_ISA_H

#include <hearth/status.h>

#include <stdbool.h>
#include <stdint.h>

/* In order of preference: where several can be used, the last one is the best. */
typedef enum ht_cpu_isa {
    HT_CPU_REFERENCE, /* plain C, always there */
    HT_CPU_NEON,      /* ARMv8.2 with dot products */
    HT_CPU_I8MM,      /* NEON and its products of 8-bit matrices */
    HT_CPU_AVX2,      /* with FMA, F16C, BMI2 */
    HT_CPU_AVXVNNI,   /* AVX2 and its byte dot products */
    HT_CPU_AVX512,    /* F, BW, DQ, VL, CD, VNNI */
    HT_CPU_ISA_COUNT
} ht_cpu_isa;

/* HT_EACH_ISA(X): X(name, HT_CPU_..., kernels) for every instruction set this build holds vector kernels for. A set that
 * adds nothing but dot products of integers to another one has products of its own alone; its other kernels are those of the
 * set that `kernels` names. */
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

/* "reference", "neon", "i8mm", "avx2", "avxvnni", "avx512"; "?" for a value that is none. */
const char *ht_cpu_isa_name(ht_cpu_isa isa);
/* What a processor must offer for it: "AVX2, FMA, F16C, BMI2"; "nothing" for the plain one. */
const char *ht_cpu_isa_needs(ht_cpu_isa isa);

/* Feature words of a processor and its operating system; all 0: a processor of which nothing is known. */
typedef struct ht_cpu_words {
    uint32_t ecx_1;                 /* x86: CPUID leaf 1 */
    uint32_t ebx_7, ecx_7, eax_7_1; /* leaf 7, subleaf 0, and EAX of subleaf 1 */
    uint64_t xcr0;                  /* register state saved on a context switch; 0 without XGETBV */
    unsigned long hwcap, hwcap2;    /* ARM: AT_HWCAP and AT_HWCAP2 */
} ht_cpu_words;

ht_cpu_words ht_cpu_words_read(void); /* of this machine */
/* Whether a processor with these words runs an instruction set; x86's and ARM's words are told apart by being 0. */
bool ht_cpu_words_have(const ht_cpu_words *words, ht_cpu_isa isa);

bool ht_cpu_isa_built_in(ht_cpu_isa isa);
bool ht_cpu_isa_on_machine(ht_cpu_isa isa); /* processor and operating system support it */
/* Whether this build has its kernels and both the processor and the operating system support it. */
bool ht_cpu_isa_available(ht_cpu_isa isa);
/* The last one that is available (ht_cpu_isa). */
ht_cpu_isa ht_cpu_isa_best(void);
/* By name; one that is unknown or not available is an error that lists those that are. NULL: the best one. */
ht_status ht_cpu_isa_find(const char *name, ht_cpu_isa *out, ht_error *err);

#endif
