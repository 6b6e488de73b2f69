/* Sessions: opening, positions, what they compute, and release. */
#include "base/checked.h"
#include "base/error.h"
#include "base/grow.h"
#include "base/options.h"
#include "base/plural.h"
#include "device/device.h"
#include "generate/logits_row.h"
#include "generate/session_internal.h"
#include "models/weights.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* All-rows logits are delivered in slices of about this size: 512 rows of a vocabulary of 2^18 are 512 MiB. */
enum { SLICE_BYTES = 32 << 20, FIRST_TOKENS = 256 };

/* ---- life ---- */

static const ht_session_options defaults = {.size = sizeof defaults};

void ht_session_options_init(ht_session_options *options, size_t size) {
    ht_options_init(options, size, &defaults, sizeof defaults);
}

/* A step with others takes the token that was generated last along with the new one: two rows even in chunks of one. */
ht_status ht_session_new_cache(const ht_model *m, int32_t chunk, ht_cache **out, ht_error *err) {
    return ht_cache_new(m, chunk < 2 ? 2 : chunk, out, err);
}

/* Without a cache; NULL when there is no memory. */
static ht_session *new_session(ht_model *m, int32_t chunk, ht_error *err) {
    ht_session *s = calloc(1, sizeof *s);
    if (!s) {
        ht_fail_memory(err, sizeof *s, "a session");
        return NULL;
    }
    s->chunk = chunk;
    if (ht_scheduler_open(m, err)) {
        free(s);
        return NULL;
    }
    s->model = ht_model_retain(m);
    return s;
}

ht_status ht_session_new(ht_model *m, const ht_session_options *options, ht_session **out, ht_error *err) {
    *out = NULL;
    ht_session_options o;
    ht_status status = ht_options_read(&o, options, &defaults, sizeof defaults, "ht_session_options", err);
    if (!status) status = ht_model_need_decoder(m, err);
    if (status) return status;
    if (o.chunk < 0)
        return ht_fail(err, HT_ERR_ARGUMENT, "a chunk of %lld rows, expected 1 or more, or 0 for the default",
                       (long long)o.chunk);
    if (m->context > INT32_MAX)
        return ht_fail(err, HT_ERR_UNSUPPORTED, "a context of %lld position%s, at most %d can be used",
                       (long long)m->context, ht_plural(m->context), INT32_MAX);
    const int32_t chunk = (int32_t)ht_min_i64(o.chunk ? o.chunk : m->step_rows, m->context);
    ht_session *s = new_session(m, chunk, err);
    if (!s) return HT_ERR_MEMORY;
    status = ht_session_new_cache(m, chunk, &s->cache, err);
    if (status)
        ht_session_free(s);
    else
        *out = s;
    return status;
}

ht_status ht_session_fork(const ht_session *s, ht_session **out, ht_error *err) {
    *out = NULL;
    ht_session *fork = new_session(s->model, s->chunk, err);
    if (!fork) return HT_ERR_MEMORY;
    ht_cache *cache = NULL;
    ht_status status = ht_cache_share(s->cache, &cache, err);
    if (s->adapters) {
        fork->adapters = s->adapters;
        atomic_fetch_add(&s->adapters->refs, 1);
    }
    if (!status) status = ht_session_take(fork, s->token, s->n_tokens, cache, err);
    if (status) {
        ht_cache_free(cache);
        ht_session_free(fork);
        return status;
    }
    *out = fork;
    return HT_OK;
}

void ht_session_free(ht_session *s) {
    if (!s) return;
    ht_session_adapters_free(s->adapters);
    ht_cache_free(s->cache);
    free(s->token);
    ht_session_free(s->draft);
    ht_masks_ahead_free(s->masks_ahead);
    free(s->block_max);
    free(s->together);
    ht_scheduler_close(s->model->scheduler);
    ht_model_free(s->model);
    free(s);
}

void ht_session_reset(ht_session *s) {
    ht_cache_truncate(s->cache, 0);
    s->n_tokens = s->announced = 0;
}

void ht_session_announce(ht_session *s, int64_t n) { s->announced = n; }

