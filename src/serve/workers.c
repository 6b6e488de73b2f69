#include "serve/workers.h"

#include "base/error.h"

#include <pthread.h>
#include <stdlib.h>

struct serve_workers {
    pthread_mutex_t lock;
    pthread_cond_t work;
    serve_work *first, *last;
    size_t n_waiting, queue;
    int n_threads, n_idle, most;
    bool ending;
    pthread_t thread[];
};

static void *run(void *user) {
    serve_workers *w = user;
    pthread_mutex_lock(&w->lock);
    for (;;) {
        while (!w->first && !w->ending) {
            w->n_idle++;
            pthread_cond_wait(&w->work, &w->lock);
            w->n_idle--;
        }
        serve_work *next = w->first;
        if (!next) break;
        w->first = next->next;
        if (!w->first) w->last = NULL;
        w->n_waiting--;
        pthread_mutex_unlock(&w->lock);
        next->run(next);
        pthread_mutex_lock(&w->lock);
    }
    pthread_mutex_unlock(&w->lock);
    return NULL;
}

ht_status serve_workers_new(int most, size_t queue, serve_workers **out, ht_error *err) {
    const size_t bytes = sizeof **out + (size_t)most * sizeof(pthread_t);
    serve_workers *w = *out = calloc(1, bytes);
    if (!w) return ht_fail_memory(err, bytes, "the server's threads");
    pthread_mutex_init(&w->lock, NULL);
    pthread_cond_init(&w->work, NULL);
    w->most = most;
    w->queue = queue;
    return HT_OK;
}

bool serve_workers_put(serve_workers *w, serve_work *work, bool force) {
    pthread_mutex_lock(&w->lock);
    bool taken = force || w->n_waiting < w->queue;
    /* Signalled threads count as idle until they run, and their work as waiting. Add a thread only if none is free. */
    if (taken && w->n_waiting >= (size_t)w->n_idle && w->n_threads < w->most &&
        pthread_create(&w->thread[w->n_threads], NULL, run, w) == 0)
        w->n_threads++;
    taken = taken && w->n_threads > 0;
    if (taken) {
        work->next = NULL;
        if (w->last)
            w->last->next = work;
        else
            w->first = work;
        w->last = work;
        w->n_waiting++;
        pthread_cond_signal(&w->work);
    }
    pthread_mutex_unlock(&w->lock);
    return taken;
}

void serve_workers_free(serve_workers *w) {
    if (!w) return;
    pthread_mutex_lock(&w->lock);
    w->ending = true;
    pthread_cond_broadcast(&w->work);
    pthread_mutex_unlock(&w->lock);
    for (int i = 0; i < w->n_threads; i++) pthread_join(w->thread[i], NULL);
    pthread_cond_destroy(&w->work);
    pthread_mutex_destroy(&w->lock);
    free(w);
}
