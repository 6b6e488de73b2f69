/* Inspection of a prompt (hearth/inspect.h): what is asked for, the memory that it takes, and what is given back. */
#include "analysis/inspect.h"

#include "base/checked.h"
#include "base/error.h"
#include "base/options.h"
#include "base/plural.h"
#include "checkpoint/kv_size.h"
#include "device/device.h"
#include "generate/cache.h"
#include "generate/session_internal.h"
#include "models/memory_check.h"

#include <stdlib.h>
#include <string.h>

static const ht_inspect_options defaults = {.size = sizeof defaults, .keys = true};

void ht_inspect_options_init(ht_inspect_options *options, size_t size) {
    ht_options_init(options, size, &defaults, sizeof defaults);
}

typedef struct inspection {
    ht_model *model;
    ht_inspect_options o;
    int64_t n;
    bool *listed, *weighed; /* [n_layers] in o.layers, in o.attention */
    int last;               /* layer that is asked for */
    ht_session_adapters *adapters;
    ht_inspection_data *data;
} inspection;

/* ---- what is asked for ---- */

static ht_status check_ids(const inspection *i, const int32_t *ids, ht_error *err) {
    if (i->n < 1) return ht_fail(err, HT_ERR_ARGUMENT, "a prompt of no tokens: there is nothing to inspect");
    if (i->n > i->model->context)
        return ht_fail(err, HT_ERR_LIMIT, "prompt of %lld token%s does not fit the context of %lld", (long long)i->n,
                       ht_plural(i->n), (long long)i->model->context);
    return ht_model_check_ids(i->model, ids, (size_t)i->n, err);
}

static ht_status mark(const inspection *i, const int32_t *layers, int n, bool *marked, ht_error *err) {
    const int64_t n_layers = i->model->config->n_layers;
    if (n < 0) return ht_fail(err, HT_ERR_ARGUMENT, "a list of %d layers, expected 0 or more", n);
    for (int k = 0; k < n; k++) {
        if (layers[k] < 0 || layers[k] >= n_layers)
            return ht_fail(err, HT_ERR_ARGUMENT, "the model has no layer %d: its layers are 0 to %lld", (int)layers[k],
                           (long long)n_layers - 1);
        marked[layers[k]] = true;
    }
    return HT_OK;
}

/* Marks the layers, and finds the last one that has to run. Keys and values of a layer that shares them are its owner's. */
static ht_status mark_layers(inspection *i, ht_error *err) {
    const ht_config *c = i->model->config;
    const ht_inspect_options *o = &i->o;
    i->listed = calloc((size_t)c->n_layers, sizeof *i->listed);
    i->weighed = calloc((size_t)c->n_layers, sizeof *i->weighed);
    if (!i->listed || !i->weighed) return ht_fail_memory(err, (size_t)c->n_layers, "the layers of an inspection");
    for (int64_t l = 0; l < c->n_layers && o->n_layers == 0; l++) i->listed[l] = true;
    ht_status status = mark(i, o->layers, o->n_layers, i->listed, err);
    if (!status) status = mark(i, o->attention, o->n_attention, i->weighed, err);
    i->last = -1;
    for (int l = 0; !status && l < c->n_layers; l++) {
        const int64_t owner = c->layer[l].kv_layer;
        if (i->weighed[l] || (i->listed[l] && o->queries)) i->last = l;
        if (i->listed[l] && (o->keys || o->values)) i->last = (int)ht_max_i64(i->last, owner);
    }
    if (!status && i->last < 0)
        return ht_fail(err, HT_ERR_ARGUMENT, "neither keys, values, queries nor attention weights are asked for");
    return status;
}

/* ---- memory ---- */

/* a += the product of n factors; SIZE_MAX when that is no size. */
static void add_product(size_t *a, const int64_t *factors, int n) {
    size_t product = 1;
    for (int k = 0; k < n; k++)
        if (!ht_mul_size(product, (size_t)factors[k], &product)) product = SIZE_MAX;
    if (!ht_add_size(*a, product, a)) *a = SIZE_MAX;
}

