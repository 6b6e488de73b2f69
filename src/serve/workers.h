/* Threads of the server that do what must not hold up its connections: reading bodies, writing prompts, embeddings.
 *
 * Work is done in the order in which it comes, by as many threads as there is work for, at most `most`. */
#ifndef HT_SERVE_WORKERS_H
#define HT_SERVE_WORKERS_H

#include <hearth/status.h>

#include <stdbool.h>
#include <stddef.h>

typedef struct serve_workers serve_workers;

/* A piece of work, part of what it is about. */
typedef struct serve_work {
    void (*run)(struct serve_work *work);
    struct serve_work *next;
} serve_work;

/* Of at most so many threads; the caller frees *out. */
ht_status serve_workers_new(int most, size_t queue, serve_workers **out, ht_error *err);
/* Queues work, which must have been done, or never begun, before it goes. False: `queue` pieces wait already, and `force` is not set;
 * or no thread could be made. */
bool serve_workers_put(serve_workers *w, serve_work *work, bool force);
/* Waits for all that has been queued. NULL is fine. */
void serve_workers_free(serve_workers *w);

#endif
