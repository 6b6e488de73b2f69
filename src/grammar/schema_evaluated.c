/* unevaluatedProperties and unevaluatedItems: what the other keywords of a schema have evaluated, and the schemas that they apply to the
 * same instance. Of those that may fail, such as the branches of anyOf, each is a condition: whatever ones of them are taken for
 * true, they have to be, and then what they evaluate counts. */
#include "grammar/schema.h"

#include <stdlib.h>

/* Conditions of one schema: two to their power formulas. */
enum { CONDITIONS_MOST = 10, DEPTH_MOST = 200 };

/* What is evaluated under a condition. */
typedef struct evaluated {
    ht_node when;
    uint32_t keys;     /* key set */
    uint32_t items;    /* those before this index */
    ht_node contained; /* items of this node */
} evaluated;

typedef struct collector {
    ht_schema *s;
    evaluated *list;
    uint32_t n, no_keys, all_keys;
    int depth;
} collector;

static void add(collector *c, evaluated one) {
    if (!HT_SCHEMA_APPEND(c->s, c->list, c->n)) return;
    c->list[c->n++] = one;
}

static void add_keys(collector *c, ht_node when, uint32_t keys) { add(c, (evaluated){when, keys, 0, HT_NODE_NOTHING}); }
static void add_items(collector *c, ht_node when, uint32_t n) {
    add(c, (evaluated){when, c->no_keys, n, HT_NODE_NOTHING});
}

static void collect(collector *c, ht_place at, ht_node when, bool is_nested);

static ht_node node_of(collector *c, ht_place at, const ht_tree_value *v) {
    return ht_schema_parse(c->s, ht_references_enter(c->s, at, v));
}

static void collect_below(collector *c, ht_place at, const ht_tree_value *v, ht_node when) {
    if (v) collect(c, ht_references_enter(c->s, at, v), when, true);
}

/* Schemas of a list, each of them a condition, or none. */
static void collect_list(collector *c, ht_place at, const char *name, ht_node when, bool is_condition) {
    const ht_tree_value *list = ht_schema_keyword(c->s, at.schema, name);
    if (!list || list->kind != HT_TREE_ARRAY) return;
    for (const ht_tree_value *v = list->first; v && !c->s->status; v = v->next)
        collect_below(c, at, v, is_condition ? ht_node_and(c->s, when, node_of(c, at, v)) : when);
}

static void collect_logic(collector *c, ht_place at, ht_node when) {
    ht_schema *s = c->s;
    const ht_tree_value *if_v = ht_schema_keyword(s, at.schema, "if");
    collect_list(c, at, "allOf", when, false);
    collect_list(c, at, "anyOf", when, true);
    collect_list(c, at, "oneOf", when, true);
    if (if_v) {
        const ht_node condition = node_of(c, at, if_v);
        const ht_node yes = ht_node_and(s, when, condition), no = ht_node_and(s, when, ht_node_not(s, condition));
        collect_below(c, at, if_v, yes);
        collect_below(c, at, ht_schema_keyword(s, at.schema, "then"), yes);
        collect_below(c, at, ht_schema_keyword(s, at.schema, "else"), no);
    }
    for (int i = 0; i < 2; i++) {
        const ht_tree_value *map = ht_schema_keyword(s, at.schema, i ? "dependencies" : "dependentSchemas");
        if (!map || map->kind != HT_TREE_OBJECT) continue;
        for (const ht_tree_value *m = map->first; m && !s->status; m = m->next)
            if (m->kind == HT_TREE_OBJECT) {
                const ht_node has = ht_node_member(s, ht_keys_name(s, m->key), HT_NODE_ANYTHING);
                collect_below(c, at, m, ht_node_and(s, when, ht_node_and(s, ht_node_types(s, HT_TYPE_OBJECT), has)));
            }
    }
}

static void collect_reference(collector *c, ht_place at, const char *name, ht_reference_kind kind, ht_node when) {
    const ht_tree_value *v = ht_schema_keyword(c->s, at.schema, name);
    ht_place target;
    if (v && ht_references_resolve(c->s, kind, v, at.scope, &target)) collect(c, target, when, true);
}

static void collect_members(collector *c, ht_place at, ht_node when, bool is_nested) {
    ht_schema *s = c->s;
    const ht_tree_value *properties = ht_schema_keyword(s, at.schema, "properties");
    const ht_tree_value *patterns = ht_schema_keyword(s, at.schema, "patternProperties");
    for (const ht_tree_value *m = properties ? properties->first : NULL; m && !s->status; m = m->next)
        add_keys(c, when, ht_keys_name(s, m->key));
    for (const ht_tree_value *m = patterns ? patterns->first : NULL; m && !s->status; m = m->next) {
        const uint32_t pattern = ht_strings_add(s, ht_strings_pattern(s, m, m->key));
        add_keys(c, when, ht_keys_of(s, false, NULL, 0, &pattern, 1));
    }
    if (ht_schema_keyword(s, at.schema, "additionalProperties") ||
        (is_nested && ht_schema_keyword(s, at.schema, "unevaluatedProperties")))
        add_keys(c, when, c->all_keys);
}

