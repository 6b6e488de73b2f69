/* Construction of expressions: each is simplified, so that derivatives of one expression are finitely many. */
#include "grammar/regex.h"

#include "base/error.h"
#include "base/grow.h"

#include <stdlib.h>
#include <string.h>

void ht_byte_set_add(ht_byte_set *s, unsigned first, unsigned last) {
    for (unsigned b = first; b <= last && b < 256; b++) s->bits[b >> 5] |= 1u << (b & 31);
}

/* ---- the store ---- */

/* Expressions of one grammar at most: 64 bytes and more each. */
#define NODES_MOST 1000000u
/* Derivatives of all searches during construction at most: some seconds. */
#define SEARCHES_MOST INT64_C(100000000)

ht_re ht_re_fail(ht_regexes *s, ht_status status) {
    if (!s->status) s->status = status;
    return HT_RE_NONE;
}

ht_status ht_regexes_status(const ht_regexes *s, ht_error *err) {
    if (s->status == HT_ERR_MEMORY) return ht_fail_memory(err, ht_regexes_bytes(s), "regular expressions");
    return s->status ? ht_fail(err, s->status,
                               "the grammar is too complex: its regular expressions take too many states or are nested "
                               "too deeply")
                     : HT_OK;
}

/* The expression of a kind with its operands, and with facts if it is a new one. */
static ht_re re_make(ht_regexes *s, const uint32_t *words, size_t n, unsigned facts) {
    bool is_new;
    if (s->status) return HT_RE_NONE;
    if (s->nodes.n >= NODES_MOST) return ht_re_fail(s, HT_ERR_LIMIT);
    if (!HT_GROW(s->facts, s->facts_capacity, s->nodes.n + 1)) return ht_re_fail(s, HT_ERR_MEMORY);
    const uint32_t number = ht_intern_add(&s->nodes, words, n, &is_new);
    if (number == HT_INTERN_FAILED) return ht_re_fail(s, HT_ERR_MEMORY);
    if (is_new) s->facts[number] = (uint8_t)facts;
    return number;
}

ht_regexes *ht_regexes_new(void) {
    ht_regexes *s = calloc(1, sizeof *s);
    if (!s) return NULL;
    s->search_budget = SEARCHES_MOST;
    for (uint32_t kind = HT_RE_KIND_NONE; kind <= HT_RE_KIND_ALL; kind++)
        re_make(s, &kind, 1, kind == HT_RE_KIND_NONE ? HT_RE_DEAD : HT_RE_NULLABLE | HT_RE_LIVE);
    if (!s->status) return s;
    ht_regexes_free(s);
    return NULL;
}

void ht_regexes_free(ht_regexes *s) {
    if (!s) return;
    ht_intern_free(&s->nodes);
    ht_intern_free(&s->sets);
    ht_intern_free(&s->firsts);
    free(s->first);
    ht_pair_map_free(&s->derivatives);
    free(s->facts);
    free(s->scratch);
    free(s);
}

size_t ht_regexes_bytes(const ht_regexes *s) {
    return ht_intern_bytes(&s->nodes) + ht_intern_bytes(&s->sets) + ht_intern_bytes(&s->firsts) +
           ht_pair_map_bytes(&s->derivatives) + s->nodes.n * (sizeof *s->facts + sizeof *s->first);
}

void ht_re_push(ht_regexes *s, uint32_t word) {
    if (!HT_GROW(s->scratch, s->scratch_capacity, s->n_scratch + 1)) {
        ht_re_fail(s, HT_ERR_MEMORY);
        return;
    }
    s->scratch[s->n_scratch++] = word;
}

static unsigned facts_of(const ht_regexes *s, ht_re r) { return s->facts[r]; }

bool ht_re_is_nullable(const ht_regexes *s, ht_re r) { return facts_of(s, r) & HT_RE_NULLABLE; }

