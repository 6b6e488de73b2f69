#include "generate/scheduler.h"

#include "base/checked.h"
#include "base/clock.h"
#include "base/error.h"
#include "base/grow.h"
#include "base/plural.h"
#include "base/system.h"
#include "device/device.h"
#include "generate/cache.h"
#include "models/memory_check.h"
#include "models/model.h"
#include "models/taps.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

/* Jobs of at most FEW_ROWS rows go first. An executor with more than KEEP_BYTES of output is freed after its job. */
enum { FEW_ROWS = 16, KEEP_BYTES = 4 << 20, DEFAULT_PREFILL_BUDGET = 2 };
/* A step waits at most this share of the last step's time for sequences that are about to return. */
static const double gather_share = 0.05;

/* The arrays of a step, grown between steps. */
typedef struct batch_room {
    int32_t rows, sequences;      /* capacity */
    int32_t *id, *pos, *out_row;  /* [rows] */
    int32_t *first, *last, *type; /* [rows] of a text encoder; else NULL */
    int32_t *seq_start, *kv_len;  /* [sequences + 1], [sequences] */
    ht_cache **kv;                /* [sequences] */
    const ht_lora_set **lora;     /* [sequences] */
} batch_room;

/* Executor of one plan, created when first needed and recreated for larger steps. */
typedef struct executor {
    ht_exec *exec;
    int32_t rows, out; /* limits */
} executor;

/* Generated rows that keep a step short: those in it, in other kinds of steps, or between two tokens. */
typedef struct kept_waiting {
    int64_t rows;
    double prefill_budget; /* strictest limit of these rows; 1: none */
} kept_waiting;

struct ht_scheduler {
    ht_model *model; /* not retained: the model owns the scheduler */
    int32_t sequences;

    pthread_mutex_t lock;
    pthread_cond_t changed; /* jobs arrived or finished, or no thread runs steps */
    ht_step_job *first, **last;
    int users;
    bool running;         /* a thread runs a step, and alone uses `executor`, `room` and `taken` */
    int64_t awaited;      /* sequences of the last step that are about to return */
    kept_waiting between; /* the generating ones of them, even after waiting for them has ended */
    uint64_t round;       /* step number: `awaited` counts sequences of this step */
    double last_end, last_seconds;
    ht_prefill_budget budget;
    ht_scheduler_stats stats;

    executor executor[HT_PLAN_FORMS]; /* of each plan of the model */
    batch_room room;
    ht_step_job **taken; /* [sequences] */
};

/* ---- the prefill budget ---- */

/* Planned share of the allowed step time: single steps vary. */
static const double aim = 0.85;
/* Weight of a new value in running means. Rows cost more as their context grows, so recent steps count most. */
static const double new_weight = 0.25;
/* Prompt rows before anything is measured. Steps with prompts before one without: generated rows cost more as their
 * context grows. Rows of a prompt-only step that suffice to measure one row. */
enum { FIRST_ROWS = 8, MOST_MIXED = 32, LEAST_ALONE = 64 };

static int64_t size_of(int64_t few) { return few < HT_PREFILL_BUDGET_SIZES ? few : HT_PREFILL_BUDGET_SIZES - 1; }

/* Seconds of `few` generated rows: as measured, or of the nearest smaller number, a lower bound. 0: unknown. */
static double base_of(const ht_prefill_budget *p, int64_t few) {
    for (int64_t n = size_of(few); n > 0; n--)
        if (p->base[n] > 0) return p->base[n];
    return 0;
}

int64_t ht_prefill_budget_rows(const ht_prefill_budget *p, double bound, int64_t few, int64_t most) {
    if (bound <= 1 || few == 0) return most;
    if (p->mixed >= MOST_MIXED) return 0;
    const double base = base_of(p, few);
    if (base <= 0 || p->row <= 0) return most < FIRST_ROWS ? most : FIRST_ROWS;
    const double rows = (bound * aim - 1) * base / p->row;
    if (rows >= (double)most) return most;
    return rows < 1 ? 1 : (int64_t)rows;
}

static void learn(double *mean, double x) { *mean = *mean > 0 ? *mean + new_weight * (x - *mean) : x; }

