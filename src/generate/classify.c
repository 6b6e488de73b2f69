/* Classification: labels as continuations of each prompt, and their probabilities among themselves. */
#include "base/error.h"
#include "base/options.h"
#include "base/plural.h"
#include "generate/scoring.h"
#include "models/model.h"

#include <hearth/classify.h>

#include <math.h>
#include <stdlib.h>
#include <string.h>

static const ht_classify_options defaults = {.size = sizeof defaults};

void ht_classify_options_init(ht_classify_options *options, size_t size) {
    ht_options_init(options, size, &defaults, sizeof defaults);
}

typedef struct classification {
    ht_model *model;
    ht_classify_options o;
    const ht_prompt *prompts; /* NULL: those of o.next */
    ht_continuation *labels;  /* [n_labels] */
    ht_label_score *scores;   /* [n_labels] */
    ht_classify_fn *fn;
    void *user;
} classification;

static ht_status check_labels(const ht_classify_options *o, ht_error *err) {
    if (o->n_labels < 0) return ht_fail(err, HT_ERR_ARGUMENT, "%d labels, expected 0 or more", (int)o->n_labels);
    for (int32_t i = 0; i < o->n_labels; i++) {
        if (!o->labels[i] || !*o->labels[i]) return ht_fail(err, HT_ERR_ARGUMENT, "label %d is empty", (int)i);
        for (int32_t j = 0; j < i; j++)
            if (strcmp(o->labels[i], o->labels[j]) == 0)
                return ht_fail(err, HT_ERR_ARGUMENT, "labels %d and %d are both \"%s\"", (int)j, (int)i, o->labels[i]);
    }
    return HT_OK;
}

static ht_status next(void *user, size_t i, ht_score_request *request, ht_error *err) {
    classification *c = user;
    request->continuations = c->labels;
    request->n_continuations = (size_t)c->o.n_labels;
    if (!c->prompts) return c->o.next(i, &request->prompt, c->user, err);
    request->prompt = c->prompts[i];
    return HT_OK;
}

/* Fills in c->scores; returns the likeliest label. */
static int32_t compare_labels(classification *c, const ht_scored *r) {
    double sum = 0;
    int32_t best = 0;
    for (int32_t i = 0; i < c->o.n_labels; i++) {
        const ht_continuation_score *label = &r->continuations[i];
        c->scores[i] = (ht_label_score){.log_probability = label->log_probability, .n_tokens = label->n_tokens};
        if (label->log_probability > c->scores[best].log_probability) best = i;
    }
    const double most = c->scores[best].log_probability;
    for (int32_t i = 0; i < c->o.n_labels; i++) sum += exp(c->scores[i].log_probability - most);
    for (int32_t i = 0; i < c->o.n_labels; i++)
        c->scores[i].probability = exp(c->scores[i].log_probability - most) / sum;
    return best;
}

/* The caller frees *text. A token that the tokenizer does not have, as a head may have more rows, has no text. */
static ht_status text_of(const ht_model *m, int32_t token, char **text, ht_error *err) {
    size_t n;
    *text = NULL;
    if (!m->tokenizer) return HT_OK;
    const size_t known = token < ht_tokenizer_vocab_size(m->tokenizer);
    return ht_tokenizer_decode(m->tokenizer, &token, known, true, text, &n, err);
}

static bool take(void *user, const ht_scored *r) {
    classification *c = user;
    ht_error err = {0};
    char *text = NULL;
    ht_classification out = {
        .index = r->index, .status = r->status, .message = r->message ? r->message : "", .label = -1};
    if (!out.status && (out.status = text_of(c->model, r->token, &text, &err))) out.message = err.message;
    if (!out.status) {
        out.prompt_tokens = (int64_t)r->ids.prompt.n;
        out.computed_tokens = r->computed;
        out.token = r->token;
        out.text = text;
        out.log_probability = r->log_probability;
        out.logits = r->logits;
        if (c->o.n_labels) {
            out.label = compare_labels(c, r);
            out.labels = c->scores;
        }
    }
    const bool goes_on = c->fn(&out, c->user);
    ht_text_free(text);
    return goes_on;
}

static ht_status run(classification *c, size_t n, ht_error *err) {
    c->labels = calloc((size_t)c->o.n_labels + 1, sizeof *c->labels);
    c->scores = calloc((size_t)c->o.n_labels + 1, sizeof *c->scores);
    if (!c->labels || !c->scores)
        return ht_fail_memory(err, (size_t)c->o.n_labels * (sizeof *c->labels + sizeof *c->scores), "labels");
    for (int32_t i = 0; i < c->o.n_labels; i++) c->labels[i].text = c->o.labels[i];
    const ht_scoring s = {.model = c->model,
                          .n = n,
                          .prefill = {.adapters = c->o.adapters,
                                      .adapter_scales = c->o.adapter_scales,
                                      .n_adapters = c->o.n_adapters,
                                      .kv_bytes = c->o.kv_bytes},
                          .likeliest = true,
                          .logits = c->o.logits,
                          .cancel = c->o.cancel,
                          .next = next,
                          .take = take,
                          .user = c,
                          .progress = c->o.progress,
                          .progress_user = c->user};
    return ht_scoring_run(&s, err);
}

ht_status ht_classify(ht_model *m, const ht_prompt *prompts, size_t n, const ht_classify_options *options,
                      ht_classify_fn *fn, void *user, ht_error *err) {
    classification c = {.model = m, .prompts = prompts, .fn = fn, .user = user};
    ht_status status = ht_options_read(&c.o, options, &defaults, sizeof defaults, "ht_classify_options", err);
    if (!status) status = check_labels(&c.o, err);
    if (!status && !prompts && n && !c.o.next)
        status = ht_fail(err, HT_ERR_ARGUMENT,
                         "%zu prompt%s, but neither an array of them nor a function that gives them", n, ht_plural(n));
    if (!status) status = run(&c, n, err);
    free(c.labels);
    free(c.scores);
    return status;
}
