/* Shapes and plans of arrays and objects. A shape combines all leaves of a conjunction: the nodes of items or
 * properties, and their number. Keys without a name form classes, of which every key set has all or none. A plan
 * describes how such values are written, item by item or property by property, and which states can reach an end. */
#include "grammar/schema.h"

#include <stdlib.h>
#include <string.h>

/* ---- shapes of arrays ---- */

/* Items before those that are all alike. */
enum { INDEXES_MOST = 100000 };

static uint32_t last_index(ht_schema *s, const uint32_t *leaves, size_t n_leaves) {
    uint32_t last = 0;
    for (size_t i = 0; i < n_leaves; i++) {
        uint32_t w[HT_LEAF_WORDS] = {0}, index = 0;
        ht_node_read(s, leaves[i], w);
        if (w[0] == HT_NODE_ITEM) index = w[1] + 1;
        if (w[0] == HT_NODE_ITEMS || w[0] == HT_NODE_COUNT) index = w[1];
        if (index > last) last = index;
    }
    return last;
}

static void add_count(ht_schema *s, ht_array_shape *a, const uint32_t *w) {
    if (a->n_some == HT_COUNTS_MOST) {
        ht_schema_fail_limit(s, "more than four `contains` for one array");
        return;
    }
    a->some[a->n_some++] = (ht_some){.from = w[1], .node = w[2], .least = w[3], .most = w[4]};
}

static ht_array_shape *array_of(ht_schema *s, const uint32_t *leaves, size_t n_leaves) {
    ht_array_shape *a = ht_schema_take(s, 1, sizeof *a);
    const uint32_t last = last_index(s, leaves, n_leaves);
    if (!a) return NULL;
    if (last > INDEXES_MOST) return ht_schema_fail_limit(s, "more than 100000 items that differ"), NULL;
    *a = (ht_array_shape){.most = HT_UNBOUNDED, .n = last + 1};
    if (!(a->item = ht_schema_take(s, a->n, sizeof *a->item))) return NULL;
    for (uint32_t i = 0; i < a->n; i++) a->item[i] = HT_NODE_ANYTHING;
    for (size_t i = 0; i < n_leaves && !s->status; i++) {
        uint32_t w[HT_LEAF_WORDS] = {0};
        ht_node_read(s, leaves[i], w);
        switch ((ht_node_kind)w[0]) {
        case HT_NODE_ITEM: a->item[w[1]] = ht_node_and(s, a->item[w[1]], w[2]); break;
        case HT_NODE_ITEMS:
            for (uint32_t k = w[1]; k < a->n; k++) a->item[k] = ht_node_and(s, a->item[k], w[2]);
            break;
        case HT_NODE_LENGTH:
            if (w[1] > a->least) a->least = w[1];
            if (w[2] < a->most) a->most = w[2];
            break;
        case HT_NODE_COUNT: add_count(s, a, w); break;
        default: a->unique = s->tree.value[w[1]]; break;
        }
    }
    return a;
}

/* ---- shapes of objects ---- */

/* Patterns that divide the keys of one object, and the parts. */
enum { PATTERNS_MOST = 24, CLASSES_MOST = 256 };

typedef struct builder {
    ht_schema *s;
    const uint32_t *leaves; /* [n] */
    size_t n;
    ht_object_shape *o;
    ht_pair_map index; /* name, 0: among the properties */
    size_t capacity;
    uint32_t patterns[PATTERNS_MOST], n_patterns;
} builder;

static void add_name(builder *b, uint32_t name) {
    if (ht_pair_map_find(&b->index, name, 0) != HT_INTERN_FAILED) return;
    if (!ht_schema_reserve(b->s, &b->o->member, &b->capacity, (size_t)b->o->n_names + 1, sizeof *b->o->member)) return;
    b->o->member[b->o->n_names] = (ht_member){.name = name, .node = HT_NODE_ANYTHING};
    if (!ht_pair_map_add(&b->index, name, 0, b->o->n_names++)) ht_schema_fail_memory(b->s);
}

static void add_pattern(builder *b, uint32_t pattern) {
    for (uint32_t i = 0; i < b->n_patterns; i++)
        if (b->patterns[i] == pattern) return;
    if (b->n_patterns == PATTERNS_MOST)
        ht_schema_fail_limit(b->s, "more than 24 patterns for the keys of one object");
    else
        b->patterns[b->n_patterns++] = pattern;
}

