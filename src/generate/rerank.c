/* Reranking: a sequence of query and document for each document (rerank_input.h), and its score: from the logits of two
 * tokens, or from the pooled hidden state by a decoder's classifier or the classification head of a text encoder. */
#include "base/error.h"
#include "base/options.h"
#include "base/plural.h"
#include "base/text.h"
#include "generate/encode.h"
#include "generate/pooling.h"
#include "generate/rerank_input.h"
#include "models/label_head.h"

#include <hearth/rerank.h>

#include <math.h>
#include <stdlib.h>
#include <string.h>

static const ht_rerank_options defaults = {.size = sizeof defaults};

void ht_rerank_options_init(ht_rerank_options *options, size_t size) {
    ht_options_init(options, size, &defaults, sizeof defaults);
}

/* The public struct, with the memory of what it lends. */
typedef struct result {
    ht_ranking public;
    ht_relevance *document; /* [n] */
    char **message;         /* [n] of those that failed */
    size_t *order;          /* [n] */
} result;

/* A document that is computed: one of the sequences of the prefill. */
typedef struct pair {
    size_t index; /* of the document */
    ht_encoding input;
    bool truncated;
    ht_pooling_state pooled; /* for scorers of hidden states */
    double logit;
    bool ended; /* it has its score, or has failed */
} pair;

typedef enum scorer {
    TOKENS,     /* the logits of two tokens */
    CLASSIFIER, /* the classifier of a decoder */
    LABEL_HEAD  /* the classification head of a text encoder */
} scorer;

typedef struct reranker {
    ht_model *model;
    ht_rerank_options o;
    const char *const *documents;
    size_t n, done; /* documents; those that have ended */
    ht_rerank_input input;
    scorer scorer;
    ht_pooling pooling; /* of hidden states */
    int64_t yes, no;    /* tokens; no -1: the logit of `yes` alone */
    pair *pair;         /* [n_pairs], of n */
    ht_prefill_sequence *sequence;
    pair **finished;             /* [n_pairs] by a step */
    int32_t n_pairs, first_open; /* all before this one have ended */
    result *result;
} reranker;

/* ---- the result ---- */

void ht_ranking_free(ht_ranking *ranking) {
    result *r = (result *)ranking; /* the public struct is its first field */
    if (!r) return;
    for (size_t i = 0; r->message && i < r->public.n; i++) free(r->message[i]);
    free(r->message);
    free(r->document);
    free(r->order);
    free(r);
}

static ht_status make_result(reranker *r, ht_error *err) {
    result *out = r->result = calloc(1, sizeof *out);
    if (!out) return ht_fail_memory(err, sizeof *out, "scores");
    out->public.n = r->n;
    out->public.documents = out->document = calloc(r->n + 1, sizeof *out->document);
    out->message = calloc(r->n + 1, sizeof *out->message);
    out->public.order = out->order = calloc(r->n + 1, sizeof *out->order);
    if (!out->document || !out->message || !out->order)
        return ht_fail_memory(err, r->n * sizeof *out->document, "scores");
    return HT_OK;
}

static void fail_document(reranker *r, size_t i, const ht_error *why) {
    static const char no_memory[] = "out of memory";
    result *out = r->result;
    out->message[i] = strdup(why->message);
    out->document[i] = (ht_relevance){.status = why->status, .message = out->message[i] ? out->message[i] : no_memory};
    out->public.n_failed++;
}

/* Scored documents come first, then the better ones, then the earlier ones. */
static int by_score(const void *x, const void *y) {
    const ht_relevance *const a = *(const ht_relevance *const *)x, *const b = *(const ht_relevance *const *)y;
    if (!a->status != !b->status) return a->status ? 1 : -1;
    if (a->logit != b->logit) return a->logit < b->logit ? 1 : -1;
    return (a > b) - (a < b);
}

static ht_status sort(reranker *r, ht_error *err) {
    const ht_relevance **list = malloc((r->n + 1) * sizeof(const ht_relevance *));
    if (!list) return ht_fail_memory(err, r->n * sizeof(const ht_relevance *), "scores");
    for (size_t i = 0; i < r->n; i++) list[i] = &r->result->document[i];
    qsort(list, r->n, sizeof(const ht_relevance *), by_score);
    for (size_t i = 0; i < r->n; i++) r->result->order[i] = (size_t)(list[i] - r->result->document);
    free(list);
    return HT_OK;
}

/* ---- the scorer ---- */

static ht_status find_token(const ht_model *m, const char *text, int64_t *out, ht_error *err) {
    *out = ht_tokenizer_find(m->tokenizer, text);
    if (*out >= 0 && *out < m->vocab) return HT_OK;
    return ht_fail(err, HT_ERR_UNSUPPORTED, "the model cannot rerank: its vocabulary has no token \"%s\"", text);
}

static ht_status choose_tokens(reranker *r, ht_error *err) {
    r->yes = r->model->modules.yes_token;
    r->no = r->model->modules.no_token;
    if (r->yes >= 0) return HT_OK;
    const ht_status status = find_token(r->model, "yes", &r->yes, err);
    return status ? status : find_token(r->model, "no", &r->no, err);
}

