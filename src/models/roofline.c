/* Roofline inputs of a loaded model: bytes and operations per token. */
#include "device/device.h"
#include "models/model.h"
#include "models/weights.h"

#include <hearth/measure.h>

typedef struct cost {
    int64_t bytes, greedy_bytes; /* per token */
    int64_t layer_products[HT_ARITHMETICS], head_products[HT_ARITHMETICS];
} cost;

/* Counts only as many of a layer's equally shaped expert matrices as a token uses. */
static void count_matrix(const ht_model *m, const ht_matrix *w, bool is_head, ht_matrix_use use, cost *all) {
    double share = use.expert ? (double)m->config->experts_used / (double)m->config->n_experts : 1;
    ht_arithmetic a = HT_ARITHMETIC_F32;
    if (m->device->measure) a = m->device->measure->arithmetic(m->device, w->type, m->precision);
    bool partly = is_head && w->ops->top_bytes;
    double bytes = share * (double)w->packed_bytes;
    all->bytes += (int64_t)bytes;
    all->greedy_bytes += (int64_t)(partly ? (double)w->ops->top_bytes(w) : bytes);
    const int planes = m->precision == HT_PRECISION_HIGH && a == HT_ARITHMETIC_INT8 ? 2 : 1; /* of activations */
    (is_head || use.late ? all->head_products : all->layer_products)[a] +=
        planes * (int64_t)(share * (double)(w->n_rows * w->k));
}

static cost cost_of(const ht_model *m) {
    cost all = {0};
    const ht_decoder_weights *d = ht_weights_decoder(m->weights);
    int64_t n;
    ht_matrix *const *matrix = ht_weights_matrices(m->weights, &n);
    for (int64_t i = 0; i < n; i++) {
        const ht_matrix_use use = ht_weights_use(m->weights, i);
        if (!use.table) count_matrix(m, matrix[i], matrix[i] == d->head.matrix, use, &all);
    }
    return all;
}

static bool is_known(ht_arithmetic a) { return (unsigned)a < HT_ARITHMETICS; }

int64_t ht_model_token_bytes(const ht_model *m, bool greedy) {
    const cost c = cost_of(m);
    return greedy ? c.greedy_bytes : c.bytes;
}

int64_t ht_model_layer_products(const ht_model *m, ht_arithmetic a) {
    return is_known(a) ? cost_of(m).layer_products[a] : 0;
}

int64_t ht_model_head_products(const ht_model *m, ht_arithmetic a) {
    return is_known(a) ? cost_of(m).head_products[a] : 0;
}
