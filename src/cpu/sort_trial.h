/* For tests alone: sorting and finding by pivots, with so few splits that pivots count as bad and digits take over. */
#ifndef HT_CPU_SORT_TRIAL_H
#define HT_CPU_SORT_TRIAL_H

#include "cpu/isa.h"

#include <stdint.h>

typedef enum ht_sort_way {
    HT_SORT_WITHIN,
    HT_SORT_INTO,
    HT_SORT_ELEMENTS,
    HT_SORT_PART,
    HT_SORT_FIND,
    HT_SORT_WAY_COUNT
} ht_sort_way;

/* x, to and room are [n], and apart. What is in order is then at x for HT_SORT_WITHIN, else at `to`; HT_SORT_PART parts it at
 * kth, HT_SORT_FIND gives what sorting would put there, and how many are below it and equal it. */
typedef struct ht_sort_trial {
    ht_sort_way way;
    int width; /* of numbers without sign: 16, 32 or 64 bits */
    int splits;
    int64_t n, kth;
    void *x, *to, *room;
    uint64_t number;
    int64_t below, equal;
} ht_sort_trial;

/* False: this instruction set does not sort numbers of this width by pivots. */
bool ht_cpu_sort_trial(ht_cpu_isa isa, ht_sort_trial *trial);

#endif
