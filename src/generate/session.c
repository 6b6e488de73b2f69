/* Sessions: opening, positions, forward steps and release. */
#include "base/checked.h"
#include "base/error.h"
#include "base/options.h"
#include "device/device.h"
#include "generate/logits_row.h"
#include "generate/session_internal.h"
#include "models/kv.h"

#include <stdlib.h>
#include <string.h>

/* All-rows logits are handed over in slices of about this size: a vocabulary of 262,144 times a chunk of 512 rows would
 * take half a gigabyte. An executor with an output larger than KEEP is not kept after the call that needed it. */
enum { SLICE_BYTES = 32 << 20, KEEP_BYTES = 4 << 20, FIRST_TOKENS = 256 };

/* ---- life ---- */

static const ht_session_options defaults = {.size = sizeof defaults, .chunk = HT_KV_CHUNK};

void ht_session_options_init(ht_session_options *options, size_t size) {
    ht_options_init(options, size, &defaults, sizeof defaults);
}

/* A step with others takes the token that was generated last along with the new one: two rows even in chunks of one. */
ht_status ht_session_new_cache(const ht_model *m, int32_t chunk, ht_cache **out, ht_error *err) {
    return ht_cache_new(m, chunk < 2 ? 2 : chunk, out, err);
}

ht_status ht_session_new(ht_model *m, const ht_session_options *options, ht_session **out, ht_error *err) {
    *out = NULL;
    ht_session_options o;
    ht_status status = ht_options_read(&o, options, &defaults, sizeof defaults, "ht_session_options", err);
    if (status) return status;
    if (o.chunk < 1)
        return ht_fail(err, HT_ERR_ARGUMENT, "a chunk of %lld rows, expected 1 or more", (long long)o.chunk);
    if (m->context > INT32_MAX)
        return ht_fail(err, HT_ERR_UNSUPPORTED, "a context of %lld positions, at most %d can be used",
                       (long long)m->context, INT32_MAX);
    const int32_t chunk = (int32_t)ht_min_i64(o.chunk, m->context);
    ht_session *s = calloc(1, sizeof *s);
    if (!s) return ht_fail_memory(err, sizeof *s, "a session");
    s->chunk = chunk;
    s->model = ht_model_retain(m);
    status = ht_session_new_cache(m, chunk, &s->cache, err);
    if (status)
        ht_session_free(s);
    else
        *out = s;
    return status;
}

ht_status ht_session_fork(const ht_session *s, ht_session **out, ht_error *err) {
    *out = NULL;
    ht_session *fork = calloc(1, sizeof *fork);
    if (!fork) return ht_fail_memory(err, sizeof *fork, "a session");
    fork->chunk = s->chunk;
    fork->model = ht_model_retain(s->model);
    ht_cache *cache = NULL;
    ht_status status = ht_cache_share(s->cache, &cache, err);
    if (!status) status = ht_session_adapters_copy(s->model, s->adapters, &fork->adapters, err);
    if (!status) status = ht_session_take(fork, s->token, s->n_tokens, cache, err);
    if (status) {
        ht_cache_free(cache);
        ht_session_free(fork);
        return status;
    }
    *out = fork;
    return HT_OK;
}

static void free_room(ht_batch_room *r) {
    free(r->id);
    free(r->pos);
    free(r->out_row);
    free(r->seq_start);
    free(r->kv_len);
    free(r->kv);
    free(r->lora);
    free(r->block_max);
    *r = (ht_batch_room){0};
}

static void drop_exec(ht_session_exec *e) {
    ht_exec_free(e->exec);
    *e = (ht_session_exec){0};
}

void ht_session_free(ht_session *s) {
    if (!s) return;
    for (int i = 0; i < 2; i++) drop_exec(&s->exec[i]);
    ht_session_adapters_free(s->adapters);
    ht_cache_free(s->cache);
    free(s->token);
    free_room(&s->room);
    ht_model_free(s->model);
    free(s);
}

void ht_session_reset(ht_session *s) {
    (void)ht_cache_truncate(s->cache, 0, NULL);
    s->n_tokens = 0;
}

