/* Sessions and generation: one conversation's tokens, KV cache, sampler and metrics.
 *
 * A session belongs to one thread at a time (ht_session_cancel excepted); any number of sessions may share a model. On one
 * instruction set the output depends, to the bit, on the model, the tokens and the seed: not on threads, batch or cache.
 * Across instruction sets equal bits are not promised. */
#ifndef HEARTH_SESSION_H
#define HEARTH_SESSION_H

#include <hearth/model.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct ht_session ht_session;

/* Zero-initialise, then set what differs from the default. */
typedef struct ht_session_options {
    int32_t chunk; /* most rows in one prefill step; 0: 512 */
} ht_session_options;

/* NULL options mean the defaults. The caller frees *out; the session holds the model until then. */
HT_API ht_status ht_session_new(ht_model *m, const ht_session_options *options, ht_session **out, ht_error *err);
HT_API void ht_session_free(ht_session *s); /* NULL is fine */
/* Forgets all tokens; memory of the KV cache is given back. */
HT_API void ht_session_reset(ht_session *s);
/* Keeps the first n tokens; HT_ERR_ARGUMENT unless 0 <= n <= length, HT_ERR_LIMIT when a sliding layer no longer holds
 * the keys that the next token would look back on (reset, and compute again). A failure changes nothing. */
HT_API ht_status ht_session_truncate(ht_session *s, int64_t n, ht_error *err);
/* Tokens of the conversation. The last one that was generated counts, although its keys and values are computed only by
 * the next call. */
HT_API int64_t ht_session_length(const ht_session *s);
/* Those tokens, lent until the next call on the session; NULL when there are none. */
HT_API const int32_t *ht_session_tokens(const ht_session *s);
/* Bytes that the KV cache holds now. */
HT_API size_t ht_session_cache_bytes(const ht_session *s);
/* Asks the call in progress on the session, from any thread or a signal handler, to end with HT_ERR_CANCELLED at the next
 * step. Without a call in progress it does nothing. */
HT_API void ht_session_cancel(ht_session *s);

/* ---- logits ---- */

/* One step's logits: f32 [n_rows, vocab], for positions first .. first + n_rows - 1; lent during the call. Return false
 * to stop (the session then ends with HT_ERR_CANCELLED). */
typedef bool ht_logits_fn(const float *logits, int64_t first, int64_t n_rows, int32_t vocab, void *user);

/* Appends ids to the session in chunks and hands over the logits: after every position when all_rows (a chunk may come in
 * several slices then), else after the last one only; fn may be NULL. Prompts longer than what is left of the context and
 * ids outside the vocabulary are refused before anything is computed. On failure the session is as it was after the last
 * whole chunk. */
HT_API ht_status ht_session_forward(ht_session *s, const int32_t *ids, size_t n, bool all_rows, ht_logits_fn *fn,
                                    void *user, ht_error *err);

/* One step of several sessions of one model together: row i appends ids[i] to sessions[i]; logits f32 [n, vocab] go to
 * `logits`. Each session gets the bits it would get alone. The sessions all belong to the calling thread, and none is
 * named twice. On failure no session's tokens change. */
HT_API ht_status ht_session_forward_together(ht_session *const *sessions, const int32_t *ids, int n, float *logits,
                                             ht_error *err);
/* The same without handing over logits: next[i], of n, is the likeliest token after ids[i], the lowest id on ties. It
 * may be `ids`. A logit that is not finite is HT_ERR_INTERNAL. */
HT_API ht_status ht_session_decode_together(ht_session *const *sessions, const int32_t *ids, int n, int32_t *next,
                                            ht_error *err);

/* ---- sampling ---- */

typedef enum ht_sampler_stage { /* the chain's steps */
                                HT_STAGE_REPEAT_PENALTY = 1,
                                HT_STAGE_TEMPERATURE,
                                HT_STAGE_TOP_P,
                                HT_STAGE_TOP_K,
                                HT_STAGE_MIN_P
} ht_sampler_stage;

enum { HT_SAMPLER_STAGES = 5 };

typedef struct ht_sampler_options {
    float temperature;     /* 0: the most likely token, lowest id on ties */
    int32_t top_k;         /* 0: off */
    float top_p;           /* 0 or 1: off */
    float min_p;           /* 0: off */
    float repeat_penalty;  /* 1: off (0 also means off) */
    int32_t repeat_window; /* tokens of prompt and output looked back on; 0: 64; -1: all (for none, repeat_penalty 1) */
    uint64_t seed;
    ht_sampler_stage order[HT_SAMPLER_STAGES]; /* all 0: penalty, temperature, top_p, top_k, min_p */
} ht_sampler_options;

