/* Automaton of a grammar: which bytes may continue a text. It is built on demand.
 *
 * A row is a set of Earley items: positions in productions, each with a continuation, the row and awaited rule to
 * which it returns. Rows are interned and independent of the text's length: after two elements of a list, the row is
 * the same as after one. An item at the end of a production passes its continuation on, so that lists do not nest.
 *
 * A thread is a row and a lexer state: the lexemes that the row awaits, each with its remaining expression. No
 * longest match decides where a lexeme ends, so a text may have several threads; together they are a configuration.
 *
 * Belongs to one thread at a time. Errors are sticky; ht_automaton_reset starts over. */
#ifndef HT_GRAMMAR_AUTOMATON_H
#define HT_GRAMMAR_AUTOMATON_H

#include "base/grow.h"
#include "grammar/rules.h"

/* States of the lexer. */
enum { HT_LEX_DEAD = 0, HT_LEX_UNKNOWN = -1 };

typedef struct ht_lex_state {
    uint32_t accepts, n_accepts; /* lexemes that may end here, in `accepted` */
    bool goes_on;                /* some lexeme takes more bytes */
    bool is_free, may_end;       /* some lexeme is free text; the text may end within it */
} ht_lex_state;

typedef struct ht_row {
    uint32_t start;        /* state of the lexer before its lexemes */
    bool accepts;          /* the text may end here */
    uint32_t scan, n_scan; /* items before lexemes, by lexeme: triples in `triple` */
    uint32_t want, n_want; /* items that await a rule, triples as well */
} ht_row;

typedef struct ht_thread {
    uint32_t row, state;
} ht_thread;

typedef struct ht_triple {
    uint32_t symbol, place, continuation; /* place: of the symbol, in the rules' list */
} ht_triple;

typedef struct ht_automaton {
    ht_rules *rules;
    int n_classes;
    const uint8_t *class_of;
    /* lexer */
    ht_intern states; /* pairs of a lexeme and an expression, or a prefix and a state */
    ht_lex_state *state;
    int32_t *next; /* [states.n, n_classes] or HT_LEX_UNKNOWN */
    uint32_t *accepted;
    uint32_t n_accepted;
    /* parser */
    ht_intern kernels, continuations; /* row n has kernel n */
    ht_row *row;
    ht_triple *triple;
    uint32_t n_triples;
    ht_pair_map gotos;
    /* configurations: 1 if the text may end, then threads; number 0 has none: no text continues */
    ht_intern configurations;
    uint32_t start[HT_STARTS_MOST]; /* configurations, of the rules' starts */
    uint32_t *scratch;
    uint32_t n_scratch;
    uint32_t *item; /* pairs of the row under construction */
    uint32_t n_items;
    uint32_t n_finds; /* calls that add its items, new or not */
    ht_pair_map seen; /* its items */
    size_t states_capacity, next_capacity, accepted_capacity, rows_capacity, triples_capacity, scratch_capacity,
        items_capacity;
    ht_status status;
} ht_automaton;

/* Threads of a configuration during a step. */
typedef struct ht_threads {
    ht_thread *thread;
    uint32_t n;
    size_t capacity;
    bool accepts; /* the text may end */
} ht_threads;

/* Creates the automaton of finished rules, and takes ownership of them even on failure. */
ht_status ht_automaton_new(ht_rules *rules, ht_automaton **out, ht_error *err);
void ht_automaton_free(ht_automaton *a); /* NULL is fine */
ht_status ht_automaton_status(const ht_automaton *a, ht_error *err);
/* Discards all states and rows; earlier configurations become invalid. */
ht_status ht_automaton_reset(ht_automaton *a, ht_error *err);
size_t ht_automaton_bytes(const ht_automaton *a); /* of memory in use */

/* Records the first failure. */
static inline void ht_automaton_fail(ht_automaton *a, ht_status status) {
    if (!a->status) a->status = status;
}
/* Makes *array hold `need` elements of `size` bytes, one at least; false, and the failure is recorded, when memory runs out. */
static inline bool ht_automaton_reserve(ht_automaton *a, void *array, size_t *capacity, size_t need, size_t size) {
    if (need <= INT32_MAX && ht_grow(array, capacity, need ? need : 1, size)) return true;
    ht_automaton_fail(a, HT_ERR_MEMORY);
    return false;
}

int32_t ht_lex_make_next(ht_automaton *a, uint32_t state, int byte_class);
/* The state after a byte of the class. */
static inline uint32_t ht_lex_next(ht_automaton *a, uint32_t state, int byte_class) {
    const int32_t known = a->next[(size_t)state * (size_t)a->n_classes + (size_t)byte_class];
    return (uint32_t)(known != HT_LEX_UNKNOWN ? known : ht_lex_make_next(a, state, byte_class));
}

/* Appends to `to` the threads of thread t after a byte. False when memory ran out. */
bool ht_automaton_step(ht_automaton *a, ht_thread t, uint8_t byte, ht_threads *to);
/* Appends the threads of the rows after the lexemes that end in state `state` of row `row`. */
bool ht_automaton_accept(ht_automaton *a, uint32_t row, uint32_t state, ht_threads *to);
void ht_threads_free(ht_threads *t);

/* The configuration after n bytes; 0 if no text continues with them. */
uint32_t ht_automaton_feed(ht_automaton *a, uint32_t configuration, const char *bytes, size_t n);
/* Writes the bytes that continue every text, at most `most`; returns their number. */
size_t ht_automaton_forced(ht_automaton *a, uint32_t configuration, char *bytes, size_t most);
bool ht_automaton_may_end(const ht_automaton *a, uint32_t configuration);
/* Whether a text may continue or end; false only for 0. */
bool ht_automaton_is_live(const ht_automaton *a, uint32_t configuration);
/* Whether the text is free there, so that tokens without text are allowed. */
bool ht_automaton_is_free(const ht_automaton *a, uint32_t configuration);
const ht_thread *ht_automaton_threads(const ht_automaton *a, uint32_t configuration, size_t *n);

#endif
