/* Turns: calls on something that does one at a time, in the order in which they came. Thread-safe. */
#ifndef HT_BACKENDS_TURN_H
#define HT_BACKENDS_TURN_H

#include <hearth/cancel.h>

#include <pthread.h>
#include <stdbool.h>

/* A thread that waits, on its stack. */
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
    ht_turn_waiter *first, *last;
} ht_turns;

void ht_turns_init(ht_turns *t);
void ht_turns_free(ht_turns *t); /* nobody has a turn, or waits for one */

/* HT_ERR_CANCELLED once it is requested, HT_ERR_ARGUMENT for a thread that has the turn (a callback of its call). */
ht_status ht_turns_enter(ht_turns *t, const ht_cancel *cancel, ht_error *err);
void ht_turns_leave(ht_turns *t);

#endif
