/* Layers of a forward function as functions of their own, which a plain pass can compute again for the gradient. */
#include "array/array.h"
#include "models/forward.h"
#include "models/taps.h"

#include <hearth/transform.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* A layer as a function of arrays: its inputs, the adapter's pairs of the layer, and the keys and values that it attends
 * to when they are an earlier layer's. Results: the residual stream; then the layer's own keys and values, where later
 * layers attend to them. */
typedef struct layer_call {
    const ht_ctx *c;
    ht_layer_fn *layer;
    const void *model;
    int index, n_in, n_pairs;
    const ht_adapter_pair *pair; /* [n_pairs] of c->adapters */
    int64_t borrowed;            /* index of the keys that the layer attends to, another layer's; -1: its own */
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

/* The adapter's pairs of a layer: adjacent, as they are sorted. */
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
