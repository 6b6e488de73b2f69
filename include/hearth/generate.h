/* Generation: tokens sampled one after the other, from ids, a text or a conversation.
 *
 * On one instruction set the output depends, to the bit, on the model, the tokens and the seed: not on threads, batch or
 * cache. */
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

/* A number that is added to the logit of a token. */
typedef struct ht_logit_bias {
    int32_t id;
    float bias;
} ht_logit_bias;

/* The value of a number of ht_sampler_options that the caller leaves to the model: the checkpoint's value applies
 * (generation_config.json, GGUF's `general.sampling.*`), else the default of the field. */
enum { HT_SAMPLER_UNSET = INT32_MIN };

/* How a token is drawn from its logits: by a chain of stages, each of which sees what the one before it left. Biases are added
 * before all stages.
 *
 *   repeat_penalty  logits of tokens that occurred lately, divided by it when positive, multiplied by it when not; then, of
 *                   tokens that were generated n > 0 times in this answer, less n * frequency_penalty + presence_penalty
 *   temperature     logits divided by it
 *   top_p           the fewest most likely tokens whose probabilities add up to it
 *   top_k           so many of the most likely tokens
 *   min_p           tokens at least so many times as likely as the most likely one */
typedef struct ht_sampler_options {
    size_t size; /* of the struct, set by ht_sampler_options_init, which sets the numbers below to HT_SAMPLER_UNSET */
    float temperature;    /* default 0.7; 0: the most likely token, the lowest id on ties */
    int32_t top_k;        /* default 0: off */
    float top_p;          /* up to 1; default 0.95; 0: off, as 1 is */
    float min_p;          /* up to 1; default 0.05; 0: off */
    float repeat_penalty; /* default 1: off, as 0 is */
    /* Tokens of prompt and output that the penalty looks back on. 0: none; -1: all. Default 64. */
    int32_t repeat_window;
    uint64_t seed; /* of the random numbers; default 11 */
    /* Stages in the order in which they run, such as "top_p,min_p,top_k,temperature". One that is left out runs before the
     * first named one that it precedes by default (so the penalty comes first). Default NULL, the order above. */
    const char *order;
    /* Taken from the logits of tokens that this call has generated, once and for each time, as the OpenAI interface defines it; the prompt,
     * and what a session held before, do not count. Any finite number, -2 to 2 usually; below 0 they favour such tokens. Default 0: off. Set to HT_SAMPLER_UNSET. */
    float presence_penalty, frequency_penalty;
    /* [n_logit_bias] finite, of tokens of the vocabulary, none of which comes twice: -100 as good as forbids a token, 100 as good as
     * prescribes it. No bias allows what a grammar does not. Default none. */
    const ht_logit_bias *logit_bias;
    int n_logit_bias;
} ht_sampler_options;
HT_API void ht_sampler_options_init(ht_sampler_options *options, size_t size);
/* The options in effect for a model, into *out, which ht_sampler_options_init has made: `options` (NULL: none), with the
 * values of ht_model_sampling where they are unset. HT_ERR_ARGUMENT for a value out of range. */
HT_API ht_status ht_sampler_options_resolve(const ht_model *m, const ht_sampler_options *options,
                                            ht_sampler_options *out, ht_error *err);

/* HT_ERR_ARGUMENT, with what is wrong, for a text that `order` does not take: a name that is unknown or occurs twice. */
HT_API ht_status ht_sampler_order_check(const char *order, ht_error *err);

/* ---- generation ---- */

/* Why the output ended: a stop id or stop string; max_tokens, or a context that is full (then generated_tokens is less); the
 * callback returned false. */
typedef enum ht_finish { HT_FINISH_STOP = 1, HT_FINISH_LENGTH, HT_FINISH_CALLBACK } ht_finish;

