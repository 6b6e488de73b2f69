/* Flat programs: the trace of a compiled function as a list of kernel calls. A call of the function adds one COMPILED
 * node, whose evaluation runs the list, and one COMPILED_OUT node per result, whatever the size of the trace. These
 * nodes have no derivative: a call that is differentiated instantiates the traced nodes instead.
 *
 * The list is built at the first run, for one device, whose run_lock protects it. */
#ifndef HT_ARRAY_FLAT_PROGRAM_H
#define HT_ARRAY_FLAT_PROGRAM_H

#include "array/tape.h"

typedef struct ht_flat ht_flat;
typedef struct ht_flat_run ht_flat_run; /* one call: state shared by its nodes */

/* Flat program of a trace on `d`; in[0 .. n_in) are the leaves at which the tape starts. NULL when the trace cannot be
 * flattened, is so short that its nodes cost no more, or memory ran out. */
ht_flat *ht_flat_new(ht_device *d, const ht_tape *tape, ht_array *const *in, int n_in, ht_array *const *out, int n_out);
ht_device *ht_flat_device(const ht_flat *f);
void ht_flat_release(ht_flat *f); /* NULL is fine */

/* Adds the nodes of a call, with contiguous arguments; out[] are its results. */
bool ht_flat_call(ht_scope *s, ht_flat *f, ht_array *const *in, ht_array **out);

/* ---- evaluation ---- */

void ht_flat_run_release(ht_flat_run *r); /* NULL is fine */
/* Requests the result of a COMPILED_OUT node in the evaluation `visit`. */
void ht_flat_request(ht_array *out, uint64_t visit);
/* Makes the stream's scratch memory at least `bytes` large. */
typedef ht_status ht_flat_scratch(ht_stream *s, size_t bytes, ht_error *err);
/* Evaluates a COMPILED node. Requested results get their buffers; the buffers of other results are kept in the run, for
 * ht_flat_take. */
ht_status ht_flat_compute(ht_stream *stream, ht_array *compiled, uint64_t visit, ht_flat_scratch *scratch,
                          ht_error *err);
/* Result i of the call, or NULL when it was not requested for `visit`. */
ht_array *ht_flat_requested(const ht_array *compiled, uint64_t visit, int i);
/* Number of results of the call. */
int ht_flat_count(const ht_array *compiled);
/* Moves the kept buffer of a result that an earlier evaluation did not request to its COMPILED_OUT node. */
ht_status ht_flat_take(ht_array *out, ht_error *err);
/* Releases all kept buffers. */
void ht_flat_discard(ht_array *compiled);

#endif
