/* Checkpoint information, internal variant. */
#ifndef HT_CHECKPOINT_INFO_H
#define HT_CHECKPOINT_INFO_H

#include <hearth/model.h>

/* ht_model_info_read for listings: skips the slow tokenizer (tokenizer_kind and chat_format are ""), but fails, as
 * ht_model_load would, for missing or mismatching tensors. */
ht_status ht_model_info_glance(const char *path, ht_model_info **out, ht_error *err);

#endif
