/* Work-stealing thread pool of a device. A job is divided into numbered blocks; every thread, including the caller,
 * gets an equal range of consecutive blocks. A thread runs its range front to back, for sequential memory access, then
 * steals blocks from the ends of other ranges. A preempted thread therefore delays the job by at most one block.
 *
 * The pool is leased to one caller at a time, in order of arrival. Workers spin briefly for the next job, then park. Every thread of the
 * pool flushes denormals. */
#ifndef HT_BASE_POOL_H
#define HT_BASE_POOL_H

#include <hearth/status.h>

#include <stdint.h>

typedef struct ht_pool ht_pool;

/* Runs items [begin, end) of a job. `worker`, 0 .. n_threads - 1, is the index of the running thread, for per-thread
 * scratch. The assignment of items to threads is not deterministic: results must not depend on it. */
typedef void ht_block_fn(void *arg, int64_t begin, int64_t end, int worker);

/* Starts n_threads - 1 workers: n_threads includes the calling thread; 0: one per available core. The caller frees *out. */
ht_status ht_pool_new(int n_threads, ht_pool **out, ht_error *err);
void ht_pool_free(ht_pool *pool); /* not while leased; NULL is fine */
int ht_pool_threads(const ht_pool *pool);

/* Leases the pool to the calling thread, waiting for other leases to end. Workers spin between the jobs of a lease
 * instead of parking. Leases do not nest. */
void ht_pool_lease(ht_pool *pool);
/* Ends the lease. */
void ht_pool_release(ht_pool *pool);
/* Between two jobs of a lease: if it has lasted some 20 ms and other callers wait, ends it and leases again. */
void ht_pool_yield(ht_pool *pool);

/* Runs fn over n items in blocks of `grain` items and returns when all are done. The caller holds the lease. */
void ht_pool_run(ht_pool *pool, int64_t n, int64_t grain, ht_block_fn *fn, void *arg);

/* Position of a block in time, for a job of n_blocks blocks on equally fast threads: a permutation of 0 .. n_blocks -
 * 1. Jobs with blocks of unequal length use it to start the longest first. */
int64_t ht_pool_rank(const ht_pool *pool, int64_t n_blocks, int64_t block);

/* Sets flush-to-zero and denormals-are-zero on the calling thread and returns the state for ht_restore_denormals. */
unsigned ht_flush_denormals(void);
void ht_restore_denormals(unsigned state);

#endif
