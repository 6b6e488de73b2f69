/* Schemas of the document to nodes: a keyword is a formula of leaves, a schema all of its keywords. */
#include "base/error.h"
#include "grammar/schema.h"

#include <string.h>

/* Schemas within each other, by references as well. */
enum { DEPTH_MOST = 1500 };

const ht_tree_value *ht_schema_keyword(ht_schema *s, const ht_tree_value *schema, const char *name) {
    if (schema->kind != HT_TREE_OBJECT) return NULL;
    const uint32_t string = ht_json_tree_string(&s->tree, name, strlen(name));
    if (string == HT_INTERN_FAILED) return ht_schema_fail_memory(s), NULL;
    return ht_tree_member(&s->tree, schema, string);
}

/* ---- what keywords hold ---- */

static bool is_kind(ht_schema *s, const ht_tree_value *v, ht_tree_kind kind) {
    static const char *const names[] = {"null", "false", "true", "a number", "a string", "a list", "an object"};
    if (v->kind == kind) return true;
    ht_schema_fail_at(s, v, HT_ERR_FORMAT, "%s is expected here, not %s", names[kind], names[v->kind]);
    return false;
}

/* A keyword that is a number from 0 on without a fraction; `otherwise` where it is missing. */
static uint32_t count(ht_schema *s, const ht_tree_value *schema, const char *name, uint32_t otherwise) {
    const ht_tree_value *v = ht_schema_keyword(s, schema, name);
    ht_decimal d;
    uint32_t n = otherwise;
    if (!v || !is_kind(s, v, HT_TREE_NUMBER) || !ht_decimal_read(s, v, &d)) return otherwise;
    if (!ht_decimal_count(&d, &n)) ht_schema_fail_at(s, v, HT_ERR_FORMAT, "a whole number from 0 on is expected");
    return n;
}

static ht_node below(ht_schema *s, ht_place from, const ht_tree_value *v) {
    return ht_schema_parse(s, ht_references_enter(s, from, v));
}

/* ---- types and values ---- */

static ht_node type_node(ht_schema *s, const ht_tree_value *v) {
    static const struct {
        const char *name;
        uint32_t types;
    } types[] = {{"null", HT_TYPE_NULL},     {"boolean", HT_TYPE_FALSE | HT_TYPE_TRUE},
                 {"number", HT_TYPE_NUMBER}, {"string", HT_TYPE_STRING},
                 {"array", HT_TYPE_ARRAY},   {"object", HT_TYPE_OBJECT}};
    if (!is_kind(s, v, HT_TREE_STRING)) return HT_NODE_NOTHING;
    const char *name = s->tree.string[v->string].text;
    for (size_t i = 0; i < sizeof types / sizeof *types; i++)
        if (!strcmp(name, types[i].name)) return ht_node_types(s, types[i].types);
    if (!strcmp(name, "integer"))
        return ht_node_and(s, ht_node_types(s, HT_TYPE_NUMBER), ht_node_numbers(s, ht_numbers_integers(s)));
    return ht_schema_fail_at(
        s, v, HT_ERR_FORMAT,
        "there is no type `%.100s`; types are null, boolean, integer, number, string, array, object", name);
}

static ht_node types(ht_schema *s, const ht_tree_value *v) {
    if (v->kind != HT_TREE_ARRAY) return type_node(s, v);
    const uint32_t begin = s->n_scratch;
    for (const ht_tree_value *one = v->first; one && !s->status; one = one->next) ht_schema_push(s, type_node(s, one));
    return ht_node_join_scratch(s, HT_NODE_OR, begin);
}

/* Strings of an enum are one list; of the other values each is a node. */
static ht_node enumeration(ht_schema *s, const ht_tree_value *v) {
    if (!is_kind(s, v, HT_TREE_ARRAY)) return HT_NODE_NOTHING;
    ht_number_set numbers = {HT_RE_NONE, HT_RE_NONE};
    uint32_t *list = ht_schema_take(s, v->n, sizeof *list), n = 0;
    const uint32_t begin = s->n_scratch;
    ht_decimal d;
    for (const ht_tree_value *one = v->first; one && !s->status; one = one->next)
        if (one->kind == HT_TREE_STRING)
            list[n++] = one->string;
        else if (one->kind == HT_TREE_NUMBER) {
            if (ht_decimal_read(s, one, &d)) numbers = ht_numbers_either(s, numbers, ht_numbers_one(s, &d));
        } else
            ht_schema_push(s, ht_node_value(s, one));
    if (n) {
        const ht_node strings = ht_node_strings(s, ht_strings_listed(s, list, n));
        ht_schema_push(s, ht_node_and(s, ht_node_types(s, HT_TYPE_STRING), strings));
    }
    if (numbers.all != HT_RE_NONE)
        ht_schema_push(s, ht_node_and(s, ht_node_types(s, HT_TYPE_NUMBER), ht_node_numbers(s, numbers)));
    return ht_node_join_scratch(s, HT_NODE_OR, begin);
}

