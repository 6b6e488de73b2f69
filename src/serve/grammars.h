/* A cache of a model's compiled grammars, since clients repeat the same few. It bounds their number; each grammar
 * bounds its own memory (hearth/grammar.h). All functions are thread-safe. */
#ifndef HT_SERVE_GRAMMARS_H
#define HT_SERVE_GRAMMARS_H

#include <hearth/grammar.h>

#include <stdbool.h>

typedef struct serve_grammars serve_grammars;

typedef enum serve_grammar_kind { SERVE_SCHEMA, SERVE_REGEX, SERVE_GBNF } serve_grammar_kind;

/* The model must outlive the cache; the caller frees *out. */
ht_status serve_grammars_new(ht_model *m, serve_grammars **out, ht_error *err);
void serve_grammars_free(serve_grammars *g); /* NULL is fine */

/* The grammar of a text of n bytes, compiled on a cache miss, possibly by two threads at once. The caller frees it. */
ht_status serve_grammars_get(serve_grammars *g, serve_grammar_kind kind, const char *text, size_t n, ht_grammar **out,
                             ht_error *err);

/* Whether a schema of n bytes can constrain answers, cached for the latest few hundred. True when memory runs out. */
bool serve_grammars_support(serve_grammars *g, const char *schema, size_t n);

#endif
