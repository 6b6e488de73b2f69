/* What bench/arrays.py needs from C: how fast memory is read and written by plain loops, and what an operation costs beside
 * its computing.
 *
 *   bench_arrays memory THREADS       for every line that it is sent, bytes per second, JSON: read; copied; copied by
 *                                     streaming stores
 *   bench_arrays overhead THREADS     seconds per operation on one element, JSON: eagerly, compiled, and a compiled call
 *
 * Loops go through 32 MB buffers in large pages, twice, of which the faster counts, as bench/arrays.py does it with
 * operations; each takes the next of six pairs, so that no cache has what another loop has just read. Eager is a graph of 1,000 additions: built,
 * evaluated and freed; compiled the same in one function, called with a new argument. */
#include "base/pages.h"
#include "base/pool.h"
#include "bench.h"
#include "cpu/measure.h"
#include "cpu/streaming_store.h"

#include <hearth/hearth.h>

#include <stdio.h>
#include <string.h>
#include <time.h>

enum { PAIRS = 6, TIMES = 2, OPS = 1000, MOST_THREADS = 64 };
static const size_t BYTES = (size_t)32 << 20;

static double now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static int stop(const ht_error *err) {
    fprintf(stderr, "bench_arrays: %s\n", err->message);
    return 1;
}

/* ---- memory ---- */

typedef struct copy {
    const char *from;
    char *to;
    bool streaming;
} copy;

enum { BLOCK = 1 << 20, PIECE = 2048 };

static void copy_blocks(void *arg, int64_t begin, int64_t end, int worker) {
    const copy *c = arg;
    (void)worker;
    for (int64_t i = begin * BLOCK; i < end * BLOCK; i += PIECE)
        if (c->streaming)
            ht_stream_store(c->to + i, c->from + i, PIECE, &(ht_prefetch_stream){c->from + i + PIECE, 64}, 1);
        else
            memcpy(c->to + i, c->from + i, PIECE);
    if (c->streaming) ht_stream_fence();
}

static double copied_bytes(ht_pool *pool, const char *from, char *to, bool streaming) {
    double best = 0;
    for (int i = 0; i < TIMES; i++) {
        const double begin = now();
        ht_pool_run(pool, (int64_t)(BYTES / BLOCK), 1, copy_blocks, &(copy){from, to, streaming});
        const double rate = 2 * (double)BYTES / (now() - begin);
        if (rate > best) best = rate;
    }
    return best;
}

static int measure_memory(int threads) {
    char *from[PAIRS], *to[PAIRS], line[16];
    ht_pool *pool;
    ht_error err = {0};
    if (ht_pool_new(threads, &pool, &err)) return stop(&err);
    for (int i = 0; i < PAIRS; i++) {
        if (!(from[i] = ht_pages_new(BYTES)) || !(to[i] = ht_pages_new(BYTES))) return 1;
        memset(from[i], i, BYTES);
        memset(to[i], i, BYTES);
    }
    for (int i = 0; fgets(line, sizeof line, stdin); i = (i + 3) % PAIRS) {
        ht_pool_lease(pool);
        const double read = ht_measure_read_bytes(ht_cpu_isa_best(), pool, from[i], BYTES, TIMES);
        const double plain = copied_bytes(pool, from[i + 1], to[i + 1], false);
        const double round = copied_bytes(pool, from[i + 2], to[i + 2], true);
        ht_pool_release(pool);
        printf("{\"read\": %.4g, \"copy\": %.4g, \"copy_round_caches\": %.4g}\n", read, plain, round);
        fflush(stdout);
    }
    for (int i = 0; i < PAIRS; i++) {
        free(from[i]);
        free(to[i]);
    }
    ht_pool_free(pool);
    return 0;
}

/* ---- overhead ---- */

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
        if (ht_array_eval(s, &y, 1, err)) return 1;
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
    ht_device_options how;
    ht_device_options_init(&how, sizeof how);
    how.n_threads = threads;
    if (ht_device_open("cpu", &how, &d, &err)) return stop(&err);
    if (ht_stream_new(d, &stream, &err)) return stop(&err);
    if (ht_compile(&(ht_function){.call = additions, .user = &n_many}, NULL, &many, &err)) return stop(&err);
    if (ht_compile(&(ht_function){.call = additions, .user = &n_one}, NULL, &one, &err)) return stop(&err);
    if (time_calls(stream, NULL, OPS, &eager, &err) || time_calls(stream, many, OPS, &compiled, &err) ||
        time_calls(stream, one, 1, &call, &err))
        return stop(&err);
    printf("{\"eager\": %.3g, \"compiled\": %.3g, \"compiled_call\": %.3g}\n", eager / (double)OPS,
           compiled / (double)OPS, call);
    ht_compiled_free(many);
    ht_compiled_free(one);
    ht_stream_free(stream);
    ht_device_free(d);
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
