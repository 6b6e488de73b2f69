/* Session internals, shared by the files of this folder. */
#ifndef HT_GENERATE_SESSION_INTERNAL_H
#define HT_GENERATE_SESSION_INTERNAL_H

#include "generate/cache.h"
#include "generate/masks_ahead.h"
#include "generate/scheduler.h"
#include "models/adapter.h"
#include "models/model.h"

#include <hearth/session.h>

/* The adapters of a session. Shared with its forks: nothing changes them. */
typedef struct ht_session_adapters {
    _Atomic int refs;
    int n;
    ht_adapter **adapter; /* [n], retained */
    float *scale;         /* [n] */
    ht_lora_use *use;     /* [projections of the model][n] */
    ht_lora_set set;      /* of `use` */
} ht_session_adapters;

struct ht_session {
    ht_model *model;
    ht_cache *cache;
    int32_t chunk;
    /* All tokens of the conversation; those from cache->length on have not been through the model yet. */
    int32_t *token;
    int64_t n_tokens;
    size_t token_capacity, together_capacity;
    int64_t announced;             /* tokens that it will hold (ht_session_announce); 0: those it is given */
    ht_session_adapters *adapters; /* NULL: none */
    ht_step_job job;               /* what is being computed */
    ht_session *draft;             /* of the draft model that was last used; NULL: none */
    ht_masks_ahead *masks_ahead;   /* of answers with a grammar; NULL: none as yet */
    /* For ht_session_decode_together: next token, argmax scratch, and jobs of a step that this session leads. */
    int32_t next;
    float *block_max;
    ht_step_job **together;
};

/* An empty cache for a session of that model and chunk. */
ht_status ht_session_new_cache(const ht_model *m, int32_t chunk, ht_cache **out, ht_error *err);
/* Replaces the session's tokens and cache. `cache` holds a prefix of the n tokens and becomes the session's. */
ht_status ht_session_take(ht_session *s, const int32_t *tokens, int64_t n, ht_cache *cache, ht_error *err);

/* n >= 1 adapters resolved to the model's projections, with a scale each; NULL scales: 1. */
ht_status ht_session_adapters_new(ht_model *m, ht_adapter *const *adapters, const float *scales, int n,
                                  ht_session_adapters **out, ht_error *err);
void ht_session_adapters_free(ht_session_adapters *a); /* one reference; NULL is fine */

/* Announces that the session will hold n tokens, until it is reset: a sequence that is given in parts is then computed
 * as one given at once (ht_model_is_long). */
void ht_session_announce(ht_session *s, int64_t n);

/* Checks that n more tokens fit the context and are tokens. */
ht_status ht_session_check_ids(const ht_session *s, const int32_t *ids, size_t n, ht_error *err);
/* Adds one token without computing it. */
ht_status ht_session_push(ht_session *s, int32_t id, ht_error *err);
/* Reserves capacity for n tokens in total. */
ht_status ht_session_reserve_tokens(ht_session *s, int64_t n, ht_error *err);
/* Makes s->job compute pending tokens below `end`, at most a chunk, with logits from `first_out` on, and prepares
 * the cache. If a sequence of `end` tokens needs other positions than the cache has, all tokens become pending
 * (ht_cache_begin). The caller fills in the rest of the job. */
ht_status ht_session_prepare(ht_session *s, int64_t end, int64_t first_out, ht_error *err);
/* Where the next step of a session with pending tokens below `end` will end; prepares the cache for `end` tokens like
 * ht_session_prepare, but takes no memory. */
int64_t ht_session_step_end(ht_session *s, int64_t end);
/* Runs s->job. */
ht_status ht_session_run(ht_session *s, ht_error *err);
/* Truncates the session to its common prefix with ids, at most n - 1 tokens, or to what the cache can keep of it; *kept
 * is the length. If the cache is not for n tokens, the session is emptied. */
void ht_session_keep_prefix(ht_session *s, const int32_t *ids, size_t n, size_t *kept);

#endif
