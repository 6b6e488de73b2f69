/* JSON Schema: from documents to sets of JSON values, and from these to rules.
 *
 * A set is a node: an interned formula. Leaves constrain values of one type and hold for all others: "if it is a
 * string, it is one of these". Keywords join leaves by and, or, not (schema_parse.c). The values of a set are found
 * by type on demand (schema_sets.c): truth values, an expression each for numbers and strings, and alternatives for
 * arrays and objects, each a conjunction of leaves. A conjunction becomes a shape and a plan (schema_shapes.c),
 * which show whether it has any value, and from which rules are made (schema_rules.c). All of this is exact; what
 * would take too much time or memory is an error.
 *
 * Errors are sticky: after the first one, kept in ht_schema.status, nodes are meaningless. */
#ifndef HT_GRAMMAR_SCHEMA_H
#define HT_GRAMMAR_SCHEMA_H

#include "base/grow.h"
#include "grammar/json_tree.h"
#include "grammar/schema_rules.h"

#define HT_UNBOUNDED UINT32_MAX

typedef uint32_t ht_node;

enum {
    HT_NODE_NOTHING, /* no value */
    HT_NODE_ANYTHING /* every value */
};

typedef enum ht_node_kind {
    HT_NODE_FALSE,
    HT_NODE_TRUE,
    HT_NODE_AND,   /* nodes, ascending */
    HT_NODE_OR,    /* nodes, ascending */
    HT_NODE_NOT,   /* a node */
    HT_NODE_ONE,   /* nodes of which exactly one has the value */
    HT_NODE_LATER, /* number of a schema that refers to itself, in ht_schema.parsed */
    /* leaves */
    HT_NODE_TYPES,   /* bits of types */
    HT_NODE_NUMBERS, /* expressions: of all spellings, of those that are written */
    HT_NODE_STRINGS, /* a set of strings */
    HT_NODE_ITEM,    /* index, node: the item there, if any, is of the node */
    HT_NODE_ITEMS,   /* index, node: all items from there on are */
    HT_NODE_LENGTH,  /* least, most */
    HT_NODE_COUNT,   /* index, node, least, most: how many items from there on are of the node */
    HT_NODE_UNIQUE,  /* number of the keyword's value: no two items are equal */
    HT_NODE_MEMBERS, /* key set, node: all properties with such keys are of the node */
    HT_NODE_MEMBER,  /* key set, node: some property with such a key is of the node */
    HT_NODE_KEYS,    /* node: all keys are of the node */
    HT_NODE_SIZE,    /* least, most */
    /* leaves about spelling alone */
    HT_NODE_ORDER, /* strings: described properties, in this order */
    HT_NODE_NAMED  /* key set: such properties are described, too */
} ht_node_kind;
/* Words of the longest leaf but HT_NODE_ORDER. */
enum { HT_LEAF_WORDS = 5 };

/* A set of strings, as JSON texts without quotes: listed ones, or those of an expression over texts without needless escapes.
 * `is_closed`: the expression has no other texts, as complements have. */
typedef struct ht_string_set {
    bool is_listed, is_closed;
    ht_re re;
    const uint32_t *list; /* [n] numbers of strings, ascending */
    uint32_t n;
} ht_string_set;

/* Spellings of numbers without exponents: all, and some of each number to be written. All numbers: HT_RE_ALL. */
typedef struct ht_number_set {
    ht_re all, written;
} ht_number_set;

/* The number digits * 10^exponent; digits neither begin nor end with 0, and zero has none. */
typedef struct ht_decimal {
    bool is_negative;
    const char *digits; /* [n] */
    size_t n;
    int32_t exponent;
} ht_decimal;

/* A position of a schema in the document and the resources that were entered on the way there. */
typedef struct ht_place {
    const ht_tree_value *schema;
    uint32_t scope; /* in `scopes` */
} ht_place;

typedef struct ht_resource {
    uint32_t uri; /* string, absolute as far as the document says */
    const ht_tree_value *root;
    bool is_recursive; /* `$recursiveAnchor` */
} ht_resource;

typedef struct ht_references {
    ht_resource *resource; /* [n] */
    uint32_t n;
    ht_pair_map by_uri;                   /* string, 0 */
    ht_pair_map of_value;                 /* value, 0: schemas of the document */
    ht_pair_map anchors, dynamic_anchors; /* resource, name: value */
    bool is_dynamic;                      /* there is a `$dynamicAnchor` or `$recursiveAnchor` */
} ht_references;

