#include "backends/turn.h"

#include "base/clock.h"
#include "base/error.h"
#include "base/system.h"

#include <stddef.h>
#include <time.h>

/* How often the flag is looked at: a signal handler may set it, but may not signal a condition variable. */
enum { POLL_NS = 20000000 };

void ht_turns_init(ht_turns *t) {
    *t = (ht_turns){0};
    pthread_mutex_init(&t->lock, NULL);
}

void ht_turns_free(ht_turns *t) { pthread_mutex_destroy(&t->lock); }

static void append(ht_turns *t, ht_turn_waiter *w) {
    if (t->last)
        t->last->next = w;
    else
        t->first = w;
    t->last = w;
}

static void take_out(ht_turns *t, ht_turn_waiter *w) {
    ht_turn_waiter **at = &t->first, *before = NULL;
    while (*at != w) {
        before = *at;
        at = &before->next;
    }
    *at = w->next;
    if (t->last == w) t->last = before;
}

static void wait_a_while(ht_turns *t, ht_turn_waiter *w) {
    ht_condition_wait_until(&w->given, &t->lock, ht_now_seconds() + (double)POLL_NS * 1e-9);
}

/* With the lock held, behind those that wait already. A turn that becomes free is given to the first of them, so that no later
 * call overtakes it. */
static bool wait_for_turn(ht_turns *t, const ht_cancel *cancel) {
    ht_turn_waiter w = {.thread = pthread_self()};
    ht_condition_init(&w.given);
    append(t, &w);
    while (!w.has_turn && !ht_cancel_requested(cancel)) wait_a_while(t, &w);
    if (!w.has_turn) take_out(t, &w);
    pthread_cond_destroy(&w.given);
    return w.has_turn;
}

ht_status ht_turns_enter(ht_turns *t, const ht_cancel *cancel, ht_error *err) {
    ht_status st = HT_OK;
    pthread_mutex_lock(&t->lock);
    if (ht_cancel_requested(cancel))
        st = ht_fail(err, HT_ERR_CANCELLED, "cancelled before the call");
    else if (t->taken && pthread_equal(t->owner, pthread_self()))
        st = ht_fail(err, HT_ERR_ARGUMENT, "a call on a model from a callback of another call on it");
    else if (t->taken && !wait_for_turn(t, cancel))
        st = ht_fail(err, HT_ERR_CANCELLED, "cancelled while waiting for the calls before it");
    else
        t->owner = pthread_self();
    t->taken = t->taken || !st;
    pthread_mutex_unlock(&t->lock);
    return st;
}

void ht_turns_leave(ht_turns *t) {
    pthread_mutex_lock(&t->lock);
    ht_turn_waiter *w = t->first;
    if (w) {
        take_out(t, w);
        w->has_turn = true;
        t->owner = w->thread;
        pthread_cond_signal(&w->given);
    } else
        t->taken = false;
    pthread_mutex_unlock(&t->lock);
}
