/* Evaluation of sets: values by type, and whether there are any. Arrays and objects are alternatives of leaves. */
#include "grammar/schema.h"

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
        types = types_of(s, s->parsed.node[words[1]], negated);
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

/* ---- exactly one ---- */

/* Whether no value is known to be in both. */
static bool are_disjoint(ht_schema *s, ht_node a, ht_node b) {
    if (!(ht_set_types(s, a) & ht_set_types(s, b))) return true;
    const uint32_t before = s->live.low;
    s->live.low = UINT32_MAX;
    const bool is_dead = !ht_set_is_live(s, ht_node_and(s, a, b));
    const bool is_sure = s->live.low == UINT32_MAX;
    s->live.low = before;
    return is_dead && is_sure && !s->status;
}

/* One operand without the others. Operands that are disjoint with it need no negation. */
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

/* Checking operands may reach the same node again; then it is expanded without the check. */
enum { LOOKED, UNLOOKED, STARTED };

static ht_node expansion(ht_schema *s, ht_node node) {
    ht_node known = ht_pair_map_find(&s->sets.ones, node, LOOKED);
    if (known != HT_INTERN_FAILED) return known;
    const bool looks = ht_pair_map_find(&s->sets.ones, node, STARTED) == HT_INTERN_FAILED;
    if (!looks && (known = ht_pair_map_find(&s->sets.ones, node, UNLOOKED)) != HT_INTERN_FAILED) return known;
    if (looks) ht_schema_note(s, &s->sets.ones, node, STARTED, 0);
    known = expand_one(s, node, looks);
    ht_schema_note(s, &s->sets.ones, node, looks ? LOOKED : UNLOOKED, known);
    return known;
}

/* Expands HT_NODE_ONE and HT_NODE_LATER; returns other nodes as they are. */
static ht_node set_expand(ht_schema *s, ht_node node) {
    for (int i = 0; !s->status; i++) {
        const ht_node_kind kind = kind_of(s, node);
        if (kind == HT_NODE_LATER)
            node = s->parsed.node[operand(s, node, 1)];
        else if (kind == HT_NODE_ONE)
            node = expansion(s, node);
        else
            return node;
        if (i > DEPTH_MOST) return fail_endless(s);
    }
    return HT_NODE_NOTHING;
}

/* ---- scalars ---- */

/* The numbers or strings of a set. For null and booleans, `numbers` is all or none: whether the set has them. */
typedef struct scalars {
    ht_number_set numbers;
    ht_string_set strings;
} scalars;

static scalars join_scalars(ht_schema *s, scalars a, scalars b, bool is_and, uint32_t type) {
    if (type == HT_TYPE_STRING)
        a.strings = (is_and ? ht_strings_both : ht_strings_either)(s, a.strings, b.strings);
    else
        a.numbers = (is_and ? ht_numbers_both : ht_numbers_either)(s, a.numbers, b.numbers);
    return a;
}

static scalars scalars_of(ht_schema *s, ht_node node, uint32_t type) {
    static const scalars every = {{HT_RE_ALL, HT_RE_ALL}, {.re = HT_RE_ALL}},
                         none = {{HT_RE_NONE, HT_RE_NONE}, {.is_closed = true, .re = HT_RE_NONE}};
    if (s->status) return none;
    if (++s->depth > DEPTH_MOST) return fail_endless(s), none;
    node = set_expand(s, node);
    size_t n;
    const uint32_t *words = ht_node_words(s, node, &n);
    const ht_node_kind kind = (ht_node_kind)words[0];
    scalars set = every;
    switch (kind) {
    case HT_NODE_FALSE: set = none; break;
    case HT_NODE_TYPES: set = words[1] & type ? every : none; break;
    case HT_NODE_NUMBERS:
        if (type == HT_TYPE_NUMBER) set.numbers = (ht_number_set){words[1], words[2]};
        break;
    case HT_NODE_STRINGS: set.strings = s->strings[words[1]]; break;
    case HT_NODE_NOT:
        set = scalars_of(s, words[1], type);
        if (type == HT_TYPE_STRING)
            set.strings = ht_strings_not(s, set.strings);
        else
            set.numbers = ht_numbers_not(s, set.numbers);
        break;
    case HT_NODE_AND:
    case HT_NODE_OR:
        set = kind == HT_NODE_AND ? every : none;
        for (size_t i = 1; i < n && !s->status; i++)
            set = join_scalars(s, set, scalars_of(s, operand(s, node, i), type), kind == HT_NODE_AND, type);
        break;
    default: break;
    }
    s->depth--;
    return set;
}

uint32_t ht_set_simple(ht_schema *s, ht_node node) {
    uint32_t types = ht_set_types(s, node) & (HT_TYPE_NULL | HT_TYPE_FALSE | HT_TYPE_TRUE);
    for (uint32_t type = HT_TYPE_NULL; type <= HT_TYPE_TRUE; type *= 2)
        if (types & type && scalars_of(s, node, type).numbers.all == HT_RE_NONE) types &= ~type;
    return types;
}

