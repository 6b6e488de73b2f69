/* Reranking in the forms of Jina, Cohere and llama-server, which agree in names; and of text-embeddings-inference, whose
 * documents are "texts". */
#include "serve/embeddings.h"
#include "serve/endpoints.h"

#include <hearth/rerank.h>

#include <stdlib.h>

static const serve_field document_fields[] = {{"text", .is = SERVE_IS_TEXT, .required = true}, {0}};
static const serve_shape document = {
    .types = SERVE_JSON_TEXT | SERVE_JSON_OBJECT, .members = document_fields, .lenient = true};
#define DOCUMENTS(shape)                                                                                               \
    { .types = SERVE_JSON_LIST, .fewest = 1, .most = SERVE_MOST_INPUTS, .item = (shape) }

const serve_field serve_rerank_fields[] = {
    {"model", .is = SERVE_IS_TEXT},
    {"query", .is = {.types = SERVE_JSON_TEXT, .filled = true}, .required = true},
    {"documents", .is = DOCUMENTS(&document)},
    {"texts", .is = DOCUMENTS(&serve_any_text)},
    {"top_n", .is = SERVE_IS_INTEGER(1, INT32_MAX)},
    {"return_documents", .is = SERVE_IS_FLAG},
    {"return_text", .is = SERVE_IS_FLAG},
    {"raw_scores", .is = SERVE_IS_FLAG},
    {"max_tokens_per_doc", .is = SERVE_IS_INTEGER(1, INT32_MAX)},
    {"truncate", .is = SERVE_IS_FLAG},
    {"instruction", .is = SERVE_IS_TEXT},
    SERVE_NOTED_FIELDS("user", "priority", "max_chunks_per_doc", "truncation_direction"),
    SERVE_LACKED_FIELDS("rank_fields"),
    {0}};

/* Lent. */
static const char *text_of(const ht_json *item) {
    return ht_json_is_string(item) ? ht_json_string_value(item) : serve_text(item, "text");
}

/* The ranking of documents that have all been scored; NULL: a failure. */
static ht_ranking *rank(serve_call *c, const char *const *texts, size_t n) {
    ht_ranking *r = NULL;
    ht_error err = {0};
    ht_rerank_options o;
    ht_rerank_options_init(&o, sizeof o);
    o.instruction = serve_filled_text(c->body, "instruction");
    o.document_tokens = serve_integer(c->body, "max_tokens_per_doc", 0);
    o.truncate = serve_flag(c->body, "truncate", false);
    o.cancel = serve_call_cancel(c);
    if (!o.cancel) return NULL;
    if (c->lease.adapter) {
        o.adapters = &c->lease.adapter;
        o.adapter_scales = &c->lease.scale;
        o.n_adapters = 1;
    }
    const ht_status status = ht_rerank(c->lease.model, serve_text(c->body, "query"), texts, n, &o, &r, &err);
    if (status == HT_ERR_UNSUPPORTED) { /* the request may not have named the model */
        const ht_error why = err;
        snprintf(err.message, sizeof err.message, "%.128s: %.600s", c->lease.name, why.message);
    }
    if (status) serve_fail_as(&c->failure, status, &err);
    for (size_t i = 0; r && i < n; i++) {
        atomic_fetch_add(&c->server->metrics.prompt_tokens, r->documents[i].n_tokens);
        if (!r->documents[i].status) continue;
        snprintf(err.message, sizeof err.message, "document %zu: %.700s%s", i, r->documents[i].message,
                 r->documents[i].status == HT_ERR_LIMIT && !o.truncate ? "; \"truncate\": true drops its end" : "");
        serve_fail_as(&c->failure, r->documents[i].status, &err);
        ht_ranking_free(r);
        return NULL;
    }
    return r;
}

/* ---- responses ---- */

static void report_truncated(serve_call *c, const ht_ranking *r) {
    bool any = false;
    for (size_t i = 0; i < r->n; i++) any |= r->documents[i].truncated;
    if (any) serve_call_ignore(c, "the end of long documents");
}

/* The best, at most "top_n". `score` is the name of that field; `text`: as "text", else as "document". */
static ht_json *results_json(const serve_call *c, const ht_ranking *r, const char *const *texts, const char *score,
                             bool text) {
    const bool raw = serve_flag(c->body, "raw_scores", false),
               whole = serve_flag(c->body, text ? "return_text" : "return_documents", false);
    const int64_t most = serve_integer(c->body, "top_n", INT32_MAX);
    ht_json *list = ht_json_new_array();
    for (size_t i = 0; i < r->n && (int64_t)i < most; i++) {
        const size_t which = r->order[i];
        const ht_relevance *found = &r->documents[which];
        ht_json *one = ht_json_pack("{sI sf}", "index", (int64_t)which, score, raw ? found->logit : found->score);
        if (whole && text) ht_json_object_set_new(one, "text", ht_json_string(texts[which]));
        if (whole && !text) ht_json_object_set_new(one, "document", ht_json_pack("{ss}", "text", texts[which]));
        ht_json_array_append_new(list, one);
    }
    return list;
}

static ht_json *response_json(const serve_call *c, const ht_ranking *r, const char *const *texts) {
    char id[SERVE_ID];
    int64_t tokens = 0;
    for (size_t i = 0; i < r->n; i++) tokens += r->documents[i].n_tokens;
    serve_new_id("rerank-", id);
    return ht_json_pack("{ss ss ss so s{sI sI}}", "id", id, "object", "list", "model", c->lease.name, "results",
                        results_json(c, r, texts, "relevance_score", false), "usage", "prompt_tokens", tokens,
                        "total_tokens", tokens);
}

bool serve_rerank(serve_call *c) {
    const ht_json *texts = serve_member(c->body, "texts"), *documents = serve_member(c->body, "documents");
    const ht_json *given = documents ? documents : texts;
    if (!given || (texts && documents))
        return serve_fail(&c->failure, 400, "documents",
                          "\"documents\" must be a list of strings or of {\"text\": ...}%s",
                          given ? "; \"texts\" is for requests without it" : "");
    const size_t n = ht_json_array_size(given);
    const char **list = calloc(n, sizeof *list);
    if (!list) return serve_fail_memory(&c->failure);
    for (size_t i = 0; i < n; i++) list[i] = text_of(ht_json_array_get(given, i));
    ht_ranking *r = rank(c, list, n);
    if (r) {
        report_truncated(c, r);
        serve_reply_json(c->x, 200, documents ? response_json(c, r, list) : results_json(c, r, list, "score", true),
                         SERVE_OPENAI);
    }
    ht_ranking_free(r);
    free(list);
    return r != NULL;
}
