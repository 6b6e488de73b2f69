/* Elementwise operations on the CPU: functions of blocks that lie one element after the other, found by operation and
 * dtype, and the walk over operands of any strides that calls them; and strips, which do most operations on f32 (strips.h). One
 * operation is run as a program of one step. */
#ifndef HT_CPU_EACH_H
#define HT_CPU_EACH_H

#include "device/program.h"

#include <stddef.h>

/* out[i] = op(in[0][i], ...) for i < n. `out` may be one of `in` if their elements are of one size. */
typedef void ht_each_fn(const void *const *in, void *out, int64_t n, const void *params);

/* The function of an instruction set for an operation, from a dtype to a dtype as a program's step names them; NULL when
 * it has none. */
typedef ht_each_fn *ht_find_each_fn(ht_op_id op, ht_dtype from, ht_dtype to);

/* Runs n strips, of so many elements each, of a program that was made a list of steps (strips.h), which name their operands
 * and results by place. */
enum { HT_STRIP = 128 };
struct ht_strip_step;
typedef void ht_strips_fn(const struct ht_strip_step *list, char *const *places, int64_t n);

/* What an instruction set has. */
typedef struct ht_each_set {
    ht_find_each_fn *find;
    ht_strips_fn *strips; /* or NULL */
    int64_t strips_least; /* elements of results that gain by them */
} ht_each_set;

/* Bytes of a block: what a program keeps of each result at a time. */
enum { HT_EACH_BYTES = 4096 };

/* Finds the functions and places of all steps; false when one has no function or there is no room. */
bool ht_each_prepare(ht_program *p, const ht_each_set *set);
void ht_each_run_program(const ht_program_run *run);

/* An operation by itself; by blocks if `set` is NULL. */
void ht_each_run(const ht_call *call, ht_op_id op, ht_each_fn *fn, const ht_each_set *set);
/* The same for rows [begin, end) of the leading axis of call->out, on the calling thread. */
void ht_each_run_rows(const ht_call *call, ht_op_id op, ht_each_fn *fn, int64_t begin, int64_t end);

/* A copy of an operand whose neighbours lie along another axis than the last, as in a transpose, by tiles that are
 * turned around: whole cache lines are read and written. False, and nothing done, where they do not. */
bool ht_each_turn(const ht_call *call);

/* n elements of `bytes` each, from `from` at a distance of `stride` elements, to adjacent ones. */
void ht_gather_elements(char *to, const char *from, int64_t stride, int64_t n, size_t bytes);

#endif