bool ht_re_is_endless(const ht_regexes *s, ht_re r) {
    size_t n;
    const uint32_t *node = ht_re_node(s, r, &n);
    switch ((ht_re_kind)node[0]) {
    case HT_RE_KIND_NONE:
    case HT_RE_KIND_EMPTY:
    case HT_RE_KIND_BYTES: return false;
    case HT_RE_KIND_REPEAT: return node[3] == HT_RE_UNBOUNDED || ht_re_is_endless(s, node[1]);
    case HT_RE_KIND_CONCAT: return ht_re_is_endless(s, node[1]) || ht_re_is_endless(s, node[2]);
    case HT_RE_KIND_ALTERNATIVES:
    case HT_RE_KIND_BOTH:
        for (size_t i = 1; i < n; i++)
            if (ht_re_is_endless(s, node[i])) return true;
        return false;
    default: return true;
    }
}

/* ---- bytes and texts ---- */

ht_re ht_re_bytes(ht_regexes *s, const ht_byte_set *set) {
    static const ht_byte_set empty;
    if (memcmp(set, &empty, sizeof empty) == 0) return HT_RE_NONE;
    const uint32_t number = ht_intern_add(&s->sets, set->bits, 8, NULL);
    if (number == HT_INTERN_FAILED) return ht_re_fail(s, HT_ERR_MEMORY);
    return re_make(s, (uint32_t[]){HT_RE_KIND_BYTES, number}, 2, HT_RE_LIVE);
}

ht_re ht_re_byte_range(ht_regexes *s, unsigned first, unsigned last) {
    ht_byte_set set = {{0}};
    ht_byte_set_add(&set, first, last);
    return ht_re_bytes(s, &set);
}

ht_re ht_re_text(ht_regexes *s, const char *bytes, size_t n) {
    ht_re r = HT_RE_EMPTY;
    while (n--) r = ht_re_concat(s, ht_re_byte_range(s, (unsigned char)bytes[n], (unsigned char)bytes[n]), r);
    return r;
}

static ht_re concat_two(ht_regexes *s, ht_re a, ht_re b) {
    if (a == HT_RE_NONE || b == HT_RE_NONE) return HT_RE_NONE;
    if (a == HT_RE_EMPTY) return b;
    if (b == HT_RE_EMPTY) return a;
    const unsigned fa = facts_of(s, a), fb = facts_of(s, b);
    unsigned facts = (fa & fb & (HT_RE_NULLABLE | HT_RE_LIVE)) | ((fa | fb) & HT_RE_BOOLEAN);
    if ((fa | fb) & HT_RE_DEAD) return HT_RE_NONE;
    return re_make(s, (uint32_t[]){HT_RE_KIND_CONCAT, a, b}, 3, facts);
}

ht_re ht_re_concat(ht_regexes *s, ht_re a, ht_re b) {
    if (s->status) return HT_RE_NONE;
    if (a == HT_RE_EMPTY) return b;
    /* (x y) b is x (y b): the parts of a are joined to b from the last one on. */
    const size_t begin = s->n_scratch;
    size_t n;
    const uint32_t *node = ht_re_node(s, a, &n);
    for (; node[0] == HT_RE_KIND_CONCAT; node = ht_re_node(s, a, &n)) {
        ht_re_push(s, node[1]);
        a = node[2];
    }
    ht_re r = concat_two(s, a, b);
    while (s->n_scratch > begin) r = concat_two(s, s->scratch[--s->n_scratch], r);
    return s->status ? HT_RE_NONE : r;
}

/* ---- alternatives and intersections ---- */

static void flatten(ht_regexes *s, ht_re_kind kind, size_t begin) {
    for (size_t i = begin; i < s->n_scratch && !s->status;) {
        size_t n;
        const uint32_t *node = ht_re_node(s, s->scratch[i], &n);
        if (node[0] != (uint32_t)kind) {
            i++;
            continue;
        }
        const ht_re of = s->scratch[i];
        s->scratch[i] = s->scratch[--s->n_scratch];
        for (size_t k = 1; k < n; k++) ht_re_push(s, ht_re_node(s, of, &n)[k]);
    }
}

