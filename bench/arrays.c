/* What bench/arrays.py needs from C: how fast memory is read and written by plain loops, and what an operation costs beside
 * its computing.
 *
 *   bench_arrays memory THREADS       bytes per second, JSON: read; copied; copied by stores that go round the caches
 *   bench_arrays overhead THREADS     seconds per operation on one element, JSON: eagerly, compiled, and a compiled call
 *
 * Loops go through 32 MB buffers in large pages, several in turn so that caches do not keep them. Eager is a graph of 1,000
 * additions: built, evaluated and freed; compiled the same in one function, called with a new argument. */
#define _DEFAULT_SOURCE
#include "base/pages.h"
#include "bench.h"
#include "cpu/bypass.h"

#include <hearth/hearth.h>

#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

enum { SETS = 4, ROUNDS = 3, OPS = 1000, MOST_THREADS = 64 };
static const size_t BYTES = (size_t)32 << 20;

static double now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/* ---- memory ---- */

typedef enum loop { READ, COPY, COPY_ROUND, N_LOOPS } loop;

typedef struct share {
    loop what;
    const char *from;
    char *to;
    size_t bytes;
    uint64_t sum;
} share;

static uint64_t read_all(const char *from, size_t bytes) {
    const uint64_t *x = (const uint64_t *)(const void *)from;
    uint64_t sum[16] = {0};
    for (size_t i = 0; i < bytes / 8; i += 16)
        for (size_t k = 0; k < 16; k++) sum[k] |= x[i + k];
    for (int k = 1; k < 16; k++) sum[0] |= sum[k];
    return sum[0];
}

static void *run_share(void *arg) {
    share *s = arg;
    enum { PIECE = 2048 };
    for (size_t i = 0; i < s->bytes; i += PIECE) switch (s->what) {
        case READ: s->sum |= read_all(s->from + i, PIECE); break;
        case COPY: memcpy(s->to + i, s->from + i, PIECE); break;
        default: ht_bypass(s->to + i, s->from + i, PIECE, &(ht_ahead){s->from + i + PIECE, 64}, 1);
        }
    ht_bypass_end();
    return NULL;
}

static double loop_seconds(loop what, const char *from, char *to, int threads) {
    pthread_t id[MOST_THREADS];
    share s[MOST_THREADS];
    const size_t part = BYTES / (size_t)threads / 4096 * 4096;
    const double begin = now();
    for (int t = threads - 1; t >= 0; t--) {
        s[t] = (share){what, from + (size_t)t * part, to + (size_t)t * part, part, 0};
        if (t == 0 || pthread_create(&id[t], NULL, run_share, &s[t])) run_share(&s[t]);
    }
    for (int t = 1; t < threads; t++) pthread_join(id[t], NULL);
    return now() - begin;
}

static int measure_memory(int threads) {
    static const char *const name[N_LOOPS] = {"read", "copy", "copy_round_caches"};
    char *buffer[2 * SETS];
    for (int i = 0; i < 2 * SETS; i++) {
        if (!(buffer[i] = ht_pages_new(BYTES))) return 1;
        memset(buffer[i], i, BYTES);
    }
    for (int w = 0; w < N_LOOPS; w++) {
        double took[SETS * ROUNDS];
        for (int i = 0; i < SETS * ROUNDS; i++)
            took[i] = loop_seconds((loop)w, buffer[2 * (i % SETS)], buffer[2 * (i % SETS) + 1], threads);
        const double moved = (double)BYTES * (w == READ ? 1 : 2);
        printf("%s\"%s\": %.4g", w ? ", " : "{", name[w], moved / bench_median(took, SETS * ROUNDS));
    }
    printf("}\n");
    for (int i = 0; i < 2 * SETS; i++) free(buffer[i]);
    return 0;
}

/* ---- overhead ---- */

static int stop(const ht_error *err) {
    fprintf(stderr, "bench_arrays: %s\n", err->message);
    return 1;
}

static int additions(ht_scope *s, ht_array *const *in, int n_in, ht_array **out, int max_out, void *user) {
    (void)n_in, (void)max_out;
    out[0] = in[0];
    for (int i = 0; i < *(const int *)user; i++) out[0] = ht_add(s, out[0], in[0]);
    return out[0] ? 1 : -1;
}

/* Seconds of a call with a graph of its own, freed again; `compiled` NULL: eagerly. */
static int time_calls(ht_stream *stream, ht_compiled *compiled, int n_ops, double *seconds, ht_error *err) {
    double took[31];
    const int n = (int)(sizeof took / sizeof *took);
    for (int r = -1; r < n; r++) {
        const double begin = now();
        ht_scope *s = ht_scope_new(stream);
        ht_array *x = ht_full(s, 1, HT_F32, &(int64_t){1}, 1), *y = NULL;
        if (compiled)
            (void)ht_compiled_call(s, compiled, &x, 1, &y, 1);
        else
            (void)additions(s, &x, 1, &y, 1, &n_ops);
        if (ht_eval(s, &y, 1, err)) return 1;
        ht_scope_free(s);
        if (r >= 0) took[r] = now() - begin;
    }
    *seconds = bench_median(took, n);
    return 0;
}

static int measure_overhead(int threads) {
    ht_error err = {0};
    ht_device *d;
    ht_stream *stream;
    ht_compiled *many, *one;
    int n_many = OPS, n_one = 1;
    double eager, compiled, call;
    if (ht_device_open("cpu", &(ht_device_options){.n_threads = threads}, &d, &err)) return stop(&err);
    if (ht_stream_new(d, &stream, &err)) return stop(&err);
    if (ht_compile(&(ht_function){.call = additions, .user = &n_many}, NULL, &many, &err)) return stop(&err);
    if (ht_compile(&(ht_function){.call = additions, .user = &n_one}, NULL, &one, &err)) return stop(&err);
    if (time_calls(stream, NULL, OPS, &eager, &err) || time_calls(stream, many, OPS, &compiled, &err) ||
        time_calls(stream, one, 1, &call, &err))
        return stop(&err);
    printf("{\"eager\": %.3g, \"compiled\": %.3g, \"compiled_call\": %.3g}\n", eager / OPS, compiled / OPS, call);
    ht_compiled_free(many);
    ht_compiled_free(one);
    ht_stream_free(stream);
    ht_device_release(d);
    return 0;
}

int main(int argc, char **argv) {
    const int threads = argc == 3 ? atoi(argv[2]) : 0;
    const bool memory = argc == 3 && !strcmp(argv[1], "memory"), overhead = argc == 3 && !strcmp(argv[1], "overhead");
    if (threads < 1 || threads > MOST_THREADS || !(memory || overhead)) {
        fprintf(stderr, "usage: bench_arrays memory|overhead THREADS\n");
        return 2;
    }
    return memory ? measure_memory(threads) : measure_overhead(threads);
}
