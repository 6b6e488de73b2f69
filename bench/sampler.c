/* The sampler on one thread: time per token over a whole row of logits, for chains of filters and shapes of rows.
 *
 *   bench_sampler [-n VOCABULARY] [-i ISA] [-r ROUNDS]
 *
 * Shapes: `model` has the long tail and the few high values of a language model's logits, `bell` is a normal
 * distribution, `flat` has one value everywhere, `two` has two, `sorted` rises, `nan` ends in one (the error's cost).
 * Every figure is the best of its rounds, in microseconds of processor time; each round takes another row of its shape,
 * so that nothing is remembered from the last. */
#include "generate/sampler.h"

#include "bench.h"
#include "device/device.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { ROWS = 4, HISTORY = 256, N_SHAPES = 6, N_CHAINS = 10 };

static const char *const shapes[N_SHAPES] = {"model", "bell", "flat", "two", "sorted", "nan"};

static const struct {
    const char *name;
    float temperature;
    int32_t top_k;
    float top_p, min_p, repeat_penalty; /* 0: off */
} chains[N_CHAINS] = {
    {.name = "greedy"},
    {.name = "greedy, penalty", .repeat_penalty = 1.1f},
    {.name = "temperature", .temperature = 0.8f},
    {.name = "top_k 40", .temperature = 0.8f, .top_k = 40},
    {.name = "top_p 0.95", .temperature = 0.8f, .top_p = 0.95f},
    {.name = "top_p 0.5", .temperature = 0.8f, .top_p = 0.5f},
    {.name = "min_p 0.05", .temperature = 0.8f, .min_p = 0.05f},
    {.name = "default", .temperature = 0.7f, .top_p = 0.95f, .min_p = 0.05f},
    {.name = "all, no penalty", .temperature = 0.8f, .top_k = 40, .top_p = 0.95f, .min_p = 0.05f},
    {.name = "all", .temperature = 0.8f, .top_k = 40, .top_p = 0.95f, .min_p = 0.05f, .repeat_penalty = 1.1f},
};

static ht_sampler_options options_of(int chain) {
    ht_sampler_options o;
    ht_sampler_options_init(&o, sizeof o);
    o.temperature = chains[chain].temperature;
    o.top_k = chains[chain].top_k;
    o.top_p = chains[chain].top_p;
    o.min_p = chains[chain].min_p;
    o.repeat_penalty = chains[chain].repeat_penalty;
    return o;
}

static uint64_t state = 1;
static float uniform(void) {
    state = state * 6364136223846793005u + 1442695040888963407u;
    return (float)(state >> 40) * 0x1p-24f;
}

static float bell(void) {
    float sum = -6;
    for (int i = 0; i < 12; i++) sum += uniform();
    return sum;
}

static void fill(const char *shape, float *x, int32_t n) {
    for (int32_t i = 0; i < n; i++) {
        if (!strcmp(shape, "flat"))
            x[i] = 1;
        else if (!strcmp(shape, "two"))
            x[i] = uniform() < 0.5f ? 1 : 2;
        else if (!strcmp(shape, "sorted"))
            x[i] = 10 * (float)i / (float)n;
        else if (!strcmp(shape, "bell"))
            x[i] = 3 * bell();
        else
            x[i] = 2.5f * bell() - (uniform() < 0.0002f ? 0 : 8); /* some dozens stand out */
    }
    if (!strcmp(shape, "nan")) x[n - 1] = NAN;
}

static double now(void) {
    struct timespec t;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static double best_of(ht_sampler *s, float *const *row, int32_t n, const int32_t *history, int rounds) {
    double best = 1e9;
    for (int r = 0; r < rounds; r++) {
        ht_error err;
        int32_t id;
        double begin = now();
        (void)ht_sampler_pick_row(s, &(ht_logits_rows){.x = row[r % ROWS], .n = n}, 0, history, HISTORY + r, &id, &err);
        double seconds = now() - begin;
        if (seconds < best) best = seconds;
    }
    return best;
}

int main(int argc, char **argv) {
    int32_t n = 262144;
    int rounds = 40;
    const char *isa = NULL;
    bench_arguments a = {argc, argv, 0};
    const char *value;
    bool known = true;
    for (int option; (option = bench_next(&a, &value)) >= 0;) switch (option) {
        case 'n': n = atoi(value); break;
        case 'r': rounds = atoi(value); break;
        case 'i': isa = value; break;
        default: known = false;
        }
    ht_error err = {0};
    ht_device *device;
    if (!known || n < 1 || rounds < 1) {
        fprintf(stderr, "usage: bench_sampler [-n VOCABULARY] [-i ISA] [-r ROUNDS]\n");
        return 2;
    }
    ht_device_options how;
    ht_device_options_init(&how, sizeof how);
    how.n_threads = 1;
    how.instruction_set = isa;
    if (ht_device_open("cpu", &how, &device, &err)) {
        fprintf(stderr, "bench_sampler: %s\n", err.message);
        return 1;
    }
    float *row[ROWS];
    for (int i = 0; i < ROWS; i++)
        if (!(row[i] = malloc((size_t)n * sizeof(float)))) return 1;
    int32_t *history = malloc(((size_t)HISTORY + (size_t)rounds) * sizeof *history);
    for (int i = 0; history && i < HISTORY + rounds; i++) history[i] = (int32_t)(uniform() * (float)(n - 1));
    printf("%s, %d logits, us per token\n%-16s", device->instruction_set, (int)n, "");
    for (int c = 0; c < N_SHAPES; c++) printf(" %8s", shapes[c]);
    printf("\n");
    for (int c = 0; history && c < N_CHAINS; c++) {
        printf("%-16s", chains[c].name);
        for (int k = 0; k < N_SHAPES; k++) {
            ht_sampler *s;
            for (int i = 0; i < ROWS; i++) fill(shapes[k], row[i], n);
            const ht_sampler_options o = options_of(c);
            if (ht_sampler_new(&o, n, device->row_ops, &s, &err)) return 1;
            printf(" %8.1f", 1e6 * best_of(s, row, n, history, rounds));
            fflush(stdout);
            ht_sampler_free(s);
        }
        printf("\n");
    }
    for (int i = 0; i < ROWS; i++) free(row[i]);
    free(history);
    ht_device_free(device);
    return 0;
}
