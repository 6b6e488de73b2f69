/* Forward context: linear layers with adapters, embeddings, attention, per-step values as arrays. */
#include "models/forward.h"

#include "array/array.h"
#include "array/op.h"
#include "array/symbol.h"
#include "models/taps.h"
#include "models/weights.h"

#include <hearth/linalg.h>
#include <hearth/random.h>
#include <hearth/transform.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* In a trace, an input that the executor binds to each run's batch; in eager mode the batch's memory, which outlives
 * the step's graph. */
static ht_array *batch_values(ht_ctx *c, ht_batch_field field) {
    const ht_batch *b = c->step ? c->step->batch : NULL;
    const bool is_out = field == HT_BATCH_OUT_ROW;
    if (b) {
        const int32_t *const values[] = {
            [HT_BATCH_ID] = b->id,       [HT_BATCH_POS] = b->pos,   [HT_BATCH_OUT_ROW] = b->out_row,
            [HT_BATCH_FIRST] = b->first, [HT_BATCH_LAST] = b->last, [HT_BATCH_TYPE] = b->type};
        const int64_t n = is_out ? b->n_out : b->n_tok;
        return ht_array_wrap(c->s, values[field], HT_I32, &n, 1, NULL, NULL);
    }
    ht_array *a = ht_array_new(c->s, HT_OP_LEAF, NULL, 0);
    if (!a) return NULL;
    const int64_t symbolic = is_out ? HT_SYM_OUT : HT_SYM_ROWS;
    ht_array_set_contiguous(a, HT_I32, &symbolic, 1);
    a->batch_field = field;
    return a;
}

ht_array *ht_batch_ids(ht_ctx *c) { return c->pass ? c->pass->id : batch_values(c, HT_BATCH_ID); }

ht_array *ht_batch_positions(ht_ctx *c) { return c->pass ? c->pass->pos : batch_values(c, HT_BATCH_POS); }

ht_array *ht_batch_out_rows(ht_ctx *c) { return c->pass ? c->pass->out_row : batch_values(c, HT_BATCH_OUT_ROW); }

ht_array *ht_batch_first(ht_ctx *c) { return c->pass ? c->pass->first : batch_values(c, HT_BATCH_FIRST); }

ht_array *ht_batch_last(ht_ctx *c) { return c->pass ? c->pass->last : batch_values(c, HT_BATCH_LAST); }

ht_array *ht_batch_types(ht_ctx *c) { return c->pass ? c->pass->type : batch_values(c, HT_BATCH_TYPE); }

/* ---- adapters ---- */

static int by_slot(const void *slot, const void *pair) { return strcmp(slot, ((const ht_adapter_pair *)pair)->slot); }

static const ht_adapter_pair *adapter_for(const ht_ctx *c, const char *slot) {
    if (!c->adapters || !c->adapters->n || !slot) return NULL; /* without pairs there is no list */
    return bsearch(slot, c->adapters->pair, (size_t)c->adapters->n, sizeof *c->adapters->pair, by_slot);
}

/* Applies dropout to x. The pair's index selects its random numbers. */
static ht_array *dropped(ht_ctx *c, ht_array *x, const ht_adapter_pair *pair) {
    const ht_adapters *all = c->adapters;
    if (all->key == HT_NONE || !all->key || all->dropout <= 0) return x;
    const uint32_t number = (uint32_t)(pair - all->pair);
    ht_array *key = ht_bitwise_xor(c->s, all->key, ht_full(c->s, number, HT_U32, NULL, 0));
    ht_array *keep = ht_full(c->s, 1 - (double)all->dropout, HT_F32, NULL, 0);
    ht_array *kept = ht_random_bernoulli(c->s, keep, x->shape, x->n_dims, key);
    ht_array *zero = ht_full(c->s, 0, HT_F32, NULL, 0);
    return ht_where(c->s, kept, ht_scale(c->s, x, 1 / (1 - all->dropout)), zero);
}

