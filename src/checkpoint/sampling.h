/* Sampling that a checkpoint recommends, and the library's defaults for fields without a recommendation.
 *
 * Safetensors state it in generation_config.json, GGUF files in `general.sampling.*` or, without such a key, in the
 * generation_config.json of their directory. */
#ifndef HT_CHECKPOINT_SAMPLING_H
#define HT_CHECKPOINT_SAMPLING_H

#include "checkpoint/checkpoint.h"
#include "checkpoint/convert_metadata.h"

#include <hearth/model.h>

/* Fields of ht_sampler_options that a checkpoint may set, in the order of ht_model_sampling. */
typedef enum ht_sampling_field {
    HT_SAMPLING_TEMPERATURE,
    HT_SAMPLING_TOP_K,
    HT_SAMPLING_TOP_P,
    HT_SAMPLING_MIN_P,
    HT_SAMPLING_REPEAT_PENALTY,
    HT_SAMPLING_REPEAT_WINDOW,
    HT_SAMPLING_PRESENCE_PENALTY,
    HT_SAMPLING_FREQUENCY_PENALTY,
    HT_SAMPLING_FIELDS
} ht_sampling_field;

typedef struct ht_sampling {
    ht_sampling_value field[HT_SAMPLING_FIELDS];
} ht_sampling;

/* The library's defaults. */
ht_sampling ht_sampling_defaults(void);

/* The defaults, overridden by the checkpoint's values. HT_ERR_FORMAT, with file and field, for a wrong type or
 * range. */
ht_status ht_sampling_read(const ht_checkpoint_files *c, ht_sampling *out, ht_error *err);
/* Like ht_sampling_read, from the text of a generation_config.json; data NULL: none. */
ht_status ht_sampling_from_json(ht_json_text generation, ht_sampling *out, ht_error *err);

/* The shortest decimal number that rounds to the same f32: 0.7 for 0.699999988. */
double ht_short_decimal(double value);

/* Adds the values that come from a checkpoint to a generation_config.json, or to GGUF metadata. */
void ht_sampling_to_json(const ht_sampling *s, ht_document *generation);
void ht_sampling_to_gguf(const ht_sampling *s, ht_document *metadata);

#endif
