/* hearth classify: ranks labels, or all tokens, by likelihood after each of many prompts. */
#include "command.h"
#include "json.h"
#include "many.h"

#include <hearth/classify.h>

#include <math.h>
#include <stdlib.h>
#include <string.h>

typedef struct label_list {
    char *text; /* with NULs in place of commas */
    const char **items;
    int32_t n;
} label_list;

static bool split_labels(const char *given, label_list *out) {
    size_t n = 1;
    *out = (label_list){0};
    if (!given) return true;
    for (const char *at = given; (at = strchr(at, ',')); at++) n++;
    out->text = strdup(given);
    out->items = calloc(n, sizeof *out->items);
    if (!out->text || !out->items) return false;
    for (char *at = out->text; at; out->n++) {
        out->items[out->n] = at;
        at = strchr(at, ',');
        if (at) *at++ = '\0';
    }
    return true;
}

typedef struct classifying {
    many m;
    label_list labels;
} classifying;

static ht_status next(size_t i, ht_prompt *prompt, void *user, ht_error *err) {
    classifying *c = user;
    const ht_status st = prompts_read(&c->m.prompts, many_index(&c->m, i), c->m.o, c->m.e.model, NULL, &c->m.line, err);
    if (!st) *prompt = prompt_of(&c->m.line);
    return st;
}

static ht_json *labels_json(const classifying *c, const ht_classification *r) {
    ht_json *labels = ht_json_new_array();
    for (int32_t i = 0; labels && i < c->labels.n; i++)
        ht_json_array_append_new(labels, ht_json_pack("{so sf sf}", "label", ht_json_string(c->labels.items[i]),
                                                      "probability", r->labels[i].probability, "log_probability",
                                                      r->labels[i].log_probability));
    return labels;
}

static ht_json *result_json(classifying *c, const ht_classification *r) {
    ht_json *value = many_result(&c->m, r->index, r->status ? r->message : NULL);
    if (!value || r->status) return value;
    return json_merge(value,
                      ht_json_pack("{sI ss? sf sI ss* so*}", "token", (int64_t)r->token, "text", r->text,
                                   "log_probability", r->log_probability, "prompt_tokens", (int64_t)r->prompt_tokens,
                                   "label", r->labels ? c->labels.items[r->label] : NULL, "labels",
                                   r->labels ? labels_json(c, r) : NULL));
}

/* Prints a readable line. A token is quoted as JSON, because it may be a space or a newline. */
static bool print_line(classifying *c, const ht_classification *r) {
    ht_json *text = r->text ? ht_json_string(r->text) : ht_json_integer(r->token);
    char *token = ht_json_dump(text, 0), number[32];
    const char *shown = r->labels ? c->labels.items[r->label] : token ? token : "";
    snprintf(number, sizeof number, "\t%.4f\n", r->labels ? r->labels[r->label].probability : exp(r->log_probability));
    if (r->status) {
        output_line("error: %s", r->message);
    } else {
        output_text(shown, strlen(shown));
        output_write(number, strlen(number));
    }
    free(token);
    ht_json_decref(text);
    c->m.failed += r->status != HT_OK;
    c->m.done++;
    return output_flush();
}

static bool take(const ht_classification *r, void *user) {
    classifying *c = user;
    if (many_interrupted(r->status)) return false;
    if (!c->m.o->json && !c->m.o->out) return print_line(c, r);
    return many_write(&c->m, result_json(c, r), r->status != HT_OK);
}

static void on_progress(double done, void *user) {
    classifying *c = user;
    const double before = (double)c->m.results.done, all = (double)c->m.prompts.n;
    progress_show((before + done * (all - before)) / all, &c->m.shown);
}

int classify_command(const options *o) {
    classifying c = {0};
    ht_error err = {0};
    if (!split_labels(o->labels, &c.labels)) {
        fprintf(stderr, "hearth: out of memory for the labels\n");
        return EXIT_FAILED;
    }
    int status = many_open(&c.m, o);
    if (!status) {
        ht_classify_options how;
        ht_classify_options_init(&how, sizeof how);
        how.labels = c.labels.items;
        how.n_labels = c.labels.n;
        how.adapters = c.m.e.adapters.adapter;
        how.adapter_scales = c.m.e.adapters.scale;
        how.n_adapters = c.m.e.adapters.n;
        how.next = next;
        how.cancel = interrupt_flag();
        how.progress = on_progress;
        const ht_status st =
            many_left(&c.m) ? ht_classify(c.m.e.model, NULL, many_left(&c.m), &how, take, &c, &err) : HT_OK;
        status = many_close(&c.m, st, &err);
    }
    free(c.labels.text);
    free(c.labels.items);
    return status;
}
