#include "base/pool.h"

#include "base/checked.h"
#include "base/core_placement.h"
#include "base/error.h"
#include "base/system.h"

#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

#if defined(__x86_64__)
#include <immintrin.h>
static inline void relax(void) { _mm_pause(); }
#elif defined(__aarch64__)
static inline void relax(void) { __asm__ volatile("yield"); }
#else
static inline void relax(void) { sched_yield(); }
#endif

/* Iterations of relax(), about 40 ns each on x86. Outside a lease a worker parks after some 20 us; within a lease it spins
 * through serial phases. */
enum { SPIN_IDLE = 500, SPIN_LEASED = 20000, SPIN_YIELD = 2000 };

/* A worker that has not started LATE nanoseconds after its wake-up is waiting for a busy core. The next SEND_TIMES
 * wake-ups then place each worker on a separate core (core_placement.h). */
enum { LATE = 200000, SEND_TIMES = 256 };

/* Nanoseconds of a lease after which others that wait go first: two tokens of a small model. */
enum { TIME_SLICE = 20000000 };

typedef struct worker {
    ht_pool *pool;
    pthread_t thread;
    int index;
} worker;

/* Share: a thread's range of the job's blocks. The owner claims blocks from the front, thieves from the back.
 *
 * `left` holds both ends: the first unclaimed block in its high half, the block after the last in its low half. A block
 * is claimed by compare-and-swap. Only ht_pool_run refills a share, after all blocks of the previous job are done. ABA:
 * a thread that loaded `left` long ago may find the same value in a later job. Its claim is valid nevertheless: `left`
 * alone decides the claim, and the other fields were written before `left` and are read after the swap. They do not
 * change before the claimed block is done, as the job cannot end before. */
typedef struct share {
    _Alignas(64) _Atomic uint64_t left;
    _Atomic uint64_t job; /* number of jobs so far in which the owner has a share; the owner waits for its change */
    ht_block_fn *fn;
    void *arg;
    int64_t n, grain;
} share;

struct ht_pool {
    int n_threads;
    worker *workers; /* [n_threads - 1] */
    share *shares;   /* [n_threads]; the first is the caller's and never the smaller, as the caller starts first */
    int n_started;
    pid_t process;
    pthread_mutex_t lease_lock; /* protects next_lease and this_lease */
    pthread_cond_t lease_ended;
    uint64_t next_lease, this_lease; /* numbers in order of arrival; equal: no lease */
    int64_t lease_begin;             /* in nanoseconds; only for the lessee */

    _Alignas(64) _Atomic int64_t completed; /* blocks of the job done so far */

