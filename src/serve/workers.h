/* Thread pool for work that must not block connections: parsing bodies, formatting prompts, embeddings.
 *
 * Work runs in FIFO order. Threads are created on demand, at most `most`. */
#ifndef HT_SERVE_WORKERS_H
#define HT_SERVE_WORKERS_H

#include <hearth/status.h>

#include <stdbool.h>
#include <stddef.h>

typedef struct serve_workers serve_workers;

/* A queue entry, embedded in the object that the work is about. */
typedef struct serve_work {
    void (*run)(struct serve_work *work);
    struct serve_work *next;
} serve_work;

/* Creates a pool of at most `most` threads; the caller frees *out. */
ht_status serve_workers_new(int most, size_t queue, serve_workers **out, ht_error *err);
/* Queues work, which must stay valid until it runs. False when `queue` entries wait, without `force`, or no thread
 * starts. */
bool serve_workers_put(serve_workers *w, serve_work *work, bool force);
/* Waits for all queued work. NULL is fine. */
void serve_workers_free(serve_workers *w);

#endif
