/* What the engine gives: requests under way at once, and what a running one feels of a long prompt beside it. One JSON object.
 *
 *   bench_engine MODEL.gguf [-t threads] [-c requests under way] [-n requests in all] [-p prompt tokens] [-g tokens each]
 *                [-s tokens of the prompt that all share] [-m pace|throughput|memory] [-x pace bound]
 *
 * throughput  so many requests under way all the time, until all have ended
 * pace        the time between two tokens of one request, alone and while prompts are read beside it, and how long reading takes
 * memory      bytes of the device that sessions hold, each with its prompt, beyond the weights */
#include "bench.h"

#include <hearth/hearth.h>

#include <math.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

enum { MOST_STAMPS = 1 << 16 };

typedef struct bench {
    ht_device *device;
    ht_model *model;
    ht_engine *engine;
    int threads, under_way, requests, prompt, generated, shared;
    double pace;
    const char *mode;
} bench;

static double now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

static void stop(const ht_error *err) {
    fprintf(stderr, "bench_engine: %s\n", err->message);
    exit(1);
}

/* Tokens without pattern, the first `shared` the same for all. */
static int32_t *prompt_of(const bench *b, int number, int n) {
    int32_t *ids = malloc((size_t)n * sizeof *ids);
    uint64_t x = 1;
    if (!ids) exit(1);
    for (int i = 0; i < n; i++) {
        if (i == b->shared) x = 77 + (uint64_t)number;
        x = x * 6364136223846793005u + 1442695040888963407u;
        ids[i] = 300 + (int32_t)((x >> 33) % (uint64_t)(ht_model_vocab_size(b->model) - 400));
    }
    return ids;
}

/* ---- requests under way ---- */

typedef struct flow {
    bench *b;
    pthread_mutex_t lock;
    int next, running;
    double *first; /* [requests] seconds to the first token */
    int64_t generated, reused, failed;
} flow;

static void submit_next(flow *f);

static void on_end(const ht_answer_report *report, void *user) {
    flow *f = user;
    pthread_mutex_lock(&f->lock);
    f->first[report->ticket - 1] = report->metrics.first_token_seconds;
    f->generated += report->metrics.generated_tokens;
    f->reused += report->reuse.reused;
    f->failed += report->status != HT_OK;
    pthread_mutex_unlock(&f->lock);
    submit_next(f);
}

static void submit_next(flow *f) {
    const bench *b = f->b;
    pthread_mutex_lock(&f->lock);
    const int number = f->next < b->requests ? f->next++ : -1;
    pthread_mutex_unlock(&f->lock);
    if (number < 0) return;
    ht_error err = {0};
    ht_generate_options o;
    ht_generate_options_init(&o, sizeof o);
    o.sampler = greedy();
    o.max_tokens = b->generated;
    o.ignore_eos = true;
    ht_request r;
    ht_request_init(&r, sizeof r);
    int32_t *ids = prompt_of(b, number, b->prompt);
    r.ids = ids;
    r.n_ids = (size_t)b->prompt;
    r.options = &o;
    r.end = on_end;
    r.user = f;
    if (ht_engine_submit(b->engine, &r, NULL, &err)) stop(&err);
    free(ids);
}

static void throughput(bench *b) {
    flow f = {.b = b, .lock = PTHREAD_MUTEX_INITIALIZER, .first = calloc((size_t)b->requests, sizeof(double))};
    if (!f.first) exit(1);
    const double begin = now();
    for (int i = 0; i < b->under_way; i++) submit_next(&f);
    while (ht_engine_get_statistics(b->engine).submitted < b->requests) nanosleep(&(struct timespec){0, 1000000}, NULL);
    ht_engine_wait(b->engine, 0);
    const double seconds = now() - begin;
    const ht_engine_statistics s = ht_engine_get_statistics(b->engine);
    const double p50 = bench_median(f.first, b->requests), p99 = f.first[(int)ceil(0.99 * b->requests) - 1];
    printf("{\"seconds\": %.4f, \"generated_tokens_per_second\": %.2f, \"tokens_per_second\": %.2f, "
           "\"first_token_p50_ms\": %.2f, "
           "\"first_token_p99_ms\": %.2f, \"reused_tokens\": %lld, \"rows_per_step\": %.2f, \"failed\": %lld}\n",
           seconds, (double)f.generated / seconds, ((double)f.generated + (double)b->prompt * b->requests) / seconds,
           p50 * 1e3, p99 * 1e3, (long long)f.reused, (double)s.step_rows / (double)s.steps, (long long)f.failed);
    free(f.first);
}

/* ---- pace ---- */

typedef struct stamps {
    double at[MOST_STAMPS];
    _Atomic int n;
    double end;
} stamps;

static bool stamp(const ht_answer_piece *piece, int32_t answer, void *user) {
    stamps *s = user;
    (void)piece, (void)answer;
    const int n = atomic_load(&s->n);
    if (n < MOST_STAMPS) {
        s->at[n] = now();
        atomic_store(&s->n, n + 1);
    }
    return true;
}

static void stamp_end(const ht_answer_report *report, void *user) {
    (void)report;
    ((stamps *)user)->end = now();
}

static void submit_stamped(bench *b, stamps *s, int number, int prompt, int generated) {
    ht_error err = {0};
    ht_generate_options o;
    ht_generate_options_init(&o, sizeof o);
    o.sampler = greedy();
    o.max_tokens = generated;
    o.ignore_eos = true;
    ht_request r;
    ht_request_init(&r, sizeof r);
    int32_t *ids = prompt_of(b, number, prompt);
    r.ids = ids;
    r.n_ids = (size_t)prompt;
    r.options = &o;
    r.piece = stamp;
    r.end = stamp_end;
    r.user = s;
    if (ht_engine_submit(b->engine, &r, NULL, &err)) stop(&err);
    free(ids);
}

