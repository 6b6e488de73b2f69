#define _GNU_SOURCE
#include "base/pool.h"

#include "base/checked.h"
#include "base/error.h"

#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdlib.h>

#if defined(__x86_64__)
#include <immintrin.h>
static inline void relax(void) { _mm_pause(); }
#elif defined(__aarch64__)
static inline void relax(void) { __asm__ volatile("yield"); }
#else
static inline void relax(void) { sched_yield(); }
#endif

/* Iterations of relax(), roughly 40 ns each on x86: a worker outside a lease gives its core back after some 20 us,
 * inside a lease it stays for the length of a serial phase. */
enum { SPIN_IDLE = 500, SPIN_LEASED = 20000, SPIN_YIELD = 2000 };

typedef struct worker {
    ht_pool *pool;
    pthread_t thread;
    int index;
} worker;

struct ht_pool {
    int n_threads;
    worker *workers; /* n_threads - 1 of them */
    int n_started;
    pthread_mutex_t lease;

    /* The job. `ticket` holds the generation in its high half and the count of unclaimed blocks in its low half; the
     * other fields may be read by whoever claimed a block, because the job cannot end before that block is done. */
    _Alignas(64) _Atomic uint64_t ticket;
    _Alignas(64) _Atomic int64_t completed;
    ht_block_fn *fn;
    void *arg;
    int64_t n, grain, n_blocks;

    _Alignas(64) _Atomic int parked;
    _Atomic bool leased;
    _Atomic bool stopping;
    pthread_mutex_t park_lock;
    pthread_cond_t park;
};

unsigned ht_flush_denormals(void) {
#if defined(__x86_64__)
    unsigned old = _mm_getcsr();
    _mm_setcsr(old | 0x8040u); /* flush to zero, denormals are zero */
    return old;
#elif defined(__aarch64__)
    uint64_t old;
    __asm__ volatile("mrs %0, fpcr" : "=r"(old));
    __asm__ volatile("msr fpcr, %0" : : "r"(old | (UINT64_C(1) << 24)));
    return (unsigned)old;
#else
    return 0;
#endif
}

void ht_restore_denormals(unsigned state) {
#if defined(__x86_64__)
    _mm_setcsr(state);
#elif defined(__aarch64__)
    __asm__ volatile("msr fpcr, %0" : : "r"((uint64_t)state));
#else
    (void)state;
#endif
}

/* Takes one block of the current job and runs it; false when none is left. */
static bool run_one_block(ht_pool *p, int index) {
    uint64_t t = atomic_load_explicit(&p->ticket, memory_order_acquire);
    do {
        if ((uint32_t)t == 0) return false;
    } while (!atomic_compare_exchange_weak_explicit(&p->ticket, &t, t - 1, memory_order_acq_rel, memory_order_acquire));
    int64_t block = p->n_blocks - (int64_t)(uint32_t)t;
    int64_t begin = block * p->grain;
    p->fn(p->arg, begin, begin + ht_min_i64(p->grain, p->n - begin), index);
    atomic_fetch_add_explicit(&p->completed, 1, memory_order_release);
    return true;
}

/* Announces itself as parked, then looks for work once more; ht_pool_run publishes work, then looks for parked workers.
 * All four accesses are sequentially consistent, so one of the two sees the other. */
static void park_until_work(ht_pool *p) {
    pthread_mutex_lock(&p->park_lock);
    atomic_fetch_add(&p->parked, 1);
    while ((uint32_t)atomic_load(&p->ticket) == 0 && !atomic_load(&p->stopping) && !atomic_load(&p->leased))
        pthread_cond_wait(&p->park, &p->park_lock);
    atomic_fetch_sub(&p->parked, 1);
    pthread_mutex_unlock(&p->park_lock);
}

static void *work(void *arg) {
    worker *w = arg;
    ht_pool *p = w->pool;
    ht_flush_denormals();
    int idle = 0;
    while (!atomic_load_explicit(&p->stopping, memory_order_relaxed)) {
        if (run_one_block(p, w->index)) {
            idle = 0;
            continue;
        }
        idle++;
        if (atomic_load_explicit(&p->leased, memory_order_relaxed)) {
            /* A lease whose holder runs serial code for long must not burn a whole core: yield, but do not park, so that
             * no wake-up is needed within a step. */
            if (idle > SPIN_LEASED)
                sched_yield();
            else if (idle % SPIN_YIELD == 0)
                sched_yield();
            else
                relax();
        } else if (idle > SPIN_IDLE) {
            park_until_work(p);
            idle = 0;
        } else
            relax();
    }
    return NULL;
}