ht_number_set ht_set_numbers(ht_schema *s, ht_node node) {
    ht_node known = ht_pair_map_find(&s->sets.evaluated, node, HT_TYPE_NUMBER);
    if (known == HT_INTERN_FAILED) {
        const ht_number_set set = scalars_of(s, node, HT_TYPE_NUMBER).numbers;
        known = ht_node_of(s, (uint32_t[]){HT_NODE_NUMBERS, set.all, set.written}, 3);
        if (s->status) return set;
        ht_schema_note(s, &s->sets.evaluated, node, HT_TYPE_NUMBER, known);
    }
    return (ht_number_set){operand(s, known, 1), operand(s, known, 2)};
}

ht_string_set ht_set_strings(ht_schema *s, ht_node node) {
    uint32_t known = ht_pair_map_find(&s->sets.evaluated, node, HT_TYPE_STRING);
    if (known == HT_INTERN_FAILED) {
        const ht_string_set set = scalars_of(s, node, HT_TYPE_STRING).strings;
        known = ht_strings_add(s, set);
        if (s->status) return set;
        ht_schema_note(s, &s->sets.evaluated, node, HT_TYPE_STRING, known);
    }
    return s->strings[known];
}

/* ---- alternatives ---- */

static uint32_t new_list(ht_schema *s) {
    if (!HT_SCHEMA_APPEND(s, s->sets.list, s->sets.n)) return 0;
    s->sets.list[s->sets.n] = (ht_conjunction_list){0};
    return s->sets.n++;
}

/* The conjunction of n ascending leaves. */
static uint32_t conjunction_of(ht_schema *s, const uint32_t *leaves, size_t n) {
    const uint32_t c = s->status ? 0 : ht_intern_add(&s->conjunctions, leaves, n, NULL);
    return c == HT_INTERN_FAILED ? ht_schema_fail_memory(s) : c;
}

/* Adds a conjunction to a list that does not have it. */
static void add_conjunction(ht_schema *s, uint32_t list, uint32_t c) {
    if (s->status || ht_pair_map_find(&s->sets.listed, list, c) != HT_INTERN_FAILED) return;
    ht_conjunction_list *to = &s->sets.list[list];
    ht_schema_note(s, &s->sets.listed, list, c, 0);
    if (to->n >= ALTERNATIVES_MOST)
        ht_schema_fail_limit(s, "more than 20000 alternatives for one value");
    else if (HT_SCHEMA_APPEND(s, to->conjunction, to->n))
        to->conjunction[to->n++] = c;
}

static uint32_t alternatives(ht_schema *s, ht_node node, uint32_t type);

/* Drops conjunctions that surely have no value: of the 2^n that n conditions make, most are such. */
static void prune(ht_schema *s, uint32_t list, uint32_t type) {
    uint32_t kept = 0;
    for (uint32_t i = 0; !s->status && i < s->sets.list[list].n; i++) {
        const uint32_t c = s->sets.list[list].conjunction[i], before = s->live.low;
        s->live.low = UINT32_MAX;
        const bool live = ht_conjunction_is_live(s, c, type);
        const bool is_sure = s->live.low == UINT32_MAX;
        s->live.low = before;
        if (live || !is_sure) s->sets.list[list].conjunction[kept++] = c;
    }
    if (!s->status) s->sets.list[list].n = kept;
}

/* All pairs of a list's conjunctions with those of another one. */
static uint32_t product(ht_schema *s, uint32_t left, uint32_t right, uint32_t type) {
    const uint32_t to = new_list(s);
    for (uint32_t i = 0; !s->status && i < s->sets.list[left].n; i++)
        for (uint32_t k = 0; !s->status && k < s->sets.list[right].n; k++) {
            size_t n_x, n_y, x_at = 0, y_at = 0;
            const uint32_t begin = s->n_scratch;
            const uint32_t *x = ht_intern_at(&s->conjunctions, s->sets.list[left].conjunction[i], &n_x);
            const uint32_t *y = ht_intern_at(&s->conjunctions, s->sets.list[right].conjunction[k], &n_y);
            while (x_at < n_x || y_at < n_y) {
                const bool from_x = y_at == n_y || (x_at < n_x && x[x_at] <= y[y_at]);
                if (from_x && y_at < n_y && x[x_at] == y[y_at]) y_at++;
                ht_schema_push(s, from_x ? x[x_at++] : y[y_at++]);
            }
            add_conjunction(s, to, conjunction_of(s, s->scratch + begin, s->n_scratch - begin));
            s->n_scratch = begin;
        }
    if (!s->status && s->sets.list[to].n > UNPRUNED_MOST && !s->sets.keeps_dead) prune(s, to, type);
    return to;
}

