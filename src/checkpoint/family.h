/* Model families as checkpoints have them: names, defaults of the configuration, tensor names and shapes. One row per
 * architecture, defined in the family's file of models/, which also computes. */
#ifndef HT_CHECKPOINT_FAMILY_H
#define HT_CHECKPOINT_FAMILY_H

#include "checkpoint/checkpoint.h"
#include "checkpoint/config.h"
#include "checkpoint/gguf_fields.h"
#include "formats/json.h"

struct ht_array;
struct ht_scope;
struct ht_ctx;

/* Which matrix of an expert. */
typedef enum ht_expert_part { HT_EXPERT_NONE, HT_EXPERT_GATE, HT_EXPERT_UP, HT_EXPERT_DOWN } ht_expert_part;

/* A size of the configuration that a shape is made of. */
typedef enum ht_extent {
    HT_EXTENT_NONE,
    HT_EXTENT_HIDDEN,
    HT_EXTENT_Q,  /* n_heads * head_dim of the layer */
    HT_EXTENT_KV, /* n_kv_heads * head_dim of the layer */
    HT_EXTENT_HEAD,
    HT_EXTENT_FEED_FORWARD,
    HT_EXTENT_VOCAB,
    HT_EXTENT_ONE,
    HT_EXTENT_EXPERTS,
    HT_EXTENT_EXPERT_FEED_FORWARD,
    HT_EXTENT_LAYER_INPUT,  /* of one layer */
    HT_EXTENT_LAYER_INPUTS, /* of all layers */
    HT_EXTENT_LAYER_INPUT_VOCAB
} ht_extent;

typedef enum ht_bias_rule { HT_BIAS_NONE, HT_BIAS_Q, HT_BIAS_OUT, HT_BIAS_MLP } ht_bias_rule; /* the config's flag */

/* Whose heads the rows of a matrix are, for those that a GGUF file stores for interleaved RoPE. */
typedef enum ht_heads_rule { HT_HEADS_NONE, HT_HEADS_Q, HT_HEADS_KV } ht_heads_rule;

/* One row per weight: where it goes, what it is called, what shape it has. A row with columns is a matrix and goes to an
 * ht_weight; one without is a vector and goes to an ht_array *. A table ends with a row without names. Names are followed
 * by ".weight" or ".bias" in the file. */
typedef struct ht_weight_place {
    size_t offset;           /* in the family's layer struct, or in its struct of what is around the layers */
    const char *safetensors; /* after "model.layers.N.", or after "model."; the slot, too */
    const char *gguf;        /* after "blk.N.", or whole */
    ht_extent rows, columns;
    ht_bias_rule bias;
    ht_heads_rule heads;
    bool (*has)(const ht_config *c, int64_t layer); /* whether the layer has this weight; NULL: yes */
    bool bare;                                      /* a vector: nothing follows the names, the GGUF's is whole */
    ht_expert_part expert; /* all experts' are one place and go to an ht_experts; their names are in experts.c */
    bool looked_up;        /* a matrix of which only rows are looked up: it stays in the file */
} ht_weight_place;

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

    /* Gate activation of the feed-forward. */
    struct ht_array *(*activate)(struct ht_scope *s, struct ht_array *x);
    bool scaled_embedding;           /* embeddings are scaled by sqrt(hidden) */
    bool routed;                     /* layers may have experts */
    bool gguf_interleaves;           /* GGUF permutes the rows of q and k, for interleaved RoPE */
    bool gguf_fuses_experts;         /* GGUF made of its checkpoints has gate and up experts in one tensor */
    float norm_offset;               /* ht_config.norm_offset of its safetensors; GGUF has it in the weights */
    bool normed_values;              /* values have an RMS norm per head, without weight */
    const ht_weight_place *layer[8]; /* weight tables of a layer, NULL-terminated */
    size_t layer_bytes;              /* size of the layer struct (decoder.h) */
    const ht_weight_place *around;   /* weight table of tensors outside the layers; NULL: none */
    size_t around_bytes;             /* size of its struct, ht_decoder_weights.around */
    /* Forward function (models/forward.h), called with an ht_decoder_weights. */
    struct ht_array *(*forward)(struct ht_ctx *c, const void *model);
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

