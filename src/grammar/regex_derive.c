/* Derivatives of expressions by byte classes, and the search for a text of an expression. */
#include "base/checked.h"
#include "base/grow.h"
#include "grammar/regex.h"

#include <string.h>

/* Nesting of expressions at most: each level takes about 100 bytes of stack. */
#define DEPTH_MOST 4000
/* Derivatives of one search at most, including those of operands: half a second. */
#define SEARCH_MOST 10000000

/* ---- classes of bytes ---- */

/* Iterates over the bytes of a set; most sets have few. */
#define FOR_EACH_BYTE(b, set)                                                                                          \
    for (unsigned word_ = 0; word_ < 8; word_++)                                                                       \
        for (uint32_t bits_ = (set).bits[word_], b; bits_ && (b = word_ * 32 + (unsigned)__builtin_ctz(bits_), 1);     \
             bits_ &= bits_ - 1)

void ht_regexes_freeze(ht_regexes *s) {
    /* Each set splits the classes that it contains in part. */
    uint16_t class_of[256] = {0}, size[256] = {256};
    int n_classes = 1;
    for (uint32_t i = 0; i < s->sets.n && n_classes < 256; i++) {
        const ht_byte_set set = ht_byte_set_at(&s->sets, i);
        uint16_t has[256] = {0}, part[256] = {0};
        FOR_EACH_BYTE(b, set) has[class_of[b]]++;
        FOR_EACH_BYTE(b, set) {
            const uint16_t c = class_of[b];
            if (has[c] == size[c] || !has[c]) continue;
            if (!part[c]) part[c] = (uint16_t)n_classes++;
            class_of[b] = part[c];
        }
        for (int c = 0; c < 256; c++)
            if (part[c]) {
                size[part[c]] = has[c];
                size[c] = (uint16_t)(size[c] - has[c]);
            }
    }
    for (unsigned b = 256; b-- > 0;) {
        s->class_of[b] = (uint8_t)class_of[b];
        s->byte_of[class_of[b]] = (uint8_t)b;
    }
    s->n_classes = n_classes;
    s->n_frozen = s->nodes.n;
    s->n_frozen_sets = s->n_known_sets = s->sets.n;
    ht_pair_map_clear(&s->derivatives); /* by other classes */
}

/* Whether the set has all bytes of each class that it has any of. */
static bool is_union_of_classes(const ht_regexes *s, uint32_t number) {
    const ht_byte_set set = ht_byte_set_at(&s->sets, number);
    for (unsigned b = 0; b < 256; b++)
        if (ht_byte_set_has(&set, b) != ht_byte_set_has(&set, s->byte_of[s->class_of[b]])) return false;
    return true;
}

void ht_regexes_refine(ht_regexes *s) {
    while (s->n_classes && s->n_known_sets < s->sets.n && is_union_of_classes(s, s->n_known_sets)) s->n_known_sets++;
    if (!s->n_classes || s->n_known_sets < s->sets.n) ht_regexes_freeze(s);
}

void ht_regexes_reset(ht_regexes *s) {
    ht_intern_truncate(&s->nodes, s->n_frozen);
    ht_intern_truncate(&s->sets, s->n_frozen_sets);
    ht_pair_map_clear(&s->derivatives);
    if (s->first_capacity > s->n_frozen)
        memset(s->first + s->n_frozen, 0, (s->first_capacity - s->n_frozen) * sizeof *s->first);
    s->n_scratch = 0;
    s->status = HT_OK;
}

/* ---- first bytes ---- */

/* The bytes [8 words] with which r begins, if they are one set and *rest follows each of them, as in a literal; else
 * NULL. Most expressions are of this form, and need no cache. */
static const uint32_t *leading_set(const ht_regexes *s, ht_re r, ht_re *rest) {
    size_t n;
    const uint32_t *node = ht_re_node(s, r, &n);
    *rest = HT_RE_EMPTY;
    if (node[0] == HT_RE_KIND_CONCAT) {
        *rest = node[2];
        node = ht_re_node(s, node[1], &n);
    }
    return node[0] == HT_RE_KIND_BYTES ? ht_intern_at(&s->sets, node[1], &n) : NULL;
}

static uint32_t first_of(ht_regexes *s, ht_re r);

/* Adds the first bytes of an operand, or with `both` keeps the common ones. */
static void join_first(ht_regexes *s, ht_re r, bool both, ht_byte_set *set) {
    const uint32_t number = first_of(s, r);
    if (s->status) return;
    const ht_byte_set one = ht_byte_set_at(&s->firsts, number);
    for (int w = 0; w < 8; w++) set->bits[w] = both ? set->bits[w] & one.bits[w] : set->bits[w] | one.bits[w];
}

