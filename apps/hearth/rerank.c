/* hearth rerank: sorts documents by their relevance to a query. */
#include "command.h"
#include "engine.h"
#include "fail.h"
#include "json.h"
#include "prompts.h"
#include "terminal.h"

#include <hearth/rerank.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { EXPECTED_TOKENS = 1024 };

typedef struct document_list {
    prompt_file file;
    char **text; /* [file.n] */
} document_list;

static ht_status read_documents(const options *o, document_list *d, ht_error *err) {
    ht_status st = prompts_open(o->documents, &d->file, err);
    if (st) return st;
    d->text = calloc(d->file.n + 1, sizeof *d->text);
    if (!d->text) return fail_memory(err, "the documents");
    for (size_t i = 0; i < d->file.n && !st; i++) st = prompts_read_text(&d->file, i, &d->text[i], err);
    return st;
}

static void free_documents(document_list *d) {
    for (size_t i = 0; d->text && i < d->file.n; i++) free(d->text[i]);
    free(d->text);
    prompts_close(&d->file);
}

static ht_status rank(const options *o, const document_list *d, ht_ranking **out, ht_error *err) {
    engine e = {0};
    progress computing;
    ht_status st = engine_open_model(&e, o, EXPECTED_TOKENS, err);
    if (!st) {
        progress_begin(&computing, "computing", o->quiet);
        ht_rerank_options how;
        ht_rerank_options_init(&how, sizeof how);
        how.instruction = o->instruction;
        how.truncate = o->truncate;
        how.adapters = e.adapters.adapter;
        how.adapter_scales = e.adapters.scale;
        how.n_adapters = e.adapters.n;
        how.cancel = interrupt_flag();
        how.progress = progress_show;
        how.user = &computing;
        st = ht_rerank(e.model, o->query, (const char *const *)d->text, d->file.n, &how, out, err);
        progress_end(&computing);
        if (st == HT_ERR_CANCELLED) ht_fail(err, st, "interrupted: there is no result");
    }
    engine_close(&e);
    return st;
}

/* ---- the result ---- */

/* Documents to print: the best, at most --top-n, without those that failed. */
static size_t count_shown(const options *o, const ht_ranking *r) {
    const size_t n = r->n - r->n_failed;
    return o->top_n && (uint64_t)o->top_n < n ? (size_t)o->top_n : n;
}

static ht_json *result_json(document_list *d, const ht_ranking *r, size_t i) {
    const ht_relevance *found = &r->documents[i];
    ht_json *value = ht_json_pack("{sI sf sf sI so}", "index", (int64_t)i, "score", found->score, "logit", found->logit,
                                  "tokens", found->n_tokens, "text", ht_json_string(d->text[i])),
            *id = prompts_id(&d->file, i);
    if (value && id && ht_json_object_set(value, "id", id)) {
        ht_json_decref(value);
        value = NULL;
    }
    ht_json_decref(id);
    return value;
}

static void print_json(const options *o, document_list *d, const ht_ranking *r) {
    ht_json *results = ht_json_new_array(), *failed = ht_json_new_array();
    for (size_t i = 0; i < count_shown(o, r); i++) results = json_appended(results, result_json(d, r, r->order[i]));
    for (size_t i = r->n - r->n_failed; i < r->n; i++) {
        const ht_relevance *one = &r->documents[r->order[i]];
        failed = json_appended(failed, ht_json_pack("{sI so}", "index", (int64_t)r->order[i], "error",
                                                    ht_json_stringn(one->message, strlen(one->message))));
    }
    json_output(ht_json_pack("{so so so so}", "model", ht_json_string(o->model), "query", ht_json_string(o->query),
                             "results", results, "failed", failed));
}

static void print_text(const options *o, const document_list *d, const ht_ranking *r) {
    char start[64];
    for (size_t i = 0; i < count_shown(o, r); i++) {
        const size_t which = r->order[i];
        const int n = snprintf(start, sizeof start, "%.4f\t%zu\t", r->documents[which].score, which);
        output_write(start, (size_t)n);
        output_text(d->text[which], strlen(d->text[which]));
        output_write("\n", 1);
    }
}

static int show(const options *o, document_list *d, const ht_ranking *r) {
    for (size_t i = 0; i < r->n; i++) {
        if (!r->documents[i].status) continue;
        ht_error why = {.status = r->documents[i].status};
        snprintf(why.message, sizeof why.message, "document %zu: %s%s", i, r->documents[i].message,
                 why.status == HT_ERR_LIMIT ? "; --truncate drops its end" : "");
        report(&why);
    }
    if (o->json)
        print_json(o, d, r);
    else
        print_text(o, d, r);
    return r->n_failed ? EXIT_FAILED : EXIT_OK;
}

int rerank_command(const options *o) {
    if (!o->query || !o->documents)
        return usage_error(o, "%s is needed", o->query ? "--documents FILE" : "--query TEXT");
    ht_error err = {0};
    document_list documents = {0};
    ht_ranking *ranking = NULL;
    ht_status st = read_documents(o, &documents, &err);
    if (!st) st = rank(o, &documents, &ranking, &err);
    const int status = st ? report(&err) : show(o, &documents, ranking);
    ht_ranking_free(ranking);
    free_documents(&documents);
    return output_finish(status);
}