typedef struct ht_conjunction_list {
    uint32_t *conjunction; /* [n] in `conjunctions` */
    uint32_t n;
} ht_conjunction_list;

typedef struct ht_schema {
    ht_json_tree tree;
    ht_schema_options options;
    ht_rules *rules;
    ht_regexes *re; /* of the rules */
    ht_arena arena;
    int depth;         /* of recursion */
    uint32_t *scratch; /* [n_scratch] a stack */
    uint32_t n_scratch;
    size_t scratch_capacity;
    ht_intern nodes, key_sets, conjunctions, string_sets;
    ht_string_set *strings; /* [string_sets.n] */
    ht_references references;
    struct {                /* schemas of the document */
        ht_pair_map number; /* value and scope: of a schema, in `node` */
        ht_node *node;      /* [n] HT_INTERN_FAILED: being parsed */
        uint32_t n;
        ht_intern scopes;
        int draft;           /* 4, 6, 7, 2019 or 2020 */
        bool old_references; /* drafts up to 7: keywords next to `$ref` are ignored */
    } parsed;
    struct {                   /* values of sets */
        ht_pair_map ones;      /* HT_NODE_ONE, way of expansion: its expansion */
        ht_pair_map evaluated; /* node and type: HT_NODE_NUMBERS, or number of a string set */
        ht_pair_map lists_of;  /* node and type: in `list` */
        ht_pair_map opened;    /* node and type: the list was begun */
        ht_pair_map listed;    /* list and conjunction: it is in it */
        ht_conjunction_list *list;
        uint32_t n;
        bool keeps_dead; /* conjunctions without values stay in lists */
    } sets;
    struct {             /* which sets have any value */
        uint32_t *state; /* [capacity] of nodes */
        size_t capacity;
        uint32_t depth, low, steps;
    } live;
    struct {               /* shapes */
        ht_pair_map known; /* conjunction and type: in `shape` */
        void **shape;      /* [n] ht_array_shape or ht_object_shape */
        uint32_t n;
    } shapes;
    ht_status status;
    ht_error *err;
} ht_schema;

/* ---- failures and memory (schema_nodes.c) ---- */

/* Functions record the first failure; fail_... return HT_NODE_NOTHING. */

ht_node ht_schema_fail_memory(ht_schema *s);
ht_node ht_schema_fail_limit(ht_schema *s, const char *what);
/* With the JSON pointer of a value before the message. */
ht_node ht_schema_fail_at(ht_schema *s, const ht_tree_value *where, ht_status status, const char *fmt, ...)
    HT_PRINTF(4, 5);
/* Capacity for one more element of an array (HT_GROW_ONE). */
#define HT_SCHEMA_APPEND(s, array, n) (((n) < INT32_MAX && HT_GROW_ONE(array, n)) || (ht_schema_fail_memory(s), false))
/* Capacity for `need` elements. */
bool ht_schema_reserve(ht_schema *s, void *array, size_t *capacity, size_t need, size_t size);
/* Push onto the scratch stack. */
void ht_schema_push(ht_schema *s, uint32_t word);
void ht_schema_push_all(ht_schema *s, const uint32_t *words, uint32_t n);
/* Arena memory. */
void *ht_schema_take(ht_schema *s, size_t n, size_t size);
void ht_schema_note(ht_schema *s, ht_pair_map *map, uint32_t a, uint32_t b, uint32_t value);
/* Whether an expression has any text; divides the bytes where that takes a search. */
bool ht_schema_is_live(ht_schema *s, ht_re r);
/* Whether `status` or that of the rules is set; records the latter. */
bool ht_schema_failed(ht_schema *s);

/* ---- nodes (schema_nodes.c) ---- */