ht_status ht_session_truncate(ht_session *s, int64_t n, ht_error *err) {
    if (n < 0 || n > s->n_tokens)
        return ht_fail(err, HT_ERR_ARGUMENT, "%lld tokens were to be kept of a session that holds %lld", (long long)n,
                       (long long)s->n_tokens);
    ht_status status = n < s->cache->length ? ht_cache_truncate(s->cache, n, err) : HT_OK;
    if (status == HT_OK) s->n_tokens = n;
    return status;
}

void ht_session_keep_prefix(ht_session *s, const int32_t *ids, size_t n, size_t *kept) {
    size_t common = 0;
    while (common + 1 < n && (int64_t)common < s->n_tokens && s->token[common] == ids[common]) common++;
    if (ht_session_truncate(s, (int64_t)common, NULL) != HT_OK) {
        ht_session_reset(s);
        common = 0;
    }
    *kept = common;
}

int64_t ht_session_length(const ht_session *s) { return s->n_tokens; }
const int32_t *ht_session_tokens(const ht_session *s) { return s->token; }
size_t ht_session_cache_bytes(const ht_session *s) { return ht_cache_held_bytes(s->cache); }

/* ---- tokens ---- */

ht_status ht_session_check_ids(const ht_session *s, const int32_t *ids, size_t n, ht_error *err) {
    int64_t left = s->model->context - s->n_tokens;
    if (left < 0 || n > (uint64_t)left) {
        if (s->n_tokens == 0)
            return ht_fail(err, HT_ERR_LIMIT, "prompt of %zu tokens does not fit the context of %lld", n,
                           (long long)s->model->context);
        return ht_fail(err, HT_ERR_LIMIT,
                       "prompt of %zu tokens does not fit the context of %lld, of which %lld positions are taken", n,
                       (long long)s->model->context, (long long)s->n_tokens);
    }
    for (size_t i = 0; i < n; i++)
        if (ids[i] < 0 || ids[i] >= s->model->vocab)
            return ht_fail(err, HT_ERR_ARGUMENT, "token id %d at place %zu is outside the vocabulary of %d",
                           (int)ids[i], i, (int)s->model->vocab);
    return HT_OK;
}

static ht_status make_token_room(ht_session *s, int64_t n, ht_error *err) {
    if (n <= s->token_capacity) return HT_OK;
    int64_t capacity = ht_max_i64(ht_max_i64(n, FIRST_TOKENS), 2 * s->token_capacity);
    int32_t *token = realloc(s->token, (size_t)capacity * sizeof *token);
    if (!token) return ht_fail_memory(err, (size_t)capacity * sizeof *token, "a session's tokens");
    s->token = token;
    s->token_capacity = capacity;
    return HT_OK;
}

ht_status ht_session_take(ht_session *s, const int32_t *tokens, int64_t n, ht_cache *cache, ht_error *err) {
    ht_status status = make_token_room(s, n, err);
    if (status) return status;
    if (n) memcpy(s->token, tokens, (size_t)n * sizeof *tokens);
    s->n_tokens = n;
    ht_cache_free(s->cache);
    s->cache = cache;
    return HT_OK;
}

ht_status ht_session_push(ht_session *s, int32_t id, ht_error *err) {
    ht_status status = make_token_room(s, s->n_tokens + 1, err);
    if (status == HT_OK) s->token[s->n_tokens++] = id;
    return status;
}

/* ---- what a step needs ---- */

static bool grow(void *array, size_t n, size_t size) {
    void *bigger = realloc(*(void **)array, n * size);
    if (bigger) *(void **)array = bigger;
    return bigger != NULL;
}

