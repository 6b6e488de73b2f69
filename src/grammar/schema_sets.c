/* Evaluation of sets: what one has of the simple types, and its arrays and objects as alternatives of leaves. */
#include "grammar/schema.h"

static ht_node set_expand(ht_schema *s, ht_node node);

/* Formulas within each other for one value; alternatives of one set; leaves that are joined. */
enum { DEPTH_MOST = 3000, ALTERNATIVES_MOST = 20000, UNPRUNED_MOST = 16 };

static ht_node fail_endless(ht_schema *s) {
    if (!s->status)
        ht_schema_fail_at(s, s->tree.root, HT_ERR_FORMAT, "a schema in it refers to itself for the same value");
    return HT_NODE_NOTHING;
}

static ht_node_kind kind_of(const ht_schema *s, ht_node node) {
    size_t n;
    return (ht_node_kind)ht_node_words(s, node, &n)[0];
}

static uint32_t type_of_leaf(ht_node_kind kind) {
    switch (kind) {
    case HT_NODE_NUMBERS: return HT_TYPE_NUMBER;
    case HT_NODE_STRINGS: return HT_TYPE_STRING;
    case HT_NODE_ITEM:
    case HT_NODE_ITEMS:
    case HT_NODE_LENGTH:
    case HT_NODE_COUNT:
    case HT_NODE_UNIQUE: return HT_TYPE_ARRAY;
    default: return HT_TYPE_OBJECT;
    }
}

/* The operand with index i of a node, from 1. */
static ht_node operand(const ht_schema *s, ht_node node, size_t i) {
    size_t n;
    return ht_node_words(s, node, &n)[i];
}

/* ---- types ---- */

static uint32_t types_of(ht_schema *s, ht_node node, bool negated) {
    size_t n;
    const uint32_t *words = ht_node_words(s, node, &n);
    const ht_node_kind kind = (ht_node_kind)words[0];
    const bool is_and = (kind == HT_NODE_AND) != negated;
    uint32_t types = is_and ? HT_TYPE_ALL : 0;
    if (s->status) return 0;
    switch (kind) {
    case HT_NODE_FALSE: return negated ? HT_TYPE_ALL : 0;
    case HT_NODE_TRUE: return negated ? 0 : HT_TYPE_ALL;
    case HT_NODE_TYPES: return negated ? HT_TYPE_ALL & ~words[1] : words[1];
    case HT_NODE_NOT: return types_of(s, words[1], !negated);
    case HT_NODE_LATER: {
        if (++s->depth > DEPTH_MOST) return fail_endless(s);
        types = types_of(s, s->later[words[1]], negated);
        s->depth--;
        return types;
    }
    case HT_NODE_ONE:
        if (negated) return HT_TYPE_ALL;
        for (size_t i = 1; i < n; i++) types |= types_of(s, operand(s, node, i), false);
        return types;
    case HT_NODE_AND:
    case HT_NODE_OR:
        for (size_t i = 1; i < n; i++) {
            const uint32_t one = types_of(s, operand(s, node, i), negated);
            types = is_and ? types & one : types | one;
        }
        return types;
    default: return negated ? type_of_leaf(kind) : HT_TYPE_ALL;
    }
}

uint32_t ht_set_types(ht_schema *s, ht_node node) { return types_of(s, node, false); }

/* Truth of a formula for a value of a type of which leaves say nothing. */
static bool holds(ht_schema *s, ht_node node, uint32_t type) {
    if (s->status) return false;
    if (++s->depth > DEPTH_MOST) return fail_endless(s) != HT_NODE_NOTHING;
    node = set_expand(s, node);
    size_t n;
    const uint32_t *words = ht_node_words(s, node, &n);
    const bool is_and = words[0] == HT_NODE_AND;
    bool all = is_and;
    switch ((ht_node_kind)words[0]) {
    case HT_NODE_FALSE: all = false; break;
    case HT_NODE_TYPES: all = words[1] & type; break;
    case HT_NODE_NOT: all = !holds(s, words[1], type); break;
    case HT_NODE_AND:
    case HT_NODE_OR:
        for (size_t i = 1; i < n && all == is_and; i++) all = holds(s, operand(s, node, i), type);
        break;
    default: all = true; break;
    }
    s->depth--;
    return all;
}

uint32_t ht_set_simple(ht_schema *s, ht_node node) {
    uint32_t types = ht_set_types(s, node) & (HT_TYPE_NULL | HT_TYPE_FALSE | HT_TYPE_TRUE);
    for (uint32_t type = HT_TYPE_NULL; type <= HT_TYPE_TRUE; type *= 2)
        if (types & type && !holds(s, node, type)) types &= ~type;
    return types;
}