static ht_byte_set find_first(ht_regexes *s, ht_re r) {
    size_t n;
    const uint32_t *node = ht_re_node(s, r, &n);
    const ht_re_kind kind = (ht_re_kind)node[0];
    const uint32_t a = n > 1 ? node[1] : 0, b = n > 2 ? node[2] : 0;
    ht_byte_set set = {{0}};
    switch (kind) {
    case HT_RE_KIND_NONE:
    case HT_RE_KIND_EMPTY: break;
    case HT_RE_KIND_BYTES: return ht_byte_set_at(&s->sets, a);
    case HT_RE_KIND_CONCAT:
        join_first(s, a, false, &set);
        if (ht_re_is_nullable(s, a)) join_first(s, b, false, &set);
        break;
    case HT_RE_KIND_REPEAT: join_first(s, a, false, &set); break;
    case HT_RE_KIND_BOTH: memset(&set, 0xFF, sizeof set); /* fall through */
    case HT_RE_KIND_ALTERNATIVES:
        for (size_t i = 1; i < n && !s->status; i++) {
            size_t same;
            join_first(s, ht_re_node(s, r, &same)[i], kind == HT_RE_KIND_BOTH, &set);
        }
        break;
    default: memset(&set, 0xFF, sizeof set); break;
    }
    return set;
}

static uint32_t first_of(ht_regexes *s, ht_re r) {
    if (s->status) return 0;
    if (r >= s->first_capacity) {
        const size_t old = s->first_capacity;
        if (!HT_GROW(s->first, s->first_capacity, r + 1)) return ht_re_fail(s, HT_ERR_MEMORY);
        memset(s->first + old, 0, (s->first_capacity - old) * sizeof *s->first);
    }
    if (s->first[r]) return s->first[r] - 1;
    if (s->depth >= DEPTH_MOST) return ht_re_fail(s, HT_ERR_LIMIT);
    s->depth++;
    const ht_byte_set set = find_first(s, r);
    s->depth--;
    if (s->status) return 0; /* not cached: the failure may be reset */
    const uint32_t number = ht_intern_add(&s->firsts, set.bits, 8, NULL);
    if (number == HT_INTERN_FAILED) return ht_re_fail(s, HT_ERR_MEMORY);
    s->first[r] = number + 1;
    return number;
}

bool ht_re_may_begin(ht_regexes *s, ht_re r, int byte_class) {
    ht_re rest;
    const uint32_t *leading = leading_set(s, r, &rest);
    if (leading) return leading[s->byte_of[byte_class] >> 5] >> (s->byte_of[byte_class] & 31) & 1;
    const uint32_t number = first_of(s, r);
    if (s->status) return false;
    const ht_byte_set set = ht_byte_set_at(&s->firsts, number);
    return ht_byte_set_has(&set, s->byte_of[byte_class]);
}

void ht_re_add_first(ht_regexes *s, ht_re r, ht_byte_set *set) {
    ht_re rest;
    const uint32_t *leading = leading_set(s, r, &rest);
    if (!leading) join_first(s, r, false, set);
    for (int w = 0; w < 8 && leading; w++) set->bits[w] |= leading[w];
}

bool ht_re_split_optional(const ht_regexes *s, ht_re r, ht_re *a, ht_re *b) {
    size_t n;
    const uint32_t *node = ht_re_node(s, r, &n);
    if (node[0] != HT_RE_KIND_CONCAT || !ht_re_is_nullable(s, node[1])) return false;
    *a = node[1];
    *b = node[2];
    return true;
}

/* ---- derivatives ---- */

static ht_re derive(ht_regexes *s, ht_re r, int byte_class);

static ht_re derive_concat(ht_regexes *s, ht_re a, ht_re b, int byte_class) {
    const ht_re first = ht_re_concat(s, derive(s, a, byte_class), b);
    return ht_re_is_nullable(s, a) ? ht_re_either(s, first, derive(s, b, byte_class)) : first;
}

/* Derives each operand of alternatives or an intersection. */
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

