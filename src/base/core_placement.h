/* Thread placement: threads that are woken together begin on cores of their own.
 *
 * The scheduler does not always see to that: on virtual machines Linux may take a core that has slept for some milliseconds
 * for one that other machines use, and put a thread on the core of the one that wakes it, where it waits for its turn,
 * while the other core sleeps on. A pool that notices this (pool.c) says before it wakes threads where they may not begin.
 * Nothing is bound to a core for longer: a thread that has arrived may go wherever it might go before. (Linux remembers that
 * its mask was set, so that it does not follow a set of cores that is made larger from outside.)
 *
 * Where there are no such calls, or they are not allowed, nothing happens. */
#ifndef HT_BASE_CORE_PLACEMENT_H
#define HT_BASE_CORE_PLACEMENT_H

#include <stdbool.h>

typedef struct ht_core_placement ht_core_placement; /* of a thread */

/* n of them, to be freed with free(); NULL when memory is short. */
ht_core_placement *ht_core_placements_new(int n);

ht_core_placement *ht_core_placement_at(ht_core_placement *placements, int i);

/* The core that the calling thread is on, -1 if that is not known. */
int ht_core_now(void);

/* By the thread itself: before it sleeps, and when it has been woken. Between the two it may be sent. Callers see to it that
 * these and ht_core_placements_send do not overlap. */
void ht_core_placement_sleep(ht_core_placement *placement);
bool ht_core_placement_woken(
    ht_core_placement *placement); /* whether it had been sent; it may then go again where it might go before */

/* Sends those of this process that sleep to cores of their own, as far as there are enough: not `core`, and not one of
 * another's. */
void ht_core_placements_send(ht_core_placement *placements, int n, int core);

#endif
