#include "cpu/isa.h"

#include "base/error.h"
#include "base/text.h"

#include <string.h>

#if defined(__x86_64__)
#include <cpuid.h>
#elif defined(__aarch64__) && defined(__linux__)
#include <sys/auxv.h>
#endif

static const char *const names[HT_CPU_ISA_COUNT] = {
    [HT_CPU_REFERENCE] = "reference", [HT_CPU_NEON] = "neon",       [HT_CPU_I8MM] = "i8mm",
    [HT_CPU_AVX2] = "avx2",           [HT_CPU_AVXVNNI] = "avxvnni", [HT_CPU_AVX512] = "avx512",
};

static const char *const needs[HT_CPU_ISA_COUNT] = {
    [HT_CPU_REFERENCE] = "nothing",
    [HT_CPU_NEON] = "ARMv8.2 with dot products",
    [HT_CPU_I8MM] = "ARMv8.2 with dot products, I8MM",
    [HT_CPU_AVX2] = "AVX2, FMA, F16C, BMI2",
    [HT_CPU_AVXVNNI] = "AVX2, FMA, F16C, BMI2, AVX-VNNI",
    [HT_CPU_AVX512] = "AVX-512 F, BW, DQ, VL, CD, VNNI",
};

const char *ht_cpu_isa_needs(ht_cpu_isa isa) { return isa >= 0 && isa < HT_CPU_ISA_COUNT ? needs[isa] : "?"; }
const char *ht_cpu_isa_name(ht_cpu_isa isa) { return isa >= 0 && isa < HT_CPU_ISA_COUNT ? names[isa] : "?"; }

static bool has(uint64_t word, int bit) { return (word >> bit & 1) != 0; }

/* XCR0 bits: 1 and 2 are set for AVX state, 5 to 7 also for AVX-512 state. */
enum { AVX_STATE = 0x6, AVX512_STATE = 0xe6 };

static bool has_avx2(const ht_cpu_features *w) {
    return (w->xcr0 & AVX_STATE) == AVX_STATE && has(w->ecx_1, 28) && has(w->ecx_1, 12) /* FMA */ &&
           has(w->ecx_1, 29) /* F16C */ && has(w->ebx_7, 5) && has(w->ebx_7, 8) /* BMI2 */;
}

static bool has_avx512(const ht_cpu_features *w) {
    return (w->xcr0 & AVX512_STATE) == AVX512_STATE && has(w->ebx_7, 16) /* F */ && has(w->ebx_7, 17) /* DQ */ &&
           has(w->ebx_7, 28) /* CD */ && has(w->ebx_7, 30) /* BW */ && has(w->ebx_7, 31) /* VL */ &&
           has(w->ecx_7, 11) /* VNNI */;
}

static bool has_neon(const ht_cpu_features *w) { return has(w->hwcap, 1) && has(w->hwcap, 20) /* DOTPROD */; }

bool ht_cpu_features_support(const ht_cpu_features *w, ht_cpu_isa isa) {
    switch (isa) {
    case HT_CPU_REFERENCE: return true;
    case HT_CPU_NEON: return has_neon(w);
    case HT_CPU_I8MM: return has_neon(w) && has(w->hwcap2, 13);
    case HT_CPU_AVX2: return has_avx2(w);
    case HT_CPU_AVXVNNI: return has_avx2(w) && has(w->eax_7_1, 4);
    case HT_CPU_AVX512: return has_avx2(w) && has_avx512(w);
    default: return false;
    }
}

/* Feature words of this machine. */
static ht_cpu_features cpu_features_read(void) {
    ht_cpu_features w = {0};
#if defined(__x86_64__)
    enum { OSXSAVE = 27 };
    uint32_t a, b, c, d;
    if (!__get_cpuid(1, &a, &b, &w.ecx_1, &d)) return (ht_cpu_features){0};
    if (__get_cpuid_count(7, 0, &a, &w.ebx_7, &w.ecx_7, &d)) (void)__get_cpuid_count(7, 1, &w.eax_7_1, &b, &c, &d);
    if (has(w.ecx_1, OSXSAVE)) {
        uint32_t low, high;
        __asm__ volatile("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
        w.xcr0 = (uint64_t)high << 32 | low;
    }
#elif defined(__aarch64__) && defined(__linux__)
    w.hwcap = getauxval(AT_HWCAP);
    w.hwcap2 = getauxval(AT_HWCAP2);
#endif
    return w;
}

#define IS_BUILT_IN(name, id, shared)                                                                                  \
    case id: return true;
bool ht_cpu_isa_built_in(ht_cpu_isa isa) {
    switch (isa) {
    case HT_CPU_REFERENCE: return true; HT_EACH_ISA(IS_BUILT_IN)
    default: return false;
    }
}

bool ht_cpu_isa_on_machine(ht_cpu_isa isa) {
    const ht_cpu_features words = cpu_features_read();
    return ht_cpu_features_support(&words, isa);
}
bool ht_cpu_isa_available(ht_cpu_isa isa) { return ht_cpu_isa_built_in(isa) && ht_cpu_isa_on_machine(isa); }

ht_cpu_isa ht_cpu_isa_best(void) {
    for (int i = HT_CPU_ISA_COUNT - 1; i > 0; i--)
        if (ht_cpu_isa_available((ht_cpu_isa)i)) return (ht_cpu_isa)i;
    return HT_CPU_REFERENCE;
}

ht_status ht_cpu_isa_find(const char *name, ht_cpu_isa *out, ht_error *err) {
    if (!name) {
        *out = ht_cpu_isa_best();
        return HT_OK;
    }
    for (int i = 0; i < HT_CPU_ISA_COUNT; i++)
        if (strcmp(name, names[i]) == 0 && ht_cpu_isa_available((ht_cpu_isa)i)) {
            *out = (ht_cpu_isa)i;
            return HT_OK;
        }
    ht_text list = {0};
    for (int i = 0; i < HT_CPU_ISA_COUNT; i++)
        if (ht_cpu_isa_available((ht_cpu_isa)i)) ht_text_printf(&list, "%s%s", list.len ? ", " : "", names[i]);
    ht_status status = ht_fail(err, HT_ERR_UNSUPPORTED, "instruction set `%s` cannot be used here; this machine has %s",
                               name, list.data ? list.data : names[HT_CPU_REFERENCE]);
    ht_text_discard(&list);
    return status;
}
