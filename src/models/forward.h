/* Building blocks of forward functions: context, linear layers, embeddings, attention.
 *
 * A forward function maps the token rows of a batch to logits of its output rows. It is run eagerly, traced into a
 * plan, or differentiated; so it must not inspect values, and a row count may only be the leading axis of an array. */
#ifndef HT_MODELS_FORWARD_H
#define HT_MODELS_FORWARD_H

#include "checkpoint/kv_size.h"
#include "checkpoint/tensors.h"
#include "device/matrix.h"
#include "device/params.h"
#include "device/step.h"

#include <hearth/index.h>
#include <hearth/ops.h>

/* A weight matrix with its bias. */
typedef struct ht_weight {
    ht_matrix *matrix; /* [n_rows, k]; NULL: absent in this layer */
    ht_array *bias;    /* f32 [n_rows], or HT_NONE */
    const char *slot;  /* adapter key, stable over formats: "model.layers.3.mlp.up_proj" */
    float scale;       /* factor on the matrix product, from the checkpoint; 0: none */
    ht_order columns;  /* in which the matrix has its columns */
    ht_array *
        multiplier; /* f32 [1] or [n_rows]: factor of the model on the product, bias and adapters included; NULL: none */
} ht_weight;

/* LoRA pair of a slot as arrays: y += scale * B (A x), A [rank, k], B [n_rows, rank], f32 or bf16; of a slot with
 * experts A [n, rank, k], B [n, n_rows, rank]. */
typedef struct ht_adapter_pair {
    const char *slot;
    ht_array *a, *b;
    float scale;
} ht_adapter_pair;

typedef struct ht_adapters {
    int n;
    const ht_adapter_pair *pair; /* [n], sorted by slot */
    float dropout; /* share of x that is dropped before A, in [0, 1); the rest is scaled by 1 / (1 - dropout) */
    ht_array *key; /* random key of dropout; HT_NONE: no dropout */
} ht_adapters;

/* A plain pass: whole sequences without caches, differentiable, for training. The forward function gives the
 * cross-entropy f32 [n_out] of the output rows instead of logits. */
typedef struct ht_plain_pass {
    ht_array *id, *pos;        /* i32 [n_tok] token ids and positions */
    ht_array *out_row;         /* i32 [n_out] rows with a loss, increasing */
    ht_array *target;          /* i32 [n_out] the token that follows each of them */
    ht_array *own, *first;     /* i32 [n_tok] each row's own number, and the first of its sequence */
    ht_array *last, *type;     /* i32 [n_tok] the last row of its sequence, and token types; of models of both sides */
    ht_array *out_first;       /* i32 [n_out] the first row of each output row's sequence */
    const ht_layer_kv *kv;     /* [n_cache_layers] windows */
    ht_array **keys, **values; /* [n_cache_layers] of the layers so far */
    bool shares_keys;          /* some layers attend to keys of earlier ones */
    bool checkpointing;        /* layers keep only their inputs and are recomputed for the gradient */
} ht_plain_pass;

/* Context of a forward function. In a trace, `step` and `pass` are NULL, as per-step values are bound at run time. */
typedef struct ht_ctx {
    ht_scope *s;
    const ht_step *step;         /* cached: attends through the caches of the step */
    const ht_plain_pass *pass;   /* plain: attends within the rows of each sequence */
    const ht_adapters *adapters; /* NULL: none */
    /* The projections of these weights take the adapters of the step (HT_OP_LORA); NULL: they do not. */
    const struct ht_weights *lora;
    ht_array *near;               /* of models of both sides with windows: ht_begin_two_sided */
    bool is_long;                 /* the sequences are long ones (ht_model_is_long) */
    bool hidden;                  /* returns hidden states after the final norm, [n_out, hidden], instead of logits */
    struct ht_taps *taps;         /* of a trace: taps for probes (models/taps.h); NULL: none */
    struct ht_observer *observer; /* of an eager pass; NULL: none, as in all plans */
} ht_ctx;

