/* Thinking budget of an answer: how many tokens its reasoning has had, and the end of reasoning once they are used up.
 *
 * A reader of answers (chat/response.h) tells what tokens are, so that reasoning is what is handed over as such. It reads taken
 * tokens; a step of several rows draws only what these decide: guesses do not pass the budget, and end where a token may open
 * reasoning. The end is written where its tokens are drawn, in place of the sampler's, so that it may be guessed, too, and no bit
 * depends on that. A mark by the model itself right behind the budget counts as its own: the same tokens as without a budget. */
#ifndef HT_GENERATE_THINKING_BUDGET_H
#define HT_GENERATE_THINKING_BUDGET_H

#include "chat/conversation.h"
#include "chat/response.h"
#include "models/model.h"

/* ---- the end of reasoning: the closing mark with the white space that the chat template puts around it, as tokens ---- */

enum { HT_REASONING_BLANKS_MOST = 7 }; /* bytes on either side of a mark */

/* White space around the closing mark, NUL-terminated. */
typedef struct ht_reasoning_blanks {
    char before[HT_REASONING_BLANKS_MOST + 1], behind[HT_REASONING_BLANKS_MOST + 1];
} ht_reasoning_blanks;

/* Tokens in order: those before the mark, those up to its end, the others. Zeroed it has none. */
typedef struct ht_reasoning_end {
    int32_t *id; /* [n] owned */
    int32_t n, n_before, n_mark;
} ht_reasoning_end;

/* The end of reasoning at that place: the rest of a title or a mark of several tokens that has begun; a mark of one token is
 * written whole. HT_ERR_UNSUPPORTED when no tokens write it. */
ht_status ht_reasoning_end_write(ht_model *m, const ht_reasoning_format *t, const ht_reasoning_blanks *blanks,
                                 const ht_reasoning_position *place, ht_reasoning_end *out, ht_error *err);
void ht_reasoning_end_free(ht_reasoning_end *end);

/* ---- the budget ---- */

typedef struct ht_thinking_budget ht_thinking_budget;

/* `chat` NULL: tokens that continue a session. *out is NULL where the model has no reasoning. The caller frees it. */
ht_status ht_thinking_budget_new(ht_model *m, const ht_chat *chat, int32_t most, ht_thinking_budget **out,
                                 ht_error *err);
void ht_thinking_budget_free(ht_thinking_budget *b); /* NULL is fine */
/* No more calls are read, as of ht_response_reader_end_calls. */
void ht_thinking_budget_end_calls(ht_thinking_budget *b);

/* Before a step that draws token n: at first n is the prompt's. Forgets what was drawn and not taken. */
ht_status ht_thinking_budget_prepare(ht_thinking_budget *b, const int32_t *token, int64_t n, ht_error *err);
/* The tokens that the end of reasoning goes on with, *n of them; 0: none is being written. */
const int32_t *ht_thinking_budget_ending(const ht_thinking_budget *b, int32_t *n);
/* Guesses of the next step at most. */
int32_t ht_thinking_budget_guesses(const ht_thinking_budget *b, int32_t room);

/* The token of a step's next row, of which the sampler has found `id`. */
int32_t ht_thinking_budget_draw(ht_thinking_budget *b, int32_t id);
/* Takes back that it was another one than `id`, which is drawn then: a grammar does not allow it. */
void ht_thinking_budget_give_up(ht_thinking_budget *b);
/* Whether nothing may be drawn behind `id` in this step. */
bool ht_thinking_budget_ends_step(const ht_thinking_budget *b, int32_t id);

/* A token that was drawn is one of the answer. */
ht_status ht_thinking_budget_take(ht_thinking_budget *b, int32_t id, ht_error *err);
/* All that were drawn are. */
void ht_thinking_budget_end_step(ht_thinking_budget *b);
/* Whether it has ended reasoning. */
bool ht_thinking_budget_has_ended(const ht_thinking_budget *b);

#endif
