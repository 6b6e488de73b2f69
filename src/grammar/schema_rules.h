/* JSON Schemas to rules: a schema alone, or as a part of other rules. */
#ifndef HT_GRAMMAR_SCHEMA_RULES_H
#define HT_GRAMMAR_SCHEMA_RULES_H

#include "grammar/rules.h"

#include <hearth/grammar.h>

/* Types of JSON values, as bits. */
enum {
    HT_TYPE_NULL = 1,
    HT_TYPE_FALSE = 2,
    HT_TYPE_TRUE = 4,
    HT_TYPE_BOOLEAN = 6,
    HT_TYPE_NUMBER = 8,
    HT_TYPE_STRING = 16,
    HT_TYPE_ARRAY = 32,
    HT_TYPE_OBJECT = 64,
    HT_TYPE_ALL = 127
};

/* The types that a schema's `type` names; 0: unknown name. */
uint32_t ht_schema_type(const char *name);

/* Which values of a schema are wanted. */
typedef struct ht_schema_part {
    const char *property; /* those that one of its `properties` describes; NULL: its own */
    bool is_object;       /* objects alone */
} ht_schema_part;

/* Finished rules of a schema, which the caller frees; options may be NULL. Errors as of ht_grammar_from_json_schema. */
ht_status ht_schema_compile(const char *json, size_t n, const ht_schema_options *options, ht_rules **out,
                            ht_error *err);
/* Adds the rules of a schema's values to unfinished rules, which may have those of others with the same options; *out is their symbol.
 * After an error the rules may be used further unless ht_rules_status reports one. */
ht_status ht_schema_embed(ht_rules *rules, const char *json, size_t n, const ht_schema_options *options,
                          const ht_schema_part *part, ht_symbol *out, ht_error *err);
/* White space between the parts of a JSON text. */
ht_re ht_schema_white_space(ht_regexes *re, ht_schema_space space);

#endif
