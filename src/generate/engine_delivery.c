/* Callbacks of an engine: pieces and ends of an answer wait for a delivery thread. An answer has one at a time. */
#include "base/error.h"
#include "base/grow.h"
#include "generate/engine_internal.h"

#include <stdlib.h>
#include <string.h>

/* ---- the delivery queue, with the lock ---- */

void ht_engine_make_ready(ht_engine_answer *a) {
    ht_engine *e = a->engine;
    if (a->ready || a->delivering) return;
    a->ready = true;
    a->ready_round = e->round;
    a->next_ready = NULL;
    *e->ready_last = a;
    e->ready_last = &a->next_ready;
    pthread_cond_signal(&e->deliver);
}

static ht_engine_answer *next_ready(ht_engine *e) {
    ht_engine_answer *a = e->ready_first;
    if (!a) return NULL;
    if (!(e->ready_first = a->next_ready)) e->ready_last = &e->ready_first;
    a->ready = false;
    return a;
}

/* ---- posting, by the engine's thread ---- */

static char *put(char **at, const char *text, size_t n) {
    char *begin = *at;
    memcpy(begin, text, n);
    begin[n] = '\0';
    *at += n + 1;
    return begin;
}

static ht_engine_piece *copy_piece(const ht_answer_piece *p) {
    const ht_tool_call *call = p->call;
    size_t bytes = p->n + 1;
    const char *arguments = call && call->arguments ? call->arguments : "";
    if (call) bytes = strlen(call->name) + strlen(arguments) + (call->id ? strlen(call->id) : 0) + 3;
    ht_engine_piece *copy = calloc(1, sizeof *copy + bytes);
    if (!copy) return NULL;
    char *at = copy->text;
    copy->bytes = bytes;
    copy->piece = *p;
    if (!call) {
        if (p->text) copy->piece.text = put(&at, p->text, p->n);
        return copy;
    }
    copy->call.name = put(&at, call->name, strlen(call->name));
    if (call->arguments) copy->call.arguments = put(&at, arguments, strlen(arguments));
    if (call->id) copy->call.id = put(&at, call->id, strlen(call->id));
    copy->piece.call = &copy->call;
    return copy;
}

static void free_piece(ht_engine_piece *p) {
    free(p->probe);
    free(p);
}

/* Appends a piece, or frees it when the reader has refused more. */
static bool post(ht_engine_answer *a, ht_engine_piece *copy) {
    ht_engine *e = a->engine;
    copy->piece.tokens = a->g.metrics.generated_tokens;
    pthread_mutex_lock(&e->lock);
    const bool refused = a->refused;
    if (!refused) {
        *a->last = copy;
        a->last = &copy->next;
        a->held_bytes += copy->bytes;
        ht_engine_make_ready(a);
    }
    pthread_mutex_unlock(&e->lock);
    if (refused) free_piece(copy);
    return !refused;
}

bool ht_engine_post_piece(const ht_answer_piece *piece, void *user) {
    ht_engine_answer *a = user;
    ht_engine_piece *copy = copy_piece(piece);
    if (copy) return post(a, copy);
    a->g.output.no_memory = true;
    return false;
}

/* The answer fails when a piece cannot be stored. */
void ht_engine_post_probe(const ht_probe *probe, void *user) {
    ht_engine_answer *a = user;
    ht_engine_piece *piece = calloc(1, sizeof *piece);
    if (piece && (piece->probe = ht_probe_copy(probe, &piece->bytes))) {
        piece->probe->answer = a->index;
        (void)post(a, piece);
        return;
    }
    free(piece);
    a->g.output.no_memory = true;
}

bool ht_engine_post_text(const char *text, size_t n, void *user) {
    return ht_engine_post_piece(&(ht_answer_piece){.part = HT_ANSWER_TEXT, .text = text, .n = n}, user);
}

/* ---- delivery ---- */

/* Passes pieces to the reader, and frees them. */
static void hand_over(ht_engine_answer *a, ht_engine_piece *first) {
    ht_engine *e = a->engine;
    const ht_engine_request *r = a->request;
    bool refused = false;
    for (ht_engine_piece *p = first, *next; p; p = next) {
        next = p->next;
        if (p->probe) {
            if (!refused) r->probes.fn(p->probe, r->probes.user);
        } else if (!refused && !r->piece(&p->piece, a->index, r->user)) {
            refused = true;
            pthread_mutex_lock(&e->lock);
            a->refused = true;
            a->refused_tokens = p->piece.tokens;
            pthread_cond_signal(&e->work);
            pthread_mutex_unlock(&e->lock);
        }
        free_piece(p);
    }
}

