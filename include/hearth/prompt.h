/* Prompts of classification, scores and batches, as ids, text or conversation.
 *
 * Continuations. A continuation is encoded together with its prompt, like text that the model has read: tokens can
 * cross the end of a prompt ("Answer: " and "yes" are "Answer", ":" and " yes" to most tokenizers). A continuation's
 * score therefore begins with the first token at which its encoding, or that of another continuation of the same
 * prompt, differs from the prompt's. All continuations follow the same ids, so their log-probabilities are
 * comparable.
 *
 * A continuation of a conversation is the beginning of the answer. Special tokens are not recognised in it, but are
 * in a text. Ids cannot be encoded with a text: a text that continues ids is encoded separately, and ids that
 * continue any prompt are appended. */
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

/* A continuation of a prompt: one of the two, not empty. */
typedef struct ht_continuation {
    const char *text; /* NUL-terminated UTF-8 */
    const int32_t *ids;
    size_t n_ids;
} ht_continuation;

#ifdef __cplusplus
}
#endif
#endif