ht_node ht_node_of(ht_schema *s, const uint32_t *words, size_t n);
static inline const uint32_t *ht_node_words(const ht_schema *s, ht_node node, size_t *n) {
    return ht_intern_at(&s->nodes, node, n);
}
/* A copy of the words of a leaf, or their beginning. */
void ht_node_read(const ht_schema *s, ht_node leaf, uint32_t words[HT_LEAF_WORDS]);
ht_node ht_node_and(ht_schema *s, ht_node a, ht_node b);
ht_node ht_node_or(ht_schema *s, ht_node a, ht_node b);
/* HT_NODE_AND or HT_NODE_OR of the scratch stack's nodes from `begin` on, which are popped. */
ht_node ht_node_join_scratch(ht_schema *s, ht_node_kind kind, size_t begin);
ht_node ht_node_not(ht_schema *s, ht_node a);
ht_node ht_node_types(ht_schema *s, uint32_t types);
ht_node ht_node_strings(ht_schema *s, ht_string_set set);
ht_node ht_node_numbers(ht_schema *s, ht_number_set set);
ht_node ht_node_item(ht_schema *s, uint32_t index, ht_node node);
ht_node ht_node_items(ht_schema *s, uint32_t from, ht_node node);
/* HT_NODE_LENGTH or HT_NODE_SIZE. */
ht_node ht_node_counted(ht_schema *s, ht_node_kind kind, uint32_t least, uint32_t most);
ht_node ht_node_count(ht_schema *s, uint32_t from, ht_node node, uint32_t least, uint32_t most);
ht_node ht_node_members(ht_schema *s, uint32_t keys, ht_node node);
ht_node ht_node_member(ht_schema *s, uint32_t keys, ht_node node);
/* The set that has one value of the document alone. */
ht_node ht_node_value(ht_schema *s, const ht_tree_value *v);

/* ---- key sets: names and patterns, or all keys but these (schema_nodes.c) ---- */

/* Number of the set of n names and n_patterns numbers of `strings`, or of all other keys. */
uint32_t ht_keys_of(ht_schema *s, bool is_complement, const uint32_t *names, size_t n, const uint32_t *patterns,
                    size_t n_patterns);
uint32_t ht_keys_name(ht_schema *s, uint32_t name);
uint32_t ht_keys_either(ht_schema *s, uint32_t a, uint32_t b);
uint32_t ht_keys_others(ht_schema *s, uint32_t a);
/* Parts of a set. */
typedef struct ht_keys {
    bool is_complement;
    uint32_t n_names, n_patterns;
    const uint32_t *names, *patterns; /* borrowed until the next set is made */
} ht_keys;
ht_keys ht_keys_at(const ht_schema *s, uint32_t keys);
bool ht_keys_has_name(ht_schema *s, const ht_keys *keys, uint32_t name);

/* ---- strings (schema_strings.c) ---- */

uint32_t ht_strings_add(ht_schema *s, ht_string_set set);
ht_string_set ht_strings_one(ht_schema *s, uint32_t string);
/* n strings, which are sorted. */
ht_string_set ht_strings_listed(ht_schema *s, uint32_t *strings, uint32_t n);
ht_string_set ht_strings_of_re(ht_re re);
ht_string_set ht_strings_both(ht_schema *s, ht_string_set a, ht_string_set b);
ht_string_set ht_strings_either(ht_schema *s, ht_string_set a, ht_string_set b);
ht_string_set ht_strings_not(ht_schema *s, ht_string_set a);
bool ht_strings_is_live(ht_schema *s, ht_string_set a);
/* The expression of its texts without quotes. */
ht_re ht_strings_re(ht_schema *s, ht_string_set a);
/* As it is written, with quotes. */
ht_re ht_strings_written(ht_schema *s, ht_string_set a);
/* The text of a string without quotes. */
ht_re ht_strings_text(ht_schema *s, uint32_t string);
/* Strings in which an expression in the syntax of ECMA-262 finds a match. */
ht_string_set ht_strings_pattern(ht_schema *s, const ht_tree_value *where, uint32_t pattern);
ht_string_set ht_strings_length(ht_schema *s, uint32_t least, uint32_t most);
/* Strings of a format. False when there is no such format. */
bool ht_strings_format(ht_schema *s, const ht_tree_value *where, ht_string_set *out);

/* ---- numbers (schema_numbers.c) ---- */

/* The decimal of a number's spelling; false when it is too long. */
bool ht_decimal_read(ht_schema *s, const ht_tree_value *v, ht_decimal *out);
/* A whole number from 0 on, or `most` if that is less. False for other numbers. */
bool ht_decimal_whole(const ht_decimal *d, uint64_t most, uint64_t *out);
ht_number_set ht_numbers_integers(ht_schema *s);
ht_number_set ht_numbers_one(ht_schema *s, const ht_decimal *d);
/* Numbers above or below d, and d itself where it is included. */
ht_number_set ht_numbers_bounded(ht_schema *s, const ht_decimal *d, bool above, bool included);
/* False when d has too many digits. */
bool ht_numbers_multiple(ht_schema *s, const ht_decimal *d, ht_number_set *out);
ht_number_set ht_numbers_both(ht_schema *s, ht_number_set a, ht_number_set b);
ht_number_set ht_numbers_either(ht_schema *s, ht_number_set a, ht_number_set b);
ht_number_set ht_numbers_not(ht_schema *s, ht_number_set a);
ht_re ht_numbers_written(ht_schema *s, ht_number_set a);

