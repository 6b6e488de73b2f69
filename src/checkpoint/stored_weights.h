/* The weights of a model as its checkpoint stores them: every row of the family's tables with its names, tensor and
 * scales. Checks shapes and types. */
#ifndef HT_CHECKPOINT_STORED_WEIGHTS_H
#define HT_CHECKPOINT_STORED_WEIGHTS_H

#include "checkpoint/family.h"
#include "checkpoint/scheme.h"

enum { HT_WEIGHT_NAME = 160 };

/* A projection of a layer, which an adapter can change. */
typedef struct ht_projection {
    const char *slot; /* ht_weight.slot or ht_experts.slot; lent */
    const char *gguf; /* tensor name in GGUF files, without ".weight": "blk.3.attn_q"; lent */
    int64_t layer;
    int64_t n_out, n_in;
    int64_t n_experts;      /* 0: dense */
    ht_order rows, columns; /* of outputs and inputs in GGUF files of this family */
    ht_part_rule part;      /* this is a part of the slot's projection, whose n_out are of all parts */
    bool is_router;         /* its outputs are the scores of experts */
    bool of_heads;          /* its heads' matrices are apart, in lists of ht_experts: latent attention */
    bool fused;             /* gate or up experts that GGUF joins in one tensor: "blk.3.ffn_gate_up_exps" */
} ht_projection;

typedef enum ht_weight_role {
    HT_ROLE_EMBEDDING,
    HT_ROLE_FINAL_NORM,
    HT_ROLE_HEAD, /* only where it is not the embedding */
    HT_ROLE_HEAD_BIAS,
    HT_ROLE_MATRIX,
    HT_ROLE_BIAS, /* of the matrix or the norm before it */
    HT_ROLE_VECTOR,
    HT_ROLE_EXPERT /* one expert's or head's matrix; those of a part are consecutive */
} ht_weight_role;

enum { HT_OUTSIDE_LAYERS = -1 };

/* One weight; each expert is a separate weight. All pointers are lent during the call. */
typedef struct ht_stored_weight {
    ht_weight_role role;
    const ht_tensor_spec *spec;
    int64_t layer;           /* HT_OUTSIDE_LAYERS, or the layer */
    int64_t rows, columns;   /* of one matrix; a vector has one row */
    int64_t row_length;      /* of a vector stored in rows; else 0 */
    const char *name;        /* in this checkpoint */
    const char *gguf;        /* whole name in GGUF: "blk.3.attn_q.weight"; NULL for experts */
    const char *safetensors; /* after the text model's prefix: "layers.3.self_attn.q_proj.weight"; NULL for experts */
    const char *slot;        /* adapter key: "model.layers.3.self_attn.q_proj"; NULL for vectors */
    const ht_projection *projection; /* NULL: adapters cannot change it */
    bool is_vector;
    int64_t part, n_parts;   /* a vector stored as n_parts tensors of `columns` values; 0: as one */
    bool is_table;           /* a matrix of which only rows are looked up */
    bool is_gain;            /* of a norm: ht_config.norm_offset is added to it */
    bool is_quantized;       /* a projection, an embedding or the head: worth rounding to few bits */
    int64_t expert;          /* or head; 0: dense */
    bool is_transposed;      /* a head's matrix that is stored transposed: rows and columns are those of the store */
    ht_stored_tensor stored; /* its rows */
    int64_t first_row;       /* of stored.number, whose axes but the last one are all rows */
    int row_step;            /* 2: every second row of stored.number, or value of a vector; else 1 */
    int64_t n_shares;        /* weights that share an expert's rows: 2 for gate and up */
    ht_order gguf_rows, gguf_columns;     /* in GGUF files of the family; rows are the values of a vector */
    ht_order stored_rows, stored_columns; /* in this checkpoint */
    ht_fp8_scales scales;                 /* of the tensor; any is false: none */
    int64_t scale_matrix, scale_row;      /* index and first row of this weight in them */
    bool has_product_scale;
    float product_scale; /* factor on the matrix product; 1 without one */
} ht_stored_weight;

