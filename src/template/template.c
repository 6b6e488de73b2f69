/* Chat templates as their users see them: parsing, variables, rendering. */
#include "template/template.h"

#include "base/error.h"
#include "template/eval.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { PROGRAM_BYTES = 64 << 20 };

struct ht_chat_template {
    ht_jinja_arena arena;
    char *name, *source;
    ht_jinja_node *body;
};

ht_status ht_chat_template_parse(const char *source, size_t n, const char *name, ht_chat_template **out,
                                 ht_error *err) {
    *out = NULL;
    ht_chat_template *t = calloc(1, sizeof *t);
    if (t) t->name = strdup(name);
    if (t) t->source = malloc(n + 1);
    if (!t || !t->name || !t->source) {
        ht_chat_template_free(t);
        return ht_fail_memory(err, n, "a template");
    }
    if (n) memcpy(t->source, source, n);
    t->source[n] = '\0';
    t->arena = (ht_jinja_arena){.limit = PROGRAM_BYTES, .name = t->name, .err = err};
    t->body = ht_jinja_parse(&t->arena, source, n);
    ht_status status = t->arena.status;
    t->arena.err = NULL;
    if (status)
        ht_chat_template_free(t);
    else
        *out = t;
    return status;
}

void ht_chat_template_free(ht_chat_template *t) {
    if (!t) return;
    ht_jinja_arena_free(&t->arena);
    free(t->name);
    free(t->source);
    free(t);
}

const char *ht_chat_template_source(const ht_chat_template *t) { return t->source; }

bool ht_chat_template_mentions(const ht_chat_template *t, const char *text) { return strstr(t->source, text) != NULL; }

static ht_status hand_over(const ht_jinja_builder *b, ht_written *out, ht_error *err) {
    *out = (ht_written){malloc(b->n + 1), b->n, malloc((b->n_runs + 1) * sizeof *out->runs), b->n_runs};
    if (!out->text || !out->runs) {
        free(out->text);
        free(out->runs);
        *out = (ht_written){0};
        return ht_fail_memory(err, b->n + 1, "the text of a conversation");
    }
    if (b->n) memcpy(out->text, b->text, b->n);
    out->text[b->n] = '\0';
    if (b->n_runs) memcpy(out->runs, b->runs, b->n_runs * sizeof *out->runs);
    return HT_OK;
}

static void set_variable(ht_jinja_arena *a, ht_jinja_dict *names, const ht_template_variable *variable) {
    const char *what = variable->name ? variable->name : "the variables";
    ht_jinja_value v = ht_jinja_json_value(a, variable->json, variable->n, what);
    if (a->status) return;
    if (variable->name)
        ht_jinja_dict_set_text(a, names, variable->name, v);
    else if (v.kind == HT_VALUE_DICT)
        for (size_t i = 0; i < v.dict->n; i++) ht_jinja_dict_set(a, names, v.dict->keys[i], v.dict->values[i]);
    else
        ht_jinja_arena_fail(a, "%s are %s, not an object", what, ht_jinja_type_name(v));
}

typedef struct job {
    ht_jinja_arena arena;
    ht_jinja_dict *names;
    ht_template_limits most;
} job;

static void begin(job *j, const ht_chat_template *t, const ht_template_limits *limits, ht_error *err) {
    *j = (job){.most = limits ? *limits : (ht_template_limits){0}};
    ht_jinja_arena *a = &j->arena;
    a->limit = j->most.memory_bytes ? j->most.memory_bytes : (size_t)256 << 20;
    a->most_work = j->most.steps ? j->most.steps : 20000000;
    a->name = t->name;
    a->line = a->column = 1;
    a->err = err;
    j->names = ht_jinja_dict_new(a);
    ht_jinja_dict_set_text(a, j->names, "tools", ht_jinja_none());
    ht_jinja_dict_set_text(a, j->names, "documents", ht_jinja_none());
}

static ht_status render(job *j, const ht_chat_template *t, ht_written *out, ht_error *err) {
    ht_jinja_arena *a = &j->arena;
    ht_jinja_scope inputs = {NULL, j->names}, top = {&inputs, ht_jinja_dict_new(a)};
    ht_jinja_builder b = {.arena = a};
    ht_jinja_rendering r = {.a = a,
                            .scope = &top,
                            .out = &b,
                            .output_limit = j->most.output_bytes ? j->most.output_bytes : (size_t)64 << 20,
                            .now = j->most.now ? j->most.now : (int64_t)time(NULL)};
    *out = (ht_written){0};
    if (!a->status) ht_jinja_execute(&r, t->body);
    ht_status status = a->status ? a->status : hand_over(&b, out, err);
    ht_jinja_arena_free(a);
    return status;
}

ht_status ht_chat_template_render_within(const ht_chat_template *t, const ht_template_variable *variables, size_t n,
                                         const ht_template_limits *limits, ht_written *out, ht_error *err) {
    job j;
    begin(&j, t, limits, err);
    for (size_t i = 0; i < n && !j.arena.status; i++) set_variable(&j.arena, j.names, &variables[i]);
    return render(&j, t, out, err);
}

ht_status ht_chat_template_render_values(const ht_chat_template *t, const ht_jinja_dict *variables,
                                         const ht_template_limits *limits, ht_written *out, ht_error *err) {
    job j;
    begin(&j, t, limits, err);
    for (size_t i = 0; i < variables->n && !j.arena.status; i++)
        ht_jinja_dict_set(&j.arena, j.names, variables->keys[i], ht_jinja_copy(&j.arena, variables->values[i]));
    return render(&j, t, out, err);
}

ht_status ht_chat_template_render(const ht_chat_template *t, const ht_template_variable *variables, size_t n,
                                  char **text, size_t *text_n, ht_error *err) {
    ht_written out;
    const ht_status status = ht_chat_template_render_within(t, variables, n, NULL, &out, err);
    *text = out.text;
    *text_n = out.n;
    free(out.runs);
    return status;
}
