/* Tools that may be called: their names, the types of their parameters, and the grammar symbols of their arguments. */
#ifndef HT_CHAT_TOOLS_H
#define HT_CHAT_TOOLS_H

#include "grammar/schema_embed.h"
#include "template/value.h"

/* ---- descriptions ---- */

/* A field of a dict; NULL: no dict, or no such field. */
const ht_jinja_value *ht_tool_field(const ht_jinja_value *v, const char *key);
/* The tool of that name in a list of descriptions, without the object "function" around it; NULL: none. */
const ht_jinja_value *ht_tool_find(ht_jinja_value tools, const char *name, size_t n);

/* JSON types as bits. */
enum {
    HT_TYPE_STRING = 1,
    HT_TYPE_NULL = 2,
    HT_TYPE_BOOL = 4,
    HT_TYPE_NUMBER = 8,
    HT_TYPE_ARRAY = 16,
    HT_TYPE_OBJECT = 32,
    HT_TYPE_ANY = 63
};

/* The types that a schema allows, which is a part of `root`: by type, enum, const, $ref, anyOf, oneOf and allOf. HT_TYPE_ANY: it
 * restricts none. With `text`, n bytes without quotes, those that the text may be a value of: listed strings are the text. */
unsigned ht_schema_types(const ht_jinja_value *root, const ht_jinja_value *schema, const char *text, size_t n);
/* Whether values without quotes are strings. */
static inline bool ht_types_are_text(unsigned types) { return types != HT_TYPE_ANY && (types & HT_TYPE_STRING); }
/* The part of `root` that a schema's $ref refers to; NULL: it has none, or an unknown one. */
const ht_jinja_value *ht_schema_reference(const ht_jinja_value *root, const ht_jinja_value *schema);

/* ---- tools that can be called ---- */

typedef struct ht_tool {
    const char *name;
    const ht_jinja_value *parameters; /* NULL: none */
    bool is_relaxed;                  /* its schema is not supported: arguments are any object */
    bool is_constrained;              /* its schema is supported as far as it was compiled */
    bool has_symbol;
    ht_symbol arguments; /* with has_symbol */
} ht_tool;

typedef struct ht_tool_list {
    ht_jinja_arena arena;
    ht_tool *tool; /* [n] in `arena` */
    size_t n;
    int n_too_complex; /* tools with too complex schemas, each of which may take seconds */
} ht_tool_list;

/* The tools of a list of descriptions that can be called by name, or only `only`. Free *t in any case. */
ht_status ht_tool_list_read(ht_tool_list *t, ht_jinja_value tools, const char *only, ht_error *err);
void ht_tool_list_free(ht_tool_list *t);

/* The symbol of a tool's arguments, or with `property` of one of them. An unsupported schema relaxes the tool; with *again the
 * rules are damaged and must be rebuilt. */
ht_status ht_tool_values(ht_tool_list *t, ht_tool *tool, ht_rules *r, const char *property, ht_symbol *out, bool *again,
                         ht_error *err);

#endif