void ht_prefill_budget_learn(ht_prefill_budget *p, int64_t few, int64_t prompt, double seconds) {
    if (prompt == 0) {
        if (few > 0) learn(&p->base[size_of(few)], seconds);
        p->mixed = 0;
        return;
    }
    p->mixed += few > 0;
    const double base = few > 0 ? base_of(p, few) : 0;
    if (few > 0 ? base <= 0 : prompt < LEAST_ALONE) return;
    const double added = (seconds - base) / (double)prompt;
    /* A step that took no longer than without the prompt shows that its rows are cheap, not free. */
    learn(&p->row, added > 0.01 * seconds / (double)prompt ? added : 0.01 * seconds / (double)prompt);
}

/* ---- life ---- */

static void drop_executor(executor *e) {
    ht_exec_free(e->exec);
    *e = (executor){0};
}

static void free_room(batch_room *r) {
    free(r->id);
    free(r->pos);
    free(r->out_row);
    free(r->first);
    free(r->last);
    free(r->type);
    free(r->seq_start);
    free(r->kv_len);
    free(r->kv);
    free(r->lora);
    *r = (batch_room){0};
}

static void drop_memory(ht_scheduler *s) {
    for (int i = 0; i < HT_PLAN_FORMS; i++) drop_executor(&s->executor[i]);
    free_room(&s->room);
}

static void free_scheduler(ht_scheduler *s) {
    drop_memory(s);
    pthread_mutex_destroy(&s->lock);
    pthread_cond_destroy(&s->changed);
    free(s->taken);
    free(s);
}

static ht_scheduler *new_scheduler(ht_model *m) {
    ht_scheduler *s = calloc(1, sizeof *s);
    if (s) s->taken = calloc((size_t)m->slots, sizeof *s->taken);
    if (!s || !s->taken) {
        free(s);
        return NULL;
    }
    s->model = m;
    s->last = &s->first;
    s->sequences = m->slots;
    ht_condition_init(&s->changed);
    pthread_mutex_init(&s->lock, NULL);
    return s;
}

ht_status ht_scheduler_open(ht_model *m, ht_error *err) {
    pthread_mutex_lock(&m->lock);
    if (!m->scheduler) m->scheduler = new_scheduler(m);
    m->free_scheduler = free_scheduler;
    ht_scheduler *s = m->scheduler;
    pthread_mutex_unlock(&m->lock);
    if (!s) return ht_fail_memory(err, sizeof *s, "a scheduler");
    pthread_mutex_lock(&s->lock);
    s->users++;
    pthread_mutex_unlock(&s->lock);
    return HT_OK;
}

void ht_scheduler_close(ht_scheduler *s) {
    if (!s) return;
    pthread_mutex_lock(&s->lock);
    if (--s->users == 0) drop_memory(s);
    pthread_mutex_unlock(&s->lock);
}

ht_scheduler_stats ht_scheduler_get_stats(ht_scheduler *s) {
    if (!s) return (ht_scheduler_stats){0};
    pthread_mutex_lock(&s->lock);
    const ht_scheduler_stats stats = s->stats;
    pthread_mutex_unlock(&s->lock);
    return stats;
}

/* ---- the queue, with the lock held ---- */

/* Stops waiting for the job's sequence. */
static void arrive(ht_scheduler *s, ht_step_job *job) {
    if (job->awaited_in == s->round) {
        if (s->awaited > 0) s->awaited--;
        s->between.rows -= job->generates;
    }
    job->awaited_in = 0;
}

static void append(ht_scheduler *s, ht_step_job *job) {
    arrive(s, job);
    job->is_done = false;
    job->next = NULL;
    *s->last = job;
    s->last = &job->next;
}

static void unlink_job(ht_scheduler *s, ht_step_job *job) {
    ht_step_job **at = &s->first;
    while (*at != job) at = &(*at)->next;
    if (!(*at = job->next)) s->last = at;
}

static void end_cancelled(ht_scheduler *s) {
    for (ht_step_job *job = s->first, *next; job; job = next) {
        next = job->next;
        if (!ht_cancel_requested(job->cancel)) continue;
        unlink_job(s, job);
        job->n_rows = 0;
        job->status = ht_fail(&job->err, HT_ERR_CANCELLED, "cancelled after %lld token%s",
                              (long long)job->cache->length, ht_plural(job->cache->length));
        job->is_done = true;
    }
}

