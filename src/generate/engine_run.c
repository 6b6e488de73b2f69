/* The engine's thread: admission, the next job of each answer, preemption. Steps: scheduler.h. */
#include "base/checked.h"
#include "base/clock.h"
#include "base/error.h"
#include "base/plural.h"
#include "base/system.h"
#include "device/device.h"
#include "generate/engine_internal.h"

#include <stdlib.h>
#include <string.h>

/* An answer with more undelivered bytes pauses until its reader catches up. */
enum { MOST_HELD_BYTES = 64 << 10 };
/* Longest sleep of the thread while a callback may need another thread, or a deadline is near. */
static const double nap = 0.01;

/* ---- waiting, with the lock ---- */

static bool comes_before(const ht_engine_answer *a, const ht_engine_answer *b) {
    if (a->request->priority != b->request->priority) return a->request->priority > b->request->priority;
    return a->order < b->order;
}

void ht_engine_queue(ht_engine_answer *a) {
    ht_engine *e = a->engine;
    ht_engine_answer **at = &e->waiting;
    while (*at && comes_before(*at, a)) at = &(*at)->next;
    a->next = *at;
    *at = a;
    a->state = HT_ENGINE_WAITING;
    e->n_waiting++;
}

static void unqueue(ht_engine_answer *a) {
    ht_engine *e = a->engine;
    ht_engine_answer **at = &e->waiting;
    while (*at != a) at = &(*at)->next;
    *at = a->next;
    e->n_waiting--;
}

/* ---- the end of an answer ---- */

static ht_metrics final_metrics(const ht_engine_answer *a) {
    ht_metrics m = a->g.metrics;
    if (a->g.first_token > 0) {
        m.first_token_seconds = a->g.first_token - a->request->submitted;
        m.decode_seconds = ht_now_seconds() - a->g.first_token;
    }
    m.reused_tokens = a->reuse.reused;
    m.peak_memory_bytes = ht_memory_get(a->engine->model->device).peak_bytes;
    return m;
}

/* The key of the positions that the answer's cache holds, or will hold. */
static ht_prefix_key key_of(const ht_engine_answer *a) {
    ht_prefix_key key = a->request->key;
    key.is_long = a->s->cache->is_long;
    return key;
}

static void keep_prefix(ht_engine_answer *a, bool tail) {
    ht_engine *e = a->engine;
    const int64_t n = a->s->cache->length, pages = n / HT_KV_PAGE;
    const ht_prefix_key key = key_of(a);
    if (!e->prefix || (!tail && pages <= a->kept_pages)) return;
    pthread_mutex_lock(&e->prefix_lock);
    ht_prefix_cache_keep(e->prefix, &key, a->s->token, n, a->s->cache, tail);
    pthread_mutex_unlock(&e->prefix_lock);
    a->kept_pages = pages;
}

static void unlock_prefix(ht_engine_answer *a) {
    ht_engine *e = a->engine;
    if (!a->lock) return;
    pthread_mutex_lock(&e->prefix_lock);
    ht_prefix_cache_unlock(e->prefix, a->lock);
    pthread_mutex_unlock(&e->prefix_lock);
    a->lock = NULL;
}

static int32_t *copy_tokens(const ht_engine_answer *a) {
    const size_t n = (size_t)a->g.metrics.generated_tokens;
    int32_t *copy = malloc(n * sizeof *copy + 1);
    if (copy && n) memcpy(copy, a->s->token + (a->s->n_tokens - (int64_t)n), n * sizeof *copy);
    return copy;
}

/* Releases everything the answer computes with. */
static void free_parts(ht_engine_answer *a) {
    unlock_prefix(a);
    if (a->begun) ht_generation_end(&a->g);
    ht_response_reader_free(a->g.answer);
    a->g.answer = NULL;
    a->begun = false;
    ht_session_free(a->s);
    a->s = NULL;
}

