/* Flat programs: a trace of a compiled function as a list of kernel calls, laid out once. A call is then two kinds of nodes
 * whatever the function does: a COMPILED node, which runs the list when it is evaluated, and a COMPILED_OUT node for each array
 * that it makes. Derivatives do not go through these: a call that is to be differentiated lays out the traced nodes instead.
 *
 * The list is made when it is first run, on one device, whose run_lock orders everything that touches it from then on. */
#ifndef HT_ARRAY_FLAT_PROGRAM_H
#define HT_ARRAY_FLAT_PROGRAM_H

#include "array/tape.h"

typedef struct ht_flat ht_flat;
typedef struct ht_flat_run ht_flat_run; /* one call: what its nodes share */

/* Of a trace on `d`: in[0 .. n_in) are leaves and the tape's beginnings. NULL when it cannot be one, is so short that its nodes
 * cost no more, or memory ran out. */
ht_flat *ht_flat_new(ht_device *d, const ht_tape *tape, ht_array *const *in, int n_in, ht_array *const *out, int n_out);
ht_device *ht_flat_device(const ht_flat *f);
void ht_flat_release(ht_flat *f); /* NULL is fine */

/* The nodes of a call with contiguous arguments. */
bool ht_flat_call(ht_scope *s, ht_flat *f, ht_array *const *in, ht_array **out);

/* ---- evaluation ---- */

void ht_flat_run_release(ht_flat_run *r); /* NULL is fine */
/* Tells that a COMPILED_OUT node is among what evaluation `visit` computes. */
void ht_flat_note(ht_array *out, uint64_t visit);
/* Runs the list for a COMPILED node: those results that are noted for `visit` get their buffers, the rest waits. `scratch` is
 * asked for room once. */
typedef ht_status ht_flat_scratch(ht_stream *s, size_t bytes, ht_error *err);
ht_status ht_flat_compute(ht_stream *stream, ht_array *compiled, uint64_t visit, ht_flat_scratch *scratch,
                          ht_error *err);
/* The i-th of the noted results, or NULL behind the last. */
ht_array *ht_flat_noted(const ht_array *compiled, uint64_t visit, int i);
int ht_flat_count(const ht_array *compiled);
/* What waits for a COMPILED_OUT node that was not noted. */
ht_status ht_flat_take(ht_array *out, ht_error *err);
/* Lets go of what waits. */
void ht_flat_forget(ht_array *compiled);

#endif