ht_array *ht_batch_ids(ht_ctx *c);       /* token ids, i32 [n_tok] */
ht_array *ht_batch_positions(ht_ctx *c); /* i32 [n_tok] */
ht_array *ht_batch_out_rows(ht_ctx *c);  /* output rows, i32 [n_out] */
/* First and last row of each row's sequence, and token types, for models that attend to both sides: i32 [n_tok]. */
ht_array *ht_batch_first(ht_ctx *c);
ht_array *ht_batch_last(ht_ctx *c);
ht_array *ht_batch_types(ht_ctx *c);

/* x f32 [..., k] -> f32 [..., n_rows]: scale * x W^T + bias, plus the slot's adapters of the context and the step, all times
 * the multiplier. */
ht_array *ht_linear(ht_ctx *c, ht_array *x, const ht_weight *w);

/* The matrix product alone, without adapters. */
ht_array *ht_linear_base(ht_ctx *c, ht_array *x, const ht_weight *w);
/* y [T, n_rows], the product of x with a slot's matrices, plus the slot's adapters of the context and the step. */
ht_array *ht_adapted(ht_ctx *c, ht_array *y, ht_array *x, const char *slot);
/* Whether ht_adapted may change anything. */
bool ht_is_adapted(const ht_ctx *c, const char *slot);

/* One weight matrix of all experts of a layer. */
typedef struct ht_experts {
    ht_matrix_list list; /* [n][n_rows, k] */
    ht_array *scale;     /* f32 [n], factor on each expert's output; or HT_NONE */
    ht_array *bias;      /* f32 [n * n_rows], added to each expert's output; NULL: none */
    const char *slot;    /* adapter key: "model.layers.3.experts.gate_proj" */
    /* Matrices of heads: that of head h is rows [h * head_rows + first_row, ...) of a projection. */
    int64_t head_rows, first_row;
    bool as_rows; /* these rows as they are, else transposed */
} ht_experts;

/* Expert products: x f32 [T, k] or [T, m, k], ids i32 [T, m] -> f32 [T, m, n_rows], row t by experts ids[t]. */
ht_array *ht_linear_gather(ht_ctx *c, ht_array *x, const ht_experts *experts, ht_array *ids);
/* ht_linear_gather by two sets of equally shaped matrices in one operation. */
void ht_linear_gather_two(ht_ctx *c, ht_array *x, const ht_experts *const experts[2], ht_array *ids, ht_array *y[2]);

/* Products of latent attention by the heads' own matrices: x f32 [T, n_heads, *] -> f32 [T, n_heads, *]. `transposed`: by
 * the transposed rows of the projection. Adapters of the step are included, those of a plain pass are not. */
ht_array *ht_linear_heads(ht_ctx *c, ht_array *x, const ht_experts *heads, bool transposed);
/* Shows an observer the input x of a matrix that other products are in place of; false if it failed, or x is NULL. */
bool ht_observe_input(ht_ctx *c, ht_array *x, const char *slot);
/* The adapter's part of the product of x [..., k] with the matrix of a slot, in a plain pass; HT_NONE: no adapter. */
ht_array *ht_linear_adapter(ht_ctx *c, ht_array *x, const char *slot);

/* Embedding lookup: rows of `table` at ids i32 [T], times `scale` and table->scale -> f32 [T, k]. */
ht_array *ht_embed(ht_ctx *c, ht_array *ids, const ht_weight *table, float scale);

typedef struct ht_attention {
    float scale;   /* factor on q.k */
    float softcap; /* tanh cap of scaled q.k; 0: none */
    bool asked;    /* q has output rows only, [n_out, n_heads, head_dim]; k and v must be HT_NONE */
    /* Attends to the rows before and after each row, of its whole sequence, without a cache: to `reach` rows on each
     * side and itself; 0: to all. */
    bool two_sided;
    int64_t reach;
    /* The attending layer, and that of the keys, which differ where keys are shared. */
    int layer, kv_layer;
    int32_t v_dim; /* values are the first v_dim elements of k, and v is HT_NONE; 0: v, as in plain passes */
    /* f32 [n_heads]: one more score of every query, without a value, in the sum of the softmax. NULL or HT_NONE: none.
     * A constant of a plain pass. */
    ht_array *sinks;
} ht_attention;

