#define _GNU_SOURCE
#include "cpu/isa.h"

#include "base/error.h"
#include "base/text.h"
#include "cpu/matmul_bf16.h"

#include <stdint.h>
#include <string.h>

#if defined(__x86_64__)
#include <cpuid.h>
#include <pthread.h>
#if defined(__linux__)
#include <sys/syscall.h>
#include <unistd.h>
#endif
#elif defined(__aarch64__) && defined(__linux__)
#include <sys/auxv.h>
#endif

static const char *const names[HT_CPU_ISA_COUNT] = {
    [HT_CPU_REFERENCE] = "reference", [HT_CPU_NEON] = "neon",     [HT_CPU_I8MM] = "i8mm",       [HT_CPU_AVX2] = "avx2",
    [HT_CPU_AVXVNNI] = "avxvnni",     [HT_CPU_AVX512] = "avx512", [HT_CPU_BF16] = "avx512bf16", [HT_CPU_AMX] = "amx",
};

static const char *const needs[HT_CPU_ISA_COUNT] = {
    [HT_CPU_REFERENCE] = "nothing",
    [HT_CPU_NEON] = "ARMv8.2 with dot products",
    [HT_CPU_I8MM] = "ARMv8.2 with dot products, I8MM",
    [HT_CPU_AVX2] = "AVX2, FMA, F16C, BMI2",
    [HT_CPU_AVXVNNI] = "AVX2, FMA, F16C, BMI2, AVX-VNNI",
    [HT_CPU_AVX512] = "AVX-512 F, BW, DQ, VL, CD, VNNI",
    [HT_CPU_BF16] = "AVX-512 F, BW, DQ, VL, CD, VNNI, BF16",
    [HT_CPU_AMX] = "AVX-512 F, BW, DQ, VL, CD, VNNI, AMX-TILE, AMX-BF16",
};

const char *ht_cpu_isa_needs(ht_cpu_isa isa) { return isa >= 0 && isa < HT_CPU_ISA_COUNT ? needs[isa] : "?"; }
const char *ht_cpu_isa_name(ht_cpu_isa isa) { return isa >= 0 && isa < HT_CPU_ISA_COUNT ? names[isa] : "?"; }

#if defined(__x86_64__)
static bool has(uint32_t word, int bit) { return (word >> bit & 1) != 0; }

/* The register state that the operating system saves on a context switch: bits 1 and 2 for AVX, 5 to 7 for AVX-512,
 * 17 and 18 for tiles. */
static uint64_t saved_state(void) {
    uint32_t low, high;
    __asm__ volatile("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
    return (uint64_t)high << 32 | low;
}

#if defined(HT_HAVE_amx) && defined(__linux__)
static bool tiles_work;

/* Linux lets a process use tiles that asked for it, whose threads may from then on. Nor are the processor's word and the
 * manual's enough: some emulate them, and the order of their sums is not architecture, so small products have to come out
 * right to the bit before any other does. */
static void try_tiles(void) {
    enum { REQUEST_PERMISSION = 0x1023, TILE_DATA = 18 };
    if (syscall(SYS_arch_prctl, REQUEST_PERMISSION, TILE_DATA) != 0) return;
    float got[HT_TILES_TRIAL], wanted[HT_TILES_TRIAL];
    ht_tiles_trial_amx(got);
    ht_tiles_trial_tiles(wanted);
    tiles_work = memcmp(got, wanted, sizeof got) == 0;
}

static bool may_use_tiles(void) {
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, try_tiles);
    return tiles_work;
}
#else
static bool may_use_tiles(void) { return false; }
#endif

