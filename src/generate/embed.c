/* Embeddings of texts (hearth/embed.h): some texts at a time, as many as fill a step, each with a KV cache while it is under way.
 * Hidden states are summed as steps hand them out, in double and in the order of positions, so that neither the chunks of a
 * text nor its company show in the result. */
#include "base/checked.h"
#include "base/error.h"
#include "base/options.h"
#include "device/device.h"
#include "generate/session_internal.h"
#include "models/config.h"
#include "models/kv.h"

#include <hearth/embed.h>

#include <math.h>
#include <stdlib.h>
#include <string.h>

static const ht_embed_options defaults = {.size = sizeof defaults, .normalize = true};

void ht_embed_options_init(ht_embed_options *options, size_t size) {
    ht_options_init(options, size, &defaults, sizeof defaults);
}

/* What is embedded: texts, or ids. */
typedef struct sources {
    const char *const *text;
    const int32_t *const *ids;
    const size_t *n_ids;
} sources;

/* The public struct, with the memory of what it lends. */
typedef struct result {
    ht_embeddings public;
    ht_embedding *embedding; /* [n] */
    char **message;          /* [n] of those that failed */
    float *values;           /* [n, hidden] */
} result;

/* A text under way. */
typedef struct slot {
    ht_step_job job;
    struct embedder *e;
    size_t index;    /* of the text */
    int32_t *ids;    /* [n], owned */
    int64_t n;       /* 0: the slot is free */
    ht_cache *cache; /* owned; NULL: not made yet */
    double *sum;     /* [hidden] */
} slot;

typedef struct embedder {
    ht_model *model;
    ht_embed_options o;
    sources from;
    size_t n, next, done;  /* texts; the first that has not begun; those that have ended */
    int32_t hidden, chunk; /* rows of a step at most */
    ht_session_adapters *adapters;
    int32_t n_slots;
    slot *slot;         /* [n_slots] */
    ht_step_job **jobs; /* [n_slots] */
    result *result;
} embedder;

/* ---- the result ---- */

void ht_embeddings_free(ht_embeddings *e) {
    result *r = (result *)e; /* its first member */
    if (!r) return;
    for (size_t i = 0; r->message && i < r->public.n; i++) free(r->message[i]);
    free(r->message);
    free(r->embedding);
    free(r->values);
    free(r);
}

static ht_status make_result(embedder *e, ht_error *err) {
    const size_t row = (size_t)e->hidden * sizeof(float);
    if (e->n > (SIZE_MAX / 2) / (row + sizeof(ht_embedding)))
        return ht_fail(err, HT_ERR_LIMIT, "%zu vectors of %d values are too many", e->n, (int)e->hidden);
    result *r = e->result = calloc(1, sizeof *r);
    if (!r) return ht_fail_memory(err, sizeof *r, "embeddings");
    r->public.n = e->n;
    r->public.hidden = e->hidden;
    r->public.embeddings = r->embedding = calloc(e->n + 1, sizeof *r->embedding);
    r->message = calloc(e->n + 1, sizeof *r->message);
    r->public.values = r->values = calloc(e->n * (size_t)e->hidden + 1, sizeof *r->values);
    if (!r->embedding || !r->message || !r->values) return ht_fail_memory(err, e->n * row, "embeddings");
    return HT_OK;
}

static void fail_text(embedder *e, size_t i, const ht_error *why) {
    static const char no_memory[] = "out of memory";
    result *r = e->result;
    r->message[i] = strdup(why->message);
    r->embedding[i].status = why->status;
    r->embedding[i].message = r->message[i] ? r->message[i] : no_memory;
    r->public.n_failed++;
    e->done++;
}

/* Makes the vector of a text from its sum. */
static void finish_text(const slot *s) {
    embedder *e = s->e;
    result *r = e->result;
    float *out = r->values + s->index * (size_t)e->hidden;
    const double count = e->o.pooling == HT_POOLING_MEAN ? (double)s->n : 1;
    double squares = 0;
    for (int32_t d = 0; d < e->hidden; d++) squares += (s->sum[d] / count) * (s->sum[d] / count);
    const double length = e->o.normalize && squares > 0 ? sqrt(squares) : 1;
    r->embedding[s->index] = (ht_embedding){.message = "", .n_tokens = s->n, .values = out};
    if (!isfinite(squares)) {
        ht_error err = {0};
        ht_fail(&err, HT_ERR_INTERNAL, "the hidden states of the model are not finite");
        r->embedding[s->index].values = NULL;
        fail_text(e, s->index, &err);
        return;
    }
    for (int32_t d = 0; d < e->hidden; d++) out[d] = (float)(s->sum[d] / count / length);
    e->done++;
}