/* Adds each sequence's adapters for a slot; ids are HT_NONE for a dense projection. */
static ht_array *add_step_adapters(ht_ctx *c, ht_array *y, ht_array *x, ht_array *ids, const char *slot,
                                   const ht_lora_params *how) {
    const int64_t projection = c->lora && slot ? ht_weights_find_projection(c->lora, slot) : -1;
    if (projection < 0) return y;
    ht_lora_params p = *how;
    p.projection = projection;
    y = ht_apply(c->s, HT_OP_LORA, &p, (ht_array *[]){y, x, ids}, 3);
    if (y) y->step = c->step;
    return y;
}

/* Shows an observer the input of a projection; false when it failed, or x is NULL. */
static bool observed(ht_ctx *c, ht_array *x, ht_array *ids, const char *slot) {
    if (!x || !ids) return false;
    return !c->observer || !c->observer->projects || c->observer->projects(c->observer, c, slot, x, ids);
}

bool ht_observe_input(ht_ctx *c, ht_array *x, const char *slot) { return observed(c, x, HT_NONE, slot); }

/* x [T, k] with its columns in a stored order. */
static ht_array *in_order(ht_ctx *c, ht_array *x, const ht_order *o) {
    if (!o->group || !x) return x;
    const int64_t apart[] = {-1, o->parts, o->group / (o->parts * o->block), o->block}, whole[] = {-1, o->group};
    return ht_reshape(c->s, ht_swapaxes(c->s, ht_reshape(c->s, x, apart, 4), 1, 2), whole, 2);
}

ht_array *ht_linear_base(ht_ctx *c, ht_array *x, const ht_weight *w) {
    const ht_linear_params p = {.matrix = w->matrix};
    ht_array *bias = w->bias ? w->bias : HT_NONE, *in = in_order(c, x, &w->columns);
    ht_array *y = ht_apply(c->s, HT_OP_LINEAR, &p, (ht_array *[]){in, w->scale != 0 ? HT_NONE : bias}, 2);
    if (w->scale == 0) return y;
    y = ht_scale(c->s, y, w->scale);
    return bias != HT_NONE ? ht_add(c->s, y, bias) : y;
}

bool ht_is_adapted(const ht_ctx *c, const char *slot) {
    return adapter_for(c, slot) || (c->lora && slot && ht_weights_find_projection(c->lora, slot) >= 0);
}

ht_array *ht_adapted(ht_ctx *c, ht_array *y, ht_array *x, const char *slot) {
    y = add_step_adapters(c, y, x, HT_NONE, slot, &(ht_lora_params){0});
    ht_array *more = ht_linear_adapter(c, x, slot);
    return more == HT_NONE ? y : ht_add(c->s, y, more);
}

ht_array *ht_linear(ht_ctx *c, ht_array *x, const ht_weight *w) {
    if (!observed(c, x, HT_NONE, w->slot)) return NULL;
    ht_array *y = ht_adapted(c, ht_linear_base(c, x, w), x, w->slot);
    return w->multiplier ? ht_multiply(c->s, y, w->multiplier) : y;
}

ht_array *ht_linear_adapter(ht_ctx *c, ht_array *x, const char *slot) {
    const ht_adapter_pair *pair = adapter_for(c, slot);
    if (!pair) return HT_NONE;
    ht_array *low = ht_matmul(c->s, dropped(c, x, pair), pair->a, true); /* [..., rank] */
    return ht_matmul(c->s, ht_scale(c->s, low, pair->scale), pair->b, true);
}

