#include "train/model_loss.h"

#include "array/differentiate.h"
#include "base/checked.h"
#include "base/error.h"
#include "models/kv.h"
#include "models/registry.h"

#include <hearth/ops.h>

#include <stdlib.h>
#include <string.h>

struct ht_model_loss {
    const ht_model *m;
    ht_batch batch;
    int64_t n_kv;
    int32_t *rows; /* memory of out_row, target, own, first and out_first */
    int32_t *target, *own, *first, *out_first;
    int64_t *window;
    ht_array **keys, **values;
};

static ht_status check_ids(const ht_model *m, const ht_train_batch *b, ht_error *err) {
    for (int32_t i = 0; i < b->n_tok; i++) {
        const int32_t worst = b->id[i] < 0 || b->id[i] >= m->vocab ? b->id[i] : b->target[i];
        if (worst >= m->vocab || (worst < 0 && worst != b->target[i]))
            return ht_fail(err, HT_ERR_ARGUMENT, "token id %d of row %d is outside the vocabulary of %d", (int)worst,
                           (int)i, (int)m->vocab);
    }
    if (b->n_learned < 1) return ht_fail(err, HT_ERR_ARGUMENT, "a batch of %d rows has no learned token", b->n_tok);
    return HT_OK;
}

/* Rows whose target is learned become the output rows of the pass. */
static void fill_rows(ht_model_loss *l, const ht_train_batch *b) {
    int32_t n_out = 0;
    int32_t *out_row = l->rows;
    for (int32_t s = 0; s < b->n_seq; s++)
        for (int32_t i = b->seq_start[s]; i < b->seq_start[s + 1]; i++) {
            l->own[i] = i;
            l->first[i] = b->seq_start[s];
            if (b->target[i] < 0) continue;
            out_row[n_out] = i;
            l->target[n_out] = b->target[i];
            l->out_first[n_out++] = b->seq_start[s];
        }
    l->batch = (ht_batch){.n_tok = b->n_tok,
                          .n_seq = b->n_seq,
                          .n_out = n_out,
                          .id = b->id,
                          .pos = b->pos,
                          .seq_start = b->seq_start,
                          .out_row = out_row};
}

ht_status ht_model_loss_new(const ht_model *m, const ht_train_batch *batch, ht_model_loss **out, ht_error *err) {
    *out = NULL;
    ht_status status = check_ids(m, batch, err);
    if (status) return status;
    ht_model_loss *l = calloc(1, sizeof *l);
    if (!l) return ht_fail_memory(err, sizeof *l, "the rows of a batch");
    const size_t n = (size_t)batch->n_tok;
    l->m = m;
    l->n_kv = m->n_kv_layers;
    l->rows = malloc(5 * n * sizeof *l->rows);
    l->window = malloc((size_t)l->n_kv * sizeof *l->window);
    l->keys = calloc((size_t)l->n_kv, sizeof(ht_array *));
    l->values = calloc((size_t)l->n_kv, sizeof(ht_array *));
    if (!l->rows || !l->window || !l->keys || !l->values) {
        ht_model_loss_free(l);
        return ht_fail_memory(err, 5 * n * sizeof *l->rows, "the rows of a batch");
    }
    l->target = l->rows + n;
    l->own = l->target + n;
    l->first = l->own + n;
    l->out_first = l->first + n;
    for (int64_t i = 0; i < l->n_kv; i++) l->window[i] = ht_kv_shape_of(m->config, i).window;
    fill_rows(l, batch);
    *out = l;
    return HT_OK;
}

void ht_model_loss_free(ht_model_loss *l) {
    if (!l) return;
    free(l->rows);
    free(l->window);
    free(l->keys);
    free(l->values);
    free(l);
}

static ht_array *wrapped(ht_scope *s, const int32_t *values, int64_t n) {
    return ht_array_wrap(s, values, HT_I32, &n, 1, NULL, NULL);
}

ht_array *ht_model_loss_rows(ht_scope *s, ht_model_loss *l, const ht_adapters *adapters, bool checkpointing) {
    const ht_batch *b = &l->batch;
    const ht_plain_pass pass = {.batch = b,
                                .target = wrapped(s, l->target, b->n_out),
                                .own = wrapped(s, l->own, b->n_tok),
                                .first = wrapped(s, l->first, b->n_tok),
                                .out_first = wrapped(s, l->out_first, b->n_out),
                                .window = l->window,
                                .keys = l->keys,
                                .values = l->values,
                                .shares_keys = l->n_kv < l->m->config->n_layers,
                                .checkpointing = checkpointing};
    ht_ctx c = {.s = s, .pass = &pass, .adapters = adapters};
    return l->m->config->family->forward(&c, ht_weights_decoder(l->m->weights));
}

bool ht_model_loss_gradients(ht_scope *s, ht_model_loss *l, const ht_adapters *adapters, bool checkpointing,
                             ht_array **sum, ht_array **grad) {
    const int n = adapters->n;
    *sum = NULL;
    ht_array **wrt = ht_array_list(s, 2 * n);
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
    ht_array *rows = ok ? ht_model_loss_rows(s, l, &traced, checkpointing) : NULL;
    *sum = rows ? ht_sum(s, rows, NULL, 0, false) : NULL;
    ht_array *one = ht_full(s, 1, HT_F32, NULL, 0);
    ok = *sum && one && ht_backward(s, sum, &one, 1, wrt, 2 * n, grad);
    for (int i = 0; ok && i < 2 * n; i++) {
        if (grad[i] == HT_NONE) grad[i] = ht_zeros_like(s, wrt[i]); /* a layer that no output row depends on */
        ok = grad[i] != NULL;
    }
    free(wrt);
    free(pair);
    return ok;
}