#define ADD(sum, ...)                                                                                                  \
    add_product(sum, (const int64_t[]){__VA_ARGS__}, (int)(sizeof(int64_t[]){__VA_ARGS__} / sizeof(int64_t)))

/* Bytes of an inspection. */
typedef struct sizes {
    size_t kept, attention; /* arrays of keys, values and queries; of attention weights */
    size_t work;            /* KV cache, and the values of a step */
} sizes;

/* Whether the keys and values of a layer are kept, which may be for one that shares them. */
static bool keeps_own(const inspection *i, int64_t layer) {
    const ht_config *c = i->model->config;
    for (int64_t l = layer; l < c->n_layers; l++)
        if (i->listed[l] && c->layer[l].kv_layer == layer) return true;
    return false;
}

static sizes sizes_of(const inspection *i) {
    enum { FLOATS = sizeof(float), LAYER_ARRAYS = 16, SCORES = 4 }; /* intermediate arrays alive at once, about */
    const ht_config *c = i->model->config;
    const int64_t rows = ht_min_i64(i->n, HT_INSPECT_ROWS);
    sizes s = {.work = ht_cache_bytes(i->model, i->n, HT_INSPECT_ROWS)};
    int64_t widest = c->hidden, most_keys = 0, most_scores = 0;
    for (int64_t l = 0; l < c->n_layers; l++) {
        const ht_layer_config *shape = &c->layer[l];
        if (keeps_own(i, l)) ADD(&s.kept, i->o.keys + i->o.values, shape->n_kv_heads, shape->head_dim, i->n, FLOATS);
        if (i->listed[l] && i->o.queries) ADD(&s.kept, c->n_heads, shape->head_dim, i->n, FLOATS);
        if (i->weighed[l]) {
            ADD(&s.attention, c->n_heads, i->n, i->n, FLOATS);
            most_keys = ht_max_i64(most_keys, shape->n_kv_heads * shape->head_dim);
            most_scores = ht_max_i64(most_scores, c->n_heads / shape->n_kv_heads);
        }
        widest = ht_max_i64(widest, ht_max_i64(shape->feed_forward, c->n_heads * shape->head_dim));
    }
    ADD(&s.work, rows, c->hidden, c->n_layers, FLOATS);
    ADD(&s.work, rows, widest, LAYER_ARRAYS, FLOATS);
    ADD(&s.work, most_keys, i->n, FLOATS);
    ADD(&s.work, most_scores, rows, i->n, SCORES, FLOATS);
    return s;
}

static ht_status check_memory(const inspection *i, ht_error *err) {
    const sizes s = sizes_of(i);
    size_t all, most = i->o.most_bytes;
    if (!ht_add_size(s.kept, s.attention, &all) || !ht_add_size(all, s.work, &all)) all = SIZE_MAX;
    if ((!most && !ht_memory_check_free(&most)) || all <= most) return HT_OK;
    char kept[32], attention[32], work[32], has[32];
    return ht_fail(err, HT_ERR_LIMIT,
                   "inspecting %lld token%s takes %s for keys, values and queries, %s for attention weights and %s to "
                   "compute them, but %s %s; fewer layers or a shorter prompt take less",
                   (long long)i->n, ht_plural(i->n), ht_memory_check_text(s.kept, kept),
                   ht_memory_check_text(s.attention, attention), ht_memory_check_text(s.work, work),
                   ht_memory_check_text(most, has), i->o.most_bytes ? "are allowed" : "of memory are free");
}

/* ---- the result ---- */

/* Zeros [heads, n, columns], counted in the inspection's bytes; false when memory ran out. */
static bool make(ht_inspection_data *d, float **out, int64_t heads, int64_t columns) {
    const size_t count = (size_t)heads * (size_t)d->public.n_tokens * (size_t)columns; /* as check_memory found */
    *out = calloc(count, sizeof **out);
    if (*out) d->public.bytes += count * sizeof **out;
    return *out != NULL;
}

