/* Model families as checkpoints describe them: names, configuration defaults, tensor names and shapes. One row per
 * architecture, defined in the family's file in models/, which also has its forward function. */
#ifndef HT_CHECKPOINT_FAMILY_H
#define HT_CHECKPOINT_FAMILY_H

#include "checkpoint/checkpoint.h"
#include "checkpoint/config.h"
#include "formats/json.h"

#include <string.h>

struct ht_array;
struct ht_document; /* convert_metadata.h */
struct ht_scope;
struct ht_ctx;

/* Typed reading of GGUF metadata with a sticky error, the counterpart of formats/json.h. Names omit the architecture
 * prefix: "block_count" reads "llama.block_count". */
typedef struct ht_meta {
    const ht_gguf *gguf;
    const char *file;                /* for messages */
    char architecture[64], key[160]; /* the last field's whole name */
    ht_status status;
    ht_error *err;
} ht_meta;

bool ht_meta_has(ht_meta *m, const char *name);
int64_t ht_meta_i64(ht_meta *m, const char *name, int64_t fallback);
bool ht_meta_bool(ht_meta *m, const char *name, bool fallback);
double ht_meta_f64(ht_meta *m, const char *name, double fallback);
/* A number, or an array of equal numbers per layer. */
int64_t ht_meta_uniform_i64(ht_meta *m, const char *name, int64_t fallback);
/* A number for all layers, or element `layer` of an array of numbers or booleans per layer. */
int64_t ht_meta_layer_i64(ht_meta *m, const char *name, int64_t layer, int64_t fallback);
/* Copies at most size - 1 bytes of the string with the full name `key`, and a NUL. False, with "", if it is missing. */
bool ht_meta_text(const ht_gguf *g, const char *key, char *out, size_t size);
/* Like ht_meta_text for a field of the architecture; another type is an error. */
void ht_meta_string(ht_meta *m, const char *name, char *out, size_t size);
/* NULL when absent. */
const ht_gguf_value *ht_meta_value(ht_meta *m, const char *name);
/* Tensor blk.LAYER.NAME, or NULL. */
const ht_gguf_tensor *ht_meta_tensor(const ht_meta *m, int64_t layer, const char *name);

/* Key of the number of token types. */
#define HT_GGUF_TOKEN_TYPES "tokenizer.ggml.token_type_count"
/* Reads the sizes of a model. The vocabulary is the embedding's rows, as ids index them. c->family may be NULL. */
void ht_meta_sizes(ht_meta *m, ht_config *c);
/* Records an error, unless there was one before. */
void ht_meta_fail(ht_meta *m, ht_status status, const char *fmt, ...) HT_PRINTF(3, 4);

/* Matrices of an expert; and of a head of latent attention, of which a layer has a list in the same way. */
typedef enum ht_expert_part {
    HT_EXPERT_NONE,
    HT_EXPERT_GATE,
    HT_EXPERT_UP,
    HT_EXPERT_DOWN,
    HT_STREAM_IN,  /* AltUp's matrices outside the layers, of every stream but the first: made of the embedding */
    HT_STREAM_OUT, /* and before the sum of all streams */
    HT_HEAD_KEY,   /* keys to latents [latent rank, key_dim] */
    HT_HEAD_VALUE  /* latents to values [value_dim, latent rank] */
} ht_expert_part;
static inline bool ht_part_is_of_head(ht_expert_part part) { return part >= HT_HEAD_KEY; }
static inline bool ht_part_is_of_stream(ht_expert_part part) { return part == HT_STREAM_IN || part == HT_STREAM_OUT; }
/* Matrices in the list of a part. */
static inline int64_t ht_part_count(const ht_config *c, ht_expert_part part) {
    return ht_part_is_of_head(part) ? c->n_heads : ht_part_is_of_stream(part) ? c->altup.streams - 1 : c->n_experts;
}

