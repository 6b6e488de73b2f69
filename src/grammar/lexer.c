/* States of the lexer: lexemes in progress, each as what is left of its expression, and the transitions between them.
 *
 * Lexemes that all begin with the same optional part, as white space is before each lexeme of JSON, are a prefix and the state behind it: a
 * hundred states of white space are then made once, not for each of a hundred keys. */
#include "base/grow.h"
#include "grammar/automaton_grow.h"

#include <string.h>

/* Words of a state with a prefix, the last one 0: pairs are even in number. */
enum { PREFIX, REST, PREFIXED_WORDS = 3 };

/* Room for so many states is made at once: white space alone takes some hundred. */
enum { STATES_FIRST = 256 };

/* ---- new states ---- */

static void describe_entries(ht_automaton *a, ht_lex_state *of, const uint32_t *words, size_t n, ht_byte_set *first) {
    ht_regexes *re = a->rules->re;
    if (!ht_automaton_reserve(a, &a->accepted, &a->accepted_capacity, a->n_accepted + n / 2, sizeof *a->accepted))
        return;
    for (size_t i = 0; i < n; i += 2) {
        const ht_free_lexeme *free = ht_rules_is_free(a->rules, words[i]);
        /* An endless one would end at every byte of every token. */
        const bool ends = ht_re_is_nullable(re, words[i + 1]) && !(free && free->is_endless);
        if (ends) a->accepted[a->n_accepted++] = words[i];
        if (words[i + 1] == HT_RE_EMPTY) continue;
        ht_re_add_first(re, words[i + 1], first);
        of->goes_on = true;
        of->is_free = of->is_free || free;
        of->may_end = of->may_end || (free && free->may_end);
    }
}

/* The rest goes on, as it takes one byte or more. */
static void describe_prefixed(ht_automaton *a, ht_lex_state *of, const uint32_t *words, ht_byte_set *first) {
    ht_regexes *re = a->rules->re;
    ht_re_add_first(re, words[PREFIX], first);
    of->goes_on = true;
    if (!ht_re_is_nullable(re, words[PREFIX])) return;
    const int32_t *next = a->next + (size_t)words[REST] * (size_t)a->n_classes;
    const uint8_t *byte_of = ht_regexes_byte_of(re);
    for (int c = 0; c < a->n_classes; c++)
        if (next[c] != HT_LEX_DEAD) ht_byte_set_add(first, byte_of[c], byte_of[c]);
}

/* Fills in what is known of a new state, and leaves open only transitions that may lead somewhere. */
static void describe(ht_automaton *a, uint32_t state) {
    size_t n;
    const uint32_t *words = ht_intern_at(&a->states, state, &n);
    const uint8_t *byte_of = ht_regexes_byte_of(a->rules->re);
    ht_lex_state *of = &a->state[state];
    ht_byte_set first = {{0}};
    *of = (ht_lex_state){.accepts = a->n_accepted};
    if (n == PREFIXED_WORDS)
        describe_prefixed(a, of, words, &first);
    else
        describe_entries(a, of, words, n, &first);
    of->n_accepts = a->n_accepted - of->accepts;
    int32_t *next = a->next + (size_t)state * (size_t)a->n_classes;
    for (int c = 0; c < a->n_classes; c++) next[c] = ht_byte_set_has(&first, byte_of[c]) ? HT_LEX_UNKNOWN : HT_LEX_DEAD;
}

/* The state with exactly these words. */
static uint32_t intern_state(ht_automaton *a, const uint32_t *words, size_t n) {
    bool is_new;
    const uint32_t state = ht_intern_add(&a->states, words, n, &is_new);
    if (state == HT_INTERN_FAILED) {
        ht_automaton_fail(a, HT_ERR_MEMORY);
        return HT_LEX_DEAD;
    }
    if (!is_new) return state;
    size_t capacity = a->states_capacity;
    if (state >= capacity) {
        const size_t need = state < STATES_FIRST ? STATES_FIRST : (size_t)state + 1;
        if (!ht_automaton_reserve(a, &a->state, &capacity, need, sizeof *a->state)) return HT_LEX_DEAD;
        if (!ht_resize(&a->next, capacity, (size_t)a->n_classes * sizeof *a->next)) {
            ht_automaton_fail(a, HT_ERR_MEMORY);
            return HT_LEX_DEAD;
        }
        a->states_capacity = capacity;
    }
    describe(a, state);
    return state;
}

static bool push(ht_automaton *a, uint32_t lexeme, ht_re re) {
    if (!ht_automaton_reserve(a, &a->scratch, &a->scratch_capacity, (size_t)a->n_scratch + 2, sizeof *a->scratch))
        return false;
    a->scratch[a->n_scratch++] = lexeme;
    a->scratch[a->n_scratch++] = re;
    return true;
}

/* The state of a prefix and a rest; the latter alone behind an empty one. */
static uint32_t prefixed_state(ht_automaton *a, ht_re prefix, uint32_t rest) {
    if (prefix == HT_RE_EMPTY || a->status) return rest;
    return intern_state(a, (uint32_t[PREFIXED_WORDS]){[PREFIX] = prefix, [REST] = rest}, PREFIXED_WORDS);
}

