/* Derivatives of expressions by classes of bytes, and the search that finds out whether an expression has any text. */
#include "grammar/regex_store.h"

#include <stdlib.h>
#include <string.h>

/* Nesting of expressions that are derived: frames of some 100 bytes. */
#define DEPTH_MOST 4000
/* Expressions that a search for a text looks at: milliseconds. */
#define SEARCH_MOST 20000u

/* ---- classes of bytes ---- */

void ht_regexes_freeze(ht_regexes *s) {
    /* Each set splits the classes into what is in it and what is not. */
    uint16_t class_of[256] = {0};
    int n_classes = 1;
    for (uint32_t i = 0; i < s->sets.n && n_classes < 256; i++) {
        size_t n;
        ht_byte_set set;
        memcpy(set.bits, ht_intern_at(&s->sets, i, &n), sizeof set.bits);
        int inside[256], before = n_classes;
        bool outside[256] = {false};
        memset(inside, -1, sizeof inside);
        for (unsigned b = 0; b < 256; b++)
            if (!ht_byte_set_has(&set, b)) outside[class_of[b]] = true;
        for (unsigned b = 0; b < 256; b++) {
            const int c = class_of[b];
            if (!ht_byte_set_has(&set, b) || c >= before || !outside[c]) continue;
            if (inside[c] < 0) inside[c] = n_classes++;
            class_of[b] = (uint16_t)inside[c];
        }
    }
    for (unsigned b = 256; b-- > 0;) {
        s->class_of[b] = (uint8_t)class_of[b];
        s->byte_of[class_of[b]] = (uint8_t)b;
    }
    s->n_classes = n_classes;
    s->n_frozen = s->nodes.n;
    s->n_frozen_sets = s->sets.n;
}

void ht_regexes_reset(ht_regexes *s) {
    ht_intern_truncate(&s->nodes, s->n_frozen);
    ht_intern_truncate(&s->sets, s->n_frozen_sets);
    ht_pair_map_clear(&s->derivatives);
    s->n_scratch = 0;
    s->status = HT_OK;
}

int ht_regexes_n_classes(const ht_regexes *s) { return s->n_classes; }
const uint8_t *ht_regexes_class_of(const ht_regexes *s) { return s->class_of; }

/* ---- derivatives ---- */

static ht_re derive(ht_regexes *s, ht_re r, int byte_class);

static ht_re derive_concat(ht_regexes *s, ht_re a, ht_re b, int byte_class) {
    const ht_re first = ht_re_concat(s, derive(s, a, byte_class), b);
    return ht_re_is_nullable(s, a) ? ht_re_either(s, first, derive(s, b, byte_class)) : first;
}

/* Of alternatives and intersections: that of each operand. */
static ht_re derive_list(ht_regexes *s, ht_re r, int byte_class) {
    const size_t begin = s->n_scratch;
    size_t n;
    const ht_re_kind kind = (ht_re_kind)ht_re_node(s, r, &n)[0];
    for (size_t i = 1; i < n && !s->status; i++) {
        size_t same;
        ht_re_push(s, derive(s, ht_re_node(s, r, &same)[i], byte_class));
    }
    return ht_re_join_scratch(s, kind, begin);
}

static ht_re derive_node(ht_regexes *s, ht_re r, int byte_class) {
    size_t n;
    const uint32_t *node = ht_re_node(s, r, &n);
    const uint32_t a = n > 1 ? node[1] : 0, b = n > 2 ? node[2] : 0, c = n > 3 ? node[3] : 0;
    switch ((ht_re_kind)node[0]) {
    case HT_RE_KIND_NONE:
    case HT_RE_KIND_EMPTY: return HT_RE_NONE;
    case HT_RE_KIND_ALL: return HT_RE_ALL;
    case HT_RE_KIND_BYTES: {
        ht_byte_set set;
        memcpy(set.bits, ht_intern_at(&s->sets, a, &n), sizeof set.bits);
        return ht_byte_set_has(&set, s->byte_of[byte_class]) ? HT_RE_EMPTY : HT_RE_NONE;
    }
    case HT_RE_KIND_CONCAT: return derive_concat(s, a, b, byte_class);
    case HT_RE_KIND_ALTERNATIVES:
    case HT_RE_KIND_BOTH: return derive_list(s, r, byte_class);
    case HT_RE_KIND_NOT: return ht_re_not(s, derive(s, a, byte_class));
    case HT_RE_KIND_REPEAT:
        return ht_re_concat(s, derive(s, a, byte_class),
                            ht_re_repeat(s, a, b ? b - 1 : 0, c == HT_RE_UNBOUNDED ? c : c - 1));
    }
    return HT_RE_NONE;
}

