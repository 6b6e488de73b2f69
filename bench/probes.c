/* What probes cost: the time of a token with each kind, with all and with none, in turn, and of the shortest of each its ratio to that with
 * none. Tokens are drawn from all logits (temperature 1), as probes look at all of them.
 *
 *   bench_probes MODEL [-t threads] [-n tokens] [-r rounds] */
#include "bench.h"

#include <hearth/hearth.h>

#include <stdio.h>
#include <time.h>

enum { KINDS = 8, CASES = KINDS + 3, MOST_ROUNDS = 101, PROMPT = 16 };

static void stop(const ht_error *err) {
    fprintf(stderr, "bench_probes: %s\n", err->message);
    exit(1);
}

static void count(const ht_probe *probe, void *user) {
    (void)probe;
    ++*(long *)user;
}

/* Of the process, which others on the machine disturb less than the time of day; meaningful with one thread, as idle ones spin. */
static double cpu_seconds(void) { return (double)clock() / CLOCKS_PER_SEC; }

/* Milliseconds of a token; with one thread those that the processor worked. */
static double decode(ht_model *m, bool cpu, unsigned kinds, int32_t tokens, long *seen) {
    ht_error err = {0};
    ht_session *s;
    ht_metrics metrics;
    int32_t ids[PROMPT];
    for (int i = 0; i < PROMPT; i++) ids[i] = 100 + 31 * i;
    ht_probe_options probes;
    ht_probe_options_init(&probes, sizeof probes);
    probes.kinds = kinds;
    probes.fn = count;
    probes.user = seen;
    ht_sampler_options sampler;
    ht_sampler_options_init(&sampler, sizeof sampler);
    sampler.temperature = 1;
    sampler.top_p = 1;
    sampler.min_p = 0;
    ht_generate_options o;
    ht_generate_options_init(&o, sizeof o);
    o.max_tokens = tokens;
    o.ignore_eos = true;
    o.sampler = &sampler;
    o.probes = kinds ? &probes : NULL;
    if (ht_session_new(m, NULL, &s, &err)) stop(&err);
    if (cpu && ht_session_forward(s, ids, PROMPT - 1, NULL, NULL, NULL, &err)) stop(&err);
    const double begin = cpu_seconds();
    if (ht_generate(s, cpu ? ids + PROMPT - 1 : ids, cpu ? 1 : PROMPT, &o, NULL, NULL, &metrics, &err)) stop(&err);
    const double spent = cpu_seconds() - begin;
    ht_session_free(s);
    if (cpu) return 1e3 * spent / (double)tokens;
    return 1e3 * metrics.decode_seconds / (double)(metrics.generated_tokens - 1);
}

int main(int argc, char **argv) {
    bench_arguments a = {argc, argv, 0};
    const char *path = NULL, *value;
    int threads = 2, tokens = 64, rounds = 11;
    for (int letter; (letter = bench_next(&a, &value)) >= 0;) switch (letter) {
        case 0: path = value; break;
        case 't': threads = atoi(value); break;
        case 'n': tokens = atoi(value); break;
        case 'r': rounds = atoi(value); break;
        default: path = NULL;
        }
    if (!path || threads < 1 || tokens < 2 || rounds < 1 || rounds > MOST_ROUNDS) {
        fprintf(stderr, "usage: bench_probes MODEL [-t threads] [-n tokens] [-r rounds]\n");
        return 2;
    }
    ht_error err = {0};
    ht_device_options how;
    ht_device_options_init(&how, sizeof how);
    how.n_threads = threads;
    ht_model_options options;
    ht_model_options_init(&options, sizeof options);
    ht_model *m;
    if (ht_device_open("cpu", &how, &options.device, &err) || ht_model_load(path, &options, &m, &err)) stop(&err);
    unsigned kinds[CASES] = {0};
    for (int k = 0; k < KINDS; k++) kinds[k + 1] = 1U << k;
    kinds[KINDS + 1] = HT_PROBE_ALL;
    static double ms[CASES][MOST_ROUNDS]; /* the last case is none again: the noise */
    long seen[CASES] = {0};
    for (int r = -1; r < rounds; r++) /* the first one warms up */
        for (int c = 0; c < CASES; c++) {
            const double one = decode(m, threads == 1, kinds[c], tokens, &seen[c]);
            if (r >= 0) ms[c][r] = one;
        }
    for (int c = 0; c < CASES; c++) {
        const double median = bench_median(ms[c], rounds); /* sorts them */
        const char *name = ht_probe_name((ht_probe_kind)kinds[c]);
        printf("%-10s median %7.3f ms a token, least %7.3f, %.3f times  %ld probes\n",
               name       ? name
               : kinds[c] ? "all"
                          : "none",
               median, ms[c][0], ms[c][0] / ms[0][0], seen[c]);
    }
    ht_model_free(m);
    ht_device_free(options.device);
    return 0;
}