/* Ends an answer that is neither waiting nor running. */
static void end_answer(ht_engine_answer *a, ht_status status, const ht_error *err) {
    ht_engine *e = a->engine;
    if (err) a->err = *err;
    if (a->begun && !a->request->prompt_only) {
        const ht_status rest = ht_token_output_end(&a->g.output, &a->g.metrics.finish, status ? NULL : &a->err);
        if (!status) status = rest;
    }
    a->metrics = final_metrics(a);
    if (a->begun && !(a->token = copy_tokens(a)) && !status) status = ht_fail_memory(&a->err, 0, "the answer's tokens");
    ht_metrics_end(&a->metrics, status);
    if (a->begun && (!status || status == HT_ERR_CANCELLED)) keep_prefix(a, true);
    a->reuse.computed = a->metrics.prompt_tokens;
    free_parts(a);
    pthread_mutex_lock(&e->lock);
    a->status = status;
    a->state = HT_ENGINE_ENDED;
    ht_engine_statistics *f = &e->figures;
    f->ended += !status;
    f->cancelled += status == HT_ERR_CANCELLED;
    f->failed += status && status != HT_ERR_CANCELLED;
    f->prompt_tokens += a->metrics.prompt_tokens;
    f->reused_tokens += a->reuse.reused;
    f->generated_tokens += a->metrics.generated_tokens;
    ht_engine_make_ready(a);
    pthread_mutex_unlock(&e->lock);
}

static void remove_running(ht_engine_answer *a) {
    ht_engine *e = a->engine;
    e->out_of_memory = false;
    int32_t i = 0;
    while (e->running[i] != a) i++;
    pthread_mutex_lock(&e->lock);
    e->n_running--;
    pthread_mutex_unlock(&e->lock);
    memmove(e->running + i, e->running + i + 1, (size_t)(e->n_running - i) * sizeof *e->running);
    if (a->s) ht_scheduler_leave(e->model->scheduler, &a->s->job); /* steps stop waiting for it */
}

static void end_running(ht_engine_answer *a, ht_status status, const ht_error *err) {
    remove_running(a);
    end_answer(a, status, err);
}

/* The reason why an answer has to end now; HT_OK: none. */
static ht_status asked_to_end(const ht_engine_answer *a, ht_error *err) {
    const ht_engine_request *r = a->request;
    const long long n = (long long)a->g.metrics.generated_tokens;
    if (ht_cancel_requested(&r->cancel) || ht_cancel_requested(r->o.cancel))
        return ht_fail(err, HT_ERR_CANCELLED, "cancelled after %lld generated token%s", n, ht_plural(n));
    if (r->deadline > 0 && ht_now_seconds() >= r->deadline)
        return ht_fail(err, HT_ERR_CANCELLED, "the deadline of %g seconds has passed after %lld generated token%s",
                       r->seconds, n, ht_plural(n));
    return HT_OK;
}

/* ---- memory ---- */

static bool evict(ht_engine *e) {
    if (!e->prefix) return false;
    pthread_mutex_lock(&e->prefix_lock);
    const bool went = ht_prefix_cache_evict(e->prefix);
    pthread_mutex_unlock(&e->prefix_lock);
    return went;
}

static bool fits_memory(const ht_engine_answer *a, int64_t positions) {
    return ht_cache_fits(&a->engine->account, a->engine->o.kv_bytes, ht_cache_growth(a->s->cache, positions));
}

/* Whether emptying the prefix cache would free enough; otherwise it is kept. */
static bool could_fit_memory(const ht_engine_answer *a, int64_t positions) {
    ht_engine *e = a->engine;
    const size_t used = atomic_load_explicit(&e->account.bytes, memory_order_relaxed);
    size_t kept = 0;
    if (e->prefix) {
        pthread_mutex_lock(&e->prefix_lock);
        kept = ht_prefix_cache_get_figures(e->prefix).bytes;
        pthread_mutex_unlock(&e->prefix_lock);
    }
    const size_t others = used - ht_min_size(kept, used), more = ht_cache_growth(a->s->cache, positions);
    return others <= e->o.kv_bytes && more <= e->o.kv_bytes - others;
}

static bool evict_for(ht_engine_answer *a, int64_t positions) {
    while (!fits_memory(a, positions))
        if (!evict(a->engine)) return false;
    return true;
}

/* Preempts an answer: releases its pages and queues it. Its tokens are recomputed when it resumes. */
static void preempt(ht_engine_answer *a) {
    ht_engine *e = a->engine;
    remove_running(a);
    unlock_prefix(a);
    ht_cache_truncate(a->s->cache, 0);
    a->asked = false;
    a->kept_pages = 0;
    a->preempted++;
    pthread_mutex_lock(&e->lock);
    e->figures.preempted++;
    ht_engine_queue(a);
    pthread_mutex_unlock(&e->lock);
}

