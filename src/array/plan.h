/* Plan: a traced forward function as a flat list of kernel calls with a symbolic number of rows. Plans are immutable
 * and shared. An executor owns the arena in which a plan runs, and belongs to one thread at a time. */
#ifndef HT_ARRAY_PLAN_H
#define HT_ARRAY_PLAN_H

#include "device/step.h"

#include <hearth/array.h>

typedef struct ht_plan ht_plan;
typedef struct ht_exec ht_exec;

/* Forward function: builds the graph of one step in scope `s` and returns its output [n_out, ...]. Row counts are symbolic
 * (array/symbol.h): they may only be used as a leading axis or multiplied by constants. */
typedef ht_array *ht_plan_fn(ht_scope *s, void *user);

/* Traces a forward function; the caller frees *out. Matrices and constants of the graph must outlive the plan. fn may
 * store a small second result, f32 [n_out, columns], in *more. It is computed as early as possible, to free its inputs.
 * `more` or *more may be NULL: no second result. */
ht_status ht_plan_trace(ht_device *device, ht_plan_fn *fn, void *user, ht_array *const *more, ht_plan **out,
                        ht_error *err);
void ht_plan_free(ht_plan *p); /* after its executors; NULL is fine */

/* New executor for steps of at most max_rows rows and max_out output rows; the caller frees *out. */
ht_status ht_exec_new(const ht_plan *p, int32_t max_rows, int32_t max_out, ht_exec **out, ht_error *err);
void ht_exec_free(ht_exec *e);
/* Bytes of the device's memory that an executor with these limits takes; 0 when memory ran out. */
size_t ht_exec_bytes(const ht_plan *p, int32_t max_rows, int32_t max_out);

/* Runs one step, without allocating. *output is f32 [n_out, columns], row-contiguous: step->output, or memory lent
 * until the next run. The caller advances the lengths of the KV caches after success. */
ht_status ht_exec_run(ht_exec *e, const ht_step *step, const float **output, ht_error *err);
/* The top_k logits of each row of the last run, valid until the next run, or NULL. They replace *output, which was then
 * NULL, if the step has no `output`, the device supports top-k and all logits are finite. */
const ht_logits_rows *ht_exec_highest(const ht_exec *e);
/* The second result of the last run, f32 [n_out, columns], valid until the next run; NULL for a plan without one. */
const float *ht_exec_second(const ht_exec *e);

#endif