/* y [T, m, n] plus the adapter's products with the chosen experts: x [T, k] or [T, m, k], ids i32 [T, m]. */
static ht_array *adapt_experts(ht_ctx *c, ht_array *y, ht_array *x, const ht_experts *experts, ht_array *ids) {
    const ht_adapter_pair *pair = adapter_for(c, experts->slot);
    if (!pair || !y) return y;
    x = dropped(c, x, pair);
    if (x && x->n_dims == 2) x = ht_expand_dims(c->s, x, 1);
    if (!x) return NULL;
    const int64_t full[] = {ids->shape[0], ids->shape[1], x->shape[2]};
    x = ht_expand_dims(c->s, ht_broadcast_to(c->s, x, full, 3), 2); /* [T, m, 1, k] */
    ht_array *a = ht_swapaxes(c->s, pair->a, 1, 2), *b = ht_swapaxes(c->s, pair->b, 1, 2);
    ht_array *low = ht_scale(c->s, ht_gather_mm(c->s, x, a, HT_NONE, ids), pair->scale); /* [T, m, 1, rank] */
    return ht_add(c->s, y, ht_squeeze(c->s, ht_gather_mm(c->s, low, b, HT_NONE, ids), 2));
}

/* ---- experts ---- */

/* Multiplies the products y [T, m, n] by the chosen experts' factors, then adds their biases. */
static ht_array *scaled_and_biased(ht_ctx *c, ht_array *y, const ht_experts *experts, ht_array *ids) {
    if (y && experts->scale && experts->scale != HT_NONE) {
        const int64_t all[] = {ht_array_dim(ids, 0), experts->list.n};
        ht_array *scale = ht_take_along_axis(c->s, ht_broadcast_to(c->s, experts->scale, all, 2), ids, -1); /* [T, m] */
        y = ht_multiply(c->s, y, ht_expand_dims(c->s, scale, -1));
    }
    if (!y || !experts->bias) return y;
    const int64_t shape[] = {experts->list.n, ht_array_dim(y, 2)};
    return ht_add(c->s, y, ht_take(c->s, ht_reshape(c->s, experts->bias, shape, 2), ids, 0));
}

ht_array *ht_linear_gather(ht_ctx *c, ht_array *x, const ht_experts *experts, ht_array *ids) {
    if (!observed(c, x, ids, experts->slot)) return NULL;
    const ht_linear_gather_params p = {{&experts->list}, 1};
    ht_array *y =
        scaled_and_biased(c, ht_apply(c->s, HT_OP_LINEAR_GATHER, &p, (ht_array *[]){x, ids}, 2), experts, ids);
    y = add_step_adapters(c, y, x, ids, experts->slot, &(ht_lora_params){.n_experts = experts->list.n});
    return adapt_experts(c, y, x, experts, ids);
}

void ht_linear_gather_two(ht_ctx *c, ht_array *x, const ht_experts *const experts[2], ht_array *ids, ht_array *y[2]) {
    const ht_linear_gather_params p = {{&experts[0]->list, &experts[1]->list}, 2};
    ht_array *both = ht_apply(c->s, HT_OP_LINEAR_GATHER, &p, (ht_array *[]){x, ids}, 2); /* [T, m, 2 n] */
    y[0] = y[1] = NULL;
    if (!both || !observed(c, x, ids, experts[0]->slot) || !observed(c, x, ids, experts[1]->slot)) return;
    int64_t t = ht_array_dim(both, 0), m = ht_array_dim(both, 1), n = ht_array_dim(both, 2) / 2;
    for (int i = 0; i < 2; i++) {
        const int64_t start[] = {0, 0, i * n}, stop[] = {t, m, (i + 1) * n};
        y[i] = scaled_and_biased(c, ht_slice(c->s, both, start, stop, NULL), experts[i], ids);
        y[i] = add_step_adapters(c, y[i], x, ids, experts[i]->slot, &(ht_lora_params){.n_experts = experts[i]->list.n});
        y[i] = adapt_experts(c, y[i], x, experts[i], ids);
    }
}

