/* Lexer states, rows of Earley items, and configurations of threads that advance byte by byte together. */
#include "grammar/automaton.h"

#include "base/error.h"

#include <assert.h>
#include <string.h>

/* ---- states of the lexer ---- */

/* Lexemes in progress, each with its remaining expression, and the transitions between them. If all lexemes begin
 * with the same optional part, such as white space in JSON, a state is that prefix and the state after it. The
 * states of white space are then built once, not for each of a hundred keys. */

/* Words of a state with a prefix, the last one 0: unlike pairs, their number is odd. */
enum { PREFIX, REST, PREFIXED_WORDS = 3 };

/* Initial capacity in states: white space alone takes about a hundred. */
enum { STATES_FIRST = 256 };

static void describe_entries(ht_automaton *a, ht_lex_state *of, const uint32_t *words, size_t n, ht_byte_set *first) {
    ht_regexes *re = a->rules->re;
    if (!ht_automaton_reserve(a, &a->accepted, &a->accepted_capacity, a->n_accepted + n / 2, sizeof *a->accepted))
        return;
    for (size_t i = 0; i < n; i += 2) {
        const ht_free_lexeme *free = ht_rules_is_free(a->rules, words[i]);
        /* An endless lexeme would end at every byte of every token. */
        const bool ends = ht_re_is_nullable(re, words[i + 1]) && !(free && free->is_endless);
        if (ends) a->accepted[a->n_accepted++] = words[i];
        if (words[i + 1] == HT_RE_EMPTY) continue;
        ht_re_add_first(re, words[i + 1], first);
        of->goes_on = true;
        of->is_free = of->is_free || free;
        of->may_end = of->may_end || (free && free->may_end);
    }
}

/* Even an empty prefix goes on: the rest takes at least one byte. */
static void describe_prefixed(ht_automaton *a, ht_lex_state *of, const uint32_t *words, ht_byte_set *first) {
    ht_regexes *re = a->rules->re;
    ht_re_add_first(re, words[PREFIX], first);
    of->goes_on = true;
    if (!ht_re_is_nullable(re, words[PREFIX])) return;
    const int32_t *next = a->next + (size_t)words[REST] * (size_t)a->n_classes;
    for (int c = 0; c < a->n_classes; c++)
        if (next[c] != HT_LEX_DEAD) ht_byte_set_add(first, re->byte_of[c], re->byte_of[c]);
}