static ht_status make_batch_room(ht_batch_room *r, int32_t rows, int32_t sequences, ht_error *err) {
    if (rows > r->rows) {
        size_t n = (size_t)rows;
        if (!grow(&r->id, n, sizeof *r->id) || !grow(&r->pos, n, sizeof *r->pos) ||
            !grow(&r->out_row, n, sizeof *r->out_row))
            return ht_fail_memory(err, 3 * n * sizeof *r->id, "a step's batch");
        r->rows = rows;
    }
    if (sequences > r->sequences) {
        size_t n = (size_t)sequences;
        if (!grow(&r->seq_start, n + 1, sizeof *r->seq_start) || !grow(&r->kv_len, n, sizeof *r->kv_len) ||
            !grow(&r->kv, n, sizeof *r->kv) || !grow(&r->lora, n, sizeof *r->lora))
            return ht_fail_memory(err, n * (sizeof *r->kv + sizeof *r->lora + 2 * sizeof *r->kv_len), "a step's batch");
        r->sequences = sequences;
    }
    return HT_OK;
}

/* An executor for that many rows and outputs, of the plan with adapters or the one without. Rows grow by doubling, so that a
 * short prompt gets a small arena and a long conversation few new ones. */
static ht_status make_exec(ht_session *s, bool adapters, int32_t rows, int32_t out, ht_error *err) {
    ht_session_exec *e = &s->exec[adapters];
    if (e->exec && rows <= e->rows && out <= e->out) return HT_OK;
    int32_t room = 16;
    while (room < rows) room *= 2;
    if (room > s->chunk) room = rows > s->chunk ? rows : s->chunk;
    if (room < e->rows) room = e->rows;
    if (out < e->out) out = e->out;
    drop_exec(e);
    const ht_plan *plan = s->model->plan;
    ht_status status = adapters ? ht_model_adapter_plan(s->model, &plan, err) : HT_OK;
    if (status == HT_OK) status = ht_exec_new(plan, room, out, &e->exec, err);
    if (status == HT_OK) {
        e->rows = room;
        e->out = out;
    }
    return status;
}

/* Adds the rows of tokens cache->length .. end - 1 of a session to the batch; those at `first_out` and after it are
 * asked for. */
static void add_sequence(ht_batch_room *r, ht_batch *b, ht_session *s, int64_t end, int64_t first_out) {
    for (int64_t pos = s->cache->length; pos < end; pos++) {
        if (pos >= first_out) r->out_row[b->n_out++] = b->n_tok;
        r->id[b->n_tok] = s->token[pos];
        r->pos[b->n_tok++] = (int32_t)pos;
    }
    r->kv_len[b->n_seq] = (int32_t)end;
    r->lora[b->n_seq] = s->adapters ? &s->adapters->set : NULL;
    r->kv[b->n_seq++] = s->cache;
    r->seq_start[b->n_seq] = b->n_tok;
}

static ht_batch begin_batch(ht_batch_room *r) {
    r->seq_start[0] = 0;
    return (ht_batch){
        .id = r->id, .pos = r->pos, .seq_start = r->seq_start, .kv_len = r->kv_len, .out_row = r->out_row};
}

/* Runs tokens cache->length .. end - 1 in one step. The length moves when all of it worked. */
static ht_status step(ht_session *s, int64_t end, int64_t first_out, int32_t top_k, const float **logits,
                      ht_error *err) {
    int32_t rows = (int32_t)(end - s->cache->length);
    int64_t out = ht_max_i64(0, end - ht_max_i64(first_out, s->cache->length));
    ht_status status = make_batch_room(&s->room, rows, 1, err);
    const bool adapters = s->adapters != NULL;
    if (status == HT_OK) status = make_exec(s, adapters, rows, (int32_t)ht_max_i64(out, 1), err);
    if (status == HT_OK) status = ht_cache_reserve(s->cache, end, err);
    if (status) return status;
    ht_batch b = begin_batch(&s->room);
    add_sequence(&s->room, &b, s, end, first_out);
    const ht_step at = {.batch = &b, .kv = s->room.kv, .lora = adapters ? s->room.lora : NULL, .top_k = top_k};
    status = ht_exec_run(s->exec[adapters].exec, &at, logits, err);
    if (status == HT_OK) s->cache->length = end;
    return status;
}

/* ---- running tokens ---- */

typedef struct rows_wanted {
    bool all;      /* else the last one alone */
    int32_t top_k; /* of a row, the so many highest; 0: all of it */
    const ht_cancel *cancel;
    ht_logits_fn *fn;
    void *user;
    const float *last; /* after the last step, when fn is NULL */
} rows_wanted;