/* ---- numbers and strings ---- */

/* `exclusive` is the bound itself, or in draft 4 whether the other one is excluded. */
static void push_bounds(ht_schema *s, const ht_tree_value *schema, bool above) {
    const ht_tree_value *bound = ht_schema_keyword(s, schema, above ? "minimum" : "maximum");
    const ht_tree_value *exclusive = ht_schema_keyword(s, schema, above ? "exclusiveMinimum" : "exclusiveMaximum");
    const bool excluded = exclusive && exclusive->kind == HT_TREE_TRUE;
    ht_decimal d;
    if (exclusive && (excluded || exclusive->kind == HT_TREE_FALSE)) exclusive = NULL;
    for (int i = 0; i < 2; i++) {
        const ht_tree_value *v = i ? exclusive : bound;
        const bool included = !i && !excluded;
        if (!v || !is_kind(s, v, HT_TREE_NUMBER) || !ht_decimal_read(s, v, &d)) continue;
        ht_schema_push(
            s, ht_node_numbers(s, above ? ht_numbers_above(s, &d, included) : ht_numbers_below(s, &d, included)));
    }
}

static void push_numbers(ht_schema *s, const ht_tree_value *schema) {
    const ht_tree_value *multiple = ht_schema_keyword(s, schema, "multipleOf");
    ht_decimal d;
    ht_number_set set;
    push_bounds(s, schema, true);
    push_bounds(s, schema, false);
    if (!multiple || !is_kind(s, multiple, HT_TREE_NUMBER) || !ht_decimal_read(s, multiple, &d)) return;
    if (d.is_negative || !d.n)
        ht_schema_fail_at(s, multiple, HT_ERR_FORMAT, "a number above 0 is expected");
    else if (!ht_numbers_multiple(s, &d, &set))
        ht_schema_fail_at(s, multiple, HT_ERR_LIMIT, "multiples of a number of more than 17 digits are not supported");
    else
        ht_schema_push(s, ht_node_numbers(s, set));
}

static void push_strings(ht_schema *s, const ht_tree_value *schema) {
    const uint32_t least = count(s, schema, "minLength", 0), most = count(s, schema, "maxLength", HT_UNBOUNDED);
    if (least > most)
        ht_schema_push(s, ht_node_types(s, HT_TYPE_ALL & ~HT_TYPE_STRING));
    else
        ht_schema_push(s, ht_node_strings(s, ht_strings_length(s, least, most)));
    const ht_tree_value *v = ht_schema_keyword(s, schema, "pattern");
    if (v && is_kind(s, v, HT_TREE_STRING)) ht_schema_push(s, ht_node_strings(s, ht_strings_pattern(s, v, v->string)));
    v = ht_schema_keyword(s, schema, "format");
    ht_string_set set;
    if (v && !s->options.ignore_formats && is_kind(s, v, HT_TREE_STRING) && ht_strings_format(s, v, &set))
        ht_schema_push(s, ht_node_strings(s, set));
}

/* ---- arrays ---- */

static void push_arrays(ht_schema *s, ht_place at) {
    const ht_tree_value *prefix = ht_schema_keyword(s, at.schema, "prefixItems"),
                        *rest = ht_schema_keyword(s, at.schema, "items");
    if (rest && rest->kind == HT_TREE_ARRAY) {
        prefix = rest;
        rest = ht_schema_keyword(s, at.schema, "additionalItems");
    }
    if (prefix && !is_kind(s, prefix, HT_TREE_ARRAY)) return;
    for (const ht_tree_value *v = prefix ? prefix->first : NULL; v && !s->status; v = v->next)
        ht_schema_push(s, ht_node_item(s, v->index, below(s, at, v)));
    if (rest) ht_schema_push(s, ht_node_items(s, prefix ? prefix->n : 0, below(s, at, rest)));
    ht_schema_push(
        s, ht_node_length(s, count(s, at.schema, "minItems", 0), count(s, at.schema, "maxItems", HT_UNBOUNDED)));
    const ht_tree_value *contains = ht_schema_keyword(s, at.schema, "contains");
    if (contains) {
        const uint32_t least = s->draft < 2019 ? 1 : count(s, at.schema, "minContains", 1);
        const uint32_t most = s->draft < 2019 ? HT_UNBOUNDED : count(s, at.schema, "maxContains", HT_UNBOUNDED);
        ht_schema_push(s, ht_node_count(s, 0, below(s, at, contains), least, most));
    }
    const ht_tree_value *unique = ht_schema_keyword(s, at.schema, "uniqueItems");
    if (unique && unique->kind == HT_TREE_TRUE)
        ht_schema_push(s, ht_node_of(s, (uint32_t[]){HT_NODE_UNIQUE, unique->number}, 2));
    else if (unique && unique->kind != HT_TREE_FALSE)
        ht_schema_fail_at(s, unique, HT_ERR_FORMAT, "true or false is expected");
}