ht_array *ht_linear_heads(ht_ctx *c, ht_array *x, const ht_experts *heads, bool transposed) {
    if (!x) return NULL;
    const int64_t all[] = {ht_array_dim(x, 0), heads->list.n};
    ht_array *ids = ht_broadcast_to(c->s, ht_arange(c->s, 0, heads->list.n, 1, HT_I32), all, 2);
    const ht_linear_gather_params p = {{&heads->list}, 1};
    const ht_op_id op = transposed == heads->as_rows ? HT_OP_LINEAR_GATHER_BACK : HT_OP_LINEAR_GATHER;
    ht_array *y = scaled_and_biased(c, ht_apply(c->s, op, &p, (ht_array *[]){x, ids}, 2), heads, ids);
    const ht_lora_params how = {.n_experts = heads->list.n,
                                .head_rows = heads->head_rows,
                                .first_row = heads->first_row,
                                .transposed = transposed};
    return add_step_adapters(c, y, x, ids, heads->slot, &how);
}

ht_array *ht_embed(ht_ctx *c, ht_array *ids, const ht_weight *table, float scale) {
    const ht_linear_params p = {.matrix = table->matrix, .scale = table->scale != 0 ? scale * table->scale : scale};
    return ht_apply(c->s, HT_OP_EMBED, &p, &ids, 1);
}

/* ---- attention ---- */

static ht_array *sinks_of(const ht_attention *how) { return how->sinks ? how->sinks : HT_NONE; }

static ht_array *attend_plain(ht_ctx *c, ht_array *q, ht_array *k, ht_array *v, int cache_layer,
                              const ht_attention *how) {
    const ht_plain_pass *pass = c->pass;
    const ht_layer_kv *kv = &pass->kv[cache_layer];
    const ht_attend_rows_params p = {how->scale, how->softcap, kv->window, kv->chunked, false};
    if (k != HT_NONE) {
        pass->keys[cache_layer] = k;
        pass->values[cache_layer] = v;
    }
    ht_array *own = how->asked ? ht_batch_out_rows(c) : pass->own, *first = how->asked ? pass->out_first : pass->first;
    ht_array *in[] = {q, pass->keys[cache_layer], pass->values[cache_layer], own, first, sinks_of(how)};
    return ht_apply(c->s, HT_OP_ATTEND_ROWS, &p, in, 6);
}

void ht_begin_two_sided(ht_ctx *c, int64_t reach) {
    ht_scope *s = c->s;
    if (!reach) return;
    ht_array *row = ht_add(s, ht_batch_first(c), ht_batch_positions(c));
    c->near = ht_minimum(s, ht_add(s, row, ht_full(s, (double)reach, HT_I32, NULL, 0)), ht_batch_last(c));
}

static ht_array *attend_to_both_sides(ht_ctx *c, ht_array *q, ht_array *k, ht_array *v, const ht_attention *how) {
    const ht_attend_rows_params p = {how->scale, how->softcap, how->reach, false, true};
    ht_array *last = how->reach ? c->near : ht_batch_last(c);
    return ht_apply(c->s, HT_OP_ATTEND_ROWS, &p, (ht_array *[]){q, k, v, last, ht_batch_first(c), sinks_of(how)}, 6);
}

ht_array *ht_attend(ht_ctx *c, ht_array *q, ht_array *k, ht_array *v, int cache_layer, const ht_attention *how) {
    if (how->two_sided) return attend_to_both_sides(c, q, k, v, how);
    if (c->pass) return attend_plain(c, q, k, v, cache_layer, how);
    const ht_attend_params p = {cache_layer, how->scale, how->softcap, how->asked, how->v_dim};
    ht_array *a = ht_apply(c->s, HT_OP_ATTEND, &p, (ht_array *[]){q, k, v, sinks_of(how)}, 4);
    if (a) a->step = c->step;
    const ht_observer *o = c->observer;
    if (a && o && o->attends && !o->attends(c->observer, c, q, k, v, cache_layer, how, a)) return NULL;
    return a;
}

/* ---- recurrences ---- */

/* x [T, n] moved down by `rows` rows within each sequence, with zeros before its first row. */
static ht_array *moved_down(ht_ctx *c, ht_array *x, int64_t rows) {
    ht_scope *s = c->s;
    const ht_plain_pass *pass = c->pass;
    ht_array *from = ht_subtract(s, pass->own, ht_full(s, (double)rows, HT_I32, NULL, 0));
    ht_array *is_there = ht_greater_equal(s, from, pass->first);
    ht_array *moved = ht_take(s, x, ht_where(s, is_there, from, pass->own), 0);
    return ht_where(s, ht_expand_dims(s, is_there, 1), moved, ht_full(s, 0, HT_F32, NULL, 0));
}