static ht_re derive(ht_regexes *s, ht_re r, int byte_class) {
    if (r <= HT_RE_EMPTY || s->status) return HT_RE_NONE;
    const uint32_t known = ht_pair_map_find(&s->derivatives, r, (uint32_t)byte_class);
    if (known != HT_INTERN_FAILED) return known;
    if (s->depth >= DEPTH_MOST) return ht_re_fail(s, HT_ERR_LIMIT);
    s->depth++;
    const ht_re d = derive_node(s, r, byte_class);
    s->depth--;
    if (s->status) return HT_RE_NONE;
    return ht_pair_map_add(&s->derivatives, r, (uint32_t)byte_class, d) ? d : ht_re_fail(s, HT_ERR_MEMORY);
}

ht_re ht_re_derivative(ht_regexes *s, ht_re r, int byte_class) {
    const ht_re d = derive(s, r, byte_class);
    return ht_re_is_live(s, d) ? d : HT_RE_NONE;
}

/* ---- whether an expression has a text ---- */

/* Depth first, since expressions that accept soon are most: the expressions seen are words of the scratch stack. */
static bool search(ht_regexes *s, ht_re r) {
    ht_pair_map seen = {0};
    const size_t begin = s->n_scratch;
    size_t todo = begin; /* from here on, expressions that were not looked at */
    bool found = false;
    uint32_t n_seen = 1;
    bool good = ht_pair_map_add(&seen, r, 0, 0);
    ht_re_push(s, r);
    /* The stack keeps what was looked at below `todo`; the next one is taken from the top. */
    while (good && !found && !s->status && s->n_scratch > todo) {
        const ht_re at = s->scratch[s->n_scratch - 1];
        s->scratch[s->n_scratch - 1] = s->scratch[todo];
        s->scratch[todo++] = at;
        for (int c = 0; c < s->n_classes && good && !found && !s->status; c++) {
            const ht_re d = derive(s, at, c);
            if (d == HT_RE_NONE || s->facts[d] & HT_RE_DEAD) continue;
            found = s->facts[d] & (HT_RE_NULLABLE | HT_RE_LIVE) || !(s->facts[d] & HT_RE_BOOLEAN);
            if (found || ht_pair_map_find(&seen, d, 0) != HT_INTERN_FAILED) continue;
            good = ht_pair_map_add(&seen, d, 0, 0);
            ht_re_push(s, d);
            if (++n_seen > SEARCH_MOST) ht_re_fail(s, HT_ERR_LIMIT);
        }
    }
    if (!good) ht_re_fail(s, HT_ERR_MEMORY);
    if (!s->status && !found)
        for (size_t i = begin; i < s->n_scratch; i++) s->facts[s->scratch[i]] |= HT_RE_DEAD;
    s->n_scratch = begin;
    ht_pair_map_free(&seen);
    return found;
}

bool ht_re_is_live(ht_regexes *s, ht_re r) {
    unsigned facts = s->facts[r];
    if (facts & (HT_RE_LIVE | HT_RE_DEAD)) return facts & HT_RE_LIVE;
    /* Without intersections and complements nothing is without texts but HT_RE_NONE. */
    if (facts & (HT_RE_NULLABLE) || !(facts & HT_RE_BOOLEAN) || search(s, r)) {
        s->facts[r] |= HT_RE_LIVE;
        return true;
    }
    return false;
}