/* ---- a text ---- */

static ht_status check_ids(const embedder *e, const int32_t *ids, size_t n, ht_error *err) {
    const ht_model *m = e->model;
    const int64_t most = ht_min_i64(m->context, INT32_MAX);
    if (n == 0) return ht_fail(err, HT_ERR_ARGUMENT, "a text of no tokens has no hidden states");
    if (n > (size_t)most)
        return ht_fail(err, HT_ERR_LIMIT, "a text of %zu tokens does not fit the context of %lld", n, (long long)most);
    for (size_t i = 0; i < n; i++)
        if (ids[i] < 0 || ids[i] >= m->vocab)
            return ht_fail(err, HT_ERR_ARGUMENT, "token id %d at place %zu is outside the vocabulary of %d",
                           (int)ids[i], i, (int)m->vocab);
    return HT_OK;
}

/* The ids of text i; the caller frees *ids with ht_ids_free, or free. */
static ht_status ids_of(const embedder *e, size_t i, int32_t **ids, size_t *n, ht_error *err) {
    *ids = NULL;
    if (e->from.text) {
        const char *text = e->from.text[i];
        return ht_tokenizer_encode(e->model->tokenizer, text, strlen(text),
                                   HT_ENCODE_PARSE_SPECIAL | HT_ENCODE_ADD_SPECIAL, ids, n, err);
    }
    *n = e->from.n_ids[i];
    if (!*n) return HT_OK;
    *ids = malloc(*n * sizeof **ids);
    if (!*ids) return ht_fail_memory(err, *n * sizeof **ids, "the tokens of a text");
    memcpy(*ids, e->from.ids[i], *n * sizeof **ids);
    return HT_OK;
}

static ht_status begin_text(slot *s, size_t i, ht_error *err) {
    embedder *e = s->e;
    size_t n;
    ht_status status = ids_of(e, i, &s->ids, &n, err);
    if (!status) status = check_ids(e, s->ids, n, err);
    if (!status && !s->sum && !(s->sum = malloc((size_t)e->hidden * sizeof *s->sum)))
        status = ht_fail_memory(err, (size_t)e->hidden * sizeof *s->sum, "an embedding");
    if (!status && !s->cache) status = ht_session_new_cache(e->model, e->chunk, &s->cache, err);
    if (status) {
        ht_ids_free(s->ids);
        s->ids = NULL;
        return status;
    }
    memset(s->sum, 0, (size_t)e->hidden * sizeof *s->sum);
    s->index = i;
    s->n = (int64_t)n;
    return HT_OK;
}

static void end_text(slot *s) {
    ht_ids_free(s->ids);
    s->ids = NULL;
    s->n = 0;
    (void)ht_cache_truncate(s->cache, 0, NULL);
}

/* Hidden states of consecutive positions, on a thread of the step. */
static ht_status add_rows(void *user, const float *states, int64_t n_rows, ht_error *err) {
    slot *s = user;
    const int32_t hidden = s->e->hidden;
    (void)err;
    for (int64_t r = 0; r < n_rows; r++)
        for (int32_t d = 0; d < hidden; d++) s->sum[d] += (double)states[r * hidden + d];
    return HT_OK;
}

/* ---- all texts ---- */

static int64_t rows_left(const slot *s) { return s->n ? s->n - s->cache->length : 0; }

/* Begins texts while a step has room for their rows. */
static void begin_texts(embedder *e) {
    int64_t rows = 0;
    for (int32_t i = 0; i < e->n_slots; i++) rows += rows_left(&e->slot[i]);
    for (int32_t i = 0; i < e->n_slots && rows < e->chunk && e->next < e->n; i++) {
        slot *s = &e->slot[i];
        for (; !s->n && e->next < e->n; e->next++) {
            ht_error err = {0};
            if (begin_text(s, e->next, &err)) fail_text(e, e->next, &err);
        }
        rows += rows_left(s);
    }
}

static int32_t make_jobs(embedder *e) {
    int32_t n = 0;
    for (int32_t i = 0; i < e->n_slots; i++) {
        slot *s = &e->slot[i];
        if (!s->n) continue;
        ht_error err = {0};
        const int64_t end = ht_min_i64(s->n, s->cache->length + e->chunk);
        if (ht_cache_reserve(s->cache, end, &err)) {
            fail_text(e, s->index, &err);
            end_text(s);
            continue;
        }
        s->job = (ht_step_job){.cache = s->cache,
                               .token = s->ids,
                               .end = end,
                               .first_out = e->o.pooling == HT_POOLING_MEAN ? 0 : s->n - 1,
                               .most_rows = e->chunk,
                               .hidden = true,
                               .prompt = true,
                               .lora = e->adapters ? &e->adapters->set : NULL,
                               .consume = add_rows,
                               .user = s,
                               .cancel = e->o.cancel};
        e->jobs[n++] = &s->job;
    }
    return n;
}

