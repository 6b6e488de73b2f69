/* Elementwise operations on the CPU: functions on contiguous blocks, looked up by operation and dtype, and the loop
 * that applies them to operands of any strides. A single operation runs as a one-step program. */
#ifndef HT_CPU_ELEMENTWISE_H
#define HT_CPU_ELEMENTWISE_H

#include "device/program.h"

#include <stddef.h>

/* Block function: out[i] = op(in[0][i], ...) for i < n. `out` may alias an input of the same element size. */
typedef void ht_elementwise_fn(const void *const *in, void *out, int64_t n, const void *params);

/* Looks up an instruction set's block function for an operation and a step's dtypes (ht_program_step.from, .to); NULL
 * if there is none. */
typedef ht_elementwise_fn *ht_find_elementwise_fn(ht_op_id op, ht_dtype from, ht_dtype to);

/* Bytes per block of each intermediate result. */
enum { HT_ELEMENTWISE_BLOCK_BYTES = 4096 };

/* Assigns every step its block function and every intermediate result its local buffer. False if a function is missing
 * or the local buffers do not suffice. */
bool ht_elementwise_prepare(ht_program *p, ht_find_elementwise_fn *find);
/* Runs a prepared program on the threads of its pool. */
ht_status ht_elementwise_run_program(const ht_program_run *run, ht_error *err); /* HT_OK */

/* Runs one operation as a one-step program. */
void ht_elementwise_run(const ht_call *call, ht_op_id op, ht_elementwise_fn *fn);
/* Runs one operation on rows [begin, end) of the leading axis of call->out, on the calling thread. */
void ht_elementwise_run_rows(const ht_call *call, ht_op_id op, ht_elementwise_fn *fn, int64_t begin, int64_t end);

/* Gathers n elements of `bytes` bytes, `stride` elements apart, into contiguous memory. */
void ht_gather_elements(char *to, const char *from, int64_t stride, int64_t n, size_t bytes);

#endif