/* Prepares a forward function of layers with `reach` rows on each side (ht_attention); 0: there are none. */
void ht_begin_two_sided(ht_ctx *c, int64_t reach);

/* Appends k, v [T, n_kv_heads, head_dim] to cache layer `cache_layer`, then attends with q [T, n_heads, head_dim],
 * causally and within the layer's window -> [T, n_heads, head_dim or v_dim]; or to both sides. With k = v = HT_NONE, attends to the keys appended
 * to it earlier in the step. */
ht_array *ht_attend(ht_ctx *c, ht_array *q, ht_array *k, ht_array *v, int cache_layer, const ht_attention *how);

/* Causal convolution of each of the n channels of x [T, n] over its sequence: w f32 [n, taps], bias f32 [n] or HT_NONE (SHORT_CONV
 * in device/params.h). They are channels [first, first + n) of the `channels` in the state of cache layer `cache_layer`. */
ht_array *ht_short_conv(ht_ctx *c, ht_array *x, ht_array *w, ht_array *bias, int cache_layer, int64_t first,
                        int64_t channels);

/* Scan of the heads' states over each sequence: q and k f32 [T, key_heads, key_dim], v [T, heads, value_dim], decay [T, heads]
 * or [T, heads, key_dim], rate [T, heads] or HT_NONE -> [T, heads, value_dim] (STATE_SCAN in device/params.h). A plain pass
 * begins each sequence with states of zeros and needs no cache layer. */
ht_array *ht_state_scan(ht_ctx *c, ht_array *q, ht_array *k, ht_array *v, ht_array *decay, ht_array *rate,
                        const ht_state_scan_params *how);

/* Cross-entropy of a plain pass's output rows: h f32 [n_out, k] -> f32 [n_out]; `softcap` caps logits (0: none). */
ht_array *ht_head_loss(ht_ctx *c, ht_array *h, const ht_weight *head, float softcap);

/* One layer of a forward function -> [T or n_out, hidden]. in[0] is the residual stream [T, hidden]; other inputs
 * depend on the family. Arrays that the layer reads but that are not in `in` get no gradient. */
typedef ht_array *ht_layer_fn(ht_ctx *c, const void *model, int index, ht_array *const *in);
/* Calls `layer` with n_in inputs; a plain pass with checkpointing recomputes it for the gradient. The layer attends
 * to the keys and values of kv_layer, which is itself or an earlier layer. */
ht_array *ht_layer(ht_ctx *c, ht_layer_fn *layer, const void *model, int index, int64_t kv_layer, ht_array *const *in,
                   int n_in);

/* Observer of an eager pass, for inspection and importance matrices. It sees the operands of attention and the
 * inputs of matrices, and calls the layers. Plans are traced without one, so generation is unaffected. */
typedef struct ht_observer ht_observer;
struct ht_observer {
    /* The operands of an ht_attend, and its result, not evaluated yet. False, with an error in c->s, fails the pass.
     * NULL: not observed. */
    bool (*attends)(ht_observer *o, ht_ctx *c, ht_array *q, ht_array *k, ht_array *v, int cache_layer,
                    const ht_attention *how, ht_array *result);
    /* Calls `layer` instead of ht_layer and returns its result in the scope c->s. */
    ht_array *(*layer)(ht_observer *o, ht_ctx *c, ht_layer_fn *layer, const void *model, int index,
                       ht_array *const *in);
    /* The input x [..., k] of the matrix with a slot. For experts chosen by ids i32 [T, m], x is [T, k] or [T, m,
     * k]; ids are HT_NONE for a dense matrix. Not evaluated yet. False as above. NULL: not observed. */
    bool (*projects)(ht_observer *o, ht_ctx *c, const char *slot, ht_array *x, ht_array *ids);
};

/* Forward function of a family: f32 logits [n_out, vocab] of the output rows, or with c->hidden their hidden states; in
 * a plain pass their cross-entropy [n_out]. `model` is the family's struct. */
typedef ht_array *ht_forward_fn(ht_ctx *c, const void *model);

#endif
