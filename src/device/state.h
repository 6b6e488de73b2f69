/* States of recurrent layers (device/step.h). */
#ifndef HT_DEVICE_STATE_H
#define HT_DEVICE_STATE_H

#include "device/kernel.h"

/* HT_ERR_INTERNAL unless every sequence of the step has a state of at least `values` values, and one to write, in cache layer
 * `layer`. */
ht_status ht_state_check(const ht_call *call, int32_t layer, int64_t values, ht_error *err);

/* The layer of the step's sequence s. */
static inline const ht_kv_layer *ht_state_of(const ht_call *call, int32_t layer, int64_t s) {
    return &call->step->kv[s]->layer[layer];
}

#endif