static void join_sets(ht_regexes *s, ht_re_kind kind, size_t begin) {
    ht_byte_set all, one;
    size_t kept = begin, n;
    int n_sets = 0;
    for (size_t i = begin; i < s->n_scratch; i++) {
        const uint32_t *node = ht_re_node(s, s->scratch[i], &n);
        if (node[0] != HT_RE_KIND_BYTES) {
            s->scratch[kept++] = s->scratch[i];
            continue;
        }
        one = ht_byte_set_at(&s->sets, node[1]);
        for (int w = 0; w < 8; w++)
            all.bits[w] = !n_sets                   ? one.bits[w]
                          : kind == HT_RE_KIND_BOTH ? all.bits[w] & one.bits[w]
                                                    : all.bits[w] | one.bits[w];
        n_sets++;
    }
    s->n_scratch = kept;
    if (n_sets) ht_re_push(s, ht_re_bytes(s, &all));
}

/* Drops neutral operands. True when one operand decides the result, *out. */
static bool drop_neutral(ht_regexes *s, ht_re_kind kind, size_t begin, ht_re *out) {
    const bool both = kind == HT_RE_KIND_BOTH;
    bool all_nullable = true, other_nullable = false;
    size_t kept = begin;
    *out = both ? HT_RE_NONE : HT_RE_ALL;
    for (size_t i = begin; i < s->n_scratch; i++) {
        const ht_re r = s->scratch[i];
        const unsigned facts = facts_of(s, r);
        if (both ? facts & HT_RE_DEAD : r == HT_RE_ALL) return true;
        if (both ? r == HT_RE_ALL : facts & HT_RE_DEAD) continue;
        all_nullable = all_nullable && facts & HT_RE_NULLABLE;
        other_nullable = other_nullable || (r != HT_RE_EMPTY && facts & HT_RE_NULLABLE);
        s->scratch[kept++] = r;
    }
    s->n_scratch = kept;
    for (size_t i = begin; i < s->n_scratch; i++) {
        if (s->scratch[i] != HT_RE_EMPTY) continue;
        if (both) {
            *out = all_nullable ? HT_RE_EMPTY : HT_RE_NONE;
            return true;
        }
        if (other_nullable) s->scratch[i] = s->scratch[--s->n_scratch];
        break;
    }
    return false;
}

ht_re ht_re_join_scratch(ht_regexes *s, ht_re_kind kind, size_t begin) {
    ht_re result;
    flatten(s, kind, begin);
    if (!s->status) join_sets(s, kind, begin);
    const bool decided = drop_neutral(s, kind, begin, &result);
    const size_t n = s->n_scratch > begin ? ht_sort_words(s->scratch + begin, s->n_scratch - begin) : 0;
    s->n_scratch = begin + n;
    const bool both = kind == HT_RE_KIND_BOTH;
    unsigned facts = both ? HT_RE_NULLABLE | HT_RE_BOOLEAN : 0, f;
    for (size_t i = begin; i < s->n_scratch; i++) {
        f = facts_of(s, s->scratch[i]);
        facts = both ? facts & (f | HT_RE_BOOLEAN) : facts | (f & (HT_RE_NULLABLE | HT_RE_BOOLEAN | HT_RE_LIVE));
    }
    if (facts & HT_RE_NULLABLE) facts |= HT_RE_LIVE;
    if (!decided) {
        if (n == 0)
            result = both ? HT_RE_ALL : HT_RE_NONE;
        else if (n == 1)
            result = s->scratch[begin];
        else {
            ht_re_push(s, 0);
            if (!s->status) {
                memmove(s->scratch + begin + 1, s->scratch + begin, n * sizeof *s->scratch);
                s->scratch[begin] = (uint32_t)kind;
                result = re_make(s, s->scratch + begin, n + 1, facts);
            }
        }
    }
    s->n_scratch = begin;
    return s->status ? HT_RE_NONE : result;
}

static ht_re join(ht_regexes *s, ht_re_kind kind, const ht_re *list, size_t n) {
    if (s->status) return HT_RE_NONE;
    const size_t begin = s->n_scratch;
    for (size_t i = 0; i < n; i++) ht_re_push(s, list[i]);
    return ht_re_join_scratch(s, kind, begin);
}

ht_re ht_re_alternatives(ht_regexes *s, const ht_re *list, size_t n) {
    return join(s, HT_RE_KIND_ALTERNATIVES, list, n);
}

