/* Objects that are of all leaves of a conjunction: members by name, and all other keys in classes of which every key set has all
 * or none. */
#include "grammar/schema_plan.h"

#include <stdlib.h>

/* Patterns that divide the keys of one object, and the parts. */
enum { PATTERNS_MOST = 24, CLASSES_MOST = 256 };

typedef struct builder {
    ht_schema *s;
    const uint32_t *leaves; /* [n] */
    size_t n;
    ht_object_shape *o;
    ht_pair_map index; /* name, 0: among the members */
    size_t capacity;
    uint32_t patterns[PATTERNS_MOST], n_patterns;
} builder;

/* ---- names and patterns ---- */

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
    /* In the order of their schemas, where that is asked for. */
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

/* Parts of all other keys: those that each pattern has, and those that it has not. */
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

/* ---- what members are of ---- */

static bool class_is_in(const builder *b, const ht_keys *keys, uint32_t patterns) {
    bool has = false;
    for (uint32_t k = 0; k < keys->n_patterns; k++)
        for (uint32_t p = 0; p < b->n_patterns; p++)
            if (keys->patterns[k] == b->patterns[p] && patterns >> p & 1) has = true;
    return has != keys->is_complement;
}

/* Calls on a member, with the number of it, for each one whose key the set has. */
typedef void on_member(builder *b, ht_member *m, const uint32_t *w);

static void each_in(builder *b, const uint32_t *w, const uint32_t *class_patterns, on_member *on) {
    ht_object_shape *o = b->o;
    const ht_keys keys = ht_keys_at(b->s, w[1]);
    if (!keys.is_complement && !keys.n_patterns) {
        for (uint32_t k = 0; k < keys.n_names; k++) on(b, &o->member[ht_pair_map_find(&b->index, keys.names[k], 0)], w);
        return;
    }
    for (uint32_t i = 0; i < o->n_names && !b->s->status; i++) {
        const ht_keys again = ht_keys_at(b->s, w[1]);
        if (ht_keys_has_name(b->s, &again, o->member[i].name)) on(b, &o->member[i], w);
    }
    for (uint32_t i = 0; i < o->n_classes && !b->s->status; i++) {
        const ht_keys again = ht_keys_at(b->s, w[1]);
        if (class_is_in(b, &again, class_patterns[i])) on(b, &o->member[o->n_names + i], w);
    }
}

static void restrict_value(builder *b, ht_member *m, const uint32_t *w) { m->node = ht_node_and(b->s, m->node, w[2]); }

static void require(builder *b, ht_member *m, const uint32_t *w) {
    if (!m->is_required) b->o->n_required++;
    m->is_required = true;
    m->node = ht_node_and(b->s, m->node, w[2]);
}

static void note_some(builder *b, ht_member *m, const uint32_t *w) {
    (void)w;
    m->mask |= 1u << (b->o->n_some - 1);
}

static void note_named(builder *b, ht_member *m, const uint32_t *w) {
    (void)b;
    (void)w;
    m->is_named = true;
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
        size_t n;
        uint32_t w[3] = {0};
        const uint32_t *words = ht_node_words(s, b->leaves[i], &n);
        memcpy(w, words, (n < 3 ? n : 3) * sizeof *w);
        if (w[0] == HT_NODE_SIZE) {
            if (w[1] > o->least) o->least = w[1];
            if (w[2] < o->most) o->most = w[2];
        } else if (w[0] == HT_NODE_MEMBERS)
            each_in(b, w, class_patterns, restrict_value);
        else if (w[0] == HT_NODE_NAMED)
            each_in(b, w, class_patterns, note_named);
        else if (w[0] == HT_NODE_MEMBER) {
            const ht_keys keys = ht_keys_at(s, w[1]);
            if (!keys.is_complement && keys.n_names == 1 && !keys.n_patterns) {
                each_in(b, w, class_patterns, require);
                continue;
            }
            if (o->n_some == HT_COUNTS_MOST) {
                ht_schema_fail_limit(s, "more than four conditions on properties whose names are not given");
                return;
            }
            o->some[o->n_some++] = (ht_some){.keys = w[1], .node = w[2]};
            each_in(b, w, class_patterns, note_some);
        }
    }
}

static ht_object_shape *build(ht_schema *s, const uint32_t *leaves, size_t n) {
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

const ht_object_shape *ht_object_shape_of(ht_schema *s, uint32_t conjunction) {
    const uint32_t known = ht_pair_map_find(&s->object_shapes, conjunction, 0);
    size_t n;
    if (known != HT_INTERN_FAILED) return s->object_shape[known];
    const uint32_t *words = ht_intern_at(&s->conjunctions, conjunction, &n);
    uint32_t *leaves = ht_schema_take(s, n, sizeof *leaves);
    if (!leaves || !HT_SCHEMA_APPEND(s, s->object_shape, s->n_object_shapes)) return NULL;
    if (n) memcpy(leaves, words, n * sizeof *leaves);
    ht_object_shape *o = build(s, leaves, n);
    if (!o) return NULL;
    s->object_shape[s->n_object_shapes] = o;
    if (!ht_pair_map_add(&s->object_shapes, conjunction, 0, s->n_object_shapes++))
        return ht_schema_fail_memory(s), NULL;
    return o;
}

ht_node ht_object_value(ht_schema *s, const ht_object_shape *o, const ht_member *m, uint32_t mask) {
    ht_node node = m->node;
    for (uint32_t k = 0; k < o->n_some; k++)
        if (mask >> k & 1) node = ht_node_and(s, node, o->some[k].node);
    return node;
}

/* ---- plans ---- */

/* Likewise of objects. */
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
        /* A class without a key has no members. */
        if (i >= o->n_names && to->live[0] && !ht_strings_is_live(s, m->keys))
            memset(to->live, 0, n_masks * sizeof *to->live);
    }
    ht_object_state start = {.pending = n_masks - 1,
                             .seen = ht_arena_take(arena, o->n_names / 32 + 1, sizeof *start.seen)};
    if (!start.seen) return ht_schema_fail_memory(s), false;
    return !s->status && ht_object_can_end(p, &start);
}

/* Takes from a plan the members that nobody describes. */
static bool close_plan(const ht_object_shape *o, ht_arena *arena, ht_object_plan *p) {
    ht_object_state start = {.pending = (1u << o->n_some) - 1,
                             .seen = ht_arena_take(arena, o->n_names / 32 + 1, sizeof *start.seen)};
    for (uint32_t i = o->n_names; i < p->n_members; i++)
        if (!o->member[i].is_named) memset(p->member[i].live, 0, (1u << o->n_some) * sizeof *p->member[i].live);
    return start.seen && ht_object_can_end(p, &start);
}

bool ht_object_written_plan(ht_schema *s, const ht_object_shape *o, ht_arena *arena, ht_object_plan *p) {
    if (!object_plan_of(s, o, arena, p)) return false;
    /* What has to have others has them. */
    return !s->options.closed || !o->is_described || close_plan(o, arena, p) || object_plan_of(s, o, arena, p);
}

bool ht_object_is_live(ht_schema *s, const ht_object_shape *o) {
    if (o->least > o->most || o->n_required > o->most) return false;
    if (o->n_some || o->least > o->n_required) {
        ht_object_plan plan;
        return object_plan_of(s, o, &s->arena, &plan);
    }
    for (uint32_t i = 0; i < o->n_names && !s->status; i++)
        if (o->member[i].is_required && !ht_set_is_live(s, o->member[i].node)) return false;
    return !s->status;
}
