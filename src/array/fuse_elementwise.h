/* Elementwise nodes of one shape put together as a program (device/program.h): what evaluation runs in one pass, and what
 * a compiled function keeps. */
#ifndef HT_ARRAY_FUSE_ELEMENTWISE_H
#define HT_ARRAY_FUSE_ELEMENTWISE_H

#include "array/array.h"
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

/* Ends the program behind as many members as there is room for, at least one; is_output says whether a member that is read
 * `reads` times by those has to be an output. Returns how many members there are now. */
typedef bool ht_is_output_fn(const ht_array *member, int32_t reads);
int ht_fused_close(ht_fused *f, const ht_device *d, ht_is_output_fn *is_output);

#endif