/* Takes the same optional part off the beginnings of the pairs, two or more, on the scratch stack from `begin` on. HT_RE_EMPTY, and
 * nothing is changed, where they have none. */
static ht_re take_prefix(ht_automaton *a, uint32_t begin) {
    const ht_regexes *re = a->rules->re;
    const uint32_t n = a->n_scratch - begin;
    ht_re prefix = HT_RE_EMPTY, optional, rest;
    if (n < 4) return HT_RE_EMPTY;
    uint32_t *pair = a->scratch + begin;
    for (uint32_t i = 0; i < n; i += 2) {
        if (!ht_re_split_optional(re, pair[i + 1], &optional, &rest) || (i && optional != prefix)) return HT_RE_EMPTY;
        if (ht_re_is_nullable(re, rest) || ht_rules_is_free(a->rules, pair[i])) return HT_RE_EMPTY;
        prefix = optional;
    }
    for (uint32_t i = 0; i < n; i += 2) (void)ht_re_split_optional(re, pair[i + 1], &optional, &pair[i + 1]);
    return prefix;
}

uint32_t ht_lex_state_of(ht_automaton *a, uint32_t begin) {
    const ht_re prefix = take_prefix(a, begin);
    const uint32_t rest = intern_state(a, a->scratch ? a->scratch + begin : NULL, a->n_scratch - begin);
    a->n_scratch = begin;
    return prefixed_state(a, prefix, rest);
}

/* ---- transitions ---- */

/* What an expression is behind a byte; HT_RE_NONE where it has no such text. */
static ht_re behind(ht_automaton *a, ht_re re, int byte_class) {
    return ht_re_may_begin(a->rules->re, re, byte_class) ? ht_re_derivative(a->rules->re, re, byte_class) : HT_RE_NONE;
}

/* The entry of a pair on the scratch stack from `begin` on: another text of a lexeme that is there, or a new one. */
static void add_pair(ht_automaton *a, uint32_t begin, uint32_t lexeme, ht_re re) {
    for (uint32_t i = begin; i < a->n_scratch; i += 2) {
        if (a->scratch[i] != lexeme) continue;
        a->scratch[i + 1] = ht_re_either(a->rules->re, a->scratch[i + 1], re);
        return;
    }
    (void)push(a, lexeme, re);
}

/* Pushes the pairs of a state, each behind the prefix. */
static void push_pairs(ht_automaton *a, uint32_t begin, ht_re prefix, uint32_t state) {
    size_t n;
    const uint32_t *words = ht_intern_at(&a->states, state, &n);
    if (n == PREFIXED_WORDS) {
        push_pairs(a, begin, ht_re_concat(a->rules->re, prefix, words[PREFIX]), words[REST]);
        return;
    }
    for (size_t i = 0; i < n; i += 2) add_pair(a, begin, words[i], ht_re_concat(a->rules->re, prefix, words[i + 1]));
}

static int by_lexeme(const void *a, const void *b) {
    const uint32_t *x = a, *y = b;
    return (x[0] > y[0]) - (x[0] < y[0]);
}

/* A byte that the prefix takes, or that is the first of the rest, or either. */
static uint32_t next_prefixed(ht_automaton *a, ht_re prefix, uint32_t rest, int byte_class) {
    const ht_re longer = behind(a, prefix, byte_class);
    const uint32_t next =
        ht_re_is_nullable(a->rules->re, prefix) ? ht_lex_next(a, rest, byte_class) : (uint32_t)HT_LEX_DEAD;
    if (longer == HT_RE_NONE) return next;
    if (next == HT_LEX_DEAD) return prefixed_state(a, longer, rest);
    const uint32_t begin = a->n_scratch;
    push_pairs(a, begin, longer, rest);
    push_pairs(a, begin, HT_RE_EMPTY, next);
    if (a->n_scratch > begin) qsort(a->scratch + begin, (a->n_scratch - begin) / 2, 2 * sizeof *a->scratch, by_lexeme);
    return ht_lex_state_of(a, begin);
}

static uint32_t next_of_pairs(ht_automaton *a, uint32_t state, size_t n, int byte_class) {
    const uint32_t begin = a->n_scratch;
    for (size_t i = 0; i < n; i += 2) {
        size_t same;
        const uint32_t *words = ht_intern_at(&a->states, state, &same) + i;
        const uint32_t lexeme = words[0];
        const ht_re d = behind(a, words[1], byte_class);
        if (d != HT_RE_NONE && !push(a, lexeme, d)) break;
    }
    return ht_lex_state_of(a, begin);
}

int32_t ht_lex_make_next(ht_automaton *a, uint32_t state, int byte_class) {
    size_t n;
    const uint32_t *words = ht_intern_at(&a->states, state, &n);
    const uint32_t next = n == PREFIXED_WORDS ? next_prefixed(a, words[PREFIX], words[REST], byte_class)
                                              : next_of_pairs(a, state, n, byte_class);
    if (a->status || ht_regexes_status(a->rules->re, NULL)) return HT_LEX_DEAD;
    return a->next[(size_t)state * (size_t)a->n_classes + (size_t)byte_class] = (int32_t)next;
}
