/* JSON Schema: from documents to sets of JSON values, and from these to rules.
 *
 * A set is a node: a number that equal sets have in common as far as that is seen. Leaves say something about values of one type
 * and hold for all others: "if it is a string, it is one of these". Nodes are joined by and, or, not, so that every keyword is
 * a formula of leaves (schema_parse.c). What a set has of one type is found when it is asked for: its truth values, an expression
 * for its numbers and one for its strings (schema_sets.c), and its arrays and objects as alternatives, each a list of leaves that
 * all hold (schema_sets.c). These are brought into a form (schema_arrays.c, schema_objects.c) from which it is seen
 * whether they have any value, and from which rules are made (schema_rules.c). All of this is exact; what would take too much
 * time or memory is an error.
 *
 * Errors are sticky: after the first one nodes mean nothing, and ht_schema.status says so. */
#ifndef HT_GRAMMAR_SCHEMA_H
#define HT_GRAMMAR_SCHEMA_H

#include "base/grow.h"
#include "grammar/json_tree.h"
#include "grammar/rules.h"

#include <hearth/grammar.h>

#define HT_UNBOUNDED UINT32_MAX

/* Types of values, as bits. */
enum {
    HT_TYPE_NULL = 1,
    HT_TYPE_FALSE = 2,
    HT_TYPE_TRUE = 4,
    HT_TYPE_NUMBER = 8,
    HT_TYPE_STRING = 16,
    HT_TYPE_ARRAY = 32,
    HT_TYPE_OBJECT = 64,
    HT_TYPE_ALL = 127
};

/* ---- nodes (schema_nodes.c) ---- */

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
    HT_NODE_LATER, /* number of a schema that refers to itself: its node is in `later` */
    /* leaves */
    HT_NODE_TYPES,   /* bits of types */
    HT_NODE_NUMBERS, /* expressions: of all spellings, of those that are written */
    HT_NODE_STRINGS, /* a set of strings */
    HT_NODE_ITEM,    /* index, node: the item there, if any, is of the node */
    HT_NODE_ITEMS,   /* index, node: all items from there on are */
    HT_NODE_LENGTH,  /* least, most */
    HT_NODE_COUNT,   /* index, node, least, most: how many items from there on are of the node */
    HT_NODE_UNIQUE,  /* number of the value that asks for it: no two items are equal */
    HT_NODE_MEMBERS, /* key set, node: all members with such keys are of the node */
    HT_NODE_MEMBER,  /* key set, node: there is a member with such a key that is of the node */
    HT_NODE_KEYS,    /* node: all keys are of the node */
    HT_NODE_SIZE,    /* least, most */
    /* Of how values are written alone: */
    HT_NODE_ORDER, /* strings: members that are described, in this order */
    HT_NODE_NAMED  /* key set: such members are described, too */
} ht_node_kind;

/* ---- strings (schema_strings.c) ---- */

/* A set of strings, as their JSON texts without quotes: listed ones, or those of an expression. Expressions are of texts in which only what
 * has to be escaped is; `is_closed` says that it has no others, as complements have. */
typedef struct ht_string_set {
    bool is_listed, is_closed;
    ht_re re;
    const uint32_t *list; /* [n] numbers of strings, ascending */
    uint32_t n;
} ht_string_set;

/* ---- numbers (schema_numbers.c) ---- */

/* Spellings of a set of numbers: all, and those that are written, which are some of each number. Numbers in sets have no exponent;
 * the set of all numbers is HT_RE_ALL. */
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

/* ---- the context ---- */

/* A position of a schema in the document and the resources that were entered on the way there. */
typedef struct ht_place {
    const ht_tree_value *schema;
    uint32_t scope; /* in `scopes` */
} ht_place;

typedef struct ht_conjunction_list {
    uint32_t *conjunction; /* [n] in `conjunctions` */
    uint32_t n;
} ht_conjunction_list;

