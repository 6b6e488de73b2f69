/* States of the lexer: lexemes in progress, each as what is left of its expression, and the transitions between them. */
#include "grammar/automaton_grow.h"

#include <string.h>

/* Fills in what is known of a new state. */
static void describe(ht_automaton *a, uint32_t state) {
    size_t n;
    const uint32_t *words = ht_intern_at(&a->states, state, &n);
    ht_lex_state *of = &a->state[state];
    *of = (ht_lex_state){.accepts = a->n_accepted};
    if (!ht_automaton_reserve(a, &a->accepted, &a->accepted_capacity, a->n_accepted + n / 2, sizeof *a->accepted))
        return;
    for (size_t i = 0; i < n; i += 2) {
        const ht_free_lexeme *free = ht_rules_is_free(a->rules, words[i]);
        /* An endless one would end at every byte of every token. */
        const bool ends = ht_re_is_nullable(a->rules->re, words[i + 1]) && !(free && free->is_endless);
        if (ends) a->accepted[a->n_accepted++] = words[i];
        if (words[i + 1] == HT_RE_EMPTY) continue;
        of->goes_on = true;
        of->is_free = of->is_free || free;
        of->may_end = of->may_end || (free && free->may_end);
    }
    of->n_accepts = a->n_accepted - of->accepts;
}

uint32_t ht_lex_state_of(ht_automaton *a, const uint32_t *words, size_t n) {
    bool is_new;
    const uint32_t state = ht_intern_add(&a->states, words, n, &is_new);
    if (state == HT_INTERN_FAILED) {
        ht_automaton_fail(a, HT_ERR_MEMORY);
        return HT_LEX_DEAD;
    }
    if (!is_new) return state;
    uint32_t capacity = a->states_capacity;
    if (state >= capacity) {
        if (!ht_automaton_reserve(a, &a->state, &capacity, (size_t)state + 1, sizeof *a->state)) return HT_LEX_DEAD;
        int32_t *next = realloc(a->next, (size_t)capacity * (size_t)a->n_classes * sizeof *next);
        if (!next) {
            ht_automaton_fail(a, HT_ERR_MEMORY);
            return HT_LEX_DEAD;
        }
        a->next = next;
        a->states_capacity = capacity;
    }
    const size_t n_classes = (size_t)a->n_classes;
    for (size_t c = 0; c < n_classes; c++)
        a->next[state * n_classes + c] = state == HT_LEX_DEAD ? HT_LEX_DEAD : HT_LEX_UNKNOWN;
    describe(a, state);
    return state;
}

int32_t ht_lex_make_next(ht_automaton *a, uint32_t state, int byte_class) {
    size_t n;
    ht_intern_at(&a->states, state, &n);
    const uint32_t begin = a->n_scratch;
    if (!ht_automaton_reserve(a, &a->scratch, &a->scratch_capacity, begin, sizeof *a->scratch)) return HT_LEX_DEAD;
    for (size_t i = 0; i < n; i += 2) {
        size_t same;
        const uint32_t *words = ht_intern_at(&a->states, state, &same) + i;
        const uint32_t lexeme = words[0];
        if (!ht_re_may_begin(a->rules->re, words[1], byte_class)) continue;
        const ht_re d = ht_re_derivative(a->rules->re, words[1], byte_class);
        if (d == HT_RE_NONE) continue;
        if (!ht_automaton_reserve(a, &a->scratch, &a->scratch_capacity, a->n_scratch + 2, sizeof *a->scratch)) break;
        a->scratch[a->n_scratch++] = lexeme;
        a->scratch[a->n_scratch++] = d;
    }
    const uint32_t next = ht_lex_state_of(a, a->scratch + begin, a->n_scratch - begin);
    a->n_scratch = begin;
    if (a->status || ht_regexes_status(a->rules->re, NULL)) return HT_LEX_DEAD;
    return a->next[(size_t)state * (size_t)a->n_classes + (size_t)byte_class] = (int32_t)next;
}
