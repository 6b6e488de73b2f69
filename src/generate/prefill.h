/* Prefill of many sequences at once: logits or hidden states after the positions that are asked for.
 *
 * Sequences are leaves of a radix tree of tokens; each branch is computed once, on a KV cache that those behind it share. Branches
 * go together in a step, in the order of their sequences, deepest first: few caches are alive. Belongs to one thread. */
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
    bool hidden;     /* hidden states after the final norm, f32 [hidden], where it says logits */
    size_t kv_bytes; /* of keys and values, as far as one branch has room in them; 0: half of the memory that is free */
} ht_prefill_options;

ht_status ht_prefill_new(ht_model *m, const ht_prefill_options *options, ht_prefill **out, ht_error *err);
void ht_prefill_free(ht_prefill *p); /* NULL is fine */

typedef struct ht_prefill_sequence {
    const int32_t *token; /* [n], checked: they fit the context and are in the vocabulary */
    int64_t n;            /* 1 or more */
    int64_t first_out;    /* logits are wanted after positions from this to n - 1 */
    /* Results. */
    bool done;        /* all its rows have been taken, or it has failed */
    int64_t computed; /* positions, those shared with a sequence before it not counted */
} ht_prefill_sequence;

typedef struct ht_prefill_calls {
    /* Takes the logits after `position`, f32 [vocab], of n sequences that are the same up to there. On threads of the step, for several rows at a
     * time; those of one sequence come one after the other. `block_max` is scratch of ht_row_blocks(vocab). */
    void (*row)(void *user, const float *logits, int64_t position, const int32_t *sequence, int32_t n,
                float *block_max);
    /* What follows comes on the caller's thread: a sequence has failed, and is done; */
    void (*failed)(void *user, int32_t sequence, const ht_error *err);
    /* a step is over; return false to stop. */
    bool (*stepped)(void *user);
    void *user;
} ht_prefill_calls;

/* Computes n sequences. HT_ERR_CANCELLED when `cancel` or `stepped` ended it, HT_ERR_MEMORY when there is none to begin; what
 * happens to sequences, `failed` tells. What all of them have in common is kept for the next call. */
ht_status ht_prefill_run(ht_prefill *p, ht_prefill_sequence *sequences, int32_t n, const ht_prefill_calls *calls,
                         const ht_cancel *cancel, ht_error *err);

#endif