static void collect_items(collector *c, ht_place at, ht_node when, bool is_nested) {
    ht_schema *s = c->s;
    const ht_tree_value *prefix = ht_schema_keyword(s, at.schema, "prefixItems"),
                        *items = ht_schema_keyword(s, at.schema, "items");
    const ht_tree_value *contains = ht_schema_keyword(s, at.schema, "contains");
    if (items && items->kind == HT_TREE_ARRAY) {
        prefix = items;
        items = ht_schema_keyword(s, at.schema, "additionalItems");
    }
    if (prefix) add_items(c, when, prefix->n);
    if (items || (is_nested && ht_schema_keyword(s, at.schema, "unevaluatedItems"))) add_items(c, when, HT_UNBOUNDED);
    if (contains && s->draft > 2019) add(c, (evaluated){when, c->no_keys, 0, node_of(c, at, contains)});
}

static void collect(collector *c, ht_place at, ht_node when, bool is_nested) {
    ht_schema *s = c->s;
    if (s->status || at.schema->kind != HT_TREE_OBJECT || when == HT_NODE_NOTHING) return;
    if (++c->depth > DEPTH_MOST)
        ht_schema_fail_at(s, at.schema, HT_ERR_FORMAT,
                          "schemas refer to each other for the same value without end, or more than 200 deep");
    collect_reference(c, at, "$ref", HT_REFERENCE_STATIC, when);
    if (!s->old_references || !ht_schema_keyword(s, at.schema, "$ref")) {
        collect_reference(c, at, "$dynamicRef", HT_REFERENCE_DYNAMIC, when);
        collect_reference(c, at, "$recursiveRef", HT_REFERENCE_RECURSIVE, when);
        collect_members(c, at, when, is_nested);
        collect_items(c, at, when, is_nested);
        collect_logic(c, at, when);
    }
    c->depth--;
}

/* ---- formulas ---- */

/* What has to hold of the rest, when those of the conditions in `mask` are taken for true. */
static ht_node formula(collector *c, const ht_node *conditions, uint32_t mask, bool of_members, ht_node rest) {
    ht_schema *s = c->s;
    uint32_t keys = c->no_keys, items = 0;
    ht_node all = HT_NODE_ANYTHING;
    for (uint32_t i = 0; i < c->n && !s->status; i++) {
        const evaluated *e = &c->list[i];
        bool holds = e->when == HT_NODE_ANYTHING;
        for (uint32_t k = 0; k < CONDITIONS_MOST; k++) holds = holds || (mask >> k & 1 && conditions[k] == e->when);
        if (!holds) continue;
        all = ht_node_and(s, all, e->when);
        if (of_members)
            keys = keys == c->all_keys || e->keys == c->all_keys ? c->all_keys : ht_keys_either(s, keys, e->keys);
        else {
            items = items > e->items ? items : e->items;
            rest = ht_node_or(s, rest, e->contained);
        }
    }
    if (s->status) return HT_NODE_NOTHING;
    if (of_members)
        return keys == c->all_keys ? all : ht_node_and(s, all, ht_node_members(s, ht_keys_others(s, keys), rest));
    return items == HT_UNBOUNDED ? all : ht_node_and(s, all, ht_node_items(s, items, rest));
}

static ht_node alternatives(collector *c, bool of_members, ht_node rest, const ht_tree_value *where) {
    ht_node conditions[CONDITIONS_MOST];
    uint32_t n = 0;
    for (uint32_t i = 0; i < c->n; i++) {
        const evaluated *e = &c->list[i];
        bool is_known = e->when == HT_NODE_ANYTHING;
        if (of_members ? e->keys == c->no_keys : !e->items && e->contained == HT_NODE_NOTHING) continue;
        for (uint32_t k = 0; k < n; k++) is_known = is_known || conditions[k] == e->when;
        if (is_known) continue;
        if (n == CONDITIONS_MOST)
            return ht_schema_fail_at(c->s, where, HT_ERR_LIMIT, "more than %d schemas next to it may or may not apply",
                                     CONDITIONS_MOST);
        conditions[n++] = e->when;
    }
    ht_node all = HT_NODE_NOTHING;
    for (uint32_t mask = 0; mask < 1u << n && !c->s->status; mask++)
        all = ht_node_or(c->s, all, formula(c, conditions, mask, of_members, rest));
    return all;
}

ht_node ht_schema_unevaluated(ht_schema *s, ht_place at) {
    const ht_tree_value *members = ht_schema_keyword(s, at.schema, "unevaluatedProperties");
    const ht_tree_value *items = ht_schema_keyword(s, at.schema, "unevaluatedItems");
    if ((!members && !items) || s->status || s->draft < 2019) return HT_NODE_ANYTHING;
    collector c = {.s = s};
    c.no_keys = ht_keys_of(s, false, NULL, 0, NULL, 0);
    c.all_keys = ht_keys_of(s, true, NULL, 0, NULL, 0);
    collect(&c, at, HT_NODE_ANYTHING, false);
    ht_node all = HT_NODE_ANYTHING;
    if (members) all = alternatives(&c, true, node_of(&c, at, members), members);
    if (items) all = ht_node_and(s, all, alternatives(&c, false, node_of(&c, at, items), items));
    free(c.list);
    return all;
}