static ht_status hand_over(ht_session *s, rows_wanted *w, const float *logits, int64_t first, int64_t n,
                           ht_error *err) {
    w->last = logits;
    if (!w->fn || n == 0 || w->fn(logits, first, n, s->model->vocab, w->user)) return HT_OK;
    return ht_fail(err, HT_ERR_CANCELLED, "stopped by the callback after %lld tokens", (long long)s->cache->length);
}

/* Runs what has not been computed, up to `total` tokens, `chunk` rows at a time. */
static ht_status run_chunks(ht_session *s, int64_t total, int64_t first_out, int32_t chunk, rows_wanted *w,
                            ht_error *err) {
    ht_status status = HT_OK;
    while (status == HT_OK && s->cache->length < total) {
        if (ht_cancel_requested(w->cancel))
            return ht_fail(err, HT_ERR_CANCELLED, "cancelled after %lld tokens", (long long)s->cache->length);
        int64_t begin = s->cache->length, end = ht_min_i64(total, begin + chunk);
        const float *logits;
        status = step(s, end, first_out, w->top_k, &logits, err);
        if (status) break;
        s->n_tokens = ht_max_i64(s->n_tokens, end);
        int64_t first = ht_max_i64(begin, first_out);
        status = hand_over(s, w, logits, first, ht_max_i64(0, end - first), err);
    }
    return status;
}

static ht_status run(ht_session *s, const int32_t *ids, size_t n, rows_wanted *w, ht_error *err) {
    int64_t total = s->n_tokens + (int64_t)n, first_out = w->all ? s->n_tokens : total - 1;
    int32_t chunk = s->chunk;
    if (w->all) {
        size_t row = (size_t)s->model->vocab * sizeof(float), slice = row < SLICE_BYTES ? SLICE_BYTES / row : 1;
        if (slice < (size_t)chunk) chunk = (int32_t)slice;
    }
    ht_status status = make_token_room(s, total, err);
    if (status) return status;
    if (n) memcpy(s->token + s->n_tokens, ids, n * sizeof *ids);
    return run_chunks(s, total, first_out, chunk, w, err);
}

ht_status ht_session_run(ht_session *s, const int32_t *ids, size_t n, int32_t top_k, const ht_cancel *cancel,
                         const float **logits, ht_error *err) {
    rows_wanted w = {.top_k = top_k, .cancel = cancel};
    ht_status status = run(s, ids, n, &w, err);
    *logits = w.last;
    return status;
}

static const ht_forward_options forward_defaults = {.size = sizeof forward_defaults};

void ht_forward_options_init(ht_forward_options *options, size_t size) {
    ht_options_init(options, size, &forward_defaults, sizeof forward_defaults);
}

static ht_status read_forward_options(ht_forward_options *o, const ht_forward_options *options, ht_error *err) {
    return ht_options_read(o, options, &forward_defaults, sizeof forward_defaults, "ht_forward_options", err);
}