/* Sizes of the configuration that determine shapes. */
typedef enum ht_extent {
    HT_EXTENT_NONE,
    HT_EXTENT_HIDDEN,
    HT_EXTENT_Q,   /* n_heads * head_dim of the layer */
    HT_EXTENT_KV,  /* n_kv_heads * head_dim of the layer */
    HT_EXTENT_QKV, /* Q and two KV */
    HT_EXTENT_HEAD,
    HT_EXTENT_FEED_FORWARD,
    HT_EXTENT_GATE_UP, /* two FEED_FORWARD */
    HT_EXTENT_ONE,
    HT_EXTENT_HEADS, /* n_heads */
    HT_EXTENT_EXPERTS,
    HT_EXTENT_EXPERTS_HIDDEN,       /* EXPERTS * HIDDEN, for biases */
    HT_EXTENT_EXPERTS_FEED_FORWARD, /* EXPERTS * EXPERT_FEED_FORWARD */
    HT_EXTENT_EXPERT_FEED_FORWARD,
    HT_EXTENT_EXPERT_INPUT, /* the latent size of experts, or HIDDEN */
    HT_EXTENT_EXPERT_LATENT,
    HT_EXTENT_SHARED_FEED_FORWARD,
    HT_EXTENT_SHARED_GATE_UP, /* two SHARED_FEED_FORWARD */
    HT_EXTENT_CONTEXT, /* positions; their table may have ht_config.position_offset more rows, which are skipped */
    HT_EXTENT_TOKEN_TYPES,
    HT_EXTENT_LABELS,
    HT_EXTENT_LATENT,     /* rank of latent attention */
    HT_EXTENT_LATENT_KEY, /* LATENT and the shared rotated values of a key */
    HT_EXTENT_LATENT_Q,   /* n_heads heads of q */
    HT_EXTENT_LATENT_Q_RANK,
    HT_EXTENT_LATENT_KEY_HEAD, /* a head of k without its rotated values */
    HT_EXTENT_LATENT_VALUE,    /* a head of v */
    HT_EXTENT_LATENT_OUT,      /* n_heads of VALUE */
    HT_EXTENT_TAPS,            /* of a short convolution: the weights of a channel */
    HT_EXTENT_CONV,            /* its channels */
    HT_EXTENT_CONV_WEIGHTS,    /* TAPS of CONV */
    HT_EXTENT_STATE_GROUP,     /* STATE_VALUES of a key head */
    HT_EXTENT_SSM_IN,          /* all segments of Mamba-2's input projection */
    HT_EXTENT_GATED_CONV,      /* three HIDDEN: both gates and the input of a convolution */
    HT_EXTENT_STREAMS,         /* of AltUp */
    HT_EXTENT_STREAM_PAIRS,    /* STREAMS of STREAMS */
    HT_EXTENT_LAUREL,          /* laurel_rank */
    HT_EXTENT_GATED_Q,         /* two Q: each head's query, then the gate of its output */
    HT_EXTENT_STATE_HEADS,     /* heads of a scan */
    HT_EXTENT_STATE_VALUE,     /* the values of one of them */
    HT_EXTENT_STATE_VALUES,    /* of all */
    HT_EXTENT_STATE_KEY,       /* the key of a head of a scan */
    HT_EXTENT_STATE_KEYS,      /* of all key heads */
    HT_EXTENT_KEY_WEIGHTS,     /* TAPS of STATE_KEYS */
    HT_EXTENT_VALUE_WEIGHTS,   /* TAPS of STATE_VALUES */
    HT_EXTENT_STATE_INPUTS,    /* CONV and STATE_VALUES: what a scan begins with, and its gates */
    HT_EXTENT_STATE_RATES,     /* two STATE_HEADS */
    HT_EXTENT_LAYER_INPUT,     /* of one layer */
    HT_EXTENT_LAYER_INPUTS,    /* of all layers */
    HT_EXTENT_LAYER_INPUT_VOCAB
} ht_extent;

