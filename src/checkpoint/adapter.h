/* LoRA adapters in memory: pairs of matrices, each keyed by the slot of a projection (Hu et al., 2021). y = W x +
 * scale * B (A x). Adapters are immutable and reference-counted; sessions and threads may share them. Rows and
 * columns are in Hugging Face order, whatever the checkpoint's format. adapter_file.h reads and writes files. */
#ifndef HT_CHECKPOINT_ADAPTER_H
#define HT_CHECKPOINT_ADAPTER_H

#include "base/digest.h"
#include "checkpoint/family.h"
#include "checkpoint/stored_weights.h"
#include "device/device.h"
#include "device/lora.h"

#include <hearth/adapter.h>

#include <pthread.h>
#include <stdatomic.h>

/* The pair of one projection, or of all its experts. */
typedef struct ht_lora {
    char *slot;        /* ht_projection.slot */
    int64_t n_experts; /* 0: dense */
    int64_t rank, n_in, n_out;
    float *a;    /* [rank, n_in], or [n_experts, rank, n_in] */
    float *b;    /* [n_out, rank], or [n_experts, n_out, rank] */
    float scale; /* alpha / rank, or alpha / sqrt(rank) */
} ht_lora;

/* The place of the text model's modules in transformers. */
typedef enum ht_text_module {
    HT_TEXT_WHOLE,          /* model: not in a multimodal model */
    HT_TEXT_LANGUAGE_MODEL, /* model.language_model */
    HT_TEXT_TEXT_MODEL,     /* model.text_model */
    HT_TEXT_CAUSAL_MODEL    /* language_model.model */
} ht_text_module;

/* The model that an adapter was trained on, as its files state it. Strings are owned; NULL: not stated. */
typedef struct ht_adapter_origin {
    char *base;          /* name or path of the base model */
    char *fingerprint;   /* ht_model_fingerprint of the base model */
    char *template_hash; /* ht_model_template_hash of the base model */
    ht_text_module text;
    bool embeds;             /* it was trained for embeddings */
    const ht_family *family; /* whose names of experts the files have; NULL: the usual ones */
    /* Whose bases it fits if their factors on products are not stated: that of the files, unless they were converted
     * without a model. */
    ht_adapter_format format;
    bool has_multipliers; /* `multipliers` of the base are stated: B is for products that they multiply */
    ht_multipliers multipliers;
} ht_adapter_origin;

struct ht_adapter {
    _Atomic int refs;
    int64_t n;
    ht_lora *lora; /* [n], sorted by slot */
    ht_adapter_origin origin;
    bool is_read;             /* from files */
    ht_adapter_format format; /* of these, or the one for the base that it was trained on */
    /* The rows of gate and up were taken for halves of one tensor, as the model is not known. Where they alternate in
     * the model, the adapter cannot be applied. */
    bool halved;
    bool
        gguf_order; /* some pairs are in GGUF's order of rows or columns, as the heads are unknown; cannot be applied */
    char *warning;  /* ht_adapter_warning */
    pthread_mutex_t lock; /* protects `transposed`, `digest` and `has_digest` */
    ht_digest digest;     /* ht_adapter_digest, once `has_digest` */
    bool has_digest;
    struct ht_adapter_form *transposed; /* results of ht_adapter_transposed, one per memory */
};

/* Creates an adapter of n pairs with values of 0, which the caller fills before sharing it. `pair` gives slots,
 * shapes and scales; its values are not read. The caller frees *out. */
ht_status ht_adapter_new(const ht_lora *pair, int64_t n, ht_adapter **out, ht_error *err);
ht_adapter *ht_adapter_retain(ht_adapter *a);
/* Digest of slots, shapes, scales and values; independent of process and file. Thread-safe. */
ht_digest ht_adapter_digest(ht_adapter *a);
/* The pair of a slot, or NULL. */
const ht_lora *ht_adapter_find(const ht_adapter *a, const char *slot);
/* The pair of a part of a joined projection, which only GGUF files that are read without their model have, or NULL. */
const ht_lora *ht_adapter_find_part(const ht_adapter *a, const char *slot, ht_part_rule part);
/* The properties of a base model that adapter files depend on. */
typedef struct ht_adapter_base {
    const ht_config *config;
    const ht_projection *projection; /* [n] */
    int64_t n;
    ht_text_module text;
    char fingerprint[HT_FINGERPRINT_SIZE], template_hash[HT_FINGERPRINT_SIZE]; /* "": not known */
} ht_adapter_base;

/* The projection with a slot, or NULL. */
const ht_projection *ht_adapter_base_find(const ht_adapter_base *m, const char *slot);
/* HT_ERR_ARGUMENT, naming the difference, unless every pair is for a projection of `m` and has its shape. */
ht_status ht_adapter_check_base(const ht_adapter *a, const ht_adapter_base *m, ht_error *err);
/* Like ht_adapter_check_base for one pair; `p` is the projection of its slot, or NULL if the model has none. */
ht_status ht_lora_check(const ht_lora *l, const ht_projection *p, const char *architecture, ht_error *err);

/* ---- factors on products (ht_multipliers), which adapters have for the products of their base ---- */

/* The multipliers of the base that an adapter's B is for: as stated, or as its format implies if it was read for a
 * model with configuration `c`. False: they are not known. */
bool ht_adapter_multipliers(const ht_adapter *a, const ht_config *c, ht_multipliers *out);
/* HT_ERR_UNSUPPORTED if readers of a format have other multipliers than this model: PEFT those of a directory for
 * transformers, mlx-lm those of its directories. GGUF has none. */
ht_status ht_adapter_check_format(ht_adapter_format format, const ht_config *c, ht_error *err);
/* Turns B from one base into B for another with multipliers `to`, which is stated. HT_ERR_UNSUPPORTED if the adapter's
 * own are not known. No other thread may use the adapter. */
ht_status ht_adapter_multiply(ht_adapter *a, const ht_config *c, const ht_multipliers *to, ht_error *err);
ht_status ht_adapter_copy(const ht_adapter *a, ht_adapter **out, ht_error *err);

/* Whether the rows of gate and up alternate in transformers' tensor of both. `family` may be NULL. */
bool ht_adapter_alternates(const ht_family *family);

/* The pairs in the form that steps of model `m` on a device use, [n], in the order of a->lora, with values in its
 * memory. Made on the first call and lent as long as the adapter lives. Thread-safe. */
ht_status ht_adapter_transposed(ht_adapter *a, const ht_adapter_base *m, ht_device *d, const ht_lora_pair **out,
                                ht_error *err);

/* Reads an adapter's file or directory and checks it against model `m` (may be NULL). */
ht_status ht_adapter_read(const char *path, const ht_adapter_base *m, ht_adapter **out, ht_error *err);
/* Writes an adapter; `m` may be NULL. */
ht_status ht_adapter_write(const ht_adapter *a, const ht_adapter_base *m, const char *path, ht_adapter_format format,
                           ht_error *err);

#endif
