/* How results that caches cannot keep are written: by plain stores or round the caches (bypass.h), with operands asked for
 * ahead or left to the processor. Which is the fastest differs by half or more: with the processor, with how long an element
 * takes to compute, with how many operands there are, with how many threads share the memory. So it is found out on the work
 * itself: now and then one half of a result is written in the way that was the fastest so far, the other half in another one,
 * and both are timed. Results do not depend on it. */
#ifndef HT_CPU_WAYS_H
#define HT_CPU_WAYS_H

#include <stdbool.h>
#include <stdint.h>

typedef enum ht_way {
    HT_WAY_BYPASS,       /* round the caches, asking for operands; taken until another one is known to be faster */
    HT_WAY_BYPASS_SHORT, /* the same with smaller blocks, asking half as far ahead */
    HT_WAY_BYPASS_QUIET, /* round the caches without asking */
    HT_WAY_PLAIN,        /* asking for operands, and for what is overwritten */
    HT_WAY_PLAIN_QUIET,  /* the same without asking */
    HT_WAY_COUNT
} ht_way;

typedef enum ht_work {
    HT_WORK_LIGHT_ONE,   /* memory is waited for: of one operand, */
    HT_WORK_LIGHT_MORE,  /* of several, */
    HT_WORK_NARROW_ONE,  /* and where something takes less than four bytes */
    HT_WORK_NARROW_MORE, /* an element */
    HT_WORK_MATH,        /* an element takes longer than to read and write it */
    HT_WORK_LONG,        /* many operations */
    HT_WORK_TILES,       /* operands are read by tiles, which many rows of the result are written in */
    HT_WORK_COUNT
} ht_work;

typedef struct ht_trial {
    bool tries; /* the first half `first`, the other half `second`; else all of it `first` */
    ht_way first, second;
    int64_t began, half; /* nanoseconds */
} ht_trial;

/* What to do with the next result of a kind of work on so many threads. */
ht_trial ht_ways_next(ht_work work, int threads);

/* Around the halves of one that tries: begin, half, end. */
void ht_ways_begin(ht_trial *t);
void ht_ways_half(ht_trial *t);
void ht_ways_end(const ht_trial *t, ht_work work, int threads);

#endif