/* Describes a new state. Transitions that must fail become dead; the others stay unknown. */
static void describe(ht_automaton *a, uint32_t state) {
    size_t n;
    const uint32_t *words = ht_intern_at(&a->states, state, &n);
    const uint8_t *byte_of = a->rules->re->byte_of;
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

static uint32_t intern_state(ht_automaton *a, const uint32_t *words, size_t n) {
    bool is_new;
    const uint32_t state = ht_intern_add(&a->states, words, n, &is_new);
    if (state == HT_INTERN_FAILED) {
        ht_automaton_fail(a, HT_ERR_MEMORY);
        return HT_LEX_DEAD;
    }
    if (!is_new) return state;
    const size_t need = state < STATES_FIRST ? STATES_FIRST : (size_t)state + 1;
    if (!ht_automaton_reserve(a, &a->state, &a->states_capacity, need, sizeof *a->state) ||
        !ht_automaton_reserve(a, &a->next, &a->next_capacity, need, (size_t)a->n_classes * sizeof *a->next))
        return HT_LEX_DEAD;
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

/* The state of a prefix and a rest, or the rest alone if the prefix is empty. */
static uint32_t prefixed_state(ht_automaton *a, ht_re prefix, uint32_t rest) {
    if (prefix == HT_RE_EMPTY || a->status) return rest;
    return intern_state(a, (uint32_t[PREFIXED_WORDS]){[PREFIX] = prefix, [REST] = rest}, PREFIXED_WORDS);
}

/* Removes the common optional prefix of the pairs on the scratch stack from `begin` on. HT_RE_EMPTY: none. */
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

static uint32_t lex_state_of(ht_automaton *a, uint32_t begin) {
    const ht_re prefix = take_prefix(a, begin);
    const uint32_t rest = intern_state(a, a->scratch ? a->scratch + begin : NULL, a->n_scratch - begin);
    a->n_scratch = begin;
    return prefixed_state(a, prefix, rest);
}

/* The derivative of an expression, computed only if a text begins with the byte class. */
static ht_re behind(ht_automaton *a, ht_re re, int byte_class) {
    return ht_re_may_begin(a->rules->re, re, byte_class) ? ht_re_derivative(a->rules->re, re, byte_class) : HT_RE_NONE;
}

/* Adds a pair to the scratch stack from `begin` on, or an alternative to the pair of the same lexeme. */
static void add_pair(ht_automaton *a, uint32_t begin, uint32_t lexeme, ht_re re) {
    for (uint32_t i = begin; i < a->n_scratch; i += 2) {
        if (a->scratch[i] != lexeme) continue;
        a->scratch[i + 1] = ht_re_either(a->rules->re, a->scratch[i + 1], re);
        return;
    }
    (void)push(a, lexeme, re);
}

static void push_pairs(ht_automaton *a, uint32_t begin, ht_re prefix, uint32_t state) {
    size_t n;
    const uint32_t *words = ht_intern_at(&a->states, state, &n);
    if (n == PREFIXED_WORDS) {
        push_pairs(a, begin, ht_re_concat(a->rules->re, prefix, words[PREFIX]), words[REST]);
        return;
    }
    for (size_t i = 0; i < n; i += 2) add_pair(a, begin, words[i], ht_re_concat(a->rules->re, prefix, words[i + 1]));
}

/* Compares pairs of words, or threads. */
static int by_pair(const void *a, const void *b) {
    const uint32_t *x = a, *y = b;
    return x[0] != y[0] ? (x[0] > y[0]) - (x[0] < y[0]) : (x[1] > y[1]) - (x[1] < y[1]);
}

/* Handles a byte that continues the prefix, begins the rest, or both. */
static uint32_t next_prefixed(ht_automaton *a, ht_re prefix, uint32_t rest, int byte_class) {
    const ht_re longer = behind(a, prefix, byte_class);
    const uint32_t next =
        ht_re_is_nullable(a->rules->re, prefix) ? ht_lex_next(a, rest, byte_class) : (uint32_t)HT_LEX_DEAD;
    if (longer == HT_RE_NONE) return next;
    if (next == HT_LEX_DEAD) return prefixed_state(a, longer, rest);
    const uint32_t begin = a->n_scratch;
    push_pairs(a, begin, longer, rest);
    push_pairs(a, begin, HT_RE_EMPTY, next);
    if (a->n_scratch > begin) qsort(a->scratch + begin, (a->n_scratch - begin) / 2, 2 * sizeof *a->scratch, by_pair);
    return lex_state_of(a, begin);
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
    return lex_state_of(a, begin);
}

int32_t ht_lex_make_next(ht_automaton *a, uint32_t state, int byte_class) {
    size_t n;
    const uint32_t *words = ht_intern_at(&a->states, state, &n);
    const uint32_t next = n == PREFIXED_WORDS ? next_prefixed(a, words[PREFIX], words[REST], byte_class)
                                              : next_of_pairs(a, state, n, byte_class);
    if (a->status || ht_regexes_status(a->rules->re, NULL)) return HT_LEX_DEAD;
    return a->next[(size_t)state * (size_t)a->n_classes + (size_t)byte_class] = (int32_t)next;
}

/* Items of one row at most; no real grammar has more at one position. */
#define ITEMS_MOST 1000000u
/* Repeated finds of a row's items at most; more would take tens of milliseconds per lexeme. */
#define FINDS_MOST 1000000u

#define ACCEPT 0u /* the continuation of the start */

/* ---- items of the row under construction ---- */

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

/* Advances the items that await the rule of a continuation. True for the start's: the text may end. */
static bool complete(ht_automaton *a, uint32_t continuation) {
    if (continuation == ACCEPT) return true;
    size_t n;
    const uint32_t *words = ht_intern_at(&a->continuations, continuation, &n);
    const ht_row *row = &a->row[words[0]];
    const ht_symbol rule = words[1];
    const ht_triple *want = a->triple + row->want;
    uint32_t i = 0, end = row->n_want;
    while (i < end) { /* binary search for the rule's first item */
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

static int by_symbol(const void *a, const void *b) {
    const ht_triple *x = a, *y = b;
    return x->symbol != y->symbol ? (x->symbol > y->symbol) - (x->symbol < y->symbol)
                                  : (x->place > y->place) - (x->place < y->place);
}

/* Predicts rule `rule`, the symbol at `place` of an item. */
static void predict(ht_automaton *a, uint32_t row, ht_symbol rule, uint32_t place, uint32_t continuation) {
    ht_rules *rules = a->rules;
    uint32_t back = continuation;
    /* Must come first: expanding a rule on demand may move the symbols. */
    const uint32_t first = ht_rules_first(rules, rule);
    if (rules->symbol[place + 1] != HT_SYMBOL_END) {
        back = ht_intern_add(&a->continuations, (uint32_t[]){row, rule}, 2, NULL);
        if (back == HT_INTERN_FAILED) ht_automaton_fail(a, HT_ERR_MEMORY);
    }
    for (uint32_t p = first; p != HT_INTERN_FAILED && !a->status; p = ht_rules_next(rules, p))
        add_item(a, rules->production[2 * p], back);
    if (rules->rule[rule].is_nullable) add_item(a, place + 1, continuation);
}

/* Adds the predictions of a row's items, and splits the items into those before lexemes and those before rules. */
static void close_row(ht_automaton *a, uint32_t row) {
    uint32_t n_lexemes = 0, n_rules = 0;
    for (uint32_t i = 0; i < a->n_items && !a->status; i += 2) {
        const uint32_t place = a->item[i], continuation = a->item[i + 1];
        const ht_symbol symbol = a->rules->symbol[place];
        if (symbol == HT_SYMBOL_END) {
            /* A rule that ends where it began has the empty text; predict has advanced the items that await it. */
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

static uint32_t start_state(ht_automaton *a, const ht_row *of) {
    const uint32_t begin = a->n_scratch;
    for (uint32_t i = 0; i < of->n_scan && !a->status; i++) {
        const uint32_t lexeme = a->triple[of->scan + i].symbol & ~HT_LEXEME_BIT;
        size_t n;
        if (a->n_scratch > begin && a->scratch[a->n_scratch - 2] == lexeme) continue;
        (void)push(a, lexeme, *ht_intern_at(&a->rules->lexemes, lexeme, &n));
    }
    return lex_state_of(a, begin);
}

/* The row whose kernel the current items are, after completing those at the end of a production. */
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

static uint32_t goto_row(ht_automaton *a, uint32_t row, uint32_t lexeme) {
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

/* Threads of one configuration at most; with more, each byte would take milliseconds. */
#define THREADS_MOST 10000u

/* ---- threads ---- */

void ht_threads_free(ht_threads *t) {
    free(t->thread);
    *t = (ht_threads){0};
}

static bool add_thread(ht_automaton *a, ht_threads *to, ht_thread t) {
    if (to->n >= THREADS_MOST || !HT_GROW(to->thread, to->capacity, to->n + 1)) {
        ht_automaton_fail(a, to->n >= THREADS_MOST ? HT_ERR_LIMIT : HT_ERR_MEMORY);
        return false;
    }
    to->thread[to->n++] = t;
    to->accepts = to->accepts || a->state[t.state].may_end;
    return true;
}

bool ht_automaton_accept(ht_automaton *a, uint32_t row, uint32_t state, ht_threads *to) {
    for (uint32_t i = 0; i < a->state[state].n_accepts; i++) {
        const uint32_t next = goto_row(a, row, a->accepted[a->state[state].accepts + i]);
        if (a->status) return false;
        const ht_thread t = {next, a->row[next].start};
        to->accepts = to->accepts || a->row[next].accepts;
        if (t.state != HT_LEX_DEAD && !add_thread(a, to, t)) return false;
    }
    return true;
}

bool ht_automaton_step(ht_automaton *a, ht_thread t, uint8_t byte, ht_threads *to) {
    const uint32_t state = ht_lex_next(a, t.state, a->class_of[byte]);
    if (a->state[state].goes_on && !add_thread(a, to, (ht_thread){t.row, state})) return false;
    return ht_automaton_accept(a, t.row, state, to);
}

/* ---- configurations ---- */

static_assert(sizeof(ht_thread) == 2 * sizeof(uint32_t), "threads are pairs of words");

static uint32_t sort_threads(ht_thread *t, uint32_t n) {
    uint32_t kept = 0;
    if (n > 1) qsort(t, n, sizeof *t, by_pair);
    for (uint32_t i = 0; i < n; i++)
        if (!kept || by_pair(&t[kept - 1], &t[i]) != 0) t[kept++] = t[i];
    return kept;
}

static uint32_t configuration_of(ht_automaton *a, const ht_threads *threads) {
    const uint32_t begin = a->n_scratch;
    if (!ht_automaton_reserve(a, &a->scratch, &a->scratch_capacity, (size_t)begin + 1 + 2 * (size_t)threads->n,
                              sizeof *a->scratch))
        return 0;
    uint32_t *words = a->scratch + begin;
    words[0] = threads->accepts;
    if (threads->n) memcpy(words + 1, threads->thread, threads->n * sizeof *threads->thread);
    const uint32_t n = sort_threads((ht_thread *)(void *)(words + 1), threads->n);
    const uint32_t made = ht_intern_add(&a->configurations, words, 1 + 2 * (size_t)n, NULL);
    if (made != HT_INTERN_FAILED) return made;
    ht_automaton_fail(a, HT_ERR_MEMORY);
    return 0;
}

const ht_thread *ht_automaton_threads(const ht_automaton *a, uint32_t configuration, size_t *n) {
    const uint32_t *words = ht_intern_at(&a->configurations, configuration, n);
    *n = (*n - 1) / 2;
    return (const ht_thread *)(const void *)(words + 1);
}

bool ht_automaton_may_end(const ht_automaton *a, uint32_t configuration) {
    size_t n;
    return ht_intern_at(&a->configurations, configuration, &n)[0];
}

bool ht_automaton_is_live(const ht_automaton *a, uint32_t configuration) {
    size_t n;
    ht_automaton_threads(a, configuration, &n);
    return n || ht_automaton_may_end(a, configuration);
}

bool ht_automaton_is_free(const ht_automaton *a, uint32_t configuration) {
    size_t n;
    const ht_thread *t = ht_automaton_threads(a, configuration, &n);
    bool is_free = false;
    for (size_t i = 0; i < n && !is_free; i++) is_free = a->state[t[i].state].is_free;
    return is_free;
}

static bool load_threads(ht_automaton *a, uint32_t configuration, ht_threads *to) {
    size_t n;
    const ht_thread *first = ht_automaton_threads(a, configuration, &n);
    to->accepts = ht_automaton_may_end(a, configuration);
    for (size_t i = 0; i < n; i++)
        if (!add_thread(a, to, first[i])) return false;
    return true;
}

/* Steps all threads through a byte; `spare` gets the memory of the previous ones. */
static bool step_threads(ht_automaton *a, ht_threads *now, ht_threads *spare, uint8_t byte) {
    spare->n = 0;
    spare->accepts = false;
    for (uint32_t t = 0; t < now->n; t++)
        if (!ht_automaton_step(a, now->thread[t], byte, spare)) return false;
    spare->n = sort_threads(spare->thread, spare->n);
    const ht_threads swap = *now;
    *now = *spare;
    *spare = swap;
    return true;
}

uint32_t ht_automaton_feed(ht_automaton *a, uint32_t configuration, const char *bytes, size_t n) {
    ht_threads now = {0}, spare = {0};
    bool good = load_threads(a, configuration, &now);
    for (size_t i = 0; i < n && good && (now.n || now.accepts); i++)
        good = step_threads(a, &now, &spare, (uint8_t)bytes[i]);
    const uint32_t result = good ? configuration_of(a, &now) : 0;
    ht_threads_free(&now);
    ht_threads_free(&spare);
    return result;
}

/* The only byte that can continue the threads' texts; -1: there are several, or tokens without text are allowed. */
static int only_byte(ht_automaton *a, const ht_threads *threads) {
    int only = -1;
    for (uint32_t t = 0; t < threads->n; t++) {
        const uint32_t state = threads->thread[t].state;
        if (a->state[state].is_free) return -1;
        for (int byte = 0; byte < 256; byte++) {
            if (byte == only || ht_lex_next(a, state, a->class_of[byte]) == HT_LEX_DEAD) continue;
            if (only >= 0 || a->status) return -1;
            only = byte;
        }
    }
    return threads->accepts ? -1 : only;
}

size_t ht_automaton_forced(ht_automaton *a, uint32_t configuration, char *bytes, size_t most) {
    ht_threads now = {0}, spare = {0};
    size_t n = 0;
    bool good = load_threads(a, configuration, &now);
    while (good && n < most) {
        const int byte = only_byte(a, &now);
        if (byte < 0) break;
        good = step_threads(a, &now, &spare, (uint8_t)byte);
        bytes[n++] = (char)byte;
    }
    ht_threads_free(&now);
    ht_threads_free(&spare);
    return n;
}

/* ---- the automaton ---- */

static void build_start(ht_automaton *a, int start) {
    ht_threads threads = {0};
    const uint32_t first_production = ht_rules_first(a->rules, a->rules->start[start]);
    for (uint32_t p = first_production; p != HT_INTERN_FAILED; p = ht_rules_next(a->rules, p))
        add_item(a, a->rules->production[2 * p], ACCEPT);
    const uint32_t row = make_row(a);
    if (a->status) return;
    ht_thread first = {row, a->row[row].start};
    threads.thread = &first;
    threads.n = first.state != HT_LEX_DEAD;
    threads.accepts = a->row[row].accepts || a->state[first.state].may_end;
    a->start[start] = configuration_of(a, &threads);
}

static void build_starts(ht_automaton *a) {
    static const uint32_t of_start[] = {UINT32_MAX, UINT32_MAX}, none[] = {0};
    lex_state_of(a, 0); /* HT_LEX_DEAD */
    if (ht_intern_add(&a->continuations, of_start, 2, NULL) == HT_INTERN_FAILED ||
        ht_intern_add(&a->configurations, none, 1, NULL) == HT_INTERN_FAILED)
        ht_automaton_fail(a, HT_ERR_MEMORY);
    for (int i = 0; i < a->rules->n_starts && !a->status; i++) build_start(a, i);
}

ht_status ht_automaton_new(ht_rules *rules, ht_automaton **out, ht_error *err) {
    ht_automaton *a = *out = calloc(1, sizeof *a);
    if (!a) {
        ht_rules_free(rules);
        return ht_fail_memory(err, sizeof *a, "a grammar");
    }
    a->rules = rules;
    rules->re->search_budget = INT64_MAX;
    a->n_classes = rules->re->n_classes;
    a->class_of = rules->re->class_of;
    build_starts(a);
    const ht_status status = ht_automaton_status(a, err);
    if (!status) return HT_OK;
    ht_automaton_free(a);
    *out = NULL;
    return status;
}

void ht_automaton_free(ht_automaton *a) {
    if (!a) return;
    ht_rules_free(a->rules);
    ht_intern_free(&a->states);
    ht_intern_free(&a->kernels);
    ht_intern_free(&a->continuations);
    ht_intern_free(&a->configurations);
    ht_pair_map_free(&a->gotos);
    ht_pair_map_free(&a->seen);
    free(a->state);
    free(a->next);
    free(a->accepted);
    free(a->row);
    free(a->triple);
    free(a->scratch);
    free(a->item);
    free(a);
}

ht_status ht_automaton_status(const ht_automaton *a, ht_error *err) {
    const ht_status status = ht_rules_status(a->rules, err);
    if (status) return status;
    if (a->status == HT_ERR_MEMORY) return ht_fail_memory(err, ht_automaton_bytes(a), "the states of a grammar");
    return a->status ? ht_fail(err, a->status, "the grammar is too ambiguous: too many ways to read a text") : HT_OK;
}

ht_status ht_automaton_reset(ht_automaton *a, ht_error *err) {
    ht_intern_truncate(&a->states, 0);
    ht_intern_truncate(&a->kernels, 0);
    ht_intern_truncate(&a->continuations, 0);
    ht_intern_truncate(&a->configurations, 0);
    ht_pair_map_clear(&a->gotos);
    ht_pair_map_clear(&a->seen);
    a->n_accepted = a->n_triples = a->n_scratch = a->n_items = a->n_finds = 0;
    a->status = HT_OK;
    ht_rules_reset(a->rules);
    build_starts(a);
    return ht_automaton_status(a, err);
}

size_t ht_automaton_bytes(const ht_automaton *a) {
    return ht_rules_bytes(a->rules) + ht_intern_bytes(&a->states) + ht_intern_bytes(&a->kernels) +
           ht_intern_bytes(&a->continuations) + ht_intern_bytes(&a->configurations) + ht_pair_map_bytes(&a->gotos) +
           a->states.n * (sizeof *a->state + (size_t)a->n_classes * sizeof *a->next) + a->kernels.n * sizeof *a->row +
           a->n_triples * sizeof *a->triple;
}