typedef struct ht_schema {
    ht_json_tree tree;
    ht_schema_options options;
    ht_rules *rules;
    ht_regexes *re; /* theirs */
    ht_arena arena;
    int depth;      /* of recursion */
    uint32_t steps; /* of the questions that may take long */
    /* nodes */
    ht_intern nodes, key_sets, conjunctions;
    ht_intern string_sets;
    ht_string_set *strings; /* [string_sets.n] of HT_NODE_STRINGS and key sets */
    ht_number_set *numbers; /* [n_numbers] of nodes, in `evaluated` */
    uint32_t n_numbers;
    ht_node *later; /* [n_later] */
    uint32_t n_later;
    uint32_t *scratch; /* a stack */
    uint32_t n_scratch;
    size_t scratch_capacity, live_capacity;
    /* schemas of the document */
    struct ht_references *references;
    ht_pair_map parsed;  /* value and scope to node */
    ht_pair_map started; /* value and scope to a number of `later` or HT_INTERN_FAILED - 1 */
    ht_intern scopes;
    int draft;           /* 4, 6, 7, 2019 or 2020 */
    bool old_references; /* of drafts up to 7: what stands beside `$ref` is ignored */
    /* sets */
    ht_pair_map ones;      /* HT_NODE_ONE, 0 or 1: what it is made of, found with or without a look at its parts */
    ht_pair_map evaluated; /* node and type: numbers, or strings */
    ht_pair_map lists_of;  /* node and type: in `lists` */
    ht_pair_map opened;    /* node and type: the list was begun */
    bool keeps_dead;       /* lists are made without a look at values */
    ht_pair_map listed;    /* list and conjunction: it is in it */
    ht_conjunction_list *lists;
    uint32_t n_lists;
    uint32_t *live; /* [live_capacity] of nodes (schema_live.c) */
    uint32_t live_depth, live_low;
    ht_pair_map array_shapes, object_shapes; /* conjunction, 0: shape */
    struct ht_array_shape **array_shape;
    uint32_t n_array_shapes;
    struct ht_object_shape **object_shape;
    uint32_t n_object_shapes;
    ht_status status;
    ht_error *err;
} ht_schema;

/* Notes the first failure. Returns HT_NODE_NOTHING. */
ht_node ht_schema_fail_memory(ht_schema *s);
ht_node ht_schema_fail_limit(ht_schema *s, const char *what);
/* The same with the JSON pointer of a value before the message. */
ht_node ht_schema_fail_at(ht_schema *s, const ht_tree_value *where, ht_status status, const char *fmt, ...)
    HT_PRINTF(4, 5);
/* Capacity for one more element of an array (HT_GROW_ONE); false, noted, when memory runs out. */
#define HT_SCHEMA_APPEND(s, array, n) (((n) < INT32_MAX && HT_GROW_ONE(array, n)) || (ht_schema_fail_memory(s), false))
/* Makes *array hold `need` elements; false, noted, when memory runs out. */
bool ht_schema_reserve(ht_schema *s, void *array, size_t *capacity, size_t need, size_t size);
/* Pushes onto the scratch stack; a failure is noted. */
void ht_schema_push(ht_schema *s, uint32_t word);
/* Arena memory; NULL, noted, when it runs out. */
void *ht_schema_take(ht_schema *s, size_t n, size_t size);
/* Whether an expression has any text; divides the bytes where that takes a search. */
bool ht_schema_is_live(ht_schema *s, ht_re r);
/* Whether `status` or that of the expressions is set; the latter is noted. */
bool ht_schema_failed(ht_schema *s);

ht_node ht_node_of(ht_schema *s, const uint32_t *words, size_t n);
static inline const uint32_t *ht_node_words(const ht_schema *s, ht_node node, size_t *n) {
    return ht_intern_at(&s->nodes, node, n);
}
ht_node ht_node_and(ht_schema *s, ht_node a, ht_node b);
ht_node ht_node_or(ht_schema *s, ht_node a, ht_node b);
/* Of the scratch stack's nodes from `begin` on, which are taken off. HT_NODE_AND or HT_NODE_OR. */
ht_node ht_node_join_scratch(ht_schema *s, ht_node_kind kind, size_t begin);
ht_node ht_node_not(ht_schema *s, ht_node a);
ht_node ht_node_types(ht_schema *s, uint32_t types);
ht_node ht_node_strings(ht_schema *s, ht_string_set set);
ht_node ht_node_numbers(ht_schema *s, ht_number_set set);
ht_node ht_node_item(ht_schema *s, uint32_t index, ht_node node);
ht_node ht_node_items(ht_schema *s, uint32_t from, ht_node node);
ht_node ht_node_length(ht_schema *s, uint32_t least, uint32_t most);
ht_node ht_node_count(ht_schema *s, uint32_t from, ht_node node, uint32_t least, uint32_t most);
ht_node ht_node_members(ht_schema *s, uint32_t keys, ht_node node);
ht_node ht_node_member(ht_schema *s, uint32_t keys, ht_node node);
ht_node ht_node_size(ht_schema *s, uint32_t least, uint32_t most);
/* The set that has one value of the document alone. */
ht_node ht_node_value(ht_schema *s, const ht_tree_value *v);

