#include "serve/prompts.h"

#include "base/grow.h"
#include "base/plural.h"
#include "formats/json.h"

#include <stdlib.h>
#include <string.h>

/* ---- lists of ids ---- */

bool serve_ids_append(serve_ids *to, const int32_t *ids, size_t n, serve_failure *f) {
    if (n > SIZE_MAX - to->n || !HT_GROW(to->id, to->capacity, to->n + n)) return serve_fail_memory(f);
    if (n) memcpy(to->id + to->n, ids, n * sizeof *ids);
    to->n += n;
    return true;
}

bool serve_ids_append_text(serve_call *c, serve_ids *to, const char *text, unsigned flags, const char *member) {
    ht_error err = {0};
    int32_t *ids = NULL;
    size_t n = 0;
    const ht_tokenizer *t = ht_model_tokenizer(c->lease.model);
    if (!t) return serve_fail(&c->failure, 400, member, "the model has no tokenizer: give it token ids");
    const ht_status status = ht_tokenizer_encode(t, text, strlen(text), flags, &ids, &n, &err);
    const bool good = status ? serve_fail_as(&c->failure, status, &err) : serve_ids_append(to, ids, n, &c->failure);
    ht_ids_free(ids);
    return good;
}

/* ---- prompts of requests ---- */

static bool append_id(serve_call *c, serve_ids *to, const ht_json *value, const char *member) {
    int64_t id;
    const int32_t vocab = ht_model_vocab_size(c->lease.model);
    if (!ht_json_whole(value, &id))
        return serve_fail(&c->failure, 400, member, "\"%s\" must be a string, token ids, or a list of these", member);
    if (id < 0 || id >= vocab)
        return serve_fail(&c->failure, 400, member, "\"%s\": %lld is no token of the model, which has %d", member,
                          (long long)id, (int)vocab);
    return serve_ids_append(to, &(int32_t){(int32_t)id}, 1, &c->failure);
}

bool serve_read_prompt(serve_call *c, const ht_json *value, const char *member, serve_prompt *out) {
    const bool list = ht_json_is_array(value);
    const size_t n = list ? ht_json_array_size(value) : 1;
    serve_ids ids = {0};
    bool good = true;
    for (size_t i = 0; good && i < n; i++) {
        const ht_json *item = list ? ht_json_array_get(value, i) : value;
        /* The first text gets the special tokens that begin a sequence. */
        good = ht_json_is_string(item) ? serve_ids_append_text(c, &ids, ht_json_string_value(item),
                                                               ids.n ? HT_ENCODE_PARSE_SPECIAL : SERVE_BEGINS, member)
                                       : append_id(c, &ids, list ? item : NULL, member);
    }
    out->ids = ids.id;
    out->n_ids = ids.n;
    if (!good) return false;
    return ids.n ? true : serve_fail(&c->failure, 400, member, "\"%s\" has no tokens", member);
}

static const serve_shape piece_shape = {.types = SERVE_JSON_TEXT | SERVE_JSON_INTEGER, .low = 0, .high = INT32_MAX};
const serve_shape serve_prompt_shape = {.types = SERVE_JSON_TEXT | SERVE_JSON_INTEGER | SERVE_JSON_LIST,
                                        .low = 0,
                                        .high = INT32_MAX,
                                        .fewest = 1,
                                        .item = &piece_shape};

/* Whether a list is one prompt: ids, possibly mixed with texts. A list of texts, or of lists, is several. */
static bool is_one(const ht_json *prompt) {
    bool ids = !ht_json_is_array(prompt);
    for (size_t i = 0; i < ht_json_array_size(prompt) && !ids; i++)
        ids = ht_json_is_number(ht_json_array_get(prompt, i));
    return ids;
}

bool serve_read_prompts(serve_generation *g, const char *member, serve_read_prompt_fn *read) {
    enum { MOST_ANSWERS = 4096 };
    serve_call *c = g->c;
    const ht_json *prompt = serve_member(c->body, member);
    const bool one = is_one(prompt);
    const size_t n = one ? 1 : ht_json_array_size(prompt);
    if (n > SERVE_MOST_PROMPTS || (int64_t)n * g->n > MOST_ANSWERS)
        return serve_fail(&c->failure, 400, member,
                          "%zu prompt%s with %d answer%s each, at most %d prompts and %d answers are taken", n,
                          ht_plural(n), (int)g->n, ht_plural(g->n), SERVE_MOST_PROMPTS, MOST_ANSWERS);
    if (!serve_generation_prompts(g, n)) return false;
    for (size_t i = 0; i < n; i++)
        if (!read(c, one ? prompt : ht_json_array_get(prompt, i), member, &g->prompt[i])) return false;
    return true;
}

