/* Forward context: linear layers with adapters, embeddings, attention, per-step values as arrays. */
#include "models/forward.h"

#include "array/array.h"
#include "array/op.h"
#include "array/symbol.h"

#include <string.h>

/* In a trace, an input that the executor binds to each run's batch; in eager mode the batch's memory, which outlives
 * the step's graph. */
static ht_array *batch_values(ht_ctx *c, ht_batch_field field, const int32_t *values, int64_t n) {
    if (c->step) return ht_array_wrap(c->s, values, HT_I32, &n, 1, NULL, NULL);
    ht_array *a = ht_array_new(c->s, HT_OP_LEAF, NULL, 0);
    if (!a) return NULL;
    const int64_t symbolic = field == HT_BATCH_OUT_ROW ? HT_SYM_OUT : HT_SYM_ROWS;
    ht_array_set_contiguous(a, HT_I32, &symbolic, 1);
    a->batch_field = field;
    return a;
}

ht_array *ht_batch_ids(ht_ctx *c) {
    const ht_batch *b = c->step ? c->step->batch : NULL;
    return batch_values(c, HT_BATCH_ID, b ? b->id : NULL, b ? b->n_tok : 0);
}

ht_array *ht_batch_positions(ht_ctx *c) {
    const ht_batch *b = c->step ? c->step->batch : NULL;
    return batch_values(c, HT_BATCH_POS, b ? b->pos : NULL, b ? b->n_tok : 0);
}

ht_array *ht_batch_out_rows(ht_ctx *c) {
    const ht_batch *b = c->step ? c->step->batch : NULL;
    return batch_values(c, HT_BATCH_OUT_ROW, b ? b->out_row : NULL, b ? b->n_out : 0);
}

static const ht_adapter_pair *adapter_for(const ht_ctx *c, const char *slot) {
    if (!c->adapters || !slot) return NULL;
    for (int i = 0; i < c->adapters->n; i++)
        if (strcmp(c->adapters->pair[i].slot, slot) == 0) return &c->adapters->pair[i];
    return NULL;
}

ht_array *ht_linear(ht_ctx *c, ht_array *x, const ht_weight *w) {
    const ht_linear_params p = {.matrix = w->matrix};
    ht_array *bias = w->bias ? w->bias : HT_NONE;
    ht_array *y = ht_apply(c->s, HT_OP_LINEAR, &p, (ht_array *[]){x, w->scale != 0 ? HT_NONE : bias}, 2);
    if (w->scale != 0) {
        y = ht_scale(c->s, y, w->scale);
        if (bias != HT_NONE) y = ht_add(c->s, y, bias);
    }
    const ht_adapter_pair *pair = adapter_for(c, w->slot);
    if (!pair || !y) return y;
    ht_array *low = ht_matmul(c->s, x, pair->a, true); /* [..., rank] */
    return ht_add(c->s, y, ht_scale(c->s, ht_matmul(c->s, low, pair->b, true), pair->scale));
}

/* Scales y [T, m, n] by the chosen experts' output scales. */
static ht_array *scale_by(ht_ctx *c, ht_array *y, const ht_experts *experts, ht_array *ids) {
    if (!y || !experts->scale || experts->scale == HT_NONE) return y;
    const int64_t all[] = {ht_array_dim(ids, 0), experts->list.n};
    ht_array *scale = ht_take_along_axis(c->s, ht_broadcast_to(c->s, experts->scale, all, 2), ids, -1); /* [T, m] */
    return ht_multiply(c->s, y, ht_expand_dims(c->s, scale, -1));
}

ht_array *ht_linear_gather(ht_ctx *c, ht_array *x, const ht_experts *experts, ht_array *ids) {
    const ht_linear_gather_params p = {{&experts->list}, 1};
    return scale_by(c, ht_apply(c->s, HT_OP_LINEAR_GATHER, &p, (ht_array *[]){x, ids}, 2), experts, ids);
}

void ht_linear_gather_two(ht_ctx *c, ht_array *x, const ht_experts *const experts[2], ht_array *ids, ht_array *y[2]) {
    const ht_linear_gather_params p = {{&experts[0]->list, &experts[1]->list}, 2};
    ht_array *both = ht_apply(c->s, HT_OP_LINEAR_GATHER, &p, (ht_array *[]){x, ids}, 2); /* [T, m, 2 n] */
    y[0] = y[1] = NULL;
    if (!both) return;
    int64_t t = ht_array_dim(both, 0), m = ht_array_dim(both, 1), n = ht_array_dim(both, 2) / 2;
    for (int i = 0; i < 2; i++) {
        const int64_t start[] = {0, 0, i * n}, stop[] = {t, m, (i + 1) * n};
        y[i] = scale_by(c, ht_slice(c->s, both, start, stop, NULL), experts[i], ids);
    }
}

ht_array *ht_embed(ht_ctx *c, ht_array *ids, const ht_weight *table, float scale) {
    const ht_linear_params p = {.matrix = table->matrix, .scale = table->scale != 0 ? scale * table->scale : scale};
    return ht_apply(c->s, HT_OP_EMBED, &p, &ids, 1);
}

ht_array *ht_attend(ht_ctx *c, ht_array *q, ht_array *k, ht_array *v, int layer, const ht_attention *how) {
    const ht_attend_params p = {layer, how->scale, how->softcap, how->asked};
    ht_array *a = ht_apply(c->s, HT_OP_ATTEND, &p, (ht_array *[]){q, k, v}, 3);
    if (a) a->step = c->step;
    return a;
}
