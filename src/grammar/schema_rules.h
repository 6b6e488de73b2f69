/* Sets of JSON values to rules, and the compiler of JSON Schema as a whole. */
#ifndef HT_GRAMMAR_SCHEMA_RULES_H
#define HT_GRAMMAR_SCHEMA_RULES_H

#include "grammar/schema.h"
#include "grammar/schema_embed.h"

/* Finished rules of a schema, n bytes of UTF-8; options may be NULL. Errors as those of ht_grammar_from_json_schema. The caller frees
 * *out. */
ht_status ht_schema_compile(const char *json, size_t n, const ht_schema_options *options, ht_rules **out,
                            ht_error *err);
/* Makes rules of a node, which has values; the start's symbol. A failure is noted. */
ht_symbol ht_schema_make_rules(ht_schema *s, ht_node root);

#endif
