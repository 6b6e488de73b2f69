/* Runs of plain text: the sets of states behind one, two, three characters. */
#include "grammar/plain_run.h"

#include <string.h>

/* First and second bytes of characters of two to four bytes, and how many follow (Unicode standard, table 3-7). */
static const struct {
    unsigned char first, last, second_first, second_last;
    int more;
} forms[HT_PLAIN_FORMS] = {{0xC2, 0xDF, 0x80, 0xBF, 0}, {0xE0, 0xE0, 0xA0, 0xBF, 1}, {0xE1, 0xEC, 0x80, 0xBF, 1},
                           {0xED, 0xED, 0x80, 0x9F, 1}, {0xEE, 0xEF, 0x80, 0xBF, 1}, {0xF0, 0xF0, 0x90, 0xBF, 2},
                           {0xF1, 0xF3, 0x80, 0xBF, 2}, {0xF4, 0xF4, 0x80, 0x8F, 2}};

static void add_classes(const ht_automaton *a, unsigned first, unsigned last, ht_byte_set *to) {
    for (unsigned b = first; b <= last; b++) ht_byte_set_add(to, a->class_of[b], a->class_of[b]);
}

void ht_plain_classes_find(const ht_automaton *a, ht_plain_classes *out) {
    *out = (ht_plain_classes){.next = {{0}}};
    for (unsigned b = 0; b < 0x80; b++) {
        const ht_plain_kind kind = ht_plain_kind_of((unsigned char)b);
        if (kind < HT_PLAIN_KINDS) add_classes(a, b, b, &out->ascii[kind]);
    }
    for (int i = 0; i < HT_PLAIN_FORMS; i++) {
        add_classes(a, forms[i].first, forms[i].last, &out->first[i]);
        add_classes(a, forms[i].second_first, forms[i].second_last, &out->second[i]);
    }
    add_classes(a, 0x80, 0xBF, &out->next);
}

/* States of one set; where characters lead to more, tokens are looked at one by one. */
enum { STATES_MOST = 8 };

typedef struct state_set {
    uint32_t state[STATES_MOST];
    int n;
    bool has_dead, is_crowded;
    bool accepts; /* a lexeme may end in one of them, and a token go on in another */
} state_set;

static void add_state(const ht_automaton *a, state_set *set, uint32_t state) {
    if (state == HT_LEX_DEAD) {
        set->has_dead = true;
        return;
    }
    for (int i = 0; i < set->n; i++)
        if (set->state[i] == state) return;
    set->accepts = set->accepts || a->state[state].n_accepts;
    if (set->n == STATES_MOST)
        set->is_crowded = true;
    else
        set->state[set->n++] = state;
}

static void join(const ht_automaton *a, state_set *to, const state_set *from) {
    for (int i = 0; i < from->n; i++) add_state(a, to, from->state[i]);
    to->has_dead = to->has_dead || from->has_dead;
    to->is_crowded = to->is_crowded || from->is_crowded;
    to->accepts = to->accepts || from->accepts;
}

/* Whether some texts go on and others do not, or there are too many states: then there is no run. */
static bool is_mixed(const state_set *set) { return set->is_crowded || (set->has_dead && set->n); }

/* Adds the states behind a byte of the classes. */
static void step_classes(ht_automaton *a, const state_set *from, const ht_byte_set *classes, state_set *to) {
    for (int w = 0; w < 8; w++)
        for (uint32_t left = classes->bits[w]; left && !is_mixed(to); left &= left - 1)
            for (int i = 0; i < from->n; i++)
                add_state(a, to, ht_lex_next(a, from->state[i], w * 32 + __builtin_ctz(left)));
}

/* The states behind one plain character of the states of a set. */
static void step_character(ht_automaton *a, const ht_plain_classes *of, const state_set *from, ht_plain_kind kind,
                           state_set *to) {
    *to = (state_set){.n = 0};
    for (int k = 0; k <= (int)kind; k++) step_classes(a, from, &of->ascii[k], to);
    for (int i = 0; kind == HT_PLAIN_ANY && i < HT_PLAIN_FORMS && !is_mixed(to); i++) {
        state_set now = {.n = 0};
        step_classes(a, from, &of->first[i], &now);
        for (int k = -1; k < forms[i].more; k++) {
            state_set next = {.has_dead = now.has_dead, .is_crowded = now.is_crowded, .accepts = now.accepts};
            step_classes(a, &now, k < 0 ? &of->second[i] : &of->next, &next);
            now = next;
        }
        join(a, to, &now);
    }
}

/* Characters of the kind that a state takes; -1: that depends on which ones, or longer texts may go on in other lexemes. */
static int run_of(ht_automaton *a, const ht_plain_classes *classes, uint32_t state, ht_plain_kind kind) {
    state_set now = {.state = {state}, .n = 1}, next;
    bool accepts = false;
    for (int k = 1; k <= HT_PLAIN_MOST; k++) {
        step_character(a, classes, &now, kind, &next);
        if (is_mixed(&next)) return -1;
        if (!next.n) return accepts ? -1 : k - 1;
        if (next.n == now.n && !memcmp(next.state, now.state, (size_t)now.n * sizeof *now.state)) return HT_PLAIN_MOST;
        accepts = accepts || next.accepts;
        now = next;
    }
    return HT_PLAIN_MOST;
}

ht_plain_run ht_plain_run_of(ht_automaton *a, const ht_plain_classes *classes, uint32_t state) {
    for (int kind = HT_PLAIN_KINDS; kind-- > 0;) {
        const int n = run_of(a, classes, state, (ht_plain_kind)kind);
        if (n >= 0) return (ht_plain_run){(ht_plain_kind)kind, n};
    }
    return (ht_plain_run){HT_PLAIN_KINDS, 0};
}