ht_status ht_session_truncate(ht_session *s, int64_t n, ht_error *err) {
    if (n < 0 || n > s->n_tokens)
        return ht_fail(err, HT_ERR_ARGUMENT, "keeping %lld token%s of a session that holds %lld", (long long)n,
                       ht_plural(n), (long long)s->n_tokens);
    if (n < s->cache->length) ht_cache_truncate(s->cache, n);
    s->n_tokens = n;
    return HT_OK;
}

void ht_session_keep_prefix(ht_session *s, const int32_t *ids, size_t n, size_t *kept) {
    int64_t common = 0;
    while (common + 1 < (int64_t)n && common < s->n_tokens && s->token[common] == ids[common]) common++;
    if (!ht_cache_is_for(s->cache, (int64_t)n)) common = 0;
    if (common < s->cache->length) common = ht_cache_kept(s->cache, common);
    (void)ht_session_truncate(s, common, NULL);
    *kept = (size_t)common;
}

int64_t ht_session_length(const ht_session *s) { return s->n_tokens; }
const int32_t *ht_session_tokens(const ht_session *s) { return s->token; }
size_t ht_session_cache_bytes(const ht_session *s) { return ht_cache_held_bytes(s->cache); }

/* ---- adapters: resolved to the model's projections once, when they are set ---- */

void ht_session_adapters_free(ht_session_adapters *a) {
    if (!a || atomic_fetch_sub(&a->refs, 1) > 1) return;
    for (int i = 0; i < a->n; i++) ht_adapter_free(a->adapter[i]);
    free(a->adapter);
    free(a->scale);
    free(a->use);
    free(a);
}

static ht_status new_adapters(int64_t n_projections, int n, ht_session_adapters **out, ht_error *err) {
    size_t uses;
    ht_session_adapters *a = calloc(1, sizeof *a);
    if (a) a->refs = 1;
    if (a && ht_mul_size((size_t)n_projections, (size_t)n, &uses)) {
        a->adapter = calloc((size_t)n, sizeof *a->adapter);
        a->scale = calloc((size_t)n, sizeof *a->scale);
        a->use = calloc(uses + 1, sizeof *a->use);
    }
    *out = a;
    if (a && a->adapter && a->scale && a->use) return HT_OK;
    ht_session_adapters_free(a);
    *out = NULL;
    return ht_fail_memory(err, sizeof *a, "a session's adapters");
}

static ht_status add_adapter(const ht_model *m, ht_adapter *adapter, float scale, ht_session_adapters *to, int n,
                             ht_error *err) {
    const ht_lora_pair *pair;
    ht_status status = ht_adapter_check(adapter, m, err);
    if (!status) status = ht_adapter_pairs(adapter, m, &pair, err);
    if (status) return status;
    for (int64_t i = 0; i < adapter->n; i++) {
        const float factor = adapter->lora[i].scale * scale;
        if (!isfinite(factor))
            return ht_fail(err, HT_ERR_ARGUMENT, "adapter %d times %g: its scale of %g becomes %g", to->n,
                           (double)scale, (double)adapter->lora[i].scale, (double)factor);
        const int64_t projection = ht_weights_find_projection(m->weights, adapter->lora[i].slot);
        to->use[projection * n + to->n] = (ht_lora_use){&pair[i], factor};
    }
    to->scale[to->n] = scale;
    to->adapter[to->n++] = ht_adapter_retain(adapter);
    return HT_OK;
}

ht_status ht_session_adapters_new(ht_model *m, ht_adapter *const *adapters, const float *scales, int n,
                                  ht_session_adapters **out, ht_error *err) {
    int64_t n_projections;
    const ht_plan *plan;
    ht_weights_projections(m->weights, &n_projections);
    ht_status status = new_adapters(n_projections, n, out, err);
    for (int i = 0; i < n && !status; i++) {
        const float scale = scales ? scales[i] : 1;
        if (!adapters[i])
            status = ht_fail(err, HT_ERR_ARGUMENT, "adapter %d of %d is NULL", i, n);
        else if (!isfinite(scale))
            status = ht_fail(err, HT_ERR_ARGUMENT, "adapter %d of %d has a scale of %g, expected a finite number", i, n,
                             (double)scale);
        else
            status = add_adapter(m, adapters[i], scale, *out, n, err);
    }
    if (!status) status = ht_model_plan(m, HT_PLAN_ADAPTERS, &plan, err);
    if (status) {
        ht_session_adapters_free(*out);
        *out = NULL;
        return status;
    }
    (*out)->set = (ht_lora_set){n, (*out)->use};
    return HT_OK;
}