/* Waits briefly for sequences of the last step, so that they share the next one. */
static void gather(ht_scheduler *s) {
    const double until = s->last_end + gather_share * s->last_seconds;
    while (s->awaited > 0 && ht_now_seconds() < until)
        if (!ht_condition_wait_until(&s->changed, &s->lock, until)) break;
    s->awaited = 0;
}

/* ---- which jobs a step takes ---- */

static int64_t rows_left(const ht_step_job *job) { return job->end - job->cache->length; }
static bool is_few(const ht_step_job *job) {
    return !job->prompt && rows_left(job) <= ht_min_i64(FEW_ROWS, job->most_rows);
}

typedef struct chosen {
    int n;
    int64_t few, prompt; /* rows of jobs with few rows; rows of the others */
} chosen;

/* Whether two jobs can share a step. */
static bool go_together(const ht_step_job *a, const ht_step_job *b) {
    return !a->alone && !b->alone && a->hidden == b->hidden && a->cache->is_long == b->cache->is_long;
}

static void take(ht_scheduler *s, chosen *c, ht_step_job *job, int64_t rows) {
    unlink_job(s, job);
    job->rows = rows;
    s->taken[c->n++] = job;
}

/* Divides the budget equally among the chosen prompts, as far as each has rows; the rest goes to the first. */
static void share_rows(ht_scheduler *s, chosen *c, int first, int64_t budget) {
    const int n = c->n - first;
    for (int i = first; i < c->n; i++) {
        ht_step_job *job = s->taken[i];
        job->rows = ht_max_i64(1, ht_min_i64(budget / n, ht_min_i64(rows_left(job), job->most_rows)));
        c->prompt += job->rows;
    }
    for (int i = first; i < c->n && c->prompt < budget; i++) {
        ht_step_job *job = s->taken[i];
        const int64_t more = ht_min_i64(budget - c->prompt, ht_min_i64(rows_left(job), job->most_rows) - job->rows);
        job->rows += more;
        c->prompt += more;
    }
}

static void keep_waiting(kept_waiting *w, int64_t rows, double prefill_budget) {
    if (prefill_budget <= 0) prefill_budget = DEFAULT_PREFILL_BUDGET;
    w->rows += rows;
    if (prefill_budget > 1 && (w->prefill_budget <= 1 || prefill_budget < w->prefill_budget))
        w->prefill_budget = prefill_budget;
}

static kept_waiting who_waits(const ht_scheduler *s, const chosen *c, const ht_step_job *like) {
    kept_waiting w = s->between;
    for (int i = 0; i < c->n; i++) keep_waiting(&w, s->taken[i]->rows, s->taken[i]->prefill_budget);
    for (const ht_step_job *job = s->first; job; job = job->next)
        if (!go_together(job, like) && !job->alone && is_few(job))
            keep_waiting(&w, rows_left(job), job->prefill_budget);
    return w;
}

/* Whole sequences in order of arrival, as long as they fit. */
static chosen choose_whole(ht_scheduler *s) {
    chosen c = {0};
    const ht_step_job *like = s->first;
    const int64_t most = like->most_rows;
    for (ht_step_job *job = s->first, *next; job && c.n < s->sequences; job = next) {
        next = job->next;
        if (!go_together(job, like) || (c.n && c.prompt + rows_left(job) > most)) continue;
        c.prompt += rows_left(job);
        take(s, &c, job, rows_left(job));
    }
    return c;
}

static chosen choose(ht_scheduler *s) {
    chosen c = {0};
    int64_t most = 0;
    if (!s->first) return c;
    if (s->model->config->two_sided) return choose_whole(s);
    if (s->first->alone) {
        ht_step_job *job = s->first;
        take(s, &c, job, ht_min_i64(rows_left(job), job->most_rows));
        c.prompt = job->rows;
        return c;
    }
    const ht_step_job *like = s->first;
    /* A prompt at the head of the queue gets a place in the step, however many short jobs wait. */
    const int32_t room = is_few(s->first) ? s->sequences : s->sequences - 1;
    for (ht_step_job *job = s->first, *next; job && c.n < room; job = next) {
        next = job->next;
        if (!go_together(job, like) || !is_few(job)) continue;
        c.few += rows_left(job);
        take(s, &c, job, rows_left(job));
    }
    const kept_waiting waiting = who_waits(s, &c, like);
    for (const ht_step_job *job = s->first; job; job = job->next)
        if (go_together(job, like)) most = ht_max_i64(most, job->most_rows);
    int64_t budget =
        ht_prefill_budget_rows(&s->budget, waiting.prefill_budget, waiting.rows, ht_max_i64(1, most - c.few));
    /* Generated rows that keep prompts out may all be in another kind of step: this one must not be empty. */
    if (c.n == 0) budget = ht_max_i64(budget, 1);
    const int n_few = c.n;
    for (ht_step_job *job = s->first, *next; job && c.n < s->sequences && c.n - n_few < budget; job = next) {
        next = job->next;
        if (!go_together(job, like) || is_few(job)) continue;
        take(s, &c, job, 0);
    }
    if (c.n > n_few) share_rows(s, &c, n_few, budget);
    return c;
}