typedef enum ht_bias_rule {
    HT_BIAS_NONE,
    HT_BIAS_Q,
    HT_BIAS_OUT,
    HT_BIAS_MLP,
    HT_BIAS_NORM
} ht_bias_rule; /* config flags */

/* Heads that a weight's rows or columns belong to, for weights that GGUF files store in another order: rows for
 * interleaved RoPE, or heads of a scan dealt out to its key heads. */
typedef enum ht_heads_rule {
    HT_HEADS_NONE,
    HT_HEADS_Q,
    HT_HEADS_KV,
    HT_HEADS_STATE,        /* rows, those of a convolution after its queries and keys */
    HT_HEADS_STATE_COLUMNS /* columns */
} ht_heads_rule;

/* Matrices that GGUF files have instead of Qwen3-Next's joined projection, in which the queries of a key head, its key,
 * and the values and gates of its heads follow each other. Both have the slot of the joined one. */
typedef enum ht_part_rule {
    HT_PART_NONE,
    HT_PART_ALL, /* the joined projection itself */
    HT_PART_QKV, /* the queries of all key heads, then all keys, then all values */
    HT_PART_GATE /* all gates */
} ht_part_rule;

/* One row per weight: its destination, names and shape. A row with columns is a matrix and goes to an ht_weight; a
 * row without is a vector and goes to an ht_array *. A table ends with a row without names. Files append ".weight"
 * or ".bias" to names. */
typedef struct ht_tensor_spec {
    size_t offset;           /* in the family's layer struct, or in its struct of weights outside the layers */
    const char *safetensors; /* after "model.layers.N.", or after "model." */
    const char *gguf;        /* after "blk.N.", or the full name */
    ht_extent rows, columns;
    ht_bias_rule bias;
    ht_heads_rule heads;
    bool (*has)(const ht_config *c, int64_t layer); /* whether the layer has this weight; NULL: yes */
    bool bare;                                      /* a vector: names have no suffix, and the GGUF name is complete */
    ht_expert_part expert; /* one row for all experts or heads, which go to an ht_experts; stored_weights.c has names */
    ht_part_rule part;
    bool looked_up;  /* a matrix for row lookups only: it stays in the file */
    bool transposed; /* directories for transformers hold the matrix [columns, rows] */
    ht_extent row;   /* a vector stored in rows of this length; HT_EXTENT_NONE: with one axis */
    /* Axes of such a vector in directories, in those of mlx-lm, and in GGUF: r rows, c values of a row, v all values.
     * NULL: "rc", in mlx-lm's those of others. Files with other axes are read, too. */
    const char *axes, *mlx_axes, *gguf_axes;
    bool per_head;     /* a vector that safetensors hold as a tensor for each head, NAME.norms.N */
    bool optional;     /* files leave the vector or the matrix out */
    bool is_logarithm; /* a vector x <= 0 of which safetensors hold ln(-x) */
    /* Name in directories for transformers, where mlx-lm's, `safetensors`, differs or is shared, too; NULL: the same.
     * There the weight is share `share` of n_shares equal ranges of the tensor's rows, or of a vector's values; 0: the
     * whole. */
    const char *transformers;
    int share, n_shares;
    bool alternates;    /* the shares alternate row by row or value by value; for experts, those of their form */
    const char *module; /* the slot and the module of transformers, where it is not `safetensors`; NULL: it is */
} ht_tensor_spec;

/* Whether the weight is a share in mlx-lm's directories, too. */
static inline bool ht_spec_is_shared_by_all(const ht_tensor_spec *p) {
    return p->transformers && !strcmp(p->transformers, p->safetensors);
}

/* The end of the weight's slot. */
static inline const char *ht_spec_slot(const ht_tensor_spec *p) { return p->module ? p->module : p->safetensors; }

/* The gain and the bias of a norm; a spec with HT_BIAS_NORM fills in both. */
typedef struct ht_norm_weights {
    struct ht_array *weight; /* NULL: the family has no such norm */
    struct ht_array *bias;   /* NULL: none */
} ht_norm_weights;

