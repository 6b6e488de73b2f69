/* Runs of plain text: the sets of states behind one, two, three characters. */
#include "grammar/plain_run.h"

#include "tokenizer/token_trie.h"

#include <string.h>

/* States of one set; where characters lead to more, tokens are looked at one by one. */
enum { STATES_MOST = 8 };

typedef struct state_set {
    uint32_t state[STATES_MOST];
    int n;
    bool has_dead, is_crowded;
} state_set;

static void add_state(state_set *set, uint32_t state) {
    if (state == HT_LEX_DEAD) {
        set->has_dead = true;
        return;
    }
    for (int i = 0; i < set->n; i++)
        if (set->state[i] == state) return;
    if (set->n == STATES_MOST)
        set->is_crowded = true;
    else
        set->state[set->n++] = state;
}

/* Adds the states behind a byte of a range. */
static void step_range(ht_automaton *a, const state_set *from, unsigned first, unsigned last, state_set *to) {
    for (unsigned b = first; b <= last && !to->is_crowded; b++) {
        if (b == '"' || b == '\\') continue;
        if (b > first && a->class_of[b] == a->class_of[b - 1]) continue;
        for (int i = 0; i < from->n; i++) add_state(to, ht_lex_next(a, from->state[i], a->class_of[b]));
    }
}

/* The states behind one plain character of the states of a set. */
static void step_character(ht_automaton *a, const state_set *from, state_set *to) {
    /* First and second bytes of characters of two to four bytes, and how many follow (Unicode standard, table 3-7). */
    static const struct {
        unsigned char first, last, second_first, second_last;
        int more;
    } forms[] = {{0xC2, 0xDF, 0x80, 0xBF, 0}, {0xE0, 0xE0, 0xA0, 0xBF, 1}, {0xE1, 0xEC, 0x80, 0xBF, 1},
                 {0xED, 0xED, 0x80, 0x9F, 1}, {0xEE, 0xEF, 0x80, 0xBF, 1}, {0xF0, 0xF0, 0x90, 0xBF, 2},
                 {0xF1, 0xF3, 0x80, 0xBF, 2}, {0xF4, 0xF4, 0x80, 0x8F, 2}};
    *to = (state_set){.n = 0};
    step_range(a, from, 0x20, 0x7E, to);
    for (size_t i = 0; i < sizeof forms / sizeof *forms && !to->is_crowded; i++) {
        state_set now = {.n = 0}, next = {.n = 0};
        step_range(a, from, forms[i].first, forms[i].last, &now);
        step_range(a, &now, forms[i].second_first, forms[i].second_last, &next);
        next.has_dead = next.has_dead || now.has_dead;
        next.is_crowded = next.is_crowded || now.is_crowded;
        for (int k = 0; k < forms[i].more; k++) {
            now = next;
            next = (state_set){.has_dead = now.has_dead, .is_crowded = now.is_crowded};
            step_range(a, &now, 0x80, 0xBF, &next);
        }
        for (int k = 0; k < next.n; k++) add_state(to, next.state[k]);
        to->has_dead = to->has_dead || next.has_dead;
        to->is_crowded = to->is_crowded || next.is_crowded;
    }
}

ht_plain_run ht_plain_run_of(ht_automaton *a, uint32_t state) {
    ht_plain_run run = {.all = HT_PLAIN_MOST, .none = HT_PLAIN_MOST + 1};
    state_set now = {.state = {state}, .n = 1}, next;
    for (int k = 1; k <= HT_PLAIN_MOST + 1; k++) {
        step_character(a, &now, &next);
        if (next.is_crowded) {
            if (run.all >= k) run.all = k - 1;
            return run;
        }
        if (next.has_dead && run.all >= k) run.all = k - 1;
        if (!next.n) {
            run.none = k;
            return run;
        }
        if (next.n == now.n && !memcmp(next.state, now.state, (size_t)now.n * sizeof *now.state)) return run;
        now = next;
    }
    return run;
}
