/* Elementwise fusion: nodes of one shape as a program (device/program.h), for evaluation and for compiled functions. */
#ifndef HT_ARRAY_FUSE_ELEMENTWISE_H
#define HT_ARRAY_FUSE_ELEMENTWISE_H

#include "array/array.h"
#include "array/topological_order.h"
#include "device/program.h"

typedef struct ht_fused {
    ht_program program; /* its steps are the members, in order; `out` of each is set by ht_fused_close */
    ht_array *member[HT_PROGRAM_STEPS];
    ht_array *in[HT_PROGRAM_INPUTS]; /* as they are read: views, of the members' shape */
    ht_array *out[HT_PROGRAM_OUTPUTS];
} ht_fused;

/* Whether nodes of this operation can be members at all. */
bool ht_fused_takes(ht_op_id op);

/* Adds a node that is not evaluated: false, and nothing has changed, when the device has no block for it, its shape is
 * another than that of the members, it looks at a member through a view, or there is no room. A member's `slot` is its
 * step + 1; nodes that are no members have another. */
bool ht_fused_add(ht_fused *f, const ht_device *d, ht_array *a);

/* How often the members read from `storage`. */
int32_t ht_fused_reads(const ht_fused *f, const ht_array *storage);

/* What a node's `slot` says while groups are made of it; a member's is its step + 1. */
enum { HT_FUSED_TO_DO = 0, HT_FUSED_DONE = -1, HT_FUSED_WAITING = -2 };

/* Computes a node that stands between members, and sets its slot to HT_FUSED_DONE. */
typedef ht_status ht_fused_apart_fn(void *user, ht_array *a);

/* From the elementwise node order[*at] on, those of its shape that follow in order become one program. What stands between
 * them is handed to `apart` first when it is small and needs none of them, and comes behind them when it needs one. Without
 * steps when the device has no block for the first one. A node of which `apart` failed is left in *at. */
ht_status ht_fused_gather(ht_fused *f, const ht_device *d, const ht_worklist *list, uint64_t visit, size_t *at,
                          ht_fused_apart_fn *apart, void *user);

/* Ends the program behind as many members as there is room for, at least one: those that are kept, or read by others too,
 * are outputs. Returns how many members there are now. */
int ht_fused_close(ht_fused *f, const ht_device *d);

#endif
