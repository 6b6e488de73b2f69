/* Thread pool of a device: work is cut into numbered blocks, of which the caller and each worker get a run of the same
 * length. They take its blocks one by one, and then those that are left at the ends of other runs, so that a thread
 * reads memory front to back, and one that was kept off its core holds up the others only for a block.
 *
 * The pool is leased: ht_pool_run may be called from several threads, which then take turns. Workers spin briefly for the
 * next job and park after that. Every thread that computes flushes denormals. */
#ifndef HT_BASE_POOL_H
#define HT_BASE_POOL_H

#include <hearth/status.h>

#include <stdint.h>

typedef struct ht_pool ht_pool;

/* Runs blocks [begin, end) of a job; `worker` (0 .. n_threads - 1) tells which thread runs, for per-thread scratch.
 * Which worker runs which block is not determined: results must not depend on it. */
typedef void ht_block_fn(void *arg, int64_t begin, int64_t end, int worker);

/* n_threads includes the calling thread; 0 means one per available core. */
ht_status ht_pool_new(int n_threads, ht_pool **out, ht_error *err);
void ht_pool_free(ht_pool *pool); /* NULL is fine; no lease may be held */
int ht_pool_threads(const ht_pool *pool);

/* A lease keeps the workers spinning between the jobs of one step. Between lease and release only the leasing thread
 * may run jobs. Leases of one pool wait for each other and do not nest. */
void ht_pool_lease(ht_pool *pool);
void ht_pool_release(ht_pool *pool);

/* Runs fn over n blocks, `grain` at a time, and returns when all are done. The caller holds the lease. */
void ht_pool_run(ht_pool *pool, int64_t n, int64_t grain, ht_block_fn *fn, void *arg);

/* Where block `block` (of a job of n_blocks, with a grain of 1) comes in time when all threads are equally fast: a
 * permutation of 0 .. n_blocks - 1, for jobs whose long blocks should begin first. */
int64_t ht_pool_rank(const ht_pool *pool, int64_t n_blocks, int64_t block);

/* Sets flush-to-zero on the calling thread and returns the state to restore. */
unsigned ht_flush_denormals(void);
void ht_restore_denormals(unsigned state);

#endif
