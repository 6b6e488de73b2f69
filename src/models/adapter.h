/* Adapters of a loaded model: reading, writing and checking them for it. */
#ifndef HT_MODELS_ADAPTER_H
#define HT_MODELS_ADAPTER_H

#include "checkpoint/adapter.h"
#include "models/model.h"

/* HT_ERR_ARGUMENT, naming the difference, unless every pair is for a projection of `m` and has its shape. */
ht_status ht_adapter_check(const ht_adapter *a, const ht_model *m, ht_error *err);
/* ht_adapter_transposed for `m` and its device. */
ht_status ht_adapter_pairs(ht_adapter *a, const ht_model *m, const ht_lora_pair **out, ht_error *err);

#endif
