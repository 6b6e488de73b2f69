/* The thread that computes masks while steps run, and its queue of orders. */
#include "generate/masks_ahead.h"

#include "base/system.h"
#include "device/device.h"

#include <pthread.h>
#include <stdlib.h>

struct ht_masks_ahead {
    bool is_off;     /* masks are computed where they are needed */
    bool has_thread; /* the caller's */
    pthread_t thread;
    pthread_mutex_t lock;         /* of all that follows */
    pthread_cond_t work, done;    /* for the thread; for waiting until an order has ended */
    ht_mask_order *first, **last; /* that wait */
    ht_mask_order *now;           /* that the thread works on */
    bool closing;
};

ht_masks_ahead *ht_masks_ahead_new(const ht_device *d) {
    ht_masks_ahead *t = calloc(1, sizeof *t);
    if (!t) return NULL;
    /* A step on every core has none to spare: the thread would stop one worker, and all others wait for that one. */
    t->is_off = !d->queue && d->n_threads >= ht_system_cores();
    t->last = &t->first;
    pthread_mutex_init(&t->lock, NULL);
    pthread_cond_init(&t->work, NULL);
    pthread_cond_init(&t->done, NULL);
    return t;
}

void ht_masks_ahead_free(ht_masks_ahead *t) {
    if (!t) return;
    if (t->has_thread) {
        pthread_mutex_lock(&t->lock);
        t->closing = true;
        pthread_cond_signal(&t->work);
        pthread_mutex_unlock(&t->lock);
        pthread_join(t->thread, NULL);
    }
    pthread_cond_destroy(&t->done);
    pthread_cond_destroy(&t->work);
    pthread_mutex_destroy(&t->lock);
    free(t);
}

/* ---- the thread ---- */

static void find_places(const ht_mask_order *order, const ht_mask_places *places) {
    for (int i = 0; i < places->n; i++)
        if (!atomic_load_explicit(&order->is_late, memory_order_relaxed)) ht_grammar_find_mask(places, i);
}

static void *find_masks(void *user) {
    ht_masks_ahead *t = user;
    pthread_mutex_lock(&t->lock);
    while (!t->closing) {
        ht_mask_order *order = t->now = t->first;
        if (!order) {
            pthread_cond_wait(&t->work, &t->lock);
            continue;
        }
        if (!(t->first = order->next)) t->last = &t->first;
        pthread_mutex_unlock(&t->lock);
        for (int i = 0; i < order->places.n; i++) find_places(order, &order->places.of[i]);
        pthread_mutex_lock(&t->lock);
        t->now = NULL;
        pthread_cond_broadcast(&t->done);
    }
    pthread_mutex_unlock(&t->lock);
    return NULL;
}

/* ---- orders ---- */

void ht_masks_ahead_order(ht_masks_ahead *t, ht_mask_order *order, ht_answer_matcher *m, const int32_t *guess, int n) {
    if (t->is_off) return;
    ht_answer_matcher_missing(m, guess, n, &order->places);
    if (!order->places.n) return;
    if (!t->has_thread) t->has_thread = pthread_create(&t->thread, NULL, find_masks, t) == 0;
    t->is_off = !t->has_thread;
    if (t->is_off) return;
    order->is_there = true;
    order->next = NULL;
    atomic_store_explicit(&order->is_late, false, memory_order_relaxed);
    pthread_mutex_lock(&t->lock);
    *t->last = order;
    t->last = &order->next;
    pthread_cond_signal(&t->work);
    pthread_mutex_unlock(&t->lock);
}

void ht_masks_ahead_end(ht_masks_ahead *t, ht_mask_order *order) {
    if (!order->is_there) return;
    order->is_there = false;
    atomic_store_explicit(&order->is_late, true, memory_order_relaxed);
    pthread_mutex_lock(&t->lock);
    for (ht_mask_order **at = &t->first; *at; at = &(*at)->next) {
        if (*at != order) continue;
        if (!(*at = order->next)) t->last = at;
        break;
    }
    while (t->now == order) pthread_cond_wait(&t->done, &t->lock);
    pthread_mutex_unlock(&t->lock);
}