/* The running answer that would be served last. */
static ht_engine_answer *last_running(const ht_engine *e) {
    ht_engine_answer *last = e->running[0];
    for (int32_t i = 1; i < e->n_running; i++)
        if (comes_before(last, e->running[i])) last = e->running[i];
    return last;
}

/* Frees memory for the answer's next rows; false when the answer itself was preempted or has ended. */
static bool free_memory(ht_engine_answer *a, int64_t positions) {
    ht_engine *e = a->engine;
    while (!evict_for(a, positions)) {
        ht_engine_answer *last = last_running(e);
        if (e->n_running == 1) {
            if (a->lock) { /* evict cached prefixes before this answer fails */
                unlock_prefix(a);
                continue;
            }
            if (ht_cache_snapshots(a->s->cache) > 0) {
                ht_cache_drop_snapshots(a->s->cache);
                continue;
            }
            ht_error err = {0};
            ht_fail(&err, HT_ERR_LIMIT, "%lld position%s do not fit the engine's %zu bytes for keys and values",
                    (long long)positions, ht_plural(positions), e->o.kv_bytes);
            end_running(a, HT_ERR_LIMIT, &err);
            return false;
        }
        preempt(last);
        if (last == a) return false;
    }
    return true;
}

/* ---- beginning ---- */

static ht_status make_session(ht_engine_answer *a, ht_error *err) {
    ht_engine *e = a->engine;
    const ht_engine_request *r = a->request;
    ht_session_options o;
    ht_session_options_init(&o, sizeof o);
    o.chunk = e->o.step_tokens;
    ht_status status = ht_session_new(e->model, &o, &a->s, err);
    if (status) return status;
    ht_cache_set_account(a->s->cache, &e->account);
    status = ht_session_set_adapters(a->s, r->adapter, r->scale, r->key.n_adapters, err);
    return status ? status : ht_session_reserve_tokens(a->s, (int64_t)r->ids.n + 1, err);
}

/* Allocates everything the answer needs from its first to its last token. */
static ht_status begin(ht_engine_answer *a, ht_error *err) {
    ht_engine *e = a->engine;
    const ht_engine_request *r = a->request;
    ht_status status = make_session(a, err);
    if (status) return status;
    a->sampler = r->sampler;
    a->sampler.seed += (uint64_t)a->index;
    a->g = (ht_generation){.s = a->s,
                           .o = r->o,
                           .constraint = r->constraint,
                           .ahead = &e->masks_ahead,
                           .chat = r->chat,
                           .new_turn = !r->goes_on,
                           .prompt_only = r->prompt_only,
                           .limit = e->most_positions,
                           .probe = ht_engine_post_probe,
                           .probe_user = a,
                           .account = &e->account,
                           .kv_budget = e->o.kv_bytes,
                           .metrics = ht_metrics_none(),
                           .total = (int64_t)r->ids.n};
    a->g.o.sampler = &a->sampler;
    a->begun = true;
    if (r->prompt_only) return HT_OK;
    if (r->chat && r->piece)
        status = ht_response_reader_new(ht_chat_template_of(&e->model->chat, r->chat), r->chat->tools, r->text.text,
                                        r->text.n, ht_engine_post_piece, a, &a->g.answer, err);
    if (status) return status;
    if (a->g.answer) ht_response_reader_set_call_pieces(a->g.answer, r->o.call_pieces);
    return ht_generation_begin(&a->g, r->piece ? ht_engine_post_text : NULL, a, err);
}

/* The first answer of a request, whose prompt the others share. */
static bool share_first(ht_engine_answer *a, ht_error *err) {
    const ht_engine_answer *first = &a->request->answer[0];
    const int64_t n = (int64_t)a->request->ids.n;
    if (a == first || n < 2 || first->state != HT_ENGINE_RUNNING || first->s->cache->length < n ||
        !ht_cache_is_for(first->s->cache, a->g.total))
        return false;
    ht_cache *cache;
    if (ht_cache_share(first->s->cache, &cache, err)) return false;
    ht_cache_truncate(cache, n - 1);
    if (cache->length < n - 1) { /* the first has gone on too far */
        ht_cache_free(cache);
        return false;
    }
    ht_cache_free(a->s->cache);
    a->s->cache = cache;
    return true;
}

