/* Rows of the automaton: Earley items behind a lexeme, and what is predicted of them. */
#include "grammar/automaton_grow.h"

#include <string.h>

/* Items of one row at most: a grammar with more at one place is not one that anybody wrote. */
#define ITEMS_MOST 1000000u
/* How often items of one row are found, at most, most of them again and again: so many ways to read one text that each lexeme would take
 * tens of milliseconds. */
#define FINDS_MOST 1000000u

#define ACCEPT 0u /* the continuation of the start */

/* ---- items of the row that is made ---- */

/* Adds an item, unless it is there. */
static void add_item(ht_automaton *a, uint32_t place, uint32_t continuation) {
    if (a->status) return;
    if (++a->n_finds > ITEMS_MOST + FINDS_MOST) ht_automaton_fail(a, HT_ERR_LIMIT);
    if (a->status || ht_pair_map_find(&a->seen, place, continuation) != HT_INTERN_FAILED) return;
    if (a->n_items >= 2 * ITEMS_MOST) {
        ht_automaton_fail(a, HT_ERR_LIMIT);
        return;
    }
    if (!ht_automaton_reserve(a, &a->item, &a->items_capacity, a->n_items + 2, sizeof *a->item)) return;
    if (!ht_pair_map_add(&a->seen, place, continuation, 0)) {
        ht_automaton_fail(a, HT_ERR_MEMORY);
        return;
    }
    a->item[a->n_items++] = place;
    a->item[a->n_items++] = continuation;
}

static void clear_items(ht_automaton *a) {
    a->n_items = a->n_finds = 0;
    if (a->seen.n_slots > 1024)
        ht_pair_map_free(&a->seen);
    else
        ht_pair_map_clear(&a->seen);
}

/* Advances the items that await the rule of a continuation; the text may end where it is the start. */
static bool complete(ht_automaton *a, uint32_t continuation) {
    if (continuation == ACCEPT) return true;
    size_t n;
    const uint32_t *words = ht_intern_at(&a->continuations, continuation, &n);
    const ht_row *row = &a->row[words[0]];
    const ht_symbol rule = words[1];
    const ht_triple *want = a->triple + row->want;
    uint32_t i = 0, end = row->n_want;
    while (i < end) { /* the first one of the rule */
        const uint32_t middle = i + (end - i) / 2;
        if (want[middle].symbol < rule)
            i = middle + 1;
        else
            end = middle;
    }
    for (; i < row->n_want && want[i].symbol == rule && !a->status; i++)
        add_item(a, want[i].place + 1, want[i].continuation);
    return false;
}

static int by_pair(const void *a, const void *b) {
    const uint32_t *x = a, *y = b;
    return x[0] != y[0] ? (x[0] > y[0]) - (x[0] < y[0]) : (x[1] > y[1]) - (x[1] < y[1]);
}

/* ---- closure ---- */

static int by_symbol(const void *a, const void *b) {
    const ht_triple *x = a, *y = b;
    return x->symbol != y->symbol ? (x->symbol > y->symbol) - (x->symbol < y->symbol)
                                  : (x->place > y->place) - (x->place < y->place);
}

/* Predicts rule `rule`, which stands at `place` of an item. */
static void predict(ht_automaton *a, uint32_t row, ht_symbol rule, uint32_t place, uint32_t continuation) {
    ht_rules *rules = a->rules;
    uint32_t back = continuation;
    /* First, as it moves the symbols: those of a rule made on demand. */
    const uint32_t first = ht_rules_first(rules, rule);
    if (rules->symbol[place + 1] != HT_SYMBOL_END) {
        back = ht_intern_add(&a->continuations, (uint32_t[]){row, rule}, 2, NULL);
        if (back == HT_INTERN_FAILED) ht_automaton_fail(a, HT_ERR_MEMORY);
    }
    for (uint32_t p = first; p != HT_INTERN_FAILED && !a->status; p = ht_rules_next(rules, p))
        add_item(a, rules->production[2 * p], back);
    if (rules->rule[rule].is_nullable) add_item(a, place + 1, continuation);
}