static void find_keys(builder *b) {
    size_t n;
    /* In the order of the schemas, if requested. */
    for (size_t i = 0; i < b->n; i++) {
        const uint32_t *w = ht_node_words(b->s, b->leaves[i], &n);
        for (size_t k = 1; w[0] == HT_NODE_ORDER && k < n && !b->s->status; k++) add_name(b, w[k]);
        b->o->is_described = b->o->is_described || w[0] == HT_NODE_ORDER || w[0] == HT_NODE_NAMED;
    }
    for (size_t i = 0; i < b->n && !b->s->status; i++) {
        const uint32_t *w = ht_node_words(b->s, b->leaves[i], &n);
        if (w[0] != HT_NODE_MEMBERS && w[0] != HT_NODE_MEMBER && w[0] != HT_NODE_NAMED) continue;
        const ht_keys keys = ht_keys_at(b->s, w[1]);
        for (uint32_t k = 0; k < keys.n_names && !b->s->status; k++) add_name(b, keys.names[k]);
        for (uint32_t k = 0; k < keys.n_patterns && !b->s->status; k++) add_pattern(b, keys.patterns[k]);
    }
}

/* Divides all other keys by each pattern: those that match, and those that do not. */
static void divide(builder *b, const ht_string_set *others) {
    ht_schema *s = b->s;
    ht_object_shape *o = b->o;
    if (!ht_schema_reserve(s, &o->member, &b->capacity, (size_t)o->n_names + CLASSES_MOST, sizeof *o->member)) return;
    o->member[o->n_names] = (ht_member){.name = HT_INTERN_FAILED, .keys = *others, .node = HT_NODE_ANYTHING};
    o->n_classes = 1;
    for (uint32_t p = 0; p < b->n_patterns && !s->status; p++) {
        const ht_string_set in = s->strings[b->patterns[p]], out = ht_strings_not(s, in);
        const uint32_t n = o->n_classes;
        uint32_t kept = 0;
        ht_member parts[CLASSES_MOST];
        memcpy(parts, o->member + o->n_names, n * sizeof *parts);
        for (uint32_t i = 0; i < n && !s->status; i++)
            for (int k = 0; k < 2; k++) {
                ht_member part = parts[i];
                part.keys = ht_strings_both(s, part.keys, k ? out : in);
                /* Until values are known the mask holds the patterns that have the class. */
                if (!k) part.mask |= 1u << p;
                if (!ht_strings_is_live(s, part.keys)) continue;
                if (kept == CLASSES_MOST) {
                    ht_schema_fail_limit(s, "the patterns for the keys of one object overlap in more than 256 ways");
                    return;
                }
                o->member[o->n_names + kept++] = part;
            }
        o->n_classes = kept;
    }
}

static bool class_is_in(const builder *b, const ht_keys *keys, uint32_t patterns) {
    bool has = false;
    for (uint32_t k = 0; k < keys->n_patterns; k++)
        for (uint32_t p = 0; p < b->n_patterns; p++)
            if (keys->patterns[k] == b->patterns[p] && patterns >> p & 1) has = true;
    return has != keys->is_complement;
}

/* Applies a leaf to a property whose key its set has. `is_some`: the leaf is the last one of `some`. */
static void apply(builder *b, ht_member *m, const uint32_t *w, bool is_some) {
    if (w[0] == HT_NODE_NAMED)
        m->is_named = true;
    else if (is_some)
        m->mask |= 1u << (b->o->n_some - 1);
    else {
        if (w[0] == HT_NODE_MEMBER && !m->is_required) {
            m->is_required = true;
            b->o->n_required++;
        }
        m->node = ht_node_and(b->s, m->node, w[2]);
    }
}

static void apply_to_all(builder *b, const uint32_t *w, const uint32_t *class_patterns, bool is_some) {
    ht_object_shape *o = b->o;
    const ht_keys keys = ht_keys_at(b->s, w[1]);
    if (!keys.is_complement && !keys.n_patterns) {
        for (uint32_t k = 0; k < keys.n_names; k++)
            apply(b, &o->member[ht_pair_map_find(&b->index, keys.names[k], 0)], w, is_some);
        return;
    }
    for (uint32_t i = 0; i < o->n_names && !b->s->status; i++) {
        const ht_keys again = ht_keys_at(b->s, w[1]);
        if (ht_keys_has_name(b->s, &again, o->member[i].name)) apply(b, &o->member[i], w, is_some);
    }
    for (uint32_t i = 0; i < o->n_classes && !b->s->status; i++) {
        const ht_keys again = ht_keys_at(b->s, w[1]);
        if (class_is_in(b, &again, class_patterns[i])) apply(b, &o->member[o->n_names + i], w, is_some);
    }
}

