#include "cpu/asking.h"

#include <stdatomic.h>

#if defined(__x86_64__)
#include <cpuid.h>
static bool looks_far_ahead(void) {
    unsigned a, b, c, d;
    if (!__get_cpuid(0, &a, &b, &c, &d)) return false;
    return b == signature_AMD_ebx && c == signature_AMD_ecx && d == signature_AMD_edx;
}
#else
static bool looks_far_ahead(void) { return false; }
#endif

bool ht_asks_near(void) {
    enum { UNKNOWN, ASKS, LOOKS };
    static atomic_int known = UNKNOWN;
    int answer = atomic_load_explicit(&known, memory_order_relaxed);
    if (answer == UNKNOWN) {
        answer = looks_far_ahead() ? LOOKS : ASKS;
        atomic_store_explicit(&known, answer, memory_order_relaxed);
    }
    return answer == ASKS;
}