/* ---- key sets: names and patterns, or all keys but these (schema_keys.c) ---- */

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
    const uint32_t *names, *patterns; /* lent until the next set is made */
} ht_keys;
ht_keys ht_keys_at(const ht_schema *s, uint32_t keys);
/* Needs refined expressions. */
bool ht_keys_has_name(ht_schema *s, const ht_keys *keys, uint32_t name);

/* ---- strings ---- */

uint32_t ht_strings_add(ht_schema *s, ht_string_set set);
ht_string_set ht_strings_one(ht_schema *s, uint32_t string);
/* n strings, which are put in order. */
ht_string_set ht_strings_listed(ht_schema *s, uint32_t *strings, uint32_t n);
ht_string_set ht_strings_of_re(ht_re re);
ht_string_set ht_strings_both(ht_schema *s, ht_string_set a, ht_string_set b);
ht_string_set ht_strings_either(ht_schema *s, ht_string_set a, ht_string_set b);
ht_string_set ht_strings_not(ht_schema *s, ht_string_set a);
bool ht_strings_is_live(ht_schema *s, ht_string_set a);
/* Its expression, of texts without quotes. */
ht_re ht_strings_re(ht_schema *s, ht_string_set a);
/* As it is written, with quotes. */
ht_re ht_strings_written(ht_schema *s, ht_string_set a);
/* The text of a string without quotes. */
ht_re ht_strings_text(ht_regexes *re, const char *text, size_t n);
/* Any character in a string. */
ht_re ht_strings_characters(ht_regexes *re, const ht_code_range *ranges, size_t n);
/* Strings that an expression in the syntax of ECMA-262 finds a match in. */
ht_string_set ht_strings_pattern(ht_schema *s, const ht_tree_value *where, uint32_t pattern);
ht_string_set ht_strings_length(ht_schema *s, uint32_t least, uint32_t most);
/* Strings of a format (schema_formats.c). False when there is no such format. */
bool ht_strings_format(ht_schema *s, const ht_tree_value *where, ht_string_set *out);

/* ---- numbers ---- */

/* The decimal of a number's spelling; false, noted, when it is too long. */
bool ht_decimal_read(ht_schema *s, const ht_tree_value *v, ht_decimal *out);
/* A whole number from 0 on; larger ones are HT_UNBOUNDED - 1. False when it is none. */
bool ht_decimal_count(const ht_decimal *d, uint32_t *out);
ht_number_set ht_numbers_integers(ht_schema *s);
ht_number_set ht_numbers_one(ht_schema *s, const ht_decimal *d);
/* Numbers above (or below) d, and d itself where it is included. */
ht_number_set ht_numbers_above(ht_schema *s, const ht_decimal *d, bool included);
ht_number_set ht_numbers_below(ht_schema *s, const ht_decimal *d, bool included);
/* False when d has too many digits. */
bool ht_numbers_multiple(ht_schema *s, const ht_decimal *d, ht_number_set *out);
ht_number_set ht_numbers_both(ht_schema *s, ht_number_set a, ht_number_set b);
ht_number_set ht_numbers_either(ht_schema *s, ht_number_set a, ht_number_set b);
ht_number_set ht_numbers_not(ht_schema *s, ht_number_set a);
bool ht_numbers_is_live(ht_schema *s, ht_number_set a);
ht_re ht_numbers_written(ht_schema *s, ht_number_set a);

/* ---- schemas of the document ---- */

/* Finds identifiers and anchors (schema_refs.c). */
void ht_references_find(ht_schema *s);
void ht_references_free(ht_schema *s);
/* The place that a reference names. False, noted, when there is none. */
typedef enum ht_reference_kind { HT_REFERENCE_STATIC, HT_REFERENCE_DYNAMIC, HT_REFERENCE_RECURSIVE } ht_reference_kind;
bool ht_references_resolve(ht_schema *s, ht_reference_kind kind, const ht_tree_value *reference, uint32_t scope,
                           ht_place *out);