static void read_leaves(builder *b) {
    ht_schema *s = b->s;
    ht_object_shape *o = b->o;
    uint32_t *class_patterns = ht_schema_take(s, o->n_classes, sizeof *class_patterns);
    if (!class_patterns) return;
    for (uint32_t i = 0; i < o->n_classes; i++) {
        class_patterns[i] = o->member[o->n_names + i].mask;
        o->member[o->n_names + i].mask = 0;
    }
    for (size_t i = 0; i < b->n && !s->status; i++) {
        uint32_t w[HT_LEAF_WORDS] = {0};
        ht_node_read(s, b->leaves[i], w);
        if (w[0] == HT_NODE_SIZE) {
            if (w[1] > o->least) o->least = w[1];
            if (w[2] < o->most) o->most = w[2];
        } else if (w[0] == HT_NODE_MEMBERS || w[0] == HT_NODE_NAMED)
            apply_to_all(b, w, class_patterns, false);
        else if (w[0] == HT_NODE_MEMBER) {
            const ht_keys keys = ht_keys_at(s, w[1]);
            const bool is_some = keys.is_complement || keys.n_names != 1 || keys.n_patterns;
            if (is_some && o->n_some == HT_COUNTS_MOST) {
                ht_schema_fail_limit(s, "more than four conditions on properties whose names are not given");
                return;
            }
            if (is_some) o->some[o->n_some++] = (ht_some){.node = w[2]};
            apply_to_all(b, w, class_patterns, is_some);
        }
    }
}

static ht_object_shape *object_of(ht_schema *s, const uint32_t *leaves, size_t n) {
    ht_object_shape *o = ht_schema_take(s, 1, sizeof *o);
    builder b = {.s = s, .leaves = leaves, .n = n, .o = o};
    if (!o) return NULL;
    *o = (ht_object_shape){.most = HT_UNBOUNDED};
    find_keys(&b);
    uint32_t *names = s->status ? NULL : ht_schema_take(s, o->n_names, sizeof *names);
    if (names) {
        for (uint32_t i = 0; i < o->n_names; i++) names[i] = o->member[i].name;
        const ht_string_set listed = ht_strings_listed(s, names, o->n_names);
        const ht_string_set others = o->n_names ? ht_strings_not(s, listed) : (ht_string_set){.re = HT_RE_ALL};
        divide(&b, &others);
        if (!s->status) read_leaves(&b);
    }
    ht_member *kept = s->status ? NULL : ht_schema_take(s, (size_t)o->n_names + o->n_classes, sizeof *kept);
    if (kept && o->member) memcpy(kept, o->member, ((size_t)o->n_names + o->n_classes) * sizeof *kept);
    free(o->member);
    o->member = kept;
    ht_pair_map_free(&b.index);
    return kept ? o : NULL;
}

/* ---- shapes of conjunctions ---- */

static const void *shape_of(ht_schema *s, uint32_t conjunction, uint32_t type) {
    const uint32_t known = ht_pair_map_find(&s->shapes.known, conjunction, type);
    size_t n;
    if (known != HT_INTERN_FAILED) return s->shapes.shape[known];
    const uint32_t *words = ht_intern_at(&s->conjunctions, conjunction, &n);
    uint32_t *leaves = ht_schema_take(s, n, sizeof *leaves);
    if (!leaves || !HT_SCHEMA_APPEND(s, s->shapes.shape, s->shapes.n)) return NULL;
    if (n) memcpy(leaves, words, n * sizeof *leaves);
    void *shape = type == HT_TYPE_ARRAY ? (void *)array_of(s, leaves, n) : (void *)object_of(s, leaves, n);
    if (s->status) return NULL;
    s->shapes.shape[s->shapes.n] = shape;
    ht_schema_note(s, &s->shapes.known, conjunction, type, s->shapes.n++);
    return s->status ? NULL : shape;
}

const ht_array_shape *ht_array_shape_of(ht_schema *s, uint32_t conjunction) {
    return shape_of(s, conjunction, HT_TYPE_ARRAY);
}

