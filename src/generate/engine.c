/* Opening, submitting, waiting and figures of engines (hearth/engine.h). */
#include "base/checked.h"
#include "base/error.h"
#include "base/options.h"
#include "base/plural.h"
#include "base/system.h"
#include "generate/engine_internal.h"
#include "models/memory_check.h"

#include <stdlib.h>

static const ht_engine_options defaults = {
    .size = sizeof defaults, .sequences = 16, .queue = 256, .pace = 2, .prefix_bytes = SIZE_MAX};

void ht_engine_options_init(ht_engine_options *options, size_t size) {
    ht_options_init(options, size, &defaults, sizeof defaults);
}

const char *ht_reuse_end_name(ht_reuse_end end) {
    switch (end) {
    case HT_REUSE_ALL: return "all";
    case HT_REUSE_NEW: return "new";
    case HT_REUSE_DIFFERS: return "differs";
    case HT_REUSE_ENDS: return "ends";
    case HT_REUSE_EVICTED: return "evicted";
    case HT_REUSE_ADAPTER: return "adapter";
    case HT_REUSE_SHORT: return "short";
    case HT_REUSE_WINDOW: return "window";
    case HT_REUSE_OFF: return "off";
    }
    return "unknown";
}

/* ---- opening and closing ---- */

enum { MOST_SEQUENCES = 1024, MOST_QUEUE = 1 << 20 };

static ht_status check_options(ht_engine_options *o, const ht_model *m, ht_error *err) {
    if (o->sequences < 1 || o->sequences > MOST_SEQUENCES)
        return ht_fail(err, HT_ERR_ARGUMENT, "%d sequences, expected 1 to %d", (int)o->sequences, MOST_SEQUENCES);
    if (o->queue < 1 || o->queue > MOST_QUEUE)
        return ht_fail(err, HT_ERR_ARGUMENT, "a queue of %d answers, expected 1 to %d", (int)o->queue, MOST_QUEUE);
    if (o->step_tokens < 0)
        return ht_fail(err, HT_ERR_ARGUMENT, "steps of %d tokens, expected 1 or more, or 0 for the default",
                       (int)o->step_tokens);
    if (!(o->pace >= 1)) return ht_fail(err, HT_ERR_ARGUMENT, "a pace of %g, expected 1 or more", o->pace);
    if (!o->step_tokens) o->step_tokens = m->step_rows;
    if (!o->kv_bytes) o->kv_bytes = ht_memory_check_kv_bytes(m->device);
    if (o->prefix_bytes == SIZE_MAX) o->prefix_bytes = o->kv_bytes / 2;
    o->prefix_bytes = ht_min_size(o->prefix_bytes, o->kv_bytes);
    return HT_OK;
}

/* Whole pages that fit the budget. */
static int64_t positions_of(const ht_model *m, const ht_engine_options *o) {
    int64_t least = 0, most = ht_ceil_div_i64(m->context, HT_KV_PAGE);
    while (least < most) {
        const int64_t pages = least + (most - least + 1) / 2;
        if (ht_cache_bytes(m, pages * HT_KV_PAGE, o->step_tokens) <= o->kv_bytes)
            least = pages;
        else
            most = pages - 1;
    }
    return ht_min_i64(least * HT_KV_PAGE, m->context);
}

static void init_locks(ht_engine *e) {
    ht_condition_init(&e->work);
    pthread_cond_init(&e->idle, NULL);
    pthread_cond_init(&e->deliver, NULL);
    pthread_mutex_init(&e->lock, NULL);
    pthread_mutex_init(&e->prefix_lock, NULL);
}

static void free_engine(ht_engine *e) {
    ht_engine_stop_delivery(e);
    ht_masks_ahead_free(e->masks_ahead);
    ht_prefix_cache_free(e->prefix);
    pthread_mutex_destroy(&e->prefix_lock);
    pthread_mutex_destroy(&e->lock);
    pthread_cond_destroy(&e->deliver);
    pthread_cond_destroy(&e->idle);
    pthread_cond_destroy(&e->work);
    free(e->running);
    free(e->turn);
    free(e->job);
    ht_scheduler_close(e->model->scheduler);
    ht_model_free(e->model);
    free(e);
}

static ht_status make_parts(ht_engine *e, ht_error *err) {
    const size_t n = (size_t)e->o.sequences;
    e->running = calloc(n, sizeof *e->running);
    e->turn = calloc(n, sizeof *e->turn);
    e->job = calloc(n, sizeof *e->job);
    if (!e->running || !e->turn || !e->job) return ht_fail_memory(err, n * sizeof *e->running, "an engine");
    ht_status status = e->o.prefix_bytes ? ht_prefix_cache_new(e->model, e->o.prefix_bytes, &e->prefix, err) : HT_OK;
    return status ? status : ht_engine_start_delivery(e, err);
}