/* A digit multiplies the number read so far by ten; after the point, one digit fewer is left. */
static ht_re derive_multiple(ht_regexes *s, const uint32_t *node, uint8_t byte) {
    const uint64_t divisor = node[1] | (uint64_t)node[2] << 32, remainder = node[3] | (uint64_t)node[4] << 32;
    const uint32_t places = node[5], left = places & ~HT_RE_BEHIND_POINT;
    const bool behind = places & HT_RE_BEHIND_POINT;
    if (byte == '.' && !behind) return ht_re_multiple_behind(s, divisor, remainder, places | HT_RE_BEHIND_POINT);
    if (byte < '0' || byte > '9') return HT_RE_NONE;
    if (behind && !left) return byte == '0' ? ht_re_multiple_behind(s, divisor, remainder, places) : HT_RE_NONE;
    return ht_re_multiple_behind(s, divisor, (remainder * 10 + (uint64_t)(byte - '0')) % divisor, places - behind);
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
        const ht_byte_set set = ht_byte_set_at(&s->sets, a);
        return ht_byte_set_has(&set, s->byte_of[byte_class]) ? HT_RE_EMPTY : HT_RE_NONE;
    }
    case HT_RE_KIND_CONCAT: return derive_concat(s, a, b, byte_class);
    case HT_RE_KIND_ALTERNATIVES:
    case HT_RE_KIND_BOTH: return derive_list(s, r, byte_class);
    case HT_RE_KIND_NOT: return ht_re_not(s, derive(s, a, byte_class));
    case HT_RE_KIND_REPEAT:
        return ht_re_concat(s, derive(s, a, byte_class),
                            ht_re_repeat(s, a, b ? b - 1 : 0, c == HT_RE_UNBOUNDED ? c : c - 1));
    case HT_RE_KIND_MULTIPLE: {
        uint32_t words[6];
        memcpy(words, node, sizeof words);
        return derive_multiple(s, words, s->byte_of[byte_class]);
    }
    }
    return HT_RE_NONE;
}