ht_re ht_re_either(ht_regexes *s, ht_re a, ht_re b) { return ht_re_alternatives(s, (ht_re[]){a, b}, 2); }

ht_re ht_re_both(ht_regexes *s, ht_re a, ht_re b) { return join(s, HT_RE_KIND_BOTH, (ht_re[]){a, b}, 2); }

ht_re ht_re_not(ht_regexes *s, ht_re a) {
    size_t n;
    if (s->status) return HT_RE_NONE;
    if (a == HT_RE_NONE || a == HT_RE_ALL) return a == HT_RE_NONE ? HT_RE_ALL : HT_RE_NONE;
    const uint32_t *node = ht_re_node(s, a, &n);
    if (node[0] == HT_RE_KIND_NOT) return node[1];
    const bool nullable = !ht_re_is_nullable(s, a);
    return re_make(s, (uint32_t[]){HT_RE_KIND_NOT, a}, 2, HT_RE_BOOLEAN | (nullable ? HT_RE_NULLABLE | HT_RE_LIVE : 0));
}

ht_re ht_re_repeat(ht_regexes *s, ht_re a, uint32_t min, uint32_t max) {
    size_t n;
    if (s->status || min > max) return HT_RE_NONE;
    if (max == 0 || a == HT_RE_EMPTY) return HT_RE_EMPTY;
    if (a == HT_RE_NONE || facts_of(s, a) & HT_RE_DEAD) return min ? HT_RE_NONE : HT_RE_EMPTY;
    if (a == HT_RE_ALL || (min == 1 && max == 1)) return a;
    const unsigned facts = facts_of(s, a);
    if (facts & HT_RE_NULLABLE) min = 0;
    const uint32_t *node = ht_re_node(s, a, &n);
    if (node[0] == HT_RE_KIND_REPEAT && node[2] == 0 && node[3] == HT_RE_UNBOUNDED) return a;
    return re_make(s, (uint32_t[]){HT_RE_KIND_REPEAT, a, min, max}, 4,
                   (facts & (HT_RE_BOOLEAN | HT_RE_LIVE)) | (min == 0 ? HT_RE_NULLABLE | HT_RE_LIVE : 0));
}

/* ---- code points in UTF-8 ---- */

#define LAST_CODE_POINT 0x10FFFFu
#define CONTINUATION    0x80u

/* n bytes that hold values first to last, of 6 bits in each but the first one, whose other bits are `base`. */
static ht_re sequence(ht_regexes *s, uint32_t first, uint32_t last, int n, unsigned base) {
    if (n == 0) return HT_RE_EMPTY;
    const int shift = 6 * (n - 1);
    const uint32_t mask = (1u << shift) - 1, head = first >> shift, tail = last >> shift;
    const bool whole_first = (first & mask) == 0, whole_last = (last & mask) == mask;
    if (head == tail)
        return ht_re_concat(s, ht_re_byte_range(s, base + head, base + head),
                            sequence(s, first & mask, last & mask, n - 1, CONTINUATION));
    /* The first and last leading bytes allow part of the continuations, those between all of them. */
    ht_re part[3] = {HT_RE_NONE, HT_RE_NONE, HT_RE_NONE};
    if (!whole_first)
        part[0] = ht_re_concat(s, ht_re_byte_range(s, base + head, base + head),
                               sequence(s, first & mask, mask, n - 1, CONTINUATION));
    if (!whole_last)
        part[1] = ht_re_concat(s, ht_re_byte_range(s, base + tail, base + tail),
                               sequence(s, 0, last & mask, n - 1, CONTINUATION));
    const uint32_t from = head + !whole_first, to = tail - !whole_last;
    if (from <= to)
        part[2] =
            ht_re_concat(s, ht_re_byte_range(s, base + from, base + to), sequence(s, 0, mask, n - 1, CONTINUATION));
    return ht_re_alternatives(s, part, 3);
}