/* A field of ht_config that only some families have. */
typedef struct ht_config_field {
    const char *json; /* key in config.json; NULL: not there */
    const char *gguf; /* key in GGUF after the architecture's name; NULL: not there */
    enum { HT_FIELD_I64, HT_FIELD_F32, HT_FIELD_BOOL } type;
    size_t offset;   /* in ht_config */
    double fallback; /* value when the key is missing; a null is 0. Without a key, the value stays. */
    bool is_inverse; /* the files hold 1 / value */
} ht_config_field;

/* A row: HT_FIELD(type, field of ht_config, JSON key, GGUF key, fallback). */
#define HT_FIELD(kind, member, json_key, gguf_key, value)                                                              \
    .json = json_key, .gguf = gguf_key, .type = HT_FIELD_##kind, .offset = offsetof(ht_config, member),                \
    .fallback = value

/* Defaults of the family's configuration class in `transformers`, for fields that config.json omits. */
typedef struct ht_config_defaults {
    int64_t n_layers, hidden, n_heads;
    int64_t n_kv_heads; /* 0: n_heads */
    int64_t head_dim;   /* 0: hidden / heads */
    int64_t feed_forward, vocab, context;
    double norm_eps;
    const char *norm_eps_field; /* config.json key; NULL: rms_norm_eps */
    /* config.json keys of the number of experts (NULL: num_experts), of those per token (NULL: num_experts_per_tok),
     * and of the shared expert: its size if the name ends with `size`, else the number of expert sizes in it (NULL:
     * none). */
    const char *experts_field, *experts_used_field, *shared_field;
    double rope_theta;
    double rotated_share;    /* partial_rotary_factor; 0: 1 */
    double local_rope_theta; /* of sliding layers; 0: same as rope_theta */
    /* Experts, in families that have them. */
    int64_t n_experts, experts_used, expert_feed_forward; /* the last 0: feed_forward */
    int64_t n_shared;                                     /* expert sizes in the feed-forward of the shared expert */
    int64_t n_dense;                                      /* first layers without experts */
    ht_routing routing;
    bool tied_head;
    bool q_bias, out_bias, mlp_bias; /* fixed or default biases, as in ht_config */
    bool norm_bias, head_bias;
    const char *activation_field; /* config.json key of the activation */
    const char *activation;       /* the supported activation, computed by ht_family.activate */
    bool may_have_silu;           /* ht_config.silu, of a checkpoint that names it instead */
} ht_config_defaults;

/* Norms of q and k. */
typedef enum ht_head_norm {
    HT_HEAD_NORM_EACH,  /* of each head, with one gain [head_dim]; none where the family has no q_norm weights */
    HT_HEAD_NORM_WHOLE, /* of the whole projection, with a gain [heads * head_dim] */
    HT_HEAD_NORM_OWN,   /* of each head, with a gain for each [heads, head_dim] */
    HT_HEAD_NORM_PLAIN  /* of each head, without a gain, on layers with RoPE */
} ht_head_norm;

/* Where directories for transformers have the experts; stored_weights.c has the names. */
typedef enum ht_expert_layout {
    HT_EXPERTS_MLP,          /* mlp.experts.N.gate_proj, up_proj, down_proj */
    HT_EXPERTS_OUTSIDE,      /* experts.gate_up_proj and down_proj, stacked */
    HT_EXPERTS_SPARSE,       /* block_sparse_moe.experts.N.w1, w3, w2 */
    HT_EXPERTS_LINEAR,       /* block_sparse_moe.input_linear and output_linear, stacked */
    HT_EXPERTS_STACKED,      /* mlp.experts.gate_up_proj and down_proj, stacked */
    HT_EXPERTS_UNSWITCHED,   /* the same, which mlx-lm has under mlp.experts, too, instead of mlp.switch_mlp */
    HT_EXPERTS_FEED_FORWARD, /* feed_forward.experts.gate_up_proj and down_proj, stacked */
    HT_EXPERTS_LFM2,         /* feed_forward.experts.N.w1, w3, w2 */
    HT_EXPERTS_KIMI,         /* block_sparse_moe.experts.N.w1, w3, w2; in mlx-lm mlp.switch_mlp */
    HT_EXPERTS_MIXER         /* mixer.experts.N.up_proj, down_proj, without a gate */
} ht_expert_layout;