/* Options of ht_generate, ht_generate_text and ht_generate_chat. */
typedef struct ht_generate_options {
    size_t size;                       /* of the struct, set by ht_generate_options_init */
    int32_t max_tokens;                /* tokens to generate at most, 1 or more; default 256 */
    const ht_sampler_options *sampler; /* default NULL: those of ht_sampler_options_init, the model's */
    const char *const *stop;           /* [n_stop] texts that end the output and are no part of it; default none */
    int n_stop;                        /* default 0 */
    bool ignore_eos;                   /* treat stop ids as tokens like others; default false */
    const ht_cancel *cancel;           /* ends the call with HT_ERR_CANCELLED; default NULL */
    bool parse_special; /* of ht_generate_chat: HT_ENCODE_PARSE_SPECIAL of ht_chat_encode; default false */
    /* Speculation: guesses of the next tokens are computed along with the present one, and taken as far as they are what
     * would have been drawn. The output is the same, to the bit; where it can be guessed it comes sooner. */
    bool lookup;     /* guess by what followed the last time that the latest tokens occurred; default false */
    ht_model *draft; /* guess by a smaller model with the same tokens; ht_generate and its kin alone. Default NULL */
    int32_t guesses; /* in one step, 1 to 15; default 0: as many as have been worth it */
    /* What is observed on the way (probe.h); nothing is guessed then. Default NULL: nothing. */
    const ht_probe_options *probes;
    /* What the output has to be a text of (grammar.h): each token is drawn from those that the grammar allows, before all stages
     * of the sampler, and the output ends where the text can only end. The same bits with guesses as without. Compiled for the
     * same model; the call holds it. Default NULL: the output is free.
     *
     * Of an answer to a conversation it is the text, behind the thoughts. These are free, but the answer does not end in them;
     * the grammar's text begins with the first character behind the closing mark, or behind at most 16 of white space. Where the
     * prompt has not opened a thought the answer may, if the template knows thoughts and ht_chat_set_thinking has not turned
     * them off. Calls of tools may stand in the place of the text: ht_chat_set_tool_choice. */
    ht_grammar *grammar;
    /* Calls of tools come in pieces, HT_ANSWER_CALL_BEGIN to _END, in the place of whole ones, and one that the end of the answer has cut
     * comes as far as its name and more of it is known. Where the answer has to be calls (ht_chat_set_tool_choice) a call that is cut before
     * that is handed over to nobody; else it is text, as every cut one is without pieces. Default false. */
    bool call_pieces;
    /* Tokens of an answer's thoughts at most, of all of them together, as they stand between their marks. When so many have come and
     * the next one does not end the thought, the closing mark is written in the place of what would have been drawn, with the white
     * space that the chat template has around it, and the model goes on behind it; 0 closes thoughts at once. The marks are those of
     * the chat template, and their tokens count in max_tokens. What ht_generate and ht_generate_text go on with may stand in a thought,
     * whose tokens so far count. Probes of a token that was written have the probability that the model gives it. An answer that
     * thinks no more than that, or never, is the same without a bound. Default -1: none. */
    int32_t max_thinking_tokens;
} ht_generate_options;
HT_API void ht_generate_options_init(ht_generate_options *options, size_t size);

/* Figures of one call. */
typedef struct ht_metrics {
    int64_t prompt_tokens;      /* computed in this call */
    int64_t reused_tokens;      /* of the prompt, those the session already held (ht_generate_chat) */
    int64_t generated_tokens;   /* handed over; the token that stopped the output is not counted */
    double prefill_seconds;     /* prompt through the model */
    double first_token_seconds; /* from the call to the first token */
    double decode_seconds;      /* all tokens after the first */
    int64_t guessed_tokens;     /* by speculation, and what a grammar or the end of a thought leaves no choice about */
    int64_t accepted_tokens;    /* of these, those that were right */
    size_t peak_memory_bytes;   /* of arrays, weights and caches in the device's memory, so far */
    ht_finish finish;           /* 0 when the call failed */
    /* What ended the output with HT_FINISH_STOP: the place of a text in `stop`, or a stop id, which is no part of the output; -1 where it
     * was not that. Both are -1 after the last token that a grammar allows. The text is the first that is whole; of those that one
     * token makes whole the one that begins first, and of these the one that is listed first. */
    int32_t stop, stop_id;
    bool thought_ended; /* a thought, by max_thinking_tokens */
} ht_metrics;

/* Complete characters of the output as they come: n > 0 bytes of valid UTF-8, NUL-terminated. Return false to stop. */
typedef bool ht_text_fn(const char *text, size_t n, void *user);

/* Appends the prompt's ids to the session and generates. options, fn and metrics may be NULL; with fn or stop strings the
 * model needs a tokenizer, HT_ERR_UNSUPPORTED without. The generated tokens stay in the session, so the next
 * call continues the conversation; an empty prompt continues where the last call ended. A prompt that does not fit the
 * context with room for an answer is HT_ERR_LIMIT with the numbers; a context that fills up before an end is one, as
 * max_tokens is (HT_FINISH_LENGTH). Whatever the end, what was generated until then has been handed over and counted. When computing the
 * prompt fails or is cancelled, the session keeps the chunks of it that were done; ht_session_truncate takes them back. */
HT_API ht_status ht_generate(ht_session *s, const int32_t *prompt, size_t n_prompt, const ht_generate_options *options,
                             ht_text_fn *fn, void *user, ht_metrics *metrics, ht_error *err);
/* The same from NUL-terminated UTF-8 text: encoded with the special tokens the checkpoint asks for at the beginning of a
 * session; special tokens written in the text are recognised. */
HT_API ht_status ht_generate_text(ht_session *s, const char *prompt, const ht_generate_options *options, ht_text_fn *fn,
                                  void *user, ht_metrics *metrics, ht_error *err);

/* Writes a conversation (as ht_chat_format), encodes it (as ht_chat_encode), and generates the assistant's answer, which is
 * handed over in its parts: thoughts, text, and calls of the conversation's tools. White space around thoughts and calls is
 * left out; what begins as a call and cannot be read as one is text. What the session already holds of the conversation, from
 * an earlier call, is not computed again; anything else it holds is dropped when the computation begins, not by a call that
 * is refused, or cancelled while it waits. The answer is not added to `chat`. */
HT_API ht_status ht_generate_chat(ht_session *s, const ht_chat *chat, const ht_generate_options *options,
                                  ht_answer_fn *fn, void *user, ht_metrics *metrics, ht_error *err);

#ifdef __cplusplus
}
#endif
#endif
