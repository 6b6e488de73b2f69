/* Grammars and matchers (hearth/grammar.h). A lock guards automaton and masks; matchers survive their reset. */
#include "grammar/grammar.h"

#include "base/checked.h"
#include "base/error.h"
#include "base/grow.h"
#include "grammar/masks.h"
#include "models/model.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

/* Budget for the automaton and its masks, in bytes: thousands of masks. */
#define BUDGET ((size_t)64 << 20)

struct ht_grammar {
    _Atomic int refs;
    pthread_mutex_t lock; /* guards all fields below */
    ht_automaton *automaton;
    ht_masks *masks;
    const ht_token_trie *trie;
    int32_t *ending; /* [n_ending] */
    int n_ending;
    ht_spelled_token *spelled; /* texts are the tokenizer's; NULL: none */
    ht_model *model;           /* NULL: none */
    size_t budget, base;       /* `budget`: bytes beyond `base`, those of the grammar and of texts read again */
    uint64_t generation;       /* number of resets */
};

struct ht_matcher {
    ht_grammar *g;
    ht_grammar_start start;
    uint64_t generation;     /* of the configurations */
    int32_t *token;          /* [n] */
    uint32_t *configuration; /* [n + 1] before each token and after the last one */
    size_t n, capacity;
    uint32_t *mask; /* [n_words] */
};

/* ---- grammars ---- */

ht_grammar *ht_grammar_retain(ht_grammar *g) {
    atomic_fetch_add(&g->refs, 1);
    return g;
}

void ht_grammar_free(ht_grammar *g) {
    if (!g || atomic_fetch_sub(&g->refs, 1) != 1) return;
    ht_masks_free(g->masks);
    ht_automaton_free(g->automaton);
    ht_model_free(g->model);
    pthread_mutex_destroy(&g->lock);
    free(g->ending);
    free(g->spelled);
    free(g);
}

ht_status ht_grammar_new(ht_rules *rules, const ht_token_trie *trie, const int32_t *ending, int n_ending,
                         ht_model *holds, ht_grammar **out, ht_error *err) {
    ht_grammar *g = calloc(1, sizeof *g);
    *out = NULL;
    if (!g) {
        ht_rules_free(rules);
        return ht_fail_memory(err, sizeof *g, "a grammar");
    }
    atomic_init(&g->refs, 1);
    pthread_mutex_init(&g->lock, NULL);
    g->trie = trie;
    g->budget = BUDGET;
    g->ending = malloc(((size_t)n_ending + 1) * sizeof *g->ending);
    g->n_ending = g->ending ? n_ending : 0;
    if (g->n_ending) memcpy(g->ending, ending, (size_t)n_ending * sizeof *ending);
    ht_status status = ht_automaton_new(rules, &g->automaton, err);
    if (!status && !g->ending) status = ht_fail_memory(err, sizeof *g->ending, "a grammar");
    if (!status) status = ht_masks_new(g->automaton, trie, g->ending, n_ending, &g->masks, err);
    if (status) {
        ht_grammar_free(g);
        return status;
    }
    g->base = ht_automaton_bytes(g->automaton);
    g->model = holds ? ht_model_retain(holds) : NULL;
    *out = g;
    return HT_OK;
}

bool ht_grammar_is_for(const ht_grammar *g, const ht_model *m) { return g->model == m; }

size_t ht_grammar_mask_words(const ht_grammar *g) { return g->trie->n_words; }

void ht_grammar_set_budget(ht_grammar *g, size_t bytes) {
    pthread_mutex_lock(&g->lock);
    g->budget = bytes;
    pthread_mutex_unlock(&g->lock);
}

static bool is_ending(const ht_grammar *g, int32_t token) {
    for (int i = 0; i < g->n_ending; i++)
        if (g->ending[i] == token) return true;
    return false;
}

ht_status ht_grammar_spell(ht_grammar *g, const ht_tokenizer *t, const char *texts, ht_error *err) {
    int n = 0;
    for (int pass = 0; pass < 2; pass++) {
        n = 0;
        for (int32_t id = 0; id < ht_tokenizer_vocab_size(t) && id < g->trie->n_tokens; id++) {
            const char *text = ht_tokenizer_is_special(t, id) ? ht_tokenizer_piece(t, id) : NULL;
            if (!text || !*text || is_ending(g, id) || !strstr(texts, text)) continue;
            if (pass) g->spelled[n] = (ht_spelled_token){id, text};
            n++;
        }
        if (!pass && !(g->spelled = calloc((size_t)n + 1, sizeof *g->spelled)))
            return ht_fail_memory(err, (size_t)n * sizeof *g->spelled, "a grammar");
    }
    ht_masks_spell(g->masks, g->spelled, n);
    return HT_OK;
}

