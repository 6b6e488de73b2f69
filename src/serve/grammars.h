/* Compiled grammars of a model, kept for the requests to come: clients ask for the same few again and again. Bounded by their number, as what each
 * finds out is bounded by itself (hearth/grammar.h). All functions may be called from any thread. */
#ifndef HT_SERVE_GRAMMARS_H
#define HT_SERVE_GRAMMARS_H

#include <hearth/grammar.h>

#include <stdbool.h>

typedef struct serve_grammars serve_grammars;

typedef enum serve_grammar_kind { SERVE_SCHEMA, SERVE_REGEX, SERVE_GBNF } serve_grammar_kind;

/* For a model that outlives it; the caller frees *out. */
ht_status serve_grammars_new(ht_model *m, serve_grammars **out, ht_error *err);
void serve_grammars_free(serve_grammars *g); /* NULL is fine */

/* The grammar of a text of n bytes, compiled if it is not there; two threads that ask for a new one at once may both compile it. The caller
 * frees *out. */
ht_status serve_grammars_get(serve_grammars *g, serve_grammar_kind kind, const char *text, size_t n, ht_grammar **out,
                             ht_error *err);

/* Whether a schema of n bytes is one that answers can be held to, found out once for the latest few hundred: true, too, where there is no
 * memory to find out. */
bool serve_grammars_support(serve_grammars *g, const char *schema, size_t n);

#endif