    _Alignas(64) _Atomic int parked;
    _Atomic bool leased;
    _Atomic bool stopping;
    pthread_mutex_t park_lock;
    pthread_cond_t park;
    ht_core_placement *placements; /* [n_threads - 1], of the workers */
    int caller_core;               /* core of the caller at the last wake-up */
    int times_to_send;             /* remaining wake-ups with placement */
    int n_cores;                   /* available cores at creation; no placement with more threads than cores */
    int64_t woken;                 /* time of the first wake-up of this lease, in nanoseconds; 0: none */
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

static uint64_t blocks(int64_t begin, int64_t end) { return (uint64_t)begin << 32 | (uint64_t)end; }

/* Claims the share's first or last block; -1 when none is left. */
static int64_t claim(share *s, bool last) {
    uint64_t left = atomic_load_explicit(&s->left, memory_order_acquire);
    int64_t begin, end;
    do {
        begin = (int64_t)(left >> 32);
        end = (uint32_t)left;
        if (begin == end) return -1;
    } while (!atomic_compare_exchange_weak_explicit(&s->left, &left,
                                                    last ? blocks(begin, end - 1) : blocks(begin + 1, end),
                                                    memory_order_acq_rel, memory_order_acquire));
    return last ? end - 1 : begin;
}

static void run_block(const share *s, int64_t block, int index) {
    int64_t begin = block * s->grain;
    s->fn(s->arg, begin, begin + ht_min_i64(s->grain, s->n - begin), index);
}

static void add_completed(ht_pool *p, int64_t n) { atomic_fetch_add_explicit(&p->completed, n, memory_order_release); }

/* Runs the thread's own share, then steals from other shares until a new job arrives. The blocks of the own share are
 * counted as completed all at once: until then the job cannot end, so they all belong to it. */
static void run_job(ht_pool *p, int index, uint64_t job) {
    share *own = &p->shares[index];
    int64_t n = 0, block;
    for (; (block = claim(own, false)) >= 0; n++) run_block(own, block, index);
    if (n > 0) add_completed(p, n);
    for (int i = 1; i < p->n_threads; i++) {
        share *other = &p->shares[(index + i) % p->n_threads];
        while (atomic_load_explicit(&own->job, memory_order_relaxed) == job && (block = claim(other, true)) >= 0) {
            run_block(other, block, index);
            add_completed(p, 1);
        }
    }
}

/* Parks a worker. No wake-up is lost: the worker increments `parked`, then checks for work; the caller publishes work, then
 * modifies `parked` in wake_parked. The second of the two sees all that the first did before. */
static void park_until_work(ht_pool *p, int index, uint64_t seen) {
    ht_core_placement *placement = ht_core_placement_at(p->placements, index - 1);
    pthread_mutex_lock(&p->park_lock);
    atomic_fetch_add(&p->parked, 1);
    while (atomic_load_explicit(&p->shares[index].job, memory_order_acquire) == seen && !atomic_load(&p->stopping) &&
           !atomic_load(&p->leased)) {
        ht_core_placement_sleep(placement);
        pthread_cond_wait(&p->park, &p->park_lock);
        if (!ht_core_placement_woken(placement) && p->woken && ht_core_now() == p->caller_core)
            p->times_to_send = SEND_TIMES;
    }
    atomic_fetch_sub(&p->parked, 1);
    pthread_mutex_unlock(&p->park_lock);
}

static void *work(void *arg) {
    worker *w = arg;
    ht_pool *p = w->pool;
    ht_flush_denormals();
    const share *own = &p->shares[w->index];
    uint64_t seen = 0;
    int idle = 0;
    while (!atomic_load_explicit(&p->stopping, memory_order_relaxed)) {
        uint64_t job = atomic_load_explicit(&own->job, memory_order_acquire);
        if (job != seen) {
            seen = job;
            run_job(p, w->index, job);
            idle = 0;
            continue;
        }
        idle++;
        if (atomic_load_explicit(&p->leased, memory_order_relaxed)) {
            /* Yield during long serial phases of the lease holder, but do not park: a step needs no wake-up. */
            if (idle > SPIN_LEASED)
                sched_yield();
            else if (idle % SPIN_YIELD == 0)
                sched_yield();
            else
                relax();
        } else if (idle > SPIN_IDLE) {
            park_until_work(p, w->index, seen);
            idle = 0;
        } else
            relax();
    }
    return NULL;
}

static int64_t now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

/* False in a forked process, which has the pool but not its workers; one of these may have held a lock. */
static bool has_workers(const ht_pool *p) { return p->process == getpid(); }

static void wake_parked(ht_pool *p) {
    if (atomic_fetch_add(&p->parked, 0) == 0 || !has_workers(p)) return; /* see park_until_work */
    pthread_mutex_lock(&p->park_lock);
    p->caller_core = ht_core_now();
    if (!p->woken && p->times_to_send > 0 && p->n_threads <= p->n_cores) {
        p->times_to_send--;
        ht_core_placements_send(p->placements, p->n_threads - 1, p->caller_core);
    }
    if (!p->woken) p->woken = now();
    pthread_cond_broadcast(&p->park);
    pthread_mutex_unlock(&p->park_lock);
}

/* At the end of a lease, requests placement if a worker was woken but has not started. */
static void look_for_late(ht_pool *p) {
    if (!p->woken) return;
    const bool late = atomic_load(&p->parked) > 0 && now() - p->woken > LATE;
    pthread_mutex_lock(&p->park_lock);
    if (late) p->times_to_send = SEND_TIMES;
    p->woken = 0;
    pthread_mutex_unlock(&p->park_lock);
}

ht_status ht_pool_new(int n_threads, ht_pool **out, ht_error *err) {
    *out = NULL;
    if (n_threads < 0 || n_threads > 1024)
        return ht_fail(err, HT_ERR_ARGUMENT, "%d threads were asked for, expected 0 (one per core) to 1024", n_threads);
    if (n_threads == 0) n_threads = ht_system_cores();
    ht_pool *p = aligned_alloc(64, (sizeof *p + 63) / 64 * 64);
    if (!p) return ht_fail_memory(err, sizeof *p, "the thread pool");
    *p = (ht_pool){.n_threads = n_threads, .n_cores = ht_system_cores(), .process = getpid()};
    pthread_mutex_init(&p->lease_lock, NULL);
    pthread_cond_init(&p->lease_ended, NULL);
    pthread_mutex_init(&p->park_lock, NULL);
    pthread_cond_init(&p->park, NULL);
    p->workers = calloc((size_t)n_threads, sizeof *p->workers);
    p->shares = aligned_alloc(64, (size_t)n_threads * sizeof *p->shares);
    p->placements = ht_core_placements_new(n_threads);
    if (!p->workers || !p->shares || !p->placements) {
        ht_pool_free(p);
        return ht_fail_memory(err, (size_t)n_threads * (sizeof(worker) + sizeof(share)), "the thread pool");
    }
    for (int i = 0; i < n_threads; i++) p->shares[i] = (share){0};
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
    if (has_workers(p)) {
        atomic_store(&p->stopping, true);
        pthread_mutex_lock(&p->park_lock);
        pthread_cond_broadcast(&p->park);
        pthread_mutex_unlock(&p->park_lock);
        for (int i = 0; i < p->n_started; i++) pthread_join(p->workers[i].thread, NULL);
        pthread_cond_destroy(&p->park);
        pthread_mutex_destroy(&p->park_lock);
        pthread_cond_destroy(&p->lease_ended);
        pthread_mutex_destroy(&p->lease_lock);
    }
    free(p->shares);
    free(p->placements);
    free(p->workers);
    free(p);
}

int ht_pool_threads(const ht_pool *p) { return p->n_threads; }

/* Leases go in order of arrival. A mutex does not: a thread of back-to-back steps takes it again before others wake. */
void ht_pool_lease(ht_pool *p) {
    pthread_mutex_lock(&p->lease_lock);
    const uint64_t mine = p->next_lease++;
    while (p->this_lease != mine) pthread_cond_wait(&p->lease_ended, &p->lease_lock);
    pthread_mutex_unlock(&p->lease_lock);
    p->lease_begin = now();
    atomic_store(&p->leased, true);
    wake_parked(p);
}

void ht_pool_release(ht_pool *p) {
    look_for_late(p);
    atomic_store(&p->leased, false);
    pthread_mutex_lock(&p->lease_lock);
    if (++p->this_lease != p->next_lease) pthread_cond_broadcast(&p->lease_ended);
    pthread_mutex_unlock(&p->lease_lock);
}

void ht_pool_yield(ht_pool *p) {
    if (now() - p->lease_begin < TIME_SLICE) return;
    pthread_mutex_lock(&p->lease_lock);
    const bool others = p->next_lease - p->this_lease > 1;
    pthread_mutex_unlock(&p->lease_lock);
    if (!others) return;
    ht_pool_release(p);
    ht_pool_lease(p);
}

/* First block of share i. Shares differ by at most one block; larger shares come first. */
static int64_t share_begin(int64_t i, int64_t n_blocks, int64_t n_shares) {
    return i * (n_blocks / n_shares) + ht_min_i64(i, n_blocks % n_shares);
}

/* Share of a block: the inverse of share_begin. */
static int64_t share_of(int64_t block, int64_t n_blocks, int64_t n_shares) {
    int64_t smaller = n_blocks / n_shares, n_larger = n_blocks % n_shares, in_larger = n_larger * (smaller + 1);
    return block < in_larger ? block / (smaller + 1) : n_larger + (block - in_larger) / smaller;
}

int64_t ht_pool_rank(const ht_pool *p, int64_t n_blocks, int64_t block) {
    int64_t n_shares = ht_min_i64(p->n_threads, n_blocks), i = share_of(block, n_blocks, n_shares);
    return (block - share_begin(i, n_blocks, n_shares)) * n_shares + i;
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
    atomic_store_explicit(&p->completed, 0, memory_order_relaxed);
    int n_shares = (int)ht_min_i64(p->n_threads, n_blocks);
    for (int i = n_shares - 1; i >= 0; i--) {
        share *s = &p->shares[i];
        s->fn = fn;
        s->arg = arg;
        s->n = n;
        s->grain = grain;
        atomic_store_explicit(&s->left,
                              blocks(share_begin(i, n_blocks, n_shares), share_begin(i + 1, n_blocks, n_shares)),
                              memory_order_release);
        uint64_t job = atomic_load_explicit(&s->job, memory_order_relaxed);
        atomic_store_explicit(&s->job, job + 1, memory_order_release);
    }
    wake_parked(p);
    run_job(p, 0, atomic_load_explicit(&p->shares[0].job, memory_order_relaxed));
    for (int spins = 1; atomic_load_explicit(&p->completed, memory_order_acquire) != n_blocks; spins++) {
        if (spins % SPIN_YIELD == 0)
            sched_yield();
        else
            relax();
    }
}