/* ---- exactly one ---- */

/* Whether no value is known to be in both. */
static bool are_disjoint(ht_schema *s, ht_node a, ht_node b) {
    if (!(ht_set_types(s, a) & ht_set_types(s, b))) return true;
    const uint32_t before = s->live_low;
    s->live_low = UINT32_MAX;
    const bool is_dead = !ht_set_is_live(s, ht_node_and(s, a, b));
    const bool is_sure = s->live_low == UINT32_MAX;
    s->live_low = before;
    return is_dead && is_sure && !s->status;
}

/* One of them and none of the others, of which those that are disjoint with it need not be named. */
static ht_node expand_one(ht_schema *s, ht_node node, bool looks) {
    size_t n;
    ht_node_words(s, node, &n);
    const uint32_t begin = s->n_scratch;
    bool *disjoint = ht_schema_take(s, n * n, sizeof *disjoint);
    if (!disjoint) return HT_NODE_NOTHING;
    for (size_t i = 1; i < n && looks; i++)
        for (size_t k = i + 1; k < n && !s->status; k++)
            disjoint[i * n + k] = disjoint[k * n + i] = are_disjoint(s, operand(s, node, i), operand(s, node, k));
    for (size_t i = 1; i < n && !s->status; i++) {
        const uint32_t one = s->n_scratch;
        ht_schema_push(s, operand(s, node, i));
        for (size_t k = 1; k < n && !s->status; k++)
            if (k != i && !disjoint[i * n + k]) ht_schema_push(s, ht_node_not(s, operand(s, node, k)));
        ht_schema_push(s, ht_node_join_scratch(s, HT_NODE_AND, one));
    }
    return ht_node_join_scratch(s, HT_NODE_OR, begin);
}

/* While its parts are looked at, the same one may be met: then it is expanded without a look. */
enum { LOOKED, UNLOOKED, STARTED };

static ht_node expansion(ht_schema *s, ht_node node) {
    ht_node known = ht_pair_map_find(&s->ones, node, LOOKED);
    if (known != HT_INTERN_FAILED) return known;
    const bool looks = ht_pair_map_find(&s->ones, node, STARTED) == HT_INTERN_FAILED;
    if (!looks && (known = ht_pair_map_find(&s->ones, node, UNLOOKED)) != HT_INTERN_FAILED) return known;
    if (looks && !ht_pair_map_add(&s->ones, node, STARTED, 0)) return ht_schema_fail_memory(s);
    known = expand_one(s, node, looks);
    if (!ht_pair_map_add(&s->ones, node, looks ? LOOKED : UNLOOKED, known)) return ht_schema_fail_memory(s);
    return known;
}

/* What HT_NODE_ONE and HT_NODE_LATER stand for; other nodes as they are. */
static ht_node set_expand(ht_schema *s, ht_node node) {
    for (int i = 0; !s->status; i++) {
        const ht_node_kind kind = kind_of(s, node);
        if (kind == HT_NODE_LATER)
            node = s->later[operand(s, node, 1)];
        else if (kind == HT_NODE_ONE)
            node = expansion(s, node);
        else
            return node;
        if (i > DEPTH_MOST) return fail_endless(s);
    }
    return HT_NODE_NOTHING;
}

/* ---- numbers and strings ---- */

static ht_number_set numbers_of(ht_schema *s, ht_node node);

static ht_number_set join_numbers(ht_schema *s, ht_node node, bool is_and) {
    const ht_re first = is_and ? HT_RE_ALL : HT_RE_NONE;
    ht_number_set all = {first, first};
    size_t n;
    ht_node_words(s, node, &n);
    for (size_t i = 1; i < n && !s->status; i++) {
        const ht_number_set one = numbers_of(s, operand(s, node, i));
        all = is_and ? ht_numbers_both(s, all, one) : ht_numbers_either(s, all, one);
    }
    return all;
}

static ht_number_set numbers_of(ht_schema *s, ht_node node) {
    static const ht_number_set every = {HT_RE_ALL, HT_RE_ALL}, none = {HT_RE_NONE, HT_RE_NONE};
    if (s->status) return none;
    if (++s->depth > DEPTH_MOST) return fail_endless(s), none;
    node = set_expand(s, node);
    size_t n;
    const uint32_t *words = ht_node_words(s, node, &n);
    ht_number_set set = every;
    switch ((ht_node_kind)words[0]) {
    case HT_NODE_FALSE: set = none; break;
    case HT_NODE_TYPES: set = words[1] & HT_TYPE_NUMBER ? every : none; break;
    case HT_NODE_NUMBERS: set = (ht_number_set){words[1], words[2]}; break;
    case HT_NODE_NOT: set = ht_numbers_not(s, numbers_of(s, words[1])); break;
    case HT_NODE_AND:
    case HT_NODE_OR: set = join_numbers(s, node, words[0] == HT_NODE_AND); break;
    default: break;
    }
    s->depth--;
    return set;
}

