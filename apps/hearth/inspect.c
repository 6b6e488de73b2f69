/* hearth inspect: keys, values, queries and attention weights of a prompt, as a NumPy archive and an SVG. */
#include "base/grow.h"
#include "command.h"
#include "conversation.h"
#include "engine.h"
#include "fail.h"
#include "input.h"
#include "json.h"
#include "terminal.h"
#include "written.h"

#include <hearth/inspect.h>

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct layer_list {
    int32_t *items;
    int n;
} layer_list;

/* The parsed command line. */
typedef struct request {
    const options *o;
    layer_list layers, attention; /* of --layers; of --attention and --head */
    int32_t layer, head;          /* of --head; -1: none */
    id_list ids;                  /* of --ids */
} request;

/* ---- lists of layers ---- */

static bool read_number(const char **at, int32_t *out) {
    char *end;
    if (**at < '0' || **at > '9') return false;
    errno = 0;
    const long value = strtol(*at, &end, 10);
    if (errno || value > INT32_MAX) return false;
    *out = (int32_t)value;
    *at = end;
    return true;
}

static bool add_layer(layer_list *list, int32_t layer) {
    if (!HT_GROW_ONE(list->items, list->n)) return false;
    list->items[list->n++] = layer;
    return true;
}

/* Parses "0-3,7" into the list; "all" and NULL leave it empty. False for a malformed list. */
static bool read_layers(const char *text, layer_list *list) {
    enum { MOST = 1024 }; /* layers of a model, at most */
    if (!text || strcmp(text, "all") == 0) return true;
    for (const char *at = text;;) {
        int32_t first, last;
        if (!read_number(&at, &first)) return false;
        last = first;
        if (*at == '-' && (at++, !read_number(&at, &last))) return false;
        if (last < first || last - first >= MOST) return false;
        for (int32_t layer = first; layer <= last; layer++)
            if (!add_layer(list, layer)) return false;
        if (!*at) return true;
        if (*at++ != ',') return false;
    }
}

/* ---- the command line ---- */

static int read_head(request *r) {
    const char *at = r->o->head;
    r->layer = r->head = -1;
    if (at && !r->o->svg) return usage_error(r->o, "--head is of --svg FILE");
    if (!at && r->o->svg) return usage_error(r->o, "--svg needs --head LAYER.HEAD");
    if (!at) return EXIT_OK;
    if (!read_number(&at, &r->layer) || *at++ != '.' || !read_number(&at, &r->head) || *at)
        return usage_error(r->o, "--head is the number of a layer and that of a head, as in 3.0");
    return add_layer(&r->attention, r->layer) ? EXIT_OK : usage_error(r->o, "--head cannot be read: out of memory");
}

static int read_request(request *r) {
    const options *o = r->o;
    ht_error err = {0};
    if (!o->out && !o->svg) return usage_error(o, "--out FILE.npz or --svg FILE is needed");
    if (o->ids && o->arguments.n) return usage_error(o, "--ids and PROMPT exclude each other");
    if (!read_layers(o->tune.layers, &r->layers))
        return usage_error(o, "--layers is a list of layers as in 0-3,7, or \"all\"");
    if (o->attention && (strcmp(o->attention, "all") == 0 || !read_layers(o->attention, &r->attention)))
        return usage_error(o, "--attention is a list of layers as in 0-3,7");
    const int status = read_head(r);
    if (status || !o->ids) return status;
    const ht_status st = ids_read(o->ids, &r->ids, &err);
    if (!st && r->ids.n) return EXIT_OK;
    if (st && st != HT_ERR_ARGUMENT) return report(&err);
    return usage_error(o, "--ids: %s", st ? err.message : "the list is empty");
}

/* ---- the prompt ---- */

/* Encodes the prompt as `hearth run` does. */
static ht_status encode(const engine *e, const options *o, const char *prompt, size_t n, id_list *out, ht_error *err) {
    const ht_tokenizer *t = ht_model_tokenizer(e->model);
    if (!t) return ht_fail(err, HT_ERR_UNSUPPORTED, "%.300s has no tokenizer: give the prompt as --ids", o->model);
    if (o->raw || !ht_chat_format_name(e->model))
        return ht_tokenizer_encode(t, prompt, n, HT_ENCODE_PARSE_SPECIAL | HT_ENCODE_ADD_SPECIAL, &out->ids, &out->n,
                                   err);
    ht_chat *chat;
    ht_status st = ht_chat_new(&chat, err);
    if (!st) st = ht_chat_add(chat, "user", prompt, err);
    if (!st) st = ht_chat_encode(e->model, chat, 0, &out->ids, &out->n, err);
    ht_chat_free(chat);
    return st;
}

/* ---- results ---- */

