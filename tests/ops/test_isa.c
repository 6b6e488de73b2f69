/* Which instruction sets can be used: those the processor has, by name and by preference. Names on the command line are
 * all that must be found, the best one last; cross builds give them for each processor that they emulate. */
#include "base/error.h"
#include "cpu/isa.h"
#include "support/test.h"

#include <string.h>

static char **expected;
static int n_expected;

UNIT_TEST(found_by_name) {
    for (int i = 0; i < HT_CPU_ISA_COUNT; i++) {
        const char *name = ht_cpu_isa_name((ht_cpu_isa)i);
        ht_cpu_isa found = HT_CPU_ISA_COUNT;
        ht_error err = {0};
        ht_status status = ht_cpu_isa_find(name, &found, &err);
        if (ht_cpu_isa_available((ht_cpu_isa)i)) {
            assert_int_equal(status, HT_OK);
            assert_int_equal(found, i);
        } else {
            assert_int_equal(status, HT_ERR_UNSUPPORTED);
            assert_non_null(strstr(err.message, name));
            assert_non_null(strstr(err.message, ht_cpu_isa_name(ht_cpu_isa_best())));
        }
    }
}

UNIT_TEST(best_without_a_name) {
    ht_cpu_isa found = HT_CPU_ISA_COUNT;
    assert_int_equal(ht_cpu_isa_find(NULL, &found, NULL), HT_OK);
    assert_int_equal(found, ht_cpu_isa_best());
    for (int i = (int)found + 1; i < HT_CPU_ISA_COUNT; i++) assert_false(ht_cpu_isa_available((ht_cpu_isa)i));
}

/* Feature words of processors, from their manuals' CPUID tables and the kernel's hwcap names. */
enum { SSE_ONLY = 1 << 27, AVX_1 = 1 << 12 | 1 << 27 | 1 << 28 | 1 << 29, AVX_7 = 1 << 5 | 1 << 8 };
#define AVX512_7 ((uint32_t)AVX_7 | 1u << 16 | 1u << 17 | 1u << 28 | 1u << 30 | 1u << 31)
enum { VNNI_7 = 1 << 11, AVX_VNNI = 1 << 4, BF16 = 1 << 5 };

static const struct processor {
    const char *name;
    ht_cpu_features words;
    unsigned have; /* a bit for each instruction set beside the plain one */
} processors[] = {
    {"nothing known", {0}, 0},
    {"x86-64 with SSE alone", {.ecx_1 = SSE_ONLY, .xcr0 = 0x3}, 0},
    {"Haswell, Zen 2, Zen 3", {.ecx_1 = AVX_1, .ebx_7 = AVX_7, .xcr0 = 0x7}, 1 << HT_CPU_AVX2},
    {"Haswell under a system that saves no AVX registers", {.ecx_1 = AVX_1, .ebx_7 = AVX_7, .xcr0 = 0x3}, 0},
    {"Alder Lake",
     {.ecx_1 = AVX_1, .ebx_7 = AVX_7, .eax_7_1 = AVX_VNNI, .xcr0 = 0x7},
     1 << HT_CPU_AVX2 | 1 << HT_CPU_AVXVNNI},
    {"Skylake-X, which has no VNNI", {.ecx_1 = AVX_1, .ebx_7 = AVX512_7, .xcr0 = 0xe7}, 1 << HT_CPU_AVX2},
    {"Ice Lake",
     {.ecx_1 = AVX_1, .ebx_7 = AVX512_7, .ecx_7 = VNNI_7, .xcr0 = 0xe7},
     1 << HT_CPU_AVX2 | 1 << HT_CPU_AVX512},
    {"Ice Lake under a system that saves no AVX-512 registers",
     {.ecx_1 = AVX_1, .ebx_7 = AVX512_7, .ecx_7 = VNNI_7, .xcr0 = 0x7},
     1 << HT_CPU_AVX2},
    {"Cooper Lake, Zen 4: BF16 changes nothing",
     {.ecx_1 = AVX_1, .ebx_7 = AVX512_7, .ecx_7 = VNNI_7, .eax_7_1 = BF16, .xcr0 = 0xe7},
     1 << HT_CPU_AVX2 | 1 << HT_CPU_AVX512},
    {"Sapphire Rapids, Zen 5",
     {.ecx_1 = AVX_1, .ebx_7 = AVX512_7, .ecx_7 = VNNI_7, .eax_7_1 = BF16 | AVX_VNNI, .xcr0 = 0x600e7},
     1 << HT_CPU_AVX2 | 1 << HT_CPU_AVXVNNI | 1 << HT_CPU_AVX512},
    {"Cortex-A72", {.hwcap = 1 << 1}, 0},
    {"Neoverse N1", {.hwcap = 1 << 1 | 1 << 20}, 1 << HT_CPU_NEON},
    {"Neoverse V1", {.hwcap = 1 << 1 | 1 << 20, .hwcap2 = 1 << 13}, 1 << HT_CPU_NEON | 1 << HT_CPU_I8MM},
};

UNIT_TEST(sets_of_processors) {
    for (size_t p = 0; p < sizeof processors / sizeof *processors; p++)
        for (int i = 0; i < HT_CPU_ISA_COUNT; i++) {
            const bool wanted = i == HT_CPU_REFERENCE || (processors[p].have >> i & 1);
            if (ht_cpu_features_support(&processors[p].words, (ht_cpu_isa)i) != wanted)
                fail_msg("%s: %s is %swanted", processors[p].name, ht_cpu_isa_name((ht_cpu_isa)i),
                         wanted ? "" : "not ");
        }
}

UNIT_TEST(as_expected) {
    int n = 0;
    if (!n_expected) skip();
    for (int i = 0; i < HT_CPU_ISA_COUNT; i++) {
        if (!ht_cpu_isa_available((ht_cpu_isa)i)) continue;
        const char *name = ht_cpu_isa_name((ht_cpu_isa)i);
        if (n == n_expected || strcmp(name, expected[n]) != 0) fail_msg("found %s, which was not expected", name);
        n++;
    }
    if (n < n_expected) fail_msg("did not find %s", expected[n]);
}

int main(int argc, char **argv) {
    n_expected = argc - 1;
    expected = argv + 1;
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(found_by_name),
        cmocka_unit_test(best_without_a_name),
        cmocka_unit_test(sets_of_processors),
        cmocka_unit_test(as_expected),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