ht_number_set ht_set_numbers(ht_schema *s, ht_node node) {
    const uint32_t known = ht_pair_map_find(&s->evaluated, node, HT_TYPE_NUMBER);
    if (known != HT_INTERN_FAILED) return s->numbers[known];
    const ht_number_set set = numbers_of(s, node);
    if (!HT_SCHEMA_APPEND(s, s->numbers, s->n_numbers)) return set;
    s->numbers[s->n_numbers] = set;
    if (!ht_pair_map_add(&s->evaluated, node, HT_TYPE_NUMBER, s->n_numbers++)) ht_schema_fail_memory(s);
    return set;
}

static ht_string_set strings_of(ht_schema *s, ht_node node);

static ht_string_set join_strings(ht_schema *s, ht_node node, bool is_and) {
    ht_string_set all = {.is_closed = !is_and, .re = is_and ? HT_RE_ALL : HT_RE_NONE};
    size_t n;
    ht_node_words(s, node, &n);
    for (size_t i = 1; i < n && !s->status; i++) {
        const ht_string_set one = strings_of(s, operand(s, node, i));
        all = is_and ? ht_strings_both(s, all, one) : ht_strings_either(s, all, one);
    }
    return all;
}

static ht_string_set strings_of(ht_schema *s, ht_node node) {
    static const ht_string_set every = {.re = HT_RE_ALL}, none = {.is_closed = true, .re = HT_RE_NONE};
    if (s->status) return none;
    if (++s->depth > DEPTH_MOST) return fail_endless(s), none;
    node = set_expand(s, node);
    size_t n;
    const uint32_t *words = ht_node_words(s, node, &n);
    ht_string_set set = every;
    switch ((ht_node_kind)words[0]) {
    case HT_NODE_FALSE: set = none; break;
    case HT_NODE_TYPES: set = words[1] & HT_TYPE_STRING ? every : none; break;
    case HT_NODE_STRINGS: set = s->strings[words[1]]; break;
    case HT_NODE_NOT: set = ht_strings_not(s, strings_of(s, words[1])); break;
    case HT_NODE_AND:
    case HT_NODE_OR: set = join_strings(s, node, words[0] == HT_NODE_AND); break;
    default: break;
    }
    s->depth--;
    return set;
}

ht_string_set ht_set_strings(ht_schema *s, ht_node node) {
    const uint32_t known = ht_pair_map_find(&s->evaluated, node, HT_TYPE_STRING);
    if (known != HT_INTERN_FAILED) return s->strings[known];
    const ht_string_set set = strings_of(s, node);
    const uint32_t number = ht_strings_add(s, set);
    if (!s->status && !ht_pair_map_add(&s->evaluated, node, HT_TYPE_STRING, number)) ht_schema_fail_memory(s);
    return set;
}

/* ---- alternatives ---- */

static uint32_t new_list(ht_schema *s) {
    if (!HT_SCHEMA_APPEND(s, s->lists, s->n_lists)) return 0;
    s->lists[s->n_lists] = (ht_conjunction_list){0};
    return s->n_lists++;
}

/* Adds a conjunction of n ascending leaves to a list, unless it is there. */
static void add_conjunction(ht_schema *s, uint32_t list, const uint32_t *leaves, size_t n) {
    const uint32_t c = s->status ? 0 : ht_intern_add(&s->conjunctions, leaves, n, NULL);
    if (s->status) return;
    if (c == HT_INTERN_FAILED) {
        ht_schema_fail_memory(s);
        return;
    }
    ht_conjunction_list *to = &s->lists[list];
    if (ht_pair_map_find(&s->listed, list, c) != HT_INTERN_FAILED) return;
    if (!ht_pair_map_add(&s->listed, list, c, 0))
        ht_schema_fail_memory(s);
    else if (to->n >= ALTERNATIVES_MOST)
        ht_schema_fail_limit(s, "more than 20000 alternatives for one value");
    else if (HT_SCHEMA_APPEND(s, to->conjunction, to->n))
        to->conjunction[to->n++] = c;
}

static uint32_t alternatives(ht_schema *s, ht_node node, uint32_t type);