/* ---- objects ---- */

static uint32_t pattern_keys(ht_schema *s, const ht_tree_value *member) {
    const uint32_t pattern = ht_strings_add(s, ht_strings_pattern(s, member, member->key));
    return ht_keys_of(s, false, NULL, 0, &pattern, 1);
}

static ht_node required(ht_schema *s, uint32_t name) {
    return ht_node_member(s, ht_keys_name(s, name), HT_NODE_ANYTHING);
}

static void push_required(ht_schema *s, const ht_tree_value *list) {
    if (!list || !is_kind(s, list, HT_TREE_ARRAY)) return;
    for (const ht_tree_value *v = list->first; v && !s->status; v = v->next)
        if (is_kind(s, v, HT_TREE_STRING)) ht_schema_push(s, required(s, v->string));
}

/* Members that a closed object has by their schema. */
static void push_named(ht_schema *s, uint32_t keys, const ht_tree_value *schema) {
    if (s->options.closed && !s->status && schema->kind != HT_TREE_FALSE)
        ht_schema_push(s, ht_node_of(s, (uint32_t[]){HT_NODE_NAMED, keys}, 2));
}

/* properties, patternProperties, additionalProperties. */
static void push_members(ht_schema *s, ht_place at) {
    const ht_tree_value *properties = ht_schema_keyword(s, at.schema, "properties");
    const ht_tree_value *patterns = ht_schema_keyword(s, at.schema, "patternProperties");
    const ht_tree_value *rest = ht_schema_keyword(s, at.schema, "additionalProperties");
    if ((properties && !is_kind(s, properties, HT_TREE_OBJECT)) || (patterns && !is_kind(s, patterns, HT_TREE_OBJECT)))
        return;
    const uint32_t n_names = properties ? properties->n : 0, n_patterns = patterns ? patterns->n : 0;
    uint32_t *words = ht_schema_take(s, (size_t)n_names + n_patterns + 1, sizeof *words);
    if (!words) return;
    words[0] = HT_NODE_ORDER;
    for (const ht_tree_value *m = properties ? properties->first : NULL; m && !s->status; m = m->next) {
        words[1 + m->index] = m->key;
        ht_schema_push(s, ht_node_members(s, ht_keys_name(s, m->key), below(s, at, m)));
    }
    if (n_names && (s->options.ordered || s->options.closed) && !s->status)
        ht_schema_push(s, ht_node_of(s, words, 1 + (size_t)n_names));
    for (const ht_tree_value *m = patterns ? patterns->first : NULL; m && !s->status; m = m->next) {
        const uint32_t keys = pattern_keys(s, m);
        words[1 + n_names + m->index] = s->status ? 0 : *ht_keys_at(s, keys).patterns;
        ht_schema_push(s, ht_node_members(s, keys, below(s, at, m)));
        push_named(s, keys, m);
    }
    const ht_tree_value *unevaluated = ht_schema_keyword(s, at.schema, "unevaluatedProperties");
    if (unevaluated) push_named(s, ht_keys_of(s, true, NULL, 0, NULL, 0), unevaluated);
    if (!rest || s->status) return;
    const uint32_t keys = ht_keys_of(s, true, words + 1, n_names, words + 1 + n_names, n_patterns);
    ht_schema_push(s, ht_node_members(s, keys, below(s, at, rest)));
    push_named(s, keys, rest);
}

/* Members that ask for others, or for a schema of the whole object. */
static void push_dependencies(ht_schema *s, ht_place at, const char *name) {
    const ht_tree_value *v = ht_schema_keyword(s, at.schema, name);
    if (!v || !is_kind(s, v, HT_TREE_OBJECT)) return;
    for (const ht_tree_value *m = v->first; m && !s->status; m = m->next) {
        const uint32_t begin = s->n_scratch;
        ht_node then;
        if (m->kind == HT_TREE_ARRAY) {
            push_required(s, m);
            then = ht_node_join_scratch(s, HT_NODE_AND, begin);
        } else if (m->kind == HT_TREE_STRING)
            then = required(s, m->string);
        else
            then = below(s, at, m);
        const ht_node is_object = ht_node_types(s, HT_TYPE_OBJECT);
        ht_schema_push(s, ht_node_or(s, ht_node_not(s, ht_node_and(s, is_object, required(s, m->key))), then));
    }
}

