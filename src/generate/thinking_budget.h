/* Thinking budget of an answer: counts its reasoning tokens, and ends reasoning once they are used up.
 *
 * A response reader (chat/response.h) classifies taken tokens, so reasoning is what is delivered as such. They limit
 * what a step of several rows may draw: guesses do not pass the budget, and end where a token may open reasoning.
 * The end replaces the sampler's tokens; it may be guessed, which changes no bit. A closing mark by the model right
 * after the budget counts as the model's: the tokens are those without a budget. */
#ifndef HT_GENERATE_THINKING_BUDGET_H
#define HT_GENERATE_THINKING_BUDGET_H

#include "chat/conversation.h"
#include "chat/response.h"
#include "models/model.h"

/* ---- the end of reasoning: the closing mark with the white space that the chat template puts around it, as tokens ---- */

enum { HT_REASONING_BLANKS_MOST = 23 }; /* bytes on either side of a mark */

/* White space around the closing mark, or the beginning of the next message; NUL-terminated. */
typedef struct ht_reasoning_blanks {
    char before[HT_REASONING_BLANKS_MOST + 1], behind[HT_REASONING_BLANKS_MOST + 1];
} ht_reasoning_blanks;

/* Tokens in order: before the mark, of the mark, after it. All zeros: none. */
typedef struct ht_reasoning_end {
    int32_t *id; /* [n] owned */
    int32_t n, n_before, n_mark;
} ht_reasoning_end;

/* The end of reasoning at `place`: the rest of a title or a mark of several tokens that has begun. A mark of one
 * token is written whole. HT_ERR_UNSUPPORTED when no tokens write it. */
ht_status ht_reasoning_end_write(ht_model *m, const ht_reasoning_format *t, const ht_reasoning_blanks *blanks,
                                 const ht_reasoning_position *place, ht_reasoning_end *out, ht_error *err);
void ht_reasoning_end_free(ht_reasoning_end *end);

/* ---- the budget ---- */

typedef struct ht_thinking_budget ht_thinking_budget;

/* `chat` NULL: tokens that continue a session. *out is NULL where the model has no reasoning. The caller frees it. */
ht_status ht_thinking_budget_new(ht_model *m, const ht_chat *chat, int32_t most, ht_thinking_budget **out,
                                 ht_error *err);
void ht_thinking_budget_free(ht_thinking_budget *b); /* NULL is fine */
/* Stops reading calls, as ht_response_reader_end_calls does. */
void ht_thinking_budget_end_calls(ht_thinking_budget *b);

/* Call before a step that draws token n; at first n is the prompt's length. Discards tokens drawn but not taken. */
ht_status ht_thinking_budget_prepare(ht_thinking_budget *b, const int32_t *token, int64_t n, ht_error *err);
/* The remaining tokens of the end of reasoning, *n of them; 0: no end is being written. */
const int32_t *ht_thinking_budget_ending(const ht_thinking_budget *b, int32_t *n);
/* Maximum guesses in the next step. */
int32_t ht_thinking_budget_guesses(const ht_thinking_budget *b, int32_t room);

/* The token of a step's next row, for which the sampler has picked `id`. */
int32_t ht_thinking_budget_draw(ht_thinking_budget *b, int32_t id);
/* Undoes a forced token that the grammar does not allow; the row keeps the sampler's token. */
void ht_thinking_budget_give_up(ht_thinking_budget *b);
/* Whether `id` must be the last token drawn in this step. */
bool ht_thinking_budget_ends_step(const ht_thinking_budget *b, int32_t id);

/* Accepts a drawn token into the answer. */
ht_status ht_thinking_budget_take(ht_thinking_budget *b, int32_t id, ht_error *err);
/* Accepts all drawn tokens. */
void ht_thinking_budget_end_step(ht_thinking_budget *b);
/* Whether the budget has ended reasoning. */
bool ht_thinking_budget_has_ended(const ht_thinking_budget *b);

#endif