static bool machine_has(ht_cpu_isa isa) {
    uint32_t a, b, c, d, b7, c7, d7;
    if (!__get_cpuid(1, &a, &b, &c, &d)) return false;
    if (!__get_cpuid_count(7, 0, &a, &b7, &c7, &d7)) return false;
    bool osxsave = has(c, 27);
    if (!osxsave || (saved_state() & 0x6) != 0x6) return false;
    bool avx2 = has(c, 28) && has(c, 12) /* FMA */ && has(c, 29) /* F16C */ && has(b7, 5) && has(b7, 8) /* BMI2 */;
    if (isa == HT_CPU_AVX2) return avx2;
    if (isa == HT_CPU_AVXVNNI) {
        uint32_t a71;
        return avx2 && __get_cpuid_count(7, 1, &a71, &b, &c, &d) && has(a71, 4);
    }
    bool avx512 = has(b7, 16) /* F */ && has(b7, 17) /* DQ */ && has(b7, 28) /* CD */ && has(b7, 30) /* BW */ &&
                  has(b7, 31) /* VL */ && has(c7, 11) /* VNNI */;
    if (!avx2 || !avx512 || (saved_state() & 0xe6) != 0xe6) return false;
    if (isa == HT_CPU_AVX512) return true;
    if (isa == HT_CPU_BF16) {
        uint32_t a71;
        return __get_cpuid_count(7, 1, &a71, &b, &c, &d) && has(a71, 5);
    }
    bool tiles = has(d7, 22) /* bf16 */ && has(d7, 24) && (saved_state() & 0x60000) == 0x60000;
    return isa == HT_CPU_AMX && tiles && may_use_tiles();
}

/* Dot products of bf16 begin every second cycle on Intel's cores, where f32 has two multiply-adds a cycle: half as fast. */
static bool faster_than_the_one_before(ht_cpu_isa isa) {
    uint32_t a, b, c, d;
    if (isa != HT_CPU_BF16 || !__get_cpuid(0, &a, &b, &c, &d)) return true;
    return !(b == signature_INTEL_ebx && c == signature_INTEL_ecx && d == signature_INTEL_edx);
}
#elif defined(__aarch64__) && defined(__linux__)
static bool machine_has(ht_cpu_isa isa) {
    enum { ASIMD = 1, DOT_PRODUCT = 20, I8MM = 13 }; /* bits of AT_HWCAP, the last one of AT_HWCAP2 */
    unsigned long caps = getauxval(AT_HWCAP), more = getauxval(AT_HWCAP2);
    bool neon = (caps >> ASIMD & 1) && (caps >> DOT_PRODUCT & 1);
    if (isa == HT_CPU_NEON) return neon;
    return isa == HT_CPU_I8MM && neon && (more >> I8MM & 1);
}
#else
static bool machine_has(ht_cpu_isa isa) {
    (void)isa;
    return false;
}
#endif

#define IS_BUILT_IN(name, id, shared)                                                                                  \
    case id: return true;
bool ht_cpu_isa_built_in(ht_cpu_isa isa) {
    switch (isa) {
    case HT_CPU_REFERENCE: return true; HT_EACH_ISA(IS_BUILT_IN)
    default: return false;
    }
}

#if !defined(__x86_64__)
static bool faster_than_the_one_before(ht_cpu_isa isa) {
    (void)isa;
    return true;
}
#endif

bool ht_cpu_isa_on_machine(ht_cpu_isa isa) { return isa == HT_CPU_REFERENCE || machine_has(isa); }
bool ht_cpu_isa_available(ht_cpu_isa isa) { return ht_cpu_isa_built_in(isa) && ht_cpu_isa_on_machine(isa); }

ht_cpu_isa ht_cpu_isa_best(void) {
    for (int i = HT_CPU_ISA_COUNT - 1; i > 0; i--)
        if (ht_cpu_isa_available((ht_cpu_isa)i) && faster_than_the_one_before((ht_cpu_isa)i)) return (ht_cpu_isa)i;
    return HT_CPU_REFERENCE;
}

ht_cpu_isa ht_cpu_isa_dots(ht_cpu_isa isa) { return isa == HT_CPU_AMX || isa == HT_CPU_BF16 ? HT_CPU_AVX512 : isa; }

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
    ht_text_free(&list);
    return status;
}