static void push_objects(ht_schema *s, ht_place at) {
    push_members(s, at);
    push_required(s, ht_schema_keyword(s, at.schema, "required"));
    ht_schema_push(s, ht_node_size(s, count(s, at.schema, "minProperties", 0),
                                   count(s, at.schema, "maxProperties", HT_UNBOUNDED)));
    push_dependencies(s, at, "dependentRequired");
    push_dependencies(s, at, "dependentSchemas");
    push_dependencies(s, at, "dependencies");
    const ht_tree_value *names = ht_schema_keyword(s, at.schema, "propertyNames");
    if (!names) return;
    const ht_node keys = below(s, at, names);
    if (keys == HT_NODE_NOTHING)
        ht_schema_push(s, ht_node_size(s, 0, 0));
    else if (keys != HT_NODE_ANYTHING)
        ht_schema_push(s, ht_node_of(s, (uint32_t[]){HT_NODE_KEYS, keys}, 2));
}

/* ---- logic ---- */

/* The nodes of a list of schemas onto the scratch stack; false when there is none. */
static bool push_list(ht_schema *s, ht_place at, const char *name) {
    const ht_tree_value *list = ht_schema_keyword(s, at.schema, name);
    if (!list || !is_kind(s, list, HT_TREE_ARRAY)) return false;
    if (!list->n) return ht_schema_fail_at(s, list, HT_ERR_FORMAT, "at least one schema is expected"), false;
    for (const ht_tree_value *v = list->first; v && !s->status; v = v->next) ht_schema_push(s, below(s, at, v));
    return true;
}

static ht_node exactly_one(ht_schema *s, uint32_t begin) {
    ht_node one = HT_NODE_NOTHING;
    const uint32_t n = s->n_scratch - begin;
    if (n == 1)
        one = s->scratch[begin];
    else {
        ht_schema_push(s, 0);
        if (!s->status) {
            memmove(s->scratch + begin + 1, s->scratch + begin, n * sizeof *s->scratch);
            s->scratch[begin] = HT_NODE_ONE;
            one = ht_node_of(s, s->scratch + begin, (size_t)n + 1);
        }
    }
    s->n_scratch = begin;
    return one;
}

static void push_logic(ht_schema *s, ht_place at) {
    push_list(s, at, "allOf");
    uint32_t begin = s->n_scratch;
    if (push_list(s, at, "anyOf")) ht_schema_push(s, ht_node_join_scratch(s, HT_NODE_OR, begin));
    begin = s->n_scratch;
    if (push_list(s, at, "oneOf")) ht_schema_push(s, exactly_one(s, begin));
    const ht_tree_value *not_v = ht_schema_keyword(s, at.schema, "not"), *if_v = ht_schema_keyword(s, at.schema, "if");
    const ht_tree_value *then_v = ht_schema_keyword(s, at.schema, "then"),
                        *else_v = ht_schema_keyword(s, at.schema, "else");
    if (not_v) ht_schema_push(s, ht_node_not(s, below(s, at, not_v)));
    if (!if_v || (!then_v && !else_v) || s->draft < 7) return;
    const ht_node condition = below(s, at, if_v);
    const ht_node yes = then_v ? below(s, at, then_v) : HT_NODE_ANYTHING,
                  no = else_v ? below(s, at, else_v) : HT_NODE_ANYTHING;
    ht_schema_push(s, ht_node_or(s, ht_node_and(s, condition, yes), ht_node_and(s, ht_node_not(s, condition), no)));
}

static void push_reference(ht_schema *s, ht_place at, const char *name, ht_reference_kind kind) {
    const ht_tree_value *v = ht_schema_keyword(s, at.schema, name);
    ht_place target;
    if (v && ht_references_resolve(s, kind, v, at.scope, &target)) ht_schema_push(s, ht_schema_parse(s, target));
}

/* ---- schemas ---- */