/* Recomputation after the first token does not change the reported reuse. */
static void set_reuse(ht_engine_answer *a, ht_reuse reuse) {
    if (a->g.first_token != 0) return;
    a->reuse = reuse;
    atomic_store(&a->reused, reuse.reused);
}

/* Reuses the cached prefix of the answer's tokens. */
static ht_status find_prefix(ht_engine_answer *a, ht_error *err) {
    ht_engine *e = a->engine;
    ht_session *s = a->s;
    ht_cache_begin(s->cache, a->g.total);
    if (share_first(a, err)) {
        set_reuse(a, (ht_reuse){.cached = a->g.total, .reused = s->cache->length, .end = HT_REUSE_ALL});
        return HT_OK;
    }
    if (!e->prefix) {
        set_reuse(a, (ht_reuse){.end = HT_REUSE_OFF});
        return HT_OK;
    }
    ht_prefix_found found;
    const ht_prefix_key key = key_of(a);
    pthread_mutex_lock(&e->prefix_lock);
    ht_status status = ht_prefix_cache_find(e->prefix, &key, s->token, a->g.total, s->cache, &found, err);
    pthread_mutex_unlock(&e->prefix_lock);
    a->lock = found.lock;
    a->kept_pages = found.used / HT_KV_PAGE;
    set_reuse(a, (ht_reuse){.cached = found.matched,
                            .reused = found.used,
                            .end = found.end,
                            .place = found.end == HT_REUSE_DIFFERS ? found.matched : 0,
                            .token = found.token,
                            .kept_token = found.kept});
    return status;
}

/* An answer that makes a short sequence long recomputes all tokens; other answers may have cached the first ones. */
static ht_status follow_length(ht_engine_answer *a, ht_error *err) {
    if (ht_cache_is_for(a->s->cache, a->g.total)) return HT_OK;
    unlock_prefix(a);
    a->kept_pages = 0;
    return find_prefix(a, err);
}

/* Begins or resumes a waiting answer. HT_ERR_BUSY when there is no memory for it yet. */
static ht_status start(ht_engine_answer *a, ht_error *err) {
    ht_status status = HT_OK;
    if (!a->begun) {
        status = begin(a, err);
        if (status) return status;
        memcpy(a->s->token, a->request->ids.id, a->request->ids.n * sizeof *a->s->token);
        /* The other answers begin where the first computes the last token of the prompt. */
        if (a->index == 0 && a->request->n > 1) ht_cache_mark(a->s->cache, a->g.total - 1);
    }
    status = find_prefix(a, err);
    if (status) return status;
    if (a->engine->n_running > 0 && (!could_fit_memory(a, a->g.total + 1) || !evict_for(a, a->g.total + 1))) {
        unlock_prefix(a);
        ht_cache_truncate(a->s->cache, 0);
        return HT_ERR_BUSY;
    }
    if (a->begin == 0) a->g.begin = a->begin = ht_now_seconds();
    if (a->g.first_token == 0) {
        a->s->n_tokens = a->s->cache->length;
        a->g.metrics.prompt_tokens = 0;
    }
    return HT_OK;
}

/* The next answer that may begin: answers wait until their request's first has computed the prompt. Requires the
 * lock. */
static ht_engine_answer *next_waiting(const ht_engine *e) {
    for (ht_engine_answer *a = e->waiting; a; a = a->next) {
        const ht_engine_answer *first = &a->request->answer[0];
        if (a == first || first->state != HT_ENGINE_RUNNING || first->g.first_token > 0) return a;
    }
    return NULL;
}

static void end_waiting(ht_engine *e) {
    pthread_mutex_lock(&e->lock);
    for (ht_engine_answer *a = e->waiting, *next; a; a = next) {
        ht_error err = {0};
        next = a->next;
        const ht_status status = asked_to_end(a, &err);
        if (!status) continue;
        unqueue(a);
        pthread_mutex_unlock(&e->lock);
        end_answer(a, status, &err);
        pthread_mutex_lock(&e->lock);
        next = e->waiting; /* the list may have changed */
    }
    pthread_mutex_unlock(&e->lock);
}

