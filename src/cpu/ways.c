#include "cpu/ways.h"

#include <stdatomic.h>
#include <time.h>

/* Results that are tried: not the first one, whose memory may be new, which plain stores find in the caches; then every way
 * against the best one twice, and later more and more rarely: a trial costs a part of what the worse way costs. */
enum {
    FIRST_TRIALS = 2 * HT_WAY_COUNT,
    OFTEN = 4,
    OFTEN_UNTIL = 64,
    EVERY = 32,
    SCALE = 1 << 16,
    NEAR = SCALE / 64, /* what is faster by less is not worth changing the way for */
    MOST = 4           /* times as long as the other half: the rest is somebody else's */
};

static bool is_tried(unsigned n) {
    return n > 0 && (n <= FIRST_TRIALS || n % EVERY == 0 || (n < OFTEN_UNTIL && n % OFTEN == 0));
}

/* The best way so far, and of each other one how long it took beside that, in 1 / SCALE, 0 before it is known: a moving mean.
 * `again`: 1 + the way that has just been beaten, to be tried once more, as other programs may have taken its time. */
typedef struct record {
    atomic_uint results, trials, again, best;
    atomic_int cost[HT_WAY_COUNT];
} record;

static record records[HT_WORK_COUNT][2]; /* one thread; several */

static record *record_of(ht_work work, int threads) { return &records[work][threads > 1]; }

static int64_t now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

ht_trial ht_ways_next(ht_work work, int threads) {
    record *r = record_of(work, threads);
    const unsigned n = atomic_fetch_add_explicit(&r->results, 1, memory_order_relaxed);
    const ht_way best = (ht_way)atomic_load_explicit(&r->best, memory_order_relaxed);
    const unsigned again = atomic_exchange_explicit(&r->again, 0, memory_order_relaxed);
    if (n == 0) return (ht_trial){.first = HT_WAY_PLAIN};
    if (!again && !is_tried(n)) return (ht_trial){.first = best};
    const unsigned trial = atomic_fetch_add_explicit(&r->trials, 1, memory_order_relaxed);
    ht_way other = (ht_way)(trial / 2 % HT_WAY_COUNT); /* in turn, whichever is the best meanwhile: none is left out */
    if (other == best) other = (ht_way)((other + 1) % HT_WAY_COUNT);
    if (again && again - 1 != best) other = (ht_way)(again - 1);
    return trial % 2 ? (ht_trial){.tries = true, .first = best, .second = other}
                     : (ht_trial){.tries = true, .first = other, .second = best};
}

void ht_ways_begin(ht_trial *t) { t->began = now(); }
void ht_ways_half(ht_trial *t) { t->half = now(); }

/* A way that took `cost` of the time of the best one before. */
static void take_for_best(record *r, ht_way way, int64_t cost, ht_way before) {
    for (ht_way w = 0; w < HT_WAY_COUNT; w++) {
        const int64_t known = atomic_load_explicit(&r->cost[w], memory_order_relaxed), beside = known * SCALE / cost;
        atomic_store_explicit(&r->cost[w], (int)(beside < MOST * SCALE ? beside : MOST * SCALE), memory_order_relaxed);
    }
    atomic_store_explicit(&r->cost[before], 0, memory_order_relaxed); /* what one trial more says counts alone */
    atomic_store_explicit(&r->best, way, memory_order_relaxed);
    atomic_store_explicit(&r->again, (unsigned)before + 1, memory_order_relaxed);
}

/* Several threads at once may lose a trial, or take the worse way for a while: the next trial comes. */
void ht_ways_end(const ht_trial *t, ht_work work, int threads) {
    record *r = record_of(work, threads);
    const int64_t end = now(), first = t->half - t->began, second = end - t->half;
    const ht_way best = (ht_way)atomic_load_explicit(&r->best, memory_order_relaxed);
    const bool first_is_best = t->first == best;
    if ((!first_is_best && t->second != best) || first <= 0 || second <= 0) return;
    const int64_t time = first_is_best ? second : first, best_time = first_is_best ? first : second;
    int64_t cost = time >= MOST * best_time ? MOST * SCALE : time * SCALE / best_time;
    if (cost < SCALE / MOST) cost = SCALE / MOST;
    const ht_way other = first_is_best ? t->second : t->first;
    const int before = atomic_load_explicit(&r->cost[other], memory_order_relaxed);
    if (before) cost = (before + cost) / 2;
    atomic_store_explicit(&r->cost[other], (int)cost, memory_order_relaxed);
    if (cost < SCALE - NEAR) take_for_best(r, other, cost, best);
}