const ht_object_shape *ht_object_shape_of(ht_schema *s, uint32_t conjunction) {
    return shape_of(s, conjunction, HT_TYPE_OBJECT);
}

ht_node ht_array_item(ht_schema *s, const ht_array_shape *a, uint32_t index, uint32_t mask) {
    ht_node node = a->item[index];
    for (uint32_t k = 0; k < a->n_some; k++) {
        const ht_some *some = &a->some[k];
        if (mask >> k & 1)
            node = ht_node_and(s, node, some->node);
        else if (some->most < HT_UNBOUNDED && index >= some->from)
            node = ht_node_and(s, node, ht_node_not(s, some->node));
    }
    return node;
}

ht_node ht_object_value(ht_schema *s, const ht_object_shape *o, const ht_member *m, uint32_t mask) {
    ht_node node = m->node;
    for (uint32_t k = 0; k < o->n_some; k++)
        if (mask >> k & 1) node = ht_node_and(s, node, o->some[k].node);
    return node;
}

/* ---- states of arrays ---- */

void ht_array_plan_free(ht_array_plan *p) {
    ht_intern_free(&p->states);
    free(p->known);
    p->known = NULL;
}

bool ht_array_may_end(const ht_array_plan *p, const ht_array_state *at) {
    bool may = at->index >= p->least && at->index <= p->most;
    for (uint32_t k = 0; k < p->n_some && !p->is_unique; k++) may = may && at->count[k] >= p->some[k].least;
    return may;
}

/* Merges the indices from which on nothing changes. */
static uint32_t next_index(const ht_array_plan *p, uint32_t index) {
    const uint32_t last = p->n - 1 > p->least ? p->n - 1 : p->least;
    const uint32_t enough = last ? last : 1; /* the first item has no comma before it */
    return p->most == HT_UNBOUNDED && index >= enough ? enough : index + 1;
}

bool ht_array_after(const ht_array_plan *p, const ht_array_state *at, uint32_t mask, ht_array_state *out) {
    *out = *at;
    out->index = next_index(p, at->index);
    for (uint32_t k = 0; k < p->n_some; k++) {
        if (!(mask >> k & 1)) continue;
        if (at->index < p->some[k].from) return false;
        if (p->some[k].most < HT_UNBOUNDED) {
            if (at->count[k] == p->some[k].most) return false;
            out->count[k]++;
        } else if (at->count[k] < p->some[k].least)
            out->count[k]++;
        else
            return false; /* it need not be counted, and items that are not are among the others */
    }
    return at->index < p->most;
}

ht_array_state ht_array_after_value(const ht_array_plan *p, const ht_array_state *at, uint32_t value) {
    ht_array_state out = *at;
    out.index = next_index(p, at->index);
    out.count[value >> 5] |= 1u << (value & 31);
    return out;
}

/* Assigns a distinct value to the index, and other values to indices in its way (Kuhn's bipartite matching). */
static bool match(const uint64_t *wants, uint32_t n_values, uint32_t i, int32_t *owner, uint64_t *tried) {
    for (uint32_t v = 0; v < n_values; v++) {
        if (!(wants[i] >> v & 1) || *tried >> v & 1) continue;
        *tried |= UINT64_C(1) << v;
        if (owner[v] >= 0 && !match(wants, n_values, (uint32_t)owner[v], owner, tried)) continue;
        owner[v] = (int32_t)i;
        return true;
    }
    return false;
}

static bool unique_can_end(const ht_array_plan *p, const ht_array_state *at) {
    uint64_t wants[HT_UNIQUE_MOST];
    int32_t owner[HT_UNIQUE_MOST];
    const uint64_t used = ht_array_used(at);
    if (at->index > p->most) return false;
    if (at->index >= p->least) return true;
    if (p->least - at->index > HT_UNIQUE_MOST) return false;
    const uint32_t n = p->least - at->index;
    for (uint32_t v = 0; v < HT_UNIQUE_MOST; v++) owner[v] = -1;
    for (uint32_t i = 0; i < n; i++) wants[i] = p->allowed[ht_array_class(p, at->index + i)] & ~used;
    for (uint32_t i = 0; i < n; i++) {
        uint64_t tried = 0;
        if (!match(wants, p->n_values, i, owner, &tried)) return false;
    }
    return true;
}

