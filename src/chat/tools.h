/* Descriptions of tools: their names and the types of their parameters. */
#ifndef HT_CHAT_TOOLS_H
#define HT_CHAT_TOOLS_H

#include "grammar/schema_rules.h"
#include "template/value.h"

/* A field of a dict; NULL: no dict, or no such field. */
const ht_jinja_value *ht_tool_field(const ht_jinja_value *v, const char *key);
/* A tool's description without the object "function" around it. */
const ht_jinja_value *ht_tool_description(const ht_jinja_value *tool);
/* The description of the tool of that name in a list; NULL: none. */
const ht_jinja_value *ht_tool_find(ht_jinja_value tools, const char *name, size_t n);
/* Whether n bytes begin the name of a tool in a list. */
bool ht_tool_name_begins(ht_jinja_value tools, const char *text, size_t n);

/* Types that `schema`, a part of `root`, allows by type, enum, const, $ref, anyOf, oneOf and allOf; HT_TYPE_ALL:
 * any. With `text` of n unquoted bytes: types of which it may be a value; listed strings must equal it. */
unsigned ht_schema_types(const ht_jinja_value *root, const ht_jinja_value *schema, const char *text, size_t n);
/* Whether values without quotes are strings. */
static inline bool ht_types_are_text(unsigned types) { return types != HT_TYPE_ALL && (types & HT_TYPE_STRING); }
/* The part of `root` to which a schema's $ref refers; NULL: none, or unknown. */
const ht_jinja_value *ht_schema_reference(const ht_jinja_value *root, const ht_jinja_value *schema);

/* A value as JSON in one line; NULL after a failure of the arena. */
const ht_jinja_string *ht_tool_json(ht_jinja_arena *a, ht_jinja_value v);

#endif
