/* Streams: queues of evaluations on a device, run on the caller's thread or, asynchronously, on the stream's worker
 * thread. */
#include "array/topological_order.h"
#include "base/error.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

struct ht_stream_task {
    ht_stream_task *next;
    int n;
    ht_array *arrays[];
};

ht_status ht_stream_new(ht_device *d, ht_stream **out, ht_error *err) {
    *out = NULL;
    ht_stream *s = calloc(1, sizeof *s);
    if (!s) return ht_fail_memory(err, sizeof *s, "a stream");
    s->device = ht_device_retain(d);
    s->tail = &s->head;
    pthread_mutex_init(&s->queue_lock, NULL);
    pthread_cond_init(&s->changed, NULL);
    *out = s;
    return HT_OK;
}

/* False in a forked process, which has the stream but not its worker thread. */
static bool has_worker(ht_stream *s) {
    if (s->has_worker && s->process != getpid()) {
        s->has_worker = false;
        pthread_cond_init(&s->changed, NULL);
    }
    return s->has_worker;
}

void ht_stream_free(ht_stream *s) {
    if (!s) return;
    if (has_worker(s)) {
        pthread_mutex_lock(&s->queue_lock);
        s->stopping = true;
        pthread_cond_broadcast(&s->changed);
        pthread_mutex_unlock(&s->queue_lock);
        pthread_join(s->worker, NULL);
    }
    pthread_cond_destroy(&s->changed);
    pthread_mutex_destroy(&s->queue_lock);
    ht_memory_free(s->device->memory, s->scratch, s->scratch_bytes);
    ht_worklist_free(&s->list);
    ht_device_free(s->device);
    free(s);
}

ht_device *ht_stream_device(const ht_stream *s) { return s->device; }

static void run_task(ht_stream *s, ht_stream_task *t) {
    pthread_mutex_lock(&s->device->run_lock);
    /* Failures are recorded in the arrays and reported by ht_array_wait. */
    (void)ht_eval_now(s, t->arrays, t->n, false, NULL);
    for (int i = 0; i < t->n; i++) ht_array_free(t->arrays[i]);
    pthread_mutex_unlock(&s->device->run_lock);
    free(t);
}

static void *stream_worker(void *arg) {
    ht_stream *s = arg;
    pthread_mutex_lock(&s->queue_lock);
    for (;;) {
        while (!s->head && !s->stopping) pthread_cond_wait(&s->changed, &s->queue_lock);
        if (!s->head) break;
        ht_stream_task *t = s->head;
        s->head = t->next;
        if (!s->head) s->tail = &s->head;
        pthread_mutex_unlock(&s->queue_lock);
        run_task(s, t);
        pthread_mutex_lock(&s->queue_lock);
        s->completed++;
        pthread_cond_broadcast(&s->changed);
    }
    pthread_mutex_unlock(&s->queue_lock);
    return NULL;
}

void ht_stream_synchronize(ht_stream *s) {
    pthread_mutex_lock(&s->queue_lock);
    int64_t target = s->submitted;
    while (s->completed < target) pthread_cond_wait(&s->changed, &s->queue_lock);
    pthread_mutex_unlock(&s->queue_lock);
}

static ht_status check_targets(ht_scope *s, ht_array *const *arrays, int n, ht_error *err) {
    bool missing = false;
    for (int i = 0; i < n; i++) missing |= arrays[i] == NULL;
    if (s->failed) {
        if (err) *err = s->error;
        return s->error.status;
    }
    if (missing) return ht_fail(err, HT_ERR_ARGUMENT, "NULL was given where an array to evaluate was expected");
    if (s->tracing) return ht_fail(err, HT_ERR_ARGUMENT, "an array of a trace has no value: it cannot be evaluated");
    return HT_OK;
}

/* Checked without a lock, so that reading evaluated arrays never waits. */
static bool are_evaluated(ht_array *const *arrays, int n) {
    for (int i = 0; i < n; i++)
        if (arrays[i] != HT_NONE && !ht_array_is_evaluated(arrays[i])) return false;
    return n > 0;
}

ht_status ht_array_eval(ht_scope *s, ht_array *const *arrays, int n, ht_error *err) {
    ht_status st = check_targets(s, arrays, n, err);
    if (st || are_evaluated(arrays, n)) return st;
    ht_stream_synchronize(s->stream);
    pthread_mutex_lock(&s->stream->device->run_lock);
    st = ht_eval_now(s->stream, arrays, n, ht_graphs_kept == 0, err);
    pthread_mutex_unlock(&s->stream->device->run_lock);
    return st;
}

static ht_status start_worker(ht_stream *s, ht_error *err) {
    if (has_worker(s)) return HT_OK;
    if (pthread_create(&s->worker, NULL, stream_worker, s) != 0)
        return ht_fail(err, HT_ERR_MEMORY, "the stream's thread could not be started");
    s->has_worker = true;
    s->process = getpid();
    return HT_OK;
}

ht_status ht_array_eval_async(ht_scope *scope, ht_array *const *arrays, int n, ht_error *err) {
    ht_status st = check_targets(scope, arrays, n, err);
    if (st) return st;
    ht_stream *s = scope->stream;
    ht_stream_task *t = malloc(sizeof *t + (size_t)n * sizeof t->arrays[0]);
    if (!t) return ht_fail_memory(err, sizeof *t, "an asynchronous evaluation");
    *t = (ht_stream_task){.n = n};
    pthread_mutex_lock(&s->queue_lock);
    st = start_worker(s, err);
    if (st == HT_OK) {
        for (int i = 0; i < n; i++) {
            t->arrays[i] = ht_array_retain(arrays[i]);
            if (ht_graphs_kept == 0 && arrays[i] != HT_NONE && !ht_array_is_evaluated(arrays[i]))
                arrays[i]->settled = ht_storage(arrays[i])->settled = true;
        }
        *s->tail = t;
        s->tail = &t->next;
        s->submitted++;
        pthread_cond_broadcast(&s->changed);
    }
    pthread_mutex_unlock(&s->queue_lock);
    if (st) free(t);
    return st;
}

ht_status ht_array_wait(ht_scope *s, ht_array *a, ht_error *err) { return ht_array_eval(s, &a, 1, err); }
