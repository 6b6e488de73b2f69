/* quantization_config of config.json, of weights quantised by others than MLX (models/mlx.h): the methods that can be
 * read, and facts that the tensors do not tell. */
#ifndef HT_MODELS_QUANTIZED_H
#define HT_MODELS_QUANTIZED_H

#include "formats/json.h"

typedef struct ht_quantized {
    const char
        *scale; /* what a weight in 8-bit floats must have beside it, "X.weight" and this; NULL: nothing is said */
    int64_t block[2]; /* rows and columns that share a scale; 0: not said */
} ht_quantized;

/* Of the document config.json. A way that cannot be read is a failure of the reader's. */
ht_quantized ht_quantized_read(ht_json_reader *r, const json_t *root);

#endif