static bool is_known_dialect(ht_schema *s, const ht_tree_value *v) {
    static const struct {
        const char *name;
        int draft;
    } drafts[] = {{"draft-04/schema", 4},         {"draft-06/schema", 6},         {"draft-07/schema", 7},
                  {"draft/2019-09/schema", 2019}, {"draft/2020-12/schema", 2020}, {"schema", 2020}};
    if (!is_kind(s, v, HT_TREE_STRING)) return false;
    const char *uri = s->tree.string[v->string].text, *name = strstr(uri, "://json-schema.org/");
    if (name && (name == uri + 4 || name == uri + 5)) {
        name += strlen("://json-schema.org/");
        for (size_t i = 0; i < sizeof drafts / sizeof *drafts; i++) {
            const size_t n = strlen(drafts[i].name);
            if (strncmp(name, drafts[i].name, n) != 0 || (name[n] && strcmp(name + n, "#") != 0)) continue;
            if (v->parent == s->tree.root || s->draft == drafts[i].draft) {
                s->draft = drafts[i].draft;
                return true;
            }
        }
    }
    ht_schema_fail_at(
        s, v, HT_ERR_UNSUPPORTED,
        "the dialect `%.200s` is not known here; drafts 4, 6, 7, 2019-09 and 2020-12 are, one in a document", uri);
    return false;
}

bool ht_schema_read_dialect(ht_schema *s) {
    const ht_tree_value *v = ht_schema_keyword(s, s->tree.root, "$schema");
    s->draft = 2020;
    if (v && !is_known_dialect(s, v)) return false;
    s->old_references = s->draft <= 7;
    return true;
}

static ht_node parse_object(ht_schema *s, ht_place at) {
    const ht_tree_value *v = at.schema;
    const uint32_t begin = s->n_scratch;
    const ht_tree_value *dialect = ht_schema_keyword(s, v, "$schema");
    if (dialect && !is_known_dialect(s, dialect)) return HT_NODE_NOTHING;
    push_reference(s, at, "$ref", HT_REFERENCE_STATIC);
    if (!s->old_references || !ht_schema_keyword(s, v, "$ref")) {
        push_reference(s, at, "$dynamicRef", HT_REFERENCE_DYNAMIC);
        push_reference(s, at, "$recursiveRef", HT_REFERENCE_RECURSIVE);
        const ht_tree_value *type = ht_schema_keyword(s, v, "type"), *values = ht_schema_keyword(s, v, "enum");
        const ht_tree_value *value = ht_schema_keyword(s, v, "const");
        if (type) ht_schema_push(s, types(s, type));
        if (values) ht_schema_push(s, enumeration(s, values));
        if (value && s->draft > 4) ht_schema_push(s, ht_node_value(s, value));
        push_numbers(s, v);
        push_strings(s, v);
        push_arrays(s, at);
        push_objects(s, at);
        push_logic(s, at);
        ht_schema_push(s, ht_schema_unevaluated(s, at));
    }
    return ht_node_join_scratch(s, HT_NODE_AND, begin);
}

/* Schemas that refer to themselves are known by a number until they are parsed. */

static uint32_t later_number(ht_schema *s) {
    if (!HT_SCHEMA_APPEND(s, s->later, s->n_later)) return 0;
    s->later[s->n_later] = HT_NODE_NOTHING;
    return s->n_later++;
}

ht_node ht_schema_parse(ht_schema *s, ht_place at) {
    const ht_tree_value *v = at.schema;
    if (s->status) return HT_NODE_NOTHING;
    if (v->kind == HT_TREE_TRUE || v->kind == HT_TREE_FALSE)
        return v->kind == HT_TREE_TRUE ? HT_NODE_ANYTHING : HT_NODE_NOTHING;
    if (v->kind != HT_TREE_OBJECT)
        return ht_schema_fail_at(s, v, HT_ERR_FORMAT, "a schema is expected: an object, true or false");
    ht_node node = ht_pair_map_find(&s->parsed, v->number, at.scope);
    if (node != HT_INTERN_FAILED) return node;
    const uint32_t started = ht_pair_map_find(&s->started, v->number, at.scope);
    if (started != HT_INTERN_FAILED) return ht_node_of(s, (uint32_t[]){HT_NODE_LATER, started}, 2);
    if (++s->depth > DEPTH_MOST) return ht_schema_fail_limit(s, "schemas refer to each other too deeply");
    const uint32_t number = later_number(s);
    if (s->status) return HT_NODE_NOTHING;
    if (!ht_pair_map_add(&s->started, v->number, at.scope, number)) return ht_schema_fail_memory(s);
    node = parse_object(s, at);
    s->depth--;
    s->later[number] = node;
    if (!s->status && !ht_pair_map_add(&s->parsed, v->number, at.scope, node)) ht_schema_fail_memory(s);
    return node;
}