static void say_end(ht_engine_answer *a) {
    const ht_engine_request *r = a->request;
    ht_answer_report report = {.ticket = r->ticket,
                               .answer = a->index,
                               .status = a->status,
                               .message = a->status ? a->err.message : "",
                               .metrics = a->metrics,
                               .queue_seconds = a->begin > 0 ? a->begin - r->submitted : 0,
                               .preempted = a->preempted,
                               .reuse = a->reuse,
                               .token = a->token};
    /* Tokens drawn after the refused piece were not delivered. */
    if (a->refused) {
        report.status = HT_OK;
        report.message = "";
        report.metrics.finish = HT_FINISH_CALLBACK;
        ht_metrics_end(&report.metrics, HT_OK);
        report.metrics.generated_tokens = a->refused_tokens;
    }
    if (r->end) r->end(&report, r->user);
}

/* Releases the answer, and with the last one the request. Requires the lock. */
static void let_go(ht_engine_answer *a) {
    ht_engine *e = a->engine;
    ht_engine_request *r = a->request;
    if (--r->left) return;
    ht_engine_request **at = &e->requests;
    while (*at != r) at = &(*at)->next;
    *at = r->next;
    ht_engine_request_free(r);
    pthread_cond_broadcast(&e->idle);
}

static void deliver(ht_engine_answer *a) {
    ht_engine *e = a->engine;
    a->delivering = true;
    if (e->ready_first && !e->n_idle) pthread_cond_signal(&e->work); /* it may have to start another thread */
    ht_engine_piece *first = a->first;
    const bool last = a->state == HT_ENGINE_ENDED; /* no piece follows */
    const bool was_full = a->held_bytes > 0;
    a->first = NULL;
    a->last = &a->first;
    pthread_mutex_unlock(&e->lock);
    hand_over(a, first);
    if (last) say_end(a);
    pthread_mutex_lock(&e->lock);
    a->delivering = false;
    if (last) {
        let_go(a);
        return;
    }
    size_t held = 0;
    for (ht_engine_piece *p = a->first; p; p = p->next) held += p->bytes;
    a->held_bytes = held;
    if (was_full) pthread_cond_signal(&e->work);
    if (a->first || a->state == HT_ENGINE_ENDED) ht_engine_make_ready(a);
}

/* Delivers. Another thread starts when ready pieces waited for a step: slow readers must not delay the others. */
static void *run(void *engine) {
    ht_engine *e = engine;
    pthread_mutex_lock(&e->lock);
    while (!e->stopping) {
        ht_engine_answer *a = next_ready(e);
        if (a) {
            deliver(a);
            continue;
        }
        e->n_idle++;
        pthread_cond_wait(&e->deliver, &e->lock);
        e->n_idle--;
    }
    pthread_mutex_unlock(&e->lock);
    return NULL;
}

ht_status ht_engine_start_delivery(ht_engine *e, ht_error *err) {
    if (!HT_GROW_ONE(e->deliverer, e->n_deliverers)) return ht_fail_memory(err, sizeof *e->deliverer, "an engine");
    if (pthread_create(&e->deliverer[e->n_deliverers], NULL, run, e))
        return ht_fail(err, HT_ERR_MEMORY, "the system gives no thread for the engine's callbacks");
    e->n_deliverers++;
    return HT_OK;
}

void ht_engine_help_delivery(ht_engine *e) {
    /* If no thread can start, delivery waits for the slow callback, as before. */
    if (e->ready_first && !e->n_idle && e->ready_first->ready_round + 1 < e->round)
        (void)ht_engine_start_delivery(e, NULL);
}

void ht_engine_stop_delivery(ht_engine *e) {
    pthread_mutex_lock(&e->lock);
    e->stopping = true;
    pthread_cond_broadcast(&e->deliver);
    pthread_mutex_unlock(&e->lock);
    for (size_t i = 0; i < e->n_deliverers; i++) pthread_join(e->deliverer[i], NULL);
    free(e->deliverer);
}
