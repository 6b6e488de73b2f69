/* Sessions: one conversation's tokens and KV cache, and the logits after them. generate.h generates from a
 * session.
 *
 * A session belongs to one thread at a time; any number of sessions may share a model. On one instruction set
 * logits depend, to the bit, on the model and the tokens: not on threads, batch or cache. Bits may differ across
 * instruction sets.
 *
 * Models with longrope (Phi-3, Phi-3.5, Phi-4-mini) have a second setting of RoPE for sequences beyond their original
 * context. As in `transformers`, all tokens that a session holds after a call count, and the setting holds for all of
 * its rows. A session that reaches the limit computes its tokens once more, as does one that is truncated below it. */
#ifndef HEARTH_SESSION_H
#define HEARTH_SESSION_H

#include <hearth/model.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct ht_session ht_session;

/* Options of ht_session_new. */
typedef struct ht_session_options {
    size_t size; /* of the struct, set by ht_session_options_init */
    /* Maximum rows of one prefill step. Default 0: enough to keep the model's device busy, 512 on a CPU and 2,048 on
     * a GPU, or 1,024 or 512 if the weights leave little memory there. */
    int64_t chunk;
} ht_session_options;
HT_API void ht_session_options_init(ht_session_options *options, size_t size);

/* The caller frees *out; the session holds the model until then. */
HT_API ht_status ht_session_new(ht_model *m, const ht_session_options *options, ht_session **out, ht_error *err);
/* A session with the same tokens, adapters and options, to continue them differently. The two share the pages of the
 * KV cache until one of them writes there. `s` must not be used meanwhile. The caller frees *out. */
HT_API ht_status ht_session_fork(const ht_session *s, ht_session **out, ht_error *err);
HT_API void ht_session_free(ht_session *s); /* NULL is fine */
/* Discards all tokens and frees the memory of the KV cache. */
HT_API void ht_session_reset(ht_session *s);
/* Keeps the first n tokens. HT_ERR_ARGUMENT unless 0 <= n <= length. The next call computes some of them again if a
 * sliding layer has discarded keys that the next token needs, or if a recurrent layer has not kept its state there. It
 * keeps that at the last message's end, and at earlier ends of messages or of pages of 256 tokens, at distances from
 * the end that double. */
HT_API ht_status ht_session_truncate(ht_session *s, int64_t n, ht_error *err);
/* Tokens of the conversation, including the last generated one, although only the next call computes its keys and
 * values. */
HT_API int64_t ht_session_length(const ht_session *s);
/* The session's tokens, lent until the next call on the session; NULL if empty. */
HT_API const int32_t *ht_session_tokens(const ht_session *s);
/* Bytes that the KV cache holds now, shared pages included. */
HT_API size_t ht_session_cache_bytes(const ht_session *s);

/* ---- logits ---- */

/* One step's logits: f32 [n_rows, vocab], for positions first .. first + n_rows - 1; lent during the call. Return false
 * to stop: ht_session_forward then returns HT_ERR_CANCELLED. */
typedef bool ht_logits_fn(const float *logits, int64_t first, int64_t n_rows, int32_t vocab, void *user);

/* Options of ht_session_forward, ht_session_forward_together and ht_session_decode_together. */
typedef struct ht_forward_options {
    size_t size;             /* of the struct, set by ht_forward_options_init */
    bool all_rows;           /* logits after every position of ht_session_forward; default false: after the last one */
    const ht_cancel *cancel; /* ends the call with HT_ERR_CANCELLED; default NULL */
} ht_forward_options;
HT_API void ht_forward_options_init(ht_forward_options *options, size_t size);

/* Appends ids to the session in chunks and delivers the logits: after every position with `all_rows` (then
 * possibly several slices per chunk), else after the last one only; fn may be NULL. Prompts longer than the rest
 * of the context, and ids outside the vocabulary, are rejected before any computation. After a failure the session
 * is as after the last complete chunk. */
HT_API ht_status ht_session_forward(ht_session *s, const int32_t *ids, size_t n, const ht_forward_options *options,
                                    ht_logits_fn *fn, void *user, ht_error *err);

/* One step of several sessions of one model together: row i appends ids[i] to sessions[i]; logits f32 [n, vocab]
 * go to `logits`. Each session gets the bits it would get alone. The sessions are distinct and belong to the
 * calling thread; `all_rows` is ignored. On failure no session's tokens change. */
HT_API ht_status ht_session_forward_together(ht_session *const *sessions, const int32_t *ids, int n,
                                             const ht_forward_options *options, float *logits, ht_error *err);
/* The same without logits: next[i], of n, is the most likely token after ids[i], the lowest id on ties. It
 * may be `ids`. A logit that is not finite is HT_ERR_INTERNAL. */
HT_API ht_status ht_session_decode_together(ht_session *const *sessions, const int32_t *ids, int n,
                                            const ht_forward_options *options, int32_t *next, ht_error *err);

#ifdef __cplusplus
}
#endif
#endif
