/* Loaded model as seen by the layers above: plan, cache shapes, reference count. */
#ifndef HT_MODELS_MODEL_H
#define HT_MODELS_MODEL_H

#include "array/plan.h"
#include "models/chat_detection.h"
#include "models/forward.h"
#include "models/steps.h"

#include <hearth/model.h>

#include <pthread.h>
#include <stdatomic.h>

/* Keys and values of one layer. */
typedef struct ht_layer_kv {
    ht_kv_shape shape;
    int64_t window; /* in keys; 0: full attention */
} ht_layer_kv;

struct ht_model {
    ht_device *device;
    ht_stream *stream;        /* for the model's own eager work */
    ht_tokenizer *tokenizer;  /* NULL: none */
    const char *no_tokenizer; /* without a tokenizer, the reason; see ht_chat_detect_no_tokenizer */
    const char *architecture;
    bool wrapped; /* the text model of a multimodal checkpoint, whose modules are in `language_model` */
    ht_precision precision;
    ht_dtype kv_dtype;
    int64_t context;         /* maximum positions of a session; INT32_MAX when all caches are rings */
    int64_t trained_context; /* the checkpoint's context length */
    int32_t vocab;
    int32_t n_kv_layers; /* the first layers, with K and V of their own; later layers share theirs */
    ht_layer_kv *kv;     /* [n_kv_layers] */
    struct ht_config *config;
    struct ht_weights *weights; /* owns the weights that the plan refers to */
    ht_plan *plan;              /* traced forward function */
    pthread_mutex_t lock;       /* protects `adapter_plan` while it is NULL */
    ht_plan *adapter_plan;      /* ht_model_adapter_plan; NULL: not asked for yet */
    ht_chat_setup chat;
    int32_t *stop_ids; /* stop ids */
    int n_stop_ids;
    ht_steps *steps; /* all that computes on the model */
    _Atomic int refs;
};

ht_model *ht_model_retain(ht_model *m);
/* The plan for steps with adapters: the plan with a LORA operation behind every projection. Rows without adapters get the same
 * bits from both. Traced at the first call, by any thread; lent as long as the model lives. */
ht_status ht_model_adapter_plan(ht_model *m, const ht_plan **out, ht_error *err);
/* HT_ERR_UNSUPPORTED, with the reason, when the model has no tokenizer. */
ht_status ht_model_need_tokenizer(const ht_model *m, ht_error *err);

#endif