/* ---- a step, on the thread that runs it ---- */

static ht_status make_room(batch_room *r, int32_t rows, int32_t sequences, bool whole, ht_error *err) {
    if (rows > r->rows) {
        size_t n = (size_t)rows;
        if (!HT_RESIZE(r->id, n) || !HT_RESIZE(r->pos, n) || !HT_RESIZE(r->out_row, n) ||
            (whole && (!HT_RESIZE(r->first, n) || !HT_RESIZE(r->last, n) || !HT_RESIZE(r->type, n))))
            return ht_fail_memory(err, 6 * n * sizeof *r->id, "a step's batch");
        r->rows = rows;
    }
    if (sequences > r->sequences) {
        size_t n = (size_t)sequences;
        if (!HT_RESIZE(r->seq_start, n + 1) || !HT_RESIZE(r->kv_len, n) || !HT_RESIZE(r->kv, n) ||
            !HT_RESIZE(r->lora, n))
            return ht_fail_memory(err, n * (sizeof *r->kv + sizeof *r->lora + 2 * sizeof *r->kv_len), "a step's batch");
        r->sequences = sequences;
    }
    return HT_OK;
}

/* Steps of up to model->step_rows rows are small, or were checked at load; a longer one takes a text as a whole. */
static ht_status check_memory(const ht_model *m, const ht_plan *plan, int32_t rows, int32_t out, ht_error *err) {
    size_t available;
    if (rows <= m->step_rows || m->skip_memory_check || !ht_memory_check_free_on(m->device, &available)) return HT_OK;
    return ht_memory_check_step(ht_memory_is_host(m->device->memory) ? NULL : m->device->name, rows,
                                ht_exec_bytes(plan, rows, out), available, err);
}

/* An executor for `rows` and `out`. Capacity doubles up to `most`: small arenas, few rebuilds. */
static ht_status make_executor(ht_scheduler *s, unsigned form, int32_t rows, int32_t most, int32_t out, ht_error *err) {
    executor *e = &s->executor[form];
    if (e->exec && rows <= e->rows && out <= e->out) return HT_OK;
    int32_t room = FEW_ROWS, outputs = 1;
    while (room < rows) room *= 2;
    if (room > most) room = ht_max_i32(rows, most);
    room = ht_max_i32(room, e->rows);
    while (outputs < out && out <= s->sequences) outputs *= 2;
    outputs = ht_max_i32(ht_max_i32(outputs, out), e->out);
    drop_executor(e);
    const ht_plan *plan;
    ht_status status = ht_model_plan(s->model, form, &plan, err);
    if (status == HT_OK) status = check_memory(s->model, plan, room, outputs, err);
    if (status == HT_OK) status = ht_exec_new(plan, room, outputs, &e->exec, err);
    if (status == HT_OK) {
        e->rows = room;
        e->out = outputs;
    }
    return status;
}

/* Requirements of a step's rows. */
typedef struct needs {
    int64_t rows, out;
    int32_t most, top_k;
    unsigned form; /* of the plan */
    int64_t width; /* of a row of logits or hidden states */
    bool direct;   /* the step writes all logits, contiguous, to where the jobs want them */
    float *logits;
} needs;

