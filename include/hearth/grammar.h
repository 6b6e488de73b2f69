/* Grammars: which texts an answer may be, and which tokens may come next in one.
 *
 * A grammar is compiled for a model's vocabulary from a regular expression, a context-free grammar or a JSON Schema. It is exact: a
 * token is allowed if, and only if, the text with it is the beginning of some text of the grammar.
 *
 * A grammar may be shared by any number of threads; what it finds out about texts is kept within a bound and serves all of them. */
#ifndef HEARTH_GRAMMAR_H
#define HEARTH_GRAMMAR_H

#include <hearth/model.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct ht_grammar ht_grammar;

/* ---- compiling ---- */

/* Texts that a regular expression matches as a whole: n bytes in the syntax of ECMA-262 with the flag u. Look-ahead and anchors work outside
 * of repetitions. HT_ERR_FORMAT, with the place, for what is no such expression or matches no text; HT_ERR_UNSUPPORTED, with
 * what it is, for back references, look-behind, word boundaries and properties of Unicode other than general categories;
 * HT_ERR_LIMIT for one that is too complex. As all three of these: HT_ERR_UNSUPPORTED for a model without a tokenizer; the
 * grammar holds the model; the caller frees *out. */
HT_API ht_status ht_grammar_from_regex(ht_model *m, const char *pattern, size_t n, ht_grammar **out, ht_error *err);
/* Texts of a context-free grammar: n bytes in GBNF, llama.cpp's notation, whose rule `root` is the start. Rules may recur in every
 * way. HT_ERR_FORMAT, with line and column, for what is no such grammar or has no text, HT_ERR_LIMIT for one that is too
 * complex. */
HT_API ht_status ht_grammar_from_gbnf(ht_model *m, const char *text, size_t n, ht_grammar **out, ht_error *err);

/* White space between the parts of a JSON text. */
typedef enum ht_schema_space {
    HT_SCHEMA_SPACE_LINES, /* none, one space, or the end of a line and at most 64 spaces or 16 tabs, and before commas and colons
                              none or one space: as indented, one-line and compact JSON has it; a text cannot go on with white space
                              for long */
    HT_SCHEMA_SPACE_NONE,
    HT_SCHEMA_SPACE_ANY /* any run of spaces, tabs, ends of lines */
} ht_schema_space;

/* Options of ht_grammar_from_json_schema. */
typedef struct ht_schema_options {
    size_t size;           /* of the struct, set by ht_schema_options_init */
    ht_schema_space space; /* default HT_SCHEMA_SPACE_LINES */
    /* Members come in the order of `properties`, others behind them, else in any order; default true: a model that is to think before it
     * answers is asked for its reasons first. */
    bool ordered;
    /* Objects whose members a schema describes have no others: only those of `properties`, `patternProperties` and `required`, and others
     * where `additionalProperties` or `unevaluatedProperties` is there and not false; objects of which it describes none have any.
     * The texts are some of the valid ones. Default true: models invent members without end. */
    bool closed;
    bool every_spelling; /* numbers may have any length, and whole ones zeros behind a point, 1.0; default false */
    bool ignore_formats; /* `format` says nothing of what is valid; default false */
} ht_schema_options;
HT_API void ht_schema_options_init(ht_schema_options *options, size_t size);

/* JSON texts that are valid by a JSON Schema, n bytes, of draft 2020-12, 2019-09, 7, 6 or 4. NULL options are the defaults. Exact, but for
 * what the options leave out: what cannot be checked while a text is written is HT_ERR_UNSUPPORTED, with the JSON pointer of the
 * keyword: uniqueItems of other than a few simple values, references to other documents, patterns that ht_grammar_from_regex
 * refuses, the formats `regex` and `idn-hostname`. Unknown keywords and formats say nothing. HT_ERR_FORMAT for what is no schema,
 * or has no valid value; HT_ERR_LIMIT for one that is too complex.
 *
 * How values are written: strings of which the schema says nothing in all spellings, others without needless escapes, as are the
 * keys that it names; numbers with bounds and the like without exponents, single ones in their shortest form, others of at most 20
 * digits before the point, 20 behind it and two in an exponent, unless longer ones alone are valid; no named member comes twice. */
HT_API ht_status ht_grammar_from_json_schema(ht_model *m, const char *json, size_t n, const ht_schema_options *options,
                                             ht_grammar **out, ht_error *err);
/* Another hold of a grammar, which is freed as often as it was made and retained; returns g. */
HT_API ht_grammar *ht_grammar_retain(ht_grammar *g);
HT_API void ht_grammar_free(ht_grammar *g); /* NULL is fine; matchers hold the grammar */

/* ---- matching ---- */

/* A text of a grammar as far as it goes. Belongs to one thread at a time. */
typedef struct ht_matcher ht_matcher;

/* A matcher before the first token. The caller frees *out. */
HT_API ht_status ht_matcher_new(ht_grammar *g, ht_matcher **out, ht_error *err);
HT_API void ht_matcher_free(ht_matcher *m); /* NULL is fine */
/* Which tokens may come next: token t in bit t % 32 of (*mask)[t / 32], lent until the next call on the matcher. The model's stop ids are
 * allowed where the text may end. There is always one that is allowed. HT_ERR_LIMIT for a text that can be read in too many
 * ways. */
HT_API ht_status ht_matcher_mask(ht_matcher *m, const uint32_t **mask, ht_error *err);
/* Appends a token; *allowed says whether it may come next, and when not, nothing was changed. A stop id where the text may end is allowed and
 * changes nothing. */
HT_API ht_status ht_matcher_accept(ht_matcher *m, int32_t token, bool *allowed, ht_error *err);
/* Whether a text ends. */
typedef enum ht_ending {
    HT_ENDING_NOT, /* the text is not whole */
    HT_ENDING_MAY, /* it may end, or go on */
    HT_ENDING_MUST /* it is whole, and no token goes on with it */
} ht_ending;
HT_API ht_status ht_matcher_ending(ht_matcher *m, ht_ending *ending, ht_error *err);
/* Takes back all tokens but the first n; HT_ERR_ARGUMENT when there are fewer. */
HT_API ht_status ht_matcher_truncate(ht_matcher *m, size_t n, ht_error *err);
HT_API size_t ht_matcher_length(const ht_matcher *m); /* tokens */

#ifdef __cplusplus
}
#endif
#endif