ht_status ht_engine_open(ht_model *m, const ht_engine_options *options, ht_engine **out, ht_error *err) {
    *out = NULL;
    ht_engine_options o;
    ht_status status = ht_options_read(&o, options, &defaults, sizeof defaults, "ht_engine_options", err);
    if (!status) status = check_options(&o, m, err);
    if (status) return status;
    ht_engine *e = calloc(1, sizeof *e);
    if (!e) return ht_fail_memory(err, sizeof *e, "an engine");
    e->o = o;
    status = ht_scheduler_open(m, err);
    if (status) {
        free(e);
        return status;
    }
    e->model = ht_model_retain(m);
    e->most_positions = positions_of(m, &o);
    e->figures.kv_budget = o.kv_bytes;
    init_locks(e);
    status = make_parts(e, err);
    if (!status && e->most_positions < 2)
        status =
            ht_fail(err, HT_ERR_LIMIT, "%zu bytes for keys and values hold no page of %d positions, which takes %zu",
                    o.kv_bytes, HT_KV_PAGE, ht_cache_bytes(m, HT_KV_PAGE, o.step_tokens));
    if (!status && pthread_create(&e->thread, NULL, ht_engine_run, e))
        status = ht_fail(err, HT_ERR_MEMORY, "the system gives no thread for an engine");
    if (status)
        free_engine(e);
    else
        *out = e;
    return status;
}

void ht_engine_enter(ht_engine *e) {
    pthread_mutex_lock(&e->lock);
    e->n_calls++;
    pthread_mutex_unlock(&e->lock);
}

void ht_engine_leave(ht_engine *e) {
    pthread_mutex_lock(&e->lock);
    if (--e->n_calls == 0 && e->closing) pthread_cond_broadcast(&e->idle);
    pthread_mutex_unlock(&e->lock);
}

void ht_engine_close(ht_engine *e) {
    if (!e) return;
    pthread_mutex_lock(&e->lock);
    e->closing = true;
    for (ht_engine_request *r = e->requests; r; r = r->next) ht_cancel_request(&r->cancel);
    pthread_cond_signal(&e->work);
    pthread_mutex_unlock(&e->lock);
    pthread_join(e->thread, NULL);
    pthread_mutex_lock(&e->lock);
    while (e->requests || e->n_calls) pthread_cond_wait(&e->idle, &e->lock);
    pthread_mutex_unlock(&e->lock);
    free_engine(e);
}

/* ---- requests ---- */

/* Queues all answers, or none. */
static ht_status queue(ht_engine *e, ht_engine_request *r, ht_ticket *ticket, ht_error *err) {
    ht_status status = HT_OK;
    pthread_mutex_lock(&e->lock);
    const int32_t most = e->o.queue, n_waiting = e->n_waiting;
    if (e->closing)
        status = ht_fail(err, HT_ERR_CANCELLED, "the engine is being closed");
    else if (r->n > most - n_waiting)
        status = ht_fail(err, HT_ERR_BUSY,
                         "%d answer%s wait already and %d are under way; %d may wait, and this request has %d",
                         (int)n_waiting, ht_plural(n_waiting), (int)e->n_running, (int)most, (int)r->n);
    e->figures.refused += status ? r->n : 0;
    for (int32_t i = 0; i < r->n && !status; i++) {
        r->answer[i].order = ++e->last_order;
        ht_engine_queue(&r->answer[i]);
    }
    if (!status) {
        e->figures.submitted += r->n;
        r->next = e->requests;
        e->requests = r;
        *ticket = r->ticket = ++e->last_ticket;
        pthread_cond_signal(&e->work);
    }
    pthread_mutex_unlock(&e->lock);
    return status;
}

static ht_status submit(ht_engine *e, const ht_request *request, bool prompt_only, ht_engine_end_fn *end, void *user,
                        ht_ticket *ticket, ht_error *err) {
    ht_engine_request *r;
    *ticket = 0;
    ht_status status = ht_engine_request_new(e, request, prompt_only, &r, err);
    if (status) {
        pthread_mutex_lock(&e->lock);
        e->figures.refused++;
        pthread_mutex_unlock(&e->lock);
        return status;
    }
    if (prompt_only) {
        r->end = end;
        r->user = user;
    }
    status = queue(e, r, ticket, err);
    if (status) ht_engine_request_free(r);
    return status;
}