static needs needs_of(const ht_model *m, ht_step_job *const *job, int n) {
    needs w = {.direct = true, .form = job[0]->hidden ? HT_PLAN_HIDDEN : 0};
    if (job[0]->cache->is_long) w.form |= HT_PLAN_LONG;
    bool all = false;
    w.width = ht_model_row_width(m, w.form);
    for (int i = 0; i < n; i++) {
        ht_step_job *j = job[i];
        const int64_t begin = j->cache->length, end = begin + j->rows;
        j->first_row = ht_min_i64(end, ht_max_i64(begin, j->first_out));
        j->n_rows = (j->end_out ? ht_min_i64(end, j->end_out) : end) - j->first_row;
        j->output = NULL;
        w.rows += j->rows;
        w.most = ht_max_i32(w.most, j->most_rows);
        if (j->lora) w.form |= HT_PLAN_ADAPTERS;
        if (j->tapped && j->n_rows) w.form |= HT_PLAN_TAPS;
        if (!j->n_rows) continue;
        if (w.out == 0) w.logits = j->logits;
        w.direct = w.direct && j->logits && j->logits == w.logits + w.out * w.width;
        w.out += j->n_rows;
        all = all || !j->top_k || j->logits || j->alone;
        w.top_k = ht_max_i32(w.top_k, j->top_k);
    }
    if (all) w.top_k = 0;
    if (!w.direct || !w.out) w.logits = NULL;
    return w;
}

static void add_rows(batch_room *r, ht_batch *b, const ht_step_job *job) {
    const int64_t begin = job->cache->length, end = begin + job->rows;
    const int32_t first = b->n_tok;
    for (int64_t pos = begin; pos < end; pos++) {
        if (pos >= job->first_row && pos < job->first_row + job->n_rows) r->out_row[b->n_out++] = b->n_tok;
        if (r->first) {
            r->first[b->n_tok] = first;
            r->last[b->n_tok] = first + (int32_t)job->rows - 1;
            r->type[b->n_tok] = job->type ? job->type[pos] : 0;
        }
        r->id[b->n_tok] = job->token[pos];
        r->pos[b->n_tok++] = (int32_t)pos;
    }
    r->kv_len[b->n_seq] = (int32_t)end;
    r->lora[b->n_seq] = job->lora;
    r->kv[b->n_seq++] = job->cache;
    r->seq_start[b->n_seq] = b->n_tok;
}

typedef struct consumption {
    ht_step_job *const *job;
    ht_logits_rows logits;
    const float *taps;
    int64_t taps_width;
} consumption;

static void consume_jobs(void *arg, int64_t begin, int64_t end, int worker) {
    const consumption *c = arg;
    (void)worker;
    for (int64_t i = begin; i < end; i++) {
        ht_step_job *job = c->job[i];
        int64_t before = 0;
        for (int64_t k = 0; k < i; k++) before += c->job[k]->n_rows;
        const ht_logits_rows rows = {.x = c->logits.x + before * c->logits.n,
                                     .id = c->logits.id ? c->logits.id + before * c->logits.n : NULL,
                                     .n_rows = job->n_rows,
                                     .n = c->logits.n};
        if (!job->n_rows) continue;
        job->taps = job->tapped ? c->taps + before * c->taps_width : NULL;
        if (job->logits && job->logits != rows.x)
            memcpy(job->logits, rows.x, (size_t)(rows.n_rows * rows.n) * sizeof *rows.x);
        if (job->consume) job->status = job->consume(job->user, &rows, &job->err);
    }
}

static ht_status run_step(ht_scheduler *s, ht_step_job *const *job, int n, ht_error *err) {
    ht_model *m = s->model;
    const needs w = needs_of(m, job, n);
    const float *logits = NULL;
    ht_status status = make_room(&s->room, (int32_t)w.rows, n, m->config->two_sided, err);
    if (!status) status = make_executor(s, w.form, (int32_t)w.rows, w.most, (int32_t)ht_max_i64(w.out, 1), err);
    if (status) return status;
    batch_room *r = &s->room;
    ht_batch b = {.id = r->id,
                  .pos = r->pos,
                  .seq_start = r->seq_start,
                  .kv_len = r->kv_len,
                  .out_row = r->out_row,
                  .first = r->first,
                  .last = r->last,
                  .type = r->type};
    r->seq_start[0] = 0;
    for (int i = 0; i < n; i++) add_rows(r, &b, job[i]);
    const ht_step at = {.batch = &b,
                        .kv = r->kv,
                        .lora = w.form & HT_PLAN_ADAPTERS ? r->lora : NULL,
                        .output = w.logits,
                        .top_k = w.top_k};
    executor *e = &s->executor[w.form];
    status = ht_exec_run(e->exec, &at, &logits, err);
    if (status) return status;
    for (int i = 0; i < n; i++) {
        ht_cache_advance(job[i]->cache, job[i]->rows);
        job[i]->status = HT_OK;
    }
    if (job[0]->alone) {
        job[0]->output = w.out ? logits : NULL;
        job[0]->exec = e->exec;
        job[0]->exec_rows = e->rows;
        job[0]->exec_out = e->out;
        job[0]->exec_form = w.form;
        *e = (executor){0};
        return HT_OK;
    }
    const ht_logits_rows *highest = ht_exec_highest(e->exec), all = {logits, NULL, w.out, w.width};
    consumption c = {job, highest ? *highest : all, ht_exec_second(e->exec), 0};
    if (w.form & HT_PLAN_TAPS) c.taps_width = ht_taps_width(m->config);
    if (n == 1)
        consume_jobs(&c, 0, 1, 0);
    else if (w.out)
        m->device->run_on_host(m->device, n, 1, consume_jobs, &c);
    return HT_OK;
}