/* Adds what the items of a row predict, and divides them into those before lexemes and those before rules. */
static void close_row(ht_automaton *a, uint32_t row) {
    uint32_t n_lexemes = 0, n_rules = 0;
    for (uint32_t i = 0; i < a->n_items && !a->status; i += 2) {
        const uint32_t place = a->item[i], continuation = a->item[i + 1];
        const ht_symbol symbol = a->rules->symbol[place];
        if (symbol == HT_SYMBOL_END) {
            /* A rule that ends where it began has the empty text, and what awaits it was advanced when it was predicted. */
            size_t n;
            if (continuation != ACCEPT && ht_intern_at(&a->continuations, continuation, &n)[0] == row) continue;
            if (complete(a, continuation)) a->row[row].accepts = true;
        } else if (symbol & HT_LEXEME_BIT)
            n_lexemes++;
        else {
            n_rules++;
            predict(a, row, symbol, place, continuation);
        }
    }
    const size_t need = (size_t)a->n_triples + n_lexemes + n_rules;
    if (a->status || !ht_automaton_reserve(a, &a->triple, &a->triples_capacity, need, sizeof *a->triple)) return;
    ht_row *of = &a->row[row];
    of->scan = a->n_triples;
    of->want = a->n_triples + n_lexemes;
    for (uint32_t i = 0; i < a->n_items; i += 2) {
        const ht_triple t = {a->rules->symbol[a->item[i]], a->item[i], a->item[i + 1]};
        if (t.symbol == HT_SYMBOL_END) continue;
        const bool is_lexeme = t.symbol & HT_LEXEME_BIT;
        a->triple[is_lexeme ? of->scan + of->n_scan++ : of->want + of->n_want++] = t;
    }
    a->n_triples = (uint32_t)need;
    if (of->n_scan) qsort(a->triple + of->scan, of->n_scan, sizeof *a->triple, by_symbol);
    if (of->n_want) qsort(a->triple + of->want, of->n_want, sizeof *a->triple, by_symbol);
}

/* The state of the lexer that awaits the lexemes of a row. */
static uint32_t start_state(ht_automaton *a, const ht_row *of) {
    const uint32_t begin = a->n_scratch;
    if (!ht_automaton_reserve(a, &a->scratch, &a->scratch_capacity, (size_t)begin + 2 * of->n_scan, sizeof *a->scratch))
        return HT_LEX_DEAD;
    for (uint32_t i = 0; i < of->n_scan; i++) {
        const uint32_t lexeme = a->triple[of->scan + i].symbol & ~HT_LEXEME_BIT;
        size_t n;
        if (a->n_scratch > begin && a->scratch[a->n_scratch - 2] == lexeme) continue;
        a->scratch[a->n_scratch++] = lexeme;
        a->scratch[a->n_scratch++] = *ht_intern_at(&a->rules->lexemes, lexeme, &n);
    }
    return ht_lex_state_of(a, begin);
}

/* ---- rows ---- */

/* The row whose kernel the items are, once those at the end of a production are completed. */
static uint32_t make_row(ht_automaton *a) {
    uint32_t accepts = 0, kept = 0;
    for (uint32_t i = 0; i < a->n_items && !a->status; i += 2)
        if (a->rules->symbol[a->item[i]] == HT_SYMBOL_END && complete(a, a->item[i + 1])) accepts = 1;
    for (uint32_t i = 0; i < a->n_items; i += 2) {
        if (a->rules->symbol[a->item[i]] == HT_SYMBOL_END) continue;
        a->item[kept++] = a->item[i];
        a->item[kept++] = a->item[i + 1];
    }
    if (!ht_automaton_reserve(a, &a->item, &a->items_capacity, (size_t)kept + 1, sizeof *a->item)) return 0;
    qsort(a->item, kept / 2, 2 * sizeof *a->item, by_pair);
    a->item[kept] = accepts;
    bool is_new;
    const uint32_t row = a->status ? HT_INTERN_FAILED : ht_intern_add(&a->kernels, a->item, (size_t)kept + 1, &is_new);
    if (row == HT_INTERN_FAILED) {
        ht_automaton_fail(a, HT_ERR_MEMORY);
        clear_items(a);
        return 0;
    }
    if (is_new && ht_automaton_reserve(a, &a->row, &a->rows_capacity, (size_t)row + 1, sizeof *a->row)) {
        a->row[row] = (ht_row){.accepts = accepts};
        clear_items(a);
        size_t n;
        for (uint32_t i = 0; i < kept; i += 2) {
            const uint32_t *kernel = ht_intern_at(&a->kernels, row, &n);
            add_item(a, kernel[i], kernel[i + 1]);
        }
        close_row(a, row);
        if (!a->status) a->row[row].start = start_state(a, &a->row[row]);
    }
    clear_items(a);
    return row;
}

uint32_t ht_automaton_first_row(ht_automaton *a, ht_symbol start) {
    for (uint32_t p = ht_rules_first(a->rules, start); p != HT_INTERN_FAILED; p = ht_rules_next(a->rules, p))
        add_item(a, a->rules->production[2 * p], ACCEPT);
    return make_row(a);
}

uint32_t ht_automaton_goto(ht_automaton *a, uint32_t row, uint32_t lexeme) {
    const uint32_t known = ht_pair_map_find(&a->gotos, row, lexeme);
    if (known != HT_INTERN_FAILED) return known;
    const ht_row *of = &a->row[row];
    for (uint32_t i = 0; i < of->n_scan; i++) {
        const ht_triple *t = &a->triple[of->scan + i];
        if (t->symbol == (lexeme | HT_LEXEME_BIT)) add_item(a, t->place + 1, t->continuation);
    }
    const uint32_t next = make_row(a);
    if (!a->status && !ht_pair_map_add(&a->gotos, row, lexeme, next)) ht_automaton_fail(a, HT_ERR_MEMORY);
    return next;
}
