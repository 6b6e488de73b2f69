/* The automaton's configurations: threads that are stepped through bytes together. */
#include "grammar/automaton.h"

#include "base/error.h"
#include "base/grow.h"
#include "grammar/automaton_grow.h"

#include <assert.h>
#include <string.h>

static uint32_t automaton_configuration(ht_automaton *a, const ht_threads *threads);

/* Threads of one configuration at most: so many ways to read one text that each byte would take milliseconds. */
#define THREADS_MOST 10000u

/* ---- the automaton ---- */

static void build_start(ht_automaton *a, int start) {
    ht_threads threads = {0};
    const uint32_t row = ht_automaton_first_row(a, a->rules->start[start]);
    if (a->status) return;
    ht_thread first = {row, a->row[row].start};
    threads.thread = &first;
    threads.n = first.state != HT_LEX_DEAD;
    threads.accepts = a->row[row].accepts || a->state[first.state].may_end;
    a->start[start] = automaton_configuration(a, &threads);
}

static void build_starts(ht_automaton *a) {
    static const uint32_t of_start[] = {UINT32_MAX, UINT32_MAX}, none[] = {0};
    ht_lex_state_of(a, 0); /* HT_LEX_DEAD */
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
    ht_regexes_unbound(rules->re);
    a->n_classes = ht_regexes_n_classes(rules->re);
    a->class_of = ht_regexes_class_of(rules->re);
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
        const uint32_t next = ht_automaton_goto(a, row, ht_lex_accepted(a, state)[i]);
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

static int by_thread(const void *a, const void *b) {
    const ht_thread *x = a, *y = b;
    return x->row != y->row ? (x->row > y->row) - (x->row < y->row) : (x->state > y->state) - (x->state < y->state);
}

/* Threads in order, each once. */
static uint32_t sort_threads(ht_thread *t, uint32_t n) {
    uint32_t kept = 0;
    if (n > 1) qsort(t, n, sizeof *t, by_thread);
    for (uint32_t i = 0; i < n; i++)
        if (!kept || by_thread(&t[kept - 1], &t[i]) != 0) t[kept++] = t[i];
    return kept;
}

/* The configuration of threads. */
static uint32_t automaton_configuration(ht_automaton *a, const ht_threads *threads) {
    const uint32_t begin = a->n_scratch;
    if (!ht_automaton_reserve(a, &a->scratch, &a->scratch_capacity, (size_t)begin + 1 + 2 * (size_t)threads->n,
                              sizeof *a->scratch))
        return 0;
    uint32_t *words = a->scratch + begin;
    static_assert(sizeof(ht_thread) == 2 * sizeof(uint32_t), "threads are pairs of words");
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

/* The threads of a configuration. */
static bool load_threads(ht_automaton *a, uint32_t configuration, ht_threads *to) {
    size_t n;
    const ht_thread *first = ht_automaton_threads(a, configuration, &n);
    to->accepts = ht_automaton_may_end(a, configuration);
    for (size_t i = 0; i < n; i++)
        if (!add_thread(a, to, first[i])) return false;
    return true;
}

/* Steps all threads through a byte; `spare` takes the memory of those before. */
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
    const uint32_t result = good ? automaton_configuration(a, &now) : 0;
    ht_threads_free(&now);
    ht_threads_free(&spare);
    return result;
}

/* The only byte with which the threads' texts go on; -1: there is a choice, tokens without text among it. */
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