/* ---- matchers: all with the grammar's lock ---- */

static uint32_t behind(const ht_grammar *g, uint32_t configuration, int32_t token) {
    size_t n;
    const char *text = ht_masks_text(g->masks, token, &n);
    if (n) return ht_automaton_feed(g->automaton, configuration, text, n);
    return ht_automaton_is_free(g->automaton, configuration) ? configuration : 0;
}

/* Recomputes the configurations of the text after a reset. */
static ht_status catch_up(ht_matcher *m, ht_error *err) {
    ht_grammar *g = m->g;
    if (m->generation == g->generation) return HT_OK;
    const size_t before = ht_automaton_bytes(g->automaton);
    m->configuration[0] = g->automaton->start[m->start];
    for (size_t i = 0; i < m->n; i++) m->configuration[i + 1] = behind(g, m->configuration[i], m->token[i]);
    m->generation = g->generation;
    g->base += ht_automaton_bytes(g->automaton) - before; /* a long text may need more than the budget by itself */
    return ht_automaton_status(g->automaton, err);
}

/* Resets automaton and masks when they exceed the budget, or after a failure, which others must not see. */
static ht_status make_room(ht_grammar *g, ht_error *err) {
    const bool failed = ht_automaton_status(g->automaton, NULL) != HT_OK;
    if (!failed && ht_automaton_bytes(g->automaton) + ht_masks_bytes(g->masks) <= g->base + g->budget) return HT_OK;
    ht_masks_reset(g->masks);
    g->generation++;
    const ht_status status = ht_automaton_reset(g->automaton, err);
    g->base = ht_automaton_bytes(g->automaton);
    return status;
}

ht_status ht_matcher_new(ht_grammar *g, ht_matcher **out, ht_error *err) {
    return ht_matcher_new_at(g, HT_START_TEXT, out, err);
}

ht_status ht_matcher_new_at(ht_grammar *g, ht_grammar_start start, ht_matcher **out, ht_error *err) {
    ht_matcher *m = *out = calloc(1, sizeof *m);
    if (!m) return ht_fail_memory(err, sizeof *m, "a matcher");
    m->start = (int)start < g->automaton->rules->n_starts ? start : HT_START_TEXT;
    m->g = ht_grammar_retain(g);
    m->capacity = 64;
    m->token = malloc(m->capacity * sizeof *m->token);
    m->configuration = malloc((m->capacity + 1) * sizeof *m->configuration);
    m->mask = malloc((g->trie->n_words + 1) * sizeof *m->mask);
    if (m->token && m->configuration && m->mask) {
        m->generation = UINT64_MAX;
        return HT_OK;
    }
    ht_matcher_free(m);
    *out = NULL;
    return ht_fail_memory(err, sizeof *m, "a matcher");
}

void ht_matcher_free(ht_matcher *m) {
    if (!m) return;
    ht_grammar_free(m->g);
    free(m->token);
    free(m->configuration);
    free(m->mask);
    free(m);
}

size_t ht_matcher_length(const ht_matcher *m) { return m->n; }

static ht_status begin(ht_matcher *m, ht_error *err) {
    pthread_mutex_lock(&m->g->lock);
    const ht_status status = make_room(m->g, err);
    return status ? status : catch_up(m, err);
}

ht_status ht_matcher_mask(ht_matcher *m, const uint32_t **mask, ht_error *err) {
    *mask = NULL;
    ht_status status = begin(m, err);
    if (!status) status = ht_masks_of(m->g->masks, m->configuration[m->n], m->mask, err);
    pthread_mutex_unlock(&m->g->lock);
    if (!status) *mask = m->mask;
    return status;
}

static bool reserve(ht_matcher *m) {
    if (m->n < m->capacity) return true;
    if (!HT_RESIZE(m->token, 2 * m->capacity) || !HT_RESIZE(m->configuration, 2 * m->capacity + 1)) return false;
    m->capacity *= 2;
    return true;
}

ht_status ht_matcher_accept(ht_matcher *m, int32_t token, bool *allowed, ht_error *err) {
    ht_grammar *g = m->g;
    *allowed = false;
    if (token < 0 || token >= g->trie->n_tokens) return HT_OK;
    if (!reserve(m)) return ht_fail_memory(err, m->capacity * sizeof *m->token, "a matcher");
    ht_status status = begin(m, err);
    if (!status && is_ending(g, token))
        *allowed = ht_automaton_may_end(g->automaton, m->configuration[m->n]);
    else if (!status) {
        const uint32_t next = behind(g, m->configuration[m->n], token);
        status = ht_automaton_status(g->automaton, err);
        *allowed = !status && ht_automaton_is_live(g->automaton, next);
        if (*allowed) {
            m->token[m->n++] = token;
            m->configuration[m->n] = next;
        }
    }
    pthread_mutex_unlock(&g->lock);
    return status;
}