ht_status ht_engine_submit(ht_engine *e, const ht_request *request, ht_ticket *ticket, ht_error *err) {
    ht_ticket ignored;
    ht_engine_enter(e);
    const ht_status status = submit(e, request, false, NULL, NULL, ticket ? ticket : &ignored, err);
    ht_engine_leave(e);
    return status;
}

int64_t ht_engine_prompt_tokens(ht_engine *e, ht_ticket ticket) {
    int64_t n = 0;
    pthread_mutex_lock(&e->lock);
    for (const ht_engine_request *r = e->requests; r; r = r->next)
        if (r->ticket == ticket) n = (int64_t)r->ids.n;
    pthread_mutex_unlock(&e->lock);
    return n;
}

int64_t ht_engine_reused_tokens(ht_engine *e, ht_ticket ticket, int32_t answer) {
    int64_t n = 0;
    pthread_mutex_lock(&e->lock);
    for (const ht_engine_request *r = e->requests; r; r = r->next)
        if (r->ticket == ticket && answer >= 0 && answer < r->n) n = atomic_load(&r->answer[answer].reused);
    pthread_mutex_unlock(&e->lock);
    return n;
}

void ht_engine_cancel(ht_engine *e, ht_ticket ticket) {
    pthread_mutex_lock(&e->lock);
    for (ht_engine_request *r = e->requests; r; r = r->next)
        if (r->ticket == ticket) ht_cancel_request(&r->cancel);
    pthread_cond_signal(&e->work);
    pthread_mutex_unlock(&e->lock);
}

/* Whether a request is there that is waited for: the one with this ticket, or any up to it. */
static bool is_there(const ht_engine *e, ht_ticket ticket, bool all) {
    for (const ht_engine_request *r = e->requests; r; r = r->next)
        if (r->ticket == ticket || (all && r->ticket < ticket)) return true;
    return false;
}

static void wait_for(ht_engine *e, ht_ticket ticket) {
    const bool all = ticket == 0;
    pthread_mutex_lock(&e->lock);
    if (all) ticket = e->last_ticket;
    while (is_there(e, ticket, all)) pthread_cond_wait(&e->idle, &e->lock);
    pthread_mutex_unlock(&e->lock);
}

void ht_engine_wait(ht_engine *e, ht_ticket ticket) {
    ht_engine_enter(e);
    wait_for(e, ticket);
    ht_engine_leave(e);
}

typedef struct warmed {
    ht_status status;
    ht_error err;
    ht_reuse reuse;
} warmed;

static void end_warm(const ht_answer_report *end, void *user) {
    warmed *w = user;
    w->status = end->status;
    w->reuse = end->reuse;
    if (end->status) ht_fail(&w->err, end->status, "%s", end->message);
}

ht_status ht_engine_warm(ht_engine *e, const ht_request *request, ht_reuse *reuse, ht_error *err) {
    warmed w = {0};
    ht_ticket ticket;
    if (reuse) *reuse = (ht_reuse){0};
    ht_engine_enter(e);
    ht_status status = submit(e, request, true, end_warm, &w, &ticket, err);
    if (!status) wait_for(e, ticket);
    ht_engine_leave(e);
    if (status) return status;
    if (reuse) *reuse = w.reuse;
    if (w.status && err) *err = w.err;
    return w.status;
}

int64_t ht_engine_clear_cache(ht_engine *e) {
    int64_t n = 0;
    ht_engine_enter(e);
    pthread_mutex_lock(&e->prefix_lock);
    if (e->prefix) n = ht_prefix_cache_clear(e->prefix);
    pthread_mutex_unlock(&e->prefix_lock);
    ht_engine_leave(e);
    return n;
}

/* ---- figures ---- */

ht_engine_statistics ht_engine_get_statistics(ht_engine *e) {
    ht_prefix_figures p = {0};
    ht_engine_enter(e);
    pthread_mutex_lock(&e->prefix_lock);
    if (e->prefix) p = ht_prefix_cache_get_figures(e->prefix);
    pthread_mutex_unlock(&e->prefix_lock);
    pthread_mutex_lock(&e->lock);
    ht_engine_statistics f = e->figures;
    f.running = e->n_running;
    f.waiting = e->n_waiting;
    pthread_mutex_unlock(&e->lock);
    f.kv_bytes = atomic_load_explicit(&e->account.bytes, memory_order_relaxed);
    f.prefix_bytes = p.bytes;
    f.prefix_budget = p.budget;
    f.prefix_tokens = p.tokens;
    f.prefix_lookups = p.lookups;
    f.prefix_hits = p.hits;
    f.prefix_evicted = p.evicted;
    ht_engine_leave(e);
    return f;
}
