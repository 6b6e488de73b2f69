/* Inspection: the keys, values, queries and attention weights that a model computes for a prompt, layer by layer.
 *
 * Keys and queries are those that meet in the attention: after their norms, where a family has them, and after RoPE.
 * All are the f32 values that the model computes, before the KV cache rounds keys and values to its dtype (kv_dtype
 * of ht_model_options); the rounded ones of a session's cache are exactly these, rounded. A layer's input, however,
 * depends on precision and kv_dtype, as an answer does: the attention of the layers below reads such a cache.
 *
 * Attention weights are the softmax of the scores that the model uses: of queries and keys as the cache keeps them,
 * scaled, capped where the family caps them, and masked. A row sums to 1 within rounding, or to less in heads with an
 * attention sink, whose weight is the rest. Weights of later positions, and in a sliding layer of those before the
 * window, are exactly 0.
 *
 * Memory: the requested arrays, the KV cache of the prompt, and the intermediate values of 256 positions in
 * one layer. Attention weights take n_heads * n_tokens * n_tokens floats a layer: 2 GB for 32 heads and 4,096 tokens.
 * Requests that do not fit are rejected, with the numbers, before any computation. */
#ifndef HEARTH_INSPECT_H
#define HEARTH_INSPECT_H

#include <hearth/adapter.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Options of ht_inspect. */
typedef struct ht_inspect_options {
    size_t size;           /* of the struct, set by ht_inspect_options_init */
    bool keys;             /* keep the keys of `layers`; default true */
    bool values;           /* keep their values; default false */
    bool queries;          /* keep their queries; default false */
    const int32_t *layers; /* [n_layers], the first layer is 0; default NULL with n_layers 0: all */
    int n_layers;
    const int32_t *attention; /* [n_attention] layers whose attention weights are kept; default NULL: none */
    int n_attention;
    ht_adapter *const *adapters; /* [n_adapters] of the model; default NULL, for none; they add up */
    const float *adapter_scales; /* [n_adapters] factors on them; default NULL: 1 for each */
    int n_adapters;
    size_t most_bytes;       /* maximum allocation; default 0: the machine's free memory */
    const ht_cancel *cancel; /* ends the call with HT_ERR_CANCELLED; default NULL */
    /* Called after each layer, with the share done, 0 to 1. Default NULL. */
    void (*progress)(double done, void *user);
    void *user; /* handed to `progress` */
} ht_inspect_options;
HT_API void ht_inspect_options_init(ht_inspect_options *options, size_t size);

/* One layer. Arrays are f32, row-major, and NULL if not requested. */
typedef struct ht_inspected_layer {
    int32_t
        kv_layer; /* layer whose keys and values this one attends to: itself, or the earlier one that shares its own */
    int32_t n_heads, n_kv_heads, head_dim; /* head h attends to the keys of head h / (n_heads / n_kv_heads) */
    int64_t window; /* keys that a position attends to at most, its own included; 0: all before it */
    bool chunked;   /* the window restarts at every multiple of `window`, instead of having the last positions */
    const float *k,
        *v;         /* [n_kv_heads, n_tokens, head_dim]; of a layer that shares them, the arrays of layer kv_layer */
    const float *q; /* [n_heads, n_tokens, head_dim] */
    const float *attention; /* [n_heads, n_tokens, n_tokens]: of each query, a row, the weight of each key */
} ht_inspected_layer;

typedef struct ht_inspection {
    int64_t n_tokens;
    const int32_t *tokens; /* [n_tokens] of the prompt */
    int32_t n_layers;
    const ht_inspected_layer *layers; /* [n_layers], all of the model; lent, as is everything here, until it is freed */
    size_t bytes;                     /* of the arrays */
} ht_inspection;

/* Computes the n ids of a prompt as a session would and keeps the requested arrays. HT_ERR_ARGUMENT for no ids, ids
 * outside the vocabulary, layers that the model lacks, or if nothing is requested. HT_ERR_LIMIT for a prompt longer
 * than the context or insufficient memory. Numbers that are not finite are kept. Sessions may use the model
 * meanwhile. The caller frees *out. */
HT_API ht_status ht_inspect(ht_model *m, const int32_t *ids, size_t n, const ht_inspect_options *options,
                            ht_inspection **out, ht_error *err);
HT_API void ht_inspection_free(ht_inspection *i); /* NULL is fine */

/* Writes all arrays to an npz file, compressed with `deflate`, else stored: "layer.3.k", "layer.3.v", "layer.3.q" and
 * "layer.3.attention" with the shapes above, and "tokens", i32 [n_tokens]. Shared keys and values are written once,
 * under the number of the layer that owns them. The file appears whole or not at all. */
HT_API ht_status ht_inspection_save(const ht_inspection *i, const char *path, bool deflate, ht_error *err);

/* A picture of the attention weights of one head as an SVG document: a row for each query and a column for each key,
 * with the tokens as labels, as many as are legible. Their texts are those of `t`, or their ids when `t` is NULL.
 * HT_ERR_ARGUMENT for an unknown head, or if its weights were not requested, HT_ERR_LIMIT for more than 2,048
 * tokens. The caller frees *svg with ht_text_free. */
HT_API ht_status ht_inspection_draw(const ht_inspection *i, int32_t layer, int32_t head, const ht_tokenizer *t,
                                    char **svg, ht_error *err);

#ifdef __cplusplus
}
#endif
#endif
