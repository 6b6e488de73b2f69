/* Loaded model as the layers above see it: its plan, the size of its caches, and its reference count. */
#ifndef HT_MODELS_MODEL_H
#define HT_MODELS_MODEL_H

#include "array/plan.h"
#include "models/admission.h"
#include "models/forward.h"
#include "models/template.h"

#include <hearth/model.h>

#include <stdatomic.h>

/* The K/V shape of one layer. */
typedef struct ht_kv_shape {
    int32_t n_kv_heads, head_dim;
    int64_t window; /* 0: all keys are visible */
} ht_kv_shape;

struct ht_model {
    ht_device *device;
    ht_stream *stream;        /* for eager work of the model's own */
    ht_tokenizer *tokenizer;  /* NULL: there is none */
    const char *no_tokenizer; /* then, what the checkpoint lacks */
    const char *architecture;
    ht_precision precision;
    ht_dtype kv_dtype;
    int64_t context;         /* positions a session may use; INT32_MAX when all caches rotate */
    int64_t trained_context; /* what the checkpoint says */
    int32_t vocab;
    int32_t n_kv_layers; /* the first so many layers keep keys and values, the others use theirs */
    ht_kv_shape *kv;     /* [n_kv_layers] */
    struct ht_config *config;
    struct ht_weights *weights; /* owns what the plan refers to */
    ht_plan *plan;              /* the traced forward */
    ht_template chat;           /* how conversations are written */
    int32_t *stop_ids;          /* tokens that end the output */
    int n_stop_ids;
    ht_admission *slots; /* for the calls that compute */
    _Atomic int refs;
};

ht_model *ht_model_retain(ht_model *m);
/* HT_ERR_UNSUPPORTED, with what the checkpoint lacks, when it has no tokenizer. */
ht_status ht_model_need_tokenizer(const ht_model *m, ht_error *err);

#endif
