/* Embeddings of texts: hidden states pooled (pooling.h), dense layers, dimensions and scaling. */
#include "base/error.h"
#include "base/options.h"
#include "base/plural.h"
#include "checkpoint/config.h"
#include "generate/encode.h"
#include "generate/pooling.h"
#include "generate/prompt_ids.h"
#include "models/model.h"
#include "tokenizer/tokenizer.h"

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
    float *values;           /* [n, hidden], or all vectors of tokens */
} result;

/* A text that is computed: one of the sequences of the prefill. */
typedef struct entry {
    size_t index; /* of the text */
    ht_ids ids;
    bool truncated;
    size_t first_row; /* of its vectors, for HT_POOLING_NONE */
    ht_status status; /* of its vectors */
    ht_pooling_state pooled;
    bool ended; /* it has its vector, or has failed */
} entry;

typedef struct embedder {
    ht_model *model;
    ht_embed_options o;
    sources from;
    const char *prompt;    /* text before each text; "": none */
    int64_t prompt_tokens; /* that pooling leaves out */
    ht_dense_stack dense;  /* borrowed from the model */
    size_t n, done;        /* texts; those that have ended */
    int32_t hidden, width; /* values of a state; of a vector */
    entry *entry;          /* [n_entries], of n */
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
    result *r = e->result = calloc(1, sizeof *r);
    if (!r) return ht_fail_memory(err, sizeof *r, "embeddings");
    r->public.n = e->n;
    r->public.hidden = e->width;
    r->public.embeddings = r->embedding = calloc(e->n + 1, sizeof *r->embedding);
    r->message = calloc(e->n + 1, sizeof *r->message);
    return r->embedding && r->message ? HT_OK : ht_fail_memory(err, e->n * sizeof *r->embedding, "embeddings");
}

/* Memory for the vectors, of which there are known to be how many. */
static ht_status make_values(embedder *e, ht_error *err) {
    const size_t row = (size_t)e->width * sizeof(float);
    size_t tokens = 0;
    for (int32_t i = 0; i < e->n_entries; i++) {
        e->entry[i].first_row = tokens;
        tokens += e->entry[i].ids.n;
    }
    const size_t rows = e->o.pooling == HT_POOLING_NONE ? tokens : e->n;
    if (rows > SIZE_MAX / 2 / row)
        return ht_fail(err, HT_ERR_LIMIT, "%zu vectors of %d values are too many", rows, (int)e->width);
    e->result->values = calloc(rows * (size_t)e->width + 1, sizeof(float));
    e->result->public.values = e->result->values;
    return e->result->values ? HT_OK : ht_fail_memory(err, rows * row, "embeddings");
}

static void fail_text(embedder *e, size_t i, const ht_error *why) {
    static const char no_memory[] = "out of memory";
    result *r = e->result;
    r->message[i] = strdup(why->message);
    r->embedding[i].status = why->status;
    r->embedding[i].message = r->message[i] ? r->message[i] : no_memory;
    r->embedding[i].values = NULL;
    r->public.n_failed++;
}

/* Writes a vector, cut and scaled; false if it is not finite. */
static bool write_vector(const embedder *e, const double *x, float *out) {
    double squares = 0;
    for (int32_t d = 0; d < e->width; d++) squares += x[d] * x[d];
    if (!isfinite(squares)) return false;
    const double length = e->o.normalize && squares > 0 ? sqrt(squares) : 1;
    for (int32_t d = 0; d < e->width; d++) out[d] = (float)(x[d] / length);
    return true;
}

/* The vector of a text or a token from *x [hidden], which is replaced; NULL: memory ran out. */
static ht_status make_vector(const embedder *e, double **x, float *out) {
    if (!*x || !ht_dense_apply(&e->dense, x)) return HT_ERR_MEMORY;
    return write_vector(e, *x, out) ? HT_OK : HT_ERR_INTERNAL;
}

static void finish(embedder *e, entry *text) {
    ht_embedding *out = &e->result->embedding[text->index];
    ht_error err = {0};
    float *values = e->result->values + (size_t)e->width * text->index;
    if (e->o.pooling == HT_POOLING_NONE) {
        values = e->result->values + (size_t)e->width * text->first_row;
    } else {
        ht_pooling_end(&text->pooled);
        text->status = make_vector(e, &text->pooled.value, values);
    }
    *out =
        (ht_embedding){.message = "", .truncated = text->truncated, .n_tokens = (int64_t)text->ids.n, .values = values};
    if (text->status == HT_ERR_MEMORY)
        ht_fail_memory(&err, (size_t)e->hidden * sizeof(double), "an embedding");
    else if (text->status)
        ht_fail(&err, text->status, "the hidden states of the model are not finite");
    if (!text->status) return;
    fail_text(e, text->index, &err);
    if (e->o.pooling == HT_POOLING_NONE) memset(values, 0, (size_t)e->width * text->ids.n * sizeof *values);
}

/* ---- the prefill ---- */

