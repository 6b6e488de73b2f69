/* Elementwise fusion: a group of elementwise nodes of one shape becomes one program (device/program.h), in evaluations
 * and in compiled functions. */
#ifndef HT_ARRAY_FUSE_ELEMENTWISE_H
#define HT_ARRAY_FUSE_ELEMENTWISE_H

#include "array/array.h"
#include "array/topological_order.h"
#include "device/program.h"

/* A group. */
typedef struct ht_fused {
    ht_program program;                 /* step i computes member[i]; ht_fused_close sets the outputs */
    ht_array *member[HT_PROGRAM_STEPS]; /* in topological order */
    ht_array *in[HT_PROGRAM_INPUTS];    /* operands from outside the group, possibly views, of the group's shape */
    ht_array *out[HT_PROGRAM_OUTPUTS];  /* nodes of the group that are outputs */
} ht_fused;

/* True for elementwise operations, whose nodes can be grouped. */
bool ht_fused_supports(ht_op_id op);

/* Number of operands in the group that read `storage`. */
int32_t ht_fused_reads(const ht_fused *f, const ht_array *storage);

/* Values of a node's `slot` during grouping: not computed, computed, dependent on the group. A grouped node has its
 * step + 1. */
enum { HT_FUSED_TO_DO = 0, HT_FUSED_DONE = -1, HT_FUSED_WAITING = -2 };

/* Computes a node outside the group, and sets its slot to HT_FUSED_DONE. */
typedef ht_status ht_fused_between_fn(void *user, ht_array *a);

/* Groups the elementwise node order[*at] and later nodes of its shape. `between` computes intervening nodes before the
 * group if they are small and independent of it; nodes that depend on the group follow it. The group is empty when the
 * device does not support the first node. When `between` fails, *at is the position of the failed node. */
ht_status ht_fused_gather(ht_fused *f, const ht_device *d, const ht_worklist *list, uint64_t visit, size_t *at,
                          ht_fused_between_fn *between, void *user);

/* Determines the outputs, the nodes kept or read outside the group, and prepares the program on the device. Removes
 * nodes from the end until the program fits. Returns the number of nodes left, at least 1. */
int ht_fused_close(ht_fused *f, const ht_device *d);

#endif