struct ht_family {
    const char *architecture;          /* general.architecture of GGUF, Hearth's name of the family */
    const char *gguf_architecture;     /* general.architecture of written files; NULL: `architecture` */
    const char *gguf_moe_architecture; /* the same of models with experts; NULL: as of others */
    const char
        *gguf_attention_architecture[2];   /* the same of models without recurrent layers: dense, and with experts */
    const char *gguf_encoder_architecture; /* the same of text encoders, in families of decoders */
    const char *model_types[8];            /* config.json's model_type, NULL-terminated */
    const char *gguf_aliases[4];           /* other architectures in GGUF with the same meaning, NULL-terminated */
    const char *class_name;                /* class of transformers, written to config.json; NULL: not written */
    const char *encoder_class_name;        /* that of text encoders in families of decoders */
    const char *head_class_name;           /* that of a text encoder with a classification head; NULL: not written */
    const char *mlx_wrapper; /* model_type for mlx-lm, which reads the model as a wrapper's text_config alone */
    const char *mlx_prefix;  /* of its tensors there; NULL: language_model.model. */
    ht_config_defaults defaults;
    const ht_config_field *fields; /* the family's own fields, NULL or ending with one without names */
    /* Reads the family's other own fields, after `fields`. NULL: none. */
    void (*read_json)(ht_config *c, ht_json_reader *r, const ht_json *object);
    /* Reads the family's own per-layer fields, after layer_types. NULL: none. */
    void (*read_json_layers)(ht_config *c, ht_json_reader *r, const ht_json *object);
    /* Writes to config.json what read_json and read_json_layers read. NULL: nothing. */
    void (*write_json)(const ht_config *c, struct ht_document *d);
    /* Reads the family's own GGUF keys, after the common ones, and writes them. NULL: none. */
    void (*read_gguf)(ht_config *c, ht_meta *g);
    void (*write_gguf)(const ht_config *c, struct ht_document *d);