static uint32_t single(ht_schema *s, const ht_node *leaves, size_t n) {
    const uint32_t list = new_list(s);
    add_conjunction(s, list, conjunction_of(s, leaves, n));
    return list;
}

/* Keys that are not of a node. */
static uint32_t keys_outside(ht_schema *s, ht_node node) {
    const ht_string_set set = ht_set_strings(s, node);
    if (set.is_listed) return ht_keys_of(s, true, set.list, set.n, NULL, 0);
    const uint32_t pattern = ht_strings_add(s, set);
    return ht_keys_of(s, true, NULL, 0, &pattern, 1);
}

/* A leaf of the type, or its complement, as a formula of leaves that need no expansion. */
static ht_node leaf_formula(ht_schema *s, ht_node leaf, bool negated) {
    uint32_t w[HT_LEAF_WORDS] = {0};
    ht_node_read(s, leaf, w);
    const ht_node_kind kind = (ht_node_kind)w[0];
    if (kind == HT_NODE_KEYS) {
        const uint32_t outside = keys_outside(s, w[1]);
        return negated ? ht_node_member(s, outside, HT_NODE_ANYTHING) : ht_node_members(s, outside, HT_NODE_NOTHING);
    }
    if (!negated) return leaf;
    switch (kind) {
    case HT_NODE_ITEM:
        return ht_node_and(s, ht_node_counted(s, HT_NODE_LENGTH, w[1] + 1, HT_UNBOUNDED),
                           ht_node_item(s, w[1], ht_node_not(s, w[2])));
    case HT_NODE_ITEMS: return ht_node_count(s, w[1], ht_node_not(s, w[2]), 1, HT_UNBOUNDED);
    case HT_NODE_LENGTH:
    case HT_NODE_SIZE: {
        const ht_node less = w[1] ? ht_node_counted(s, kind, 0, w[1] - 1) : HT_NODE_NOTHING;
        const ht_node more = w[2] < HT_UNBOUNDED ? ht_node_counted(s, kind, w[2] + 1, HT_UNBOUNDED) : HT_NODE_NOTHING;
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
    default: return HT_NODE_NOTHING; /* HT_NODE_ORDER, HT_NODE_NAMED */
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
        if (is_and) all = product(s, all, list, type);
        for (uint32_t k = 0; !is_and && !s->status && k < s->sets.list[list].n; k++)
            add_conjunction(s, all, s->sets.list[list].conjunction[k]);
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
    const uint32_t known = ht_pair_map_find(&s->sets.lists_of, node, type);
    if (known != HT_INTERN_FAILED || s->status) return s->status ? 0 : known;
    if (++s->depth > DEPTH_MOST) return fail_endless(s);
    /* Conjunctions are not pruned where that would lead back to the same set. */
    const bool is_open = ht_pair_map_find(&s->sets.opened, node, type) != HT_INTERN_FAILED,
               kept_dead = s->sets.keeps_dead;
    if (!is_open) ht_schema_note(s, &s->sets.opened, node, type, 0);
    s->sets.keeps_dead = kept_dead || is_open;
    const uint32_t list = alternatives(s, node, type);
    s->sets.keeps_dead = kept_dead;
    s->depth--;
    if (!s->status && ht_pair_map_find(&s->sets.lists_of, node, type) == HT_INTERN_FAILED)
        ht_schema_note(s, &s->sets.lists_of, node, type, list);
    return s->status ? 0 : list;
}

/* ---- liveness ---- */

/* Depth first, as a least fixed point. A set that is reached while it is being checked counts as empty; results that
 * depend on this are kept only for the outermost such set. */

/* Steps for one schema at most: seconds. */
enum { STEPS_MOST = 1000000, LIVE_DEPTH_MOST = 1000 };
/* States of a set; from OPEN on it is being checked, at this depth. */
enum { UNKNOWN, DEAD, LIVE, OPEN };

static bool has_live_alternative(ht_schema *s, ht_node node, uint32_t type) {
    const uint32_t list = ht_set_alternatives(s, node, type);
    for (uint32_t i = 0; !s->status && i < s->sets.list[list].n; i++)
        if (ht_conjunction_is_live(s, s->sets.list[list].conjunction[i], type)) return true;
    return false;
}

static bool find_value(ht_schema *s, ht_node node) {
    const uint32_t types = ht_set_types(s, node);
    if (!types || s->status) return false;
    const uint32_t simple = HT_TYPE_NULL | HT_TYPE_FALSE | HT_TYPE_TRUE;
    if (types & simple && ht_set_simple(s, node)) return true;
    if (types & HT_TYPE_STRING && ht_strings_is_live(s, ht_set_strings(s, node))) return true;
    if (types & HT_TYPE_NUMBER && ht_schema_is_live(s, ht_set_numbers(s, node).all)) return true;
    return (types & HT_TYPE_ARRAY && has_live_alternative(s, node, HT_TYPE_ARRAY)) ||
           (types & HT_TYPE_OBJECT && has_live_alternative(s, node, HT_TYPE_OBJECT));
}

static bool reserve(ht_schema *s) {
    const size_t before = s->live.capacity;
    if (!ht_schema_reserve(s, &s->live.state, &s->live.capacity, s->nodes.n, sizeof *s->live.state)) return false;
    for (size_t i = before; i < s->live.capacity; i++) s->live.state[i] = UNKNOWN;
    return true;
}

bool ht_set_is_live(ht_schema *s, ht_node node) {
    if (s->status || node <= HT_NODE_ANYTHING) return !s->status && node == HT_NODE_ANYTHING;
    if (!reserve(s)) return false;
    if (s->live.state[node] == DEAD || s->live.state[node] == LIVE) return s->live.state[node] == LIVE;
    if (s->live.state[node] >= OPEN) {
        const uint32_t depth = s->live.state[node] - OPEN;
        if (depth < s->live.low) s->live.low = depth;
        return false;
    }
    if (++s->live.steps > STEPS_MOST || s->live.depth > LIVE_DEPTH_MOST)
        return ht_schema_fail_limit(s, "it takes too long to find out whether it has any value"), false;
    const uint32_t before = s->live.low, depth = s->live.depth++;
    s->live.state[node] = OPEN + depth;
    s->live.low = UINT32_MAX;
    const bool live = find_value(s, node);
    const bool depends = !live && s->live.low < depth;
    s->live.state[node] = live ? LIVE : depends ? UNKNOWN : DEAD;
    s->live.low = depends && s->live.low < before ? s->live.low : before;
    s->live.depth--;
    return live && !s->status;
}

/* ---- values of small sets ---- */

/* Bytes of a text. */
enum { TEXT_MOST = 300 };

typedef struct lister {
    ht_schema *s;
    ht_node *values;
    uint32_t n, most;
    bool is_number;
    char text[TEXT_MOST];
} lister;

static bool add(lister *l, ht_node value) {
    for (uint32_t i = 0; i < l->n; i++)
        if (l->values[i] == value) return true;
    if (l->n == l->most) return false;
    l->values[l->n++] = value;
    return true;
}

static ht_node of_text(lister *l, size_t n) {
    ht_schema *s = l->s;
    if (!l->is_number) {
        const ht_string_set set = ht_strings_of_re(ht_re_text(s->re, l->text, n));
        return ht_node_and(s, ht_node_types(s, HT_TYPE_STRING), ht_node_strings(s, set));
    }
    const ht_tree_value v = {.kind = HT_SCAN_NUMBER, .text = l->text, .n_text = n};
    return ht_node_value(s, &v);
}

/* Adds the texts of an expression after n bytes; false when they are too many or too long. */
static bool list_texts(lister *l, ht_re r, size_t n) {
    ht_schema *s = l->s;
    if (ht_re_is_nullable(s->re, r) && !add(l, of_text(l, n))) return false;
    if (r == HT_RE_EMPTY) return true;
    if (n == TEXT_MOST || s->status) return false;
    for (unsigned b = 0; b < 256; b++) {
        ht_regexes_refine(s->re);
        const ht_re d = ht_re_derivative(s->re, r, s->re->class_of[b]);
        if (d == HT_RE_NONE) continue;
        l->text[n] = (char)b;
        if (!list_texts(l, d, n + 1)) return false;
    }
    return true;
}

uint32_t ht_set_values(ht_schema *s, ht_node node, ht_node *values, uint32_t most) {
    lister l = {.s = s, .values = values, .most = most};
    const uint32_t simple = ht_set_simple(s, node);
    if (ht_set_is_live(s, ht_node_and(s, node, ht_node_types(s, HT_TYPE_ARRAY | HT_TYPE_OBJECT))))
        return HT_INTERN_FAILED;
    for (uint32_t type = HT_TYPE_NULL; type <= HT_TYPE_TRUE; type *= 2)
        if (simple & type && !add(&l, ht_node_types(s, type))) return HT_INTERN_FAILED;
    const uint32_t types = ht_set_types(s, node);
    if (types & HT_TYPE_STRING && !list_texts(&l, ht_strings_re(s, ht_set_strings(s, node)), 0))
        return HT_INTERN_FAILED;
    l.is_number = true;
    const ht_re numbers = ht_set_numbers(s, node).written;
    if (types & HT_TYPE_NUMBER && (numbers == HT_RE_ALL || !list_texts(&l, numbers, 0))) return HT_INTERN_FAILED;
    return s->status ? HT_INTERN_FAILED : l.n;
}
