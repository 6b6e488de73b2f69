/* Grammars: constrain the text of an answer, and so its possible next tokens.
 *
 * A grammar is compiled for a model's vocabulary from a regular expression, a context-free grammar or a JSON Schema.
 * It is exact: a token is allowed if, and only if, the text with it is the beginning of some text of the grammar.
 *
 * Any number of threads may share a grammar; they also share its cache of visited states, which is bounded. */
#ifndef HEARTH_GRAMMAR_H
#define HEARTH_GRAMMAR_H

#include <hearth/model.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct ht_grammar ht_grammar;

/* ---- compiling ---- */

/* Texts that a regular expression matches as a whole: n bytes in the syntax of ECMA-262 with the flag u. Lookahead
 * and anchors work outside of repetitions. HT_ERR_FORMAT, with the position, for an invalid expression or one that
 * matches no text. HT_ERR_UNSUPPORTED, with the construct, for back references, lookbehind, word boundaries and
 * Unicode properties other than general categories. HT_ERR_LIMIT for one that is too complex.
 *
 * For all three functions: HT_ERR_UNSUPPORTED for a model without a tokenizer; the grammar holds the model; the
 * caller frees *out. */
HT_API ht_status ht_grammar_from_regex(ht_model *m, const char *pattern, size_t n, ht_grammar **out, ht_error *err);
/* Texts of a context-free grammar: n bytes in GBNF, llama.cpp's grammar syntax, whose rule `root` is the start. Rules
 * may recur in every way. HT_ERR_FORMAT, with line and column, for an invalid grammar or one without texts;
 * HT_ERR_LIMIT for one that is too complex. */
HT_API ht_status ht_grammar_from_gbnf(ht_model *m, const char *text, size_t n, ht_grammar **out, ht_error *err);

/* White space between the parts of a JSON text. */
typedef enum ht_schema_space {
    /* Between parts nothing, one space, or a line end and at most 64 spaces or 16 tabs; before commas and colons
     * nothing or one space. Allows indented, one-line and compact JSON, but no long runs of white space. */
    HT_SCHEMA_SPACE_LINES,
    HT_SCHEMA_SPACE_NONE,
    HT_SCHEMA_SPACE_ANY /* any run of spaces, tabs, ends of lines */
} ht_schema_space;

/* Options of ht_grammar_from_json_schema. */
typedef struct ht_schema_options {
    size_t size;           /* of the struct, set by ht_schema_options_init */
    ht_schema_space space; /* default HT_SCHEMA_SPACE_LINES */
    /* Fields come in the order of `properties`, then others; false: in any order. Default true: a schema can then
     * request reasons before the answer. */
    bool ordered;
    /* Objects whose fields a schema describes have no others: only those of `properties`, `patternProperties` and
     * `required`. Others are allowed where `additionalProperties` or `unevaluatedProperties` is present and not
     * false. Objects without described fields may have any. This allows a subset of the valid texts. Default true:
     * otherwise models invent fields without end. */
    bool closed;
    bool every_spelling; /* numbers may have any length, and integers a fraction of zeros, as 1.0; default false */
    bool ignore_formats; /* `format` does not constrain values; default false */
} ht_schema_options;
HT_API void ht_schema_options_init(ht_schema_options *options, size_t size);

/* JSON texts that are valid by a JSON Schema, n bytes, of draft 2020-12, 2019-09, 7, 6 or 4. NULL options are the
 * defaults. Exact, except for texts that the options exclude. Constraints that cannot be checked during generation
 * are HT_ERR_UNSUPPORTED, with the JSON pointer of the keyword: uniqueItems of other than a few simple values,
 * references to other documents, patterns that ht_grammar_from_regex rejects, the formats `regex` and `idn-hostname`.
 * Unknown keywords and formats are ignored. HT_ERR_FORMAT for an invalid schema, or one without valid values;
 * HT_ERR_LIMIT for one that is too complex.
 *
 * Spelling of values: unconstrained strings have all spellings; other strings, and keys that the schema names, have
 * no needless escapes. Numbers with bounds and similar constraints have no exponents, and single values have their
 * shortest form. Other numbers have at most 20 digits before the point, 20 after it and two in an exponent, unless
 * only longer ones are valid. No named field occurs twice. */
HT_API ht_status ht_grammar_from_json_schema(ht_model *m, const char *json, size_t n, const ht_schema_options *options,
                                             ht_grammar **out, ht_error *err);
/* Retains a grammar and returns g. Free it once for each creation and retain. */
HT_API ht_grammar *ht_grammar_retain(ht_grammar *g);
HT_API void ht_grammar_free(ht_grammar *g); /* NULL is fine; matchers hold the grammar */

/* ---- matching ---- */

/* The state of a partial text in a grammar. Belongs to one thread at a time. */
typedef struct ht_matcher ht_matcher;

/* A matcher before the first token. The caller frees *out. */
HT_API ht_status ht_matcher_new(ht_grammar *g, ht_matcher **out, ht_error *err);
HT_API void ht_matcher_free(ht_matcher *m); /* NULL is fine */
/* Tokens that may come next: token t in bit t % 32 of (*mask)[t / 32], lent until the next call on the matcher. The
 * model's stop ids are allowed where the text may end. At least one token is always allowed. HT_ERR_LIMIT for a text
 * that is too ambiguous. */
HT_API ht_status ht_matcher_mask(ht_matcher *m, const uint32_t **mask, ht_error *err);
/* Appends a token. *allowed says whether it may come next; if not, nothing changes. A stop id is allowed where the
 * text may end, and changes nothing. */
HT_API ht_status ht_matcher_accept(ht_matcher *m, int32_t token, bool *allowed, ht_error *err);
/* Whether a text may end. */
typedef enum ht_ending {
    HT_ENDING_NOT, /* the text is incomplete */
    HT_ENDING_MAY, /* it may end or continue */
    HT_ENDING_MUST /* it is complete, and no token can follow */
} ht_ending;
HT_API ht_status ht_matcher_ending(ht_matcher *m, ht_ending *ending, ht_error *err);
/* Removes all tokens but the first n; HT_ERR_ARGUMENT if there are fewer. */
HT_API ht_status ht_matcher_truncate(ht_matcher *m, size_t n, ht_error *err);
HT_API size_t ht_matcher_length(const ht_matcher *m); /* tokens */

#ifdef __cplusplus
}
#endif
#endif
