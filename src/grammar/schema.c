/* The compiler of JSON Schema: document, nodes, rules. */
#include "grammar/schema.h"

#include "base/error.h"
#include "grammar/schema_rules.h"

#include <stdlib.h>

static void discard(ht_schema *s) {
    ht_references_free(s);
    ht_json_tree_free(&s->tree);
    ht_arena_free(&s->arena);
    ht_intern_free(&s->nodes);
    ht_intern_free(&s->key_sets);
    ht_intern_free(&s->conjunctions);
    ht_intern_free(&s->string_sets);
    ht_intern_free(&s->scopes);
    ht_pair_map *maps[] = {&s->parsed, &s->started, &s->ones,         &s->evaluated,    &s->lists_of,
                           &s->opened, &s->listed,  &s->array_shapes, &s->object_shapes};
    for (size_t i = 0; i < sizeof maps / sizeof *maps; i++) ht_pair_map_free(maps[i]);
    for (uint32_t i = 0; i < s->n_lists; i++) free(s->lists[i].conjunction);
    free(s->lists);
    free(s->strings);
    free(s->numbers);
    free(s->later);
    free(s->scratch);
    free(s->live);
    free(s->array_shape);
    free(s->object_shape);
}

/* The texts of all names come before the questions that expressions are asked: bytes are divided once. */
static void prepare_names(ht_schema *s) {
    for (uint32_t i = 0; i < s->key_sets.n; i++) {
        const ht_keys keys = ht_keys_at(s, i);
        for (uint32_t k = 0; k < keys.n_names; k++) {
            const ht_tree_string name = s->tree.string[keys.names[k]];
            ht_strings_text(s->re, name.text, name.n);
        }
    }
}

static ht_node parse(ht_schema *s) {
    ht_intern_add(&s->nodes, (uint32_t[]){HT_NODE_FALSE}, 1, NULL);
    if (ht_intern_add(&s->nodes, (uint32_t[]){HT_NODE_TRUE}, 1, NULL) != HT_NODE_ANYTHING)
        return ht_schema_fail_memory(s);
    if (!ht_schema_read_dialect(s)) return HT_NODE_NOTHING;
    ht_references_find(s);
    const ht_node root = ht_schema_parse(s, (ht_place){s->tree.root, 0});
    if (!ht_schema_failed(s)) prepare_names(s);
    return root;
}

/* The node of the values that are wanted. */
static ht_node find_part(ht_schema *s, const ht_schema_part *part) {
    ht_node node = parse(s);
    if (part->property && !ht_schema_failed(s)) {
        const ht_tree_value *properties = ht_schema_keyword(s, s->tree.root, "properties");
        const ht_tree_value *of = properties ? ht_schema_keyword(s, properties, part->property) : NULL;
        node = of ? ht_schema_parse(s, ht_references_enter(s, (ht_place){s->tree.root, 0}, of)) : HT_NODE_ANYTHING;
        if (!ht_schema_failed(s)) prepare_names(s);
    }
    return part->is_object && !ht_schema_failed(s) ? ht_node_and(s, node, ht_node_types(s, HT_TYPE_OBJECT)) : node;
}

ht_status ht_schema_embed(ht_rules *rules, const char *json, size_t n, const ht_schema_options *options,
                          const ht_schema_part *part, ht_symbol *out, ht_error *err) {
    ht_schema s = {.rules = rules, .re = rules->re, .err = err};
    *out = 0;
    if (options) s.options = *options;
    s.status = ht_json_tree_parse(&s.tree, json, n, "the JSON Schema", err);
    if (!s.status) {
        const ht_node node = find_part(&s, part);
        const bool live = !ht_schema_failed(&s) && ht_set_is_live(&s, node);
        if (!ht_schema_failed(&s) && !live)
            s.status = ht_fail(err, HT_ERR_FORMAT, "the JSON Schema has no valid value");
        if (!ht_schema_failed(&s)) *out = ht_schema_make_rules(&s, node);
        (void)ht_schema_failed(&s);
    }
    discard(&s);
    return s.status;
}

ht_status ht_schema_compile(const char *json, size_t n, const ht_schema_options *options, ht_rules **out,
                            ht_error *err) {
    ht_schema s = {.err = err};
    bool has_text = false;
    *out = NULL;
    if (options) s.options = *options;
    s.status = ht_json_tree_parse(&s.tree, json, n, "the JSON Schema", err);
    s.rules = ht_rules_new();
    if (!s.status && !s.rules) s.status = ht_fail_memory(err, n, "a JSON Schema");
    if (!s.status) {
        s.re = s.rules->re;
        const ht_node root = parse(&s);
        const bool live = !ht_schema_failed(&s) && ht_set_is_live(&s, root);
        if (!ht_schema_failed(&s) && !live)
            s.status = ht_fail(err, HT_ERR_FORMAT, "the JSON Schema has no valid value");
        const ht_symbol start = ht_schema_failed(&s) ? 0 : ht_schema_make_rules(&s, root);
        if (!ht_schema_failed(&s)) ht_rules_finish(s.rules, start, &has_text);
        if (!ht_schema_failed(&s) && !has_text)
            s.status = ht_fail(err, HT_ERR_FORMAT, "the JSON Schema has no valid value");
    }
    discard(&s);
    if (s.status)
        ht_rules_free(s.rules);
    else
        *out = s.rules;
    return s.status;
}