/* ---- fill-in-the-middle ---- */

/* The last two precede a repository's name and each file's name. */
enum { PREFIX, SUFFIX, MIDDLE, REPOSITORY, FILE_NAME, MARKS };

/* Ids of the fill-in-the-middle tokens; -1: the vocabulary lacks one. */
typedef struct marks {
    int32_t id[MARKS];
    bool suffix_first; /* the suffix comes before the prefix, and no token marks the middle */
} marks;

/* Token texts by model family, as vocabularies store them. */
static const struct form {
    const char *piece[MARKS];
    bool suffix_first;
} forms[] = {
    {{"<|fim_prefix|>", "<|fim_suffix|>", "<|fim_middle|>", "<|repo_name|>", "<|file_sep|>"}, false}, /* Qwen, Gemma */
    {{"<fim_prefix>", "<fim_suffix>", "<fim_middle>", "<repo_name>", "<file_sep>"}, false},           /* StarCoder 2 */
    {{"<fim-prefix>", "<fim-suffix>", "<fim-middle>", "<reponame>", "<filename>"}, false},            /* SantaCoder */
    {{"<|code_prefix|>", "<|code_suffix|>", "<|code_middle|>", NULL, NULL}, false},                   /* GLM */
    {{"▁<PRE>", "▁<SUF>", "▁<MID>", NULL, NULL}, false},                                              /* Code Llama */
    {{"<PRE>", "<SUF>", "<MID>", NULL, NULL}, false},
    {{"<｜fim▁begin｜>", "<｜fim▁hole｜>", "<｜fim▁end｜>", NULL, NULL}, false}, /* DeepSeek */
    {{"[PREFIX]", "[SUFFIX]", NULL, NULL, NULL}, true},                          /* Codestral */
};

/* False when the vocabulary lacks these tokens. */
static bool marks_of(const ht_tokenizer *t, marks *out) {
    for (const struct form *k = forms; k < forms + sizeof forms / sizeof *forms; k++) {
        out->suffix_first = k->suffix_first;
        for (int i = 0; i < MARKS; i++) out->id[i] = k->piece[i] ? ht_tokenizer_find(t, k->piece[i]) : -1;
        if (out->id[PREFIX] >= 0 && out->id[SUFFIX] >= 0 && (out->id[MIDDLE] >= 0 || out->suffix_first)) return true;
    }
    return false;
}

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
    if (w->good && text && *text) w->good = serve_ids_append_text(w->c, &w->ids, text, 0, w->member);
}

/* The special tokens that begin a sequence. */
static void begin(writer *w) {
    serve_ids ids = {0};
    w->good = serve_ids_append_text(w->c, &ids, "", SERVE_BEGINS, w->member);
    const int32_t bos = ht_tokenizer_bos(ht_model_tokenizer(w->c->lease.model));
    if (ids.n && ids.id[0] == bos) mark(w, bos);
    free(ids.id);
}

/* Writes other files with the model's tokens for them, or else as snippets. */
static void files(writer *w, const marks *m, const serve_infill *in) {
    if (!in->n_files) return;
    mark(w, m->id[REPOSITORY]);
    if (m->id[REPOSITORY] >= 0) text(w, "project\n");
    for (size_t i = 0; i < in->n_files; i++) {
        const serve_infill_file *f = &in->file[i];
        if (m->id[FILE_NAME] >= 0) {
            mark(w, m->id[FILE_NAME]);
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
    mark(w, m->id[FILE_NAME]);
    if (m->id[FILE_NAME] >= 0) text(w, "filename\n");
}

bool serve_has_infill(const ht_tokenizer *t) {
    marks m;
    return marks_of(t, &m);
}

bool serve_infill_prompt(serve_call *c, const serve_infill *in, const char *member, serve_prompt *out) {
    marks m;
    const ht_tokenizer *t = ht_model_tokenizer(c->lease.model);
    writer w = {.c = c, .member = member};
    if (!t || !marks_of(t, &m))
        return serve_fail(
            &c->failure, 400, member,
            "the model \"%.128s\" does not support insert: its vocabulary has no fill-in-the-middle tokens",
            c->lease.name);
    begin(&w);
    files(&w, &m, in);
    if (m.suffix_first) {
        mark(&w, m.id[SUFFIX]);
        text(&w, in->suffix);
    }
    mark(&w, m.id[PREFIX]);
    text(&w, in->prefix);
    text(&w, in->line);
    if (!m.suffix_first) {
        mark(&w, m.id[SUFFIX]);
        text(&w, in->suffix);
        mark(&w, m.id[MIDDLE]);
    }
    out->ids = w.ids.id;
    out->n_ids = w.ids.n;
    return w.good;
}
