/* Generation of one answer: the session rows it needs next, the tokens drawn from their logits, and its text.
 *
 * ht_generate runs one on the caller's thread; the engine runs many concurrently. Between ht_generation_ask and
 * ht_generation_take any thread computes the session's job (generate/scheduler.h); all else happens on the owner's. */
#ifndef HT_GENERATE_GENERATION_H
#define HT_GENERATE_GENERATION_H

#include "generate/masks_ahead.h"
#include "generate/probe.h"
#include "generate/sampler.h"
#include "generate/speculate.h"
#include "generate/thinking_budget.h"
#include "generate/token_output.h"
#include "grammar/grammar.h"

#include <hearth/generate.h>

/* The grammars that constrain an answer, and where in them it begins. */
typedef struct ht_constraint {
    ht_grammar *grammar; /* NULL: the answer is free */
    ht_grammar *calls;   /* tool calls allowed instead of a text of `grammar`; NULL: none */
    ht_grammar_start start;
    bool no_calls;   /* what reads as a call is text */
    bool only_calls; /* the answer has no text */
} ht_constraint;

/* The constraint of an answer to a conversation, whose prompt is n bytes of text. *out is empty after a failure. */
ht_status ht_constraint_of_chat(ht_model *m, const ht_chat *chat, const ht_generate_options *options,
                                const char *prompt, size_t n, ht_constraint *out, ht_error *err);
void ht_constraint_free(ht_constraint *c);

typedef struct ht_generation {
    ht_session *s;
    ht_generate_options o;
    ht_sampler_options sampler_options; /* in effect, which o.sampler points to once it has begun */
    ht_sampler *sampler;
    ht_constraint constraint;   /* lent; without a grammar, that of the options from the first token on */
    ht_answer_matcher *matcher; /* of the drawn tokens; NULL: unconstrained */
    ht_masks_ahead **ahead;     /* lent: of the session or the engine, made when first needed */
    ht_mask_order mask_order;   /* for the present step */
    const ht_chat *chat;        /* lent: the conversation that is answered; NULL: none */
    ht_thinking_budget *budget; /* NULL: reasoning has no bound */
    ht_probing *probing;        /* NULL: no probes */
    ht_probe_fn *probe;         /* receives probes instead of the options' function; NULL: that function */
    void *probe_user;
    const ht_kv_account *account; /* of an engine, with its budget: NULL: none */
    size_t kv_budget;
    ht_token_output output;
    ht_response_reader *answer; /* lent: splits the output into parts; NULL: the caller's function receives text */
    bool new_turn;              /* the text does not continue the prompt's */
    int64_t total;              /* tokens before the next drawn one; the session holds them */
    /* The session holds the guesses after `total` tokens. Drawn: n_drawn - 1 of them, and another token. */
    ht_speculation *speculation; /* NULL: none */
    int32_t n_guesses, n_drawn;
    int64_t n_repeated; /* accepted tokens that the step computes again, after states went back */
    int32_t drawn[HT_DRAFT_TOKENS_MAX + 1];
    double asked;              /* when the job was made */
    bool prompt_only;          /* computes the prompt and draws nothing */
    int64_t limit;             /* total tokens at which the answer ends; 0: the context */
    ht_metrics metrics;        /* `finish` is set when the answer has ended */
    double begin, first_token; /* seconds on the clock of ht_now_seconds */
} ht_generation;

/* Fills in the defaults; NULL: these alone. */
ht_status ht_generation_read_options(ht_generate_options *o, const ht_generate_options *options, ht_error *err);
/* Makes sampler and decoder from g's s, o, answer and new_turn. fn may be NULL. End it even after a failure. */
ht_status ht_generation_begin(ht_generation *g, ht_text_fn *fn, void *user, ht_error *err);
void ht_generation_end(ht_generation *g);

/* Guesses the next tokens if enabled, or the end of reasoning. Call before each ht_generation_ask. */
ht_status ht_generation_guess(ht_generation *g, ht_error *err);
/* Sets the session's job to the next rows, including guesses. */
ht_status ht_generation_ask(ht_generation *g, ht_error *err);
/* Takes the job's results: counts prompt tokens, outputs drawn tokens. */
ht_status ht_generation_take(ht_generation *g, ht_error *err);

#endif
