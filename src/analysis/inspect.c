/* Inspection of a prompt: a pass whose observer copies the operands of attention and computes its weights. */
#include "analysis/window.h"
#include "array/array.h"
#include "array/user_function.h"
#include "base/checked.h"
#include "base/error.h"
#include "base/half.h"
#include "base/options.h"
#include "base/plural.h"
#include "checkpoint/config.h"
#include "checkpoint/kv_size.h"
#include "device/device.h"
#include "formats/npy_header.h"
#include "formats/zip.h"
#include "generate/session_internal.h"
#include "models/memory_check.h"

#include <hearth/inspect.h>
#include <hearth/ops.h>

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const ht_inspect_options defaults = {.size = sizeof defaults, .keys = true};

void ht_inspect_options_init(ht_inspect_options *options, size_t size) {
    ht_options_init(options, size, &defaults, sizeof defaults);
}

/* Rows per step; bounds the memory of intermediate values. */
enum { ROWS = 256 };

/* Arrays of a layer; NULL: not requested. */
typedef struct layer_values {
    float *k, *v;     /* [n_kv_heads, n_tokens, head_dim]; of the layer that owns them */
    float *q;         /* [n_heads, n_tokens, head_dim] */
    float *attention; /* [n_heads, n_tokens, n_tokens], zeros before the pass */
} layer_values;

/* The public struct with the arrays that it lends. */
typedef struct inspection_data {
    ht_inspection public;
    ht_inspected_layer *layer; /* [n_layers] */
    layer_values *values;      /* [n_layers] */
    int32_t *token;            /* [n_tokens] */
} inspection_data;

typedef struct inspection {
    ht_model *model;
    ht_inspect_options o;
    int64_t n;
    bool *listed, *weighed; /* [n_layers] in o.layers, in o.attention */
    int last;               /* last requested layer */
    ht_session_adapters *adapters;
    inspection_data *data;
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
        if (i->model->config->layer[layers[k]].no_attention)
            return ht_fail(err, HT_ERR_ARGUMENT, "layer %d has no attention, and so neither keys nor queries",
                           (int)layers[k]);
        marked[layers[k]] = true;
    }
    return HT_OK;
}

