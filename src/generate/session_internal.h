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
    ht_session_adapters *adapters; /* NULL: none */
    ht_step_job job;               /* what is being computed */
    ht_session *draft;             /* of the draft model that was last used; NULL: none */
    ht_masks_ahead *masks_ahead;   /* of answers with a grammar; NULL: none as yet */
    /* Of ht_session_decode_together: what logits say, room to find it, and the jobs of a step that this one leads. */
    int32_t next;
    float *block_max;
    ht_step_job **together;
};

/* An empty cache for a session of that model and chunk. */
ht_status ht_session_new_cache(const ht_model *m, int32_t chunk, ht_cache **out, ht_error *err);
/* Gives the session n tokens and a cache of their beginning, which it owns from here on, in the place of its own. */
ht_status ht_session_take(ht_session *s, const int32_t *tokens, int64_t n, ht_cache *cache, ht_error *err);

/* n >= 1 adapters resolved to the model's projections, with a scale each; NULL scales: 1. */
ht_status ht_session_adapters_new(ht_model *m, ht_adapter *const *adapters, const float *scales, int n,
                                  ht_session_adapters **out, ht_error *err);
void ht_session_adapters_free(ht_session_adapters *a); /* one reference; NULL is fine */

/* Checks that n more tokens fit the context and are tokens. */
ht_status ht_session_check_ids(const ht_session *s, const int32_t *ids, size_t n, ht_error *err);
/* Adds one token without computing it. */
ht_status ht_session_push(ht_session *s, int32_t id, ht_error *err);
/* Makes room for n tokens in all. */
ht_status ht_session_make_room(ht_session *s, int64_t n, ht_error *err);
/* Makes s->job ask for tokens that are there and not computed, up to `end` - 1 or a chunk of them, with logits from position
 * `first_out` on, and the cache ready for it. The rest of the job is the caller's to fill in. */
ht_status ht_session_prepare(ht_session *s, int64_t end, int64_t first_out, ht_error *err);
/* Runs s->job. */
ht_status ht_session_run(ht_session *s, ht_error *err);
/* Shortens the session to the beginning it shares with ids, at most n - 1 tokens, so that the rest may be run after it;
 * *kept is that length. A beginning that the cache cannot go back to is given up: the session is then empty. */
void ht_session_keep_prefix(ht_session *s, const int32_t *ids, size_t n, size_t *kept);

#endif
