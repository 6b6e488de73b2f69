/* Matrix products of three models, one type and shape after another: bytes per second with one row against what the
 * machine reads, operations per second with many rows against what its units do from registers.
 *
 *   bench_matrix [-t THREADS] [-x ROWS] [-i ISA] [-r ROUNDS] [-m MEGABYTES] [-p fast|reference] [FILTER]
 *
 * FILTER is part of a line's name, such as "Q4_K" or "gemma". Weights are random; for one row they are spread over so
 * many copies that no cache keeps them. Rates are the best of their rounds. The percentages are medians over the rounds,
 * each against the yardsticks measured right before it, so that neighbours on a busy machine disturb both alike. */
#include "cpu/matrix.h"

#include "base/checked.h"
#include "bench.h"
#include "cpu/matrix_ops.h"
#include "cpu/measure.h"
#include "support/weights.h"

#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>

enum {
    HUGE_PAGE = 2 << 20, /* as the library takes for its weights */
    MOST_ROUNDS = 1000
};

typedef struct shape {
    const char *name;
    ht_weight_type type;
    int64_t n_rows, k;
} shape;

static const shape shapes[] = {
    {"smollm2 Q4_1 q", HT_W_Q4_1, 576, 576},
    {"smollm2 Q4_1 kv", HT_W_Q4_1, 192, 576},
    {"smollm2 Q4_1 up", HT_W_Q4_1, 1536, 576},
    {"smollm2 Q4_1 down", HT_W_Q4_1, 576, 1536},
    {"smollm2 Q8_0 head", HT_W_Q8_0, 49152, 576},
    {"gemma Q5_0 q", HT_W_Q5_0, 1024, 640},
    {"gemma Q5_0 up", HT_W_Q5_0, 2048, 640},
    {"gemma Q4_K down", HT_W_Q4_K, 640, 2048},
    {"gemma Q6_K down", HT_W_Q6_K, 640, 2048},
    {"gemma Q8_0 head", HT_W_Q8_0, 262144, 640},
    {"qwen Q5_0 q", HT_W_Q5_0, 896, 896},
    {"qwen Q8_0 kv", HT_W_Q8_0, 128, 896},
    {"qwen Q5_0 up", HT_W_Q5_0, 4864, 896},
    {"qwen Q4_K down", HT_W_Q4_K, 896, 4864},
    {"qwen Q6_K down", HT_W_Q6_K, 896, 4864},
    {"qwen Q8_0 head", HT_W_Q8_0, 151936, 896},
    {"other Q4_0", HT_W_Q4_0, 2048, 2048},
    {"other Q5_1", HT_W_Q5_1, 2048, 2048},
    {"other Q2_K", HT_W_Q2_K, 2048, 2048},
    {"other Q3_K", HT_W_Q3_K, 2048, 2048},
    {"other Q5_K", HT_W_Q5_K, 2048, 2048},
    {"other IQ4_NL", HT_W_IQ4_NL, 2048, 2048},
    {"other IQ4_XS", HT_W_IQ4_XS, 2048, 2048},
    {"other MXFP4", HT_W_MXFP4, 2048, 2048},
    {"other NVFP4", HT_W_NVFP4, 2048, 2048},
    {"other TQ2_0", HT_W_TQ2_0, 2048, 2048},
    {"other TQ1_0", HT_W_TQ1_0, 2048, 2048},
    {"other IQ1_S", HT_W_IQ1_S, 2048, 2048},
    {"other IQ2_XS", HT_W_IQ2_XS, 2048, 2048},
    {"other IQ3_S", HT_W_IQ3_S, 2048, 2048},
    {"other F32", HT_W_F32, 1024, 1024},
    {"other F16", HT_W_F16, 2048, 2048},
    {"other BF16", HT_W_BF16, 2048, 2048},
    {"smollm2 BF16 kv", HT_W_BF16, 192, 576},
    {"smollm2 BF16 up", HT_W_BF16, 1536, 576},
    {"smollm2 BF16 down", HT_W_BF16, 576, 1536},
    {"qwen BF16 down", HT_W_BF16, 896, 4864},
    {"other Q4_1", HT_W_Q4_1, 2048, 2048},
    {"other Q8_0", HT_W_Q8_0, 2048, 2048},
    {"other MLX2_64", HT_W_MLX2_64_BF16, 2048, 2048},
    {"other MLX3_64", HT_W_MLX3_64_BF16, 2048, 2048},
    {"other MLX4_64", HT_W_MLX4_64_BF16, 2048, 2048},
    {"other MLX5_64", HT_W_MLX5_64_BF16, 2048, 2048},
    {"other MLX6_64", HT_W_MLX6_64_BF16, 2048, 2048},
    {"other MLX8_64", HT_W_MLX8_64_BF16, 2048, 2048},
    {"other MLX4_32", HT_W_MLX4_32_F16, 2048, 2048},
};