ht_status ht_matcher_ending(ht_matcher *m, ht_ending *ending, ht_error *err) {
    size_t n;
    const ht_status status = begin(m, err);
    *ending = HT_ENDING_NOT;
    if (!status && ht_automaton_may_end(m->g->automaton, m->configuration[m->n])) {
        ht_automaton_threads(m->g->automaton, m->configuration[m->n], &n);
        *ending = n ? HT_ENDING_MAY : HT_ENDING_MUST;
    }
    pthread_mutex_unlock(&m->g->lock);
    return status;
}

ht_status ht_matcher_truncate(ht_matcher *m, size_t n, ht_error *err) {
    if (n > m->n) return ht_fail(err, HT_ERR_ARGUMENT, "%zu tokens of a text that has %zu", n, m->n);
    m->n = n;
    return HT_OK;
}

/* ---- lookahead ---- */

ht_status ht_matcher_forced(ht_matcher *m, char *bytes, size_t most, size_t *n, ht_error *err) {
    const ht_grammar *g = m->g;
    *n = 0;
    ht_status status = begin(m, err);
    if (!status) {
        *n = ht_automaton_forced(g->automaton, m->configuration[m->n], bytes, most);
        status = ht_automaton_status(g->automaton, err);
    }
    for (size_t i = 0; i < *n; i++)
        if (ht_masks_spells(g->masks, bytes[i])) *n = i;
    pthread_mutex_unlock(&m->g->lock);
    return status;
}

void ht_matcher_missing(ht_matcher *m, const int32_t *token, int n, ht_mask_places *out) {
    ht_grammar *g = m->g;
    *out = (ht_mask_places){.g = g};
    if (!begin(m, NULL)) {
        uint32_t at = m->configuration[m->n];
        out->generation = g->generation;
        for (int i = 0; i <= n && i < HT_MASK_PLACES_MOST; i++) {
            if (i && (token[i - 1] < 0 || token[i - 1] >= g->trie->n_tokens)) break;
            if (i) at = behind(g, at, token[i - 1]);
            if (ht_automaton_status(g->automaton, NULL) || !ht_automaton_is_live(g->automaton, at)) break;
            if (!ht_masks_has(g->masks, at)) out->configuration[out->n++] = at;
        }
    }
    pthread_mutex_unlock(&g->lock);
}

void ht_grammar_find_mask(const ht_mask_places *places, int i) {
    ht_grammar *g = places->g;
    pthread_mutex_lock(&g->lock);
    /* After a failure the automaton is invalid until a matcher resets it. */
    if (g->generation == places->generation && !ht_automaton_status(g->automaton, NULL))
        (void)ht_masks_of(g->masks, places->configuration[i], NULL, NULL);
    pthread_mutex_unlock(&g->lock);
}

/* ---- answers ---- */

/* A matcher with fewer tokens than the answer has rejected one. */
struct ht_answer_matcher {
    ht_matcher *text;
    ht_matcher *calls;   /* NULL: none */
    ht_matcher *no_call; /* with `calls`: text that does not begin as a call */
    size_t n;            /* tokens */
    uint32_t *mask;      /* [n_words] of both; NULL without `calls` */
    size_t n_words;
};

static bool is_live(const ht_matcher *one, size_t n) { return one && ht_matcher_length(one) == n; }

ht_status ht_answer_matcher_new(ht_grammar *text, ht_grammar *calls, ht_grammar_start start, ht_answer_matcher **out,
                                ht_error *err) {
    ht_answer_matcher *m = *out = calloc(1, sizeof *m);
    if (!m) return ht_fail_memory(err, sizeof *m, "a matcher");
    ht_status status = ht_matcher_new_at(text, start, &m->text, err);
    if (!status && calls) {
        const ht_grammar_start no_call = (ht_grammar_start)(HT_START_NO_CALL + start);
        status = ht_matcher_new_at(calls, start, &m->calls, err);
        if (!status) status = ht_matcher_new_at(calls, no_call, &m->no_call, err);
        m->n_words = ht_grammar_mask_words(calls);
        m->mask = malloc((m->n_words + 1) * sizeof *m->mask);
        if (!status && !m->mask) status = ht_fail_memory(err, m->n_words * sizeof *m->mask, "a matcher");
    }
    if (!status) return HT_OK;
    ht_answer_matcher_free(m);
    *out = NULL;
    return status;
}