/* Parses a text such as "top_p,min_p,top_k,temperature" into order. Stages left out are put in front of
 * the first named one that by default comes after them (so the penalty comes first). Unknown or repeated names are
 * errors. */
HT_API ht_status ht_sampler_order_parse(const char *text, ht_sampler_stage order[HT_SAMPLER_STAGES], ht_error *err);

/* ---- generation ---- */

/* Why the output ended: a stop id or stop string; max_tokens, or a context that is full (then generated_tokens is less); the
 * callback returned false. */
typedef enum ht_finish { HT_FINISH_STOP = 1, HT_FINISH_LENGTH, HT_FINISH_CALLBACK } ht_finish;

typedef struct ht_generate_options {
    int32_t max_tokens; /* 0: 256 */
    ht_sampler_options sampler;
    const char *const *stop; /* strings that end the output and are not part of it */
    int n_stop;
    bool ignore_eos; /* stop ids are tokens like others */
} ht_generate_options;

typedef struct ht_metrics {
    int64_t prompt_tokens;      /* computed in this call */
    int64_t reused_tokens;      /* of the prompt, those the session already held (ht_chat) */
    int64_t generated_tokens;   /* handed over; the token that stopped the output is not counted */
    double prefill_seconds;     /* prompt through the model */
    double first_token_seconds; /* from the call to the first token */
    double decode_seconds;      /* all tokens after the first */
    size_t peak_memory_bytes;   /* of the process's arrays, weights and caches, so far */
    ht_finish finish;           /* 0 when the call failed */
} ht_metrics;

/* Complete characters of the output as they come: n > 0 bytes of valid UTF-8, NUL-terminated. Return false to stop. */
typedef bool ht_text_fn(const char *text, size_t n, void *user);

/* Appends the prompt's ids to the session and generates. options, fn and metrics may be NULL; with fn or stop strings the
 * model needs a tokenizer, HT_ERR_UNSUPPORTED without. The generated tokens stay in the session, so the next
 * call continues the conversation; an empty prompt continues where the last call ended. A prompt that does not fit the
 * context with room for an answer is HT_ERR_LIMIT with the numbers; a context that fills up before an end is one, as
 * max_tokens is (HT_FINISH_LENGTH). Whatever the end, what was generated until then has been handed over and counted. */
HT_API ht_status ht_generate(ht_session *s, const int32_t *prompt, size_t n_prompt, const ht_generate_options *options,
                             ht_text_fn *fn, void *user, ht_metrics *metrics, ht_error *err);
/* The same from NUL-terminated UTF-8 text: encoded with the special tokens the checkpoint asks for at the beginning of a
 * session; special tokens written in the text are recognised. */
HT_API ht_status ht_generate_text(ht_session *s, const char *prompt, const ht_generate_options *options, ht_text_fn *fn,
                                  void *user, ht_metrics *metrics, ht_error *err);

/* ---- chat ---- */

typedef struct ht_message {
    const char *role; /* "system", "user" or "assistant" */
    const char *content;
} ht_message;

/* The conversation as the checkpoint's chat format writes it, with the assistant's turn opened, BOS included where the
 * format has it, and with the checkpoint's own default system text when there is no system message; allocated text, freed
 * by the caller with free. HT_ERR_UNSUPPORTED when the model has no chat format that Hearth knows, or no tokenizer. */
HT_API ht_status ht_chat_format(const ht_model *m, const ht_message *messages, size_t n, char **text, ht_error *err);
/* "chatml", "gemma", "gemma4", "llama3", "deepseek", "llama2", "mistral", or NULL when the model has none that Hearth writes. A constant, never freed. */
HT_API const char *ht_chat_format_name(const ht_model *m);
/* Formats (as ht_chat_format) and encodes the whole conversation, and generates the assistant's answer. What the session already holds of it,
 * from an earlier call, is not computed again; anything else it holds is dropped. */
HT_API ht_status ht_chat(ht_session *s, const ht_message *messages, size_t n, const ht_generate_options *options,
                         ht_text_fn *fn, void *user, ht_metrics *metrics, ht_error *err);

#ifdef __cplusplus
}
#endif
#endif
