/* What a token of a loaded model asks of the machine. */
#include "device/device.h"
#include "models/model.h"
#include "models/weights.h"

#include <hearth/measure.h>

ht_model_cost ht_model_cost_of(const ht_model *m) {
    ht_model_cost cost = {0};
    const ht_decoder *d = ht_weights_decoder(m->weights);
    int64_t n;
    ht_matrix *const *all = ht_weights_matrices(m->weights, &n);
    for (int64_t i = 0; i < n; i++) {
        const ht_matrix *w = all[i];
        bool head = w == d->head.matrix;
        ht_arithmetic a = HT_ARITHMETIC_F32;
        if (m->device->measure) a = m->device->measure->arithmetic(m->device, w->type, m->precision);
        bool partly = head && w->ops->top_bytes;
        cost.bytes_per_token += (int64_t)w->packed_bytes;
        cost.bytes_per_greedy_token += (int64_t)(partly ? w->ops->top_bytes(w) : w->packed_bytes);
        (head ? cost.head_products : cost.layer_products)[a] += w->n_rows * w->k;
    }
    return cost;
}
