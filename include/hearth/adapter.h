/* Adapters: LoRA changes to a model's projections, small files that are trained, loaded and chosen per session.
 *
 * An adapter holds pairs of matrices, A [rank, n_in] and B [n_out, rank], one for each projection that it changes: y
 * = W x + scale * B (A x) (Hu et al., 2021). It is read from a directory of PEFT or mlx-lm, or from a GGUF file, and
 * checked against the model: every tensor is used and has the shape that the model's projection implies; changes that
 * cannot be applied exactly (DoRA, biases, whole modules, embeddings) are rejected by name. An adapter never changes
 * and may be shared by threads. */
#ifndef HEARTH_ADAPTER_H
#define HEARTH_ADAPTER_H

#include <hearth/model.h>
#include <hearth/session.h>

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct ht_adapter ht_adapter;

typedef enum ht_adapter_format {
    HT_ADAPTER_PEFT, /* directory: adapter_config.json and adapter_model.safetensors */
    HT_ADAPTER_MLX,  /* directory of mlx-lm: adapter_config.json and adapters.safetensors */
    HT_ADAPTER_GGUF  /* file of llama.cpp */
} ht_adapter_format;
/* "peft", "mlx" or "gguf". */
HT_API const char *ht_adapter_format_name(ht_adapter_format format);

/* ---- files ---- */

/* Options of ht_adapter_load. */
typedef struct ht_adapter_options {
    size_t size;    /* of the struct, set by ht_adapter_options_init */
    bool same_base; /* fail where ht_adapter_warning would warn; default false */
} ht_adapter_options;
HT_API void ht_adapter_options_init(ht_adapter_options *options, size_t size);

/* Reads an adapter for model `m`; the format is detected from the files. HT_ERR_FORMAT for damaged or incomplete files,
 * HT_ERR_UNSUPPORTED for adapters other than plain LoRA, HT_ERR_ARGUMENT for an adapter of another model. `m` may be
 * NULL: the adapter can then be inspected and saved, but names and shapes are not checked, and a GGUF file of a family
 * that orders rows or columns otherwise there cannot be saved in another format. The caller frees *out.
 *
 * Models with factors on products (Falcon-H1) have them in the weights of GGUF files and of mlx-lm's directories, and
 * not in directories for transformers. Adapters that ht_adapter_save wrote state the factors of their model, and fit
 * all three; others fit only the kind that their format is for (GGUF: all), else HT_ERR_UNSUPPORTED. */
HT_API ht_status ht_adapter_load(const char *path, const ht_model *m, const ht_adapter_options *options,
                                 ht_adapter **out, ht_error *err);
HT_API void ht_adapter_free(ht_adapter *a); /* NULL is fine */

/* Writes an adapter in its most portable form: float32, one rank and one scale for all pairs (smaller ranks are
 * filled up with zeros, scales that differ are folded into B). `m` may be NULL, but not for GGUF, whose names are the
 * model's, nor when the adapter came from a GGUF file without its model. `path` is a directory, or a file for GGUF;
 * it appears whole or not at all. An existing directory is replaced when it holds nothing but an adapter. */
HT_API ht_status ht_adapter_save(const ht_adapter *a, const ht_model *m, const char *path, ht_adapter_format format,
                                 ht_error *err);
/* Checks whether ht_adapter_save could write a directory there, without writing; for use before long work. Fails as
 * it would for a file or for a directory with other contents, and if the parent directory cannot be written. */
HT_API ht_status ht_adapter_save_check(const char *path, ht_error *err);
/* Checks whether adapters of a model can be written in a format; for use before long work. HT_ERR_UNSUPPORTED for
 * text encoders in mlx, and for models with factors on products (Falcon-H1), unless it is gguf, peft for a directory
 * for transformers, or mlx for one of mlx-lm. */
HT_API ht_status ht_adapter_format_check(const ht_model *m, ht_adapter_format format, ht_error *err);

/* ---- description of an adapter ---- */

typedef struct ht_adapter_info {
    ht_adapter_format format; /* of the files it was read from */
    int64_t n_pairs, n_parameters;
    int64_t rank, most_rank; /* lowest and highest of the pairs */
    float scale, most_scale; /* likewise */
    const char *base; /* name or path of the base model; this and the next two are lent, and NULL when not said */
    const char *fingerprint;   /* ht_model_fingerprint of the base model */
    const char *template_hash; /* ht_model_template_hash of the base model */
    bool needs_model;          /* read without the model that orders its rows: for inspection only */
} ht_adapter_info;
/* Stats over all pairs. */
HT_API void ht_adapter_describe(const ht_adapter *a, ht_adapter_info *out);

/* One pair; of all experts of a layer where n_experts is not 0. */
typedef struct ht_adapter_pair_info {
    const char *slot; /* the projection, as Hugging Face names it: "model.layers.3.self_attn.q_proj"; lent */
    int64_t n_experts;
    int64_t rank, n_in, n_out;
    float scale; /* factor on B (A x) */
} ht_adapter_pair_info;
/* Pair i of ht_adapter_info.n_pairs, in the order of slots. */
HT_API void ht_adapter_pair_at(const ht_adapter *a, int64_t i, ht_adapter_pair_info *out);

/* A warning if the adapter's files show that it was trained on another checkpoint or chat template than the model's;
 * else NULL. Lent. */
HT_API const char *ht_adapter_warning(const ht_adapter *a);

/* ---- identity of a model ---- */

enum { HT_FINGERPRINT_SIZE = 17 }; /* 16 hexadecimal digits and a NUL */

/* A hash of the model's sizes and of rows sampled from its matrices, the same for all formats that hold the same
 * values: a quantised variant has another. HT_ERR_MEMORY. */
HT_API ht_status ht_model_fingerprint(const ht_model *m, char out[HT_FINGERPRINT_SIZE], ht_error *err);
/* A hash of the chat template's text, or of the built-in format's name; "" when the model has neither. */
HT_API void ht_model_template_hash(const ht_model *m, char out[HT_FINGERPRINT_SIZE]);

/* ---- adapters of a session ---- */

/* Sets the session's adapters: its logits are those of the model with n adapters. Each adds scales[i] * (alpha /
 * rank) * B (A x) to the projections it changes, in this order. NULL scales: 1 each; n = 0 removes all adapters. The
 * session retains the adapters, and keeps them over ht_session_reset. Sessions with different adapters, and without,
 * may share a step; each gets the bits it would get alone.
 *
 * HT_ERR_ARGUMENT for an adapter of another model, for a scale that is not finite, and unless the session is empty:
 * the keys and values of its tokens were computed with other adapters. A failure changes nothing. */
HT_API ht_status ht_session_set_adapters(ht_session *s, ht_adapter *const *adapters, const float *scales, int n,
                                         ht_error *err);

#ifdef __cplusplus
}
#endif
#endif
