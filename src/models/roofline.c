/* Roofline inputs of a loaded model: bytes and operations per token. */
#include "device/device.h"
#include "models/model.h"
#include "models/weights.h"

#include <hearth/measure.h>

/* Counts of a layer's expert matrices, equal in shape, only as many as a token uses. */
static void count_matrix(const ht_model *m, const ht_matrix *w, bool is_head, ht_matrix_use use, ht_model_cost *cost) {
    double share = use.expert ? (double)m->config->experts_used / (double)m->config->n_experts : 1;
    ht_arithmetic a = HT_ARITHMETIC_F32;
    if (m->device->measure) a = m->device->measure->arithmetic(m->device, w->type, m->precision);
    bool partly = is_head && w->ops->top_bytes;
    double bytes = share * (double)w->packed_bytes;
    cost->bytes_per_token += (int64_t)bytes;
    cost->bytes_per_greedy_token += (int64_t)(partly ? (double)w->ops->top_bytes(w) : bytes);
    (is_head || use.late ? cost->head_products : cost->layer_products)[a] +=
        (int64_t)(share * (double)(w->n_rows * w->k));
}

ht_model_cost ht_model_cost_of(const ht_model *m) {
    ht_model_cost cost = {0};
    const ht_decoder *d = ht_weights_decoder(m->weights);
    int64_t n;
    ht_matrix *const *all = ht_weights_matrices(m->weights, &n);
    for (int64_t i = 0; i < n; i++) {
        count_matrix(m, all[i], all[i] == d->head.matrix, ht_weights_use(m->weights, i), &cost);
    }
    return cost;
}