typedef ht_status ht_stored_weight_fn(const ht_stored_weight *w, void *user, ht_error *err);

/* Calls fn (NULL: only checks) for all weights: embedding, final norm and head, other weights outside the layers, then layer by
 * layer in the order of the tables. HT_ERR_FORMAT for a missing tensor or a wrong shape; HT_ERR_UNSUPPORTED for a type that
 * weights cannot have, and for a tensor of the model that no weight uses. `notes`: logs other unused tensors. */
ht_status ht_stored_weights_visit(const ht_checkpoint_files *c, const ht_config *config, bool notes,
                                  ht_stored_weight_fn *fn, void *user, ht_error *err);
/* Like ht_stored_weights_visit, but only for weights outside the layers; ignores all other tensors. */
ht_status ht_stored_weights_visit_outside(const ht_checkpoint_files *c, const ht_config *config,
                                          ht_stored_weight_fn *fn, void *user, ht_error *err);
/* Row `row` of a part as a row of the joined projection; *run: rows from it on that stay together there. */
int64_t ht_part_row(const ht_recurrence_spec *r, ht_part_rule part, int64_t row, int64_t *run);
/* The model's factor on row `row` of the products of a weight (ht_family.multiplier); 1 without one. */
float ht_stored_multiplier(const ht_config *config, const ht_stored_weight *w, int64_t row);
/* Layers of multi-token prediction among the tensors: they draft tokens and belong to no weight. */
int64_t ht_prediction_layers(const ht_checkpoint_files *c, const ht_config *config);
/* Calls fn with the names in GGUF of all tensors that the configuration implies, except the embedding's. */
void ht_gguf_names_visit(const ht_config *config, void (*fn)(const char *name, void *user), void *user);
/* Reads the product factors of a tensor's matrices (scheme.h), except those that are a vector of the family. Without
 * factors, *found is false and `out` unspecified. *number is set to the tensor with the factors, if that belongs to
 * no weight. */
ht_status ht_stored_product_scales(const ht_checkpoint_files *c, const ht_config *config, const ht_product_scales *of,
                                   float *out, bool *found, size_t *number, ht_error *err);

/* Names in a layer of the projection of latents to all heads' keys and values (ht_projection.of_heads). */
#define HT_HEADS_SLOT "self_attn.kv_b_proj"
#define HT_HEADS_GGUF "attn_kv_b"

/* ---- experts: one tensor per expert, with its index in the name, or one stacked tensor [n_experts, rows, columns],
 * where gate and up may share the rows ---- */

/* Tensor names of experts in GGUF, transformers or mlx-lm. */
typedef enum ht_expert_naming { HT_EXPERTS_GGUF, HT_EXPERTS_TRANSFORMERS, HT_EXPERTS_MLX } ht_expert_naming;

typedef struct ht_expert_form {
    ht_expert_part part;
    ht_expert_naming naming;
    bool stacked;        /* all experts in one tensor [n_experts, rows, columns] */
    const char *name;    /* tensor name after the layer's prefix; %d: expert index */
    int share, n_shares; /* index and number of equal row ranges of an expert's rows */
} ht_expert_form;

/* The module in a layer that has all experts: in mlx-lm, or in transformers, which has their matrices as parameters.
 * HT_EXPERTS_MLP is also the layout of families without experts. */
const char *ht_expert_module(ht_expert_naming naming, ht_expert_layout layout);
/* Whether experts of a layout have a gate. */
static inline bool ht_experts_are_gated(ht_expert_layout layout) { return layout != HT_EXPERTS_MIXER; }
/* The form in which a part of a family's experts is written. */
const ht_expert_form *ht_expert_form_named(ht_expert_naming naming, const ht_family *family, ht_expert_part part);
/* Writes the name of the tensor with expert `expert`; `prefix` is that of the text model, "" in GGUF. */
void ht_expert_tensor_name(const char *prefix, const ht_expert_form *f, int64_t layer, int64_t expert, char *out,
                           size_t size);

#endif