static void admit(ht_engine *e) {
    /* After an answer found no memory, admit none before a running one has ended. */
    if (e->out_of_memory && e->n_running > 0) return;
    while (e->n_running < e->o.sequences) {
        ht_error err = {0};
        pthread_mutex_lock(&e->lock);
        ht_engine_answer *a = next_waiting(e);
        if (a) unqueue(a);
        pthread_mutex_unlock(&e->lock);
        if (!a) return;
        const ht_status status = start(a, &err);
        if (status && status != HT_ERR_BUSY) {
            end_answer(a, status, &err);
            continue;
        }
        pthread_mutex_lock(&e->lock);
        if (status) {
            ht_engine_queue(a);
        } else {
            a->state = HT_ENGINE_RUNNING;
            e->running[e->n_running++] = a;
        }
        pthread_mutex_unlock(&e->lock);
        e->out_of_memory = status != HT_OK;
        if (status) return;
    }
}

/* ---- a round ---- */

static bool is_behind(ht_engine_answer *a, bool *refused) {
    ht_engine *e = a->engine;
    pthread_mutex_lock(&e->lock);
    const bool behind = a->held_bytes > MOST_HELD_BYTES;
    *refused = a->refused;
    pthread_mutex_unlock(&e->lock);
    return behind;
}

/* Sets the answer's job. False when it has none now: it has ended, waits, or its reader is slow. */
static bool ask(ht_engine_answer *a) {
    ht_error err = {0};
    bool refused;
    ht_status status = asked_to_end(a, &err);
    const bool behind = is_behind(a, &refused);
    if (status || refused) {
        end_running(a, refused ? HT_OK : status, &err);
        return false;
    }
    if (behind) return false;
    status = follow_length(a, &err);
    if (!status) status = ht_generation_guess(&a->g, &err);
    if (!status && !free_memory(a, ht_session_step_end(a->s, a->g.total + a->g.n_guesses))) return false;
    if (!status) status = ht_generation_ask(&a->g, &err);
    a->s->job.prefill_budget = a->engine->o.prefill_budget;
    a->asked = !status;
    if (status) end_running(a, status, &err); /* it may be gone then */
    return !status;
}

static void take(ht_engine_answer *a) {
    ht_error err = {0};
    a->asked = false;
    const ht_status status = ht_generation_take(&a->g, &err);
    if (status || a->g.metrics.finish)
        end_running(a, status, &err);
    else
        keep_prefix(a, false);
}

/* Runs the next jobs of all answers. Their number changes on the way, as some end and some are preempted. */
static int compute(ht_engine *e) {
    const int32_t n = e->n_running;
    ht_engine_answer **now = e->turn;
    int jobs = 0;
    memcpy(now, e->running, (size_t)n * sizeof *now);
    for (int32_t i = 0; i < n; i++)
        if (now[i]->state == HT_ENGINE_RUNNING) (void)ask(now[i]);
    for (int32_t i = 0; i < e->n_running; i++)
        if (e->running[i]->asked) e->job[jobs++] = &e->running[i]->s->job;
    if (!jobs) return 0;
    ht_scheduler_run(e->model->scheduler, e->job, jobs);
    const int32_t ran = e->n_running;
    memcpy(now, e->running, (size_t)ran * sizeof *now);
    for (int32_t i = 0; i < ran; i++)
        if (now[i]->asked) take(now[i]);
    return jobs;
}

/* Waits for new work, a deadline, or a callback that may need help. Requires the lock. */
static void sleep_until_work(ht_engine *e) {
    const bool answers = e->n_running + e->n_waiting > 0;
    if (!answers && !(e->ready_first && !e->n_idle)) {
        pthread_cond_wait(&e->work, &e->lock);
        return;
    }
    const double now = ht_now_seconds();
    double until = now + nap; /* setting a cancel flag wakes no thread */
    for (const ht_engine_request *r = e->requests; r && answers; r = r->next)
        if (r->deadline > now && r->deadline < until) until = r->deadline;
    ht_condition_wait_until(&e->work, &e->lock, until);
}

void *ht_engine_run(void *engine) {
    ht_engine *e = engine;
    for (;;) {
        end_waiting(e);
        admit(e);
        const int jobs = compute(e);
        pthread_mutex_lock(&e->lock);
        e->round++;
        ht_engine_help_delivery(e);
        const bool done = e->closing && e->n_running == 0 && e->n_waiting == 0;
        if (!done && !jobs) sleep_until_work(e);
        pthread_mutex_unlock(&e->lock);
        if (done) return NULL;
    }
}
