/* Calls under way on a backend's model: ht_backend_cancel ends all at once; turns let one run at a time, in order of arrival. Thread-safe. */
#ifndef HT_BACKENDS_CALLS_H
#define HT_BACKENDS_CALLS_H

#include "base/cancel.h"

#include <pthread.h>

/* A call, on the stack of its thread. Its cancel flag is `&call.cancel.flag`. */
typedef struct ht_backend_call {
    ht_cancel_both cancel;
    struct ht_backend_call *next;
} ht_backend_call;

typedef struct ht_calls {
    pthread_mutex_t lock;
    ht_backend_call *first;
} ht_calls;

void ht_calls_init(ht_calls *calls);
void ht_calls_free(ht_calls *calls);
/* `of_caller` is the caller's cancel flag, or NULL. */
void ht_calls_enter(ht_calls *calls, ht_backend_call *call, const ht_cancel *of_caller);
void ht_calls_leave(ht_calls *calls, ht_backend_call *call);
void ht_calls_cancel(ht_calls *calls);

/* A waiting thread, on its stack. */
typedef struct ht_turn_waiter {
    pthread_cond_t given;
    pthread_t thread;
    bool has_turn;
    struct ht_turn_waiter *next;
} ht_turn_waiter;

typedef struct ht_turns {
    pthread_mutex_t lock;
    bool taken;
    pthread_t owner; /* while taken */
    ht_turn_waiter *first, **last;
} ht_turns;

void ht_turns_init(ht_turns *t);
void ht_turns_free(ht_turns *t); /* no thread has a turn or waits for one */

/* HT_ERR_CANCELLED once it is requested, HT_ERR_ARGUMENT for a thread that has the turn (a callback of its call). */
ht_status ht_turns_enter(ht_turns *t, const ht_cancel *cancel, ht_error *err);
void ht_turns_leave(ht_turns *t);

#endif
