/* hearth adapter: describes an adapter and converts it between formats. */
#include "command.h"
#include "engine.h"
#include "fail.h"
#include "json.h"
#include "terminal.h"
#include "written.h"

#include <hearth/adapter.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- the adapter and its model ---- */

typedef struct opened {
    engine engine;
    ht_adapter *adapter;
} opened;

/* Loads the adapter, checked against the model of --model if given. */
static ht_status open_adapter(const options *o, const char *path, opened *out, ht_error *err) {
    *out = (opened){.engine.on_cpu = true};
    ht_status st = HT_OK;
    if (o->model) {
        const engine_model which = {o->model, HT_PRECISION_HIGH, HT_F16, 0};
        st = engine_load(&out->engine, o, &which, &out->engine.model, err);
    }
    if (!st) st = ht_adapter_load(path, out->engine.model, NULL, &out->adapter, err);
    return st;
}

static void close_adapter(opened *a) {
    ht_adapter_free(a->adapter);
    engine_close(&a->engine);
}

static void print_warning(const ht_adapter *a) {
    if (ht_adapter_warning(a)) fprintf(stderr, "hearth adapter: %s\n", ht_adapter_warning(a));
}

/* ---- info ---- */

/* Splits a slot's name into its layer and its projection. */
static const char *projection_of(const char *slot, int64_t *layer) {
    static const char prefix[] = "model.layers.";
    char *end;
    *layer = strtoll(slot + sizeof prefix - 1, &end, 10);
    return *end == '.' ? end + 1 : end;
}

static int by_value(const void *a, const void *b) {
    int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;
    return (x > y) - (x < y);
}

/* Layers in ascending order as ranges: "0-5, 7". */
static void layers_text(const int64_t *layers, int64_t n, char *out, size_t size) {
    size_t at = 0;
    for (int64_t i = 0, end; i < n && at < size; i = end) {
        for (end = i + 1; end < n && layers[end] == layers[end - 1] + 1;) end++;
        at += (size_t)snprintf(out + at, size - at, "%s%lld", i ? ", " : "", (long long)layers[i]);
        if (end > i + 1 && at < size) at += (size_t)snprintf(out + at, size - at, "-%lld", (long long)layers[end - 1]);
    }
}

static bool of_one_shape(const ht_adapter_pair_info *a, const ht_adapter_pair_info *b) {
    return a->n_experts == b->n_experts && a->n_in == b->n_in && a->n_out == b->n_out;
}

/* One line for each projection and shape, with the layers in which the adapter changes it. */
typedef bool target_fn(const ht_adapter_pair_info *first, const char *projection, const char *layers, void *user);

static bool each_target(const ht_adapter *a, int64_t n, target_fn *fn, void *user) {
    int64_t *layers = calloc((size_t)n + 1, sizeof *layers), layer;
    const size_t size = 24 * ((size_t)n + 1); /* a layer index and its separator */
    char *text = calloc(size, 1);
    bool *done = calloc((size_t)n + 1, sizeof *done), good = layers && done && text;
    for (int64_t i = 0; good && i < n; i++) {
        if (done[i]) continue;
        ht_adapter_pair_info first, other;
        ht_adapter_pair_at(a, i, &first);
        const char *name = projection_of(first.slot, &layer);
        int64_t n_layers = 0;
        for (int64_t k = i; k < n; k++) {
            ht_adapter_pair_at(a, k, &other);
            if (strcmp(projection_of(other.slot, &layer), name) != 0 || !of_one_shape(&first, &other)) continue;
            done[k] = true;
            layers[n_layers++] = layer;
        }
        qsort(layers, (size_t)n_layers, sizeof *layers, by_value);
        layers_text(layers, n_layers, text, size);
        good = fn(&first, name, text, user);
    }
    free(text);
    free(layers);
    free(done);
    return good;
}

static bool print_target(const ht_adapter_pair_info *first, const char *projection, const char *layers, void *user) {
    bool *is_first = user;
    char experts[48] = "";
    if (first->n_experts) snprintf(experts, sizeof experts, ", of %lld experts", (long long)first->n_experts);
    output_field(*is_first ? "targets" : "", "%s, %lld x %lld%s, in layers %s", projection, (long long)first->n_out,
                 (long long)first->n_in, experts, layers);
    *is_first = false;
    return true;
}