/* Drops conjunctions that surely have no value: of n conditions one by one, most of two to the power n are such. */
static void prune(ht_schema *s, uint32_t list, uint32_t type) {
    uint32_t kept = 0;
    for (uint32_t i = 0; !s->status && i < s->lists[list].n; i++) {
        const uint32_t c = s->lists[list].conjunction[i], before = s->live_low;
        s->live_low = UINT32_MAX;
        const bool live = ht_conjunction_is_live(s, c, type);
        const bool is_sure = s->live_low == UINT32_MAX;
        s->live_low = before;
        if (live || !is_sure) s->lists[list].conjunction[kept++] = c;
    }
    if (!s->status) s->lists[list].n = kept;
}

/* All pairs of a list's conjunctions with those of another one. */
static uint32_t product(ht_schema *s, uint32_t left, uint32_t right, uint32_t type) {
    const uint32_t to = new_list(s);
    for (uint32_t i = 0; !s->status && i < s->lists[left].n; i++)
        for (uint32_t k = 0; !s->status && k < s->lists[right].n; k++) {
            size_t n_x, n_y, x_at = 0, y_at = 0;
            const uint32_t begin = s->n_scratch;
            const uint32_t *x = ht_intern_at(&s->conjunctions, s->lists[left].conjunction[i], &n_x);
            const uint32_t *y = ht_intern_at(&s->conjunctions, s->lists[right].conjunction[k], &n_y);
            while (x_at < n_x || y_at < n_y) {
                const bool from_x = y_at == n_y || (x_at < n_x && x[x_at] <= y[y_at]);
                if (from_x && y_at < n_y && x[x_at] == y[y_at]) y_at++;
                ht_schema_push(s, from_x ? x[x_at++] : y[y_at++]);
            }
            add_conjunction(s, to, s->scratch + begin, s->n_scratch - begin);
            s->n_scratch = begin;
        }
    if (!s->status && s->lists[to].n > UNPRUNED_MOST && !s->keeps_dead) prune(s, to, type);
    return to;
}

static uint32_t single(ht_schema *s, const ht_node *leaves, size_t n) {
    const uint32_t list = new_list(s);
    if (!s->status) add_conjunction(s, list, leaves, n);
    return list;
}

static void append(ht_schema *s, uint32_t to, uint32_t from) {
    for (uint32_t i = 0; !s->status && i < s->lists[from].n; i++) {
        size_t n;
        const uint32_t begin = s->n_scratch, *words = ht_intern_at(&s->conjunctions, s->lists[from].conjunction[i], &n);
        for (size_t k = 0; k < n; k++) ht_schema_push(s, words[k]);
        if (!s->status) add_conjunction(s, to, s->scratch + begin, n);
        s->n_scratch = begin;
    }
}

/* Keys that are not of a node. */
static uint32_t keys_outside(ht_schema *s, ht_node node) {
    const ht_string_set set = ht_set_strings(s, node);
    if (set.is_listed) return ht_keys_of(s, true, set.list, set.n, NULL, 0);
    const uint32_t pattern = ht_strings_add(s, set);
    return ht_keys_of(s, true, NULL, 0, &pattern, 1);
}

