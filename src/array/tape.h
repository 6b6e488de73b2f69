/* Tape: the subgraph between source nodes and results computed from them, in topological order. */
#ifndef HT_ARRAY_TAPE_H
#define HT_ARRAY_TAPE_H

#include "array/node_map.h"

/* Edges that a tape follows: differentiable ones, or all. */
typedef enum ht_tape_edges { HT_EDGES_DIFFERENTIABLE, HT_EDGES_ALL } ht_tape_edges;

typedef struct ht_tape_step {
    ht_array *node;
    int n_in;        /* followed inputs: node->in[0 .. n_in) */
    int64_t *in;     /* [n_in] steps of the inputs; -1: the input depends on no source */
    ht_array **mark; /* [n_marks], initially NULL: gradients, tangents or copies collected by a traversal */
    int n_marks;     /* 1; for a CUSTOM node, the number of its outputs */
} ht_tape_step;

typedef struct ht_tape {
    ht_tape_step *step; /* in topological order, the sources included */
    int64_t n;
    ht_node_map index; /* step of each node */
    ht_tape_edges edges;
} ht_tape;

/* Builds the tape of all nodes on a path from from[0 .. n_from) to to[0 .. n_to). False, with an error in the scope,
 * when memory ran out. */
bool ht_tape_make(ht_scope *s, ht_tape_edges edges, ht_array *const *from, int n_from, ht_array *const *to, int n_to,
                  ht_tape *out);
/* Index of a node's step; -1: the node depends on no source. */
int64_t ht_tape_index(const ht_tape *t, const ht_array *node);
/* Step of a node; NULL: the node depends on no source. */
ht_tape_step *ht_tape_at(const ht_tape *t, const ht_array *node);
void ht_tape_free(ht_tape *t);

#endif
