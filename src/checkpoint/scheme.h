/* Quantisation schemes: which tensors of a checkpoint together store a weight. Every checkpoint has one, chosen when it is opened:
 * by its container, by config.json, or by the types of its tensors. */
#ifndef HT_CHECKPOINT_SCHEME_H
#define HT_CHECKPOINT_SCHEME_H

#include "checkpoint/checkpoint.h"
#include "formats/json.h"

/* The matrices whose products have factors. */
typedef struct ht_product_scales {
    const char *name;    /* of the tensor */
    int64_t n;           /* matrices in it */
    int share, n_shares; /* the tensor may hold the rows of n_shares weights; this one's number */
} ht_product_scales;

/* NULL functions: the scheme has nothing of that kind. */
typedef struct ht_scheme {
    const char *name;
    /* Checks every quantised weight of the text model. */
    ht_status (*check)(const ht_checkpoint_files *c, ht_error *err);
    /* The tensor with the elements of "X.weight" where no tensor has that name; NULL when absent. */
    const ht_safetensor *(*elements)(const ht_checkpoint_files *c, const char *name);
    /* Turns the location of a weight's elements into that of the joined weight, and of its scales into an empty tensor. */
    void (*complete)(const ht_checkpoint_files *c, const ht_safetensor *s, ht_stored_tensor *t);
    /* Reads one factor for each of of->n matrices. *found is false, and `out` unspecified, without any; *number is the tensor
     * that they are in, unless that belongs to no weight. */
    ht_status (*product_scales)(const ht_checkpoint_files *c, const ht_product_scales *of, float *out, bool *found,
                                size_t *number, ht_error *err);
    bool has_scales; /* scales are tensors of their own */
} ht_scheme;

/* Sets c->scheme, c->quantized and c->quantization; `config`: config.json of a directory. */
void ht_scheme_choose(ht_checkpoint_files *c, const ht_json *config);
/* Whether `t` is a scale (of weights or activations) or bias of a quantised weight; *of is the weight. */
bool ht_scheme_owner(const ht_checkpoint_files *c, const ht_stored_tensor *t, ht_stored_tensor *of);

/* Reads `quantization_config` from the root of config.json; an unsupported method is an error of the reader. */
ht_quantized ht_quantized_read(ht_json_reader *r, const ht_json *root);

#endif
