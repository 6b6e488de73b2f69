#include "cpu/measure.h"

#include <stdint.h>
#include <time.h>

typedef struct loops {
    double (*int8)(int64_t iterations);
    double (*f32)(int64_t iterations);
    void (*read)(const char *memory, size_t bytes);
} loops;

#define LOOPS(isa, id)                                                                                                 \
    double ht_int8_loop_##isa(int64_t iterations);                                                                     \
    double ht_f32_loop_##isa(int64_t iterations);                                                                      \
    void ht_read_loop_##isa(const char *memory, size_t bytes);                                                         \
    static const loops loops_##isa = {ht_int8_loop_##isa, ht_f32_loop_##isa, ht_read_loop_##isa};

LOOPS(reference, HT_CPU_REFERENCE)
HT_EACH_ISA(LOOPS)

#define LOOPS_OF(isa, id)                                                                                              \
    case id: return &loops_##isa;
static const loops *loops_of(ht_cpu_isa isa) {
    switch (isa) {
        HT_EACH_ISA(LOOPS_OF)
    default: return &loops_reference;
    }
}

/* With one thread, its own time on the processor: what others run does not count. */
static double now(int threads) {
    struct timespec t;
    clock_gettime(threads == 1 ? CLOCK_THREAD_CPUTIME_ID : CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

typedef struct job {
    double (*loop)(int64_t iterations);
    int64_t iterations;
    const loops *loops;
    const char *memory;
    size_t bytes, part;
} job;

static void run_loop(void *arg, int64_t begin, int64_t end, int worker) {
    (void)worker;
    const job *j = arg;
    for (int64_t i = begin; i < end; i++) j->loop(j->iterations);
}

static void run_read(void *arg, int64_t begin, int64_t end, int worker) {
    (void)worker;
    const job *j = arg;
    size_t from = (size_t)begin * j->part, to = (size_t)end * j->part;
    if (to > j->bytes) to = j->bytes;
    j->loops->read(j->memory + from, to - from);
}

/* Per second, over all threads; the length of a round is found first. */
static double measure_loop(double (*loop)(int64_t), ht_pool *pool, int rounds) {
    job j = {.loop = loop, .iterations = 1000};
    double ops = 0, best = 0;
    int threads = ht_pool_threads(pool);
    for (double seconds = 0; seconds < 2e-3; j.iterations *= 2) {
        double start = now(1);
        ops = loop(j.iterations);
        seconds = now(1) - start;
    }
    ops *= 2; /* of the iterations of the rounds */
    for (int r = 0; r < rounds; r++) {
        double start = now(threads);
        ht_pool_run(pool, threads, 1, run_loop, &j);
        double rate = ops * threads / (now(threads) - start);
        if (rate > best) best = rate;
    }
    return best;
}

double ht_measure_int8_ops(ht_cpu_isa isa, ht_pool *pool, int rounds) {
    return measure_loop(loops_of(isa)->int8, pool, rounds);
}

double ht_measure_f32_ops(ht_cpu_isa isa, ht_pool *pool, int rounds) {
    return measure_loop(loops_of(isa)->f32, pool, rounds);
}

double ht_measure_read_bytes(ht_cpu_isa isa, ht_pool *pool, const void *memory, size_t bytes, int rounds) {
    job j = {.loops = loops_of(isa), .memory = memory, .bytes = bytes, .part = 1 << 20};
    double best = 0;
    int threads = ht_pool_threads(pool);
    for (int r = 0; r < rounds; r++) {
        double start = now(threads);
        ht_pool_run(pool, (int64_t)((bytes + j.part - 1) / j.part), 1, run_read, &j);
        double rate = (double)bytes / (now(threads) - start);
        if (rate > best) best = rate;
    }
    return best;
}