ht_status ht_session_set_adapters(ht_session *s, ht_adapter *const *adapters, const float *scales, int n,
                                  ht_error *err) {
    if (n < 0) return ht_fail(err, HT_ERR_ARGUMENT, "%d adapters for a session, expected 0 or more", n);
    if (s->n_tokens > 0)
        return ht_fail(err, HT_ERR_ARGUMENT,
                       "the session holds %lld token%s, whose keys and values were computed with the adapters it has: "
                       "reset it before setting others",
                       (long long)s->n_tokens, ht_plural(s->n_tokens));
    ht_session_adapters *made = NULL;
    const ht_status status = n ? ht_session_adapters_new(s->model, adapters, scales, n, &made, err) : HT_OK;
    if (status) return status;
    ht_session_adapters_free(s->adapters);
    s->adapters = made;
    return HT_OK;
}

/* ---- tokens ---- */

ht_status ht_session_check_ids(const ht_session *s, const int32_t *ids, size_t n, ht_error *err) {
    int64_t left = s->model->context - s->n_tokens;
    if (left < 0 || n > (uint64_t)left) {
        if (s->n_tokens == 0)
            return ht_fail(err, HT_ERR_LIMIT, "prompt of %zu token%s does not fit the context of %lld", n, ht_plural(n),
                           (long long)s->model->context);
        return ht_fail(err, HT_ERR_LIMIT,
                       "prompt of %zu token%s does not fit the context of %lld, with %lld position%s taken", n,
                       ht_plural(n), (long long)s->model->context, (long long)s->n_tokens, ht_plural(s->n_tokens));
    }
    return ht_model_check_ids(s->model, ids, n, err);
}

ht_status ht_session_reserve_tokens(ht_session *s, int64_t n, ht_error *err) {
    return HT_GROW(s->token, s->token_capacity, ht_max_i64(n, FIRST_TOKENS))
               ? HT_OK
               : ht_fail_memory(err, (size_t)n * sizeof *s->token, "a session's tokens");
}

ht_status ht_session_take(ht_session *s, const int32_t *tokens, int64_t n, ht_cache *cache, ht_error *err) {
    ht_status status = ht_session_reserve_tokens(s, n, err);
    if (status) return status;
    if (n) memcpy(s->token, tokens, (size_t)n * sizeof *tokens);
    s->n_tokens = n;
    ht_cache_free(s->cache);
    s->cache = cache;
    return HT_OK;
}

ht_status ht_session_push(ht_session *s, int32_t id, ht_error *err) {
    ht_status status = ht_session_reserve_tokens(s, s->n_tokens + 1, err);
    if (status == HT_OK) s->token[s->n_tokens++] = id;
    return status;
}

/* ---- running tokens ---- */

int64_t ht_session_step_end(ht_session *s, int64_t end) {
    const int64_t total = ht_max_i64(end, s->announced);
    ht_cache_begin(s->cache, total);
    return ht_cache_plan(s->cache, s->model, s->token, end, total, ht_min_i64(end, s->cache->length + s->chunk));
}

ht_status ht_session_prepare(ht_session *s, int64_t end, int64_t first_out, ht_error *err) {
    end = ht_session_step_end(s, end);
    s->job = (ht_step_job){.cache = s->cache,
                           .token = s->token,
                           .end = end,
                           .first_out = first_out,
                           .most_rows = s->chunk,
                           .lora = s->adapters ? &s->adapters->set : NULL,
                           .generates = s->job.generates,
                           .awaited_in = s->job.awaited_in};
    return ht_cache_reserve(s->cache, end, err);
}

static ht_status end_job(ht_step_job *job, ht_error *err) {
    if (job->status && err) *err = job->err;
    return job->status;
}

