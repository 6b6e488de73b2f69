/* Schemas of the document to nodes: a keyword is a formula of leaves, a schema all of its keywords. */
#include "grammar/schema.h"

#include <stdlib.h>
#include <string.h>

/* Nesting of schemas at most, including references. */
enum { DEPTH_MOST = 1500 };

const ht_tree_value *ht_schema_keyword(ht_schema *s, const ht_tree_value *schema, const char *name) {
    if (schema->kind != HT_SCAN_OBJECT) return NULL;
    const uint32_t string = ht_json_tree_string(&s->tree, name, strlen(name));
    if (string == HT_INTERN_FAILED) return ht_schema_fail_memory(s), NULL;
    return ht_tree_member(&s->tree, schema, string);
}

/* ---- values of keywords ---- */

static bool is_kind(ht_schema *s, const ht_tree_value *v, ht_json_event kind) {
    static const char *const names[] = {
        [HT_SCAN_NULL] = "null",       [HT_SCAN_FALSE] = "false",     [HT_SCAN_TRUE] = "true",
        [HT_SCAN_NUMBER] = "a number", [HT_SCAN_STRING] = "a string", [HT_SCAN_ARRAY] = "a list",
        [HT_SCAN_OBJECT] = "an object"};
    if (v->kind == kind) return true;
    ht_schema_fail_at(s, v, HT_ERR_FORMAT, "%s is expected here, not %s", names[kind], names[v->kind]);
    return false;
}

/* A keyword that is a whole number, not negative; `otherwise` if it is missing. */
static uint32_t count(ht_schema *s, const ht_tree_value *schema, const char *name, uint32_t otherwise) {
    const ht_tree_value *v = ht_schema_keyword(s, schema, name);
    ht_decimal d;
    uint64_t n;
    if (!v || !is_kind(s, v, HT_SCAN_NUMBER) || !ht_decimal_read(s, v, &d)) return otherwise;
    if (ht_decimal_whole(&d, HT_UNBOUNDED - 1, &n)) return (uint32_t)n;
    ht_schema_fail_at(s, v, HT_ERR_FORMAT, "a whole number from 0 on is expected");
    return otherwise;
}

static ht_node below(ht_schema *s, ht_place from, const ht_tree_value *v) {
    return ht_schema_parse(s, ht_references_enter(s, from, v));
}

/* ---- types and values ---- */

uint32_t ht_schema_type(const char *name) {
    static const struct {
        const char *name;
        uint32_t types;
    } types[] = {{"null", HT_TYPE_NULL},     {"boolean", HT_TYPE_BOOLEAN}, {"number", HT_TYPE_NUMBER},
                 {"string", HT_TYPE_STRING}, {"array", HT_TYPE_ARRAY},     {"object", HT_TYPE_OBJECT},
                 {"integer", HT_TYPE_NUMBER}};
    for (size_t i = 0; i < sizeof types / sizeof *types; i++)
        if (!strcmp(name, types[i].name)) return types[i].types;
    return 0;
}

static ht_node type_node(ht_schema *s, const ht_tree_value *v) {
    if (!is_kind(s, v, HT_SCAN_STRING)) return HT_NODE_NOTHING;
    const char *name = s->tree.string[v->string].text;
    const uint32_t types = ht_schema_type(name);
    if (types && strcmp(name, "integer") != 0) return ht_node_types(s, types);
    if (types) return ht_node_and(s, ht_node_types(s, HT_TYPE_NUMBER), ht_node_numbers(s, ht_numbers_integers(s)));
    return ht_schema_fail_at(
        s, v, HT_ERR_FORMAT,
        "there is no type `%.100s`; types are null, boolean, integer, number, string, array, object", name);
}

static ht_node types(ht_schema *s, const ht_tree_value *v) {
    if (v->kind != HT_SCAN_ARRAY) return type_node(s, v);
    const uint32_t begin = s->n_scratch;
    for (const ht_tree_value *one = v->first; one && !s->status; one = one->next) ht_schema_push(s, type_node(s, one));
    return ht_node_join_scratch(s, HT_NODE_OR, begin);
}

