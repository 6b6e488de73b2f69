#include "cpu/measure.h"

#include "cpu/call.h"
#include "cpu/device.h"
#include "cpu/matrix.h"

#include <stdint.h>
#include <time.h>

typedef struct loops {
    double (*compute[HT_ARITHMETICS])(int64_t iterations);
    void (*read)(const char *memory, size_t bytes);
} loops;

#define LOOPS(isa, id, shared)                                                                                         \
    double ht_int8_loop_##isa(int64_t iterations);                                                                     \
    double ht_int16_loop_##isa(int64_t iterations);                                                                    \
    double ht_f32_loop_##isa(int64_t iterations);                                                                      \
    void ht_read_loop_##isa(const char *memory, size_t bytes);                                                         \
    static const loops loops_##isa = {{[HT_ARITHMETIC_INT8] = ht_int8_loop_##isa,                                      \
                                       [HT_ARITHMETIC_INT16] = ht_int16_loop_##isa,                                    \
                                       [HT_ARITHMETIC_F32] = ht_f32_loop_##isa},                                       \
                                      ht_read_loop_##isa};

LOOPS(reference, HT_CPU_REFERENCE, reference)
HT_EACH_ISA(LOOPS)

#define LOOPS_OF(isa, id, shared)                                                                                      \
    case id: return &loops_##isa;
static const loops *loops_of(ht_cpu_isa isa) {
    switch (isa) {
        HT_EACH_ISA(LOOPS_OF)
    default: return &loops_reference;
    }
}

static double seconds_of(clockid_t clock) {
    struct timespec t;
    clock_gettime(clock, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static double wall(void) { return seconds_of(CLOCK_MONOTONIC); }

/* A single thread is timed by its CPU time, which excludes other processes. */
static double now(int threads) { return threads == 1 ? seconds_of(CLOCK_THREAD_CPUTIME_ID) : wall(); }

enum { READ_PART = 1 << 20, BLOCKS_PER_THREAD = 16 };

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

/* Operations per second over all threads. The round length is calibrated first. */
double ht_measure_operations(ht_cpu_isa isa, ht_pool *pool, ht_arithmetic a, int rounds) {
    double (*loop)(int64_t) = loops_of(isa)->compute[a];
    job j = {.loop = loop, .iterations = 1000};
    double ops = 0, best = 0;
    int threads = ht_pool_threads(pool);
    for (double seconds = 0; seconds < 2e-3; j.iterations *= 2) {
        double start = now(1);
        ops = loop(j.iterations);
        seconds = now(1) - start;
    }
    ops *= 2; /* operations of one round, whose iterations the loop doubled once more */
    for (int r = 0; r < rounds; r++) {
        double start = now(threads);
        ht_pool_run(pool, threads, 1, run_loop, &j);
        double rate = ops * threads / (now(threads) - start);
        if (rate > best) best = rate;
    }
    return best;
}

double ht_measure_read_bytes(ht_cpu_isa isa, ht_pool *pool, const void *memory, size_t bytes, int rounds) {
    job j = {.loops = loops_of(isa), .memory = memory, .bytes = bytes, .part = READ_PART};
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

/* ---- device table ---- */

static int64_t parts(size_t bytes) { return (int64_t)((bytes + READ_PART - 1) / READ_PART); }

static double device_read(ht_device *d, const void *memory, size_t bytes, double seconds) {
    job j = {.loops = loops_of(ht_cpu_device_isa(d)), .memory = memory, .bytes = bytes, .part = READ_PART};
    ht_pool *pool = ht_device_pool(d);
    ht_pool_lease(pool);
    ht_pool_run(pool, parts(bytes), 1, run_read, &j); /* warms the cache for the timed passes */
    double start = wall(), passed = 0, done = 0;
    for (; passed < seconds; passed = wall() - start, done += (double)bytes)
        ht_pool_run(pool, parts(bytes), 1, run_read, &j);
    ht_pool_release(pool);
    return done / passed;
}

/* Threads take blocks of a few hundred microseconds dynamically, as kernels do, so that a preempted thread delays the
 * others little. */
static double device_compute(ht_device *d, ht_arithmetic a, double seconds) {
    ht_cpu_isa isa = ht_cpu_device_isa(d);
    job j = {.loop = loops_of(isa)->compute[a], .iterations = 16};
    if (!j.loop || (a == HT_ARITHMETIC_INT16 && !ht_cpu_multiplies_words(isa))) return 0; /* no such instruction */
    double ops = 0, took = 0;
    for (; took < 1e-4; j.iterations *= 2) {
        double start = wall();
        ops = 2 * j.loop(j.iterations); /* twice as long as the last block */
        took = wall() - start;
    }
    ht_pool *pool = ht_device_pool(d);
    ht_pool_lease(pool);
    int64_t blocks = (int64_t)ht_pool_threads(pool) * BLOCKS_PER_THREAD;
    double start = wall(), passed = 0, done = 0;
    for (; passed < seconds; passed = wall() - start, done += ops * (double)blocks)
        ht_pool_run(pool, blocks, 1, run_loop, &j);
    ht_pool_release(pool);
    return done / passed;
}

static ht_arithmetic device_arithmetic(const ht_device *d, ht_weight_type type, ht_precision precision) {
    if (precision == HT_PRECISION_REFERENCE || type == HT_W_F32 || ht_weight_is_f8(type)) return HT_ARITHMETIC_F32;
    const bool words = ht_cpu_multiplies_words(ht_cpu_device_isa(d));
    if (type <= HT_W_BF16) return words ? HT_ARITHMETIC_INT16 : HT_ARITHMETIC_F32;
    return precision == HT_PRECISION_HIGH && words ? HT_ARITHMETIC_INT16 : HT_ARITHMETIC_INT8;
}

const ht_measure_ops ht_cpu_measure = {.read = device_read, .compute = device_compute, .arithmetic = device_arithmetic};