/* The place of a schema below another one of the same instance or of its parts. */
ht_place ht_references_enter(ht_schema *s, ht_place from, const ht_tree_value *schema);

/* The node of a schema (schema_parse.c). */
ht_node ht_schema_parse(ht_schema *s, ht_place place);
/* A member of a schema; the name is a literal. */
const ht_tree_value *ht_schema_keyword(ht_schema *s, const ht_tree_value *schema, const char *name);
/* What unevaluatedItems and unevaluatedProperties of a schema say (schema_evaluated.c). */
ht_node ht_schema_unevaluated(ht_schema *s, ht_place place);

/* The draft that `$schema` names. False, noted, when it is none that is known. */
bool ht_schema_read_dialect(ht_schema *s);

/* ---- sets ---- */

/* Types of which the set may have values. */
uint32_t ht_set_types(ht_schema *s, ht_node node);
ht_number_set ht_set_numbers(ht_schema *s, ht_node node);
ht_string_set ht_set_strings(ht_schema *s, ht_node node);
/* The simple types null, false and true that are in the set. */
uint32_t ht_set_simple(ht_schema *s, ht_node node);
/* All values of a set that has few, each as a node: their number, or HT_INTERN_FAILED when there are more than `most` or arrays or
 * objects among them. */
uint32_t ht_set_values(ht_schema *s, ht_node node, ht_node *values, uint32_t most);
/* Number in `lists` of the set's arrays or objects: alternatives, each a list of leaves that all hold. */
uint32_t ht_set_alternatives(ht_schema *s, ht_node node, uint32_t type);
/* Whether the set has any value. A false answer that was found while the same question was open, further up, may be wrong: then
 * live_low is less than UINT32_MAX. */
bool ht_set_is_live(ht_schema *s, ht_node node);

/* The same of the arrays or objects of a conjunction. */
bool ht_conjunction_is_live(ht_schema *s, uint32_t conjunction, uint32_t type);

/* ---- shapes ---- */

enum { HT_COUNTS_MOST = 4 };

/* How many items from an index on, or whether any member, are of a node. */
typedef struct ht_some {
    uint32_t from; /* index */
    uint32_t keys; /* key set */
    ht_node node;
    uint32_t least, most;
} ht_some;

/* Arrays that are of all leaves of a conjunction. */
typedef struct ht_array_shape {
    uint32_t least, most;
    uint32_t n;    /* indexes that differ; the last one is that of all further items */
    ht_node *item; /* [n] */
    ht_some some[HT_COUNTS_MOST];
    uint32_t n_some;
    const ht_tree_value *unique; /* the keyword; NULL: items may be equal */
} ht_array_shape;

/* The item at an index that is counted by those of `some` in the mask. */
ht_node ht_array_item(ht_schema *s, const ht_array_shape *a, uint32_t index, uint32_t mask);
const ht_array_shape *ht_array_shape_of(ht_schema *s, uint32_t conjunction);
bool ht_array_is_live(ht_schema *s, const ht_array_shape *a);

typedef struct ht_member {
    uint32_t name;      /* string; of a class HT_INTERN_FAILED */
    ht_string_set keys; /* of a class */
    ht_node node;
    uint32_t mask; /* those of `some` that have its key */
    bool is_required;
    bool is_named; /* of a class: it is described (HT_NODE_NAMED) */
} ht_member;

/* Objects that are of all leaves of a conjunction: members by name, and classes of all other keys. */
typedef struct ht_object_shape {
    uint32_t least, most;
    ht_member *member; /* [n_names + n_classes], names first, in the order in which they are written */
    uint32_t n_names, n_classes, n_required;
    ht_some some[HT_COUNTS_MOST];
    uint32_t n_some;
    bool is_described; /* some of its members are */
} ht_object_shape;

ht_node ht_object_value(ht_schema *s, const ht_object_shape *o, const ht_member *m, uint32_t mask);
const ht_object_shape *ht_object_shape_of(ht_schema *s, uint32_t conjunction);
bool ht_object_is_live(ht_schema *s, const ht_object_shape *o);

#endif