    /* Gate activation of the feed-forward, activate(gate) * up; `combine` replaces that product. */
    struct ht_array *(*activate)(struct ht_scope *s, struct ht_array *x);
    struct ht_array *(*combine)(struct ht_scope *s, struct ht_array *gate, struct ht_array *up);
    bool scaled_embedding; /* embeddings are scaled by sqrt(hidden) */
    bool layer_norm;       /* ht_config.layer_norm */
    bool two_sided;        /* ht_config.two_sided */
    bool no_final_norm;    /* the last layer ends with a norm */
    /* Activation in the classification head of a text encoder. */
    struct ht_array *(*activate_head)(struct ht_scope *s, struct ht_array *x);
    ht_head_norm head_norm;    /* of q and k */
    bool head_norm_after_rope; /* else before */
    bool rope_by_type;         /* config.json has one RoPE object for each type of layers */
    bool interleaved_rope;     /* RoPE rotates pairs (2 i, 2 i + 1) in both containers */
    bool parallel;             /* ht_config.parallel */
    bool one_block;            /* a layer is one of attention, recurrence, feed-forward and experts, after one norm */
    bool slides_everywhere;    /* with a window, all layers slide */
    bool routed;               /* layers may have experts */
    bool gguf_interleaves;     /* GGUF permutes the rows of q and k, for interleaved RoPE */
    bool gguf_deals_heads;     /* GGUF orders the heads of scans so that head h uses key head h mod key_heads */
    bool gguf_fuses_experts;   /* GGUF files join gate and up experts in one tensor */
    ht_expert_layout experts;  /* in directories */
    bool experts_are_modules;  /* PEFT's files have a module for each expert instead, which PEFT knows to convert */
    bool has_causal_text;      /* transformers' multimodal model has HT_TEXT_CAUSAL_MODEL */
    bool swaps_expert_axes;    /* PEFT takes the inputs of expert parameters for outputs: its A is B */
    float norm_offset;         /* ht_config.norm_offset of its safetensors; GGUF adds it to the weights */
    /* Files for mlx-lm and llama.cpp also have the keys and values of layers that share those of others. */
    bool repeats_shared_keys;
    bool normed_values;        /* values have an RMS norm per head, without weight */
    bool mlx_adds_norm_offset; /* mlx-lm's directories hold the gains of norms with norm_offset added */
    /* RoPE of three axes, which are equal in text: config.json has one object for all of RoPE, and files state how many
     * pairs each axis rotates. */
    bool rope_sections;
    bool gated_queries; /* q_proj has each head's query, then a gate: its sigmoid multiplies the head's output */
    /* Names in safetensors where they differ from "layers", "embed_tokens" and "norm". */
    const char *layers_name, *embedding_name, *final_norm_name;
    const char *prefix;              /* of the text model in safetensors of both readers; NULL: "model." */
    const char *gguf_final_norm;     /* in GGUF; NULL: "output_norm" */
    ht_recurrence_kind recurrence;   /* of its recurrent layers */
    const ht_tensor_spec *layer[12]; /* weight tables of a layer, NULL-terminated */
    size_t layer_bytes;              /* size of the layer struct (decoder.h) */
    const ht_tensor_spec *around;    /* weight table of tensors outside the layers; NULL: none */
    size_t around_bytes;             /* size of its struct, ht_decoder_weights.around */
    /* Factor on the product of row `row` of the layer's matrix at `offset` (ht_tensor_spec), of multipliers `m`; the
     * rows in GGUF files, and those of embedding and head, are multiplied by their factors. NULL: none. */
    float (*multiplier)(const ht_config *c, const ht_multipliers *m, size_t offset, int64_t row);
    /* Forward function (models/forward.h), called with an ht_decoder_weights. */
    struct ht_array *(*forward)(struct ht_ctx *c, const void *model);
};

/* A GGUF file of Mixtral has the architecture llama. */
extern const ht_family ht_family_llama, ht_family_mixtral, ht_family_granitehybrid;
extern const ht_family *const ht_families[]; /* models/registry.c; ends with NULL */

const ht_family *ht_family_of_architecture(const char *architecture); /* NULL when unknown */
/* Whether GGUF files of the family may have this architecture. */
bool ht_family_has_architecture(const ht_family *f, const char *architecture);
/* Whether a GGUF file of the architecture is a text encoder of a family of decoders. */
static inline bool ht_family_is_encoder(const ht_family *f, const char *architecture) {
    return f->gguf_encoder_architecture && !strcmp(architecture, f->gguf_encoder_architecture);
}
const ht_family *ht_family_of_model_type(const char *model_type);
/* The name in written GGUF files, where some families use another family's name. */
static inline const char *ht_gguf_architecture_of(const ht_config *c) {
    const ht_family *f = c->family;
    if (c->two_sided && f->gguf_encoder_architecture) return f->gguf_encoder_architecture;
    const char *without_recurrence = f->gguf_attention_architecture[c->n_experts > 0];
    if (without_recurrence && !c->recurrence.kind) return without_recurrence;
    if (c->n_experts && f->gguf_moe_architecture) return f->gguf_moe_architecture;
    return f->gguf_architecture ? f->gguf_architecture : f->architecture;
}

/* HT_ERR_UNSUPPORTED for an architecture or model_type without a family, with the nearest known name. */
ht_status ht_family_unknown(const char *file, const char *name, ht_error *err);

#endif
