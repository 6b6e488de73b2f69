#include "serve/infill.h"

#include <stdlib.h>
#include <string.h>

/* ---- marks ---- */

/* Marks by the stored forms of their tokens, as families have them. */
typedef struct form {
    const char *prefix, *suffix, *middle, *repository, *file;
    bool suffix_first;
} form;

static const form forms[] = {
    {"<|fim_prefix|>", "<|fim_suffix|>", "<|fim_middle|>", "<|repo_name|>", "<|file_sep|>", false}, /* Qwen, Gemma */
    {"<fim_prefix>", "<fim_suffix>", "<fim_middle>", "<repo_name>", "<file_sep>", false},           /* StarCoder 2 */
    {"<fim-prefix>", "<fim-suffix>", "<fim-middle>", "<reponame>", "<filename>", false},            /* SantaCoder */
    {"<|code_prefix|>", "<|code_suffix|>", "<|code_middle|>", NULL, NULL, false},                   /* GLM */
    {"▁<PRE>", "▁<SUF>", "▁<MID>", NULL, NULL, false},                                              /* Code Llama */
    {"<PRE>", "<SUF>", "<MID>", NULL, NULL, false},
    {"<｜fim▁begin｜>", "<｜fim▁hole｜>", "<｜fim▁end｜>", NULL, NULL, false}, /* DeepSeek */
    {"[PREFIX]", "[SUFFIX]", NULL, NULL, NULL, true},                          /* Codestral */
};

static int32_t find(const ht_tokenizer *t, const char *piece) { return piece ? ht_tokenizer_find(t, piece) : -1; }

bool serve_infill_marks_of(const ht_tokenizer *t, serve_infill_marks *out) {
    for (size_t i = 0; i < sizeof forms / sizeof *forms; i++) {
        const form *k = &forms[i];
        *out = (serve_infill_marks){.prefix = find(t, k->prefix),
                                    .suffix = find(t, k->suffix),
                                    .middle = find(t, k->middle),
                                    .repository = find(t, k->repository),
                                    .file = find(t, k->file),
                                    .suffix_first = k->suffix_first};
        if (out->prefix >= 0 && out->suffix >= 0 && (out->middle >= 0 || out->suffix_first)) return true;
    }
    return false;
}

/* ---- prompts ---- */

typedef struct writer {
    serve_call *c;
    const char *member;
    serve_ids ids;
    bool good;
} writer;

static void mark(writer *w, int32_t id) {
    if (w->good && id >= 0) w->good = serve_ids_append(&w->ids, &id, 1, &w->c->failure);
}

static void text(writer *w, const char *text) {
    if (w->good && text && *text) w->good = serve_ids_append_text(w->c, &w->ids, text, false, w->member);
}

/* The special tokens that begin a sequence. */
static void begin(writer *w) {
    int32_t *ids = NULL;
    size_t n = 0;
    w->good = serve_encode_text(w->c, "", true, w->member, &ids, &n);
    const int32_t bos = ht_tokenizer_bos(ht_model_tokenizer(w->c->lease.model));
    if (n && ids[0] == bos) mark(w, bos);
    ht_ids_free(ids);
}

/* Other files, by the marks that the model knows; or as snippets where it knows none. */
static void files(writer *w, const serve_infill_marks *m, const serve_infill *in) {
    if (!in->n_files) return;
    mark(w, m->repository);
    if (m->repository >= 0) text(w, "project\n");
    for (size_t i = 0; i < in->n_files; i++) {
        const serve_infill_file *f = &in->file[i];
        if (m->file >= 0) {
            mark(w, m->file);
            text(w, f->name);
            text(w, "\n");
            text(w, f->text);
        } else {
            text(w, "\n\n--- ");
            text(w, f->name);
            text(w, " ---\n\n");
            text(w, f->text);
        }
    }
    mark(w, m->file);
    if (m->file >= 0) text(w, "filename\n");
}

bool serve_infill_prompt(serve_call *c, const serve_infill *in, const char *member, serve_prompt *out) {
    serve_infill_marks m;
    const ht_tokenizer *t = ht_model_tokenizer(c->lease.model);
    writer w = {.c = c, .member = member};
    if (!t || !serve_infill_marks_of(t, &m))
        return serve_fail(
            &c->failure, 400, member,
            "the model \"%.128s\" does not support insert: its vocabulary has no fill-in-the-middle tokens",
            c->lease.name);
    begin(&w);
    files(&w, &m, in);
    if (m.suffix_first) {
        mark(&w, m.suffix);
        text(&w, in->suffix);
    }
    mark(&w, m.prefix);
    text(&w, in->prefix);
    text(&w, in->line);
    if (!m.suffix_first) {
        mark(&w, m.suffix);
        text(&w, in->suffix);
        mark(&w, m.middle);
    }
    out->ids = w.ids.id;
    out->n_ids = w.ids.n;
    return w.good;
}