static ht_re derive(ht_regexes *s, ht_re r, int byte_class) {
    if (r <= HT_RE_EMPTY || s->status) return HT_RE_NONE;
    ht_re rest;
    s->n_derived++;
    const uint32_t *leading = leading_set(s, r, &rest);
    if (leading) {
        const uint8_t byte = s->byte_of[byte_class];
        return leading[byte >> 5] >> (byte & 31) & 1 ? rest : HT_RE_NONE;
    }
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

/* Whether the n bytes are one of r's texts. */
static bool re_matches(ht_regexes *s, ht_re r, const char *bytes, size_t n) {
    for (size_t i = 0; i < n && r != HT_RE_NONE; i++) r = derive(s, r, s->class_of[(unsigned char)bytes[i]]);
    return ht_re_is_nullable(s, r);
}

/* Digits of the longest ending that is tried. */
#define END_MOST 19

/* Whether r has one of the least texts of n digits that are a multiple of `divisor` after digits that leave `remainder`. */
static bool has_multiple(ht_regexes *s, ht_re r, uint64_t divisor, uint64_t remainder, int n) {
    uint64_t room = 1;
    char text[END_MOST + 1];
    for (int i = 0; i < n; i++) {
        remainder = remainder * 10 % divisor;
        room *= 10;
    }
    uint64_t end = remainder ? divisor - remainder : 0;
    for (int tried = 0; tried < 4 && end < room; tried++, end += divisor) {
        uint64_t rest = end;
        for (int i = n; i-- > 0; rest /= 10) text[i] = (char)('0' + rest % 10);
        if (re_matches(s, r, text, (size_t)n)) return true;
    }
    return false;
}

/* Whether an intersection has a multiple of few digits. A search would rarely hit one among many remainders. */
static bool reaches_multiple(ht_regexes *s, ht_re r) {
    size_t n, n_words;
    const uint32_t *node = ht_re_node(s, r, &n);
    if (node[0] != HT_RE_KIND_BOTH) return false;
    for (size_t i = 1; i < n; i++) {
        const uint32_t *m = ht_re_node(s, ht_re_node(s, r, &n)[i], &n_words);
        if (m[0] != HT_RE_KIND_MULTIPLE) continue;
        uint64_t divisor = m[1] | (uint64_t)m[2] << 32;
        const uint64_t remainder = m[3] | (uint64_t)m[4] << 32;
        const uint32_t places = m[5] & ~HT_RE_BEHIND_POINT;
        if (m[5] & HT_RE_BEHIND_POINT) {
            if (places <= END_MOST && has_multiple(s, r, divisor, remainder, (int)places)) return true;
            continue;
        }
        /* Whole numbers: all digits after the point are zero. */
        for (uint32_t k = 0; k < places && (divisor % 2 == 0 || divisor % 5 == 0); k++) {
            if (divisor % 2 == 0) divisor /= 2;
            if (divisor % 5 == 0) divisor /= 5;
        }
        for (int k = 0; k <= END_MOST && !s->status; k++)
            if (has_multiple(s, r, divisor, remainder % divisor, k)) return true;
    }
    return false;
}

/* Marks all expressions on the path to a live one as live. `before` maps each to its predecessor, and r to itself. */
static void mark_path(ht_regexes *s, const ht_pair_map *before, ht_re at) {
    for (;; at = ht_pair_map_find(before, at, 0)) {
        s->facts[at] |= HT_RE_LIVE;
        if (ht_pair_map_find(before, at, 0) == at) return;
    }
}

/* Depth-first search, since most expressions have a short text. The scratch stack holds the expressions seen. */
static bool search(ht_regexes *s, ht_re r) {
    ht_pair_map before = {0};
    const size_t begin = s->n_scratch;
    size_t pending = begin; /* unvisited expressions begin here */
    const int64_t n_derived = s->n_derived, most = ht_min_i64(s->search_budget, SEARCH_MOST);
    bool found = false;
    bool good = ht_pair_map_add(&before, r, 0, r);
    ht_re_push(s, r);
    /* Visited expressions are below `pending`; the next one comes from the top. */
    while (good && !found && !s->status && s->n_scratch > pending) {
        const ht_re at = s->scratch[s->n_scratch - 1];
        s->scratch[s->n_scratch - 1] = s->scratch[pending];
        s->scratch[pending++] = at;
        for (int c = 0; c < s->n_classes && good && !found && !s->status; c++) {
            const ht_re d = derive(s, at, c);
            if (s->n_derived - n_derived > most) ht_re_fail(s, HT_ERR_LIMIT);
            if (s->status || d == HT_RE_NONE || s->facts[d] & HT_RE_DEAD) continue;
            found = s->facts[d] & (HT_RE_NULLABLE | HT_RE_LIVE) || !(s->facts[d] & HT_RE_BOOLEAN);
            if (found) mark_path(s, &before, at);
            if (found || ht_pair_map_find(&before, d, 0) != HT_INTERN_FAILED) continue;
            good = ht_pair_map_add(&before, d, 0, at);
            ht_re_push(s, d);
        }
    }
    if (!good) ht_re_fail(s, HT_ERR_MEMORY);
    if (s->search_budget != INT64_MAX) s->search_budget -= ht_min_i64(s->search_budget, s->n_derived - n_derived);
    if (!s->status && !found)
        for (size_t i = begin; i < s->n_scratch; i++) s->facts[s->scratch[i]] |= HT_RE_DEAD;
    s->n_scratch = begin;
    ht_pair_map_free(&before);
    return found;
}

bool ht_re_liveness_is_known(const ht_regexes *s, ht_re r) {
    return s->facts[r] & (HT_RE_LIVE | HT_RE_DEAD | HT_RE_NULLABLE) || !(s->facts[r] & HT_RE_BOOLEAN);
}

/* Whether one of the alternatives has a text. */
static bool any_is_live(ht_regexes *s, ht_re r) {
    size_t n;
    bool live = false;
    ht_re_node(s, r, &n);
    for (size_t i = 1; i < n && !live && !s->status; i++) {
        size_t same;
        live = ht_re_is_live(s, ht_re_node(s, r, &same)[i]);
    }
    return live;
}

/* Whether each part of a concatenation has a text. Long ones are nested in their last operand, each of which is noted. */
static bool all_are_live(ht_regexes *s, ht_re r) {
    size_t n;
    const uint32_t *node = ht_re_node(s, r, &n);
    const ht_re whole = r;
    bool live = true;
    for (; live && node[0] == HT_RE_KIND_CONCAT && !(s->facts[r] & HT_RE_LIVE); node = ht_re_node(s, r, &n)) {
        const ht_re first = node[1];
        r = node[2];
        live = ht_re_is_live(s, first);
    }
    live = live && ht_re_is_live(s, r);
    node = ht_re_node(s, whole, &n);
    for (ht_re of = whole; live && of != r; node = ht_re_node(s, of, &n)) {
        s->facts[of] |= HT_RE_LIVE;
        of = node[2];
    }
    return live;
}

/* Checks parts of concatenations and alternatives one by one: a search would try all combinations of their texts. */
static bool find_live(ht_regexes *s, ht_re r) {
    size_t n;
    const uint32_t *node = ht_re_node(s, r, &n);
    switch ((ht_re_kind)node[0]) {
    case HT_RE_KIND_ALTERNATIVES: return any_is_live(s, r);
    case HT_RE_KIND_CONCAT: return all_are_live(s, r);
    case HT_RE_KIND_REPEAT: return ht_re_is_live(s, node[1]);
    default: return reaches_multiple(s, r) || search(s, r);
    }
}

bool ht_re_is_live(ht_regexes *s, ht_re r) {
    const unsigned facts = s->facts[r];
    if (facts & (HT_RE_LIVE | HT_RE_DEAD)) return facts & HT_RE_LIVE;
    /* Without intersections and complements, only HT_RE_NONE has no text. */
    bool live = facts & HT_RE_NULLABLE || !(facts & HT_RE_BOOLEAN);
    if (!live && s->depth >= DEPTH_MOST) ht_re_fail(s, HT_ERR_LIMIT);
    s->depth++;
    live = live || (!s->status && find_live(s, r));
    s->depth--;
    if (!s->status) s->facts[r] |= live ? HT_RE_LIVE : HT_RE_DEAD;
    return live;
}
