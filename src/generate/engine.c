/* Opening, submitting, waiting and statistics of engines (hearth/engine.h). */
#include "base/checked.h"
#include "base/clock.h"
#include "base/error.h"
#include "base/options.h"
#include "base/plural.h"
#include "base/system.h"
#include "generate/engine_internal.h"
#include "models/memory_check.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static const ht_engine_options defaults = {
    .size = sizeof defaults, .sequences = 16, .queue = 256, .prefill_budget = 2, .prefix_bytes = SIZE_MAX};

void ht_engine_options_init(ht_engine_options *options, size_t size) {
    ht_options_init(options, size, &defaults, sizeof defaults);
}

const char *ht_reuse_end_name(ht_reuse_end end) {
    static const char *const names[] = {
        [HT_REUSE_ALL] = "all",     [HT_REUSE_NEW] = "new",         [HT_REUSE_DIFFERS] = "differs",
        [HT_REUSE_ENDS] = "ends",   [HT_REUSE_EVICTED] = "evicted", [HT_REUSE_ADAPTER] = "adapter",
        [HT_REUSE_SHORT] = "short", [HT_REUSE_WINDOW] = "window",   [HT_REUSE_OFF] = "off",
        [HT_REUSE_STATE] = "state"};
    return (size_t)end < sizeof names / sizeof *names ? names[end] : "unknown";
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
    if (!(o->prefill_budget >= 1))
        return ht_fail(err, HT_ERR_ARGUMENT, "a prefill budget of %g, expected 1 or more", o->prefill_budget);
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
    ht_status status = e->o.prefix_bytes && !e->model->config->two_sided
                           ? ht_prefix_cache_new(e->model, e->o.prefix_bytes, &e->prefix, err)
                           : HT_OK;
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
    e->ready_last = &e->ready_first;
    status = ht_scheduler_open(m, err);
    if (status) {
        free(e);
        return status;
    }
    e->model = ht_model_retain(m);
    e->most_positions = positions_of(m, &o);
    e->figures.kv_budget = m->config->two_sided ? 0 : o.kv_bytes; /* text encoders have no cache */
    ht_condition_init(&e->work);
    pthread_cond_init(&e->idle, NULL);
    pthread_cond_init(&e->deliver, NULL);
    pthread_mutex_init(&e->lock, NULL);
    pthread_mutex_init(&e->prefix_lock, NULL);
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

/* ---- requests, copied and checked on the thread that submits them ---- */

static const ht_request request_defaults = {.size = sizeof request_defaults, .n = 1};

void ht_request_init(ht_request *request, size_t size) {
    ht_options_init(request, size, &request_defaults, sizeof request_defaults);
}

enum { MOST_ANSWERS = 1024 };

static ht_status no_memory(ht_error *err) { return ht_fail_memory(err, sizeof(ht_engine_request), "a request"); }

static ht_status copy_sampler(ht_engine_request *r, const ht_model *m, ht_error *err) {
    ht_status status = ht_sampler_options_read(r->o.sampler, &m->sampling, &r->sampler, err);
    if (!status) status = ht_logit_biases_read(&r->sampler, m->vocab, &r->bias, err);
    if (status) return status;
    r->sampler.logit_bias = r->bias;
    if (r->sampler.order && !(r->order = strdup(r->sampler.order))) return no_memory(err);
    r->sampler.order = r->order;
    r->o.sampler = &r->sampler;
    return HT_OK;
}

static ht_status copy_options(ht_engine_request *r, const ht_model *m, const ht_generate_options *options,
                              ht_error *err) {
    ht_status status = ht_generation_read_options(&r->o, options, err);
    if (!status) status = ht_text_stream_check_stops(r->o.stop, r->o.n_stop, err);
    if (!status && r->o.draft)
        status = ht_fail(err, HT_ERR_UNSUPPORTED, "a draft model for a request: an engine guesses by lookup alone");
    if (status) return status;
    const char *const *stop = r->o.stop;
    r->stop = calloc((size_t)r->o.n_stop + 1, sizeof *r->stop);
    if (!r->stop) return no_memory(err);
    for (int i = 0; i < r->o.n_stop; i++)
        if (!(r->stop[i] = strdup(stop[i]))) return no_memory(err);
    r->o.stop = (const char *const *)r->stop;
    status = copy_sampler(r, m, err);
    if (status) return status;
    if (r->o.grammar) r->constraint.grammar = ht_grammar_retain(r->o.grammar);
    status = ht_probing_read_options(&r->probes, r->o.probes, err);
    r->o.probes = r->probes.kinds ? &r->probes : NULL;
    return status;
}

static ht_status copy_adapters(ht_engine_request *r, const ht_request *q, ht_error *err) {
    if (q->n_adapters < 0) return ht_fail(err, HT_ERR_ARGUMENT, "%d adapters, expected 0 or more", q->n_adapters);
    const size_t n = (size_t)q->n_adapters;
    r->adapter = calloc(n + 1, sizeof *r->adapter);
    r->digest = calloc(n + 1, sizeof *r->digest);
    r->scale = calloc(n + 1, sizeof *r->scale);
    if (!r->adapter || !r->digest || !r->scale || !(r->salt = strdup(q->salt ? q->salt : ""))) return no_memory(err);
    for (int i = 0; i < q->n_adapters; i++) {
        if (!q->adapters[i]) return ht_fail(err, HT_ERR_ARGUMENT, "adapter %d of %d is NULL", i, q->n_adapters);
        r->scale[i] = q->adapter_scales ? q->adapter_scales[i] : 1;
        r->adapter[i] = ht_adapter_retain(q->adapters[i]);
        r->digest[i] = ht_adapter_digest(r->adapter[i]);
        r->key.n_adapters = i + 1;
    }
    r->key.salt = r->salt;
    r->key.adapters = r->digest;
    r->key.scales = r->scale;
    return HT_OK;
}

static ht_status copy_prompt(ht_engine_request *r, const ht_engine *e, const ht_request *q, ht_error *err) {
    const ht_prompt prompt = {.ids = q->ids, .n_ids = q->n_ids, .text = q->text, .chat = q->chat};
    const unsigned flags = r->o.parse_special ? HT_ENCODE_PARSE_SPECIAL : 0;
    ht_status status = ht_prompt_encode(e->model, &prompt, flags, &r->ids, &r->text, err);
    r->goes_on = !q->chat;
    if (status || !q->chat) return status;
    r->chat = ht_chat_retain(q->chat);
    ht_constraint constraint;
    status = ht_constraint_of_chat(e->model, q->chat, &r->o, r->text.text, r->text.n, &constraint, err);
    if (status) return status;
    ht_constraint_free(&r->constraint);
    r->constraint = constraint;
    return HT_OK;
}

static ht_status check_prompt(const ht_engine_request *r, const ht_engine *e, ht_error *err) {
    const ht_model *m = e->model;
    const int64_t n = (int64_t)r->ids.n;
    if (n >= m->context)
        return ht_fail(err, HT_ERR_LIMIT, "prompt of %lld token%s does not fit the context of %lld with an answer",
                       (long long)n, ht_plural(n), (long long)m->context);
    if (n >= e->most_positions)
        return ht_fail(err, HT_ERR_LIMIT,
                       "prompt of %lld token%s can never fit with an answer: the engine's %zu bytes for keys and "
                       "values hold %lld position%s",
                       (long long)n, ht_plural(n), e->o.kv_bytes, (long long)e->most_positions,
                       ht_plural(e->most_positions));
    return HT_OK;
}

/* Checks samplers, decoders and adapters by creating them. */
static ht_status check_parts(const ht_engine_request *r, const ht_engine *e, ht_error *err) {
    ht_session *s;
    ht_status status = ht_session_new(e->model, NULL, &s, err);
    if (status) return status;
    ht_generation g = {.s = s, .o = r->o, .constraint = r->constraint, .chat = r->chat};
    status = ht_session_set_adapters(s, r->adapter, r->scale, r->key.n_adapters, err);
    if (!status && !r->prompt_only) status = ht_generation_begin(&g, r->piece ? ht_engine_post_text : NULL, NULL, err);
    ht_generation_end(&g);
    ht_session_free(s);
    return status;
}

static ht_status fill(ht_engine_request *r, const ht_engine *e, const ht_request *q, ht_error *err) {
    ht_status status = copy_options(r, e->model, q->options, err);
    if (!status) status = copy_adapters(r, q, err);
    if (!status) status = copy_prompt(r, e, q, err);
    if (!status) status = check_prompt(r, e, err);
    if (!status) status = check_parts(r, e, err);
    return status;
}

ht_status ht_engine_request_new(ht_engine *e, const ht_request *request, bool prompt_only, ht_engine_request **out,
                                ht_error *err) {
    ht_request q;
    *out = NULL;
    ht_status status = ht_options_read(&q, request, &request_defaults, sizeof request_defaults, "ht_request", err);
    if (!status) status = ht_model_need_decoder(e->model, err);
    if (status) return status;
    if (prompt_only) q.n = 1;
    if (q.n < 1 || q.n > MOST_ANSWERS)
        return ht_fail(err, HT_ERR_ARGUMENT, "%d answers, expected 1 to %d", (int)q.n, MOST_ANSWERS);
    if (!(q.deadline >= 0) || isinf(q.deadline))
        return ht_fail(err, HT_ERR_ARGUMENT, "a deadline of %g seconds, expected 0 or more", q.deadline);
    ht_engine_request *r = calloc(1, sizeof *r + (size_t)q.n * sizeof *r->answer);
    if (!r) return no_memory(err);
    r->n = r->left = q.n;
    r->prompt_only = prompt_only;
    r->priority = q.priority;
    r->submitted = ht_now_seconds();
    r->seconds = q.deadline;
    r->deadline = q.deadline > 0 ? r->submitted + q.deadline : 0;
    if (!prompt_only) {
        r->piece = q.piece;
        r->end = q.end;
        r->user = q.user;
    }
    for (int32_t i = 0; i < q.n; i++) {
        r->answer[i].engine = e;
        r->answer[i].request = r;
        r->answer[i].index = i;
        r->answer[i].last = &r->answer[i].first;
        r->answer[i].g.metrics = ht_metrics_none();
    }
    status = fill(r, e, &q, err);
    if (status)
        ht_engine_request_free(r);
    else
        *out = r;
    return status;
}

void ht_engine_request_free(ht_engine_request *r) {
    if (!r) return;
    for (int i = 0; i < r->key.n_adapters; i++) ht_adapter_free(r->adapter[i]);
    for (int i = 0; r->stop && i < r->o.n_stop; i++) free(r->stop[i]);
    for (int32_t i = 0; i < r->n; i++) free(r->answer[i].token);
    ht_constraint_free(&r->constraint);
    free(r->stop);
    free(r->order);
    free(r->bias);
    free(r->salt);
    free(r->adapter);
    free(r->digest);
    free(r->scale);
    free(r->text.text);
    ht_ids_free(r->ids.id);
    ht_chat_free(r->chat);
    free(r);
}

/* ---- submitting and waiting ---- */

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

/* With the lock. NULL: it has gone. */
static ht_engine_request *find_request(const ht_engine *e, ht_ticket ticket) {
    ht_engine_request *r = e->requests;
    while (r && r->ticket != ticket) r = r->next;
    return r;
}

int64_t ht_engine_prompt_tokens(ht_engine *e, ht_ticket ticket) {
    pthread_mutex_lock(&e->lock);
    const ht_engine_request *r = find_request(e, ticket);
    const int64_t n = r ? (int64_t)r->ids.n : 0;
    pthread_mutex_unlock(&e->lock);
    return n;
}

int64_t ht_engine_reused_tokens(ht_engine *e, ht_ticket ticket, int32_t answer) {
    pthread_mutex_lock(&e->lock);
    const ht_engine_request *r = find_request(e, ticket);
    const int64_t n = r && answer >= 0 && answer < r->n ? atomic_load(&r->answer[answer].reused) : 0;
    pthread_mutex_unlock(&e->lock);
    return n;
}

void ht_engine_cancel(ht_engine *e, ht_ticket ticket) {
    pthread_mutex_lock(&e->lock);
    ht_engine_request *r = find_request(e, ticket);
    if (r) ht_cancel_request(&r->cancel);
    pthread_cond_signal(&e->work);
    pthread_mutex_unlock(&e->lock);
}

/* Whether the request with this ticket is pending; with `all`, also any before it. */
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

/* ---- statistics ---- */

ht_engine_statistics ht_engine_get_statistics(ht_engine *e) {
    ht_prefix_figures p = {0};
    ht_engine_enter(e);
    const ht_scheduler_stats s = ht_scheduler_get_stats(e->model->scheduler);
    pthread_mutex_lock(&e->prefix_lock);
    if (e->prefix) p = ht_prefix_cache_get_figures(e->prefix);
    pthread_mutex_unlock(&e->prefix_lock);
    pthread_mutex_lock(&e->lock);
    ht_engine_statistics f = e->figures;
    f.running = e->n_running;
    f.waiting = e->n_waiting;
    pthread_mutex_unlock(&e->lock);
    f.kv_bytes = atomic_load_explicit(&e->account.bytes, memory_order_relaxed);
    f.steps = s.steps;
    f.step_rows = s.rows;
    f.prefix_bytes = p.bytes;
    f.prefix_budget = p.budget;
    f.prefix_tokens = p.tokens;
    f.prefix_lookups = p.lookups;
    f.prefix_hits = p.hits;
    f.prefix_evicted = p.evicted;
    ht_engine_leave(e);
    return f;
}