/* ---- schemas of the document (schema_parse.c, schema_refs.c) ---- */

/* The draft that `$schema` names. False for an unknown one. */
bool ht_schema_read_dialect(ht_schema *s);
/* The node of a schema. */
ht_node ht_schema_parse(ht_schema *s, ht_place place);
/* A keyword of a schema; the name is a literal. */
const ht_tree_value *ht_schema_keyword(ht_schema *s, const ht_tree_value *schema, const char *name);

/* Finds identifiers and anchors. */
void ht_references_find(ht_schema *s);
typedef enum ht_reference_kind { HT_REFERENCE_STATIC, HT_REFERENCE_DYNAMIC, HT_REFERENCE_RECURSIVE } ht_reference_kind;
/* The place to which a keyword of a schema refers. False when the schema has no such keyword, or for a failure. */
bool ht_references_resolve(ht_schema *s, ht_place at, const char *keyword, ht_reference_kind kind, ht_place *out);
/* The place of a schema below another one of the same instance or of its parts. */
ht_place ht_references_enter(ht_schema *s, ht_place from, const ht_tree_value *schema);

/* ---- values of sets (schema_sets.c) ---- */

/* Types of which the set may have values. */
uint32_t ht_set_types(ht_schema *s, ht_node node);
ht_number_set ht_set_numbers(ht_schema *s, ht_node node);
ht_string_set ht_set_strings(ht_schema *s, ht_node node);
/* The simple types null, false and true that are in the set. */
uint32_t ht_set_simple(ht_schema *s, ht_node node);
/* All values of a set, each as a node: their number, or HT_INTERN_FAILED when there are more than `most`, or arrays or objects. */
uint32_t ht_set_values(ht_schema *s, ht_node node, ht_node *values, uint32_t most);
/* Number in `list` of the set's arrays or objects. */
uint32_t ht_set_alternatives(ht_schema *s, ht_node node, uint32_t type);
/* Whether the set has any value. With live.low < UINT32_MAX, false may be wrong: a check further up is open. */
bool ht_set_is_live(ht_schema *s, ht_node node);

/* ---- shapes (schema_shapes.c) ---- */

enum { HT_COUNTS_MOST = 4 };

/* Limits on the items from an index on that are of a node, or whether any property is. */
typedef struct ht_some {
    uint32_t from; /* index */
    ht_node node;
    uint32_t least, most;
} ht_some;

/* Arrays that satisfy all leaves of a conjunction. */
typedef struct ht_array_shape {
    uint32_t least, most;
    uint32_t n;    /* indexes that differ; the last one is that of all further items */
    ht_node *item; /* [n] */
    ht_some some[HT_COUNTS_MOST];
    uint32_t n_some;
    const ht_tree_value *unique; /* the keyword; NULL: items may be equal */
} ht_array_shape;

typedef struct ht_member {
    uint32_t name;      /* string; of a class HT_INTERN_FAILED */
    ht_string_set keys; /* of a class */
    ht_node node;
    uint32_t mask; /* those of `some` that have its key */
    bool is_required;
    bool is_named; /* of a class: it is described (HT_NODE_NAMED) */
} ht_member;

/* Objects that satisfy all leaves of a conjunction: properties by name, and classes of all other keys. */
typedef struct ht_object_shape {
    uint32_t least, most;
    ht_member *member; /* [n_names + n_classes], names first, in the order in which they are written */
    uint32_t n_names, n_classes, n_required;
    ht_some some[HT_COUNTS_MOST];
    uint32_t n_some;
    bool is_described; /* some of its properties are described */
} ht_object_shape;