/* The index of a state in `known`. */
static uint32_t number_of(ht_array_plan *p, const ht_array_state *at) {
    uint32_t words[1 + HT_COUNTS_MOST] = {at->index};
    memcpy(words + 1, at->count, sizeof at->count);
    const uint32_t number = ht_intern_add(&p->states, words, 1 + HT_COUNTS_MOST, NULL);
    if (number == HT_INTERN_FAILED) return p->failed = true, number;
    if (number < p->known_capacity) return number;
    const size_t old = p->known_capacity;
    if (!HT_GROW(p->known, p->known_capacity, number + 1)) return p->failed = true, HT_INTERN_FAILED;
    memset(p->known + old, 0, p->known_capacity - old);
    return number;
}

/* An item advances a state or leaves it as it is, so a search cannot return to a state through another. */
static bool counting_can_end(ht_array_plan *p, const ht_array_state *at) {
    if (ht_array_may_end(p, at)) return true;
    const uint32_t number = number_of(p, at);
    if (p->failed) return false;
    if (p->known[number]) return p->known[number] == 2;
    p->known[number] = 1;
    bool can = false;
    /* Tries counted items first, since they are needed. */
    for (uint32_t mask = 1u << p->n_some; mask-- > 0 && !can && !p->failed;) {
        ht_array_state next;
        if (!p->live[(ht_array_class(p, at->index) << p->n_some) + mask] || !ht_array_after(p, at, mask, &next))
            continue;
        can = counting_can_end(p, &next);
    }
    if (!p->failed) p->known[number] = can ? 2 : 1;
    return can;
}

bool ht_array_can_end(ht_array_plan *p, const ht_array_state *at) {
    if (p->is_unique) return unique_can_end(p, at);
    /* Without counts most is less than the first index that has no item. */
    return p->n_some ? counting_can_end(p, at) : at->index <= p->most;
}

/* ---- plans of arrays ---- */

/* Counting states at most, and items on the longest path through them, which recursion follows. */
enum { STATES_MOST = 1000000, WAY_MOST = 4000 };

/* Whether the counting states are few enough for a search. */
static bool is_small(const ht_array_shape *a) {
    uint64_t states = (uint64_t)a->n + a->least + 1, way = states;
    for (uint32_t k = 0; k < a->n_some; k++) {
        const uint64_t counts = a->some[k].most < HT_UNBOUNDED ? a->some[k].most : a->some[k].least;
        way += counts;
        if (way > WAY_MOST) return false;
        states *= counts + 1;
        if (states > STATES_MOST) return false;
    }
    return way <= WAY_MOST;
}

/* Plans an array of distinct items, which have few values. */
static bool plan_unique(ht_schema *s, const ht_array_shape *a, ht_arena *arena, ht_array_plan *p) {
    ht_node values[HT_UNIQUE_MOST + 1];
    if (!(p->allowed = ht_arena_take(arena, a->n, sizeof *p->allowed)) ||
        !(p->value_node = ht_arena_take(arena, HT_UNIQUE_MOST, sizeof *p->value_node)))
        return ht_schema_fail_memory(s), false;
    for (uint32_t i = 0; i < a->n && i < a->most && !s->status; i++) {
        const uint32_t n = a->n_some ? HT_INTERN_FAILED : ht_set_values(s, a->item[i], values, HT_UNIQUE_MOST);
        if (n == HT_INTERN_FAILED)
            return ht_schema_fail_at(
                       s, a->unique, HT_ERR_UNSUPPORTED,
                       "unique items are supported where they are of at most %d simple values, as of an enum",
                       HT_UNIQUE_MOST),
                   false;
        for (uint32_t k = 0; k < n && !s->status; k++) {
            uint32_t v = 0;
            while (v < p->n_values && p->value_node[v] != values[k]) v++;
            if (v == HT_UNIQUE_MOST)
                return ht_schema_fail_at(s, a->unique, HT_ERR_LIMIT, "unique items of more than %d values",
                                         HT_UNIQUE_MOST),
                       false;
            if (v == p->n_values) p->value_node[p->n_values++] = values[k];
            p->allowed[i] |= UINT64_C(1) << v;
        }
    }
    if (p->most > p->n_values) p->most = p->n_values;
    return !s->status;
}

