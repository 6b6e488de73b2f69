#include "device/state.h"

#include "base/error.h"

ht_status ht_state_check(const ht_call *call, int32_t layer, int64_t values, ht_error *err) {
    for (int32_t s = 0; s < call->step->batch->n_seq; s++) {
        const ht_kv_layer *l = ht_state_of(call, layer, s);
        if (l->n_pages != 2 || l->shape.state < values)
            return ht_fail(err, HT_ERR_INTERNAL,
                           "sequence %d: cache layer %d has %lld pages of %lld values, not 2 of %lld", (int)s,
                           (int)layer, (long long)l->n_pages, (long long)l->shape.state, (long long)values);
    }
    return HT_OK;
}
