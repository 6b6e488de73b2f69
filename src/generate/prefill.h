/* Prefill of many sequences at once: returns logits or hidden states at the requested positions.
 *
 * Sequences are leaves of a radix tree of tokens. Each branch is computed once; its descendants share its KV cache.
 * A step takes branches in order of sequences, deepest first: few caches are alive. Belongs to one thread. */
#ifndef HT_GENERATE_PREFILL_H
#define HT_GENERATE_PREFILL_H

#include "generate/cache.h"

#include <hearth/adapter.h>
#include <hearth/cancel.h>

typedef struct ht_prefill ht_prefill;

typedef struct ht_prefill_options {
    ht_adapter *const *adapters; /* as ht_session_set_adapters takes them */
    const float *adapter_scales;
    int n_adapters;
    bool hidden;     /* returns hidden states after the final norm, f32 [hidden], instead of logits */
    size_t kv_bytes; /* KV budget, which a single branch may exceed; 0: half of the free memory */
} ht_prefill_options;

ht_status ht_prefill_new(ht_model *m, const ht_prefill_options *options, ht_prefill **out, ht_error *err);
void ht_prefill_free(ht_prefill *p); /* NULL is fine */

typedef struct ht_prefill_sequence {
    const int32_t *token; /* [n], checked: they fit the context and are in the vocabulary */
    int64_t n;            /* 1 or more */
    int64_t first_out;    /* logits are wanted after positions from this to n - 1 */
    /* Text encoders: the position that ends those wanted (0: n), and token types [n] (NULL: 0). */
    int64_t end_out;
    const int32_t *type;
    /* Results. */
    bool done;        /* all its rows have been taken, or it has failed */
    int64_t computed; /* positions, without those shared with an earlier sequence */
    bool is_long;     /* see ht_model_is_long; such sequences share nothing with others */
} ht_prefill_sequence;

typedef struct ht_prefill_calls {
    /* Receives the logits after `position`, f32 [vocab], of n sequences with the same tokens so far. Called on
     * threads of the step, never twice at once for a sequence. `block_max` is scratch of ht_row_blocks(vocab). */
    void (*row)(void *user, const float *logits, int64_t position, const int32_t *sequence, int32_t n,
                float *block_max);
    /* A sequence has failed and is done. On the caller's thread. */
    void (*failed)(void *user, int32_t sequence, const ht_error *err);
    /* Follows each step, on the caller's thread. Return false to stop. */
    bool (*stepped)(void *user);
    void *user;
} ht_prefill_calls;

/* Computes n sequences and keeps their common prefix for the next call. Reports failed sequences to `failed`.
 * HT_ERR_CANCELLED: `cancel` or `stepped` stopped it. HT_ERR_MEMORY: not enough memory to begin. */
ht_status ht_prefill_run(ht_prefill *p, ht_prefill_sequence *sequences, int32_t n, const ht_prefill_calls *calls,
                         const ht_cancel *cancel, ht_error *err);

#endif