ht_status ht_session_run(ht_session *s, ht_error *err) {
    ht_scheduler_run(s->model->scheduler, (ht_step_job *[]){&s->job}, 1);
    return end_job(&s->job, err);
}

static const ht_forward_options forward_defaults = {.size = sizeof forward_defaults};

void ht_forward_options_init(ht_forward_options *options, size_t size) {
    ht_options_init(options, size, &forward_defaults, sizeof forward_defaults);
}

static ht_status read_forward_options(ht_forward_options *o, const ht_forward_options *options, ht_error *err) {
    return ht_options_read(o, options, &forward_defaults, sizeof forward_defaults, "ht_forward_options", err);
}

/* One chunk of the tokens below `total`. The user's function reads the executor's own memory, and may use the model. */
static ht_status run_chunk(ht_session *s, int64_t total, int64_t first_out, int32_t rows, const ht_cancel *cancel,
                           ht_logits_fn *fn, void *user, ht_error *err) {
    ht_status status = ht_session_prepare(s, total, first_out, err);
    if (status) return status;
    s->job.end = ht_min_i64(s->job.end, s->cache->length + rows);
    s->job.cancel = cancel;
    s->job.alone = s->job.end > first_out;
    status = ht_session_run(s, err);
    if (status) return status;
    s->n_tokens = ht_max_i64(s->n_tokens, s->cache->length);
    const bool goes_on = !s->job.output || fn(s->job.output, s->job.first_row, s->job.n_rows, s->model->vocab, user);
    ht_scheduler_return_output(s->model->scheduler, &s->job);
    if (goes_on) return HT_OK;
    return ht_fail(err, HT_ERR_CANCELLED, "stopped by the callback after %lld token%s", (long long)s->cache->length,
                   ht_plural(s->cache->length));
}

ht_status ht_session_forward(ht_session *s, const int32_t *ids, size_t n, const ht_forward_options *options,
                             ht_logits_fn *fn, void *user, ht_error *err) {
    ht_forward_options o;
    ht_status status = read_forward_options(&o, options, err);
    if (!status) status = ht_session_check_ids(s, ids, n, err);
    if (status || n == 0) return status;
    const int64_t total = s->n_tokens + (int64_t)n, first_out = !fn ? total : o.all_rows ? s->n_tokens : total - 1;
    int32_t rows = s->chunk;
    if (o.all_rows && fn) {
        size_t row = (size_t)s->model->vocab * sizeof(float), slice = row < SLICE_BYTES ? SLICE_BYTES / row : 1;
        if (slice < (size_t)rows) rows = (int32_t)slice;
    }
    status = ht_session_reserve_tokens(s, total, err);
    if (status) return status;
    memcpy(s->token + s->n_tokens, ids, n * sizeof *ids);
    while (!status && s->cache->length < total) status = run_chunk(s, total, first_out, rows, o.cancel, fn, user, err);
    return status;
}

/* ---- several sessions in one step ---- */

static ht_status check_together(ht_session *const *sessions, const int32_t *ids, int n, ht_error *err) {
    if (n < 1) return ht_fail(err, HT_ERR_ARGUMENT, "a step of %d sessions, expected 1 or more", n);
    for (int i = 0; i < n; i++) {
        if (sessions[i]->model != sessions[0]->model)
            return ht_fail(err, HT_ERR_ARGUMENT, "session %d of the step belongs to another model than session 0", i);
        for (int j = 0; j < i; j++)
            if (sessions[i] == sessions[j])
                return ht_fail(err, HT_ERR_ARGUMENT, "sessions %d and %d of the step are the same", j, i);
        ht_status status = ht_session_check_ids(sessions[i], &ids[i], 1, err);
        if (status) return ht_fail_in(err, status, "session %d of the step", i);
    }
    return HT_OK;
}

