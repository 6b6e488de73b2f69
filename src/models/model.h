/* Loaded model as seen by the layers above: plan, cache shapes, reference count. */
#ifndef HT_MODELS_MODEL_H
#define HT_MODELS_MODEL_H

#include "array/plan.h"
#include "checkpoint/adapter.h"
#include "checkpoint/chat_detection.h"
#include "checkpoint/kv_size.h"
#include "checkpoint/modules.h"
#include "checkpoint/sampling.h"
#include "models/forward.h"

#include <hearth/model.h>

#include <pthread.h>
#include <stdatomic.h>

/* Flags of a forward function's form. Each combination has a separate plan; shared results are identical bit by bit. */
enum {
    HT_PLAN_ADAPTERS = 1, /* a LORA operation after every projection */
    HT_PLAN_HIDDEN = 2,   /* hidden states of the output rows after the final norm instead of logits */
    HT_PLAN_TAPS = 4,     /* taps of the layers (models/taps.h) as a second result */
    HT_PLAN_LONG = 8,     /* positions of long sequences (ht_model_is_long) */
    HT_PLAN_FORMS = 14    /* hidden states come without taps */
};

struct ht_model {
    ht_device *device;
    ht_stream *stream;        /* for the model's own eager work */
    ht_tokenizer *tokenizer;  /* NULL: none */
    const char *no_tokenizer; /* without a tokenizer, the reason; see ht_chat_detect_no_tokenizer */
    const char *architecture;
    ht_text_module text;
    ht_precision precision;
    ht_dtype kv_dtype;
    int64_t context;         /* maximum positions of a session; INT32_MAX when all caches are rings */
    int64_t trained_context; /* the checkpoint's context length */
    int64_t short_length;    /* longest sequence that is not a long one; INT64_MAX without longrope */
    bool skip_memory_check;  /* steps may take more memory than is free */
    int32_t step_rows;       /* default rows of a prefill step: the device's, or fewer if memory is short */
    int32_t vocab;
    int32_t n_cache_layers; /* checkpoint/kv_size.h */
    ht_layer_kv *kv;        /* [n_cache_layers] */
    struct ht_config *config;
    struct ht_weights *weights;   /* owns the weights that the plan refers to */
    ht_plan *plan[HT_PLAN_FORMS]; /* the first is traced at load, the others by ht_model_plan; NULL: not traced yet */
    pthread_mutex_t lock;         /* protects plans that are NULL, token_trie, kept and scheduler */
    ht_chat_setup chat;
    ht_sampling sampling;             /* defaults of requests */
    ht_modules modules;               /* of embeddings and reranking */
    struct ht_token_trie *token_trie; /* built on first use; NULL: not built */
    void *kept;                       /* data of a higher layer; NULL: none */
    void (*free_kept)(void *kept);
    int32_t *stop_ids; /* stop ids */
    int n_stop_ids;
    int32_t slots; /* maximum sequences per step */
    /* The scheduler (generate/scheduler.h) runs all computations of the model; created on first use. */
    struct ht_scheduler *scheduler;
    void (*free_scheduler)(struct ht_scheduler *s);
    _Atomic int refs;
};

ht_model *ht_model_retain(ht_model *m);
/* The plan of a form, traced on the first call; lent as long as the model lives. Thread-safe. */
ht_status ht_model_plan(ht_model *m, unsigned form, const ht_plan **out, ht_error *err);
/* Trie of the bytes of all tokens, built on the first call; lent as long as the model lives. Thread-safe.
 * HT_ERR_UNSUPPORTED for a model without a tokenizer. */
ht_status ht_model_token_trie(ht_model *m, const struct ht_token_trie **out, ht_error *err);
/* Whether a sequence of n tokens is a long one. Longrope has other divisors of RoPE's frequencies for them: every
 * position of the sequence is computed with these, its first ones too. A sequence that grows beyond the limit is
 * recomputed, so that its logits are those of a fresh one. */
static inline bool ht_model_is_long(const ht_model *m, int64_t n) { return n > m->short_length; }
/* Tokens by which a sequence of n can grow before ht_model_is_long changes. */
static inline int64_t ht_model_growth(const ht_model *m, int64_t n) {
    return ht_model_is_long(m, n) ? INT64_MAX : m->short_length - n;
}
/* Floats in an output row of a form. */
int64_t ht_model_row_width(const ht_model *m, unsigned form);
/* "high", "fast" or "reference". A constant. */
const char *ht_precision_name(ht_precision p);
/* HT_ERR_ARGUMENT, with the index, for the first of n ids outside the vocabulary. */
ht_status ht_model_check_ids(const ht_model *m, const int32_t *ids, size_t n, ht_error *err);
/* HT_ERR_UNSUPPORTED for a text encoder, which has no logits. */
ht_status ht_model_need_decoder(const ht_model *m, ht_error *err);
/* HT_ERR_UNSUPPORTED, with the reason, when the model has no tokenizer. */
ht_status ht_model_need_tokenizer(const ht_model *m, ht_error *err);

#endif