/* Median and 95th percentile of the times between the stamps of [from, to) seconds. */
static void gaps(const stamps *s, double from, double to, double *median, double *p95) {
    static double gap[MOST_STAMPS];
    int n = 0;
    for (int i = 1; i < atomic_load(&s->n); i++)
        if (s->at[i - 1] >= from && s->at[i] < to) gap[n++] = s->at[i] - s->at[i - 1];
    *median = n ? bench_median(gap, n) : 0;
    *p95 = n ? gap[(int)(0.95 * (n - 1))] : 0;
}

static void pace(bench *b) {
    static stamps running, reading, first;
    submit_stamped(b, &first, 1, b->prompt, 1); /* warms up, too */
    ht_engine_wait(b->engine, 0);
    const double begin_alone = now();
    submit_stamped(b, &first, 2, b->prompt, 1);
    ht_engine_wait(b->engine, 0);
    const double seconds_alone = first.end - begin_alone;
    submit_stamped(b, &running, 3, 16, 4000);
    while (atomic_load(&running.n) < 100) nanosleep(&(struct timespec){0, 1000000}, NULL);
    const double begin = now();
    submit_stamped(b, &reading, 4, b->prompt, 1);
    while (reading.end == 0) nanosleep(&(struct timespec){0, 1000000}, NULL);
    const double end = reading.end;
    const int n = atomic_load(&running.n);
    while (running.end == 0 && atomic_load(&running.n) < n + 100) nanosleep(&(struct timespec){0, 1000000}, NULL);
    double median, p95, before, after, unused;
    gaps(&running, 0, begin, &before, &unused);
    gaps(&running, begin, end, &median, &p95);
    gaps(&running, end, now(), &after, &unused);
    /* A token takes longer the more there are before it, whoever else computes. */
    const double alone = after > 0 ? (before + after) / 2 : before;
    printf("{\"gap_before_ms\": %.3f, \"gap_after_ms\": %.3f, \"gap_beside_ms\": %.3f, \"gap_beside_p95_ms\": %.3f, "
           "\"grows\": %.3f, "
           "\"prompt_alone_seconds\": %.3f, \"prompt_beside_seconds\": %.3f, \"prompt_cost\": %.3f}\n",
           before * 1e3, after * 1e3, median * 1e3, p95 * 1e3, median / alone, seconds_alone, end - begin,
           (end - begin) / seconds_alone);
}

/* ---- memory ---- */

static void memory(bench *b) {
    ht_error err = {0};
    ht_session *s[64];
    const int n = b->under_way < 64 ? b->under_way : 64;
    const size_t before = ht_memory_get(b->device).active_bytes;
    size_t cache = 0;
    for (int i = 0; i < n; i++) {
        int32_t *ids = prompt_of(b, i, b->prompt);
        if (ht_session_new(b->model, NULL, &s[i], &err) ||
            ht_session_forward(s[i], ids, (size_t)b->prompt, NULL, NULL, NULL, &err))
            stop(&err);
        free(ids);
        cache += ht_session_cache_bytes(s[i]);
    }
    printf("{\"sessions\": %d, \"bytes\": %zu, \"cache_bytes\": %zu}\n", n,
           ht_memory_get(b->device).active_bytes - before, cache);
    for (int i = 0; i < n; i++) ht_session_free(s[i]);
}

int main(int argc, char **argv) {
    bench b = {
        .threads = 2, .under_way = 8, .requests = 32, .prompt = 128, .generated = 64, .pace = 2, .mode = "throughput"};
    bench_arguments arguments = {argc, argv, 0};
    const char *value, *path = NULL;
    for (int letter; (letter = bench_next(&arguments, &value)) >= 0;) switch (letter) {
        case 0: path = value; break;
        case 't': b.threads = atoi(value); break;
        case 'c': b.under_way = atoi(value); break;
        case 'n': b.requests = atoi(value); break;
        case 'p': b.prompt = atoi(value); break;
        case 'g': b.generated = atoi(value); break;
        case 's': b.shared = atoi(value); break;
        case 'm': b.mode = value; break;
        case 'x': b.pace = atof(value); break;
        default: return 2;
        }
    if (!path) return 2;
    ht_error err = {0};
    ht_device_options threads;
    ht_device_options_init(&threads, sizeof threads);
    threads.n_threads = b.threads;
    ht_model_options o;
    ht_model_options_init(&o, sizeof o);
    ht_engine_options e;
    ht_engine_options_init(&e, sizeof e);
    e.sequences = b.under_way;
    e.prefill_budget = b.pace;
    if (ht_device_open("cpu", &threads, &b.device, &err)) stop(&err);
    o.device = b.device;
    if (ht_model_load(path, &o, &b.model, &err)) stop(&err);
    if (strcmp(b.mode, "memory") == 0) {
        memory(&b);
    } else {
        if (strcmp(b.mode, "pace") == 0) e.sequences = 2;
        if (ht_engine_open(b.model, &e, &b.engine, &err)) stop(&err);
        if (strcmp(b.mode, "pace") == 0)
            pace(&b);
        else
            throughput(&b);
        ht_engine_close(b.engine);
    }
    ht_model_free(b.model);
    ht_device_free(b.device);
    return 0;
}