static ht_array *convolve_plain(ht_ctx *c, ht_array *x, ht_array *w, ht_array *bias) {
    ht_scope *s = c->s;
    if (!x || !w) return NULL;
    const int64_t n = ht_array_dim(w, 0), taps = ht_array_dim(w, 1);
    ht_array *y = bias;
    for (int64_t j = 0; j < taps; j++) {
        ht_array *tap = ht_reshape(s, ht_slice(s, w, (int64_t[]){0, j}, (int64_t[]){n, j + 1}, NULL), &n, 1);
        ht_array *part = ht_multiply(s, j + 1 < taps ? moved_down(c, x, taps - 1 - j) : x, tap);
        y = y == HT_NONE ? part : ht_add(s, y, part);
    }
    return y;
}

ht_array *ht_short_conv(ht_ctx *c, ht_array *x, ht_array *w, ht_array *bias, int cache_layer, int64_t first,
                        int64_t channels) {
    if (c->pass) return convolve_plain(c, x, w, bias);
    const ht_short_conv_params p = {cache_layer, first, channels};
    ht_array *y = ht_apply(c->s, HT_OP_SHORT_CONV, &p, (ht_array *[]){x, w, bias}, 3);
    if (y) y->step = c->step;
    return y;
}

ht_array *ht_state_scan(ht_ctx *c, ht_array *q, ht_array *k, ht_array *v, ht_array *decay, ht_array *rate,
                        const ht_state_scan_params *how) {
    ht_array *in[] = {q, k, v, decay, rate, c->pass ? c->pass->first : NULL};
    if (c->pass) return ht_apply(c->s, HT_OP_STATE_SCAN_ROWS, how, in, 6);
    ht_array *o = ht_apply(c->s, HT_OP_STATE_SCAN, how, in, 5);
    if (o) o->step = c->step;
    return o;
}

/* ---- losses ---- */

ht_array *ht_head_loss(ht_ctx *c, ht_array *h, const ht_weight *head, float softcap) {
    const ht_head_loss_params p = {head->matrix, head->scale != 0 ? head->scale : 1, softcap};
    ht_array *both = ht_apply(c->s, HT_OP_HEAD_LOSS, &p, (ht_array *[]){h, c->pass->target}, 2); /* [2, n_out] */
    if (!both) return NULL;
    const int64_t n = ht_array_dim(both, 1);
    return ht_reshape(c->s, ht_slice(c->s, both, (int64_t[]){0, 0}, (int64_t[]){1, n}, NULL), &n, 1);
}

/* ---- layers ---- */

/* A layer as a function of arrays. Inputs: those of the layer, its adapter pairs, and keys and values borrowed from
 * an earlier layer. Results: the residual stream, then the layer's keys and values if later layers attend to them. */
typedef struct layer_call {
    const ht_ctx *c;
    ht_layer_fn *layer;
    const void *model;
    int index, n_in, n_pairs;
    const ht_adapter_pair *pair; /* [n_pairs] of c->adapters */
    int64_t borrowed;            /* index of another layer's keys that this layer attends to; -1: its own */
    bool lends;                  /* its keys and values are results */
} layer_call;

