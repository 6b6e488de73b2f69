/* Admission of calls that compute on a model at once: a fixed number of slots, given out in the order in which they
 * were asked for. More calls would not make the machine faster, but each of them slower. Thread-safe. */
#ifndef HT_MODELS_ADMISSION_H
#define HT_MODELS_ADMISSION_H

#include <hearth/cancel.h>

#include <stdbool.h>
#include <stdint.h>

typedef struct ht_admission ht_admission;

/* n slots, 1 or more. */
ht_status ht_admission_new(int32_t n, ht_admission **out, ht_error *err);
void ht_admission_free(ht_admission *s); /* NULL is fine; no slot may be held */

int32_t ht_admission_count(const ht_admission *s);
int32_t ht_admission_waiting(ht_admission *s); /* threads in ht_admission_enter */

/* A slot held by a thread; lives on its stack between enter and leave. */
typedef struct ht_admission_slot {
    ht_admission *of;
    bool shared; /* the thread held one already, outside of this call, and goes on with it */
    struct ht_admission_slot *outer;
} ht_admission_slot;

/* Waits for a slot. A thread that holds one of these slots already (a callback of a call that uses the model itself) gets it
 * once more, as it would wait for itself otherwise. HT_ERR_CANCELLED when it is requested (NULL: never) before there is one;
 * then there is nothing to leave. */
ht_status ht_admission_enter(ht_admission *s, const ht_cancel *cancel, ht_admission_slot *slot, ht_error *err);
/* On the thread that entered, the last one entered first. */
void ht_admission_leave(ht_admission_slot *slot);

#endif
