/* Tools that may be called, and the symbols of their arguments. */
#ifndef HT_CHAT_TOOLS_H
#define HT_CHAT_TOOLS_H

#include "grammar/schema_embed.h"
#include "template/value.h"

typedef struct ht_tool {
    const char *name;
    const ht_jinja_value *parameters; /* NULL: it has none */
    bool is_relaxed;                  /* its schema is not supported: any object is taken */
    bool is_held;                     /* it is, as far as it has been looked at */
    bool has_symbol;
    ht_symbol arguments; /* with has_symbol */
} ht_tool;

typedef struct ht_tool_list {
    ht_jinja_arena arena;
    ht_tool *tool; /* [n] in `arena` */
    size_t n;
    int n_too_complex; /* whose schemas are, which may have taken seconds each */
} ht_tool_list;

/* The tools of a list of descriptions that can be called by name, or the one called `only`. *t is to be freed in any case. */
ht_status ht_tool_list_read(ht_tool_list *t, ht_jinja_value tools, const char *only, ht_error *err);
void ht_tool_list_free(ht_tool_list *t);

/* The symbol of values of a tool: of its arguments, or with `property` of one of them. A schema that is not supported makes the tool
 * a relaxed one; *again says that the rules have suffered from it, and have to be made anew. */
ht_status ht_tool_values(ht_tool_list *t, ht_tool *tool, ht_rules *r, const char *property, ht_symbol *out, bool *again,
                         ht_error *err);

#endif