static void take_job(slot *s) {
    if (s->job.status)
        fail_text(s->e, s->index, &s->job.err);
    else if (s->cache->length == s->n)
        finish_text(s);
    else
        return;
    end_text(s);
}

static ht_status run(embedder *e, ht_error *err) {
    while (e->done < e->n) {
        if (ht_cancel_requested(e->o.cancel))
            return ht_fail(err, HT_ERR_CANCELLED, "cancelled after %zu of %zu texts", e->done, e->n);
        begin_texts(e);
        const int32_t n = make_jobs(e);
        if (n) ht_steps_run(e->model->steps, e->jobs, n, n);
        for (int32_t i = 0; i < e->n_slots; i++) {
            slot *s = &e->slot[i];
            if (!s->n) continue;
            if (s->job.status == HT_ERR_CANCELLED)
                return ht_fail(err, HT_ERR_CANCELLED, "cancelled after %zu of %zu texts", e->done, e->n);
            take_job(s);
        }
        if (e->o.progress) e->o.progress((double)e->done / (double)e->n, e->o.user);
    }
    return HT_OK;
}

/* ---- the call ---- */

static ht_status prepare(embedder *e, ht_error *err) {
    ht_model *m = e->model;
    e->hidden = (int32_t)m->config->hidden;
    e->chunk = (int32_t)ht_min_i64(HT_KV_CHUNK, m->context);
    e->n_slots = ht_steps_sequences(m->steps);
    e->slot = calloc((size_t)e->n_slots, sizeof *e->slot);
    e->jobs = calloc((size_t)e->n_slots, sizeof *e->jobs);
    if (!e->slot || !e->jobs) return ht_fail_memory(err, (size_t)e->n_slots * sizeof *e->slot, "embeddings");
    for (int32_t i = 0; i < e->n_slots; i++) e->slot[i].e = e;
    ht_status status = make_result(e, err);
    if (!status && e->o.n_adapters)
        status = ht_session_adapters_new(m, e->o.adapters, e->o.adapter_scales, e->o.n_adapters, &e->adapters, err);
    return status;
}

static void free_embedder(embedder *e) {
    for (int32_t i = 0; e->slot && i < e->n_slots; i++) {
        ht_ids_free(e->slot[i].ids);
        ht_cache_free(e->slot[i].cache);
        free(e->slot[i].sum);
    }
    free(e->slot);
    free(e->jobs);
    ht_session_adapters_free(e->adapters);
}

static ht_status check_options(const ht_embed_options *o, ht_error *err) {
    if (o->pooling != HT_POOLING_LAST && o->pooling != HT_POOLING_MEAN)
        return ht_fail(err, HT_ERR_ARGUMENT, "there is no pooling %d", (int)o->pooling);
    if (o->n_adapters < 0) return ht_fail(err, HT_ERR_ARGUMENT, "%d adapters, expected 0 or more", o->n_adapters);
    return HT_OK;
}

static ht_status embed(ht_model *m, sources from, size_t n, const ht_embed_options *options, ht_embeddings **out,
                       ht_error *err) {
    embedder e = {.model = m, .from = from, .n = n};
    *out = NULL;
    ht_status status = ht_options_read(&e.o, options, &defaults, sizeof defaults, "ht_embed_options", err);
    if (!status) status = check_options(&e.o, err);
    if (!status && from.text) status = ht_model_need_tokenizer(m, err);
    if (status) return status;
    ht_steps_open(m->steps);
    status = prepare(&e, err);
    if (!status) status = run(&e, err);
    free_embedder(&e);
    ht_steps_close(m->steps);
    if (status)
        ht_embeddings_free(e.result ? &e.result->public : NULL);
    else
        *out = &e.result->public;
    return status;
}

ht_status ht_embed_text(ht_model *m, const char *const *texts, size_t n, const ht_embed_options *options,
                        ht_embeddings **out, ht_error *err) {
    return embed(m, (sources){.text = texts}, n, options, out, err);
}

ht_status ht_embed_ids(ht_model *m, const int32_t *const *ids, const size_t *n_ids, size_t n,
                       const ht_embed_options *options, ht_embeddings **out, ht_error *err) {
    return embed(m, (sources){.ids = ids, .n_ids = n_ids}, n, options, out, err);
}