/* Sets s->next to the token with the highest logit. */
static ht_status choose(void *user, const ht_logits_rows *logits, ht_error *err) {
    ht_session *s = user;
    ht_logits_row row = {
        .ops = s->model->device->row_ops, .x = logits->x, .n = (int32_t)logits->n, .block_max = s->block_max};
    if (!ht_row_scan(&row)) return ht_row_fail(&row, logits->id, err);
    const int32_t highest = ht_row_argmax(&row);
    s->next = logits->id ? logits->id[highest] : highest;
    return HT_OK;
}

static ht_status prepare_together(ht_session *s, int32_t id, float *logits, const ht_cancel *cancel, ht_error *err) {
    const size_t blocks = (size_t)ht_row_blocks(s->model->vocab);
    if (!logits && !s->block_max && !(s->block_max = malloc(blocks * sizeof *s->block_max)))
        return ht_fail_memory(err, blocks * sizeof *s->block_max, "choosing tokens");
    ht_status status = ht_session_reserve_tokens(s, s->n_tokens + 1, err);
    if (status) return status;
    s->token[s->n_tokens] = id;
    const int64_t end = s->n_tokens + 1;
    status = ht_session_prepare(s, end, s->n_tokens, err);
    /* A step of several sequences may compute only some rows of a prompt, and thus of tokens that are all pending. */
    while (!status && s->cache->length + 2 < end) {
        s->job.end = ht_min_i64(s->job.end, s->n_tokens);
        s->job.cancel = cancel;
        status = ht_session_run(s, err);
        if (!status) status = ht_session_prepare(s, end, s->n_tokens, err);
    }
    if (!status && s->job.end < end) status = ht_cache_reserve(s->cache, end, err);
    s->job.end = end;
    s->job.most_rows = ht_max_i32(s->chunk, (int32_t)(end - s->cache->length));
    s->job.logits = logits;
    s->job.consume = logits ? NULL : choose;
    s->job.top_k = logits ? 0 : 1;
    s->job.user = s;
    s->job.cancel = cancel;
    return status;
}

/* Runs all jobs. The first error is the step's, and no session then has its token. */
static ht_status run_jobs(ht_session *const *sessions, int n, ht_error *err) {
    ht_session *host = sessions[0];
    ht_status status = HT_OK;
    for (int i = 0; i < n; i++) host->together[i] = &sessions[i]->job;
    ht_scheduler_run(host->model->scheduler, host->together, n);
    for (int i = 0; i < n; i++) {
        const ht_status own = end_job(&sessions[i]->job, status ? NULL : err);
        if (own && !status) status = ht_fail_in(err, own, "session %d of the step", i);
    }
    for (int i = 0; i < n; i++)
        if (!status)
            sessions[i]->n_tokens++;
        else if (sessions[i]->cache->length > sessions[i]->n_tokens)
            ht_cache_truncate(sessions[i]->cache, sessions[i]->n_tokens);
    return status;
}

/* Returns logits, or with `next` the most likely tokens. */
static ht_status run_together(ht_session *const *sessions, const int32_t *ids, int n, const ht_forward_options *options,
                              float *logits, int32_t *next, ht_error *err) {
    ht_forward_options o;
    ht_status status = read_forward_options(&o, options, err);
    if (!status) status = check_together(sessions, ids, n, err);
    if (status) return status;
    ht_session *host = sessions[0];
    if (!HT_GROW(host->together, host->together_capacity, n))
        return ht_fail_memory(err, (size_t)n * sizeof *host->together, "a step of several sessions");
    for (int i = 0; i < n && !status; i++)
        status = prepare_together(sessions[i], ids[i], logits ? logits + (int64_t)i * host->model->vocab : NULL,
                                  o.cancel, err);
    if (!status) status = run_jobs(sessions, n, err);
    for (int i = 0; next && !status && i < n; i++) next[i] = sessions[i]->next;
    return status;
}

ht_status ht_session_forward_together(ht_session *const *sessions, const int32_t *ids, int n,
                                      const ht_forward_options *options, float *logits, ht_error *err) {
    return run_together(sessions, ids, n, options, logits, NULL, err);
}

ht_status ht_session_decode_together(ht_session *const *sessions, const int32_t *ids, int n,
                                     const ht_forward_options *options, int32_t *next, ht_error *err) {
    return run_together(sessions, ids, n, options, NULL, next, err);
}
