/* Elementwise operations on the CPU: functions of contiguous blocks, found by operation and dtype, and the loop over
 * operands of any strides that calls them. One operation is run as a program of one step. */
#ifndef HT_CPU_ELEMENTWISE_H
#define HT_CPU_ELEMENTWISE_H

#include "device/program.h"

#include <stddef.h>

/* out[i] = op(in[0][i], ...) for i < n. `out` may be one of `in` if their elements are of one size. */
typedef void ht_elementwise_fn(const void *const *in, void *out, int64_t n, const void *params);

/* The function of an instruction set for an operation, from a dtype to a dtype as a program's step names them; NULL when
 * it has none. */
typedef ht_elementwise_fn *ht_find_elementwise_fn(ht_op_id op, ht_dtype from, ht_dtype to);

/* Bytes of a block: what a program keeps of each result at a time. */
enum { HT_ELEMENTWISE_BLOCK_BYTES = 4096 };

/* Finds the functions and places of all steps; false when one has no function or there is no room. */
bool ht_elementwise_prepare(ht_program *p, ht_find_elementwise_fn *find);
void ht_elementwise_run_program(const ht_program_run *run);

/* An operation by itself. */
void ht_elementwise_run(const ht_call *call, ht_op_id op, ht_elementwise_fn *fn);
/* The same for rows [begin, end) of the leading axis of call->out, on the calling thread. */
void ht_elementwise_run_rows(const ht_call *call, ht_op_id op, ht_elementwise_fn *fn, int64_t begin, int64_t end);

/* n elements of `bytes` each, from `from` at a distance of `stride` elements, to adjacent ones. */
void ht_gather_elements(char *to, const char *from, int64_t stride, int64_t n, size_t bytes);

#endif