static void wake_parked(ht_pool *p) {
    if (atomic_load(&p->parked) == 0) return;
    pthread_mutex_lock(&p->park_lock);
    pthread_cond_broadcast(&p->park);
    pthread_mutex_unlock(&p->park_lock);
}

static int available_cores(void) {
    cpu_set_t set;
    if (sched_getaffinity(0, sizeof set, &set) != 0) return 1;
    int n = CPU_COUNT(&set);
    return n > 0 ? n : 1;
}

ht_status ht_pool_new(int n_threads, ht_pool **out, ht_error *err) {
    *out = NULL;
    if (n_threads < 0 || n_threads > 1024)
        return ht_fail(err, HT_ERR_ARGUMENT, "%d threads were asked for, expected 0 (one per core) to 1024", n_threads);
    if (n_threads == 0) n_threads = available_cores();
    ht_pool *p = aligned_alloc(64, (sizeof *p + 63) / 64 * 64);
    if (!p) return ht_fail_memory(err, sizeof *p, "the thread pool");
    *p = (ht_pool){.n_threads = n_threads};
    pthread_mutex_init(&p->lease, NULL);
    pthread_mutex_init(&p->park_lock, NULL);
    pthread_cond_init(&p->park, NULL);
    p->workers = calloc((size_t)n_threads, sizeof *p->workers);
    if (!p->workers) {
        ht_pool_free(p);
        return ht_fail_memory(err, (size_t)n_threads * sizeof(worker), "the thread pool");
    }
    for (int i = 0; i < n_threads - 1; i++) {
        worker *w = &p->workers[i];
        *w = (worker){.pool = p, .index = i + 1};
        if (pthread_create(&w->thread, NULL, work, w) != 0) {
            ht_pool_free(p);
            return ht_fail(err, HT_ERR_MEMORY, "thread %d of %d could not be started", i + 2, n_threads);
        }
        p->n_started++;
    }
    *out = p;
    return HT_OK;
}

void ht_pool_free(ht_pool *p) {
    if (!p) return;
    atomic_store(&p->stopping, true);
    pthread_mutex_lock(&p->park_lock);
    pthread_cond_broadcast(&p->park);
    pthread_mutex_unlock(&p->park_lock);
    for (int i = 0; i < p->n_started; i++) pthread_join(p->workers[i].thread, NULL);
    pthread_cond_destroy(&p->park);
    pthread_mutex_destroy(&p->park_lock);
    pthread_mutex_destroy(&p->lease);
    free(p->workers);
    free(p);
}

int ht_pool_threads(const ht_pool *p) { return p->n_threads; }

void ht_pool_lease(ht_pool *p) {
    pthread_mutex_lock(&p->lease);
    atomic_store(&p->leased, true);
    wake_parked(p);
}

void ht_pool_release(ht_pool *p) {
    atomic_store(&p->leased, false);
    pthread_mutex_unlock(&p->lease);
}

void ht_pool_run(ht_pool *p, int64_t n, int64_t grain, ht_block_fn *fn, void *arg) {
    if (n <= 0) return;
    if (grain < 1) grain = 1;
    if (grain > n) grain = n;
    int64_t n_blocks = ht_ceil_div_i64(n, grain);
    if (n_blocks > INT32_MAX) {
        grain = ht_ceil_div_i64(n, INT32_MAX);
        n_blocks = ht_ceil_div_i64(n, grain);
    }
    if (n_blocks == 1 || p->n_threads == 1) {
        fn(arg, 0, n, 0);
        return;
    }
    p->fn = fn;
    p->arg = arg;
    p->n = n;
    p->grain = grain;
    p->n_blocks = n_blocks;
    atomic_store_explicit(&p->completed, 0, memory_order_relaxed);
    uint64_t generation = (atomic_load_explicit(&p->ticket, memory_order_relaxed) >> 32) + 1;
    atomic_store(&p->ticket, generation << 32 | (uint64_t)n_blocks);
    wake_parked(p);
    while (run_one_block(p, 0)) {}
    for (int spins = 1; atomic_load_explicit(&p->completed, memory_order_acquire) != n_blocks; spins++) {
        if (spins % SPIN_YIELD == 0)
            sched_yield();
        else
            relax();
    }
}