/* A leaf of the type, or what it is not, as a formula of leaves that are taken as they are. */
static ht_node leaf_formula(ht_schema *s, ht_node leaf, bool negated) {
    size_t n;
    uint32_t w[5] = {0};
    const uint32_t *words = ht_node_words(s, leaf, &n);
    memcpy(w, words, (n < 5 ? n : 5) * sizeof *w);
    switch ((ht_node_kind)w[0]) {
    case HT_NODE_KEYS: {
        const uint32_t outside = keys_outside(s, w[1]);
        return negated ? ht_node_member(s, outside, HT_NODE_ANYTHING) : ht_node_members(s, outside, HT_NODE_NOTHING);
    }
    default:
        if (!negated) return leaf;
        break;
    case HT_NODE_ORDER:
    case HT_NODE_NAMED: return negated ? HT_NODE_NOTHING : leaf;
    }
    switch ((ht_node_kind)w[0]) {
    case HT_NODE_ITEM:
        return ht_node_and(s, ht_node_length(s, w[1] + 1, HT_UNBOUNDED), ht_node_item(s, w[1], ht_node_not(s, w[2])));
    case HT_NODE_ITEMS: return ht_node_count(s, w[1], ht_node_not(s, w[2]), 1, HT_UNBOUNDED);
    case HT_NODE_LENGTH:
    case HT_NODE_SIZE: {
        const bool sizes = w[0] == HT_NODE_SIZE;
        ht_node less = HT_NODE_NOTHING, more = HT_NODE_NOTHING;
        if (w[1]) less = sizes ? ht_node_size(s, 0, w[1] - 1) : ht_node_length(s, 0, w[1] - 1);
        if (w[2] < HT_UNBOUNDED)
            more = sizes ? ht_node_size(s, w[2] + 1, HT_UNBOUNDED) : ht_node_length(s, w[2] + 1, HT_UNBOUNDED);
        return ht_node_or(s, less, more);
    }
    case HT_NODE_COUNT: {
        const ht_node less = w[3] ? ht_node_count(s, w[1], w[2], 0, w[3] - 1) : HT_NODE_NOTHING;
        const ht_node more =
            w[4] < HT_UNBOUNDED ? ht_node_count(s, w[1], w[2], w[4] + 1, HT_UNBOUNDED) : HT_NODE_NOTHING;
        return ht_node_or(s, less, more);
    }
    case HT_NODE_UNIQUE:
        return ht_schema_fail_at(s, s->tree.value[w[1]], HT_ERR_UNSUPPORTED,
                                 "that items are not unique cannot be asked for while a text is written");
    case HT_NODE_MEMBERS: return ht_node_member(s, w[1], ht_node_not(s, w[2]));
    case HT_NODE_MEMBER: return ht_node_members(s, w[1], ht_node_not(s, w[2]));
    default: return HT_NODE_NOTHING;
    }
}

static uint32_t leaf_alternatives(ht_schema *s, ht_node leaf, bool negated, uint32_t type) {
    if (type_of_leaf(kind_of(s, leaf)) != type) return negated ? new_list(s) : single(s, NULL, 0);
    const ht_node formula = leaf_formula(s, leaf, negated);
    return formula == leaf && !negated ? single(s, &leaf, 1) : alternatives(s, formula, type);
}

static uint32_t joined(ht_schema *s, ht_node node, bool is_and, bool negated, uint32_t type) {
    size_t n;
    ht_node_words(s, node, &n);
    uint32_t all = is_and ? single(s, NULL, 0) : new_list(s);
    for (size_t i = 1; i < n && !s->status; i++) {
        const ht_node one = operand(s, node, i);
        const uint32_t list = ht_set_alternatives(s, negated ? ht_node_not(s, one) : one, type);
        if (s->status) break;
        if (is_and)
            all = product(s, all, list, type);
        else
            append(s, all, list);
    }
    return all;
}

static uint32_t alternatives(ht_schema *s, ht_node node, uint32_t type) {
    node = set_expand(s, node);
    size_t n;
    const uint32_t *words = ht_node_words(s, node, &n);
    const bool negated = words[0] == HT_NODE_NOT;
    if (negated) {
        const ht_node inside = words[1], expanded = set_expand(s, inside);
        if (expanded != inside) return ht_set_alternatives(s, ht_node_not(s, expanded), type);
        node = inside;
        words = ht_node_words(s, node, &n);
    }
    switch ((ht_node_kind)words[0]) {
    case HT_NODE_FALSE: return new_list(s);
    case HT_NODE_TRUE: return single(s, NULL, 0);
    case HT_NODE_TYPES: return words[1] & type ? single(s, NULL, 0) : new_list(s);
    case HT_NODE_AND:
    case HT_NODE_OR: return joined(s, node, (words[0] == HT_NODE_AND) != negated, negated, type);
    default: return leaf_alternatives(s, node, negated, type);
    }
}

uint32_t ht_set_alternatives(ht_schema *s, ht_node node, uint32_t type) {
    const uint32_t known = ht_pair_map_find(&s->lists_of, node, type);
    if (known != HT_INTERN_FAILED || s->status) return s->status ? 0 : known;
    if (++s->depth > DEPTH_MOST) return fail_endless(s);
    /* Whether conjunctions have values is not asked where that leads back to the same set. */
    const bool is_open = ht_pair_map_find(&s->opened, node, type) != HT_INTERN_FAILED, kept_dead = s->keeps_dead;
    if (!is_open && !ht_pair_map_add(&s->opened, node, type, 0)) return ht_schema_fail_memory(s);
    s->keeps_dead = kept_dead || is_open;
    const uint32_t list = alternatives(s, node, type);
    s->keeps_dead = kept_dead;
    s->depth--;
    if (!s->status && ht_pair_map_find(&s->lists_of, node, type) == HT_INTERN_FAILED &&
        !ht_pair_map_add(&s->lists_of, node, type, list))
        ht_schema_fail_memory(s);
    return s->status ? 0 : list;
}