/* The vector of a token, for HT_POOLING_NONE. */
static void add_token(embedder *e, entry *text, const float *state, int64_t position) {
    double *x = malloc((size_t)e->hidden * sizeof *x);
    for (int32_t d = 0; x && d < e->hidden; d++) x[d] = (double)state[d];
    const ht_status status =
        make_vector(e, &x, e->result->values + (size_t)e->width * (text->first_row + (size_t)position));
    if (!text->status) text->status = status;
    free(x);
}

/* Adds the hidden state of a position to the texts that go through it, on a thread of the step. */
static void add_row(void *user, const float *state, int64_t position, const int32_t *sequence, int32_t n,
                    float *scratch) {
    embedder *e = user;
    (void)scratch;
    for (int32_t i = 0; i < n; i++) {
        entry *text = &e->entry[sequence[i]];
        if (e->o.pooling == HT_POOLING_NONE)
            add_token(e, text, state, position);
        else
            ht_pooling_add(&text->pooled, state, position);
    }
}

static void end(embedder *e, entry *text) {
    ht_pooling_free(&text->pooled);
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
        finish(e, text);
        end(e, text);
    }
    while (e->first_open < e->n_entries && e->entry[e->first_open].ended) e->first_open++;
    if (e->o.progress) e->o.progress((double)e->done / (double)e->n, e->o.user);
    return true;
}

/* ---- the texts ---- */

/* Tokens of a text that is truncated. */
static int64_t most_tokens(const embedder *e) {
    const int64_t stated = e->model->modules.max_tokens, context = e->model->context;
    return stated > 0 && stated < context ? stated : context;
}

/* The ids of text i, checked and truncated. */
static ht_status encode(const embedder *e, size_t i, ht_ids *out, bool *cut, ht_error *err) {
    static const int32_t none[1];
    const int64_t most = e->o.truncate ? most_tokens(e) : 0;
    if (!e->from.text) {
        size_t n = e->from.n_ids[i];
        *cut = most && n > (size_t)most;
        if (*cut) n = (size_t)most;
        const ht_prompt ids = {.ids = n ? e->from.ids[i] : none, .n_ids = n};
        return ht_prompt_encode(e->model, &ids, 0, out, NULL, err);
    }
    if (!*e->prompt) return ht_prompt_encode_cut(e->model, e->from.text[i], most, out, cut, err);
    const size_t before = strlen(e->prompt), n = strlen(e->from.text[i]);
    char *text = malloc(before + n + 1);
    if (!text) return ht_fail_memory(err, before + n, "a text");
    memcpy(text, e->prompt, before);
    memcpy(text + before, e->from.text[i], n + 1);
    const ht_status status = ht_prompt_encode_cut(e->model, text, most, out, cut, err);
    free(text);
    return status;
}

/* Those that are no prompts have failed; of the others the entries. */
static ht_status read_texts(embedder *e, ht_error *err) {
    e->entry = calloc(e->n + 1, sizeof *e->entry);
    e->sequence = calloc(e->n + 1, sizeof *e->sequence);
    if (!e->entry || !e->sequence) return ht_fail_memory(err, e->n * sizeof *e->entry, "embeddings");
    for (size_t i = 0; i < e->n; i++) {
        ht_error own = {0};
        entry *text = &e->entry[e->n_entries];
        if (encode(e, i, &text->ids, &text->truncated, &own)) {
            fail_text(e, i, &own);
            e->done++;
            continue;
        }
        const int64_t n = (int64_t)text->ids.n, skipped = e->prompt_tokens < n ? e->prompt_tokens : 0;
        text->index = i;
        text->pooled = (ht_pooling_state){.pooling = e->o.pooling, .hidden = e->hidden, .n = n, .skipped = skipped};
        const int64_t first = e->o.pooling == HT_POOLING_NONE ? 0 : ht_pooling_first(&text->pooled);
        e->sequence[e->n_entries++] = (ht_prefill_sequence){.token = text->ids.id,
                                                            .n = n,
                                                            .first_out = first,
                                                            .end_out = e->o.pooling == HT_POOLING_CLS ? first + 1 : 0};
    }
    return HT_OK;
}

static ht_status compute(embedder *e, ht_error *err) {
    const ht_prefill_calls calls = {.row = add_row, .failed = take_failure, .stepped = after_step, .user = e};
    const ht_prefill_options how = {.adapters = e->o.adapters,
                                    .adapter_scales = e->o.adapter_scales,
                                    .n_adapters = e->o.n_adapters,
                                    .hidden = true};
    const ht_status status = ht_compute_sequences(e->model, &how, e->sequence, e->n_entries, &calls, e->o.cancel, err);
    if (status != HT_ERR_CANCELLED) return status;
    return ht_fail(err, status, "cancelled after %zu of %zu text%s", e->done, e->n, ht_plural(e->n));
}

/* ---- the call ---- */

static void free_embedder(embedder *e) {
    for (int32_t i = 0; i < e->n_entries; i++) {
        ht_ids_free(e->entry[i].ids.id);
        ht_pooling_free(&e->entry[i].pooled);
    }
    free(e->entry);
    free(e->sequence);
}

