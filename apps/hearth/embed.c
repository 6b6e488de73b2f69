/* hearth embed: embeds texts and writes the vectors as text, JSON or a NumPy file. */
#include "command.h"
#include "engine.h"
#include "fail.h"
#include "json.h"
#include "prompts.h"
#include "terminal.h"
#include "written.h"

#include <hearth/embed.h>
#include <hearth/npy.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { EXPECTED_TOKENS = 512 };

static const char *const pooling_names[] = {"last", "mean", "cls"};

/* Input texts: command-line words or lines of a file. */
typedef struct text_list {
    const char *const *items;
    size_t n;
    prompt_file file; /* zero-initialised: none */
    char **lines;     /* [n] texts of its lines; NULL where they are ids */
    int32_t **ids;    /* [n] token ids; NULL for a line of text */
    size_t *n_ids, n_of_ids;
} text_list;

static ht_status read_lines(const options *o, text_list *t, ht_error *err) {
    prompt_line line = {0};
    ht_status st = prompts_open(o->prompts, &t->file, err);
    t->n = st ? 0 : t->file.n;
    t->lines = calloc(t->n + 1, sizeof *t->lines);
    t->ids = calloc(t->n + 1, sizeof *t->ids);
    t->n_ids = calloc(t->n + 1, sizeof *t->n_ids);
    if (!st && !(t->lines && t->ids && t->n_ids))
        return ht_fail(err, HT_ERR_MEMORY, "out of memory for %zu texts", t->n);
    for (size_t i = 0; i < t->n && !st; i++) {
        st = prompts_read(&t->file, i, o, NULL, NULL, &line, err);
        t->lines[i] = line.text;
        t->ids[i] = line.ids;
        t->n_ids[i] = line.n_ids;
        t->n_of_ids += line.ids != NULL;
        line.text = NULL;
        line.ids = NULL;
    }
    prompt_line_clear(&line);
    t->items = (const char *const *)t->lines;
    if (st || !t->n_of_ids || t->n_of_ids == t->n) return st;
    return ht_fail(err, HT_ERR_ARGUMENT, "%.300s has both texts and ids: put them into two files", t->file.path);
}

static ht_status read_texts(const options *o, text_list *t, ht_error *err) {
    if (o->prompts) return read_lines(o, t, err);
    t->items = o->arguments.items;
    t->n = (size_t)o->arguments.n;
    return HT_OK;
}

static void free_texts(text_list *t) {
    for (size_t i = 0; t->lines && t->ids && i < t->n; i++) {
        free(t->lines[i]);
        free(t->ids[i]);
    }
    free(t->lines);
    free(t->ids);
    free(t->n_ids);
    prompts_close(&t->file);
}

/* The vectors, and how they were pooled. */
typedef struct result {
    ht_embeddings *vectors;
    ht_pooling pooling;
} result;

static ht_status embed(const options *o, const text_list *t, result *out, ht_error *err) {
    engine e = {0};
    progress computing;
    ht_status st = engine_open_model(&e, o, EXPECTED_TOKENS, err);
    if (!st) {
        progress_begin(&computing, "computing", o->quiet);
        ht_embed_options how;
        ht_embed_options_init(&how, sizeof how);
        how.pooling = (ht_pooling)o->pooling;
        out->pooling = how.pooling == HT_POOLING_MODEL ? ht_model_pooling(e.model) : how.pooling;
        how.normalize = !o->no_normalize;
        how.adapters = e.adapters.adapter;
        how.adapter_scales = e.adapters.scale;
        how.n_adapters = e.adapters.n;
        how.cancel = interrupt_flag();
        how.progress = progress_show;
        how.user = &computing;
        st = t->n_of_ids
                 ? ht_embed_ids(e.model, (const int32_t *const *)t->ids, t->n_ids, t->n, &how, &out->vectors, err)
                 : ht_embed_text(e.model, t->items, t->n, &how, &out->vectors, err);
        progress_end(&computing);
        if (st == HT_ERR_CANCELLED) ht_fail(err, st, "interrupted: there is no result");
    }
    engine_close(&e);
    return st;
}