typedef struct options {
    int threads, rounds;
    int64_t rows;
    const char *isa, *filter;
    size_t bytes;
    ht_precision precision;
} options;

/* With one thread, its own time on the processor: what others run does not count. */
static double now(int threads) {
    struct timespec t;
    clock_gettime(threads == 1 ? CLOCK_THREAD_CPUTIME_ID : CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static void *allocate(size_t bytes) {
    size_t align = bytes < HUGE_PAGE ? 64 : HUGE_PAGE;
    void *p = aligned_alloc(align, (bytes + align - 1) / align * align);
    if (p && align == HUGE_PAGE) madvise(p, bytes, MADV_HUGEPAGE);
    if (!p) {
        fprintf(stderr, "bench_matrix: no memory for %zu bytes\n", bytes);
        exit(1);
    }
    return p;
}

/* A matrix of random weights; the same 16 rows again and again, which the kernels cannot see. */
static ht_matrix make(const shape *s, const ht_matrix_ops *ops) {
    uint64_t seed = 1;
    ht_matrix m = {.ops = ops, .type = s->type, .n_rows = s->n_rows, .k = s->k};
    m.packed_bytes = ops->packed_bytes(s->type, s->n_rows, s->k);
    m.packed = allocate(m.packed_bytes);
    size_t row = test_row_bytes(s->type, s->k);
    char *stored = allocate(64 * row);
    test_random_weights(s->type, 64, s->k, &seed, stored);
    for (int64_t r = 0; r < s->n_rows; r += 64) ops->pack(&m, r, ht_min_i64(64, s->n_rows - r), stored, NULL);
    free(stored);
    return m;
}

/* What is multiplied, and by what it is measured. */
typedef struct setup {
    const options *o;
    ht_cpu_isa isa;
    ht_pool *pool;
    const char *memory; /* o->bytes to read */
} setup;

static void run(const setup *u, const shape *s) {
    const options *o = u->o;
    const ht_matrix_ops *ops = ht_cpu_matrix_ops(u->isa, s->type, o->precision);
    ht_matrix first = make(s, ops);
    int64_t copies = o->rows > 16 ? 1 : ht_max_i64(1, ht_min_i64((int64_t)(o->bytes / first.packed_bytes), 4096));
    ht_matrix *m = allocate((size_t)copies * sizeof *m);
    char *all = allocate((size_t)copies * first.packed_bytes);
    for (int64_t i = 0; i < copies; i++) {
        m[i] = first;
        m[i].packed = all + (size_t)i * first.packed_bytes;
        memcpy(m[i].packed, first.packed, first.packed_bytes);
    }
    free(first.packed);
    float *x = allocate((size_t)(o->rows * s->k) * sizeof(float));
    float *y = allocate((size_t)(o->rows * s->n_rows) * sizeof(float));
    uint64_t seed = 2;
    for (int64_t i = 0; i < o->rows * s->k; i++) x[i] = test_random_float(&seed);
    void *scratch = allocate(ht_cpu_ops_of(&first)->mul_scratch(&first, o->rows, o->threads));
    const bool half = s->type == HT_W_F16 || s->type == HT_W_BF16, exact = o->precision == HT_PRECISION_REFERENCE;
    const bool quantised = s->type > HT_W_BF16 && !ht_weight_is_f8(s->type), high = o->precision == HT_PRECISION_HIGH;
    const bool words = !exact && ht_cpu_multiplies_words(u->isa) && (half || (quantised && high));
    const bool bytes = !exact && !words && quantised;
    double best = 1e9, work = 2.0 * (double)(s->n_rows * s->k * o->rows), of_ops[MOST_ROUNDS], of_bytes[MOST_ROUNDS];
    for (int r = -1; r < o->rounds; r++) { /* the first round warms up */
        double peak = ht_measure_operations(u->isa, u->pool,
                                            bytes   ? HT_ARITHMETIC_INT8
                                            : words ? HT_ARITHMETIC_INT16
                                                    : HT_ARITHMETIC_F32,
                                            2);
        double read = o->rows > 16 ? 1e99 : ht_measure_read_bytes(u->isa, u->pool, u->memory, o->bytes, 1);
        double start = now(o->threads);
        for (int64_t i = 0; i < copies; i++)
            ht_cpu_ops_of(&m[i])->mul(&(ht_product){&m[i], x, s->k, o->rows, NULL, y, s->n_rows, 0}, scratch, u->pool);
        double seconds = (now(o->threads) - start) / (double)copies;
        if (r < 0) continue;
        if (seconds < best) best = seconds;
        of_ops[r] = work / seconds / peak;
        of_bytes[r] = (double)first.packed_bytes / seconds / read;
    }
    printf("%-20s %6lld x %-5lld %5lld rows %10.1f us %7.1f GB/s %4.0f %% %8.1f GOP/s %4.0f %%\n", s->name,
           (long long)s->n_rows, (long long)s->k, (long long)o->rows, 1e6 * best,
           1e-9 * (double)first.packed_bytes / best, 100 * bench_median(of_bytes, o->rounds), 1e-9 * work / best,
           100 * bench_median(of_ops, o->rounds));
    fflush(stdout);
    free(all);
    free(m);
    free(x);
    free(y);
    free(scratch);
}

static ht_precision precision_of(const char *name) {
    return !strcmp(name, "reference") ? HT_PRECISION_REFERENCE
           : !strcmp(name, "fast")    ? HT_PRECISION_FAST
                                      : HT_PRECISION_HIGH;
}

static options read_options(int argc, char **argv) {
    options o = {.threads = 1, .rounds = 5, .rows = 1, .filter = "", .bytes = (size_t)300 << 20};
    bench_arguments a = {argc, argv, 0};
    const char *value;
    for (int option; (option = bench_next(&a, &value)) >= 0;) switch (option) {
        case 0: o.filter = value; break;
        case 't': o.threads = atoi(value); break;
        case 'r': o.rounds = atoi(value); break;
        case 'x': o.rows = atoll(value); break;
        case 'm': o.bytes = (size_t)atoll(value) << 20; break;
        case 'i': o.isa = value; break;
        case 'p': o.precision = precision_of(value); break;
        default:
            fprintf(stderr, "usage: bench_matrix [-t THREADS] [-x ROWS] [-i ISA] [-r ROUNDS] [-m MEGABYTES] "
                            "[-p high|fast|reference] [FILTER]\n");
            exit(2);
        }
    return o;
}

int main(int argc, char **argv) {
    options o = read_options(argc, argv);
    ht_error err = {0};
    ht_cpu_isa isa;
    ht_pool *pool;
    if (o.rows < 1 || o.rounds < 1 || o.rounds > MOST_ROUNDS || ht_cpu_isa_find(o.isa, &isa, &err) != HT_OK ||
        ht_pool_new(o.threads, &pool, &err) != HT_OK) {
        fprintf(stderr, "bench_matrix: %s\n", err.message);
        return 1;
    }
    o.threads = ht_pool_threads(pool);
    ht_flush_denormals();
    ht_pool_lease(pool);
    char *memory = allocate(o.bytes);
    memset(memory, 1, o.bytes);
    printf("%s, %d threads: int8 %.0f GOP/s, f32 %.0f GFLOP/s, reading %zu MB %.1f GB/s\n", ht_cpu_isa_name(isa),
           o.threads, 1e-9 * ht_measure_operations(isa, pool, HT_ARITHMETIC_INT8, 20),
           1e-9 * ht_measure_operations(isa, pool, HT_ARITHMETIC_F32, 20), o.bytes >> 20,
           1e-9 * ht_measure_read_bytes(isa, pool, memory, o.bytes, 5));
    setup u = {&o, isa, pool, memory};
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++)
        if (strstr(shapes[i].name, o.filter)) run(&u, &shapes[i]);
    free(memory);
    ht_pool_release(pool);
    ht_pool_free(pool);
    return 0;
}
