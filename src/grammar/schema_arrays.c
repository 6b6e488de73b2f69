/* Arrays that are of all leaves of a conjunction: what each item is of, and how many there are. */
#include "grammar/schema_plan.h"

/* Items before those that are all alike. */
enum { INDEXES_MOST = 100000 };

static uint32_t last_index(ht_schema *s, const uint32_t *leaves, size_t n_leaves) {
    uint32_t last = 0;
    for (size_t i = 0; i < n_leaves; i++) {
        size_t n;
        const uint32_t *w = ht_node_words(s, leaves[i], &n);
        uint32_t index = 0;
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

static ht_array_shape *build(ht_schema *s, const uint32_t *leaves, size_t n_leaves) {
    ht_array_shape *a = ht_schema_take(s, 1, sizeof *a);
    const uint32_t last = last_index(s, leaves, n_leaves);
    if (!a) return NULL;
    if (last > INDEXES_MOST) return ht_schema_fail_limit(s, "more than 100000 items that differ"), NULL;
    *a = (ht_array_shape){.most = HT_UNBOUNDED, .n = last + 1};
    if (!(a->item = ht_schema_take(s, a->n, sizeof *a->item))) return NULL;
    for (uint32_t i = 0; i < a->n; i++) a->item[i] = HT_NODE_ANYTHING;
    for (size_t i = 0; i < n_leaves && !s->status; i++) {
        size_t n;
        uint32_t w[5] = {0};
        const uint32_t *words = ht_node_words(s, leaves[i], &n);
        memcpy(w, words, (n < 5 ? n : 5) * sizeof *w);
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

const ht_array_shape *ht_array_shape_of(ht_schema *s, uint32_t conjunction) {
    const uint32_t known = ht_pair_map_find(&s->array_shapes, conjunction, 0);
    if (known != HT_INTERN_FAILED) return s->array_shape[known];
    size_t n;
    const uint32_t *leaves = ht_intern_at(&s->conjunctions, conjunction, &n);
    if (!HT_SCHEMA_APPEND(s, s->array_shape, s->n_array_shapes)) return NULL;
    ht_array_shape *a = build(s, leaves, n);
    if (s->status) return NULL;
    s->array_shape[s->n_array_shapes] = a;
    if (!ht_pair_map_add(&s->array_shapes, conjunction, 0, s->n_array_shapes++)) return ht_schema_fail_memory(s), NULL;
    return a;
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

/* ---- plans ---- */

/* States of counts at most, and items on the longest way through them, which is walked by recursion. */
enum { STATES_MOST = 1000000, WAY_MOST = 4000 };

/* Whether the states of counts are few enough to be looked at. */
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

/* All items are different: of few values. */
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
    for (uint32_t k = 0; k < a->n_some; k++) {
        p->some_least[k] = a->some[k].least;
        p->some_most[k] = a->some[k].most;
        p->some_from[k] = a->some[k].from;
    }
    const uint32_t n_masks = 1u << a->n_some;
    if (!(p->live = ht_arena_take(arena, (size_t)a->n * n_masks, sizeof *p->live)))
        return ht_schema_fail_memory(s), false;
    /* Beyond an index without items there is nothing. */
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

bool ht_array_is_live(ht_schema *s, const ht_array_shape *a) {
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
