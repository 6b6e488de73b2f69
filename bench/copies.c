/* Copies between the host and a device with memory of its own, and finding the highest logits there.
 *   bench_copies [-d DEVICE]    cuda */
#include "base/clock.h"
#include "bench.h"
#include "device/device.h"

#include <hearth/hearth.h>

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { ROUNDS = 200, SMALL = 48, VOCAB = 128256, PIECE = 1 << 20, MOST_THREADS = 16 };
#define LARGE ((size_t)1 << 30)

static void ok(ht_status status, const ht_error *err) {
    if (!status) return;
    fprintf(stderr, "bench_copies: %s\n", err->message);
    exit(1);
}

static void *memory_of(ht_device *d, size_t bytes) {
    ht_error err = {0};
    void *p;
    ok(ht_memory_alloc(d->memory, bytes, "a benchmark", &p, &err), &err);
    return p;
}

typedef enum { WRITE_SMALL, WRITE_ROW, READ_ROW, FETCH_ROW, FIND_TOP } action;

typedef struct row {
    ht_device *d;
    void *there, *scratch, *fetched, *plain;
} row;

static void act(const row *r, action a, int32_t k) {
    ht_error err = {0};
    ht_memory *m = r->d->memory;
    const size_t bytes = (size_t)VOCAB * sizeof(float);
    switch (a) {
    case WRITE_SMALL: ok(ht_memory_write(m, r->there, r->plain, SMALL, &err), &err); break;
    case WRITE_ROW: ok(ht_memory_write(m, r->there, r->plain, bytes, &err), &err); break;
    case READ_ROW: ok(ht_memory_read(m, r->plain, r->there, bytes, &err), &err); break;
    case FETCH_ROW: ok(ht_memory_fetch(m, r->fetched, r->there, bytes, &err), &err); break;
    case FIND_TOP:
        ok(r->d->top->run(r->d,
                          &(ht_top_search){r->there, 1, VOCAB, k, (char *)r->scratch + 4096, r->scratch,
                                           (int32_t *)r->scratch + k},
                          &err),
           &err);
        ok(ht_memory_fetch(m, r->fetched, r->scratch, (size_t)k * 8, &err), &err);
    }
}

/* Microseconds of one, with the wait for it or without. */
static double time_of(const row *r, action a, int32_t k, int waits) {
    double t[ROUNDS];
    ht_error err = {0};
    ht_mark failed;
    const unsigned turn = r->d->begin(r->d);
    for (int i = -20; i < ROUNDS; i++) {
        const double begin = ht_now_seconds();
        act(r, a, k);
        if (waits) ok(ht_device_wait(r->d, &failed, &err), &err);
        if (i >= 0) t[i] = 1e6 * (ht_now_seconds() - begin);
    }
    ok(ht_device_wait(r->d, &failed, &err), &err);
    r->d->end(r->d, turn);
    return bench_median(t, ROUNDS);
}

typedef struct writer {
    ht_device *d;
    char *to, *from;
    size_t bytes;
} writer;

static void *write_pieces(void *arg) {
    const writer *w = arg;
    ht_error err = {0};
    for (size_t at = 0; at < w->bytes; at += PIECE)
        ok(ht_memory_write(w->d->memory, w->to + at, w->from + at, PIECE, &err), &err);
    return NULL;
}

static double large(ht_device *d, int n_threads, char *to, char *from) {
    ht_error err = {0};
    writer w[MOST_THREADS];
    pthread_t thread[MOST_THREADS];
    const size_t each = LARGE / (size_t)n_threads;
    const double begin = ht_now_seconds();
    for (int i = 0; i < n_threads; i++) {
        w[i] = (writer){d, to + (size_t)i * each, from + (size_t)i * each, each};
        if (pthread_create(&thread[i], NULL, write_pieces, &w[i])) exit(1);
    }
    for (int i = 0; i < n_threads; i++) pthread_join(thread[i], NULL);
    ok(ht_device_settle(d, &err), &err);
    return (double)LARGE / (ht_now_seconds() - begin) / 1e9;
}

int main(int argc, char **argv) {
    const char *name = "cuda", *value;
    bench_arguments arguments = {argc, argv, 0};
    for (int c; (c = bench_next(&arguments, &value)) >= 0;) {
        if (c != 'd') return 1;
        name = value;
    }
    ht_error err = {0};
    ht_device *d;
    ok(ht_device_open(name, NULL, &d, &err), &err);
    const size_t bytes = (size_t)VOCAB * sizeof(float);
    row r = {.d = d, .there = memory_of(d, bytes), .scratch = memory_of(d, LARGE), .plain = calloc(1, bytes)};
    ok(ht_memory_host_alloc(d->memory, bytes, "a benchmark", &r.fetched, &err), &err);
    uint32_t random = 1;
    for (int i = 0; i < VOCAB; i++) {
        random = random * 1664525 + 1013904223;
        ((float *)r.plain)[i] = (float)(random >> 8) / 1e6f;
    }
    printf("write of %d bytes, without waiting    %8.1f us\n", SMALL, time_of(&r, WRITE_SMALL, 0, 0));
    printf("write of %d bytes and a wait          %8.1f us\n", SMALL, time_of(&r, WRITE_SMALL, 0, 1));
    printf("write of a row of %d logits       %8.1f us\n", VOCAB, time_of(&r, WRITE_ROW, 0, 1));
    printf("read of the row                       %8.1f us\n", time_of(&r, READ_ROW, 0, 0));
    printf("fetch of the row and a wait           %8.1f us\n", time_of(&r, FETCH_ROW, 0, 1));
    for (int k = 1; d->top && k <= 256; k *= 16)
        printf("finding and fetching the highest %3d   %8.1f us\n", k, time_of(&r, FIND_TOP, k, 1));
    char *from = malloc(LARGE);
    memset(from, 1, LARGE);
    for (int n = 1; n <= MOST_THREADS; n *= 2)
        printf("1 GiB by %2d threads                   %8.1f GB/s\n", n, large(d, n, r.scratch, from));
    ht_memory_host_free(d->memory, r.fetched, bytes);
    ht_memory_free(d->memory, r.there, bytes);
    ht_memory_free(d->memory, r.scratch, LARGE);
    ht_device_free(d);
    free(from);
    free(r.plain);
    return 0;
}