ht_pooling ht_model_pooling(const ht_model *m) {
    if (!*m->config->pooling) return m->config->two_sided ? HT_POOLING_MEAN : HT_POOLING_LAST;
    return ht_pooling_named(m->config->pooling);
}

const char *ht_model_prompt(const ht_model *m, size_t i, const char **text) {
    if (i >= m->modules.n_prompts) return NULL;
    if (text) *text = m->modules.prompt[i].text;
    return m->modules.prompt[i].name;
}

static ht_status choose_pooling(embedder *e, ht_error *err) {
    const char *own = e->model->config->pooling;
    if (!ht_pooling_name(e->o.pooling))
        return ht_fail(err, HT_ERR_ARGUMENT, "there is no pooling %d", (int)e->o.pooling);
    if (*e->model->modules.unsupported)
        return ht_fail(err, HT_ERR_UNSUPPORTED, "the checkpoint has the module `%s`, which is not supported",
                       e->model->modules.unsupported);
    if (e->o.pooling == HT_POOLING_MODEL) e->o.pooling = ht_model_pooling(e->model);
    if (e->o.pooling == HT_POOLING_MODEL)
        return ht_fail(err, HT_ERR_UNSUPPORTED,
                       "the checkpoint's pooling is `%s`, which %s; choose one: last, mean or cls", own,
                       strcmp(own, "rank") ? "is not supported" : "gives scores for reranking, not embeddings");
    /* Dense layers are for pooled vectors, or for tokens in models that do not pool at all. */
    if (e->o.pooling != HT_POOLING_NONE || ht_pooling_named(own) == HT_POOLING_NONE) e->dense = e->model->modules.dense;
    return HT_OK;
}

static ht_status choose_width(embedder *e, ht_error *err) {
    const int64_t width = ht_dense_width(&e->dense, e->hidden);
    if (e->o.dimensions < 0 || e->o.dimensions > width)
        return ht_fail(err, HT_ERR_ARGUMENT, "%lld dimensions, expected at most %lld, those of the model's vectors",
                       (long long)e->o.dimensions, (long long)width);
    e->width = (int32_t)(e->o.dimensions ? e->o.dimensions : width);
    return HT_OK;
}

/* sentence-transformers puts a Lowercase step before a normalizer that has none. */
static ht_status check_case(const embedder *e, ht_error *err) {
    if (!e->from.text || !e->model->modules.lowercase || ht_tokenizer_lowercases(e->model->tokenizer)) return HT_OK;
    return ht_fail(err, HT_ERR_UNSUPPORTED,
                   "`do_lower_case` of sentence_bert_config.json is true, but the tokenizer keeps the case of texts; "
                   "set it to false and write the texts in lower case");
}

/* Finds the prompt, and its tokens where pooling leaves them out. */
static ht_status choose_prompt(embedder *e, ht_error *err) {
    const ht_modules *m = &e->model->modules;
    const char *name = e->o.prompt ? e->o.prompt : e->from.text ? m->default_prompt : NULL;
    size_t i = 0;
    e->prompt = "";
    if (!name || !*name) return HT_OK;
    if (!e->from.text) return ht_fail(err, HT_ERR_ARGUMENT, "prompts are for texts: token ids are taken as they are");
    while (i < m->n_prompts && strcmp(m->prompt[i].name, name) != 0) i++;
    if (i == m->n_prompts) return ht_fail(err, HT_ERR_ARGUMENT, "the checkpoint has no prompt `%.100s`", name);
    e->prompt = m->prompt[i].text;
    return m->skips_prompt ? ht_prompt_count(e->model, e->prompt, &e->prompt_tokens, err) : HT_OK;
}

static ht_status check(embedder *e, ht_error *err) {
    const ht_embed_options *o = &e->o;
    ht_status status = choose_pooling(e, err);
    if (!status) status = choose_width(e, err);
    if (status) return status;
    if (o->n_adapters < 0) return ht_fail(err, HT_ERR_ARGUMENT, "%d adapters, expected 0 or more", o->n_adapters);
    if (e->n > INT32_MAX) return ht_fail(err, HT_ERR_LIMIT, "%zu text%s, at most %d", e->n, ht_plural(e->n), INT32_MAX);
    if (e->from.text) status = ht_model_need_tokenizer(e->model, err);
    if (!status) status = check_case(e, err);
    return status ? status : choose_prompt(e, err);
}

static ht_status embed(ht_model *m, sources from, size_t n, const ht_embed_options *options, ht_embeddings **out,
                       ht_error *err) {
    embedder e = {.model = m, .from = from, .n = n, .hidden = (int32_t)m->config->hidden};
    *out = NULL;
    ht_status status = ht_options_read(&e.o, options, &defaults, sizeof defaults, "ht_embed_options", err);
    if (!status) status = check(&e, err);
    if (!status) status = make_result(&e, err);
    if (!status) status = read_texts(&e, err);
    if (!status) status = make_values(&e, err);
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
