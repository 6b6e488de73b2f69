/* One answer in the making: which rows of a session it needs next, the token that is drawn of their logits, and its text.
 *
 * ht_generate runs one on the caller's thread; the engine runs many side by side. Between ht_generation_ask and
 * ht_generation_take the session's job is computed (generate/scheduler.h), on whatever thread; all else happens on the owner's. */
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

/* The grammars that an answer's tokens keep to, and where in them the answer begins. */
typedef struct ht_constraint {
    ht_grammar *grammar; /* NULL: the answer is free */
    ht_grammar *calls;   /* those that may be made in the place of a text of `grammar`; NULL: none */
    ht_grammar_start start;
    bool no_calls;   /* what reads as a call is text */
    bool only_calls; /* the answer has no text */
} ht_constraint;

/* That of an answer to a conversation, whose prompt is n bytes of text. *out is empty after a failure. */
ht_status ht_constraint_of_chat(ht_model *m, const ht_chat *chat, const ht_generate_options *options,
                                const char *prompt, size_t n, ht_constraint *out, ht_error *err);
void ht_constraint_free(ht_constraint *c);

typedef struct ht_generation {
    ht_session *s;
    ht_generate_options o;
    ht_sampler_options sampler_options; /* in effect, which o.sampler points to once it has begun */
    ht_sampler *sampler;
    ht_constraint constraint;   /* lent; without a grammar, that of the options from the first token on */
    ht_answer_matcher *matcher; /* of the tokens that were drawn; NULL: they may be any */
    ht_masks_ahead **ahead;     /* lent: of the session or the engine, made when first needed */
    ht_mask_order mask_order;   /* for the present step */
    const ht_chat *chat;        /* lent: the conversation that is answered; NULL: none */
    ht_thinking_budget *budget; /* NULL: reasoning has no bound */
    ht_probing *probing;        /* NULL: nobody wants probes */
    ht_probe_fn *probe;         /* takes them in the place of the options' function; NULL: that one */
    void *probe_user;
    const ht_kv_account *account; /* of an engine, with its budget: NULL: none */
    size_t kv_budget;
    ht_token_output output;
    ht_response_reader
        *answer;   /* lent: takes the output, to hand it over in parts; NULL: the caller's function takes it as text */
    bool new_turn; /* the text stands by itself, it does not go on with the prompt's */
    int64_t total; /* tokens before the one that is drawn next; they lie in the session's tokens */
    /* Guesses of the tokens behind `total`, which lie in the session's tokens, and what was drawn: n_drawn - 1 of the guesses, and another. */
    ht_speculation *speculation; /* NULL: none */
    int32_t n_guesses, n_drawn;
    bool forced; /* the guesses are what the grammar, or the end of reasoning, leaves no choice about */
    int32_t drawn[HT_MOST_GUESSES + 1];
    double asked;              /* when the job was made */
    bool prompt_only;          /* computes the prompt and draws nothing */
    int64_t limit;             /* tokens in all at which the answer ends; 0: the context */
    ht_metrics metrics;        /* `finish` is set when the answer has ended */
    double begin, first_token; /* seconds on the clock of ht_now_seconds */
} ht_generation;

/* Fills in the defaults; NULL: these alone. */
ht_status ht_generation_read_options(ht_generate_options *o, const ht_generate_options *options, ht_error *err);
/* Of g->s, g->o, g->answer and g->new_turn: makes sampler and decoder. fn may be NULL. End it after a failure, too. */
ht_status ht_generation_begin(ht_generation *g, ht_text_fn *fn, void *user, ht_error *err);
void ht_generation_end(ht_generation *g);

/* Tells whether reasoning has to end, and guesses, if that is wanted, what comes next. Before each ht_generation_ask. */
ht_status ht_generation_guess(ht_generation *g, ht_error *err);
/* Makes the session's job of the rows that come next, guesses among them. */
ht_status ht_generation_ask(ht_generation *g, ht_error *err);
/* Takes what the job computed: counts the prompt's tokens, shows the tokens that were drawn. */
ht_status ht_generation_take(ht_generation *g, ht_error *err);

#endif
