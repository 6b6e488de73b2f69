/* Admission of calls that compute on a model at once: a fixed number of slots, given out in the order in which they
 * were asked for. More calls would not make the machine faster, but each of them slower. Thread-safe. */
#ifndef HT_MODELS_SLOTS_H
#define HT_MODELS_SLOTS_H

#include <hearth/status.h>

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

typedef struct ht_slots ht_slots;

/* n slots, 1 or more. */
ht_status ht_slots_new(int32_t n, ht_slots **out, ht_error *err);
void ht_slots_free(ht_slots *s); /* NULL is fine; no slot may be held */

int32_t ht_slots_count(const ht_slots *s);
int32_t ht_slots_waiting(ht_slots *s); /* threads in ht_slots_enter */

/* A slot held by a thread; lives on its stack between enter and leave. */
typedef struct ht_slot {
    ht_slots *of;
    bool shared; /* the thread held one already, outside of this call, and goes on with it */
    struct ht_slot *outer;
} ht_slot;

/* Waits for a slot. A thread that holds one of these slots already (a callback of a call that uses the model itself) gets it
 * once more, as it would wait for itself otherwise. HT_ERR_CANCELLED when *cancelled (NULL: never) became true meanwhile;
 * then there is nothing to leave. */
ht_status ht_slots_enter(ht_slots *s, const _Atomic bool *cancelled, ht_slot *slot, ht_error *err);
/* On the thread that entered, the last one entered first. */
void ht_slots_leave(ht_slot *slot);

#endif
