/* hearth embed: embeds texts and writes the vectors as text, JSON or a NumPy file. */
#include "command.h"
#include "engine.h"
#include "fail.h"
#include "input.h"
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

/* Input texts: command-line words, lines of a file, or ids. */
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

/* The ids of --ids are one text. */
static ht_status read_ids(const options *o, text_list *t, ht_error *err) {
    id_list list = {0};
    ht_status st = ids_read(o->ids, &list, err);
    if (st == HT_ERR_ARGUMENT) ht_fail_in(err, st, "--ids");
    t->lines = calloc(2, sizeof *t->lines);
    t->ids = calloc(2, sizeof *t->ids);
    t->n_ids = calloc(2, sizeof *t->n_ids);
    if (!st && !(t->lines && t->ids && t->n_ids)) st = fail_memory(err, "the ids");
    if (st) {
        free(list.ids);
        return st;
    }
    t->ids[0] = list.ids;
    t->n_ids[0] = list.n;
    t->n = t->n_of_ids = 1;
    return HT_OK;
}

static ht_status read_texts(const options *o, text_list *t, ht_error *err) {
    if (o->prompts) return read_lines(o, t, err);
    if (o->ids) return read_ids(o, t, err);
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
        how.prompt = o->prompt_name;
        how.dimensions = o->dimensions;
        how.truncate = o->truncate;
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

/* Vectors of a text: those of its tokens without pooling, of which a text that failed has none. */
static int64_t vectors_of(const result *r, const ht_embedding *e) {
    if (r->pooling != HT_POOLING_NONE) return 1;
    return e->status ? 0 : e->n_tokens;
}

static ht_status write_npy(const char *path, const result *r, ht_error *err) {
    const ht_embeddings *e = r->vectors;
    const float *zeros = e->values; /* of pooled texts that failed */
    ht_npy_writer *w;
    int64_t rows = 0;
    for (size_t i = 0; i < e->n; i++) rows += vectors_of(r, &e->embeddings[i]);
    ht_status st = ht_npy_writer_new(path, rows, e->hidden, &w, err);
    if (st) return st;
    for (size_t i = 0; i < e->n && !st; i++) {
        const ht_embedding *one = &e->embeddings[i];
        const float *values = one->values ? one->values : zeros + i * (size_t)e->hidden;
        if (vectors_of(r, one)) st = ht_npy_writer_put(w, values, vectors_of(r, one), err);
    }
    if (!st) st = ht_npy_writer_commit(w, err);
    ht_npy_writer_free(w);
    return st;
}

/* A vector, or without pooling a list of them. */
static ht_json *vectors_json(const result *r, const ht_embedding *e, int32_t hidden) {
    if (r->pooling != HT_POOLING_NONE) return json_floats(e->values, (size_t)hidden);
    ht_json *rows = ht_json_new_array();
    for (int64_t t = 0; rows && t < e->n_tokens; t++)
        rows = json_appended(rows, json_floats(e->values + t * hidden, (size_t)hidden));
    return rows;
}

static ht_json *json_of(const options *o, const result *r, const ht_embedding *e, int32_t hidden) {
    if (e->status) return ht_json_pack("{so}", "error", ht_json_stringn(e->message, strlen(e->message)));
    ht_json *value = ht_json_pack("{sI}", "tokens", (int64_t)e->n_tokens);
    if (o->out || !value) return value;
    return json_merge(value, ht_json_pack("{so}", "embedding", vectors_json(r, e, hidden)));
}

static void print_json(const options *o, text_list *t, const result *r) {
    const ht_embeddings *e = r->vectors;
    ht_json *texts = ht_json_new_array();
    bool whole = texts != NULL;
    for (size_t i = 0; whole && i < e->n; i++) {
        ht_json *one = json_of(o, r, &e->embeddings[i], e->hidden), *id = t->file.file ? prompts_id(&t->file, i) : NULL;
        whole = (!id || ht_json_object_set(one, "id", id) == 0) && ht_json_array_append_new(texts, one) == 0;
        ht_json_decref(id);
    }
    ht_json *value = NULL;
    if (whole)
        value = ht_json_pack("{so ss sb si sO so*}", "model", ht_json_string(o->model), "pooling",
                             ht_pooling_name(r->pooling), "normalized", !o->no_normalize, "hidden", (int)e->hidden,
                             "texts", texts, "out", ht_json_string(o->out));
    ht_json_decref(texts);
    json_output(value);
}

static void print_vector(const float *values, int32_t n) {
    char number[32];
    for (int32_t d = 0; values && d < n; d++) {
        const int length = snprintf(number, sizeof number, "%s%.9g", d ? " " : "", (double)values[d]);
        output_write(number, (size_t)length);
    }
    output_write("\n", 1);
}

/* Prints an empty line for a failed text, so that output lines match input lines. */
static void print_text(const result *r) {
    const ht_embeddings *e = r->vectors;
    for (size_t i = 0; i < e->n; i++) {
        const ht_embedding *one = &e->embeddings[i];
        const int64_t lines = one->values ? vectors_of(r, one) : 1;
        for (int64_t t = 0; t < lines; t++) print_vector(one->values ? one->values + t * e->hidden : NULL, e->hidden);
    }
}

static int show(const options *o, text_list *t, const result *r, ht_error *err) {
    const ht_embeddings *e = r->vectors;
    for (size_t i = 0; i < e->n; i++) {
        if (!e->embeddings[i].status) continue;
        ht_error why = {.status = e->embeddings[i].status};
        snprintf(why.message, sizeof why.message, "text %zu: %s%s", i + 1, e->embeddings[i].message,
                 why.status == HT_ERR_LIMIT ? "; --truncate drops its end" : "");
        report(&why);
    }
    if (o->out && write_npy(o->out, r, err)) return report(err);
    if (o->json) print_json(o, t, r);
    if (!o->json && !o->out) print_text(r);
    return e->n_failed ? EXIT_FAILED : EXIT_OK;
}

int embed_command(const options *o) {
    const char *from = o->prompts ? "--prompts" : o->ids ? "--ids" : NULL;
    if (!from && !o->arguments.n) return usage_error(o, "TEXT or --prompts FILE is needed");
    if (from && o->arguments.n) return usage_error(o, "%s and TEXT exclude each other", from);
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