void ht_answer_matcher_free(ht_answer_matcher *m) {
    if (!m) return;
    ht_matcher_free(m->text);
    ht_matcher_free(m->calls);
    ht_matcher_free(m->no_call);
    free(m->mask);
    free(m);
}

size_t ht_answer_matcher_length(const ht_answer_matcher *m) { return m->n; }

ht_status ht_answer_matcher_mask(ht_answer_matcher *m, const uint32_t **mask, ht_error *err) {
    const uint32_t *text, *calls, *no_call;
    if (!is_live(m->calls, m->n)) return ht_matcher_mask(m->text, mask, err);
    if (!is_live(m->text, m->n)) return ht_matcher_mask(m->calls, mask, err);
    *mask = NULL;
    ht_status status = ht_matcher_mask(m->text, &text, err);
    if (!status) status = ht_matcher_mask(m->calls, &calls, err);
    if (!status) status = ht_matcher_mask(m->no_call, &no_call, err);
    if (status) return status;
    for (size_t w = 0; w < m->n_words; w++) m->mask[w] = calls[w] | (text[w] & no_call[w]);
    *mask = m->mask;
    return HT_OK;
}

/* Appends a token to the alternatives that allow it. */
static ht_status accept(ht_answer_matcher *m, int32_t token, bool *allowed, ht_error *err) {
    const bool calls = is_live(m->calls, m->n);
    bool is_call = false, is_text = is_live(m->text, m->n);
    ht_status status = calls ? ht_matcher_accept(m->calls, token, &is_call, err) : HT_OK;
    if (!status && calls && is_text) status = ht_matcher_accept(m->no_call, token, &is_text, err);
    if (!status && is_text) status = ht_matcher_accept(m->text, token, &is_text, err);
    *allowed = !status && (is_call || is_text);
    return status;
}

static void take_back(ht_matcher *one, size_t n) {
    if (one && ht_matcher_length(one) > n) (void)ht_matcher_truncate(one, n, NULL);
}

void ht_answer_matcher_truncate(ht_answer_matcher *m, size_t n) {
    m->n = ht_min_size(m->n, n);
    take_back(m->text, m->n);
    take_back(m->calls, m->n);
    take_back(m->no_call, m->n);
}

ht_status ht_answer_matcher_accept(ht_answer_matcher *m, int32_t token, bool *allowed, ht_error *err) {
    const ht_status status = accept(m, token, allowed, err);
    /* A token that ends the text is appended to neither matcher. */
    if (*allowed && (is_live(m->text, m->n + 1) || is_live(m->calls, m->n + 1)))
        m->n++;
    else
        ht_answer_matcher_truncate(m, m->n);
    return status;
}

ht_status ht_answer_matcher_ending(ht_answer_matcher *m, ht_ending *ending, ht_error *err) {
    ht_ending calls;
    if (!is_live(m->calls, m->n)) return ht_matcher_ending(m->text, ending, err);
    if (!is_live(m->text, m->n)) return ht_matcher_ending(m->calls, ending, err);
    ht_status status = ht_matcher_ending(m->text, ending, err);
    if (!status) status = ht_matcher_ending(m->calls, &calls, err);
    if (!status && calls != *ending) *ending = HT_ENDING_MAY;
    return status;
}

bool ht_answer_matcher_is_text(const ht_answer_matcher *m, size_t n) {
    return m->calls && ht_matcher_length(m->calls) < ht_min_size(m->n, n);
}

ht_status ht_answer_matcher_forced(ht_answer_matcher *m, char *bytes, size_t most, size_t *n, ht_error *err) {
    if (!is_live(m->calls, m->n)) return ht_matcher_forced(m->text, bytes, most, n, err);
    ht_status status = ht_matcher_forced(m->calls, bytes, most, n, err);
    if (status || !*n || !is_live(m->text, m->n)) return status;
    /* The common prefix of both. */
    char *text = malloc(*n);
    size_t n_text = 0, same = 0;
    if (!text) return ht_fail_memory(err, *n, "a text that is forced");
    status = ht_matcher_forced(m->text, text, *n, &n_text, err);
    while (same < n_text && same < *n && text[same] == bytes[same]) same++;
    free(text);
    *n = same;
    return status;
}

void ht_answer_matcher_missing(ht_answer_matcher *m, const int32_t *token, int n, ht_answer_places *out) {
    ht_matcher *const all[HT_ANSWER_TEXTS] = {m->text, m->calls, m->no_call};
    out->n = 0;
    for (int i = 0; i < HT_ANSWER_TEXTS; i++) {
        if (!is_live(all[i], m->n)) continue;
        ht_matcher_missing(all[i], token, n, &out->of[out->n]);
        if (out->of[out->n].n) out->n++;
    }
}
