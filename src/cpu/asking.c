#include "cpu/asking.h"

#include <stdatomic.h>

#if defined(__x86_64__)
#include <cpuid.h>

/* The family of an AMD processor, 0 of any other. From 15 on it has a second field. */
static unsigned amd_family(void) {
    unsigned a, b, c, d;
    if (!__get_cpuid(0, &a, &b, &c, &d)) return 0;
    if (b != signature_AMD_ebx || c != signature_AMD_ecx || d != signature_AMD_edx) return 0;
    if (!__get_cpuid(1, &a, &b, &c, &d)) return 0;
    const unsigned base = a >> 8 & 0xf;
    return base < 0xf ? base : base + (a >> 20 & 0xff);
}

static ht_core_kind find_kind(void) {
    enum { ZEN_5 = 0x1a };
    const unsigned family = amd_family();
    return family == 0 ? HT_CORE_ASKS : family < ZEN_5 ? HT_CORE_LOOKS : HT_CORE_FOLLOWS;
}
#else
static ht_core_kind find_kind(void) { return HT_CORE_ASKS; }
#endif

enum { UNKNOWN = -1 };
static atomic_int known = UNKNOWN;

static ht_core_kind this_kind(void) {
    int kind = atomic_load_explicit(&known, memory_order_relaxed);
    if (kind == UNKNOWN) {
        kind = (int)find_kind();
        atomic_store_explicit(&known, kind, memory_order_relaxed);
    }
    return (ht_core_kind)kind;
}

ht_core_kind ht_core_take_for(ht_core_kind kind) {
    const ht_core_kind before = this_kind();
    atomic_store_explicit(&known, (int)kind, memory_order_relaxed);
    return before;
}

bool ht_asks_near(void) { return this_kind() == HT_CORE_ASKS; }

bool ht_follows_rows(void) { return this_kind() == HT_CORE_FOLLOWS; }