/* Pushes the code points of a range onto the scratch stack, those of each length in UTF-8 apart. */
static void push_range(ht_regexes *s, uint32_t first, uint32_t last) {
    static const struct {
        uint32_t first, last;
        int n;
        unsigned base;
    } lengths[] = {{0, 0x7F, 1, 0},
                   {0x80, 0x7FF, 2, 0xC0},
                   {0x800, 0xD7FF, 3, 0xE0},
                   {0xE000, 0xFFFF, 3, 0xE0},
                   {0x10000, LAST_CODE_POINT, 4, 0xF0}};
    for (size_t i = 0; i < sizeof lengths / sizeof *lengths && !s->status; i++) {
        const uint32_t from = first > lengths[i].first ? first : lengths[i].first;
        const uint32_t to = last < lengths[i].last ? last : lengths[i].last;
        if (from <= to) ht_re_push(s, sequence(s, from, to, lengths[i].n, lengths[i].base));
    }
}

ht_re ht_re_code_points(ht_regexes *s, const ht_code_range *ranges, size_t n) {
    if (s->status) return HT_RE_NONE;
    const size_t begin = s->n_scratch;
    for (size_t i = 0; i < n; i++) push_range(s, ranges[i].first, ranges[i].last);
    return ht_re_join_scratch(s, HT_RE_KIND_ALTERNATIVES, begin);
}

ht_re ht_re_multiple_behind(ht_regexes *s, uint64_t divisor, uint64_t remainder, uint32_t places) {
    const uint32_t words[] = {HT_RE_KIND_MULTIPLE, (uint32_t)divisor,           (uint32_t)(divisor >> 32),
                              (uint32_t)remainder, (uint32_t)(remainder >> 32), places};
    /* Zeros may fill the digits that are left. */
    uint64_t least = remainder, room = 1;
    const uint32_t left = places & ~HT_RE_BEHIND_POINT;
    for (uint32_t i = 0; i < left && least; i++) {
        least = least * 10 % divisor;
        room = room < divisor ? room * 10 : room;
    }
    const unsigned facts = least ? 0 : HT_RE_NULLABLE | HT_RE_LIVE;
    /* Before the point, any number of digits may follow; after it, only those that are left. */
    if (least && places & HT_RE_BEHIND_POINT && room <= divisor - least) return HT_RE_NONE;
    return re_make(s, words, 6, facts | HT_RE_LIVE);
}

ht_re ht_re_multiple(ht_regexes *s, uint64_t divisor, uint32_t places) {
    /* Puts each digit into a separate byte class. */
    for (unsigned b = '0'; b <= '9'; b++) ht_re_byte_range(s, b, b);
    ht_re_byte_range(s, '.', '.');
    return ht_re_multiple_behind(s, divisor, 0, places);
}

static ht_re alternatives_without_empty(ht_regexes *s, ht_re a) {
    const size_t begin = s->n_scratch;
    size_t n;
    ht_re_node(s, a, &n);
    for (size_t i = 1; i < n && !s->status; i++) {
        size_t same;
        ht_re_push(s, ht_re_without_empty(s, ht_re_node(s, a, &same)[i]));
    }
    return ht_re_join_scratch(s, HT_RE_KIND_ALTERNATIVES, begin);
}

ht_re ht_re_without_empty(ht_regexes *s, ht_re a) {
    size_t n;
    if (s->status || a == HT_RE_EMPTY) return HT_RE_NONE;
    if (!ht_re_is_nullable(s, a)) return a;
    const uint32_t *node = ht_re_node(s, a, &n);
    const uint32_t x = n > 1 ? node[1] : 0, max = n > 3 ? node[3] : 0;
    switch ((ht_re_kind)node[0]) {
    case HT_RE_KIND_CONCAT: {
        const ht_re rest = node[2];
        return ht_re_either(s, ht_re_concat(s, ht_re_without_empty(s, x), rest), ht_re_without_empty(s, rest));
    }
    case HT_RE_KIND_ALTERNATIVES: return alternatives_without_empty(s, a);
    case HT_RE_KIND_REPEAT:
        return ht_re_concat(s, ht_re_without_empty(s, x),
                            ht_re_repeat(s, x, 0, max == HT_RE_UNBOUNDED ? max : max - 1));
    default: return ht_re_both(s, a, ht_re_concat(s, ht_re_byte_range(s, 0, 255), HT_RE_ALL));
    }
}