static ht_status write_svg(const request *r, const engine *e, const ht_inspection *i, ht_error *err) {
    char *svg;
    ht_status st = ht_inspection_draw(i, r->layer, r->head, ht_model_tokenizer(e->model), &svg, err);
    if (st) return st;
    FILE *f = output_open(r->o->svg, err);
    if (f) fputs(svg, f);
    ht_text_free(svg);
    return f ? output_close(f, r->o->svg, err) : err->status;
}

static bool add_shape(ht_json *to, const char *name, const float *values, int64_t heads, int64_t rows,
                      int64_t columns) {
    return !values || ht_json_object_set_new(
                          to, name, ht_json_pack("[III]", (int64_t)heads, (int64_t)rows, (int64_t)columns)) == 0;
}

/* Describes the arrays of each layer; a layer that shares a KV cache refers to the owner's arrays. */
static ht_json *json_layers(const ht_inspection *i) {
    ht_json *list = ht_json_new_array();
    for (int32_t n = 0; list && n < i->n_layers; n++) {
        const ht_inspected_layer *l = &i->layers[n];
        if (!l->k && !l->v && !l->q && !l->attention) continue;
        ht_json *arrays = ht_json_new_object();
        const bool good = add_shape(arrays, "k", l->k, l->n_kv_heads, i->n_tokens, l->head_dim) &&
                          add_shape(arrays, "v", l->v, l->n_kv_heads, i->n_tokens, l->head_dim) &&
                          add_shape(arrays, "q", l->q, l->n_heads, i->n_tokens, l->head_dim) &&
                          add_shape(arrays, "attention", l->attention, l->n_heads, i->n_tokens, i->n_tokens);
        ht_json *item = ht_json_pack("{si si sI so}", "layer", (int)n, "kv_layer", (int)l->kv_layer, "window",
                                     (int64_t)l->window, "arrays", arrays);
        list = json_appended(list, item);
        if (!good) {
            ht_json_decref(list);
            return NULL;
        }
    }
    return list;
}

static void print_json(const request *r, const ht_inspection *i) {
    ht_json *value = ht_json_pack("{so so si so sI}", "model", ht_json_string(r->o->model), "tokens",
                                  json_ids(i->tokens, (size_t)i->n_tokens), "n_layers", (int)i->n_layers, "layers",
                                  json_layers(i), "bytes", (int64_t)i->bytes);
    if (r->o->out) ht_json_object_set_new(value, "out", ht_json_string(r->o->out));
    if (r->o->svg) ht_json_object_set_new(value, "svg", ht_json_string(r->o->svg));
    json_output(value);
}

static ht_status inspect(const request *r, const engine *e, const id_list *ids, ht_inspection **out, ht_error *err) {
    const options *o = r->o;
    progress show;
    ht_inspect_options how;
    ht_inspect_options_init(&how, sizeof how);
    how.keys = o->out != NULL;
    how.values = o->out && o->inspect_v;
    how.queries = o->out && o->inspect_q;
    how.layers = r->layers.items;
    how.n_layers = r->layers.n;
    how.attention = r->attention.items;
    how.n_attention = r->attention.n;
    how.adapters = e->adapters.adapter;
    how.adapter_scales = e->adapters.scale;
    how.n_adapters = e->adapters.n;
    how.cancel = interrupt_flag();
    how.progress = progress_show;
    how.user = &show;
    progress_begin(&show, "computing", o->quiet);
    ht_status st = ht_inspect(e->model, ids->ids, ids->n, &how, out, err);
    progress_end(&show);
    return st && interrupted() ? ht_fail(err, st, "interrupted: nothing was written") : st;
}

static int run_request(request *r) {
    const options *o = r->o;
    ht_error err = {0};
    engine e = {0};
    char *prompt = NULL;
    size_t n = r->ids.n;
    id_list encoded = {0};
    ht_inspection *i = NULL;
    ht_status st = o->ids ? HT_OK : prompt_read(o, &prompt, &n, &err);
    if (!st && !o->ids && n == 0) {
        free(prompt);
        return usage_error(o, "the prompt is empty");
    }
    if (!st && o->out) st = output_check(o, o->out, &err);
    if (!st && o->svg) st = output_check(o, o->svg, &err);
    if (!st) st = engine_open(&e, o, 0, &err);
    if (!st && !o->ids) st = encode(&e, o, prompt, n, &encoded, &err);
    if (!st) st = inspect(r, &e, o->ids ? &r->ids : &encoded, &i, &err);
    if (!st && o->out) st = ht_inspection_save(i, o->out, false, &err);
    if (!st && o->svg) st = write_svg(r, &e, i, &err);
    if (!st && o->json) print_json(r, i);
    ht_inspection_free(i);
    ht_ids_free(encoded.ids);
    free(prompt);
    engine_close(&e);
    return output_finish(st ? report(&err) : EXIT_OK);
}

int inspect_command(const options *o) {
    request r = {.o = o};
    int status = read_request(&r);
    if (status == EXIT_OK) status = run_request(&r);
    free(r.layers.items);
    free(r.attention.items);
    free(r.ids.ids);
    return status;
}