/* A projection of a layer, which an adapter can change. */
typedef struct ht_projection {
    const char *slot; /* ht_weight.slot or ht_experts.slot; lent */
    const char *gguf; /* tensor name in GGUF files, without ".weight": "blk.3.attn_q"; lent */
    int64_t layer;
    int64_t n_out, n_in;
    int64_t n_experts; /* 0: dense */
    int64_t head_rows; /* rows of a head, when GGUF files of this family store them for interleaved RoPE; else 0 */
    bool fused; /* gate or up experts, which the GGUF file has in one tensor, or would have: "blk.3.ffn_gate_up_exps" */
} ht_projection;
/* ---- projections in the checkpoint, without loading them ---- */

/* Where a projection is stored, or one expert's matrix of it. */
typedef struct ht_stored_projection {
    ht_projection of;            /* its names are lent during the call */
    int64_t expert;              /* 0 for a dense one */
    size_t tensor;               /* its number (ht_checkpoint_tensor_at) */
    int64_t first_row, n_shares; /* [of.n_out] of its rows; weights that share an expert's rows: 2 for gate and up */
    int64_t head_rows;           /* of.head_rows where this checkpoint has the rows interleaved, else 0 */
} ht_stored_projection;
typedef ht_status ht_stored_projection_fn(const ht_stored_projection *p, void *user, ht_error *err);
/* Calls fn for all of them, in the order of ht_weights_projections and of experts; checks all tensors as ht_weights_measure. */
ht_status ht_weights_visit(const ht_checkpoint_files *c, const ht_config *config, ht_stored_projection_fn *fn,
                           void *user, ht_error *err);

/* Where a weight of any kind is stored, or one expert's matrix of it, and its names in both containers. */
typedef struct ht_stored_weight {
    const char *gguf; /* whole name: "blk.3.attn_q.weight"; NULL for experts. Lent during the call, as the next */
    const char
        *safetensors; /* behind the prefix of the text model: "layers.3.self_attn.q_proj.weight"; NULL for experts */
    bool is_head;     /* the untied output head, whose name in safetensors has no prefix */
    int64_t layer;    /* -1: outside the layers */
    int64_t rows, columns; /* of one matrix; a vector has one row */
    bool is_vector;
    bool is_gain;        /* of a norm: ht_config.norm_offset is added to it */
    bool is_quantized;   /* a projection, an embedding or the head: weights that are worth rounding to few bits */
    ht_expert_part part; /* HT_EXPERT_NONE: dense */
    int64_t expert;
    size_t tensor;     /* its number (ht_checkpoint_tensor_at) */
    int64_t first_row; /* of the tensor, whose axes but the last one are all rows */
    int64_t n_shares;  /* weights that share an expert's rows: 2 for gate and up */
    int64_t head_rows; /* rows of a head, where GGUF files of the family store them for interleaved RoPE; else 0 */
    int64_t stored_head_rows; /* the same where this checkpoint has the rows so, else 0 */
} ht_stored_weight;
typedef ht_status ht_stored_weight_fn(const ht_stored_weight *w, void *user, ht_error *err);
/* Calls fn for all weights, experts of one part one after the other; checks all tensors as ht_weights_measure. With
 * `notes_unused` tensors that are no weights of the model are told of in the log. */
ht_status ht_weights_visit_all(const ht_checkpoint_files *c, const ht_config *config, bool notes_unused,
                               ht_stored_weight_fn *fn, void *user, ht_error *err);
/* Reads the factors on the products of the n matrices in tensor `name`: NVFP4's scale of a whole tensor, and a GGUF file's
 * `x.scale` beside `x.weight`. A tensor may hold the rows of n_shares weights; this is number `share`. *found is false, and
 * `out` unspecified, when there are none. */
ht_status ht_weights_product_scales(const ht_checkpoint_files *c, const ht_config *config, const char *name, int64_t n,
                                    int share, int n_shares, float *out, bool *found, ht_error *err);

#endif
