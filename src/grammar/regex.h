/* Regular expressions over bytes, with intersection and complement, and their derivatives.
 *
 * An expression is a number, which expressions that are equal after simplification share. The derivative of r by a
 * byte b matches what may follow b in r's texts (Brzozowski, 1964; interning and byte classes as in Owens, Reppy and
 * Turon, 2009). Expressions are thus the states of a deterministic automaton, built on demand.
 *
 * Errors are sticky: expressions become HT_RE_NONE, and ht_regexes_status returns the reason. One thread at a time. */
#ifndef HT_GRAMMAR_REGEX_H
#define HT_GRAMMAR_REGEX_H

#include "grammar/intern.h"

#include <hearth/status.h>

#include <string.h>

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
/* A set of an interned table. */
static inline ht_byte_set ht_byte_set_at(const ht_intern *sets, uint32_t number) {
    size_t n;
    ht_byte_set set;
    memcpy(set.bits, ht_intern_at(sets, number, &n), sizeof set.bits);
    return set;
}

/* Code points, both included. */
typedef struct ht_code_range {
    uint32_t first, last;
} ht_code_range;

typedef enum ht_re_kind {
    HT_RE_KIND_NONE,
    HT_RE_KIND_EMPTY,
    HT_RE_KIND_ALL,
    HT_RE_KIND_BYTES,        /* number of a byte set */
    HT_RE_KIND_CONCAT,       /* a, b; a is no concatenation */
    HT_RE_KIND_ALTERNATIVES, /* two or more, ascending, none of them alternatives */
    HT_RE_KIND_BOTH,         /* likewise of intersections */
    HT_RE_KIND_NOT,          /* a */
    HT_RE_KIND_REPEAT,       /* a, min, max */
    HT_RE_KIND_MULTIPLE /* low and high word of the divisor, of the remainder so far, digits left after the point */
} ht_re_kind;

/* Facts of an expression. */
enum {
    HT_RE_NULLABLE = 1,
    HT_RE_BOOLEAN = 2, /* it has an intersection or a complement, and may have no text without being HT_RE_NONE */
    HT_RE_LIVE = 4,    /* known to have a text */
    HT_RE_DEAD = 8     /* known to have none */
};

/* Flag in the last operand of HT_RE_KIND_MULTIPLE: the point has been read. */
#define HT_RE_BEHIND_POINT UINT32_C(0x80000000)

typedef struct ht_regexes {
    ht_intern nodes; /* kind and operands */
    ht_intern sets;  /* of 8 words */
    uint8_t *facts;  /* [facts_capacity] */
    size_t facts_capacity;
    ht_intern firsts; /* of 8 words: bytes with which texts may begin */
    uint32_t *first;  /* [first_capacity] of expressions: number in `firsts` + 1, 0 if not computed */
    size_t first_capacity;
    uint32_t *scratch; /* a stack of operands */
    size_t n_scratch, scratch_capacity;
    int depth; /* of recursion */
    ht_pair_map derivatives;
    int64_t n_derived; /* requested derivatives */
    /* Derivatives left to all searches together. INT64_MAX: after construction, each search has its limit. */
    int64_t search_budget;
    uint8_t class_of[256], byte_of[256]; /* byte_of[class]: one of the class */
    int n_classes;
    uint32_t n_frozen, n_frozen_sets; /* made before ht_regexes_freeze */
    uint32_t n_known_sets;            /* known to be unions of classes */
    ht_status status;
} ht_regexes;

/* NULL when memory ran out. */
ht_regexes *ht_regexes_new(void);
void ht_regexes_free(ht_regexes *s); /* NULL is fine */
/* HT_OK, or the failure that turned expressions into HT_RE_NONE. */
ht_status ht_regexes_status(const ht_regexes *s, ht_error *err);

/* ---- construction ---- */

ht_re ht_re_bytes(ht_regexes *s, const ht_byte_set *set);
ht_re ht_re_byte_range(ht_regexes *s, unsigned first, unsigned last); /* HT_RE_NONE where first > last */
ht_re ht_re_text(ht_regexes *s, const char *bytes, size_t n);
/* UTF-8 of any code point in the ranges, without surrogates. */
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
/* Multiples of divisor / 10^places in decimal: 0 < divisor < 2^59, at most some thousand digits after the point. */
ht_re ht_re_multiple(ht_regexes *s, uint64_t divisor, uint32_t places);

/* ---- automata ---- */

/* Whether a part of r may be repeated without end, or r is a complement. */
bool ht_re_is_endless(const ht_regexes *s, ht_re r);
/* Whether r has the empty text. */
bool ht_re_is_nullable(const ht_regexes *s, ht_re r);

/* Ends construction: divides the bytes into classes, each of which all expressions treat alike. */
void ht_regexes_freeze(ht_regexes *s);
/* The same during construction, before derivatives and searches. */
void ht_regexes_refine(ht_regexes *s);
/* Discards the expressions made since ht_regexes_freeze. */
void ht_regexes_reset(ht_regexes *s);

/* The derivative of r by a byte class; HT_RE_NONE where nothing may follow, even if only a search can show that. */
ht_re ht_re_derivative(ht_regexes *s, ht_re r, int byte_class);
/* False only if no text of r begins with a byte of the class. It makes no expression. */
bool ht_re_may_begin(ht_regexes *s, ht_re r, int byte_class);
/* Adds the bytes with which texts of r may begin, at least one of each class. */
void ht_re_add_first(ht_regexes *s, ht_re r, ht_byte_set *set);
/* Splits r = a b into a nullable a, and b; false for other expressions. */
bool ht_re_split_optional(const ht_regexes *s, ht_re r, ht_re *a, ht_re *b);
/* Whether r has any text, and whether that is known without a search, which needs byte classes. */
bool ht_re_is_live(ht_regexes *s, ht_re r);
bool ht_re_liveness_is_known(const ht_regexes *s, ht_re r);

size_t ht_regexes_bytes(const ht_regexes *s); /* of memory in use */

/* ---- for parsers and derivatives ---- */

/* Kind and operands of an expression, borrowed until the next one is made. */
static inline const uint32_t *ht_re_node(const ht_regexes *s, ht_re r, size_t *n) {
    return ht_intern_at(&s->nodes, r, n);
}
/* ht_re_multiple after digits that leave `remainder`, before or after the point. */
ht_re ht_re_multiple_behind(ht_regexes *s, uint64_t divisor, uint64_t remainder, uint32_t places);
/* Records the first failure; returns HT_RE_NONE. */
ht_re ht_re_fail(ht_regexes *s, ht_status status);
/* Pushes a word onto the scratch stack; records a failure. */
void ht_re_push(ht_regexes *s, uint32_t word);
/* Alternatives, or the intersection, of the scratch stack's words from `begin` on, which are popped. */
ht_re ht_re_join_scratch(ht_regexes *s, ht_re_kind kind, size_t begin);

#endif