static ht_status choose_label_head(reranker *r, ht_error *err) {
    const ht_status status = ht_label_head_need(r->model, err);
    const int64_t labels = r->model->config->n_labels;
    if (status) return status;
    if (labels != 1)
        return ht_fail(err, HT_ERR_UNSUPPORTED, "the model's classification head has %lld labels; rerankers have one",
                       (long long)labels);
    if (!ht_label_head_is_whole(r->model))
        return ht_fail(err, HT_ERR_UNSUPPORTED,
                       "the file lacks the matrix `cls.weight` of its classification head, BERT's pooler: its scores "
                       "would be wrong; use the original, or a file that `hearth convert` has made of it");
    r->scorer = LABEL_HEAD;
    r->pooling = r->model->config->label_mean ? HT_POOLING_MEAN : HT_POOLING_CLS;
    return HT_OK;
}

static ht_status choose_scorer(reranker *r, ht_error *err) {
    const ht_modules *m = &r->model->modules;
    const int64_t outputs = ht_dense_width(&m->classifier, 0);
    if (r->model->config->two_sided) return choose_label_head(r, err);
    if (!m->classifier.n) return choose_tokens(r, err);
    r->scorer = CLASSIFIER;
    r->pooling = HT_POOLING_LAST; /* a decoder's last token has attended to all others */
    if (outputs == 1 || (outputs == 2 && m->yes_and_no)) return HT_OK;
    return ht_fail(err, HT_ERR_UNSUPPORTED,
                   "the model's classifier has %lld outputs; rerankers have one, or those of \"yes\" and \"no\"",
                   (long long)outputs);
}

/* Takes the hidden states, or the logits after the last token, of documents with the same prompt; on a thread of the
 * step. */
static void take_row(void *user, const float *x, int64_t position, const int32_t *sequence, int32_t n, float *scratch) {
    reranker *r = user;
    (void)scratch;
    for (int32_t i = 0; i < n; i++) {
        pair *p = &r->pair[sequence[i]];
        if (r->scorer == TOKENS)
            p->logit = (double)x[r->yes] - (r->no >= 0 ? (double)x[r->no] : 0);
        else
            ht_pooling_add(&p->pooled, x, position);
    }
}

/* The logits of n pairs by the classification head. */
static ht_status apply_label_head(const reranker *r, pair *const *pairs, size_t n, ht_error *err) {
    const size_t hidden = (size_t)r->model->config->hidden;
    float *states = calloc(n * (hidden + 1), sizeof *states);
    if (!states) return ht_fail_memory(err, n * (hidden + 1) * sizeof *states, "scores");
    float *logit = states + n * hidden;
    for (size_t i = 0; i < n; i++)
        for (size_t d = 0; pairs[i]->pooled.value && d < hidden; d++)
            states[i * hidden + d] = (float)pairs[i]->pooled.value[d];
    const ht_status status = ht_label_head_scores(r->model, states, (int64_t)n, logit, err);
    for (size_t i = 0; !status && i < n; i++) pairs[i]->logit = (double)logit[i];
    free(states);
    return status;
}

/* The logit of a pair by the classifier; false when memory ran out. */
static bool apply_classifier(const reranker *r, pair *p) {
    const ht_dense_stack *s = &r->model->modules.classifier;
    if (!ht_dense_apply(s, &p->pooled.value)) return false;
    p->logit = p->pooled.value[0] - (ht_dense_width(s, 0) == 2 ? p->pooled.value[1] : 0);
    return true;
}

/* Computes the logits of n pairs, whose documents fail if that does. */
static void finish(reranker *r, pair *const *pairs, size_t n) {
    ht_error of_all = {0};
    for (size_t i = 0; i < n; i++) ht_pooling_end(&pairs[i]->pooled);
    if (r->scorer == LABEL_HEAD) (void)apply_label_head(r, pairs, n, &of_all);
    for (size_t i = 0; i < n; i++) {
        pair *p = pairs[i];
        ht_error err = of_all;
        const bool pooled = r->scorer == TOKENS || p->pooled.value;
        if (!err.status && (!pooled || (r->scorer == CLASSIFIER && !apply_classifier(r, p))))
            ht_fail_memory(&err, sizeof *p, "a score");
        else if (!err.status && !isfinite(p->logit))
            ht_fail(&err, HT_ERR_INTERNAL, "the logit of its relevance is %g", p->logit);
        r->result->document[p->index] = (ht_relevance){.message = "",
                                                       .truncated = p->truncated,
                                                       .n_tokens = (int64_t)p->input.n,
                                                       .logit = p->logit,
                                                       .score = 1 / (1 + exp(-p->logit))};
        if (err.status) fail_document(r, p->index, &err);
    }
}

/* ---- the prefill ---- */

static void end(reranker *r, pair *p) {
    ht_pooling_free(&p->pooled);
    p->ended = true;
    r->done++;
}

static void take_failure(void *user, int32_t sequence, const ht_error *why) {
    reranker *r = user;
    fail_document(r, r->pair[sequence].index, why);
    end(r, &r->pair[sequence]);
}

