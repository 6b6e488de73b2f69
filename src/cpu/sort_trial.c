/* Which instruction set's sorting a test tries. */
#include "cpu/sort_trial.h"

#define DECLARED(name, isa, shared) bool ht_sort_trial_##shared(ht_sort_trial *trial);
HT_EACH_ISA(DECLARED)

bool ht_cpu_sort_trial(ht_cpu_isa isa, ht_sort_trial *trial) {
    if (!ht_cpu_isa_available(isa)) return false;
#define TRIED(name, which, shared)                                                                                     \
    if (isa == (which)) return ht_sort_trial_##shared(trial);
    HT_EACH_ISA(TRIED)
    (void)trial;
    return false;
}
