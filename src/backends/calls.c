#include "backends/calls.h"

#include "base/clock.h"
#include "base/error.h"
#include "base/system.h"

#include <stddef.h>

/* Interval at which a wait checks its flag: a signal handler may set it, but may not signal a condition variable. */
static const double poll_seconds = 0.02;

void ht_calls_init(ht_calls *calls) {
    pthread_mutex_init(&calls->lock, NULL);
    calls->first = NULL;
}

void ht_calls_free(ht_calls *calls) { pthread_mutex_destroy(&calls->lock); }

void ht_calls_enter(ht_calls *calls, ht_backend_call *call, const ht_cancel *of_caller) {
    *call = (ht_backend_call){.cancel = ht_cancel_following(of_caller)};
    pthread_mutex_lock(&calls->lock);
    call->next = calls->first;
    calls->first = call;
    pthread_mutex_unlock(&calls->lock);
}

void ht_calls_leave(ht_calls *calls, ht_backend_call *call) {
    pthread_mutex_lock(&calls->lock);
    ht_backend_call **at = &calls->first;
    while (*at != call) at = &(*at)->next;
    *at = call->next;
    pthread_mutex_unlock(&calls->lock);
}

void ht_calls_cancel(ht_calls *calls) {
    pthread_mutex_lock(&calls->lock);
    for (ht_backend_call *call = calls->first; call; call = call->next) ht_cancel_request(&call->cancel.flag);
    pthread_mutex_unlock(&calls->lock);
}

/* ---- turns ---- */

void ht_turns_init(ht_turns *t) {
    *t = (ht_turns){.last = &t->first};
    pthread_mutex_init(&t->lock, NULL);
}

void ht_turns_free(ht_turns *t) { pthread_mutex_destroy(&t->lock); }

static void take_out(ht_turns *t, ht_turn_waiter *w) {
    ht_turn_waiter **at = &t->first;
    while (*at != w) at = &(*at)->next;
    if (!(*at = w->next)) t->last = at;
}

/* Waits at the end of the queue, with the lock held. A free turn goes to the first in the queue: no call overtakes. */
static bool wait_for_turn(ht_turns *t, const ht_cancel *cancel) {
    ht_turn_waiter w = {.thread = pthread_self()};
    ht_condition_init(&w.given);
    *t->last = &w;
    t->last = &w.next;
    while (!w.has_turn && !ht_cancel_requested(cancel))
        ht_condition_wait_until(&w.given, &t->lock, ht_now_seconds() + poll_seconds);
    if (!w.has_turn) take_out(t, &w);
    pthread_cond_destroy(&w.given);
    return w.has_turn;
}

ht_status ht_turns_enter(ht_turns *t, const ht_cancel *cancel, ht_error *err) {
    ht_status status = HT_OK;
    pthread_mutex_lock(&t->lock);
    if (ht_cancel_requested(cancel))
        status = ht_fail(err, HT_ERR_CANCELLED, "cancelled before the call");
    else if (t->taken && pthread_equal(t->owner, pthread_self()))
        status = ht_fail(err, HT_ERR_ARGUMENT, "a call on a model from a callback of another call on it");
    else if (t->taken && !wait_for_turn(t, cancel))
        status = ht_fail(err, HT_ERR_CANCELLED, "cancelled while waiting for the calls before it");
    else
        t->owner = pthread_self();
    t->taken = t->taken || !status;
    pthread_mutex_unlock(&t->lock);
    return status;
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