bool ht_array_plan_of(ht_schema *s, const ht_array_shape *a, ht_arena *arena, ht_array_plan *p) {
    *p = (ht_array_plan){.least = a->least, .most = a->most, .n = a->n, .n_some = a->n_some};
    if (a->least > a->most || s->status) return false;
    memcpy(p->some, a->some, sizeof p->some);
    const uint32_t n_masks = 1u << a->n_some;
    if (!(p->live = ht_arena_take(arena, (size_t)a->n * n_masks, sizeof *p->live)))
        return ht_schema_fail_memory(s), false;
    /* No items follow an index without items. */
    for (uint32_t i = 0; i < a->n && i < p->most && !s->status; i++) {
        bool any = false;
        for (uint32_t mask = 0; mask < n_masks && !s->status; mask++) {
            const bool live = ht_set_is_live(s, ht_array_item(s, a, i, mask));
            p->live[(i << a->n_some) + mask] = live;
            any = any || live;
        }
        if (!any) p->most = i;
    }
    if (s->status || p->least > p->most) return false;
    p->is_unique = a->unique && p->most > 1;
    if (p->is_unique && !plan_unique(s, a, arena, p)) return false;
    if (a->n_some && !is_small(a)) return ht_schema_fail_limit(s, "`contains` with counts that are too large"), false;
    const bool can = ht_array_can_end(p, &(ht_array_state){0});
    if (p->failed) ht_schema_fail_memory(s);
    return can && !s->status;
}

/* ---- states of objects ---- */

static bool was_seen(const ht_object_state *at, uint32_t name) { return at->seen[name >> 5] >> (name & 31) & 1; }

bool ht_object_may_take(const ht_object_plan *p, const ht_object_state *at, uint32_t member) {
    if (p->is_ordered && member < at->position) return false;
    return member >= p->n_names || !was_seen(at, member);
}

/* Whether allowed properties can satisfy the pending ones of `some`; the rest is a matter of counting. */
static bool object_can_end(const ht_object_plan *p, ht_object_state *at) {
    uint32_t n_required = 0, n_optional = 0;
    bool has_class = false;
    for (uint32_t i = 0; i < p->n_members; i++) {
        const ht_member_plan *m = &p->member[i];
        const bool may = ht_object_may_take(p, at, i);
        if (i < p->n_names && m->is_required && !was_seen(at, i)) {
            if (!may || !m->live[0]) return false;
            n_required++;
        } else if (may && m->live[0]) {
            if (i < p->n_names)
                n_optional++;
            else
                has_class = true;
        }
    }
    const uint64_t needed = (uint64_t)at->count + n_required;
    if (needed > p->most) return false;
    if (!at->pending) return has_class || needed + n_optional >= p->least;
    /* If ordered, any of them may be next; else they are satisfied one after another. */
    const uint32_t lowest = p->is_ordered ? at->pending : at->pending & (~at->pending + 1);
    for (uint32_t i = 0; i < p->n_members; i++) {
        const ht_member_plan *m = &p->member[i];
        if (!(m->mask & lowest) || !ht_object_may_take(p, at, i)) continue;
        for (uint32_t mask = 1; mask < 1u << p->n_some; mask++) {
            if (!(mask & lowest) || (mask & at->pending & m->mask) != mask || !m->live[mask] || at->count == p->most)
                continue;
            const bool is_name = i < p->n_names;
            ht_object_state next = *at;
            next.pending &= ~mask;
            if (next.count < UINT32_MAX - 1) next.count++;
            if (p->is_ordered) next.position = is_name ? i + 1 : p->n_names;
            if (is_name) at->seen[i >> 5] |= 1u << (i & 31);
            const bool can = object_can_end(p, &next);
            if (is_name) at->seen[i >> 5] &= ~(1u << (i & 31));
            if (can) return true;
        }
    }
    return false;
}

bool ht_object_may_end(const ht_object_plan *p, const ht_object_state *at) {
    if (at->pending || at->count < p->least) return false;
    for (uint32_t i = 0; i < p->n_names; i++)
        if (p->member[i].is_required && !was_seen(at, i)) return false;
    return true;
}

bool ht_object_take(const ht_object_plan *p, ht_object_state *at, uint32_t member, uint32_t mask) {
    const bool is_name = member < p->n_names;
    if (at->count == p->most) return false;
    if (p->is_ordered) {
        /* Earlier names are no longer allowed: they count as seen, and must not be required. */
        const uint32_t position = is_name ? member + 1 : p->n_names;
        for (uint32_t i = at->position; i < position; i++) {
            if (i != member && p->member[i].is_required) return false;
            at->seen[i >> 5] |= 1u << (i & 31);
        }
        at->position = position;
    } else if (is_name)
        at->seen[member >> 5] |= 1u << (member & 31);
    at->pending &= ~mask;
    /* Without a maximum, properties are counted only up to the minimum. */
    if (p->most < HT_UNBOUNDED || at->count < p->least) at->count++;
    return p->is_free || object_can_end(p, at);
}

