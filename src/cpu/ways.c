#include "cpu/ways.h"

#include <stdatomic.h>
#include <time.h>

/* Results that are tried: not the first one, whose memory may be new, which plain stores find in the caches; then several,
 * later ones more and more rarely: a trial costs a little of what the worse way costs. */
enum { FIRST_TRIALS = 4, OFTEN = 4, OFTEN_UNTIL = 32, EVERY = 32, SCALE = 1 << 16 };

static bool is_tried(unsigned n) {
    return n > 0 && (n <= FIRST_TRIALS || n % EVERY == 0 || (n < OFTEN_UNTIL && n % OFTEN == 0));
}

typedef struct record {
    atomic_uint results, trials;
    atomic_int lead; /* by how much plain stores are faster: of the sum of both times, in 1 / SCALE, a moving mean */
} record;

static record records[HT_WORK_KINDS][2]; /* one thread; several */

static record *record_of(ht_work work, int threads) { return &records[work][threads > 1]; }

static int64_t now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

ht_trial ht_ways_next(ht_work work, int threads) {
    record *r = record_of(work, threads);
    const unsigned n = atomic_fetch_add_explicit(&r->results, 1, memory_order_relaxed);
    if (is_tried(n)) {
        const unsigned trial = atomic_fetch_add_explicit(&r->trials, 1, memory_order_relaxed);
        return (ht_trial){.tries = true, .first = trial % 2 ? HT_WAY_PLAIN : HT_WAY_BYPASS};
    }
    const int lead = atomic_load_explicit(&r->lead, memory_order_relaxed);
    return (ht_trial){.first = lead > 0 || n == 0 ? HT_WAY_PLAIN : HT_WAY_BYPASS};
}

void ht_ways_begin(ht_trial *t) { t->began = now(); }
void ht_ways_half(ht_trial *t) { t->half = now(); }

void ht_ways_end(const ht_trial *t, ht_work work, int threads) {
    const int64_t first = t->half - t->began, second = now() - t->half, both = first + second;
    if (both <= 0) return;
    const int64_t gap = (t->first == HT_WAY_PLAIN ? second - first : first - second) * SCALE / both;
    record *r = record_of(work, threads);
    /* Two threads at once may lose one trial: the next one comes. */
    const int lead = atomic_load_explicit(&r->lead, memory_order_relaxed);
    atomic_store_explicit(&r->lead, lead + (int)(gap - lead) / 4, memory_order_relaxed);
}
