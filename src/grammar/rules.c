/* Rules and their productions, and the closures that find nullable and productive rules. */
#include "grammar/rules.h"

#include "base/error.h"
#include "base/grow.h"

#include <stdlib.h>
#include <string.h>

/* Symbols of all productions at most: a schema of megabytes. */
#define SYMBOLS_MOST 20000000u

static void fail(ht_rules *r, ht_status status) {
    if (!r->status) r->status = status;
}

ht_status ht_rules_status(const ht_rules *r, ht_error *err) {
    if (r->status == HT_ERR_MEMORY) return ht_fail_memory(err, ht_rules_bytes(r), "the rules of a grammar");
    if (r->status) return ht_fail(err, r->status, "the grammar is too large: more than %u symbols", SYMBOLS_MOST);
    return ht_regexes_status(r->re, err);
}

static bool check_growth(ht_rules *r, bool grown) {
    if (!grown) fail(r, HT_ERR_MEMORY);
    return grown;
}

ht_rules *ht_rules_new(void) {
    ht_rules *r = calloc(1, sizeof *r);
    if (!r) return NULL;
    r->re = ht_regexes_new();
    if (r->re) return r;
    free(r);
    return NULL;
}

void ht_rules_free(ht_rules *r) {
    if (!r) return;
    if (r->free_user) r->free_user(r->user);
    ht_regexes_free(r->re);
    ht_intern_free(&r->lexemes);
    ht_intern_free(&r->demanded);
    free(r->rule);
    free(r->production);
    free(r->symbol);
    free(r->demanded_rule);
    free(r);
}

size_t ht_rules_bytes(const ht_rules *r) {
    return ht_regexes_bytes(r->re) + ht_intern_bytes(&r->lexemes) + ht_intern_bytes(&r->demanded) +
           r->n_rules * sizeof *r->rule + r->n_productions * 2 * sizeof *r->production +
           r->n_symbols * sizeof *r->symbol + r->demanded.n * sizeof *r->demanded_rule;
}

/* ---- construction ---- */

ht_symbol ht_rules_lexeme(ht_rules *r, ht_re re) {
    const uint32_t number = ht_intern_add(&r->lexemes, &re, 1, NULL);
    if (number != HT_INTERN_FAILED) return number | HT_LEXEME_BIT;
    fail(r, HT_ERR_MEMORY);
    return HT_LEXEME_BIT;
}

ht_symbol ht_rules_free_lexeme(ht_rules *r, ht_re re, bool may_end, bool is_endless) {
    const ht_symbol lexeme = ht_rules_lexeme(r, re);
    const uint32_t number = lexeme & ~HT_LEXEME_BIT;
    if (r->status || ht_rules_is_free(r, number)) return lexeme;
    if (r->n_free_lexemes == HT_FREE_LEXEMES_MOST)
        fail(r, HT_ERR_LIMIT);
    else
        r->free_lexeme[r->n_free_lexemes++] = (ht_free_lexeme){number, may_end, is_endless};
    return lexeme;
}

const ht_free_lexeme *ht_rules_is_free(const ht_rules *r, uint32_t lexeme) {
    for (int i = 0; i < r->n_free_lexemes; i++)
        if (r->free_lexeme[i].lexeme == lexeme) return &r->free_lexeme[i];
    return NULL;
}

ht_symbol ht_rules_rule(ht_rules *r) {
    if (!check_growth(r, HT_GROW_ONE(r->rule, r->n_rules))) return 0;
    r->rule[r->n_rules] = (ht_rule){.first = HT_INTERN_FAILED, .last = HT_INTERN_FAILED, .number = HT_INTERN_FAILED};
    return r->n_rules++;
}

void ht_rules_add(ht_rules *r, ht_symbol rule, const ht_symbol *symbols, size_t n) {
    if (r->status) return;
    if (n >= SYMBOLS_MOST || r->n_symbols > SYMBOLS_MOST) {
        fail(r, HT_ERR_LIMIT);
        return;
    }
    const uint32_t need = r->n_symbols + (uint32_t)n + 1;
    if (!check_growth(r, HT_GROW(r->symbol, r->symbols_capacity, need) &&
                             ht_grow_one(&r->production, r->n_productions, 2 * sizeof *r->production)))
        return;
    const uint32_t number = r->n_productions++;
    r->production[2 * number] = r->n_symbols;
    r->production[2 * number + 1] = HT_INTERN_FAILED;
    if (n) memcpy(r->symbol + r->n_symbols, symbols, n * sizeof *symbols);
    r->symbol[need - 1] = HT_SYMBOL_END;
    r->n_symbols = need;
    ht_rule *of = &r->rule[rule];
    if (of->first == HT_INTERN_FAILED)
        of->first = number;
    else
        r->production[2 * of->last + 1] = number;
    of->last = number;
}

ht_symbol ht_rules_text(ht_rules *r, ht_re re) {
    if (!ht_re_is_nullable(r->re, re)) return ht_rules_lexeme(r, re);
    const ht_symbol rule = ht_rules_rule(r);
    const ht_re some = ht_re_without_empty(r->re, re);
    ht_rules_add(r, rule, NULL, 0);
    const ht_symbol lexeme = ht_rules_lexeme(r, some);
    if (some != HT_RE_NONE) ht_rules_add(r, rule, &lexeme, 1);
    return rule;
}