/* Marks the requested layers and finds the last one to run. A layer that shares keys and values has its owner's. */
static ht_status mark_layers(inspection *i, ht_error *err) {
    const ht_config *c = i->model->config;
    const ht_inspect_options *o = &i->o;
    i->listed = calloc((size_t)c->n_layers, sizeof *i->listed);
    i->weighed = calloc((size_t)c->n_layers, sizeof *i->weighed);
    if (!i->listed || !i->weighed) return ht_fail_memory(err, (size_t)c->n_layers, "the layers of an inspection");
    for (int64_t l = 0; l < c->n_layers && o->n_layers == 0; l++) i->listed[l] = !c->layer[l].no_attention;
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

/* a += the product of n factors; SIZE_MAX on overflow. */
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

/* Whether to keep a layer's keys and values, possibly for a layer that shares them. */
static bool keeps_own(const inspection *i, int64_t layer) {
    const ht_config *c = i->model->config;
    for (int64_t l = layer; l < c->n_layers; l++)
        if (i->listed[l] && c->layer[l].kv_layer == layer) return true;
    return false;
}

static sizes sizes_of(const inspection *i) {
    enum { FLOATS = sizeof(float), LAYER_ARRAYS = 16, SCORES = 4 }; /* intermediate arrays alive at once, about */
    const ht_config *c = i->model->config;
    const int64_t rows = ht_min_i64(i->n, ROWS);
    sizes s = {.work = ht_cache_bytes(i->model, i->n, ROWS)};
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

/* Allocates zeros [heads, n, columns] and counts their bytes; false when out of memory. */
static bool make(inspection_data *d, float **out, int64_t heads, int64_t columns) {
    const size_t count = (size_t)heads * (size_t)d->public.n_tokens * (size_t)columns; /* fits: check_memory */
    *out = calloc(count, sizeof **out);
    if (*out) d->public.bytes += count * sizeof **out;
    return *out != NULL;
}

static bool make_values(const inspection *i, int64_t layer) {
    const ht_config *c = i->model->config;
    const ht_layer_config *shape = &c->layer[layer];
    inspection_data *d = i->data;
    layer_values *v = &d->values[layer];
    const bool own = keeps_own(i, layer);
    return (!own || !i->o.keys || make(d, &v->k, shape->n_kv_heads, shape->head_dim)) &&
           (!own || !i->o.values || make(d, &v->v, shape->n_kv_heads, shape->head_dim)) &&
           (!i->listed[layer] || !i->o.queries || make(d, &v->q, c->n_heads, shape->head_dim)) &&
           (!i->weighed[layer] || make(d, &v->attention, c->n_heads, i->n));
}

static void describe_layer(const inspection *i, int64_t layer) {
    const ht_config *c = i->model->config;
    const ht_layer_config *shape = &c->layer[layer];
    const ht_layer_kv none = {.window = 0},
                      *kv = shape->no_attention ? &none : &i->model->kv[ht_cache_layer_of(c, shape->kv_layer, false)];
    const layer_values *own = &i->data->values[layer], *owner = &i->data->values[shape->kv_layer];
    const bool listed = i->listed[layer];
    i->data->layer[layer] = (ht_inspected_layer){.kv_layer = (int32_t)shape->kv_layer,
                                                 .n_heads = shape->no_attention ? 0 : (int32_t)c->n_heads,
                                                 .n_kv_heads = (int32_t)shape->n_kv_heads,
                                                 .head_dim = (int32_t)shape->head_dim,
                                                 .window = kv->window,
                                                 .chunked = kv->chunked,
                                                 .k = listed ? owner->k : NULL,
                                                 .v = listed ? owner->v : NULL,
                                                 .q = own->q,
                                                 .attention = own->attention};
}

static ht_status make_data(inspection *i, const int32_t *ids, ht_error *err) {
    const size_t n_layers = (size_t)i->model->config->n_layers;
    inspection_data *d = i->data = calloc(1, sizeof *d);
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

static void free_data(inspection_data *d) {
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

void ht_inspection_free(ht_inspection *i) { free_data((inspection_data *)i); } /* `public` is first */

/* ---- the pass ---- */

typedef struct pass {
    ht_window_pass window; /* first: the observer is called with it */
    const inspection *i;
} pass;

/* ---- operands ---- */

/* Copies x [rows, heads, dim] to positions begin .. of out [heads, n, dim]. */
static ht_status copy_heads(const pass *p, ht_scope *s, ht_array *x, float *out, ht_error *err) {
    const int64_t heads = ht_array_dim(x, 1), dim = ht_array_dim(x, 2);
    const void *data;
    void *copy;
    ht_status status = ht_array_borrow(s, x, &data, &copy, err);
    const float *from = data;
    for (int64_t t = 0; !status && t < p->window.rows; t++)
        for (int64_t h = 0; h < heads; h++, from += dim)
            memcpy(out + (h * p->i->n + p->window.begin + t) * dim, from, (size_t)dim * sizeof *from);
    free(copy);
    return status;
}

/* ---- keys as the cache keeps them ---- */

/* A saved vector (device/kv.h) as f32. */
static void read_vector(const ht_kv_shape *shape, const unsigned char *saved, float *out) {
    const int64_t dim = shape->head_dim;
    const unsigned char *scales = saved + dim;
    switch (shape->dtype) {
    case HT_F32: memcpy(out, saved, (size_t)dim * sizeof *out); break;
    case HT_F16:
        for (int64_t i = 0; i < dim; i++) out[i] = ht_half_at(saved + 2 * i);
        break;
    case HT_BF16:
        for (int64_t i = 0; i < dim; i++) out[i] = ht_bf16_to_f32(ht_u16_at(saved + 2 * i));
        break;
    default: /* 8 bits */
        for (int64_t i = 0; i < dim; i++)
            out[i] = ht_bf16_to_f32(ht_u16_at(scales + 2 * (i / HT_KV_QBLOCK))) * (float)(int8_t)saved[i];
    }
}

/* Keys of positions first .. end - 1 of a layer -> out [n_kv_heads, end - first, head_dim]. */
static ht_status stored_keys(const pass *p, int cache_layer, int64_t first, int64_t end, float *out, ht_error *err) {
    const ht_kv_layer *l = &p->window.cache->layer[cache_layer];
    const size_t each = ht_kv_saved_bytes(&l->shape), vector = ht_kv_vector_bytes(&l->shape);
    ht_device *d = p->window.model->device;
    unsigned char *saved = malloc(HT_KV_PAGE * each);
    if (!saved) return ht_fail_memory(err, HT_KV_PAGE * each, "a page of keys");
    ht_status status = HT_OK;
    for (int64_t pos = first, n; !status && pos < end; pos += n) {
        n = ht_min_i64(HT_KV_PAGE - pos % HT_KV_PAGE, end - pos);
        status = d->kv->read(d, &l->shape, l->pages[ht_kv_page_of(l, pos)], pos % HT_KV_PAGE, n, saved, err);
        for (int64_t i = 0; !status && i < n; i++)
            for (int64_t h = 0; h < l->shape.n_kv_heads; h++)
                read_vector(&l->shape, saved + (size_t)i * each + (size_t)h * vector,
                            out + (h * (end - first) + pos - first + i) * l->shape.head_dim);
    }
    free(saved);
    return status;
}

/* ---- attention weights ---- */

/* Keys first .. first + n_keys - 1 of the heads of a cache's layer. */
typedef struct span {
    const ht_kv_layer *layer;
    int64_t first, n_keys;
} span;

/* Whether row i sees key j: bool [rows, n_keys]. */
static ht_array *visible(const pass *p, ht_scope *s, const span *keys) {
    const int64_t begin = p->window.begin, rows = p->window.rows;
    int32_t first[ROWS];
    for (int64_t i = 0; i < rows; i++) first[i] = (int32_t)ht_kv_first_visible(keys->layer, begin + i);
    ht_array *row = ht_arange(s, (double)begin, (double)(begin + rows), 1, HT_I32);
    ht_array *key = ht_arange(s, (double)keys->first, (double)(keys->first + keys->n_keys), 1, HT_I32);
    ht_array *from = ht_array_from(s, first, HT_I32, (int64_t[]){rows, 1}, 2);
    return ht_logical_and(s, ht_less_equal(s, from, key), ht_less_equal(s, key, ht_expand_dims(s, row, 1)));
}

/* Copies the weights [heads, rows, n_keys] of heads from `head` on; keys that a row does not see keep weight 0. */
static ht_status copy_weights(const pass *p, ht_scope *s, ht_array *weights, int64_t head, const span *keys, float *out,
                              ht_error *err) {
    const void *data;
    void *copy;
    ht_status status = ht_array_borrow(s, weights, &data, &copy, err);
    const float *from = data;
    const int64_t heads = status ? 0 : ht_array_dim(weights, 0);
    for (int64_t h = head; h < head + heads; h++)
        for (int64_t at = p->window.begin; at < p->window.begin + p->window.rows; at++, from += keys->n_keys) {
            const int64_t first = ht_kv_first_visible(keys->layer, at);
            memcpy(out + (h * p->i->n + at) * p->i->n + first, from + first - keys->first,
                   (size_t)(at + 1 - first) * sizeof *from);
        }
    free(copy);
    return status;
}

/* Softmax of scores [heads, rows, n_keys], and of the sinks of these heads, from `head` on. */
static ht_array *softmax_with_sinks(ht_scope *s, ht_array *scores, ht_array *sinks, int64_t head) {
    if (!sinks || sinks == HT_NONE || !scores) return ht_softmax(s, scores, -1);
    const int64_t shape[] = {ht_array_dim(scores, 0), ht_array_dim(scores, 1), ht_array_dim(scores, 2)};
    const int64_t end = head + shape[0], one[] = {shape[0], 1, 1}, column[] = {shape[0], shape[1], 1};
    ht_array *sink = ht_reshape(s, ht_slice(s, sinks, &head, &end, NULL), one, 3);
    ht_array *both[] = {scores, ht_broadcast_to(s, sink, column, 3)};
    ht_array *weights = ht_softmax(s, ht_concatenate(s, both, 2, -1), -1);
    return ht_slice(s, weights, (int64_t[]){0, 0, 0}, shape, NULL);
}

/* Weights of the query heads that share key head `group`, from its keys [n_keys, head_dim]. */
static ht_status weigh_group(const pass *p, ht_scope *outer, ht_array *q, const float *key, int64_t group,
                             const span *keys, const ht_attention *how, ht_error *err) {
    ht_scope *s = ht_scope_child(outer);
    if (!s) return ht_scope_status(outer, err);
    const int64_t heads = ht_array_dim(q, 1) / keys->layer->shape.n_kv_heads, dim = ht_array_dim(q, 2);
    const int64_t start[] = {0, group * heads, 0}, stop[] = {p->window.rows, (group + 1) * heads, dim};
    ht_array *mine = ht_transpose(s, ht_slice(s, q, start, stop, NULL), (int[]){1, 0, 2}); /* [heads, rows, dim] */
    ht_array *k = ht_array_wrap(s, key, HT_F32, (int64_t[]){keys->n_keys, dim}, 2, NULL, NULL);
    ht_array *scores = ht_scale(s, ht_matmul(s, mine, k, true), how->scale); /* [heads, rows, n_keys] */
    if (how->softcap > 0) scores = ht_softcap(s, scores, how->softcap);
    scores = ht_where(s, visible(p, s, keys), scores, ht_full(s, (double)-INFINITY, HT_F32, NULL, 0));
    ht_array *weights = softmax_with_sinks(s, scores, how->sinks, group * heads);
    ht_status status =
        weights ? copy_weights(p, s, weights, group * heads, keys, p->i->data->values[how->layer].attention, err)
                : ht_scope_status(s, err);
    ht_scope_free(s);
    return status;
}

static ht_status weigh(const pass *p, ht_scope *s, ht_array *q, int cache_layer, const ht_attention *how,
                       ht_error *err) {
    const ht_kv_layer *l = &p->window.cache->layer[cache_layer];
    const int64_t end = p->window.begin + p->window.rows, first = ht_kv_first_visible(l, p->window.begin);
    const span keys = {l, first, end - first};
    const int64_t n_groups = l->shape.n_kv_heads, of_group = keys.n_keys * l->shape.head_dim;
    const size_t bytes = (size_t)(n_groups * of_group) * sizeof(float); /* checked before the pass */
    float *stored = malloc(bytes);
    ht_status status = stored ? stored_keys(p, cache_layer, first, end, stored, err)
                              : ht_fail_memory(err, bytes, "the keys of a layer");
    for (int64_t g = 0; !status && g < n_groups; g++)
        status = weigh_group(p, s, q, stored + g * of_group, g, &keys, how, err);
    free(stored);
    return status;
}

/* ---- the observer ---- */

static bool attends(ht_observer *o, ht_ctx *c, ht_array *q, ht_array *k, ht_array *v, int cache_layer,
                    const ht_attention *how, ht_array *result) {
    const pass *p = (const pass *)o;
    const layer_values *mine = &p->i->data->values[how->layer];
    const bool owns = how->kv_layer == how->layer;
    ht_array *wanted[4];
    ht_error err = {0};
    int n = 0;
    if (how->layer > p->i->last) return true;
    if (how->v_dim) v = k;
    if (owns && mine->k) wanted[n++] = k;
    if (owns && mine->v) wanted[n++] = v;
    if (mine->q || mine->attention) wanted[n++] = q;
    if (mine->attention) wanted[n++] = result; /* has the keys in the cache */
    ht_status status = n ? ht_array_eval(c->s, wanted, n, &err) : HT_OK;
    if (!status && owns && mine->k) status = copy_heads(p, c->s, k, mine->k, &err);
    if (!status && owns && mine->v) status = copy_heads(p, c->s, v, mine->v, &err);
    if (!status && mine->q) status = copy_heads(p, c->s, q, mine->q, &err);
    if (!status && mine->attention) status = weigh(p, c->s, q, cache_layer, how, &err);
    if (status) ht_scope_fail_with(c->s, &err);
    return !status;
}

/* The last inspected layer computes only the recorded values; later layers are skipped. */
static ht_array *run_layer(ht_observer *o, ht_ctx *c, ht_layer_fn *layer, const void *model, int index,
                           ht_array *const *in) {
    pass *p = (pass *)o;
    const inspection *i = p->i;
    if (index > i->last) return layer(c, model, index, in);
    if (ht_cancel_requested(i->o.cancel))
        return ht_scope_fail(c->s, HT_ERR_CANCELLED, "cancelled in layer %d of %lld token%s", index, (long long)i->n,
                             ht_plural(i->n));
    ht_array *h =
        index < i->last ? ht_window_pass_layer(&p->window, c, layer, model, index, in) : layer(c, model, index, in);
    const double share = (double)(index + 1) / (i->last + 1); /* of the step */
    if (h && i->o.progress) i->o.progress(((double)p->window.begin + p->window.rows * share) / (double)i->n, i->o.user);
    return h;
}

static ht_status run_pass(const inspection *i, ht_error *err) {
    pass p = {.window = {.observer = {.attends = attends, .layer = run_layer},
                         .model = i->model,
                         .lora = i->adapters ? &i->adapters->set : NULL},
              .i = i};
    ht_status status = ht_cache_new(i->model, ROWS, &p.window.cache, err);
    if (!status) status = ht_window_pass_run(&p.window, i->data->token, i->n, ROWS, err);
    ht_cache_free(p.window.cache);
    return status;
}

/* ---- the call ---- */

ht_status ht_inspect(ht_model *m, const int32_t *ids, size_t n, const ht_inspect_options *options, ht_inspection **out,
                     ht_error *err) {
    inspection i = {.model = m, .n = n > INT64_MAX ? INT64_MAX : (int64_t)n};
    *out = NULL;
    ht_status status = ht_options_read(&i.o, options, &defaults, sizeof defaults, "ht_inspect_options", err);
    if (!status && i.o.n_adapters < 0)
        status = ht_fail(err, HT_ERR_ARGUMENT, "%d adapters, expected 0 or more", i.o.n_adapters);
    if (!status) status = ht_model_need_decoder(m, err);
    if (!status) status = check_ids(&i, ids, err);
    if (!status) status = mark_layers(&i, err);
    if (!status) status = check_memory(&i, err);
    if (!status && i.o.n_adapters)
        status = ht_session_adapters_new(m, i.o.adapters, i.o.adapter_scales, i.o.n_adapters, &i.adapters, err);
    if (!status) status = make_data(&i, ids, err);
    if (!status) status = run_pass(&i, err);
    if (status)
        free_data(i.data);
    else
        *out = &i.data->public;
    ht_session_adapters_free(i.adapters);
    free(i.listed);
    free(i.weighed);
    return status;
}

/* ---- npz files ---- */

static ht_status put(ht_zip_writer *w, const char *file, const void *values, ht_dtype dtype, const int64_t *shape,
                     int n_dims, bool deflate, ht_error *err) {
    char header[HT_NPY_HEADER_WRITTEN];
    const size_t n = ht_npy_write_header(dtype, shape, n_dims, header);
    size_t bytes = ht_dtype_bytes(dtype);
    for (int i = 0; i < n_dims; i++) bytes *= (size_t)shape[i]; /* no overflow: the array is in memory */
    ht_status status = ht_zip_begin(w, file, n + bytes, deflate, err);
    if (!status) status = ht_zip_put(w, header, n, err);
    if (!status) status = ht_zip_put(w, values, bytes, err);
    return status;
}

static ht_status put_layer(ht_zip_writer *w, int32_t layer, const char *what, const float *values, const int64_t *shape,
                           bool deflate, ht_error *err) {
    char file[64];
    if (!values) return HT_OK;
    snprintf(file, sizeof file, "layer.%d.%s.npy", (int)layer, what);
    return put(w, file, values, HT_F32, shape, 3, deflate, err);
}

/* Whether no layer before this one has written the keys and values that it attends to. */
static bool is_first_of(const ht_inspection *i, int32_t layer) {
    for (int32_t l = 0; l < layer; l++)
        if (i->layers[l].kv_layer == i->layers[layer].kv_layer && (i->layers[l].k || i->layers[l].v)) return false;
    return true;
}

ht_status ht_inspection_save(const ht_inspection *i, const char *path, bool deflate, ht_error *err) {
    ht_zip_writer *w;
    ht_status status = ht_zip_writer_open(path, &w, err);
    if (status) return status;
    status = put(w, "tokens.npy", i->tokens, HT_I32, &i->n_tokens, 1, deflate, err);
    for (int32_t l = 0; l < i->n_layers && !status; l++) {
        const ht_inspected_layer *x = &i->layers[l];
        const int64_t kv[] = {x->n_kv_heads, i->n_tokens, x->head_dim}, q[] = {x->n_heads, i->n_tokens, x->head_dim};
        const int64_t square[] = {x->n_heads, i->n_tokens, i->n_tokens};
        const bool first = is_first_of(i, l);
        if (first) status = put_layer(w, x->kv_layer, "k", x->k, kv, deflate, err);
        if (first && !status) status = put_layer(w, x->kv_layer, "v", x->v, kv, deflate, err);
        if (!status) status = put_layer(w, l, "q", x->q, q, deflate, err);
        if (!status) status = put_layer(w, l, "attention", x->attention, square, deflate, err);
    }
    if (status == HT_OK) return ht_zip_commit(w, err);
    ht_zip_discard(w);
    return status;
}
