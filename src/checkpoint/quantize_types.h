/* Types of the tensors of a quantised GGUF file, for a type or a mix of types that a user names. */
#ifndef HT_CHECKPOINT_QUANTIZE_TYPES_H
#define HT_CHECKPOINT_QUANTIZE_TYPES_H

#include "formats/weight_type.h"

#include <stdbool.h>

typedef struct ht_quantize_mix {
    const char *name;
    ht_weight_type type; /* of most matrices */
    int file_type;       /* general.file_type */
} ht_quantize_mix;

/* NULL: no such type or mix; case does not count. */
const ht_quantize_mix *ht_quantize_mix_named(const char *name);
/* Number i of them; NULL at the end. */
const ht_quantize_mix *ht_quantize_mix_at(int i);

/* What the rules of mixes look at. */
typedef struct ht_quantize_tensor {
    const char *name; /* "blk.3.attn_v.weight" */
    int64_t columns;
    int layer, n_layers; /* layer: -1 outside layers */
    int n_experts;
    int queries_per_kv; /* heads of queries for each head of keys and values */
    bool is_head;       /* the output head, tied or not */
    bool importance;    /* known for the tensor */
} ht_quantize_tensor;

/* The type of a matrix; with `pure` it is that of `mix` whatever the matrix. Rows that are no whole blocks get the type that
 * llama.cpp gives them, a larger one. */
ht_weight_type ht_quantize_type(const ht_quantize_mix *mix, bool pure, const ht_quantize_tensor *t);
/* Whether a tensor of that name is rounded at all: routers and what is added stay. */
bool ht_quantize_is_rounded(const char *name);

#endif
