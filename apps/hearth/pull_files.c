/* Transfers side by side: threads that take one file after the other, each with a connection of its own. */
#include "fail.h"
#include "pull_file.h"

#include <pthread.h>
#include <string.h>

enum { THREADS_MAX = 16 };

typedef struct job {
    const hub *hub;
    pull_settings settings; /* the hub's, with `stop` */
    pull_store *store;
    const hub_file *const *files;
    size_t n;
    atomic_size_t next; /* file to fetch */
    atomic_bool stop;
    pthread_mutex_t lock; /* status, err */
    ht_status status;     /* of the first failure */
    ht_error err;
} job;

typedef struct worker {
    job *job;
    http *http;
    pthread_t thread;
    bool started;
} worker;

static void note_failure(job *j, ht_status st, const ht_error *err) {
    pthread_mutex_lock(&j->lock);
    if (!j->status) {
        j->status = st;
        j->err = *err;
    }
    pthread_mutex_unlock(&j->lock);
    atomic_store(&j->stop, true);
}

static void *work(void *user) {
    const worker *w = user;
    job *j = w->job;
    hub own = *j->hub;
    own.http = w->http;
    own.settings = &j->settings;
    for (size_t i; !atomic_load(&j->stop) && (i = atomic_fetch_add(&j->next, 1)) < j->n;) {
        char size[SIZE_BYTES];
        ht_error err = {0};
        const ht_status st = pull_file(&own, j->store, j->files[i], &err);
        if (st)
            note_failure(j, st, &err);
        else
            pull_note(own.show, "%.300s  %s", j->files[i]->path, size_text(j->files[i]->size, size));
    }
    return NULL;
}

/* Connections, then threads: the first worker is this thread, and does all where there is no other. */
static void run(worker *workers, size_t n) {
    for (size_t i = 1; i < n; i++)
        workers[i].started = pthread_create(&workers[i].thread, NULL, work, &workers[i]) == 0;
    work(&workers[0]);
    for (size_t i = 1; i < n; i++)
        if (workers[i].started) pthread_join(workers[i].thread, NULL);
}

ht_status pull_files(const hub *h, pull_store *s, const hub_file *const *files, size_t n, ht_error *err) {
    worker workers[THREADS_MAX] = {0};
    job j = {.hub = h, .settings = *h->settings, .store = s, .files = files, .n = n, .lock = PTHREAD_MUTEX_INITIALIZER};
    size_t n_workers = (size_t)h->settings->connections;
    ht_status st = HT_OK;
    if (n_workers > n) n_workers = n;
    if (n_workers > THREADS_MAX) n_workers = THREADS_MAX;
    j.settings.stop = &j.stop;
    for (size_t i = 0; i < n_workers && !st; i++) {
        workers[i].job = &j;
        st = http_new(&j.settings, &workers[i].http, err);
    }
    if (!st && n_workers) {
        run(workers, n_workers);
        st = j.status;
        if (st) *err = j.err;
    }
    for (size_t i = 0; i < n_workers; i++) http_free(workers[i].http);
    pthread_mutex_destroy(&j.lock);
    return st;
}