static bool after_step(void *user) {
    reranker *r = user;
    size_t n = 0;
    for (int32_t i = r->first_open; i < r->n_pairs; i++)
        if (!r->pair[i].ended && r->sequence[i].done) r->finished[n++] = &r->pair[i];
    if (n) finish(r, r->finished, n);
    for (size_t i = 0; i < n; i++) end(r, r->finished[i]);
    while (r->first_open < r->n_pairs && r->pair[r->first_open].ended) r->first_open++;
    if (r->o.progress) r->o.progress((double)r->done / (double)r->n, r->o.user);
    return true;
}

/* Documents that are no prompts have failed; of the others the pairs. */
static ht_status read_documents(reranker *r, ht_error *err) {
    r->pair = calloc(r->n + 1, sizeof *r->pair);
    r->sequence = calloc(r->n + 1, sizeof *r->sequence);
    r->finished = malloc((r->n + 1) * sizeof(pair *));
    if (!r->pair || !r->sequence || !r->finished) return ht_fail_memory(err, r->n * sizeof *r->pair, "documents");
    for (size_t i = 0; i < r->n; i++) {
        ht_error own = {0};
        pair *p = &r->pair[r->n_pairs];
        if (ht_rerank_input_encode(&r->input, r->documents[i], &p->input, &p->truncated, &own)) {
            fail_document(r, i, &own);
            r->done++;
            continue;
        }
        const int64_t n = (int64_t)p->input.n;
        p->index = i;
        p->pooled = (ht_pooling_state){.pooling = r->pooling, .hidden = (int32_t)r->model->config->hidden, .n = n};
        r->sequence[r->n_pairs++] = (ht_prefill_sequence){.token = p->input.ids,
                                                          .type = p->input.types,
                                                          .n = n,
                                                          .first_out = ht_pooling_first(&p->pooled),
                                                          .end_out = r->pooling == HT_POOLING_CLS};
    }
    return HT_OK;
}

static ht_status compute(reranker *r, ht_error *err) {
    const ht_prefill_calls calls = {.row = take_row, .failed = take_failure, .stepped = after_step, .user = r};
    const ht_prefill_options how = {.adapters = r->o.adapters,
                                    .adapter_scales = r->o.adapter_scales,
                                    .n_adapters = r->o.n_adapters,
                                    .hidden = r->scorer != TOKENS};
    const ht_status status = ht_compute_sequences(r->model, &how, r->sequence, r->n_pairs, &calls, r->o.cancel, err);
    if (status != HT_ERR_CANCELLED) return status;
    return ht_fail(err, status, "cancelled after %zu of %zu document%s", r->done, r->n, ht_plural(r->n));
}

/* ---- the call ---- */

static void free_reranker(reranker *r) {
    for (int32_t i = 0; i < r->n_pairs; i++) {
        ht_encoding_free(&r->pair[i].input);
        ht_pooling_free(&r->pair[i].pooled);
    }
    free(r->pair);
    free(r->sequence);
    free(r->finished);
    ht_rerank_input_close(&r->input);
}

static ht_status check(reranker *r, ht_error *err) {
    const char *query = r->input.query;
    ht_status status = ht_model_need_tokenizer(r->model, err);
    if (status) return status;
    if (!ht_utf8_valid(query, strlen(query))) return ht_fail(err, HT_ERR_ARGUMENT, "the query is not UTF-8");
    if (r->o.instruction && !ht_utf8_valid(r->o.instruction, strlen(r->o.instruction)))
        return ht_fail(err, HT_ERR_ARGUMENT, "the instruction is not UTF-8");
    if (r->o.n_adapters < 0) return ht_fail(err, HT_ERR_ARGUMENT, "%d adapters, expected 0 or more", r->o.n_adapters);
    if (r->o.document_tokens < 0)
        return ht_fail(err, HT_ERR_ARGUMENT, "documents of %lld tokens, expected 0 or more",
                       (long long)r->o.document_tokens);
    if (r->n > INT32_MAX)
        return ht_fail(err, HT_ERR_LIMIT, "%zu document%s, at most %d", r->n, ht_plural(r->n), INT32_MAX);
    r->input.instruction = r->o.instruction;
    r->input.truncate = r->o.truncate;
    r->input.document_tokens = r->o.document_tokens;
    status = ht_rerank_input_open(&r->input, err);
    return status ? status : choose_scorer(r, err);
}

ht_status ht_rerank(ht_model *m, const char *query, const char *const *documents, size_t n,
                    const ht_rerank_options *options, ht_ranking **out, ht_error *err) {
    reranker r = {.model = m, .documents = documents, .n = n, .input = {.model = m, .query = query}};
    *out = NULL;
    ht_status status = ht_options_read(&r.o, options, &defaults, sizeof defaults, "ht_rerank_options", err);
    if (!status) status = check(&r, err);
    if (!status) status = make_result(&r, err);
    if (!status) status = read_documents(&r, err);
    if (!status) status = compute(&r, err);
    if (!status) status = sort(&r, err);
    free_reranker(&r);
    if (status)
        ht_ranking_free(r.result ? &r.result->public : NULL);
    else
        *out = &r.result->public;
    return status;
}