ht_status ht_session_forward(ht_session *s, const int32_t *ids, size_t n, const ht_forward_options *options,
                             ht_logits_fn *fn, void *user, ht_error *err) {
    ht_forward_options o;
    ht_status status = read_forward_options(&o, options, err);
    if (!status) status = ht_session_check_ids(s, ids, n, err);
    if (status || n == 0) return status;
    rows_wanted w = {.all = o.all_rows, .cancel = o.cancel, .fn = fn, .user = user};
    ht_admission_slot slot;
    status = ht_admission_enter(s->model->slots, o.cancel, &slot, err);
    if (status) return status;
    status = run(s, ids, n, &w, err);
    ht_admission_leave(&slot);
    ht_session_exec *e = &s->exec[s->adapters != NULL];
    if ((size_t)e->out * (size_t)s->model->vocab * sizeof(float) > KEEP_BYTES) drop_exec(e);
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

/* The logits go to `logits`, or somewhere in the executor: *output. The sessions' tokens have not changed yet. */
static ht_status step_together(ht_session *const *sessions, const int32_t *ids, int n, float *logits,
                               const float **output, ht_error *err) {
    ht_status status = HT_OK;
    ht_session *host = sessions[0]; /* lends its executor */
    int64_t rows = 0;
    bool adapters = false;
    for (int i = 0; i < n && status == HT_OK; i++) {
        ht_session *s = sessions[i];
        status = make_token_room(s, s->n_tokens + 1, err);
        if (status == HT_OK) status = ht_cache_reserve(s->cache, s->n_tokens + 1, err);
        if (status == HT_OK) s->token[s->n_tokens] = ids[i];
        rows += s->n_tokens + 1 - s->cache->length;
        adapters = adapters || s->adapters;
    }
    if (status == HT_OK) status = make_batch_room(&host->room, (int32_t)rows, n, err);
    if (status == HT_OK) status = make_exec(host, adapters, (int32_t)rows, n, err);
    if (status) return status;
    ht_batch b = begin_batch(&host->room);
    for (int i = 0; i < n; i++)
        add_sequence(&host->room, &b, sessions[i], sessions[i]->n_tokens + 1, sessions[i]->n_tokens);
    const ht_step at = {.batch = &b, .kv = host->room.kv, .lora = adapters ? host->room.lora : NULL, .output = logits};
    return ht_exec_run(host->exec[adapters].exec, &at, output, err);
}

/* ---- the likeliest tokens of a step ---- */

typedef struct choice {
    const ht_model *m;
    const float *logits; /* [n][vocab] */
    float *block_max;    /* [n][blocks] */
    int32_t *id;         /* -1: a logit is not finite */
} choice;

static ht_logits_row row_of(const choice *c, int64_t i) {
    return (ht_logits_row){.ops = c->m->device->row_ops,
                           .x = c->logits + i * c->m->vocab,
                           .n = c->m->vocab,
                           .block_max = c->block_max + i * ht_row_blocks(c->m->vocab)};
}

static void choose_rows(void *arg, int64_t begin, int64_t end, int worker) {
    const choice *c = arg;
    (void)worker;
    for (int64_t i = begin; i < end; i++) {
        ht_logits_row row = row_of(c, i);
        c->id[i] = ht_row_scan(&row) ? ht_row_argmax(&row) : -1;
    }
}

static ht_status choose_together(ht_session *host, const float *logits, int n, int32_t *id, ht_error *err) {
    ht_batch_room *r = &host->room;
    size_t blocks = (size_t)n * (size_t)ht_row_blocks(host->model->vocab);
    if (blocks > r->n_block_max) {
        if (!grow(&r->block_max, blocks, sizeof *r->block_max))
            return ht_fail_memory(err, blocks * sizeof *r->block_max, "choosing tokens");
        r->n_block_max = blocks;
    }
    choice c = {host->model, logits, r->block_max, id};
    ht_device *d = host->model->device;
    d->run_on_host(d, n, 1, choose_rows, &c);
    for (int i = 0; i < n; i++)
        if (id[i] < 0) {
            ht_logits_row row = row_of(&c, i);
            return ht_fail_in(err, ht_row_fail(&row, NULL, err), "session %d of the step", i);
        }
    return HT_OK;
}

/* Logits, or with `next` the tokens they say. */
static ht_status run_together(ht_session *const *sessions, const int32_t *ids, int n, const ht_forward_options *options,
                              float *logits, int32_t *next, ht_error *err) {
    const float *output;
    ht_forward_options o;
    ht_status status = read_forward_options(&o, options, err);
    if (!status) status = check_together(sessions, ids, n, err);
    if (!status && ht_cancel_requested(o.cancel)) status = ht_fail(err, HT_ERR_CANCELLED, "cancelled before the step");
    ht_admission_slot slot;
    if (!status) status = ht_admission_enter(sessions[0]->model->slots, o.cancel, &slot, err);
    if (status) return status;
    status = step_together(sessions, ids, n, logits, &output, err);
    if (!status && next) status = choose_together(sessions[0], output, n, next, err);
    for (int i = 0; i < n && !status; i++) sessions[i]->cache->length = ++sessions[i]->n_tokens;
    ht_admission_leave(&slot);
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
