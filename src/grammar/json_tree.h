/* A JSON document as a tree with the details that JSON Schema needs: spellings of numbers, NUL in strings, the order
 * of fields, and the path of each value. Duplicate fields are errors. */
#ifndef HT_GRAMMAR_JSON_TREE_H
#define HT_GRAMMAR_JSON_TREE_H

#include "base/arena.h"
#include "formats/json_scan.h"
#include "grammar/intern.h"

#include <hearth/status.h>

typedef struct ht_tree_value {
    ht_json_event kind; /* with which the value begins */
    uint32_t number;    /* among the values of the document */
    uint32_t key;       /* of a field: number of its name among the strings */
    uint32_t string;    /* of a string, among the strings */
    uint32_t index;     /* among its parent's children */
    uint32_t n;         /* children */
    const char *text;   /* of a number: its spelling */
    size_t n_text;
    struct ht_tree_value *parent, *first, *last, *next; /* children and siblings, in order */
} ht_tree_value;

typedef struct ht_tree_string {
    const char *text; /* UTF-8, terminated by NUL */
    size_t n;
} ht_tree_string;

typedef struct ht_json_tree {
    ht_arena arena;
    ht_tree_value *root;
    ht_tree_value **value; /* [n_values] by number */
    uint32_t n_values;
    ht_intern packed;       /* strings */
    ht_tree_string *string; /* [packed.n] */
    ht_pair_map members;    /* number of an object and of a name to number of the field */
} ht_json_tree;

/* Parses n bytes; HT_ERR_FORMAT with line and column, or HT_ERR_LIMIT. Call ht_json_tree_free in any case. */
ht_status ht_json_tree_parse(ht_json_tree *t, const char *json, size_t n, const char *name, ht_error *err);
void ht_json_tree_free(ht_json_tree *t);

/* The number of a string, which is added when it is new; HT_INTERN_FAILED when memory ran out. */
uint32_t ht_json_tree_string(ht_json_tree *t, const char *text, size_t n);
/* The field of an object, or NULL. */
const ht_tree_value *ht_tree_member(const ht_json_tree *t, const ht_tree_value *object, uint32_t name);
/* Appends the JSON pointer of a value, with "#" before it. */
void ht_tree_pointer(const ht_json_tree *t, const ht_tree_value *v, ht_text *out);

#endif
