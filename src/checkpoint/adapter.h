/* LoRA adapters in memory: pairs of matrices, each keyed by the slot of a projection (Hu et al., 2021).
 *
 * y = W x + scale * B (A x). An adapter is immutable once it is made, reference-counted, and shared by any number of
 * sessions and threads. Its values do not depend on a checkpoint's format: rows of q and k are in the order of Hugging
 * Face. Files are read and written by adapter_file.h. */
#ifndef HT_CHECKPOINT_ADAPTER_H
#define HT_CHECKPOINT_ADAPTER_H

#include "base/digest.h"
#include "checkpoint/stored_weights.h"
#include "device/device.h"
#include "device/lora.h"

#include <hearth/adapter.h>

#include <pthread.h>
#include <stdatomic.h>

/* The pair of one projection; of all experts of one, when it has experts. */
typedef struct ht_lora {
    char *slot;        /* ht_projection.slot */
    int64_t n_experts; /* 0: dense */
    int64_t rank, n_in, n_out;
    float *a;    /* [rank, n_in], or [n_experts, rank, n_in] */
    float *b;    /* [n_out, rank], or [n_experts, n_out, rank] */
    float scale; /* alpha / rank, or alpha / sqrt(rank) */
} ht_lora;

/* The model that an adapter was trained on, as its files state it. Strings are owned; NULL: not stated. */
typedef struct ht_adapter_origin {
    char *base;           /* name or path of the base model */
    char *fingerprint;    /* ht_model_fingerprint of the base model */
    char *template_hash;  /* ht_model_template_hash of the base model */
    bool wrapped;         /* the base is the text model of a multimodal one; its modules are in `language_model` */
    bool experts_outside; /* the base's experts are outside `mlp`, in addition to it (Gemma 4) */
} ht_adapter_origin;

struct ht_adapter {
    _Atomic int refs;
    int64_t n;
    ht_lora *lora; /* [n], sorted by slot */
    ht_adapter_origin origin;
    ht_adapter_format format; /* of the files it was read from */
    bool interleaved;         /* B of q and k is in GGUF's row order, as the heads are unknown; cannot be applied */
    char *warning;            /* ht_adapter_warning */
    pthread_mutex_t lock;     /* protects `transposed`, `digest` and `has_digest` */
    ht_digest digest;         /* ht_adapter_digest, once `has_digest` */
    bool has_digest;
    struct ht_adapter_form *transposed; /* of each memory that ht_adapter_transposed was asked for */
};

/* A new adapter of n pairs with room for their values, which are 0 and the caller's to fill before it is shared. `pair` gives
 * slots, shapes and scales; its values are not read. The caller frees *out. */
ht_status ht_adapter_new(const ht_lora *pair, int64_t n, ht_adapter **out, ht_error *err);
ht_adapter *ht_adapter_retain(ht_adapter *a);
/* Digest of the slots, shapes, scales and values: the same for the same adapter in another process or another file. Thread-safe. */
ht_digest ht_adapter_digest(ht_adapter *a);
/* The pair of a slot, or NULL. */
const ht_lora *ht_adapter_find(const ht_adapter *a, const char *slot);
/* The pairs in the form that steps of a device take them in, [n], in the order of a->lora, with values in its memory; made at
 * the first call, by any thread, and lent as long as the adapter lives. */
ht_status ht_adapter_transposed(ht_adapter *a, ht_device *d, const ht_lora_pair **out, ht_error *err);

/* The model that an adapter is for, as far as files of adapters depend on it. */
typedef struct ht_adapter_base {
    const ht_config *config;
    const ht_projection *projection; /* [n] */
    int64_t n;
    bool wrapped;                                                              /* ht_adapter_origin.wrapped */
    char fingerprint[HT_FINGERPRINT_SIZE], template_hash[HT_FINGERPRINT_SIZE]; /* "": not known */
} ht_adapter_base;

/* The projection with a slot, or NULL. */
const ht_projection *ht_adapter_base_find(const ht_adapter_base *m, const char *slot);
/* HT_ERR_ARGUMENT, naming the difference, unless every pair is for a projection of `m` and has its shape. */
ht_status ht_adapter_check_base(const ht_adapter *a, const ht_adapter_base *m, ht_error *err);
/* The same of one pair; `p` is the projection of its slot, or NULL when the model has none. */
ht_status ht_lora_check(const ht_lora *l, const ht_projection *p, const char *architecture, ht_error *err);

/* Reads an adapter's file or directory, and checks it against a model; NULL: none. */
ht_status ht_adapter_read(const char *path, const ht_adapter_base *m, ht_adapter **out, ht_error *err);
/* Writes it; `m` is NULL where there is no model. */
ht_status ht_adapter_write(const ht_adapter *a, const ht_adapter_base *m, const char *path, ht_adapter_format format,
                           ht_error *err);

#endif