const ht_array_shape *ht_array_shape_of(ht_schema *s, uint32_t conjunction);
const ht_object_shape *ht_object_shape_of(ht_schema *s, uint32_t conjunction);
/* The node of the item at an index, or of a property's value, that is also of those of `some` in the mask. */
ht_node ht_array_item(ht_schema *s, const ht_array_shape *a, uint32_t index, uint32_t mask);
ht_node ht_object_value(ht_schema *s, const ht_object_shape *o, const ht_member *m, uint32_t mask);
/* Whether the arrays or objects of a conjunction have any value, as ht_set_is_live. */
bool ht_conjunction_is_live(ht_schema *s, uint32_t conjunction, uint32_t type);

/* ---- plans (schema_shapes.c) ---- */

/* How arrays and objects of a shape are written, and which states can reach an end. Plans outlive the schema. */

#define HT_NO_SYMBOL UINT32_MAX
/* Values that an array with different items may have. */
enum { HT_UNIQUE_MOST = 64 };

typedef struct ht_array_plan {
    uint32_t least, most;
    uint32_t n; /* indexes that differ */
    ht_some some[HT_COUNTS_MOST];
    uint32_t n_some;
    bool *live;        /* [n, 2^n_some] whether there is an item at the index that is counted by those of the mask */
    ht_symbol *symbol; /* likewise; NULL while only liveness is checked */
    bool is_unique;
    uint32_t n_values;
    ht_node *value_node; /* [n_values] */
    uint64_t *allowed;   /* [n] values at the index, as bits, of a unique one */
    ht_symbol *value;    /* [n_values] */
    ht_intern states;    /* of counting ones */
    uint8_t *known;      /* [known_capacity] of states: 0 unknown, 1 no, 2 yes */
    size_t known_capacity;
    bool failed; /* memory ran out */
} ht_array_plan;

/* Before an item: its index, and how many were counted, or as two words which values are used. */
typedef struct ht_array_state {
    uint32_t index;
    uint32_t count[HT_COUNTS_MOST];
} ht_array_state;

/* The plan of a shape, without symbols; false without arrays or on failure. Call ht_array_plan_free in any case. */
bool ht_array_plan_of(ht_schema *s, const ht_array_shape *a, ht_arena *arena, ht_array_plan *out);
void ht_array_plan_free(ht_array_plan *p);
bool ht_array_may_end(const ht_array_plan *p, const ht_array_state *at);
/* Whether an end can be reached. */
bool ht_array_can_end(ht_array_plan *p, const ht_array_state *at);
/* The state after an item that is counted by those of the mask; false where they were counted often enough. */
bool ht_array_after(const ht_array_plan *p, const ht_array_state *at, uint32_t mask, ht_array_state *out);
/* The same of a unique one, after a value. */
ht_array_state ht_array_after_value(const ht_array_plan *p, const ht_array_state *at, uint32_t value);
static inline uint32_t ht_array_class(const ht_array_plan *p, uint32_t index) {
    return index < p->n ? index : p->n - 1;
}
static inline uint64_t ht_array_used(const ht_array_state *at) { return at->count[0] | (uint64_t)at->count[1] << 32; }

typedef struct ht_member_plan {
    bool is_required;
    uint32_t mask;         /* those of `some` that have its key */
    bool *live;            /* [2^n_some] whether there is a value of all of `some` in the mask */
    ht_symbol *symbol;     /* [2^n_some] of the values */
    ht_symbol first, next; /* lexemes of its key, after { and after a comma */
} ht_member_plan;

typedef struct ht_object_plan {
    uint32_t least, most;
    uint32_t n_names, n_members; /* names first, then classes of keys */
    uint32_t n_some;
    bool is_ordered;
    bool is_free;           /* every property is allowed: there is nothing to count */
    ht_member_plan *member; /* [n_members] */
} ht_object_plan;

/* Properties so far: number, pending ones of `some`, a bit for each name seen, and if ordered the next name. */
typedef struct ht_object_state {
    uint32_t count, pending, position;
    uint32_t *seen; /* [(n_names + 31) / 32] */
} ht_object_state;

/* The plan of the objects to be written: closed ones with described properties only, where such objects exist. */
bool ht_object_written_plan(ht_schema *s, const ht_object_shape *o, ht_arena *arena, ht_object_plan *out);
bool ht_object_may_take(const ht_object_plan *p, const ht_object_state *at, uint32_t member);
bool ht_object_may_end(const ht_object_plan *p, const ht_object_state *at);
/* Takes a property with a value of those of `some` in the mask; false where no end can be reached after it. */
bool ht_object_take(const ht_object_plan *p, ht_object_state *at, uint32_t member, uint32_t mask);

#endif
