/* Generation: tokens sampled one after the other, from ids, text or a conversation.
 *
 * On one instruction set the output depends, to the bit, on the model, the tokens and the seed. It does not depend on
 * threads, batch or cache. */
#ifndef HEARTH_GENERATE_H
#define HEARTH_GENERATE_H

#include <hearth/chat.h>
#include <hearth/grammar.h>
#include <hearth/probe.h>
#include <hearth/session.h>

#ifdef __cplusplus
extern "C" {
#endif

/* ---- sampling ---- */

/* Added to the logit of a token. */
typedef struct ht_logit_bias {
    int32_t id;
    float bias;
} ht_logit_bias;

/* Marks a number of ht_sampler_options as unset. The checkpoint's value then applies (generation_config.json, GGUF's
 * `general.sampling.*`), else the default of the field. */
enum { HT_SAMPLER_UNSET = INT32_MIN };

/* How a token is drawn from its logits: by a chain of stages, each applied to the result of the previous one. Biases
 * are added before all stages.
 *
 *   repeat_penalty  logits of recent tokens, divided by it if positive, else multiplied; then, for tokens generated
 *                   n > 0 times in this answer, less n * frequency_penalty + presence_penalty
 *   temperature     logits divided by it
 *   top_p           the fewest most likely tokens whose probabilities add up to it
 *   top_k           the most likely tokens, at most this number
 *   min_p           tokens whose probability is at least min_p times that of the most likely one */
typedef struct ht_sampler_options {
    size_t size; /* of the struct, set by ht_sampler_options_init, which sets the numbers below to HT_SAMPLER_UNSET */
    float temperature;    /* default 0.7; 0: the most likely token, the lowest id on ties */
    int32_t top_k;        /* default 0: off */
    float top_p;          /* up to 1; default 0.95; 0: off, as 1 is */
    float min_p;          /* up to 1; default 0.05; 0: off */
    float repeat_penalty; /* default 1: off, as 0 is */
    /* Latest tokens of prompt and output that the penalty covers. 0: none; -1: all. Default 64. */
    int32_t repeat_window;
    uint64_t seed; /* of the random numbers; default 11 */
    /* Order of the stages, such as "top_p,min_p,top_k,temperature". An omitted stage runs before the first named
     * stage that it precedes by default; so the penalty comes first. Default NULL: the order above. */
    const char *order;
    /* Subtracted from the logits of tokens that this call has generated: presence_penalty once, frequency_penalty for
     * each occurrence, as OpenAI's API defines it. The prompt and earlier tokens of a session do not count. Any
     * finite number, usually -2 to 2; negative values favour such tokens. Default 0: off. Set to HT_SAMPLER_UNSET. */
    float presence_penalty, frequency_penalty;
    /* [n_logit_bias] finite biases of distinct tokens of the vocabulary. -100 practically forbids a token, 100
     * practically forces it. A bias never allows a token that a grammar forbids. Default none. */
    const ht_logit_bias *logit_bias;
    int n_logit_bias;
} ht_sampler_options;
HT_API void ht_sampler_options_init(ht_sampler_options *options, size_t size);
/* The options in effect for a model, written to *out, which ht_sampler_options_init has initialized. Unset values of
 * `options` (NULL: all) come from ht_model_sampling. HT_ERR_ARGUMENT for a value out of range. */
HT_API ht_status ht_sampler_options_resolve(const ht_model *m, const ht_sampler_options *options,
                                            ht_sampler_options *out, ht_error *err);

/* Checks a text for `order`. HT_ERR_ARGUMENT, with the reason, if a name is unknown or occurs twice. */
HT_API ht_status ht_sampler_order_check(const char *order, ht_error *err);

/* ---- generation ---- */

/* Why the output ended. STOP: a stop id or stop string. LENGTH: max_tokens, or a full context (then generated_tokens
 * is less). CALLBACK: the callback returned false. */
typedef enum ht_finish { HT_FINISH_STOP = 1, HT_FINISH_LENGTH, HT_FINISH_CALLBACK } ht_finish;

/* Options of ht_generate, ht_generate_text and ht_generate_chat. */
typedef struct ht_generate_options {
    size_t size;                       /* of the struct, set by ht_generate_options_init */
    int32_t max_tokens;                /* tokens to generate at most, 1 or more; default 256 */
    const ht_sampler_options *sampler; /* default NULL: those of ht_sampler_options_init, the model's */
    const char *const *stop;           /* [n_stop] texts that end the output and are not part of it; default none */
    int n_stop;                        /* default 0 */
    bool ignore_eos;                   /* treat stop ids as ordinary tokens; default false */
    const ht_cancel *cancel;           /* ends the call with HT_ERR_CANCELLED; default NULL */
    bool parse_special; /* of ht_generate_chat: HT_ENCODE_PARSE_SPECIAL of ht_chat_encode; default false */
    /* Speculative decoding: draft tokens are computed along with the current one, and accepted as far as they equal
     * the tokens that would have been drawn. Same output, to the bit; faster where the text is predictable. */
    bool lookup;     /* draft what followed the last occurrence of the latest tokens; default false */
    ht_model *draft; /* draft with a smaller model of the same vocabulary; for ht_generate and variants. Default NULL */
    int32_t draft_tokens; /* draft tokens per step, 1 to 15; default 0: adaptive */
    /* Observations during generation (probe.h); they disable speculation. Default NULL: none. */
    const ht_probe_options *probes;
    /* Constrains the output (grammar.h): each token is drawn from those that the grammar allows, before all stages of
     * the sampler. The output ends where the text cannot continue. Speculation does not change the output. The
     * grammar must be compiled for the same model; the call retains it. Default NULL: unconstrained.
     *
     * In an answer to a conversation the grammar constrains the text after the reasoning. Reasoning is free, but the
     * answer cannot end in it. The grammar's text begins after the closing mark, or after at most 16 characters of
     * white space that follow it. If the prompt has not opened reasoning, the answer may, unless the template has
     * none or ht_chat_set_thinking turned it off. Tool calls may replace the text: see ht_chat_set_tool_choice. */
    ht_grammar *grammar;
    /* Stream tool calls in pieces, HT_ANSWER_CALL_BEGIN to _END, instead of whole calls. A call that the end of
     * the answer cuts is delivered if its name and more of it are known. A call cut earlier is text, or is
     * discarded where the answer must be calls (ht_chat_set_tool_choice). Without pieces every cut call is text.
     * Default false. */
    bool call_pieces;
    /* Maximum total tokens of reasoning in an answer, counted between its marks. At the limit, unless the next token
     * ends the reasoning, the closing mark replaces the drawn token, with the white space that the chat template puts
     * around it. The model continues after it. 0 closes reasoning at once. The marks are the chat template's; their
     * tokens count in max_tokens.
     *
     * ht_generate and ht_generate_text may continue within reasoning, whose tokens so far count. Probes of an
     * inserted token report the probability that the model gives it. The limit does not change an answer that stays
     * within it. Default -1: no limit. */
    int32_t max_thinking_tokens;
} ht_generate_options;
HT_API void ht_generate_options_init(ht_generate_options *options, size_t size);

/* Stats of one call. */
typedef struct ht_metrics {
    int64_t prompt_tokens;      /* computed in this call */
    int64_t reused_tokens;      /* of the prompt, tokens that the session already held (ht_generate_chat) */
    int64_t generated_tokens;   /* delivered; the token that stopped the output is not counted */
    double prefill_seconds;     /* prompt through the model */
    double first_token_seconds; /* from the call to the first token */
    double decode_seconds;      /* all tokens after the first */
    int64_t guessed_tokens;     /* drafted by speculation, or forced by a grammar or the end of reasoning */
    int64_t accepted_tokens;    /* of these, the correct ones */
    size_t peak_memory_bytes;   /* of arrays, weights and caches in the device's memory, so far */
    ht_finish finish;           /* 0 when the call failed */
    /* The cause of HT_FINISH_STOP: the index of a text in `stop`, or a stop id, which is not part of the output; -1
     * for neither. Both are -1 after the last token that a grammar allows. The text is the first to be complete. If
     * one token completes several texts, the earliest beginning wins, then the order of the list. */
    int32_t stop, stop_id;
    bool thought_ended; /* reasoning was ended by max_thinking_tokens */
} ht_metrics;

/* Streams complete characters of the output: n > 0 bytes of valid UTF-8, NUL-terminated. Return false to stop. */
typedef bool ht_text_fn(const char *text, size_t n, void *user);

/* Appends the prompt's ids to the session and generates. options, fn and metrics may be NULL. fn and stop strings
 * need a tokenizer, else HT_ERR_UNSUPPORTED. The generated tokens stay in the session: the next call continues the
 * conversation, and an empty prompt continues where the last call ended.
 *
 * A prompt that leaves no room for an answer in the context is HT_ERR_LIMIT, with the numbers. A context that fills
 * up ends the output, as max_tokens does (HT_FINISH_LENGTH). However the call ends, all tokens generated until then
 * have been delivered and counted. If computing the prompt fails or is cancelled, the session keeps the completed
 * chunks; ht_session_truncate removes them. */
HT_API ht_status ht_generate(ht_session *s, const int32_t *prompt, size_t n_prompt, const ht_generate_options *options,
                             ht_text_fn *fn, void *user, ht_metrics *metrics, ht_error *err);
/* The same from NUL-terminated UTF-8 text. At the beginning of a session the special tokens that the checkpoint
 * requires are added; special tokens written in the text are recognised. */
HT_API ht_status ht_generate_text(ht_session *s, const char *prompt, const ht_generate_options *options, ht_text_fn *fn,
                                  void *user, ht_metrics *metrics, ht_error *err);

/* Renders a conversation (as ht_chat_format), encodes it (as ht_chat_encode), and generates the assistant's answer.
 * The answer is delivered in parts: reasoning, text, and calls of the conversation's tools. White space around
 * reasoning and calls is omitted; a call that cannot be parsed is text.
 *
 * The part of the conversation that the session already holds is not computed again. The rest of the session is
 * dropped when the computation begins, but not by a call that is rejected, or cancelled while it waits. The answer is
 * not added to `chat`. */
HT_API ht_status ht_generate_chat(ht_session *s, const ht_chat *chat, const ht_generate_options *options,
                                  ht_answer_fn *fn, void *user, ht_metrics *metrics, ht_error *err);

#ifdef __cplusplus
}
#endif
#endif
