/* Quantisation settings of config.json (quantization_config), for methods other than MLX's (checkpoint/mlx.h): supported
 * methods, and facts that the tensors lack. */
#ifndef HT_CHECKPOINT_QUANTIZED_H
#define HT_CHECKPOINT_QUANTIZED_H

#include "formats/json.h"

typedef struct ht_quantized {
    const char *scale; /* required suffix of an fp8 weight's scales; NULL: optional */
    int64_t block[2];  /* rows and columns that share a scale; 0: unspecified */
} ht_quantized;

/* Parses the root of config.json; an unsupported method is an error of the reader. */
ht_quantized ht_quantized_read(ht_json_reader *r, const ht_json *root);

#endif