/* Strings of an enum are one list; of the other values each is a node. */
static ht_node enumeration(ht_schema *s, const ht_tree_value *v) {
    if (!is_kind(s, v, HT_SCAN_ARRAY)) return HT_NODE_NOTHING;
    ht_number_set numbers = {HT_RE_NONE, HT_RE_NONE};
    uint32_t *list = ht_schema_take(s, v->n, sizeof *list), n = 0;
    const uint32_t begin = s->n_scratch;
    ht_decimal d;
    for (const ht_tree_value *one = v->first; one && !s->status; one = one->next)
        if (one->kind == HT_SCAN_STRING)
            list[n++] = one->string;
        else if (one->kind == HT_SCAN_NUMBER) {
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
    const bool excluded = exclusive && exclusive->kind == HT_SCAN_TRUE;
    ht_decimal d;
    if (exclusive && (excluded || exclusive->kind == HT_SCAN_FALSE)) exclusive = NULL;
    for (int i = 0; i < 2; i++) {
        const ht_tree_value *v = i ? exclusive : bound;
        const bool included = !i && !excluded;
        if (!v || !is_kind(s, v, HT_SCAN_NUMBER) || !ht_decimal_read(s, v, &d)) continue;
        ht_schema_push(s, ht_node_numbers(s, ht_numbers_bounded(s, &d, above, included)));
    }
}

static void push_numbers(ht_schema *s, const ht_tree_value *schema) {
    const ht_tree_value *multiple = ht_schema_keyword(s, schema, "multipleOf");
    ht_decimal d;
    ht_number_set set;
    push_bounds(s, schema, true);
    push_bounds(s, schema, false);
    if (!multiple || !is_kind(s, multiple, HT_SCAN_NUMBER) || !ht_decimal_read(s, multiple, &d)) return;
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
    if (v && is_kind(s, v, HT_SCAN_STRING)) ht_schema_push(s, ht_node_strings(s, ht_strings_pattern(s, v, v->string)));
    v = ht_schema_keyword(s, schema, "format");
    ht_string_set set;
    if (v && !s->options.ignore_formats && is_kind(s, v, HT_SCAN_STRING) && ht_strings_format(s, v, &set))
        ht_schema_push(s, ht_node_strings(s, set));
}

/* The schemas of the first items, one each, and the schema of all further ones; NULL: none. */
static void item_schemas(ht_schema *s, const ht_tree_value *schema, const ht_tree_value **prefix,
                         const ht_tree_value **rest) {
    *prefix = ht_schema_keyword(s, schema, "prefixItems");
    *rest = ht_schema_keyword(s, schema, "items");
    if (*rest && (*rest)->kind == HT_SCAN_ARRAY) {
        *prefix = *rest;
        *rest = ht_schema_keyword(s, schema, "additionalItems");
    }
}

static void push_arrays(ht_schema *s, ht_place at) {
    const ht_tree_value *prefix, *rest;
    item_schemas(s, at.schema, &prefix, &rest);
    if (prefix && !is_kind(s, prefix, HT_SCAN_ARRAY)) return;
    for (const ht_tree_value *v = prefix ? prefix->first : NULL; v && !s->status; v = v->next)
        ht_schema_push(s, ht_node_item(s, v->index, below(s, at, v)));
    if (rest) ht_schema_push(s, ht_node_items(s, prefix ? prefix->n : 0, below(s, at, rest)));
    ht_schema_push(s, ht_node_counted(s, HT_NODE_LENGTH, count(s, at.schema, "minItems", 0),
                                      count(s, at.schema, "maxItems", HT_UNBOUNDED)));
    const ht_tree_value *contains = ht_schema_keyword(s, at.schema, "contains");
    if (contains) {
        const uint32_t least = s->parsed.draft < 2019 ? 1 : count(s, at.schema, "minContains", 1);
        const uint32_t most = s->parsed.draft < 2019 ? HT_UNBOUNDED : count(s, at.schema, "maxContains", HT_UNBOUNDED);
        ht_schema_push(s, ht_node_count(s, 0, below(s, at, contains), least, most));
    }
    const ht_tree_value *unique = ht_schema_keyword(s, at.schema, "uniqueItems");
    if (unique && unique->kind == HT_SCAN_TRUE)
        ht_schema_push(s, ht_node_of(s, (uint32_t[]){HT_NODE_UNIQUE, unique->number}, 2));
    else if (unique && unique->kind != HT_SCAN_FALSE)
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
    if (!list || !is_kind(s, list, HT_SCAN_ARRAY)) return;
    for (const ht_tree_value *v = list->first; v && !s->status; v = v->next)
        if (is_kind(s, v, HT_SCAN_STRING)) ht_schema_push(s, required(s, v->string));
}

/* Marks the properties that a schema describes, for closed objects. */
static void push_named(ht_schema *s, uint32_t keys, const ht_tree_value *schema) {
    if (s->options.closed && !s->status && schema->kind != HT_SCAN_FALSE)
        ht_schema_push(s, ht_node_of(s, (uint32_t[]){HT_NODE_NAMED, keys}, 2));
}

static void push_members(ht_schema *s, ht_place at) {
    const ht_tree_value *properties = ht_schema_keyword(s, at.schema, "properties");
    const ht_tree_value *patterns = ht_schema_keyword(s, at.schema, "patternProperties");
    const ht_tree_value *rest = ht_schema_keyword(s, at.schema, "additionalProperties");
    if ((properties && !is_kind(s, properties, HT_SCAN_OBJECT)) || (patterns && !is_kind(s, patterns, HT_SCAN_OBJECT)))
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

/* Properties that require others, or a schema for the whole object. */
static void push_dependencies(ht_schema *s, ht_place at, const char *name) {
    const ht_tree_value *v = ht_schema_keyword(s, at.schema, name);
    if (!v || !is_kind(s, v, HT_SCAN_OBJECT)) return;
    for (const ht_tree_value *m = v->first; m && !s->status; m = m->next) {
        const uint32_t begin = s->n_scratch;
        ht_node then;
        if (m->kind == HT_SCAN_ARRAY) {
            push_required(s, m);
            then = ht_node_join_scratch(s, HT_NODE_AND, begin);
        } else if (m->kind == HT_SCAN_STRING)
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
    ht_schema_push(s, ht_node_counted(s, HT_NODE_SIZE, count(s, at.schema, "minProperties", 0),
                                      count(s, at.schema, "maxProperties", HT_UNBOUNDED)));
    push_dependencies(s, at, "dependentRequired");
    push_dependencies(s, at, "dependentSchemas");
    push_dependencies(s, at, "dependencies");
    const ht_tree_value *names = ht_schema_keyword(s, at.schema, "propertyNames");
    if (!names) return;
    const ht_node keys = below(s, at, names);
    if (keys == HT_NODE_NOTHING)
        ht_schema_push(s, ht_node_counted(s, HT_NODE_SIZE, 0, 0));
    else if (keys != HT_NODE_ANYTHING)
        ht_schema_push(s, ht_node_of(s, (uint32_t[]){HT_NODE_KEYS, keys}, 2));
}

/* ---- logic ---- */

/* Pushes the nodes of a list of schemas; false without a list. */
static bool push_list(ht_schema *s, ht_place at, const char *name) {
    const ht_tree_value *list = ht_schema_keyword(s, at.schema, name);
    if (!list || !is_kind(s, list, HT_SCAN_ARRAY)) return false;
    if (!list->n) return ht_schema_fail_at(s, list, HT_ERR_FORMAT, "at least one schema is expected"), false;
    for (const ht_tree_value *v = list->first; v && !s->status; v = v->next) ht_schema_push(s, below(s, at, v));
    return true;
}

static void push_logic(ht_schema *s, ht_place at) {
    push_list(s, at, "allOf");
    uint32_t begin = s->n_scratch;
    if (push_list(s, at, "anyOf")) ht_schema_push(s, ht_node_join_scratch(s, HT_NODE_OR, begin));
    begin = s->n_scratch;
    ht_schema_push(s, HT_NODE_ONE);
    const bool is_one = push_list(s, at, "oneOf") && !s->status;
    const uint32_t n = s->n_scratch - begin;
    const ht_node one = !is_one  ? HT_NODE_NOTHING
                        : n == 2 ? s->scratch[begin + 1]
                                 : ht_node_of(s, s->scratch + begin, n);
    s->n_scratch = begin;
    if (is_one) ht_schema_push(s, one);
    const ht_tree_value *not_v = ht_schema_keyword(s, at.schema, "not"), *if_v = ht_schema_keyword(s, at.schema, "if");
    const ht_tree_value *then_v = ht_schema_keyword(s, at.schema, "then"),
                        *else_v = ht_schema_keyword(s, at.schema, "else");
    if (not_v) ht_schema_push(s, ht_node_not(s, below(s, at, not_v)));
    if (!if_v || (!then_v && !else_v) || s->parsed.draft < 7) return;
    const ht_node condition = below(s, at, if_v);
    const ht_node yes = then_v ? below(s, at, then_v) : HT_NODE_ANYTHING,
                  no = else_v ? below(s, at, else_v) : HT_NODE_ANYTHING;
    ht_schema_push(s, ht_node_or(s, ht_node_and(s, condition, yes), ht_node_and(s, ht_node_not(s, condition), no)));
}

static void push_reference(ht_schema *s, ht_place at, const char *name, ht_reference_kind kind) {
    ht_place target;
    if (ht_references_resolve(s, at, name, kind, &target)) ht_schema_push(s, ht_schema_parse(s, target));
}

/* ---- schemas ---- */

static bool is_known_dialect(ht_schema *s, const ht_tree_value *v) {
    static const struct {
        const char *name;
        int draft;
    } drafts[] = {{"draft-04/schema", 4},         {"draft-06/schema", 6},         {"draft-07/schema", 7},
                  {"draft/2019-09/schema", 2019}, {"draft/2020-12/schema", 2020}, {"schema", 2020}};
    if (!is_kind(s, v, HT_SCAN_STRING)) return false;
    const char *uri = s->tree.string[v->string].text, *name = strstr(uri, "://json-schema.org/");
    if (name && (name == uri + 4 || name == uri + 5)) {
        name += strlen("://json-schema.org/");
        for (size_t i = 0; i < sizeof drafts / sizeof *drafts; i++) {
            const size_t n = strlen(drafts[i].name);
            if (strncmp(name, drafts[i].name, n) != 0 || (name[n] && strcmp(name + n, "#") != 0)) continue;
            if (v->parent == s->tree.root || s->parsed.draft == drafts[i].draft) {
                s->parsed.draft = drafts[i].draft;
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
    s->parsed.draft = 2020;
    if (v && !is_known_dialect(s, v)) return false;
    s->parsed.old_references = s->parsed.draft <= 7;
    return true;
}

static ht_node unevaluated(ht_schema *s, ht_place at);

static ht_node parse_object(ht_schema *s, ht_place at) {
    const ht_tree_value *v = at.schema;
    const uint32_t begin = s->n_scratch;
    const ht_tree_value *dialect = ht_schema_keyword(s, v, "$schema");
    if (dialect && !is_known_dialect(s, dialect)) return HT_NODE_NOTHING;
    push_reference(s, at, "$ref", HT_REFERENCE_STATIC);
    if (!s->parsed.old_references || !ht_schema_keyword(s, v, "$ref")) {
        push_reference(s, at, "$dynamicRef", HT_REFERENCE_DYNAMIC);
        push_reference(s, at, "$recursiveRef", HT_REFERENCE_RECURSIVE);
        const ht_tree_value *type = ht_schema_keyword(s, v, "type"), *values = ht_schema_keyword(s, v, "enum");
        const ht_tree_value *value = ht_schema_keyword(s, v, "const");
        if (type) ht_schema_push(s, types(s, type));
        if (values) ht_schema_push(s, enumeration(s, values));
        if (value && s->parsed.draft > 4) ht_schema_push(s, ht_node_value(s, value));
        push_numbers(s, v);
        push_strings(s, v);
        push_arrays(s, at);
        push_objects(s, at);
        push_logic(s, at);
        ht_schema_push(s, unevaluated(s, at));
    }
    return ht_node_join_scratch(s, HT_NODE_AND, begin);
}

ht_node ht_schema_parse(ht_schema *s, ht_place at) {
    const ht_tree_value *v = at.schema;
    if (s->status) return HT_NODE_NOTHING;
    if (v->kind == HT_SCAN_TRUE || v->kind == HT_SCAN_FALSE)
        return v->kind == HT_SCAN_TRUE ? HT_NODE_ANYTHING : HT_NODE_NOTHING;
    if (v->kind != HT_SCAN_OBJECT)
        return ht_schema_fail_at(s, v, HT_ERR_FORMAT, "a schema is expected: an object, true or false");
    const uint32_t known = ht_pair_map_find(&s->parsed.number, v->number, at.scope);
    /* A schema that refers to itself is known by its number until it is parsed. */
    if (known != HT_INTERN_FAILED && s->parsed.node[known] == HT_INTERN_FAILED)
        return ht_node_of(s, (uint32_t[]){HT_NODE_LATER, known}, 2);
    if (known != HT_INTERN_FAILED) return s->parsed.node[known];
    if (++s->depth > DEPTH_MOST) return ht_schema_fail_limit(s, "schemas refer to each other too deeply");
    if (!HT_SCHEMA_APPEND(s, s->parsed.node, s->parsed.n)) return HT_NODE_NOTHING;
    const uint32_t number = s->parsed.n++;
    s->parsed.node[number] = HT_INTERN_FAILED;
    ht_schema_note(s, &s->parsed.number, v->number, at.scope, number);
    const ht_node node = parse_object(s, at);
    s->depth--;
    return s->parsed.node[number] = node;
}

/* ---- unevaluatedProperties and unevaluatedItems ---- */

/* Finds what the other keywords of a schema evaluate, and the schemas that they apply to the same instance. Those
 * that may fail, such as the branches of anyOf, are conditions: what they evaluate counts only where they hold. */

/* Conditions of one schema at most: n of them make 2^n formulas. */
enum { CONDITIONS_MOST = 10, COLLECT_DEPTH_MOST = 200 };

/* Properties and items that are evaluated where a condition holds. */
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

static void collect_below(collector *c, ht_place at, const ht_tree_value *v, ht_node when) {
    if (v) collect(c, ht_references_enter(c->s, at, v), when, true);
}

/* Collects a list of schemas, each a condition or none. */
static void collect_list(collector *c, ht_place at, const char *name, ht_node when, bool is_condition) {
    const ht_tree_value *list = ht_schema_keyword(c->s, at.schema, name);
    if (!list || list->kind != HT_SCAN_ARRAY) return;
    for (const ht_tree_value *v = list->first; v && !c->s->status; v = v->next)
        collect_below(c, at, v, is_condition ? ht_node_and(c->s, when, below(c->s, at, v)) : when);
}

static void collect_logic(collector *c, ht_place at, ht_node when) {
    ht_schema *s = c->s;
    const ht_tree_value *if_v = ht_schema_keyword(s, at.schema, "if");
    collect_list(c, at, "allOf", when, false);
    collect_list(c, at, "anyOf", when, true);
    collect_list(c, at, "oneOf", when, true);
    if (if_v) {
        const ht_node condition = below(s, at, if_v);
        const ht_node yes = ht_node_and(s, when, condition), no = ht_node_and(s, when, ht_node_not(s, condition));
        collect_below(c, at, if_v, yes);
        collect_below(c, at, ht_schema_keyword(s, at.schema, "then"), yes);
        collect_below(c, at, ht_schema_keyword(s, at.schema, "else"), no);
    }
    for (int i = 0; i < 2; i++) {
        const ht_tree_value *map = ht_schema_keyword(s, at.schema, i ? "dependencies" : "dependentSchemas");
        if (!map || map->kind != HT_SCAN_OBJECT) continue;
        for (const ht_tree_value *m = map->first; m && !s->status; m = m->next)
            if (m->kind == HT_SCAN_OBJECT) {
                const ht_node has = ht_node_and(s, ht_node_types(s, HT_TYPE_OBJECT), required(s, m->key));
                collect_below(c, at, m, ht_node_and(s, when, has));
            }
    }
}

static void collect_reference(collector *c, ht_place at, const char *name, ht_reference_kind kind, ht_node when) {
    ht_place target;
    if (ht_references_resolve(c->s, at, name, kind, &target)) collect(c, target, when, true);
}

static void collect_members(collector *c, ht_place at, ht_node when, bool is_nested) {
    ht_schema *s = c->s;
    const ht_tree_value *properties = ht_schema_keyword(s, at.schema, "properties");
    const ht_tree_value *patterns = ht_schema_keyword(s, at.schema, "patternProperties");
    for (const ht_tree_value *m = properties ? properties->first : NULL; m && !s->status; m = m->next)
        add_keys(c, when, ht_keys_name(s, m->key));
    for (const ht_tree_value *m = patterns ? patterns->first : NULL; m && !s->status; m = m->next)
        add_keys(c, when, pattern_keys(s, m));
    if (ht_schema_keyword(s, at.schema, "additionalProperties") ||
        (is_nested && ht_schema_keyword(s, at.schema, "unevaluatedProperties")))
        add_keys(c, when, c->all_keys);
}

static void collect_items(collector *c, ht_place at, ht_node when, bool is_nested) {
    ht_schema *s = c->s;
    const ht_tree_value *prefix, *items, *contains = ht_schema_keyword(s, at.schema, "contains");
    item_schemas(s, at.schema, &prefix, &items);
    if (prefix) add_items(c, when, prefix->n);
    if (items || (is_nested && ht_schema_keyword(s, at.schema, "unevaluatedItems"))) add_items(c, when, HT_UNBOUNDED);
    if (contains && s->parsed.draft > 2019) add(c, (evaluated){when, c->no_keys, 0, below(s, at, contains)});
}

static void collect(collector *c, ht_place at, ht_node when, bool is_nested) {
    ht_schema *s = c->s;
    if (s->status || at.schema->kind != HT_SCAN_OBJECT || when == HT_NODE_NOTHING) return;
    if (++c->depth > COLLECT_DEPTH_MOST)
        ht_schema_fail_at(s, at.schema, HT_ERR_FORMAT,
                          "schemas refer to each other for the same value without end, or more than 200 deep");
    collect_reference(c, at, "$ref", HT_REFERENCE_STATIC, when);
    if (!s->parsed.old_references || !ht_schema_keyword(s, at.schema, "$ref")) {
        collect_reference(c, at, "$dynamicRef", HT_REFERENCE_DYNAMIC, when);
        collect_reference(c, at, "$recursiveRef", HT_REFERENCE_RECURSIVE, when);
        collect_members(c, at, when, is_nested);
        collect_items(c, at, when, is_nested);
        collect_logic(c, at, when);
    }
    c->depth--;
}

/* The conditions in `mask`, and the constraint on values that they leave unevaluated. */
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

static ht_node unevaluated(ht_schema *s, ht_place at) {
    const ht_tree_value *members = ht_schema_keyword(s, at.schema, "unevaluatedProperties");
    const ht_tree_value *items = ht_schema_keyword(s, at.schema, "unevaluatedItems");
    if ((!members && !items) || s->status || s->parsed.draft < 2019) return HT_NODE_ANYTHING;
    collector c = {.s = s};
    c.no_keys = ht_keys_of(s, false, NULL, 0, NULL, 0);
    c.all_keys = ht_keys_of(s, true, NULL, 0, NULL, 0);
    collect(&c, at, HT_NODE_ANYTHING, false);
    ht_node all = HT_NODE_ANYTHING;
    if (members) all = alternatives(&c, true, below(s, at, members), members);
    if (items) all = ht_node_and(s, all, alternatives(&c, false, below(s, at, items), items));
    free(c.list);
    return all;
}
