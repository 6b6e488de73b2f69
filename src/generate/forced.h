/* Text that a grammar leaves no choice about, as guesses of the tokens to come.
 *
 * A text may be cut into tokens in many ways, of which a grammar allows all, and a model is free among them; so what is forced is guessed as the
 * tokenizer writes it, and verified as other guesses are (generate/speculate.h): the output is that of plain decoding, to the bit. */
#ifndef HT_GENERATE_FORCED_H
#define HT_GENERATE_FORCED_H

#include "grammar/answer_matcher.h"
#include "models/model.h"

/* Guesses what follows the matcher's tokens, at most `room` of it, into out [room]; *n may be 0. The matcher is as it was. */
ht_status ht_forced_guess(ht_answer_matcher *m, ht_model *model, int32_t room, int32_t *out, int32_t *n, ht_error *err);

#endif
