/* Checkpoint information, for the files of this folder. */
#ifndef HT_MODELS_INFO_H
#define HT_MODELS_INFO_H

#include <hearth/model.h>

/* ht_model_info_read without the tokenizer, which takes longer than all the rest: tokenizer_kind and chat_format are "". And
 * a checkpoint whose tensors are not those that its configuration implies is an error, as it is to ht_model_load. */
ht_status ht_model_info_glance(const char *path, ht_model_info **out, ht_error *err);

#endif