/* ---- plans of objects ---- */

/* Whether the plan has any object. */
static bool has_object(ht_schema *s, ht_arena *arena, const ht_object_plan *p) {
    ht_object_state start = {.pending = (1u << p->n_some) - 1,
                             .seen = ht_arena_take(arena, p->n_names / 32 + 1, sizeof *start.seen)};
    if (!start.seen) ht_schema_fail_memory(s);
    return !s->status && object_can_end(p, &start);
}

static bool object_plan_of(ht_schema *s, const ht_object_shape *o, ht_arena *arena, ht_object_plan *p) {
    *p = (ht_object_plan){.least = o->least,
                          .most = o->most,
                          .n_names = o->n_names,
                          .n_members = o->n_names + o->n_classes,
                          .n_some = o->n_some,
                          .is_ordered = s->options.ordered,
                          .is_free = !o->n_some && !o->least && o->most == HT_UNBOUNDED};
    const uint32_t n_masks = 1u << o->n_some;
    if (o->least > o->most || s->status) return false;
    if (!(p->member = ht_arena_take(arena, p->n_members, sizeof *p->member))) return ht_schema_fail_memory(s), false;
    for (uint32_t i = 0; i < p->n_members && !s->status; i++) {
        const ht_member *m = &o->member[i];
        ht_member_plan *to = &p->member[i];
        *to = (ht_member_plan){.is_required = m->is_required, .mask = m->mask};
        if (!(to->live = ht_arena_take(arena, n_masks, sizeof *to->live))) return ht_schema_fail_memory(s), false;
        for (uint32_t mask = 0; mask < n_masks && !s->status; mask++)
            if ((mask & m->mask) == mask) to->live[mask] = ht_set_is_live(s, ht_object_value(s, o, m, mask));
        /* A class without keys has no properties. */
        if (i >= o->n_names && to->live[0] && !ht_strings_is_live(s, m->keys))
            memset(to->live, 0, n_masks * sizeof *to->live);
    }
    return has_object(s, arena, p);
}

bool ht_object_written_plan(ht_schema *s, const ht_object_shape *o, ht_arena *arena, ht_object_plan *p) {
    if (!object_plan_of(s, o, arena, p)) return false;
    if (!s->options.closed || !o->is_described) return true;
    for (uint32_t i = o->n_names; i < p->n_members; i++)
        if (!o->member[i].is_named) memset(p->member[i].live, 0, (1u << o->n_some) * sizeof *p->member[i].live);
    /* Objects that need undescribed properties have them. */
    return has_object(s, arena, p) || object_plan_of(s, o, arena, p);
}

/* ---- liveness ---- */

static bool array_is_live(ht_schema *s, const ht_array_shape *a) {
    if (a->least > a->most) return false;
    if (!a->least && !a->n_some) return true;
    if (!a->n_some && !a->unique) {
        for (uint32_t i = 0; i < a->n && i < a->least && !s->status; i++)
            if (!ht_set_is_live(s, a->item[i])) return false;
        return !s->status;
    }
    ht_array_plan plan;
    const bool live = ht_array_plan_of(s, a, &s->arena, &plan);
    ht_array_plan_free(&plan);
    return live;
}

static bool object_is_live(ht_schema *s, const ht_object_shape *o) {
    if (o->least > o->most || o->n_required > o->most) return false;
    if (o->n_some || o->least > o->n_required) {
        ht_object_plan plan;
        return object_plan_of(s, o, &s->arena, &plan);
    }
    for (uint32_t i = 0; i < o->n_names && !s->status; i++)
        if (o->member[i].is_required && !ht_set_is_live(s, o->member[i].node)) return false;
    return !s->status;
}

bool ht_conjunction_is_live(ht_schema *s, uint32_t conjunction, uint32_t type) {
    const void *shape = shape_of(s, conjunction, type);
    return shape && (type == HT_TYPE_ARRAY ? array_is_live(s, shape) : object_is_live(s, shape));
}