static bool make_values(const inspection *i, int64_t layer) {
    const ht_config *c = i->model->config;
    const ht_layer_config *shape = &c->layer[layer];
    ht_inspection_data *d = i->data;
    ht_inspected_values *v = &d->values[layer];
    const bool own = keeps_own(i, layer);
    return (!own || !i->o.keys || make(d, &v->k, shape->n_kv_heads, shape->head_dim)) &&
           (!own || !i->o.values || make(d, &v->v, shape->n_kv_heads, shape->head_dim)) &&
           (!i->listed[layer] || !i->o.queries || make(d, &v->q, c->n_heads, shape->head_dim)) &&
           (!i->weighed[layer] || make(d, &v->attention, c->n_heads, i->n));
}

static void describe_layer(const inspection *i, int64_t layer) {
    const ht_config *c = i->model->config;
    const ht_layer_config *shape = &c->layer[layer];
    const ht_inspected_values *own = &i->data->values[layer], *owner = &i->data->values[shape->kv_layer];
    const bool listed = i->listed[layer];
    i->data->layer[layer] = (ht_inspected_layer){.kv_layer = (int32_t)shape->kv_layer,
                                                 .n_heads = (int32_t)c->n_heads,
                                                 .n_kv_heads = (int32_t)shape->n_kv_heads,
                                                 .head_dim = (int32_t)shape->head_dim,
                                                 .window = i->model->kv[shape->kv_layer].window,
                                                 .k = listed ? owner->k : NULL,
                                                 .v = listed ? owner->v : NULL,
                                                 .q = own->q,
                                                 .attention = own->attention};
}

static ht_status make_data(inspection *i, const int32_t *ids, ht_error *err) {
    const size_t n_layers = (size_t)i->model->config->n_layers;
    ht_inspection_data *d = i->data = calloc(1, sizeof *d);
    bool made = d != NULL;
    if (d) {
        d->public.n_tokens = i->n;
        d->public.n_layers = (int32_t)n_layers;
        d->public.tokens = d->token = malloc((size_t)i->n * sizeof *d->token);
        d->public.layers = d->layer = calloc(n_layers, sizeof *d->layer);
        d->values = calloc(n_layers, sizeof *d->values);
        made = d->token && d->layer && d->values;
    }
    for (size_t l = 0; made && l < n_layers; l++) made = make_values(i, (int64_t)l);
    if (!made) return ht_fail_memory(err, sizes_of(i).kept, "an inspection");
    memcpy(d->token, ids, (size_t)i->n * sizeof *ids);
    for (size_t l = 0; l < n_layers; l++) describe_layer(i, (int64_t)l);
    return HT_OK;
}

static void free_data(ht_inspection_data *d) {
    if (!d) return;
    for (int32_t l = 0; d->values && l < d->public.n_layers; l++) {
        free(d->values[l].k);
        free(d->values[l].v);
        free(d->values[l].q);
        free(d->values[l].attention);
    }
    free(d->values);
    free(d->layer);
    free(d->token);
    free(d);
}

void ht_inspection_free(ht_inspection *i) { free_data((ht_inspection_data *)i); } /* its first member */

/* ---- the call ---- */

ht_status ht_inspect(ht_model *m, const int32_t *ids, size_t n, const ht_inspect_options *options, ht_inspection **out,
                     ht_error *err) {
    inspection i = {.model = m, .n = n > INT64_MAX ? INT64_MAX : (int64_t)n};
    *out = NULL;
    ht_status status = ht_options_read(&i.o, options, &defaults, sizeof defaults, "ht_inspect_options", err);
    if (!status && i.o.n_adapters < 0)
        status = ht_fail(err, HT_ERR_ARGUMENT, "%d adapters, expected 0 or more", i.o.n_adapters);
    if (!status) status = check_ids(&i, ids, err);
    if (!status) status = mark_layers(&i, err);
    if (!status) status = check_memory(&i, err);
    if (!status && i.o.n_adapters)
        status = ht_session_adapters_new(m, i.o.adapters, i.o.adapter_scales, i.o.n_adapters, &i.adapters, err);
    if (!status) status = make_data(&i, ids, err);
    if (!status) status = ht_inspect_pass(m, i.adapters ? &i.adapters->set : NULL, i.last, &i.o, i.data, err);
    if (status)
        free_data(i.data);
    else
        *out = &i.data->public;
    ht_session_adapters_free(i.adapters);
    free(i.listed);
    free(i.weighed);
    return status;
}
