/* Reranking: a prompt of query and document for each document, and a score of its last hidden state.
 *
 * Two things differ between rerankers. The prompt is a template with the roles "query" and "document" (choose_prompt).
 * The scorer is a classifier on the pooled hidden state, or the logits of two tokens (choose_scorer). */
#include "base/checked.h"
#include "base/error.h"
#include "base/options.h"
#include "base/plural.h"
#include "base/text.h"
#include "chat/conversation.h"
#include "checkpoint/family.h"
#include "generate/pooling.h"
#include "generate/prefill.h"
#include "generate/prompt_ids.h"
#include "models/model.h"
#include "template/template.h"

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
    ht_ids ids;
    bool truncated;
    ht_pooling_state pooled; /* for a classifier */
    double logit;            /* otherwise */
    bool ended;              /* it has its score, or has failed */
} pair;

typedef struct reranker {
    ht_model *model;
    ht_rerank_options o;
    const char *query, *const *documents;
    size_t n, done; /* documents; those that have ended */
    const ht_chat_template *prompt;
    ht_chat_template *own_prompt;     /* the same, if it was made for this call */
    const ht_dense_stack *classifier; /* NULL: the logits of two tokens */
    ht_pooling pooling;               /* of the states for it */
    int64_t yes, no;                  /* these tokens; no -1: the logit of `yes` alone */
    ht_ids without;                   /* the prompt with an empty document; made when the first one is truncated */
    pair *pair;                       /* [n_pairs], of n */
    ht_prefill_sequence *sequence;
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

/* ---- the prompt ---- */

#define INSTRUCT "<Instruct>:"
/* Qwen3-Reranker's, as its authors publish it, in the form of GGUF files. */
static const char qwen3_prompt[] =
    "<|im_start|>system\nJudge whether the Document meets the requirements based on the Query and the Instruct "
    "provided. Note that the answer can only be \"yes\" or \"no\".<|im_end|>\n<|im_start|>user\n" INSTRUCT
    " Given a web search query, retrieve relevant passages that answer the query\n<Query>: {query}\n<Document>: "
    "{document}<|im_end|>\n<|im_start|>assistant\n<think>\n\n</think>\n\n";

static void write_quoted(ht_text *out, const char *text, size_t n) {
    ht_text_append_str(out, "\"");
    for (size_t i = 0; i < n; i++) {
        if (text[i] == '"' || text[i] == '\\') ht_text_append_str(out, "\\");
        ht_text_append(out, text[i] == '\n' ? "\\n" : text + i, text[i] == '\n' ? 2 : 1);
    }
    ht_text_append_str(out, "\"");
}

/* The content of the message with a role, or a text if there is no such message. */
static void write_role(ht_text *out, const char *role, const char *otherwise, size_t n) {
    ht_text_printf(out, "{{ messages | selectattr(\"role\", \"eq\", \"%s\") | map(attribute=\"content\") | first",
                   role);
    if (otherwise) {
        ht_text_append_str(out, " | default(");
        write_quoted(out, otherwise, n);
        ht_text_append_str(out, ")");
    }
    ht_text_append_str(out, " }}");
}

/* Writes a prompt of GGUF as a template. {query}, {document} and {instruction} become messages; without the latter, so
 * does the rest of the line after "<Instruct>: ". */
static void write_template(ht_text *out, const char *prompt) {
    static const char instruct[] = INSTRUCT " ";
    static const struct {
        const char *mark, *role;
    } marks[] = {{"{query}", "query"}, {"{document}", "document"}, {"{instruction}", "system"}};
    enum { MARKS = sizeof marks / sizeof *marks };
    const bool marked = strstr(prompt, "{instruction}");
    while (*prompt) {
        const char *next = prompt + strlen(prompt), *at;
        int which = -1;
        for (int i = 0; i < MARKS; i++)
            if ((at = strstr(prompt, marks[i].mark)) && at < next) {
                next = at;
                which = i;
            }
        if (!marked && (at = strstr(prompt, instruct)) && at + strlen(instruct) < next) {
            next = at + strlen(instruct);
            which = MARKS;
        }
        ht_text_append_str(out, "{{ ");
        write_quoted(out, prompt, (size_t)(next - prompt));
        ht_text_append_str(out, " }}");
        prompt = next;
        if (which == MARKS) {
            const size_t n = strcspn(prompt, "\n");
            write_role(out, "system", prompt, n);
            prompt += n;
        } else if (which >= 0) {
            write_role(out, marks[which].role, NULL, 0);
            prompt += strlen(marks[which].mark);
        }
    }
}

static ht_status make_prompt(reranker *r, const char *prompt, ht_error *err) {
    ht_text source = {0};
    write_template(&source, prompt);
    const ht_status status =
        source.failed ? ht_fail_memory(err, source.len, "a prompt")
                      : ht_chat_template_parse(source.data, source.len, "the reranking prompt", &r->own_prompt, err);
    ht_text_discard(&source);
    r->prompt = r->own_prompt;
    return status;
}

/* Whether a template asks for messages of a role. */
static bool has_role(const ht_chat_template *t, const char *role) {
    char quoted[32];
    snprintf(quoted, sizeof quoted, "\"%s\"", role);
    if (ht_chat_template_mentions(t, quoted)) return true;
    snprintf(quoted, sizeof quoted, "'%s'", role);
    return ht_chat_template_mentions(t, quoted);
}

/* The checkpoint's default prompt is the instruction, as for sentence-transformers; NULL: none. */
static const char *default_instruction(const ht_modules *m) {
    for (size_t i = 0; m->default_prompt && i < m->n_prompts; i++)
        if (!strcmp(m->prompt[i].name, m->default_prompt)) return m->prompt[i].text;
    return NULL;
}

static ht_status choose_prompt(reranker *r, ht_error *err) {
    const ht_modules *m = &r->model->modules;
    const ht_chat_template *own = r->model->chat.template;
    ht_status status = HT_OK;
    if (m->rerank_prompt)
        status = make_prompt(r, m->rerank_prompt, err);
    else if (own && has_role(own, "query") && has_role(own, "document"))
        r->prompt = own;
    else if (!m->is_reranker)
        return ht_fail(err, HT_ERR_UNSUPPORTED,
                       "the model is no reranker: it has no classifier, and no prompt for a query and a document");
    else if (!strcmp(r->model->architecture, "qwen3"))
        status = make_prompt(r, qwen3_prompt, err);
    else
        return ht_fail(err, HT_ERR_UNSUPPORTED,
                       "the model is a reranker, but states no prompt for a query and a "
                       "document, and %s models have none in common",
                       r->model->architecture);
    const bool instructs = !status && has_role(r->prompt, "system");
    if (instructs && !r->o.instruction) r->o.instruction = default_instruction(m);
    if (!status && r->o.instruction && !instructs)
        status = ht_fail(err, HT_ERR_UNSUPPORTED, "the model's prompt for reranking takes no instruction");
    return status;
}

static ht_json *message(const char *role, const char *text) {
    return ht_json_pack("{ss so}", "role", role, "content", ht_json_string(text));
}

/* The prompt of a document, with runs that separate texts of the call from those of the template. */
static ht_status write_prompt(const reranker *r, const char *document, ht_written *out, ht_error *err) {
    ht_json *messages = ht_json_new_array();
    if (r->o.instruction) ht_json_array_append_new(messages, message("system", r->o.instruction));
    ht_json_array_append_new(messages, message("query", r->query));
    ht_json_array_append_new(messages, message("document", document));
    const bool whole = ht_json_array_size(messages) == 2 + (r->o.instruction != NULL);
    char *json = whole ? ht_json_dump(messages, 0) : NULL;
    ht_json_decref(messages);
    if (!json) return ht_fail_memory(err, strlen(document), "a prompt");
    const ht_template_variable variables[] = {{"messages", json, strlen(json)}, {"add_generation_prompt", "true", 4}};
    const ht_status status = ht_chat_template_render_within(r->prompt, variables, 2, NULL, out, err);
    free(json);
    return status;
}

static ht_status encode(const reranker *r, const char *document, ht_ids *out, ht_error *err) {
    ht_written written = {0};
    *out = (ht_ids){0};
    if (!ht_utf8_valid(document, strlen(document))) return ht_fail(err, HT_ERR_ARGUMENT, "the text is not UTF-8");
    ht_status status = write_prompt(r, document, &written, err);
    if (!status) status = ht_chat_encode_text(r->model->tokenizer, &written, 0, &out->id, &out->n, err);
    ht_chat_text_free(&written);
    return status;
}

/* Drops tokens from the end of a document: those before the tokens that the prompt has after it. Sets p->truncated. */
static ht_status truncate(reranker *r, ht_ids *ids, pair *p, ht_error *err) {
    const ht_ids *without = &r->without;
    size_t before = 0, after = 0, most = r->o.truncate ? (size_t)r->model->context : SIZE_MAX;
    if (!r->o.document_tokens && ids->n <= most) return HT_OK;
    const ht_status status = without->n ? HT_OK : encode(r, "", &r->without, err);
    if (status) return status;
    while (before < without->n && ids->id[before] == without->id[before]) before++;
    while (after < without->n - before && ids->id[ids->n - 1 - after] == without->id[without->n - 1 - after]) after++;
    if (r->o.document_tokens) most = ht_min_size(most, before + after + (size_t)r->o.document_tokens);
    /* A query that is too long alone is reported later. */
    if (ids->n <= most || before + after > most) return HT_OK;
    memmove(ids->id + most - after, ids->id + ids->n - after, after * sizeof *ids->id);
    ids->n = most;
    p->truncated = true;
    return HT_OK;
}

/* ---- the scorer ---- */

static ht_status find_token(const ht_model *m, const char *text, int64_t *out, ht_error *err) {
    *out = ht_tokenizer_find(m->tokenizer, text);
    if (*out >= 0 && *out < m->vocab) return HT_OK;
    return ht_fail(err, HT_ERR_UNSUPPORTED, "the model cannot rerank: its vocabulary has no token \"%s\"", text);
}

static ht_status choose_scorer(reranker *r, ht_error *err) {
    const ht_modules *m = &r->model->modules;
    const int64_t outputs = ht_dense_width(&m->classifier, 0);
    r->yes = m->yes_token;
    r->no = m->no_token;
    if (m->classifier.n) {
        r->classifier = &m->classifier;
        r->pooling = HT_POOLING_LAST; /* a decoder's last token has attended to all others */
        if (outputs == 1 || (outputs == 2 && m->yes_and_no)) return HT_OK;
        return ht_fail(err, HT_ERR_UNSUPPORTED,
                       "the model's classifier has %lld outputs; rerankers have one, or those of \"yes\" and \"no\"",
                       (long long)outputs);
    }
    if (r->yes >= 0) return HT_OK;
    const ht_status status = find_token(r->model, "yes", &r->yes, err);
    return status ? status : find_token(r->model, "no", &r->no, err);
}

/* Takes the hidden state, or the logits, after the last token of documents with the same prompt; on a thread of the
 * step. */
static void take_row(void *user, const float *x, int64_t position, const int32_t *sequence, int32_t n, float *scratch) {
    reranker *r = user;
    (void)scratch;
    for (int32_t i = 0; i < n; i++) {
        pair *p = &r->pair[sequence[i]];
        if (r->classifier)
            ht_pooling_add(&p->pooled, x, position);
        else
            p->logit = (double)x[r->yes] - (r->no >= 0 ? (double)x[r->no] : 0);
    }
}

/* The classifier's logit; false when memory ran out. */
static bool classify(const reranker *r, pair *p) {
    ht_pooling_end(&p->pooled);
    if (!p->pooled.value || !ht_dense_apply(r->classifier, &p->pooled.value)) return false;
    p->logit = p->pooled.value[0] - (ht_dense_width(r->classifier, 0) == 2 ? p->pooled.value[1] : 0);
    return true;
}

static void finish(reranker *r, pair *p) {
    ht_error err = {0};
    if (r->classifier && !classify(r, p))
        ht_fail_memory(&err, sizeof *p, "a score");
    else if (!isfinite(p->logit))
        ht_fail(&err, HT_ERR_INTERNAL, "the logit of its relevance is %g", p->logit);
    r->result->document[p->index] = (ht_relevance){.message = "",
                                                   .truncated = p->truncated,
                                                   .n_tokens = (int64_t)p->ids.n,
                                                   .logit = p->logit,
                                                   .score = 1 / (1 + exp(-p->logit))};
    if (err.status) fail_document(r, p->index, &err);
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
    for (int32_t i = r->first_open; i < r->n_pairs; i++) {
        pair *p = &r->pair[i];
        if (p->ended || !r->sequence[i].done) continue;
        finish(r, p);
        end(r, p);
    }
    while (r->first_open < r->n_pairs && r->pair[r->first_open].ended) r->first_open++;
    if (r->o.progress) r->o.progress((double)r->done / (double)r->n, r->o.user);
    return true;
}

static ht_status read_document(reranker *r, size_t i, pair *p, ht_error *err) {
    ht_ids ids;
    ht_status status = encode(r, r->documents[i], &ids, err);
    if (!status) status = truncate(r, &ids, p, err);
    if (!status) {
        const ht_prompt prompt = {.ids = ids.id, .n_ids = ids.n};
        status = ht_prompt_encode(r->model, &prompt, 0, &p->ids, NULL, err);
    }
    ht_ids_free(ids.id);
    return status;
}

/* Documents that are no prompts have failed; of the others the pairs. */
static ht_status read_documents(reranker *r, ht_error *err) {
    r->pair = calloc(r->n + 1, sizeof *r->pair);
    r->sequence = calloc(r->n + 1, sizeof *r->sequence);
    if (!r->pair || !r->sequence) return ht_fail_memory(err, r->n * sizeof *r->pair, "documents");
    for (size_t i = 0; i < r->n; i++) {
        ht_error own = {0};
        pair *p = &r->pair[r->n_pairs];
        if (read_document(r, i, p, &own)) {
            fail_document(r, i, &own);
            r->done++;
            continue;
        }
        const int64_t n = (int64_t)p->ids.n;
        p->index = i;
        p->pooled = (ht_pooling_state){.pooling = r->pooling, .hidden = (int32_t)r->model->config->hidden, .n = n};
        r->sequence[r->n_pairs++] = (ht_prefill_sequence){
            .token = p->ids.id, .n = n, .first_out = r->classifier ? ht_pooling_first(&p->pooled) : n - 1};
    }
    return HT_OK;
}

static ht_status compute(reranker *r, ht_error *err) {
    const ht_prefill_calls calls = {.row = take_row, .failed = take_failure, .stepped = after_step, .user = r};
    const ht_prefill_options how = {.adapters = r->o.adapters,
                                    .adapter_scales = r->o.adapter_scales,
                                    .n_adapters = r->o.n_adapters,
                                    .hidden = r->classifier != NULL};
    ht_prefill *p;
    ht_status status = ht_prefill_new(r->model, &how, &p, err);
    if (status) return status;
    status = ht_prefill_run(p, r->sequence, r->n_pairs, &calls, r->o.cancel, err);
    ht_prefill_free(p);
    if (status != HT_ERR_CANCELLED) return status;
    return ht_fail(err, status, "cancelled after %zu of %zu document%s", r->done, r->n, ht_plural(r->n));
}

/* ---- the call ---- */

static void free_reranker(reranker *r) {
    for (int32_t i = 0; i < r->n_pairs; i++) {
        ht_ids_free(r->pair[i].ids.id);
        ht_pooling_free(&r->pair[i].pooled);
    }
    free(r->pair);
    free(r->sequence);
    ht_ids_free(r->without.id);
    ht_chat_template_free(r->own_prompt);
}

static ht_status check(reranker *r, ht_error *err) {
    ht_status status = ht_model_need_tokenizer(r->model, err);
    if (status) return status;
    if (!ht_utf8_valid(r->query, strlen(r->query))) return ht_fail(err, HT_ERR_ARGUMENT, "the query is not UTF-8");
    if (r->o.instruction && !ht_utf8_valid(r->o.instruction, strlen(r->o.instruction)))
        return ht_fail(err, HT_ERR_ARGUMENT, "the instruction is not UTF-8");
    if (r->o.n_adapters < 0) return ht_fail(err, HT_ERR_ARGUMENT, "%d adapters, expected 0 or more", r->o.n_adapters);
    if (r->o.document_tokens < 0)
        return ht_fail(err, HT_ERR_ARGUMENT, "documents of %lld tokens, expected 0 or more",
                       (long long)r->o.document_tokens);
    if (r->n > INT32_MAX)
        return ht_fail(err, HT_ERR_LIMIT, "%zu document%s, at most %d", r->n, ht_plural(r->n), INT32_MAX);
    status = choose_prompt(r, err);
    return status ? status : choose_scorer(r, err);
}

ht_status ht_rerank(ht_model *m, const char *query, const char *const *documents, size_t n,
                    const ht_rerank_options *options, ht_ranking **out, ht_error *err) {
    reranker r = {.model = m, .query = query, .documents = documents, .n = n};
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
