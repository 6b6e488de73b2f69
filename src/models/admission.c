#define _GNU_SOURCE
#include "models/admission.h"

#include "base/error.h"

#include <pthread.h>
#include <stdlib.h>
#include <time.h>

/* Polling interval of the cancellation: a signal handler may set the flag, but may not signal a condition variable. */
enum { POLL_NS = 20000000 };

/* A waiting thread, on its stack. A freed slot is handed to the first waiter directly, so that a later caller cannot
 * overtake it. */
typedef struct waiter {
    pthread_cond_t granted;
    bool has_slot;
    struct waiter *next;
} waiter;

struct ht_admission {
    pthread_mutex_t lock;
    int32_t count, free, waiting;
    waiter *first, *last;
};

/* Slots of this thread, innermost first. */
static _Thread_local ht_admission_slot *held;

ht_status ht_admission_new(int32_t n, ht_admission **out, ht_error *err) {
    ht_admission *s = *out = calloc(1, sizeof *s);
    if (!s) return ht_fail_memory(err, sizeof *s, "the slots of a model");
    pthread_mutex_init(&s->lock, NULL);
    s->count = s->free = n;
    return HT_OK;
}

void ht_admission_free(ht_admission *s) {
    if (!s) return;
    pthread_mutex_destroy(&s->lock);
    free(s);
}

int32_t ht_admission_count(const ht_admission *s) { return s->count; }

int32_t ht_admission_waiting(ht_admission *s) {
    pthread_mutex_lock(&s->lock);
    int32_t n = s->waiting;
    pthread_mutex_unlock(&s->lock);
    return n;
}

static void wait_one_interval(ht_admission *s, waiter *w) {
    struct timespec until;
    clock_gettime(CLOCK_MONOTONIC, &until);
    until.tv_nsec += POLL_NS;
    until.tv_sec += until.tv_nsec / 1000000000;
    until.tv_nsec %= 1000000000;
    pthread_cond_timedwait(&w->granted, &s->lock, &until);
}

static void append_waiter(ht_admission *s, waiter *w) {
    if (s->last)
        s->last->next = w;
    else
        s->first = w;
    s->last = w;
    s->waiting++;
}

static void remove_waiter(ht_admission *s, waiter *w) {
    waiter **at = &s->first, *before = NULL;
    while (*at != w) {
        before = *at;
        at = &before->next;
    }
    *at = w->next;
    if (s->last == w) s->last = before;
    s->waiting--;
}

/* Called with the lock held. */
static bool acquire_slot(ht_admission *s, const ht_cancel *cancel) {
    if (s->free > 0) { /* free slots imply an empty queue */
        s->free--;
        return true;
    }
    waiter w = {0};
    pthread_condattr_t clock;
    pthread_condattr_init(&clock);
    pthread_condattr_setclock(&clock, CLOCK_MONOTONIC);
    pthread_cond_init(&w.granted, &clock);
    pthread_condattr_destroy(&clock);
    append_waiter(s, &w);
    while (!w.has_slot && !ht_cancel_requested(cancel)) wait_one_interval(s, &w);
    if (!w.has_slot) remove_waiter(s, &w);
    pthread_cond_destroy(&w.granted);
    return w.has_slot;
}

ht_status ht_admission_enter(ht_admission *s, const ht_cancel *cancel, ht_admission_slot *slot, ht_error *err) {
    *slot = (ht_admission_slot){.of = s, .outer = held};
    for (const ht_admission_slot *h = held; h; h = h->outer) slot->shared = slot->shared || h->of == s;
    bool got = slot->shared;
    if (!got) {
        pthread_mutex_lock(&s->lock);
        got = acquire_slot(s, cancel);
        pthread_mutex_unlock(&s->lock);
    }
    if (!got)
        return ht_fail(err, HT_ERR_CANCELLED, "cancelled while waiting for one of the model's %d slots", (int)s->count);
    held = slot;
    return HT_OK;
}

void ht_admission_leave(ht_admission_slot *slot) {
    held = slot->outer;
    if (slot->shared) return;
    ht_admission *s = slot->of;
    pthread_mutex_lock(&s->lock);
    waiter *w = s->first;
    if (w) {
        remove_waiter(s, w);
        w->has_slot = true;
        pthread_cond_signal(&w->granted);
    } else {
        s->free++;
    }
    pthread_mutex_unlock(&s->lock);
}
