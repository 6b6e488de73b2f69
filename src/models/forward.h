/* Vocabulary of a model's author: the context of a forward function, linear layers, embeddings and attention.
 *
 * A forward function takes the token rows of a batch and returns the logits of the rows that are asked for. It is run
 * eagerly, traced into a plan, or differentiated; so it never looks at values, and row counts are only ever the leading
 * axis of an array. */
#ifndef HT_MODELS_FORWARD_H
#define HT_MODELS_FORWARD_H

#include "device/matrix.h"
#include "device/step.h"

#include <hearth/index.h>
#include <hearth/ops.h>

/* A matrix with its bias and its slot, the stable name by which an adapter finds it ("model.layers.3.mlp.up_proj"). */
typedef struct ht_weight {
    ht_matrix *matrix; /* [n_rows, k]; NULL: the layer has no such weight */
    ht_array *bias;    /* f32 [n_rows], or HT_NONE */
    const char *slot;
    float scale; /* by which the file says to multiply what the matrix gives; 0: by nothing */
} ht_weight;

/* A LoRA pair for one slot: y += scale * B (A x), A f32 [rank, k], B f32 [n_rows, rank]. */
typedef struct ht_adapter_pair {
    const char *slot;
    ht_array *a, *b;
    float scale;
} ht_adapter_pair;

typedef struct ht_adapters {
    int n;
    const ht_adapter_pair *pair;
} ht_adapters;

/* What a forward function is given. In a trace `step` is NULL: the per-step values are read when the plan runs. */
typedef struct ht_ctx {
    ht_scope *s;
    const ht_step *step;
    const ht_adapters *adapters; /* NULL: none */
} ht_ctx;

/* Per-step values as arrays: i32 [n_tok] token ids and positions, i32 [n_out] rows that are asked for. */
ht_array *ht_batch_ids(ht_ctx *c);
ht_array *ht_batch_positions(ht_ctx *c);
ht_array *ht_batch_out_rows(ht_ctx *c);

/* x f32 [..., k] -> f32 [..., n_rows]: scale x W^T + bias, plus the adapter of the slot if there is one. */
ht_array *ht_linear(ht_ctx *c, ht_array *x, const ht_weight *w);
typedef struct ht_experts {
    ht_matrix_list list; /* [n][n_rows, k] */
    ht_array *scale;     /* f32 [n], on what each of them gives; or HT_NONE */
} ht_experts;

/* x f32 [T, k] or [T, m, k], ids i32 [T, m] -> f32 [T, m, n_rows]: row t by each of the experts ids[t]. */
ht_array *ht_linear_gather(ht_ctx *c, ht_array *x, const ht_experts *experts, ht_array *ids);
/* The same by two sets of experts at once, whose matrices have one shape. */
void ht_linear_gather_two(ht_ctx *c, ht_array *x, const ht_experts *const experts[2], ht_array *ids, ht_array *y[2]);

/* Rows of `table` at ids i32 [T], times scale and the table's own -> f32 [T, k]. */
ht_array *ht_embed(ht_ctx *c, ht_array *ids, const ht_weight *table, float scale);

typedef struct ht_attention {
    float scale;   /* on q.k */
    float softcap; /* 0: none */
    bool asked;    /* q has the rows that are asked for alone, [n_out, n_heads, head_dim]; k and v are HT_NONE */
} ht_attention;

/* Appends k and v [T, n_kv_heads, head_dim] to layer `layer` of the caches of the step, then attends with
 * q [T, n_heads, head_dim]; causal, with the layer's window. Gives [T, n_heads, head_dim]. Both HT_NONE: attends to what
 * that layer appended earlier in the same step. */
ht_array *ht_attend(ht_ctx *c, ht_array *q, ht_array *k, ht_array *v, int layer, const ht_attention *how);

/* A family's forward function: logits f32 [n_out, vocab] of the rows asked for. `model` is the family's own struct. */
typedef ht_array *ht_forward_fn(ht_ctx *c, const void *model);

#endif
