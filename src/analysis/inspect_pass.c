/* The pass of an inspection: the model's forward function, evaluated layer by layer, with an observer that copies the operands of
 * attention and computes its weights. No plan and no session has a part in it. */
#include "analysis/inspect.h"
#include "array/array.h"
#include "array/user_function.h"
#include "base/checked.h"
#include "base/error.h"
#include "base/half.h"
#include "base/plural.h"
#include "checkpoint/config.h"
#include "device/device.h"
#include "generate/cache.h"
#include "models/weights.h"

#include <hearth/ops.h>

#include <math.h>
#include <stdlib.h>
#include <string.h>

typedef struct pass {
    ht_observer observer; /* first: what is called back with */
    const ht_model *model;
    const ht_inspect_options *o;
    ht_inspection_data *into;
    ht_cache *cache;
    int64_t n, begin; /* tokens in all, and before the step */
    int32_t rows;     /* of the step */
    int last;         /* layer after which nothing is wanted */
} pass;

/* ---- operands ---- */

/* Copies x [rows, heads, dim] to positions begin .. of out [heads, n, dim]. */
static ht_status copy_heads(const pass *p, ht_scope *s, ht_array *x, float *out, ht_error *err) {
    const int64_t heads = ht_array_dim(x, 1), dim = ht_array_dim(x, 2);
    const void *data;
    void *copy;
    ht_status status = ht_array_borrow(s, x, &data, &copy, err);
    const float *from = data;
    for (int64_t t = 0; !status && t < p->rows; t++)
        for (int64_t h = 0; h < heads; h++, from += dim)
            memcpy(out + (h * p->n + p->begin + t) * dim, from, (size_t)dim * sizeof *from);
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
static ht_status stored_keys(const pass *p, int kv_layer, int64_t first, int64_t end, float *out, ht_error *err) {
    const ht_kv_layer *l = &p->cache->layer[kv_layer];
    const size_t each = ht_kv_saved_bytes(&l->shape), vector = ht_kv_vector_bytes(&l->shape);
    ht_device *d = p->model->device;
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

/* Keys first .. first + n_keys - 1 and the rows of the step, which attend to them within `window` (0: all). */
typedef struct span {
    int64_t first, n_keys, window;
} span;

static int64_t first_key(int64_t window, int64_t position) { return window ? ht_max_i64(0, position - window + 1) : 0; }

/* Whether row i sees key j: bool [rows, n_keys]. */
static ht_array *visible(const pass *p, ht_scope *s, const span *keys) {
    ht_array *row = ht_arange(s, (double)p->begin, (double)(p->begin + p->rows), 1, HT_I32);
    ht_array *key = ht_arange(s, (double)keys->first, (double)(keys->first + keys->n_keys), 1, HT_I32);
    row = ht_expand_dims(s, row, 1);
    ht_array *seen = ht_less_equal(s, key, row);
    if (!keys->window) return seen;
    ht_array *window = ht_full(s, (double)keys->window, HT_I32, NULL, 0);
    return ht_logical_and(s, seen, ht_less(s, ht_subtract(s, row, key), window));
}

/* Copies the weights [heads, rows, n_keys] of heads from `head` on; what a row does not see stays 0. */
static ht_status copy_weights(const pass *p, ht_scope *s, ht_array *weights, int64_t head, const span *keys, float *out,
                              ht_error *err) {
    const void *data;
    void *copy;
    ht_status status = ht_array_borrow(s, weights, &data, &copy, err);
    const float *from = data;
    const int64_t heads = status ? 0 : ht_array_dim(weights, 0);
    for (int64_t h = head; h < head + heads; h++)
        for (int64_t at = p->begin; at < p->begin + p->rows; at++, from += keys->n_keys) {
            const int64_t first = first_key(keys->window, at);
            memcpy(out + (h * p->n + at) * p->n + first, from + first - keys->first,
                   (size_t)(at + 1 - first) * sizeof *from);
        }
    free(copy);
    return status;
}

/* Weights of the query heads that share key head `group`, from its keys [n_keys, head_dim]. */
static ht_status weigh_group(const pass *p, ht_scope *outer, ht_array *q, const float *key, int64_t group,
                             int64_t n_groups, const span *keys, const ht_attention *how, float *out, ht_error *err) {
    ht_scope *s = ht_scope_child(outer);
    if (!s) return ht_scope_status(outer, err);
    const int64_t heads = ht_array_dim(q, 1) / n_groups, dim = ht_array_dim(q, 2);
    const int64_t start[] = {0, group * heads, 0}, stop[] = {p->rows, (group + 1) * heads, dim};
    ht_array *mine = ht_transpose(s, ht_slice(s, q, start, stop, NULL), (int[]){1, 0, 2}); /* [heads, rows, dim] */
    ht_array *k = ht_array_wrap(s, key, HT_F32, (int64_t[]){keys->n_keys, dim}, 2, NULL, NULL);
    ht_array *scores = ht_scale(s, ht_matmul(s, mine, k, true), how->scale); /* [heads, rows, n_keys] */
    if (how->softcap > 0) scores = ht_softcap(s, scores, how->softcap);
    scores = ht_where(s, visible(p, s, keys), scores, ht_full(s, (double)-INFINITY, HT_F32, NULL, 0));
    ht_array *weights = ht_softmax(s, scores, -1);
    ht_status status = weights ? copy_weights(p, s, weights, group * heads, keys, out, err) : ht_scope_status(s, err);
    ht_scope_free(s);
    return status;
}

static ht_status weigh(const pass *p, ht_scope *s, ht_array *q, int kv_layer, const ht_attention *how, ht_error *err) {
    const ht_kv_layer *l = &p->cache->layer[kv_layer];
    const int64_t end = p->begin + p->rows, first = first_key(l->window, p->begin);
    const span keys = {first, end - first, l->window};
    const int64_t n_groups = l->shape.n_kv_heads, of_group = keys.n_keys * l->shape.head_dim;
    const size_t bytes = (size_t)(n_groups * of_group) * sizeof(float); /* as checked before the pass */
    float *stored = malloc(bytes), *out = p->into->values[how->layer].attention;
    ht_status status =
        stored ? stored_keys(p, kv_layer, first, end, stored, err) : ht_fail_memory(err, bytes, "the keys of a layer");
    for (int64_t g = 0; !status && g < n_groups; g++)
        status = weigh_group(p, s, q, stored + g * of_group, g, n_groups, &keys, how, out, err);
    free(stored);
    return status;
}

/* ---- the observer ---- */

static ht_status observe(const pass *p, ht_scope *s, ht_array *q, ht_array *k, ht_array *v, int kv_layer,
                         const ht_attention *how, ht_array *result, ht_error *err) {
    const ht_inspected_values *mine = &p->into->values[how->layer];
    const bool owns = kv_layer == how->layer;
    ht_array *wanted[4];
    int n = 0;
    if (owns && mine->k) wanted[n++] = k;
    if (owns && mine->v) wanted[n++] = v;
    if (mine->q || mine->attention) wanted[n++] = q;
    if (mine->attention) wanted[n++] = result; /* has the keys in the cache */
    ht_status status = n ? ht_array_eval(s, wanted, n, err) : HT_OK;
    if (!status && owns && mine->k) status = copy_heads(p, s, k, mine->k, err);
    if (!status && owns && mine->v) status = copy_heads(p, s, v, mine->v, err);
    if (!status && mine->q) status = copy_heads(p, s, q, mine->q, err);
    if (!status && mine->attention) status = weigh(p, s, q, kv_layer, how, err);
    return status;
}

static bool attends(ht_observer *o, ht_ctx *c, ht_array *q, ht_array *k, ht_array *v, int kv_layer,
                    const ht_attention *how, ht_array *result) {
    const pass *p = (const pass *)o;
    ht_error err = {0};
    if (how->layer > p->last || !observe(p, c->s, q, k, v, kv_layer, how, result, &err)) return true;
    ht_scope_fail_with(c->s, &err);
    return false;
}

/* Layers up to the last one of interest are evaluated in a scope of their own each, so that only one of them has its values in
 * memory. Of that last one only what is kept is computed, of those after it nothing. */
static ht_array *run_layer(ht_observer *o, ht_ctx *c, ht_layer_fn *layer, const void *model, int index,
                           ht_array *const *in) {
    const pass *p = (const pass *)o;
    if (index > p->last) return layer(c, model, index, in);
    if (ht_cancel_requested(p->o->cancel))
        return ht_scope_fail(c->s, HT_ERR_CANCELLED, "cancelled in layer %d of %lld token%s", index, (long long)p->n,
                             ht_plural(p->n));
    ht_array *h;
    if (index < p->last) {
        ht_ctx inner = *c;
        inner.s = ht_scope_child(c->s);
        if (!inner.s) return NULL;
        h = layer(&inner, model, index, in);
        ht_error err = {0};
        if (h && ht_array_detach(inner.s, h, &err)) h = ht_scope_fail_with(inner.s, &err);
        if (!ht_scope_give(c->s, inner.s, h != NULL, &h, 1)) return NULL;
    } else
        h = layer(c, model, index, in);
    const double share = (double)(index + 1) / (p->last + 1); /* of the step */
    if (h && p->o->progress) p->o->progress(((double)p->begin + p->rows * share) / (double)p->n, p->o->user);
    return h;
}

/* ---- steps ---- */

/* Runs positions begin .. begin + rows - 1. All rows are output rows, which some layers are computed for alone. */
static ht_status run_step(pass *p, const ht_lora_set *lora, const int32_t *pos, ht_error *err) {
    int32_t out_row[HT_INSPECT_ROWS];
    for (int32_t i = 0; i < p->rows; i++) out_row[i] = i;
    const ht_batch batch = {.n_tok = p->rows,
                            .n_seq = 1,
                            .n_out = p->rows,
                            .id = p->into->token + p->begin,
                            .pos = pos,
                            .seq_start = (int32_t[]){0, p->rows},
                            .kv_len = (int32_t[]){(int32_t)p->begin + p->rows},
                            .out_row = out_row};
    const ht_step step = {.batch = &batch, .kv = &p->cache, .lora = lora ? &lora : NULL};
    ht_status status = ht_cache_reserve(p->cache, p->begin + p->rows, err);
    if (status) return status;
    ht_scope *s = ht_scope_new(p->model->stream);
    if (!s) return ht_fail_memory(err, sizeof(void *), "a scope");
    ht_ctx c = {.s = s, .step = &step, .lora = lora ? p->model->weights : NULL, .observer = &p->observer};
    const ht_array *logits = p->model->config->family->forward(&c, ht_weights_decoder(p->model->weights));
    if (!logits || ht_scope_error(s)) status = ht_scope_status(s, err);
    ht_scope_free(s);
    if (!status) p->cache->length = p->begin + p->rows;
    return status;
}

ht_status ht_inspect_pass(const ht_model *m, const ht_lora_set *lora, int last, const ht_inspect_options *o,
                          ht_inspection_data *into, ht_error *err) {
    pass p = {.observer = {.attends = attends, .layer = run_layer},
              .model = m,
              .o = o,
              .into = into,
              .n = into->public.n_tokens,
              .last = last};
    ht_status status = ht_cache_new(m, HT_INSPECT_ROWS, &p.cache, err);
    for (; !status && p.begin < p.n; p.begin += p.rows) {
        int32_t pos[HT_INSPECT_ROWS];
        p.rows = (int32_t)ht_min_i64(HT_INSPECT_ROWS, p.n - p.begin);
        for (int32_t i = 0; i < p.rows; i++) pos[i] = (int32_t)p.begin + i;
        status = run_step(&p, lora, pos, err);
    }
    ht_cache_free(p.cache);
    return status;
}