/* ---- the result ---- */

static ht_status write_npy(const char *path, const ht_embeddings *e, ht_error *err) {
    ht_npy_writer *w;
    ht_status st = ht_npy_writer_new(path, (int64_t)e->n, e->hidden, &w, err);
    if (st) return st;
    st = ht_npy_writer_put(w, e->values, (int64_t)e->n, err);
    if (!st) st = ht_npy_writer_commit(w, err);
    ht_npy_writer_free(w);
    return st;
}

static ht_json *json_of(const options *o, const ht_embedding *e, int32_t hidden) {
    if (e->status) return ht_json_pack("{so}", "error", ht_json_stringn(e->message, strlen(e->message)));
    ht_json *value = ht_json_pack("{sI}", "tokens", (int64_t)e->n_tokens);
    if (o->out || !value) return value;
    return json_merge(value, ht_json_pack("{so}", "embedding", json_floats(e->values, (size_t)hidden)));
}

static void print_json(const options *o, text_list *t, const result *r) {
    const ht_embeddings *e = r->vectors;
    ht_json *texts = ht_json_new_array();
    bool whole = texts != NULL;
    for (size_t i = 0; whole && i < e->n; i++) {
        ht_json *one = json_of(o, &e->embeddings[i], e->hidden), *id = t->file.file ? prompts_id(&t->file, i) : NULL;
        whole = (!id || ht_json_object_set(one, "id", id) == 0) && ht_json_array_append_new(texts, one) == 0;
        ht_json_decref(id);
    }
    ht_json *value = NULL;
    if (whole)
        value = ht_json_pack("{so ss sb si sO so*}", "model", ht_json_string(o->model), "pooling",
                             pooling_names[r->pooling], "normalized", !o->no_normalize, "hidden", (int)e->hidden,
                             "texts", texts, "out", ht_json_string(o->out));
    ht_json_decref(texts);
    json_output(value);
}

/* Prints an empty line for a failed text, so that output lines match input lines. */
static void print_text(const ht_embeddings *e) {
    char number[32];
    for (size_t i = 0; i < e->n; i++) {
        for (int32_t d = 0; e->embeddings[i].values && d < e->hidden; d++) {
            const int n = snprintf(number, sizeof number, "%s%.9g", d ? " " : "", (double)e->embeddings[i].values[d]);
            output_write(number, (size_t)n);
        }
        output_write("\n", 1);
    }
}

static int show(const options *o, text_list *t, const result *r, ht_error *err) {
    const ht_embeddings *e = r->vectors;
    for (size_t i = 0; i < e->n; i++) {
        if (!e->embeddings[i].status) continue;
        ht_error why = {.status = e->embeddings[i].status};
        snprintf(why.message, sizeof why.message, "text %zu: %s", i + 1, e->embeddings[i].message);
        report(&why);
    }
    if (o->out && write_npy(o->out, e, err)) return report(err);
    if (o->json) print_json(o, t, r);
    if (!o->json && !o->out) print_text(e);
    return e->n_failed ? EXIT_FAILED : EXIT_OK;
}

int embed_command(const options *o) {
    if (!o->prompts && !o->arguments.n) return usage_error(o, "TEXT or --prompts FILE is needed");
    if (o->prompts && o->arguments.n) return usage_error(o, "--prompts and TEXT exclude each other");
    ht_error err = {0};
    text_list texts = {0};
    result found = {0};
    ht_status st = read_texts(o, &texts, &err);
    if (!st && o->out) st = output_check(o, o->out, &err);
    if (!st) st = embed(o, &texts, &found, &err);
    const int status = st ? report(&err) : show(o, &texts, &found, &err);
    ht_embeddings_free(found.vectors);
    free_texts(&texts);
    return output_finish(status);
}
