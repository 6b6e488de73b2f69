/* Model families of this build: one row per architecture, each defined in the family's own file. */
#ifndef HT_MODELS_REGISTRY_H
#define HT_MODELS_REGISTRY_H

#include "formats/json.h"
#include "models/config.h"
#include "models/forward.h"
#include "models/gguf_fields.h"
#include "models/weights.h"

/* What `transformers`' configuration class of the family assumes for a field that config.json leaves out. */
typedef struct ht_config_defaults {
    int64_t n_layers, hidden, n_heads;
    int64_t n_kv_heads; /* 0: as many as heads */
    int64_t head_dim;   /* 0: hidden / heads */
    int64_t feed_forward, vocab, context;
    double rms_eps;
    double rope_theta;
    double local_rope_theta; /* of sliding layers; 0: they turn positions as the others do */
    bool tied_head;
    const char *activation_field; /* where config.json names the activation */
    const char *activation;       /* the only one the family computes, ht_family.activate */
} ht_config_defaults;

struct ht_family {
    const char *architecture;   /* a GGUF's general.architecture, and Hearth's name for the family */
    const char *model_types[4]; /* config.json's model_type, NULL-terminated */
    ht_config_defaults defaults;
    /* What only this family's files say, after the common fields were read. NULL: nothing. */
    void (*read_json)(ht_config *c, ht_json_reader *r, const json_t *object);
    void (*read_json_layers)(ht_config *c, ht_json_reader *r, const json_t *object); /* once it is known which slide */
    void (*read_gguf)(ht_config *c, ht_meta *g);

    ht_array *(*activate)(ht_scope *s, ht_array *x); /* of the feed-forward's gate */
    bool scaled_embedding;                           /* embeddings are multiplied by sqrt(hidden) */
    bool routed;                                     /* layers may have experts */
    bool normed_values;                              /* values are normed per head, without a weight */
    const ht_weight_place *layer[8];                 /* tables of the weights of a layer, NULL-terminated */
    size_t layer_bytes;                              /* of the struct they go to (decoder.h) */
    const ht_weight_place *around;                   /* the family's own weights outside the layers; NULL: none */
    size_t around_bytes;                             /* of the struct they go to */
    ht_forward_fn *forward;                          /* given an ht_decoder */
};

/* The one list; an entry's name is the architecture's. */
#define HT_FAMILIES(X) X(llama) X(mistral) X(qwen2) X(qwen3) X(qwen3moe) X(gemma2) X(gemma3) X(gemma4)

#define HT_DECLARE_FAMILY(name) extern const ht_family ht_family_##name;
HT_FAMILIES(HT_DECLARE_FAMILY)
#undef HT_DECLARE_FAMILY

const ht_family *ht_family_of_architecture(const char *architecture); /* NULL when there is none */
const ht_family *ht_family_of_model_type(const char *model_type);
/* All of them as words, "llama, qwen2 and gemma3", written to `out`, which is returned. */
enum { HT_FAMILY_LIST = 256 };
const char *ht_family_list(char out[HT_FAMILY_LIST]);

#endif
