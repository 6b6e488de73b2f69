/* Admission control: a FIFO semaphore that limits the calls computing on a model at once, as more calls would only slow
 * each other down. Thread-safe. */
#ifndef HT_MODELS_ADMISSION_H
#define HT_MODELS_ADMISSION_H

#include <hearth/cancel.h>

#include <stdbool.h>
#include <stdint.h>

typedef struct ht_admission ht_admission;

/* A semaphore of n >= 1 slots. */
ht_status ht_admission_new(int32_t n, ht_admission **out, ht_error *err);
void ht_admission_free(ht_admission *s); /* NULL is fine; every slot must have been left */

int32_t ht_admission_count(const ht_admission *s);
int32_t ht_admission_waiting(ht_admission *s); /* threads in ht_admission_enter */

/* A thread's slot, on its stack from enter to leave. */
typedef struct ht_admission_slot {
    ht_admission *of;
    bool shared; /* nested: the thread already has a slot of this semaphore */
    struct ht_admission_slot *outer;
} ht_admission_slot;

/* Waits for a slot in FIFO order. Reentrant: a thread that already has one (a callback that uses the model) does not
 * wait. HT_ERR_CANCELLED once it is requested (NULL: never); then leave must not be called. */
ht_status ht_admission_enter(ht_admission *s, const ht_cancel *cancel, ht_admission_slot *slot, ht_error *err);
/* Releases a slot: on the entering thread, in reverse order of entry. */
void ht_admission_leave(ht_admission_slot *slot);

#endif