static void print_text(const ht_adapter *a, const ht_adapter_info *i) {
    bool is_first = true;
    output_field("format", "%s", ht_adapter_format_name(i->format));
    if (i->rank == i->most_rank)
        output_field("rank", "%lld", (long long)i->rank);
    else
        output_field("rank", "%lld to %lld", (long long)i->rank, (long long)i->most_rank);
    if (i->scale == i->most_scale)
        output_field("scale", "%g", (double)i->scale);
    else
        output_field("scale", "%g to %g", (double)i->scale, (double)i->most_scale);
    output_field("parameters", "%lld in %lld pair%s", (long long)i->n_parameters, (long long)i->n_pairs,
                 plural(i->n_pairs));
    bool good = each_target(a, i->n_pairs, print_target, &is_first);
    if (i->base && *i->base) output_field("base", "%s", i->base);
    if (i->fingerprint) output_field("fingerprint", "%s", i->fingerprint);
    if (i->template_hash) output_field("chat template", "%s", i->template_hash);
    if (!good) output_lacks("out of memory for the result");
}

static bool add_target(const ht_adapter_pair_info *first, const char *projection, const char *layers, void *user) {
    return ht_json_array_append_new(user, ht_json_pack("{ss ss sI sI sI}", "projection", projection, "layers", layers,
                                                       "experts", (int64_t)first->n_experts, "n_in",
                                                       (int64_t)first->n_in, "n_out", (int64_t)first->n_out)) == 0;
}

static void print_json(const ht_adapter *a, const ht_adapter_info *i) {
    ht_json *targets = ht_json_new_array(), *value = NULL;
    if (targets && each_target(a, i->n_pairs, add_target, targets))
        value = ht_json_pack("{ss sI sI sf sf sI sI sO ss? ss? ss? ss?}", "format", ht_adapter_format_name(i->format),
                             "rank", (int64_t)i->rank, "most_rank", (int64_t)i->most_rank, "scale", (double)i->scale,
                             "most_scale", (double)i->most_scale, "pairs", (int64_t)i->n_pairs, "parameters",
                             (int64_t)i->n_parameters, "targets", targets, "base", i->base, "fingerprint",
                             i->fingerprint, "template_hash", i->template_hash, "warning", ht_adapter_warning(a));
    ht_json_decref(targets);
    json_output(value);
}

static int info(const options *o) {
    ht_error err = {0};
    opened a;
    ht_adapter_info i;
    const ht_status st = open_adapter(o, o->arguments.items[1], &a, &err);
    if (!st) {
        ht_adapter_describe(a.adapter, &i);
        if (!o->json) print_warning(a.adapter);
        (o->json ? print_json : print_text)(a.adapter, &i);
    }
    close_adapter(&a);
    return output_finish(st ? report(&err) : EXIT_OK);
}

/* ---- convert ---- */

static bool format_named(const char *name, ht_adapter_format *out) {
    static const ht_adapter_format all[] = {HT_ADAPTER_PEFT, HT_ADAPTER_MLX, HT_ADAPTER_GGUF};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        if (!strcmp(name, ht_adapter_format_name(all[i]))) {
            *out = all[i];
            return true;
        }
    return false;
}

static int convert(const options *o) {
    ht_adapter_format format;
    if (!o->to || !format_named(o->to, &format))
        return usage_error(o, "--to peft, mlx or gguf says what to convert to");
    ht_error err = {0};
    opened a;
    ht_adapter_info i = {0};
    ht_status st = open_adapter(o, o->arguments.items[1], &a, &err);
    if (!st) st = output_check(o, o->arguments.items[2], &err);
    if (!st) ht_adapter_describe(a.adapter, &i);
    if (!st && !o->model && (i.needs_model || format == HT_ADAPTER_GGUF))
        st = ht_fail(&err, HT_ERR_ARGUMENT,
                     "--model MODEL is needed: GGUF names the tensors of the model, and the order of rows and columns "
                     "depends on its heads in some families");
    if (!st) print_warning(a.adapter);
    if (!st) st = ht_adapter_save(a.adapter, a.engine.model, o->arguments.items[2], format, &err);
    if (!st && o->json)
        json_output(ht_json_pack("{so ss}", "out", ht_json_string(o->arguments.items[2]), "format", o->to));
    else if (!st)
        output_line("%s", o->arguments.items[2]);
    close_adapter(&a);
    return output_finish(st ? report(&err) : EXIT_OK);
}

int adapter_command(const options *o) {
    const char *what = o->arguments.n ? o->arguments.items[0] : "";
    bool is_info = !strcmp(what, "info"), is_convert = !strcmp(what, "convert");
    if (is_info && o->arguments.n == 2) return info(o);
    if (is_convert && o->arguments.n == 3) return convert(o);
    return usage_error(o, "expected %s",
                       is_info      ? "one adapter: info ADAPTER"
                       : is_convert ? "two names: convert IN OUT --to peft|mlx|gguf"
                                    : "info ADAPTER, or convert IN OUT --to peft|mlx|gguf");
}
