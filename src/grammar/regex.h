/* Regular expressions over bytes, with intersection and complement, and their derivatives.
 *
 * An expression is a number: equal ones, after simplification, have the same number. The derivative of r by a byte b is the
 * expression of what may follow b in r's texts (Brzozowski, 1964; with interning and classes of bytes as in Owens, Reppy and
 * Turon, 2009), so that expressions are the states of a deterministic automaton that is built as far as it is walked.
 *
 * Errors are sticky: when memory or a limit runs out, expressions become HT_RE_NONE, and ht_regexes_status says so. Belongs to
 * one thread at a time. */
#ifndef HT_GRAMMAR_REGEX_H
#define HT_GRAMMAR_REGEX_H

#include <hearth/status.h>

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef uint32_t ht_re;

enum {
    HT_RE_NONE,  /* no text */
    HT_RE_EMPTY, /* the empty text */
    HT_RE_ALL    /* all byte strings */
};

#define HT_RE_UNBOUNDED UINT32_MAX

/* A set of bytes, byte b in bit b % 32 of word b / 32. */
typedef struct ht_byte_set {
    uint32_t bits[8];
} ht_byte_set;

static inline bool ht_byte_set_has(const ht_byte_set *s, unsigned b) { return s->bits[b >> 5] >> (b & 31) & 1; }
void ht_byte_set_add(ht_byte_set *s, unsigned first, unsigned last); /* both included, at most 255 */

/* Code points, both included. */
typedef struct ht_code_range {
    uint32_t first, last;
} ht_code_range;

typedef struct ht_regexes ht_regexes;

/* NULL when memory ran out. */
ht_regexes *ht_regexes_new(void);
void ht_regexes_free(ht_regexes *s); /* NULL is fine */
/* HT_OK, or why expressions are HT_RE_NONE that should not be. */
ht_status ht_regexes_status(const ht_regexes *s, ht_error *err);

/* ---- construction ---- */

ht_re ht_re_bytes(ht_regexes *s, const ht_byte_set *set);
ht_re ht_re_text(ht_regexes *s, const char *bytes, size_t n);
/* UTF-8 of any code point in the ranges; surrogates are none. */
ht_re ht_re_code_points(ht_regexes *s, const ht_code_range *ranges, size_t n);
ht_re ht_re_concat(ht_regexes *s, ht_re a, ht_re b);
ht_re ht_re_either(ht_regexes *s, ht_re a, ht_re b);
ht_re ht_re_alternatives(ht_regexes *s, const ht_re *list, size_t n);
ht_re ht_re_both(ht_regexes *s, ht_re a, ht_re b);
/* The texts of a that are not empty. */
ht_re ht_re_without_empty(ht_regexes *s, ht_re a);
/* All byte strings but those of a. */
ht_re ht_re_not(ht_regexes *s, ht_re a);
/* `max` may be HT_RE_UNBOUNDED. */
ht_re ht_re_repeat(ht_regexes *s, ht_re a, uint32_t min, uint32_t max);
/* Digits, with a point and digits behind it or without, that are a multiple of divisor / 10^places: 0 < divisor < 2^59,
 * places at most some thousands. */
ht_re ht_re_multiple(ht_regexes *s, uint64_t divisor, uint32_t places);

/* ---- automata ---- */

/* Whether a part of r may be repeated without end, or r is a complement. */
bool ht_re_is_endless(const ht_regexes *s, ht_re r);
/* Whether r has the empty text. */
bool ht_re_is_nullable(const ht_regexes *s, ht_re r);

/* Ends construction: divides the bytes into classes that no expression tells apart. Expressions of before stay;
 * ht_regexes_reset forgets those made since. */
void ht_regexes_freeze(ht_regexes *s);
/* Construction is over, and texts are read: searches are bounded one by one alone, as what they find is kept. */
void ht_regexes_unbound(ht_regexes *s);
/* During construction: divides the bytes by the expressions of now, so that questions about texts may be asked. */
void ht_regexes_refine(ht_regexes *s);
void ht_regexes_reset(ht_regexes *s);
int ht_regexes_n_classes(const ht_regexes *s);
/* [256] the class of each byte. */
const uint8_t *ht_regexes_class_of(const ht_regexes *s);

/* What may follow a byte of the class in r's texts; HT_RE_NONE where nothing may, also where that takes a search to know. */
ht_re ht_re_derivative(ht_regexes *s, ht_re r, int byte_class);
/* False only where no text of r begins with a byte of the class: a look that makes no expression. */
bool ht_re_may_begin(ht_regexes *s, ht_re r, int byte_class);
/* Adds all such bytes, one at least of each class. */
void ht_re_add_first(ht_regexes *s, ht_re r, ht_byte_set *set);
/* [classes] one byte of each class. */
const uint8_t *ht_regexes_byte_of(const ht_regexes *s);
/* Divides r = a b into a, which has the empty text, and b: false of other expressions. */
bool ht_re_split_optional(const ht_regexes *s, ht_re r, ht_re *a, ht_re *b);
/* Whether r has any text. */
bool ht_re_is_live(ht_regexes *s, ht_re r);
/* Whether that is known without a search, for which the bytes have to be divided. */
bool ht_re_liveness_is_known(const ht_regexes *s, ht_re r);

size_t ht_regexes_bytes(const ht_regexes *s); /* of memory in use */

#endif
