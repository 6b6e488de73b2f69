/* Elementwise fusion: groups of elementwise nodes of one shape become one program (device/program.h), in evaluations and in
 * compiled functions. The nodes of a group are its members. */
#ifndef HT_ARRAY_FUSE_ELEMENTWISE_H
#define HT_ARRAY_FUSE_ELEMENTWISE_H

#include "array/array.h"
#include "array/topological_order.h"
#include "device/program.h"

/* A group. */
typedef struct ht_fused {
    ht_program program;                 /* step i computes member[i]; ht_fused_close sets the outputs */
    ht_array *member[HT_PROGRAM_STEPS]; /* in topological order */
    ht_array *in[HT_PROGRAM_INPUTS];    /* operands from outside the group, possibly views, of the members' shape */
    ht_array *out[HT_PROGRAM_OUTPUTS];  /* members that are outputs */
} ht_fused;

/* True for elementwise operations, whose nodes can be members. */
bool ht_fused_supports(ht_op_id op);

/* Number of operands of the members that read `storage`. */
int32_t ht_fused_reads(const ht_fused *f, const ht_array *storage);

/* Values of a node's `slot` during grouping, beside step + 1 of a member: not computed, computed, and dependent on a
 * member. */
enum { HT_FUSED_TO_DO = 0, HT_FUSED_DONE = -1, HT_FUSED_WAITING = -2 };

/* Computes a node that is not a member, and sets its slot to HT_FUSED_DONE. */
typedef ht_status ht_fused_between_fn(void *user, ht_array *a);

/* Forms a group of the elementwise node order[*at] and later nodes of its shape. A node between members is computed
 * before the group, by `between`, if it is small and depends on no member; a node that depends on a member is left for
 * after the group. The group is empty when the device does not support the first node. When `between` fails, *at is the
 * position of the failed node. */
ht_status ht_fused_gather(ht_fused *f, const ht_device *d, const ht_worklist *list, uint64_t visit, size_t *at,
                          ht_fused_between_fn *between, void *user);

/* Determines the outputs, which are members that are kept or read outside the group, and prepares the program on the
 * device. Removes members from the end until the program fits. Returns the number of members, at least 1. */
int ht_fused_close(ht_fused *f, const ht_device *d);

#endif
