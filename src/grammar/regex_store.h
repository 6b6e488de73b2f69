/* The store of expressions, as its construction (regex.c) and its derivatives (regex_derive.c) see it. */
#ifndef HT_GRAMMAR_REGEX_STORE_H
#define HT_GRAMMAR_REGEX_STORE_H

#include "grammar/intern.h"
#include "grammar/regex.h"

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
    HT_RE_KIND_MULTIPLE      /* low and high word of the divisor, of the remainder so far, places that are left */
} ht_re_kind;

/* Facts of an expression. */
enum {
    HT_RE_NULLABLE = 1,
    HT_RE_BOOLEAN = 2, /* an intersection or a complement is in it: it may be without texts unseen */
    HT_RE_LIVE = 4,    /* known to have a text */
    HT_RE_DEAD = 8     /* known to have none */
};

/* Expressions of one grammar at most: 64 bytes and more each. */
#define HT_RE_LIMIT 1000000u

/* Derivatives that all searches of a construction take at most: some seconds. */
#define HT_RE_SEARCHES_LIMIT INT64_C(100000000)

/* With the places of HT_RE_KIND_MULTIPLE: behind the point. */
#define HT_RE_BEHIND_POINT UINT32_C(0x80000000)

struct ht_regexes {
    ht_intern nodes; /* kind and operands */
    ht_intern sets;  /* of 8 words */
    uint8_t *facts;  /* [facts_capacity] */
    size_t facts_capacity;
    ht_intern firsts; /* of 8 words: bytes with which texts may begin */
    uint32_t *first;  /* [first_capacity] of expressions: number in `firsts` + 1, 0 where that was not asked */
    size_t first_capacity;
    uint32_t *scratch; /* a stack of operands */
    size_t n_scratch, scratch_capacity;
    int depth; /* of recursion */
    ht_pair_map derivatives;
    int64_t n_derived;   /* derivatives that were asked for */
    int64_t search_room; /* those that searches of the construction may still take together; INT64_MAX: no bound */
    uint8_t class_of[256], byte_of[256]; /* byte_of[class]: one of the class */
    int n_classes;
    uint32_t n_frozen, n_frozen_sets; /* made before ht_regexes_freeze */
    uint32_t n_known_sets;            /* that the classes are known to tell apart */
    ht_status status;
};

/* Kind and operands of an expression, lent until the next one is made. */
static inline const uint32_t *ht_re_node(const ht_regexes *s, ht_re r, size_t *n) {
    return ht_intern_at(&s->nodes, r, n);
}

/* ht_re_multiple behind digits that leave `remainder`, behind the point or not. */
ht_re ht_re_multiple_behind(ht_regexes *s, uint64_t divisor, uint64_t remainder, uint32_t places);
/* Notes the first failure; returns HT_RE_NONE. */
ht_re ht_re_fail(ht_regexes *s, ht_status status);
/* Pushes a word onto the scratch stack; a failure is noted. */
void ht_re_push(ht_regexes *s, uint32_t word);
/* Alternatives, or the intersection, of the scratch stack's words from `begin` on, which are taken off. */
ht_re ht_re_join_scratch(ht_regexes *s, ht_re_kind kind, size_t begin);

#endif
