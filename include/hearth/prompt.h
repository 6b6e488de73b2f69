/* Prompts: what classification, scores and batches are asked about, as ids, text or conversation.
 *
 * Continuations. A text that goes on with a prompt is encoded together with it, as a text that the model has read would have been:
 * tokens do not end where a prompt does ("Answer: " and "yes" are "Answer", ":" and " yes" to most tokenizers). So what is scored of
 * a continuation begins with the first token at which its encoding, or that of another continuation of the same prompt, differs from
 * the prompt's own; all of them go on from the same ids, and their log-probabilities can be compared. What
 * continues a conversation is the beginning of the answer, in which no special token is recognised; special tokens in a text are. Ids
 * have no text to be encoded with: a text that continues them is encoded by itself, and ids that continue anything are appended to it. */
#ifndef HEARTH_PROMPT_H
#define HEARTH_PROMPT_H

#include <hearth/chat.h>

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* One of the three. */
typedef struct ht_prompt {
    const int32_t *ids; /* [n_ids], as they are */
    size_t n_ids;
    const char *text;    /* NUL-terminated UTF-8, encoded as ht_generate_text does at the beginning of a session */
    const ht_chat *chat; /* as ht_chat_encode gives it, with the answer opened */
} ht_prompt;

/* What may follow a prompt: one of the two, not empty. */
typedef struct ht_continuation {
    const char *text; /* NUL-terminated UTF-8 */
    const int32_t *ids;
    size_t n_ids;
} ht_continuation;

#ifdef __cplusplus
}
#endif
#endif
