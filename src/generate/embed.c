/* Embeddings of texts: hidden states pooled in double, in order of position: batching changes no bits. */
#include "base/error.h"
#include "base/options.h"
#include "base/plural.h"
#include "checkpoint/config.h"
#include "generate/encode.h"
#include "generate/prompt_ids.h"
#include "models/model.h"

#include <hearth/embed.h>

#include <math.h>
#include <stdlib.h>
#include <string.h>

static const ht_embed_options defaults = {.size = sizeof defaults, .pooling = HT_POOLING_MODEL, .normalize = true};

void ht_embed_options_init(ht_embed_options *options, size_t size) {
    ht_options_init(options, size, &defaults, sizeof defaults);
}

/* Inputs: texts or ids. */
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

/* A text that is computed: one of the sequences of the prefill. */
typedef struct entry {
    size_t index; /* of the text */
    ht_ids ids;
    double *sum; /* [hidden], from its first row until it is done */
    bool ended;  /* it has its vector, or has failed */
} entry;

typedef struct embedder {
    ht_model *model;
    ht_embed_options o;
    sources from;
    size_t n, done; /* texts; those that have ended */
    int32_t hidden;
    entry *entry; /* [n_entries], of n */
    ht_prefill_sequence *sequence;
    int32_t n_entries, first_open; /* all before this one have ended */
    result *result;
} embedder;

/* ---- the result ---- */

void ht_embeddings_free(ht_embeddings *e) {
    result *r = (result *)e; /* the public struct is its first field */
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
}

/* Makes the vector of a text from its sum. */
static void finish(embedder *e, const entry *text) {
    result *r = e->result;
    float *out = r->values + text->index * (size_t)e->hidden;
    const double count = e->o.pooling == HT_POOLING_MEAN ? (double)text->ids.n : 1;
    double squares = 0;
    for (int32_t d = 0; d < e->hidden; d++) squares += (text->sum[d] / count) * (text->sum[d] / count);
    const double length = e->o.normalize && squares > 0 ? sqrt(squares) : 1;
    r->embedding[text->index] = (ht_embedding){.message = "", .n_tokens = (int64_t)text->ids.n, .values = out};
    if (!isfinite(squares)) {
        ht_error err = {0};
        ht_fail(&err, HT_ERR_INTERNAL, "the hidden states of the model are not finite");
        r->embedding[text->index].values = NULL;
        fail_text(e, text->index, &err);
        return;
    }
    for (int32_t d = 0; d < e->hidden; d++) out[d] = (float)(text->sum[d] / count / length);
}

/* ---- the prefill ---- */

/* Adds the hidden state of a position to the texts that go through it, on a thread of the step. */
static void add_row(void *user, const float *state, int64_t position, const int32_t *sequence, int32_t n,
                    float *scratch) {
    embedder *e = user;
    (void)scratch;
    if (e->o.pooling == HT_POOLING_CLS && position > 0) return;
    for (int32_t i = 0; i < n; i++) {
        entry *text = &e->entry[sequence[i]];
        if (!text->sum && !(text->sum = calloc((size_t)e->hidden, sizeof *text->sum))) continue;
        for (int32_t d = 0; d < e->hidden; d++) text->sum[d] += (double)state[d];
    }
}

static void end(embedder *e, entry *text) {
    free(text->sum);
    text->sum = NULL;
    text->ended = true;
    e->done++;
}

static void take_failure(void *user, int32_t sequence, const ht_error *why) {
    embedder *e = user;
    fail_text(e, e->entry[sequence].index, why);
    end(e, &e->entry[sequence]);
}

static bool after_step(void *user) {
    embedder *e = user;
    for (int32_t i = e->first_open; i < e->n_entries; i++) {
        entry *text = &e->entry[i];
        if (text->ended || !e->sequence[i].done) continue;
        if (text->sum) {
            finish(e, text);
        } else {
            ht_error err = {0};
            ht_fail_memory(&err, (size_t)e->hidden * sizeof *text->sum, "an embedding");
            fail_text(e, text->index, &err);
        }
        end(e, text);
    }
    while (e->first_open < e->n_entries && e->entry[e->first_open].ended) e->first_open++;
    if (e->o.progress) e->o.progress((double)e->done / (double)e->n, e->o.user);
    return true;
}

/* ---- the texts ---- */

static ht_prompt prompt_of(const embedder *e, size_t i) {
    static const int32_t none[1];
    if (e->from.text) return (ht_prompt){.text = e->from.text[i]};
    return (ht_prompt){.ids = e->from.n_ids[i] ? e->from.ids[i] : none, .n_ids = e->from.n_ids[i]};
}

