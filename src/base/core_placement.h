/* Core placement: spreads the threads of a pool over the cores when they are woken together.
 *
 * Linux does not always do so. On a virtual machine its scheduler may judge a core that has been idle for some
 * milliseconds to be busy with another guest, and wake a thread on the core of its waker, where it waits while the
 * other core stays idle. A pool that notices late threads (pool.c) therefore sets their affinity masks before waking
 * them. Each thread restores its mask once awake, so that no thread stays bound. Trap: a thread whose mask was set once
 * no longer follows a cpuset that is enlarged later.
 *
 * Without affinity calls, or without permission for them, every function does nothing. */
#ifndef HT_BASE_CORE_PLACEMENT_H
#define HT_BASE_CORE_PLACEMENT_H

#include <stdbool.h>

typedef struct ht_core_placement ht_core_placement;

/* Array of n placements; the caller frees it with free(). NULL when memory ran out. */
ht_core_placement *ht_core_placements_new(int n);
ht_core_placement *ht_core_placement_at(ht_core_placement *placements, int i);

/* Core of the calling thread; -1: unknown. */
int ht_core_now(void);

/* Registers the calling thread as asleep, just before it waits. The caller serialises this function,
 * ht_core_placement_woken and ht_core_placements_send by a lock. */
void ht_core_placement_sleep(ht_core_placement *placement);
/* Ends the registration, called by the same thread once awake, and restores its affinity mask. Returns true when
 * ht_core_placements_send moved the thread. */
bool ht_core_placement_woken(ht_core_placement *placement);

/* Moves each sleeping thread of this process to a separate core while cores remain, never to `core`, the caller's. */
void ht_core_placements_send(ht_core_placement *placements, int n, int core);

#endif
