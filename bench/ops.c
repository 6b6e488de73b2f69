/* The small kernels and attention, for one row and for many: time per call, bytes per second against what the machine
 * reads, operations per second against what its units do from registers.
 *
 *   bench_ops [-t THREADS] [-i ISA] [-r ROUNDS] [FILTER]
 *
 * FILTER is part of a line's name. Every figure is the best of its rounds. Small kernels run on data that the caches
 * hold, as they do within a step; attention reads a cache of many layers in turn, as a step does. */
#include "bench.h"
#include "cpu/call.h"
#include "cpu/cpu.h"
#include "cpu/isa.h"
#include "cpu/measure.h"
#include "device/params.h"
#include "support/kernels.h"
#include "support/weights.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

typedef struct bench {
    ht_device *device;
    int rounds;
    const char *filter;
    double read_bytes, flops; /* per second */
} bench;

/* With one thread its own processor time is what counts, so that a busy machine does not disturb. */
static clockid_t clock_used = CLOCK_MONOTONIC;

static double now(void) {
    struct timespec t;
    clock_gettime(clock_used, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static void *allocate(size_t bytes) {
    void *p = aligned_alloc(64, (bytes + 63) / 64 * 64 + 64);
    if (!p) {
        fprintf(stderr, "bench_ops: no memory for %zu bytes\n", bytes);
        exit(1);
    }
    memset(p, 0, bytes);
    return p;
}

static float *random_floats(int64_t n) {
    uint64_t seed = 3;
    float *x = allocate((size_t)n * sizeof *x);
    for (int64_t i = 0; i < n; i++) x[i] = test_random_float(&seed);
    return x;
}

/* Best seconds per call over the rounds; each round makes `calls` calls, taken from `call` in turn (n_calls of them). */
static double best_of(const bench *b, ht_op_id op, const ht_call *call, int n_calls) {
    const ht_kernel *kernel = &b->device->kernels[op];
    ht_call c = call[0];
    void *scratch = kernel->scratch ? allocate(kernel->scratch(&c)) : NULL;
    double best = 1e9;
    ht_error err = {0};
    for (int r = 0; r <= b->rounds; r++) {
        int64_t calls = 0;
        double start = now(), elapsed;
        do {
            for (int i = 0; i < (n_calls > 1 ? n_calls : 32); i++, calls++) { /* reading the clock costs, too */
                c = call[i % n_calls];
                c.scratch = scratch;
                if (kernel->run(&c, &err) != HT_OK) {
                    fprintf(stderr, "bench_ops: %s\n", err.message);
                    exit(1);
                }
            }
            elapsed = now() - start;
        } while (elapsed < 0.004);
        if (r && elapsed / (double)calls < best) best = elapsed / (double)calls;
    }
    free(scratch);
    return best;
}

static void print(const bench *b, const char *name, double seconds, double bytes, double flops) {
    printf("%-44s %10.2f us %7.1f GB/s %5.0f %%", name, 1e6 * seconds, 1e-9 * bytes / seconds,
           100 * bytes / seconds / b->read_bytes);
    if (flops > 0) printf(" %8.1f GFLOP/s %4.0f %%", 1e-9 * flops / seconds, 100 * flops / seconds / b->flops);
    printf("\n");
    fflush(stdout);
}

/* ---- small kernels ---- */

typedef struct small_case {
    const char *name;
    ht_op_id op;
    int64_t heads, n; /* per row: [heads, n] */
} small_case;

static const small_case small_cases[] = {
    {"add 576", HT_OP_ADD, 1, 576},           {"mul 1536", HT_OP_MULTIPLY, 1, 1536},
    {"silu 1536", HT_OP_SILU, 1, 1536},       {"gelu_tanh 2048", HT_OP_GELU_TANH, 1, 2048},
    {"scale 640", HT_OP_SCALE, 1, 640},       {"rms_norm 576", HT_OP_RMS_NORM, 1, 576},
    {"rms_norm 896", HT_OP_RMS_NORM, 1, 896}, {"rms_norm 4 x 256", HT_OP_RMS_NORM, 4, 256},
    {"rope 9 x 64", HT_OP_ROPE, 9, 64},       {"rope 3 x 64", HT_OP_ROPE, 3, 64},
    {"rope 4 x 256", HT_OP_ROPE, 4, 256},     {"softmax 2048", HT_OP_SOFTMAX, 1, 2048},
    {"sum 2048", HT_OP_SUM, 1, 2048},
};
static const small_case large_cases[] = {
    {"softcap 262144", HT_OP_SOFTCAP, 1, 262144},
    {"argmax 262144", HT_OP_ARGMAX, 1, 262144},
    {"softmax 262144", HT_OP_SOFTMAX, 1, 262144},
};

static void run_small(const bench *b, const small_case *c, int64_t rows) {
    char name[96];
    snprintf(name, sizeof name, "%s, %lld row%s", c->name, (long long)rows, rows > 1 ? "s" : "");
    if (!strstr(name, b->filter)) return;
    int64_t size = rows * c->heads * c->n, dims[3] = {rows, c->heads, c->n};
    float *x = random_floats(size), *y = random_floats(size), *out = allocate((size_t)size * sizeof *out);
    int32_t *pos = allocate((size_t)rows * sizeof *pos);
    for (int64_t i = 0; i < rows; i++) pos[i] = (int32_t)i + 1000;
    ht_rms_norm_params norm = {.eps = 1e-5f};
    ht_rope_params rope = {.theta = 1e5f, .scale = 1.0f, .magnitude = 1.0f, .dims = (int32_t)c->n};
    ht_scale_params scale = {.value = 30.0f};
    ht_along_params along = {.behind = 0};
    ht_view in[3] = {test_view(x, HT_F32, 3, dims), test_view(y, HT_F32, 3, dims), test_absent()};
    ht_call call = {.params = &scale, .n_in = 1, .in = in, .out = test_view(out, HT_F32, 3, dims), .device = b->device};
    double streams = 2.0;
    switch (c->op) {
    case HT_OP_ADD:
    case HT_OP_MULTIPLY: call.n_in = 2, streams = 3.0; break;
    case HT_OP_SOFTMAX: call.params = &along; break;
    case HT_OP_RMS_NORM: call.n_in = 2, call.params = &norm, in[1] = test_view(y, HT_F32, 1, &c->n); break;
    case HT_OP_ROPE: call.n_in = 3, call.params = &rope, in[1] = test_view(pos, HT_I32, 1, &rows); break;
    case HT_OP_ARGMAX: call.out = test_view(out, HT_U32, 2, dims), streams = 1.0; break;
    case HT_OP_SUM: call.out = test_view(out, HT_F32, 2, dims), streams = 1.0; break;
    default: break;
    }
    print(b, name, best_of(b, c->op, &call, 1), streams * 4.0 * (double)size, 0);
    free(x), free(y), free(out), free(pos);
}

/* ---- attention ---- */

typedef struct heads {
    const char *name;
    int32_t n_heads, n_kv_heads, head_dim, layers;
    int64_t window;
} heads;

static const heads models[] = {
    {"smollm2 9/3 x 64", 9, 3, 64, 30, 0},
    {"gemma3 4/1 x 256", 4, 1, 256, 3, 0},
    {"gemma3 window 512", 4, 1, 256, 15, 512},
    {"qwen 14/2 x 64", 14, 2, 64, 24, 0},
};

/* `rows` new rows after `depth` positions, layer by layer. */
static void run_attend(const bench *b, const heads *m, int64_t rows, int64_t depth, ht_dtype dtype) {
    char name[96];
    snprintf(name, sizeof name, "attend %s %s, %lld at %lld", m->name, ht_dtype_name(dtype), (long long)rows,
             (long long)depth);
    if (!strstr(name, b->filter)) return;
    int64_t pages = (depth + rows + HT_KV_PAGE - 1) / HT_KV_PAGE, kv = (int64_t)m->n_kv_heads * m->head_dim;
    size_t page_bytes = (size_t)(2 * kv * HT_KV_PAGE) * ht_dtype_bytes(dtype);
    ht_kv_layer *layer = allocate((size_t)m->layers * sizeof *layer);
    for (int32_t l = 0; l < m->layers; l++) {
        layer[l] = (ht_kv_layer){.shape = {.n_kv_heads = m->n_kv_heads, .head_dim = m->head_dim, .dtype = dtype},
                                 .window = m->window,
                                 .n_pages = pages,
                                 .pages = allocate((size_t)pages * sizeof(ht_kv_page *))};
        for (int64_t p = 0; p < pages; p++) {
            layer[l].pages[p] = allocate(sizeof(ht_kv_page));
            layer[l].pages[p]->data = allocate(page_bytes);
        }
    }
    ht_cache cache = {.n_layers = m->layers, .layer = layer, .length = depth}, *pointer = &cache;
    int32_t *pos = allocate((size_t)rows * sizeof *pos), start[2] = {0, (int32_t)rows},
            kv_len = (int32_t)(depth + rows);
    for (int64_t i = 0; i < rows; i++) pos[i] = (int32_t)(depth + i);
    ht_batch batch = {.n_tok = (int32_t)rows, .n_seq = 1, .pos = pos, .seq_start = start, .kv_len = &kv_len};
    ht_step step = {.batch = &batch, .kv = &pointer};
    float *q = random_floats(rows * m->n_heads * m->head_dim), *k = random_floats(rows * kv),
          *out = random_floats(rows * m->n_heads * m->head_dim);
    int64_t q_dims[3] = {rows, m->n_heads, m->head_dim}, k_dims[3] = {rows, m->n_kv_heads, m->head_dim};
    ht_view in[4] = {test_view(q, HT_F32, 3, q_dims), test_view(k, HT_F32, 3, k_dims), test_view(k, HT_F32, 3, k_dims),
                     test_absent()};
    ht_attend_params *params = allocate((size_t)m->layers * sizeof *params);
    ht_call *call = allocate((size_t)m->layers * sizeof *call);
    for (int32_t l = 0; l < m->layers; l++) {
        params[l] = (ht_attend_params){.layer = l, .scale = 0.125f};
        call[l] = (ht_call){.params = &params[l],
                            .n_in = 4,
                            .in = in,
                            .out = test_view(out, HT_F32, 3, q_dims),
                            .step = &step,
                            .device = b->device};
    }
    double keys = 0.0, read = 0.0;
    for (int64_t i = 0; i < rows; i++) {
        int64_t seen = depth + i + 1;
        if (m->window && seen > m->window) seen = m->window;
        keys += (double)seen;
        read = (double)(seen + rows - 1 < depth + rows ? seen + rows - 1 : depth + rows);
    }
    double seconds = best_of(b, HT_OP_ATTEND, call, m->layers);
    print(b, name, seconds, 2.0 * read * (double)kv * (double)ht_dtype_bytes(dtype),
          4.0 * keys * (double)m->n_heads * (double)m->head_dim);
    for (int32_t l = 0; l < m->layers; l++) {
        for (int64_t p = 0; p < pages; p++) free(layer[l].pages[p]->data), free(layer[l].pages[p]);
        free(layer[l].pages);
    }
    free(layer), free(pos), free(q), free(k), free(out), free(params), free(call);
}

/* ---- scans of recurrent layers ---- */

typedef struct scan_shape {
    const char *name;
    int64_t heads, key_heads, key_dim, value_dim;
    bool rated;
    int32_t layers;
} scan_shape;

static const scan_shape scans[] = {
    {"qwen3.5 32/16 x 128", 32, 16, 128, 128, true, 24},
    {"mamba2 64/1 x 128 x 64", 64, 1, 128, 64, false, 24},
};

/* Copies the states of every layer in turn, on all threads: the bound of a step of one row. */
typedef struct state_copy {
    const ht_kv_layer *layer;
    size_t bytes;
} state_copy;

static void copy_states(void *arg, int64_t begin, int64_t end, int worker) {
    (void)worker;
    const state_copy *c = arg;
    for (int64_t i = begin; i < end; i++) {
        const size_t at = (size_t)(i % 8) * (c->bytes / 8);
        memcpy((char *)c->layer[i / 8].pages[1]->data + at, (char *)c->layer[i / 8].pages[0]->data + at, c->bytes / 8);
    }
}

/* `rows` rows of every layer in turn; operands are cut from rows of one matrix, as a model's are. */
static void run_state_scan(const bench *b, const scan_shape *m, int64_t rows) {
    char name[96];
    snprintf(name, sizeof name, "state_scan %s, %lld row%s", m->name, (long long)rows, rows > 1 ? "s" : "");
    if (!strstr(name, b->filter)) return;
    const int64_t state = m->heads * m->key_dim * m->value_dim, keys = m->key_heads * m->key_dim;
    const int64_t width = 2 * keys + m->heads * m->value_dim, q_dims[3] = {rows, m->key_heads, m->key_dim},
                  v_dims[3] = {rows, m->heads, m->value_dim};
    ht_kv_layer *layer = allocate((size_t)m->layers * sizeof *layer);
    for (int32_t l = 0; l < m->layers; l++) {
        layer[l] = (ht_kv_layer){.shape = {.state = state}, .n_pages = 2, .pages = allocate(2 * sizeof(ht_kv_page *))};
        for (int p = 0; p < 2; p++) {
            layer[l].pages[p] = allocate(sizeof(ht_kv_page));
            layer[l].pages[p]->data = allocate((size_t)state * sizeof(float));
        }
    }
    ht_cache cache = {.n_layers = m->layers, .layer = layer}, *pointer = &cache;
    int32_t start[2] = {0, (int32_t)rows};
    ht_batch batch = {.n_tok = (int32_t)rows, .n_seq = 1, .seq_start = start};
    ht_step step = {.batch = &batch, .kv = &pointer};
    float *x = random_floats(rows * width), *gates = random_floats(2 * rows * m->heads),
          *out = allocate((size_t)(rows * m->heads * m->value_dim) * sizeof *out);
    for (int64_t i = 0; i < 2 * rows * m->heads; i++) gates[i] = 0.5f + 0.5f * gates[i];
    for (int64_t i = 0; i < rows * width; i++) x[i] *= 0.1f;
    int32_t *first = allocate((size_t)rows * sizeof *first); /* all rows are one sequence */
    ht_view in[7] = {test_view(x, HT_F32, 3, q_dims),
                     test_view(x + keys, HT_F32, 3, q_dims),
                     test_view(x + 2 * keys, HT_F32, 3, v_dims),
                     test_view(gates, HT_F32, 2, v_dims),
                     m->rated ? test_view(gates + rows * m->heads, HT_F32, 2, v_dims) : test_absent(),
                     test_view(first, HT_I32, 1, &rows),
                     test_view(x + 2 * keys, HT_F32, 3, v_dims)};
    for (int i = 0; i < 3; i++) in[i].stride[0] = width;
    ht_state_scan_params *params = allocate((size_t)m->layers * sizeof *params);
    ht_call *call = allocate((size_t)m->layers * sizeof *call);
    for (int32_t l = 0; l < m->layers; l++) {
        params[l] = (ht_state_scan_params){.layer = l};
        call[l] = (ht_call){.params = &params[l],
                            .n_in = 5,
                            .in = in,
                            .out = test_view(out, HT_F32, 3, v_dims),
                            .step = &step,
                            .device = b->device};
    }
    const double bytes = 2.0 * (double)state * sizeof(float), flops = (double)(rows * state) * (m->rated ? 7 : 5);
    state_copy copy = {layer, (size_t)state * sizeof(float)};
    double copied = 1e9;
    for (int r = 0; r < b->rounds && rows == 1; r++) {
        const double begin = now();
        ht_pool_run(ht_device_pool(b->device), 8 * m->layers, 1, copy_states, &copy);
        if ((now() - begin) / m->layers < copied) copied = (now() - begin) / m->layers;
    }
    print(b, name, best_of(b, HT_OP_STATE_SCAN, call, m->layers), bytes, flops);
    if (rows == 1) print(b, "  a copy of the state", copied, bytes, 0);
    if (rows > 1) {
        const int64_t size = rows * (width + 2 * m->heads);
        float *gradient = allocate((size_t)size * sizeof *gradient);
        const ht_call back = {
            .params = params, .n_in = 7, .in = in, .out = test_view(gradient, HT_F32, 1, &size), .device = b->device};
        print(b, "  its gradient", best_of(b, HT_OP_STATE_SCAN_ROWS_GRAD, (ht_call[]){back, back}, 2), bytes,
              (double)(rows * state) * (m->rated ? 30 : 20));
        free(gradient);
    }
    for (int32_t l = 0; l < m->layers; l++) {
        for (int p = 0; p < 2; p++) free(layer[l].pages[p]->data), free(layer[l].pages[p]);
        free(layer[l].pages);
    }
    free(layer), free(x), free(gates), free(first), free(out), free(params), free(call);
}

static void run_all(const bench *b) {
    static const int64_t rows[] = {1, 512};
    for (size_t r = 0; r < 2; r++)
        for (size_t i = 0; i < sizeof small_cases / sizeof *small_cases; i++) run_small(b, &small_cases[i], rows[r]);
    for (size_t i = 0; i < sizeof large_cases / sizeof *large_cases; i++) run_small(b, &large_cases[i], 1);
    for (size_t r = 0; r < 2; r++)
        for (size_t i = 0; i < sizeof scans / sizeof *scans; i++) run_state_scan(b, &scans[i], rows[r]);
    static const int64_t depths[] = {16, 128, 512, 4096, 16384};
    for (size_t i = 0; i < sizeof models / sizeof *models; i++) {
        for (size_t d = 0; d < sizeof depths / sizeof *depths; d++) run_attend(b, &models[i], 1, depths[d], HT_F16);
        run_attend(b, &models[i], 1, 4096, HT_F32);
        run_attend(b, &models[i], 1, 4096, HT_BF16);
        run_attend(b, &models[i], 64, 0, HT_F16);
        run_attend(b, &models[i], 512, 0, HT_F16);
        run_attend(b, &models[i], 512, 3584, HT_F16);
        run_attend(b, &models[i], 512, 0, HT_F32);
    }
}

int main(int argc, char **argv) {
    bench b = {.rounds = 15, .filter = ""};
    int threads = 1;
    const char *isa = NULL;
    bench_arguments a = {argc, argv, 0};
    const char *value;
    for (int option; (option = bench_next(&a, &value)) >= 0;) switch (option) {
        case 0: b.filter = value; break;
        case 't': threads = atoi(value); break;
        case 'i': isa = value; break;
        case 'r': b.rounds = atoi(value); break;
        default: fprintf(stderr, "usage: bench_ops [-t THREADS] [-i ISA] [-r ROUNDS] [FILTER]\n"); return 2;
        }
    ht_error err = {0};
    ht_cpu_isa found;
    if (ht_cpu_isa_find(isa, &found, &err) != HT_OK || ht_cpu_device_new(threads, isa, &b.device, &err) != HT_OK) {
        fprintf(stderr, "bench_ops: %s\n", err.message);
        return 1;
    }
    if (threads == 1) clock_used = CLOCK_THREAD_CPUTIME_ID;
    ht_flush_denormals();
    ht_pool_lease(ht_device_pool(b.device));
    int64_t dims[2] = {64, 1 << 20};
    size_t bytes = (size_t)(dims[0] * dims[1]) * sizeof(float);
    void *memory = allocate(bytes), *sums = allocate(64 * sizeof(float));
    ht_view in = test_view(memory, HT_F32, 2, dims);
    ht_call sum = {.n_in = 1, .in = &in, .out = test_view(sums, HT_F32, 1, dims), .device = b.device};
    b.flops = ht_measure_operations(found, ht_device_pool(b.device), HT_ARITHMETIC_F32, 10);
    b.read_bytes = (double)bytes / best_of(&b, HT_OP_SUM, (ht_call[]){sum, sum}, 2);
    free(memory), free(sums);
    printf("%s, %d threads: f32 %.0f GFLOP/s, reading %zu MB %.1f GB/s\n", ht_cpu_isa_name(found),
           ht_pool_threads(ht_device_pool(b.device)), 1e-9 * b.flops, bytes >> 20, 1e-9 * b.read_bytes);
    run_all(&b);
    ht_pool_release(ht_device_pool(b.device));
    ht_cpu_device_free(b.device);
    return 0;
}