/* Those that are no prompts have failed; of the others the entries. */
static ht_status read_texts(embedder *e, ht_error *err) {
    e->entry = calloc(e->n + 1, sizeof *e->entry);
    e->sequence = calloc(e->n + 1, sizeof *e->sequence);
    if (!e->entry || !e->sequence) return ht_fail_memory(err, e->n * sizeof *e->entry, "embeddings");
    for (size_t i = 0; i < e->n; i++) {
        ht_error own = {0};
        entry *text = &e->entry[e->n_entries];
        const ht_prompt prompt = prompt_of(e, i);
        if (ht_prompt_encode(e->model, &prompt, 0, &text->ids, NULL, &own)) {
            fail_text(e, i, &own);
            e->done++;
            continue;
        }
        const int64_t n = (int64_t)text->ids.n;
        text->index = i;
        e->sequence[e->n_entries++] = (ht_prefill_sequence){.token = text->ids.id,
                                                            .n = n,
                                                            .first_out = e->o.pooling == HT_POOLING_LAST ? n - 1 : 0,
                                                            .end_out = e->o.pooling == HT_POOLING_CLS ? 1 : 0};
    }
    return HT_OK;
}

static ht_status compute(embedder *e, ht_error *err) {
    const ht_prefill_calls calls = {.row = add_row, .failed = take_failure, .stepped = after_step, .user = e};
    const ht_prefill_options how = {.adapters = e->o.adapters,
                                    .adapter_scales = e->o.adapter_scales,
                                    .n_adapters = e->o.n_adapters,
                                    .hidden = true};
    ht_prefill *p = NULL;
    ht_status status;
    if (e->model->config->two_sided)
        status = ht_encode(e->model, &how, e->sequence, e->n_entries, &calls, e->o.cancel, err);
    else {
        status = ht_prefill_new(e->model, &how, &p, err);
        if (!status) status = ht_prefill_run(p, e->sequence, e->n_entries, &calls, e->o.cancel, err);
        ht_prefill_free(p);
    }
    if (status != HT_ERR_CANCELLED) return status;
    return ht_fail(err, status, "cancelled after %zu of %zu text%s", e->done, e->n, ht_plural(e->n));
}

/* ---- the call ---- */

static void free_embedder(embedder *e) {
    for (int32_t i = 0; i < e->n_entries; i++) {
        ht_ids_free(e->entry[i].ids.id);
        free(e->entry[i].sum);
    }
    free(e->entry);
    free(e->sequence);
}

ht_pooling ht_model_pooling(const ht_model *m) {
    static const char *const names[] = {"last", "mean", "cls"};
    for (int i = 0; i < HT_POOLING_MODEL; i++)
        if (!strcmp(m->config->pooling, names[i])) return (ht_pooling)i;
    if (*m->config->pooling) return HT_POOLING_MODEL;
    return m->config->two_sided ? HT_POOLING_MEAN : HT_POOLING_LAST;
}

static ht_status check(embedder *e, ht_error *err) {
    const ht_embed_options *o = &e->o;
    if (o->pooling < 0 || o->pooling > HT_POOLING_MODEL)
        return ht_fail(err, HT_ERR_ARGUMENT, "there is no pooling %d", (int)o->pooling);
    if (o->pooling == HT_POOLING_MODEL) e->o.pooling = ht_model_pooling(e->model);
    if (o->pooling == HT_POOLING_MODEL)
        return ht_fail(err, HT_ERR_UNSUPPORTED,
                       "the checkpoint's pooling is `%s`, which is not supported; choose one: last, mean or cls",
                       e->model->config->pooling);
    if (o->n_adapters < 0) return ht_fail(err, HT_ERR_ARGUMENT, "%d adapters, expected 0 or more", o->n_adapters);
    if (e->n > INT32_MAX) return ht_fail(err, HT_ERR_LIMIT, "%zu text%s, at most %d", e->n, ht_plural(e->n), INT32_MAX);
    return e->from.text ? ht_model_need_tokenizer(e->model, err) : HT_OK;
}

static ht_status embed(ht_model *m, sources from, size_t n, const ht_embed_options *options, ht_embeddings **out,
                       ht_error *err) {
    embedder e = {.model = m, .from = from, .n = n, .hidden = (int32_t)m->config->hidden};
    *out = NULL;
    ht_status status = ht_options_read(&e.o, options, &defaults, sizeof defaults, "ht_embed_options", err);
    if (!status) status = check(&e, err);
    if (!status) status = make_result(&e, err);
    if (!status) status = read_texts(&e, err);
    if (!status) status = compute(&e, err);
    free_embedder(&e);
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
