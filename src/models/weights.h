/* Weights: from a family's table of tensor names to packed matrices and f32 arrays.
 *
 * Each tensor is looked up under its name in the checkpoint's format, checked for type and shape, and packed by the device
 * slab by slab on all threads; a table that only gives rows stays in the file (models/file_rows.h). What was loaded belongs to
 * a store, which frees it all at once. */
#ifndef HT_MODELS_WEIGHTS_H
#define HT_MODELS_WEIGHTS_H

#include "models/checkpoint.h"
#include "models/experts.h"
#include "models/forward.h"
#include "models/pack.h"

/* ---- tables ---- */

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

/* ---- what every decoder has around its layers ---- */

typedef struct ht_decoder_weights {
    const ht_config *config;
    ht_weight embedding;       /* [vocab, hidden] */
    ht_weight head;            /* [vocab, hidden]; the embedding's matrix when the head is tied */
    ht_array *final_norm;      /* f32 [hidden] */
    ht_rope_config rope;       /* of layers that see everything */
    ht_array *rope_factors;    /* f32 [head_dim / 2] or HT_NONE */
    ht_rope_config local_rope; /* of sliding layers */
    ht_array *local_rope_factors;
    void *layers; /* [n_layers] of the family's layer struct */
    void *around; /* the family's struct of its other weights outside the layers */
} ht_decoder_weights;

/* ---- loading ---- */

typedef struct ht_weights ht_weights; /* owns a decoder and everything in it */

typedef struct ht_weights_options {
    ht_device *device;
    ht_stream *stream; /* for the arrays */
    ht_precision precision;
    ht_pack_company company;  /* while the matrices are packed */
    const char *packed_cache; /* directory of models/packed_cache.h; NULL: none */
} ht_weights_options;

/* Bytes the weights will take in memory; checks that every tensor is there in the right shape and type. */
ht_status ht_weights_measure(const ht_checkpoint_files *c, const ht_config *config, ht_device *device,
                             ht_precision precision, size_t *bytes, ht_error *err);
/* Bytes of the tables that stay in the file. */
size_t ht_weights_bytes_in_file(const ht_checkpoint_files *c, const ht_config *config);
/* `config` must outlive the result. */
ht_status ht_weights_load(const ht_checkpoint_files *c, const ht_config *config, const ht_weights_options *options,
                          ht_weights **out, ht_error *err);
void ht_weights_free(ht_weights *w); /* NULL is fine */

const ht_decoder_weights *ht_weights_decoder(const ht_weights *w); /* lent */
/* Every matrix in memory, each once: *n of them, lent. Tables that stayed in their file are not among them. */
ht_matrix *const *ht_weights_matrices(const ht_weights *w, int64_t *n);
/* What meets matrix i of them. */
typedef struct ht_matrix_use {
    bool expert; /* not every token: it is an expert's */
    bool table;  /* none: its rows are looked up, from memory as the device cannot read its file */
    bool late;   /* only rows whose logits are asked for: it is in a layer behind the last one that keeps keys */
} ht_matrix_use;
ht_matrix_use ht_weights_use(const ht_weights *w, int64_t i);

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
/* All projections inside layers, in the order of layers and of their tables; lent. */
const ht_projection *ht_weights_projections(const ht_weights *w, int64_t *n);
/* Index of the projection with a slot; -1: none. */
int64_t ht_weights_find_projection(const ht_weights *w, const char *slot);

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