ht_symbol ht_rules_demand(ht_rules *r, const uint32_t *words, size_t n) {
    bool is_new;
    const uint32_t number = ht_intern_add(&r->demanded, words, n, &is_new);
    if (number == HT_INTERN_FAILED) {
        fail(r, HT_ERR_MEMORY);
        return 0;
    }
    if (!is_new) return r->demanded_rule[number];
    if (!check_growth(r, HT_GROW_ONE(r->demanded_rule, number))) return 0;
    const ht_symbol rule = ht_rules_rule(r);
    if (r->status) return 0;
    r->rule[rule].number = number;
    r->rule[rule].is_productive = true;
    return r->demanded_rule[number] = rule;
}

/* ---- which rules have texts ---- */

/* Whether all symbols of a production are nullable, which no lexeme is, or productive. */
static bool all_have(ht_rules *r, uint32_t at, bool nullable) {
    for (; r->symbol[at] != HT_SYMBOL_END; at++) {
        const ht_symbol s = r->symbol[at];
        size_t n;
        if (s & HT_LEXEME_BIT) {
            if (nullable || !ht_re_is_live(r->re, *ht_intern_at(&r->lexemes, s & ~HT_LEXEME_BIT, &n))) return false;
        } else if (nullable ? !r->rule[s].is_nullable : !r->rule[s].is_productive)
            return false;
    }
    return true;
}

static bool note_rule(ht_rules *r, ht_symbol rule) {
    ht_rule *of = &r->rule[rule];
    const bool nullable = of->is_nullable, productive = of->is_productive;
    for (uint32_t p = of->first; p != HT_INTERN_FAILED; p = ht_rules_next(r, p)) {
        of->is_nullable = of->is_nullable || all_have(r, r->production[2 * p], true);
        of->is_productive = of->is_productive || all_have(r, r->production[2 * p], false);
    }
    return of->is_nullable != nullable || of->is_productive != productive;
}

static void drop_unproductive(ht_rules *r, ht_symbol rule) {
    ht_rule *of = &r->rule[rule];
    uint32_t p = of->first;
    of->first = of->last = HT_INTERN_FAILED;
    while (p != HT_INTERN_FAILED) {
        const uint32_t next = ht_rules_next(r, p);
        if (all_have(r, r->production[2 * p], false)) {
            if (of->first == HT_INTERN_FAILED)
                of->first = p;
            else
                r->production[2 * of->last + 1] = p;
            of->last = p;
            r->production[2 * p + 1] = HT_INTERN_FAILED;
        }
        p = next;
    }
}

void ht_rules_finish(ht_rules *r, ht_symbol start, bool *has_text) {
    ht_regexes_freeze(r->re);
    /* Rules mostly come before those that they use: in reverse order, few rounds are needed. */
    for (bool changed = true; changed && !r->status;) {
        changed = false;
        for (uint32_t i = r->n_rules; i-- > 0;)
            if (r->rule[i].number == HT_INTERN_FAILED && note_rule(r, i)) changed = true;
    }
    for (uint32_t i = 0; i < r->n_rules; i++)
        if (r->rule[i].number == HT_INTERN_FAILED) drop_unproductive(r, i);
    r->start[0] = start;
    if (!r->n_starts) r->n_starts = 1;
    *has_text = !r->status && r->rule[start].is_productive;
    r->finished.n_rules = r->n_rules;
    r->finished.n_productions = r->n_productions;
    r->finished.n_symbols = r->n_symbols;
    r->finished.n_lexemes = r->lexemes.n;
    r->finished.n_demanded = r->demanded.n;
}

void ht_rules_reset(ht_rules *r) {
    r->n_rules = r->finished.n_rules;
    r->n_productions = r->finished.n_productions;
    r->n_symbols = r->finished.n_symbols;
    ht_intern_truncate(&r->lexemes, r->finished.n_lexemes);
    ht_intern_truncate(&r->demanded, r->finished.n_demanded);
    for (uint32_t i = 0; i < r->n_rules; i++) {
        ht_rule *of = &r->rule[i];
        if (of->number == HT_INTERN_FAILED) continue;
        of->is_expanded = false;
        of->first = of->last = HT_INTERN_FAILED;
    }
    ht_regexes_reset(r->re);
    r->status = HT_OK;
}

uint32_t ht_rules_first(ht_rules *r, ht_symbol rule) {
    const uint32_t number = r->rule[rule].number;
    if (number != HT_INTERN_FAILED && !r->rule[rule].is_expanded) {
        size_t n;
        r->rule[rule].is_expanded = true;
        const uint32_t *words = ht_intern_at(&r->demanded, number, &n);
        /* The table moves when the productions demand other rules. */
        uint32_t *copy = malloc(n * sizeof *copy + 1);
        if (!copy) {
            fail(r, HT_ERR_MEMORY);
            return HT_INTERN_FAILED;
        }
        memcpy(copy, words, n * sizeof *copy);
        r->expand(r, rule, copy, n, r->user);
        free(copy);
    }
    return r->rule[rule].first;
}