/* After a failed step each job runs alone; only jobs that fail again end. */
static void run_jobs(ht_scheduler *s, int n) {
    ht_error err = {0};
    if (run_step(s, s->taken, n, &err) == HT_OK) return;
    for (int i = 0; i < n; i++) {
        ht_step_job *job = s->taken[i];
        if (n > 1) {
            err = (ht_error){0};
            if (run_step(s, &job, 1, &err) == HT_OK) continue;
        }
        job->n_rows = 0;
        job->status = err.status;
        job->err = err;
    }
}

/* Requires the lock, and releases it while computing. */
static void run_one_step(ht_scheduler *s) {
    s->running = true;
    gather(s);
    end_cancelled(s);
    const chosen c = choose(s);
    if (c.n) {
        pthread_mutex_unlock(&s->lock);
        const double begin = ht_now_seconds();
        run_jobs(s, c.n);
        pthread_mutex_lock(&s->lock);
        s->last_end = ht_now_seconds();
        s->last_seconds = s->last_end - begin;
        ht_prefill_budget_learn(&s->budget, c.few, c.prompt, s->last_seconds);
        s->stats.steps++;
        s->stats.rows += c.few + c.prompt;
        s->round++;
    }
    s->between = (kept_waiting){0};
    for (int i = 0; i < c.n; i++) {
        ht_step_job *job = s->taken[i];
        job->is_done = true;
        if (!job->returns || job->status) continue;
        job->awaited_in = s->round;
        job->generates = job->rows <= FEW_ROWS && job->n_rows > 0;
        if (job->generates) keep_waiting(&s->between, 1, job->prefill_budget);
        s->awaited++;
    }
    s->running = false;
    pthread_cond_broadcast(&s->changed);
}

static bool all_are_done(ht_step_job *const *jobs, int n) {
    for (int i = 0; i < n; i++)
        if (!jobs[i]->is_done) return false;
    return true;
}

void ht_scheduler_run(ht_scheduler *s, ht_step_job *const *jobs, int n) {
    pthread_mutex_lock(&s->lock);
    for (int i = 0; i < n; i++) append(s, jobs[i]);
    if (s->running) pthread_cond_broadcast(&s->changed); /* a thread may be waiting for jobs */
    while (!all_are_done(jobs, n))
        if (s->running)
            pthread_cond_wait(&s->changed, &s->lock);
        else
            run_one_step(s);
    pthread_mutex_unlock(&s->lock);
}

void ht_scheduler_leave(ht_scheduler *s, ht_step_job *job) {
    pthread_mutex_lock(&s->lock);
    arrive(s, job);
    pthread_mutex_unlock(&s->lock);
}

void ht_scheduler_return_output(ht_scheduler *s, ht_step_job *job) {
    if (!job->exec) return;
    executor e = {job->exec, job->exec_rows, job->exec_out};
    job->exec = NULL;
    job->output = NULL;
    pthread_mutex_lock(&s->lock);
    executor *place = &s->executor[job->exec_form];
    /* A thread that runs a step owns the executors. */
    const bool keep =
        !s->running && !place->exec && (size_t)e.out * (size_t)s->model->vocab * sizeof(float) <= KEEP_BYTES;
    if (keep) *place = e;
    pthread_mutex_unlock(&s->lock);
    if (!keep) drop_executor(&e);
}
