/* Model families: one row per architecture, defined in the family's file. */
#ifndef HT_MODELS_REGISTRY_H
#define HT_MODELS_REGISTRY_H

#include "formats/json.h"
#include "models/config.h"
#include "models/forward.h"
#include "models/gguf_fields.h"
#include "models/weights.h"

/* Defaults of the family's configuration class in `transformers`, for fields that config.json omits. */
typedef struct ht_config_defaults {
    int64_t n_layers, hidden, n_heads;
    int64_t n_kv_heads; /* 0: n_heads */
    int64_t head_dim;   /* 0: hidden / heads */
    int64_t feed_forward, vocab, context;
    double rms_eps;
    double rope_theta;
    double local_rope_theta; /* of sliding layers; 0: same as rope_theta */
    bool tied_head;
    const char *activation_field; /* config.json key of the activation */
    const char *activation;       /* the supported activation, computed by ht_family.activate */
} ht_config_defaults;

struct ht_family {
    const char *architecture;      /* general.architecture of GGUF, Hearth's name of the family */
    const char *gguf_architecture; /* general.architecture of the files that are written; NULL: `architecture` */
    const char *model_types[4];    /* config.json's model_type, NULL-terminated */
    ht_config_defaults defaults;
    /* Reads the family's own fields, after the common ones. NULL: none. */
    void (*read_json)(ht_config *c, ht_json_reader *r, const ht_json *object);
    /* Reads the family's own per-layer fields, after layer_types. NULL: none. */
    void (*read_json_layers)(ht_config *c, ht_json_reader *r, const ht_json *object);
    /* Reads the family's own GGUF keys, after the common ones. NULL: none. */
    void (*read_gguf)(ht_config *c, ht_meta *g);

    ht_array *(*activate)(ht_scope *s, ht_array *x); /* gate activation of the feed-forward */
    bool scaled_embedding;                           /* embeddings are scaled by sqrt(hidden) */
    bool routed;                                     /* layers may have experts */
    bool gguf_interleaves;                           /* GGUF permutes the rows of q and k, for interleaved RoPE */
    bool gguf_fuses_experts;         /* GGUF made of its checkpoints has gate and up experts in one tensor */
    float norm_offset;               /* ht_config.norm_offset of its safetensors; GGUF has it in the weights */
    bool normed_values;              /* values have an RMS norm per head, without weight */
    const ht_weight_place *layer[8]; /* weight tables of a layer, NULL-terminated */
    size_t layer_bytes;              /* size of the layer struct (decoder.h) */
    const ht_weight_place *around;   /* weight table of tensors outside the layers; NULL: none */
    size_t around_bytes;             /* size of its struct, ht_decoder_weights.around */
    ht_forward_fn *forward;          /* called with an ht_decoder_weights */
};

/* All families, by architecture. */
#define HT_FAMILIES(X) X(llama) X(mistral) X(qwen2) X(qwen3) X(qwen3moe) X(gemma2) X(gemma3) X(gemma4)

#define HT_DECLARE_FAMILY(name) extern const ht_family ht_family_##name;
HT_FAMILIES(HT_DECLARE_FAMILY)
#undef HT_DECLARE_FAMILY

const ht_family *ht_family_of_architecture(const char *architecture); /* NULL when unknown */
const ht_family *ht_family_of_model_type(const char *model_type);

enum { HT_FAMILY_LIST = 256 }; /* bytes */
/* Writes all architectures as "llama, qwen2 and gemma3" to `out` and returns it. */
const char *ht_family_list(char out[HT_FAMILY_LIST]);

#endif
