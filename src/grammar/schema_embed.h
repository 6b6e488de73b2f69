/* JSON Schemas as parts of other rules: the values of several, with text around them. */
#ifndef HT_GRAMMAR_SCHEMA_EMBED_H
#define HT_GRAMMAR_SCHEMA_EMBED_H

#include "grammar/rules.h"

#include <hearth/grammar.h>

/* Which values of a schema are wanted. */
typedef struct ht_schema_part {
    const char *property; /* those that one of its `properties` describes; NULL: its own */
    bool is_object;       /* objects alone */
} ht_schema_part;

/* Adds the rules of a schema's values, n bytes of JSON, to unfinished rules, which may have those of others with the same options; *out
 * is their symbol. Errors as those of ht_grammar_from_json_schema; after one the rules may be used further unless ht_rules_status says
 * otherwise. */
ht_status ht_schema_embed(ht_rules *rules, const char *json, size_t n, const ht_schema_options *options,
                          const ht_schema_part *part, ht_symbol *out, ht_error *err);
/* White space between the parts of a JSON text. */
ht_re ht_schema_white_space(ht_regexes *re, ht_schema_space space);

#endif
