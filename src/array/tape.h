/* Tape: the part of a graph between some nodes and the results computed from them, in topological order. */
#ifndef HT_ARRAY_TAPE_H
#define HT_ARRAY_TAPE_H

#include "array/node_map.h"

typedef enum ht_tape_ways { HT_WAYS_OF_DERIVATIVES, HT_WAYS_OF_VALUES } ht_tape_ways;

typedef struct ht_tape_step {
    ht_array *node;
    int n_in;        /* inputs that are followed: node->in[0 .. n_in) */
    int64_t *in;     /* [n_in] their steps; -1: nothing there depends on the beginnings */
    ht_array **mark; /* [n_marks], NULL at first: collected by a traversal */
    int n_marks;     /* 1, or the outputs of a CUSTOM node */
} ht_tape_step;

typedef struct ht_tape {
    ht_tape_step *step; /* inputs before users; every one depends on a beginning */
    int64_t n, capacity;
    ht_node_map place;
    ht_tape_ways ways;
} ht_tape;

/* What lies on a way from from[0 .. n_from) to to[0 .. n_to): of the ways that derivatives go, or of all by which values
 * do. False, with an error in the scope, when memory ran out. */
bool ht_tape_make(ht_scope *s, ht_tape_ways ways, ht_array *const *from, int n_from, ht_array *const *to, int n_to,
                  ht_tape *out);
/* The place of a node's step; -1 when it does not depend on a beginning. */
int64_t ht_tape_index(const ht_tape *t, const ht_array *node);
/* The step of a node; NULL when it does not depend on a beginning. */
ht_tape_step *ht_tape_at(const ht_tape *t, const ht_array *node);
void ht_tape_free(ht_tape *t);

#endif
