/* Whether results that caches cannot keep are written by plain stores or round the caches (bypass.h). Which is faster differs
 * by half either way: with the processor, with how long an element takes to compute, with how many threads share the memory.
 * So it is found out on the work itself: now and then one half of a result is written one way, the other half the other way,
 * and both are timed. Results do not depend on it. */
#ifndef HT_CPU_WAYS_H
#define HT_CPU_WAYS_H

#include <stdbool.h>
#include <stdint.h>

typedef enum ht_way { HT_WAY_PLAIN, HT_WAY_BYPASS } ht_way;

typedef enum ht_work {
    HT_WORK_LIGHT, /* memory is waited for */
    HT_WORK_HEAVY, /* an element takes longer than to read and write it */
    HT_WORK_TILES, /* operands are read by tiles, which many rows of the result are written in */
    HT_WORK_KINDS
} ht_work;

typedef struct ht_trial {
    bool tries; /* both ways, the first half `first`; else all of it `first` */
    ht_way first;
    int64_t began, half; /* nanoseconds */
} ht_trial;

/* What to do with the next result of a kind of work on so many threads. */
ht_trial ht_ways_next(ht_work work, int threads);

/* Around the halves of one that tries: begin, half, end. */
void ht_ways_begin(ht_trial *t);
void ht_ways_half(ht_trial *t);
void ht_ways_end(const ht_trial *t, ht_work work, int threads);

#endif
