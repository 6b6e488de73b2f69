/* A plan: a traced forward function as a flat list of kernel calls, immutable, shared, symbolic in the number of rows.
 * An executor owns the arena in which one plan runs; it belongs to one thread at a time. */
#ifndef HT_ARRAY_PLAN_H
#define HT_ARRAY_PLAN_H

#include "device/step.h"

#include <hearth/array.h>

typedef struct ht_plan ht_plan;
typedef struct ht_exec ht_exec;

/* What a trace calls: builds the graph of one step in scope `s` and returns its output, [n_out, ...]. Row counts are
 * symbolic while tracing (array/symbol.h): they may be passed on as the leading axis and multiplied, nothing else. */
typedef ht_array *ht_plan_fn(ht_scope *s, void *user);

/* Traces fn. Constants the graph refers to (norm weights, matrices) must outlive the plan. */
ht_status ht_plan_trace(ht_device *device, ht_plan_fn *fn, void *user, ht_plan **out, ht_error *err);
void ht_plan_free(ht_plan *p); /* NULL is fine; no executor may be left */

/* An executor for steps of up to max_rows rows, of which up to max_out are asked for. */
ht_status ht_exec_new(const ht_plan *p, int32_t max_rows, int32_t max_out, ht_exec **out, ht_error *err);
void ht_exec_free(ht_exec *e);
/* Bytes of arena an executor of these limits would hold. */
size_t ht_exec_bytes(const ht_plan *p, int32_t max_rows, int32_t max_out);

/* Runs one step. *output (step->output, or else lent until the next run) is f32 [n_out, columns], row-contiguous. The lengths of the caches
 * are not moved: that is the caller's, after success. Allocates nothing. */
ht_status ht_exec_run(ht_exec *e, const ht_step *step, const float **output, ht_error *err);

#endif
