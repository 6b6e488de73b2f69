/* Generation: tokens sampled one after the other, from ids, a text or a conversation.
 *
 * On one instruction set the output depends, to the bit, on the model, the tokens and the seed: not on threads, batch or
 * cache. */
#ifndef HEARTH_GENERATE_H
#define HEARTH_GENERATE_H

#include <hearth/chat.h>
#include <hearth/session.h>

#ifdef __cplusplus
extern "C" {
#endif

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
    int64_t reused_tokens;      /* of the prompt, those the session already held (ht_generate_chat) */
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

/* Formats a conversation (as ht_chat_format), encodes it, and generates the assistant's answer. What the session already holds
 * of it, from an earlier call, is not computed again; anything else it holds is dropped. The answer is not added to `chat`. */
HT_API ht_status ht_generate_chat(ht_session *s, const ht_chat *chat, const ht_generate_options *options,
                                  ht_text_fn *fn, void *user, ht_metrics *metrics, ht_error *err);

#ifdef __cplusplus
}
#endif
#endif