static int call_layer(ht_scope *s, ht_array *const *in, int n_in, ht_array **out, int max_out, void *user) {
    (void)n_in, (void)max_out;
    const layer_call *f = user;
    ht_ctx c = *f->c;
    ht_plain_pass pass = *c.pass;
    ht_adapters adapters = {0};
    ht_adapter_pair *pair = NULL;
    c.s = s;
    c.pass = &pass;
    ht_array *const *at = in + f->n_in;
    if (f->n_pairs) {
        adapters = *c.adapters;
        pair = malloc((size_t)adapters.n * sizeof *pair);
        if (!pair) {
            ht_scope_report(s, HT_ERR_MEMORY, "out of memory: the adapter of a layer");
            return -1;
        }
        memcpy(pair, adapters.pair, (size_t)adapters.n * sizeof *pair);
        for (int i = 0; i < f->n_pairs; i++, at += 2) {
            ht_adapter_pair *p = &pair[f->pair - adapters.pair + i];
            p->a = at[0];
            p->b = at[1];
        }
        adapters.pair = pair;
        c.adapters = &adapters;
    }
    if (f->borrowed >= 0) {
        pass.keys[f->borrowed] = at[0];
        pass.values[f->borrowed] = at[1];
    }
    out[0] = f->layer(&c, f->model, f->index, in);
    free(pair);
    if (f->lends) {
        out[1] = pass.keys[f->index];
        out[2] = pass.values[f->index];
    }
    return out[0] ? (f->lends ? 3 : 1) : -1;
}

/* The adapter's pairs of a layer; sorting makes them adjacent. */
static int pairs_of_layer(const ht_adapters *all, int index, const ht_adapter_pair **first) {
    char prefix[64];
    const int length = snprintf(prefix, sizeof prefix, "model.layers.%d.", index);
    int n = 0;
    *first = NULL;
    for (int i = 0; all && i < all->n; i++)
        if (strncmp(all->pair[i].slot, prefix, (size_t)length) == 0) {
            if (!n) *first = &all->pair[i];
            n++;
        }
    return n;
}

static ht_array *checkpointed(layer_call *f, ht_array *const *in) {
    const ht_ctx *c = f->c;
    const ht_plain_pass *pass = c->pass;
    const int n = f->n_in + 2 * f->n_pairs + 2;
    ht_array **all = malloc((size_t)n * sizeof(ht_array *));
    if (!all) {
        ht_scope_report(c->s, HT_ERR_MEMORY, "out of memory: the inputs of a layer");
        return NULL;
    }
    memcpy(all, in, (size_t)f->n_in * sizeof *all);
    ht_array **at = all + f->n_in;
    for (int i = 0; i < f->n_pairs; i++) {
        *at++ = f->pair[i].a;
        *at++ = f->pair[i].b;
    }
    ht_array *lent[2] = {NULL, NULL}, *out[3] = {NULL};
    if (f->borrowed >= 0) {
        *at++ = lent[0] = pass->keys[f->borrowed];
        *at++ = lent[1] = pass->values[f->borrowed];
    }
    const ht_function function = {call_layer, f};
    const int made = ht_checkpoint(c->s, &function, all, (int)(at - all), out, 3);
    free(all);
    if (f->borrowed >= 0) { /* the layer saw placeholders */
        pass->keys[f->borrowed] = lent[0];
        pass->values[f->borrowed] = lent[1];
    }
    if (f->lends) {
        pass->keys[f->index] = out[1];
        pass->values[f->index] = out[2];
    }
    return made > 0 ? out[0] : NULL;
}

ht_array *ht_layer(ht_ctx *c, ht_layer_fn *layer, const void *model, int index, int64_t kv_layer, ht_array *const *in,
                   int n_in) {
    for (int i = 0; i < n_in; i++)
        if (!in[i]) return NULL;
    if (c->observer) return c->observer->layer(c->observer, c, layer, model, index, in);
    if (c->taps) {
        ht_array *h = layer(c, model, index, in);
        return ht_taps_add_stream(c, h) ? h : NULL;
    }
    if (!c->pass || !c->pass->checkpointing) return layer(c, model, index, in);
    layer_call f = {.c = c, .layer = layer, .model = model, .index = index, .n_in = n_in, .borrowed = -1};
    f.n_pairs = pairs_of_layer(c->adapters, index, &f.pair);
    if (kv_layer != index) f.borrowed = kv_layer;
    f.lends = c->pass->shares_keys && kv_layer == index;
    return checkpointed(&f, in);
}
