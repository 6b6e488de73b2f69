/* Plans: how arrays and objects of a shape are written, item by item and member by member, and from which states on an end can
 * be reached. What is not known of a plan without asking sets was asked before, so that rules can be made of it at any time. */
#ifndef HT_GRAMMAR_SCHEMA_PLAN_H
#define HT_GRAMMAR_SCHEMA_PLAN_H

#include "grammar/schema.h"

#define HT_NO_SYMBOL UINT32_MAX
/* Values that an array with different items may have. */
enum { HT_UNIQUE_MOST = 64 };

typedef struct ht_array_plan {
    uint32_t least, most;
    uint32_t n; /* indexes that differ */
    uint32_t n_some, some_least[HT_COUNTS_MOST], some_most[HT_COUNTS_MOST], some_from[HT_COUNTS_MOST];
    bool *live;        /* [n, 2^n_some] whether there is an item at the index that is counted by those of the mask */
    ht_symbol *symbol; /* likewise; NULL while only liveness is asked for */
    bool is_unique;
    uint32_t n_values;
    ht_node *value_node; /* [n_values] */
    uint64_t *allowed;   /* [n] values at the index, as bits, of a unique one */
    ht_symbol *value;    /* [n_values] */
    ht_intern states;    /* of counting ones */
    uint8_t *known;      /* [known_capacity] of states: 0 unknown, 1 no, 2 yes */
    size_t known_capacity;
    bool failed; /* memory ran out */
} ht_array_plan;

/* Before an item: its index, and how many were counted, or as two words which values are used. */
typedef struct ht_array_state {
    uint32_t index;
    uint32_t count[HT_COUNTS_MOST];
} ht_array_state;

/* The plan of a shape in memory of the arena, without symbols; false when there is no such array, or after a failure. What the plan has
 * of its own is to be freed in any case. */
bool ht_array_plan_of(ht_schema *s, const ht_array_shape *a, ht_arena *arena, ht_array_plan *out);
void ht_array_plan_free(ht_array_plan *p);
bool ht_array_may_end(const ht_array_plan *p, const ht_array_state *at);
/* Whether an end can be reached. */
bool ht_array_can_end(ht_array_plan *p, const ht_array_state *at);
/* The state behind an item that is counted by those of the mask; false where they were counted often enough. */
bool ht_array_after(const ht_array_plan *p, const ht_array_state *at, uint32_t mask, ht_array_state *out);
/* Of a unique one: behind a value. */
ht_array_state ht_array_after_value(const ht_array_plan *p, const ht_array_state *at, uint32_t value);
static inline uint32_t ht_array_class(const ht_array_plan *p, uint32_t index) {
    return index < p->n ? index : p->n - 1;
}

typedef struct ht_member_plan {
    bool is_required;
    uint32_t mask;         /* those of `some` that have its key */
    bool *live;            /* [2^n_some] whether there is a value of all of `some` in the mask */
    ht_symbol *symbol;     /* [2^n_some] of the values */
    ht_symbol first, next; /* lexemes of its key, behind { and behind a comma */
} ht_member_plan;

typedef struct ht_object_plan {
    uint32_t least, most;
    uint32_t n_names, n_members; /* names first, then classes of keys */
    uint32_t n_some;
    bool is_ordered;
    bool is_free;           /* every member may come: there is nothing to count */
    ht_member_plan *member; /* [n_members] */
} ht_object_plan;

/* Members so far: how many, which of `some` there is none of as yet, and which names there were, a bit each; in order, the first
 * name that may come. */
typedef struct ht_object_state {
    uint32_t count, pending, position;
    uint32_t *seen; /* [(n_names + 31) / 32] */
} ht_object_state;

/* The same of the objects that are written: of closed ones those that have only described members, if there are any. */
bool ht_object_written_plan(ht_schema *s, const ht_object_shape *o, ht_arena *arena, ht_object_plan *out);
bool ht_object_may_take(const ht_object_plan *p, const ht_object_state *at, uint32_t member);
bool ht_object_may_end(const ht_object_plan *p, const ht_object_state *at);
/* Takes a member with a value of those of `some` in the mask; false where no end can be reached behind it. */
bool ht_object_take(const ht_object_plan *p, ht_object_state *at, uint32_t member, uint32_t mask);
/* Whether an end can be reached. */
bool ht_object_can_end(const ht_object_plan *p, ht_object_state *at);

#endif
