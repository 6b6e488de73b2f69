#include "train/model_loss.h"

#include "array/differentiate.h"
#include "array/user_function.h"
#include "base/error.h"
#include "checkpoint/kv_size.h"
#include "models/weights.h"

#include <hearth/ops.h>

#include <stdlib.h>
#include <string.h>

ht_status ht_model_loss_check(const ht_model *m, const ht_train_batch *b, ht_error *err) {
    for (int32_t i = 0; i < b->n_tok; i++) {
        const bool outside = b->id[i] < 0 || b->id[i] >= m->vocab;
        if (outside || b->target[i] >= m->vocab)
            return ht_fail(err, HT_ERR_ARGUMENT, "token id %d of row %d is outside the vocabulary of %d",
                           (int)(outside ? b->id[i] : b->target[i]), (int)i, (int)m->vocab);
    }
    if (b->n_learned < 1)
        return ht_fail(err, HT_ERR_ARGUMENT, "a batch of %d rows has no learned token", (int)b->n_tok);
    return HT_OK;
}

static ht_array *ids(ht_scope *s, const int32_t *values, int64_t n) { return ht_array_from(s, values, HT_I32, &n, 1); }

/* Rows whose target is learned become the output rows of the pass; `memory` has room for 5 n_tok numbers. */
static void fill_rows(ht_scope *s, const ht_train_batch *b, int32_t *memory, ht_plain_pass *pass) {
    int32_t n_out = 0, *own = memory, *first = own + b->n_tok, *out_row = first + b->n_tok;
    int32_t *target = out_row + b->n_tok, *out_first = target + b->n_tok;
    for (int32_t q = 0; q < b->n_seq; q++)
        for (int32_t i = b->seq_start[q]; i < b->seq_start[q + 1]; i++) {
            own[i] = i;
            first[i] = b->seq_start[q];
            if (b->target[i] < 0) continue;
            out_row[n_out] = i;
            target[n_out] = b->target[i];
            out_first[n_out++] = b->seq_start[q];
        }
    pass->id = ids(s, b->id, b->n_tok);
    pass->pos = ids(s, b->pos, b->n_tok);
    pass->own = ids(s, own, b->n_tok);
    pass->first = ids(s, first, b->n_tok);
    pass->out_row = ids(s, out_row, n_out);
    pass->target = ids(s, target, n_out);
    pass->out_first = ids(s, out_first, n_out);
}

ht_array *ht_model_loss_rows(ht_scope *s, const ht_model *m, const ht_train_batch *batch, const ht_adapters *adapters,
                             bool checkpointing) {
    const int64_t n_kv = m->n_kv_layers;
    int32_t *rows = malloc(5 * (size_t)batch->n_tok * sizeof *rows);
    int64_t *window = malloc((size_t)n_kv * sizeof *window);
    ht_array **keys = calloc(2 * (size_t)n_kv, sizeof *keys), *loss = NULL;
    if (rows && window && keys) {
        ht_plain_pass pass = {.window = window,
                              .keys = keys,
                              .values = keys + n_kv,
                              .shares_keys = n_kv < m->config->n_layers,
                              .checkpointing = checkpointing};
        fill_rows(s, batch, rows, &pass);
        for (int64_t i = 0; i < n_kv; i++) window[i] = ht_layer_kv_of(m->config, i, HT_F32).window;
        ht_ctx c = {.s = s, .pass = &pass, .adapters = adapters};
        loss = m->config->family->forward(&c, ht_weights_decoder(m->weights));
    } else
        ht_scope_fail(s, HT_ERR_MEMORY, "out of memory: a batch of %d rows", (int)batch->n_tok);
    free(rows);
    free(window);
    free(keys);
    return loss;
}

/* The sum, then the gradients, into `out`. */
static bool loss_and_gradients(ht_scope *s, const ht_model *m, const ht_train_batch *batch, const ht_adapters *adapters,
                               bool checkpointing, ht_array **out) {
    const int n = adapters->n;
    ht_array **wrt = ht_array_list(s, 2 * n), **grad = out + 1;
    ht_adapter_pair *pair = malloc(((size_t)n + 1) * sizeof *pair);
    if (wrt && !pair) ht_scope_fail(s, HT_ERR_MEMORY, "out of memory: an adapter of %d pairs", n);
    bool ok = wrt && pair;
    for (int i = 0; ok && i < n; i++) {
        pair[i] = adapters->pair[i];
        wrt[2 * i] = pair[i].a = ht_placeholder(s, pair[i].a);
        wrt[2 * i + 1] = pair[i].b = ht_placeholder(s, pair[i].b);
        ok = pair[i].a && pair[i].b;
    }
    ht_adapters traced = *adapters;
    traced.pair = pair;
    ht_array *rows = ok ? ht_model_loss_rows(s, m, batch, &traced, checkpointing) : NULL;
    out[0] = rows ? ht_sum(s, rows, NULL, 0, false) : NULL;
    ht_array *one = ht_full(s, 1, HT_F32, NULL, 0);
    ok = out[0] && one && ht_backward(s, out, &one, 1, wrt, 2 * n, grad);
    for (int i = 0; ok && i < 2 * n; i++) {
        if (grad[i] == HT_NONE) grad[i] = ht_zeros_like(s, wrt[i]); /* a layer that no output row depends on */
        ok = grad[i] != NULL;
    }
    free(wrt);
    free(pair);
    return ok;
}

bool ht_model_loss_gradients(ht_scope *s, const ht_model *m, const ht_train_batch *batch, const ht_adapters *adapters,
                             bool checkpointing, ht_array **sum, ht_array **grad) {
    const int n = 2 * adapters->n;
    *sum = NULL;
    /* A scope of its own, so that what only gradients nobody asked for would read does not stay. */
    ht_scope *inner = ht_scope_child(s);
    ht_array **out = inner ? ht_array_list(inner, n + 1) : NULL;
    const bool made = out && loss_and_gradients(inner, m, batch, adapters, checkpointing, out);
    const bool ok = inner && ht_scope_give(s, inner, made, out, out ? n + 1 : 0);
    if (ok) *sum = out[0];
    for (int i = 0; i < n; i++) grad[i] = ok ? out[1 + i] : NULL;
    free(out);
    return ok;
}
