/* Call records: the library calls that a user's function makes, replayed for arguments of other sizes without calling
 * the function (shapeless compilation).
 *
 * Nodes contain sizes, and many library functions compute view parameters and constants from the sizes of their
 * operands. A record therefore stores calls, not nodes. While a thread records, a library function that depends on
 * sizes records itself (ht_record_call), and ht_apply records every other node; nested calls are not recorded.
 * Replaying runs the same code on the new sizes. A derivative is one call (ht_backward): its reverse rules run again on
 * the replayed nodes.
 *
 * A thread has one open record at a time. A closed record is read-only. */
#ifndef HT_ARRAY_REPLAY_H
#define HT_ARRAY_REPLAY_H

#include "array/array.h"

/* Makes a recorded call: computes out[] from `in` with the arguments `args`. False on failure. */
typedef bool ht_replay_fn(ht_scope *s, const void *args, ht_array *const *in, int n_in, ht_array **out);

typedef struct ht_record ht_record;

extern _Atomic int ht_records_open; /* open records of all threads */
bool ht_record_is_open(void);       /* on this thread, outside a recorded call */
/* True when a call made now must be recorded. */
static inline bool ht_recording(void) {
    return atomic_load_explicit(&ht_records_open, memory_order_relaxed) != 0 && ht_record_is_open();
}

/* A call to be recorded, with a copy of its arguments. */
typedef struct ht_recorded_call {
    ht_replay_fn *again;
    const void *args;
    size_t args_bytes;
    void (*release)(void *args); /* NULL, or called with the copy when the record is freed, or at once if the call is
                                    not recorded */
} ht_recorded_call;

/* Calls again(s, args, in, out), and records the call if one of `in` depends on an argument of the recorded function.
 * A result that is also an operand gets a new node. */
bool ht_record_call(ht_scope *s, const ht_recorded_call *call, ht_array *const *in, int n_in, ht_array **out,
                    int n_out);
/* ht_record_call with one result, which is returned. */
ht_array *ht_record_one(ht_scope *s, ht_replay_fn *again, const void *args, size_t args_bytes, ht_array *const *in,
                        int n_in);

/* Starts recording calls that depend on in[0 .. n_in) on this thread. NULL when memory ran out. */
ht_record *ht_record_open(ht_array *const *in, int n_in);
/* Ends recording and keeps the calls on which out[0 .. n_out) depend. False, with an error in the scope, when memory
 * ran out. */
bool ht_record_close(ht_scope *s, ht_record *r, ht_array *const *out, int n_out);
/* Replays the record for other arguments; out[] has as many arrays as were passed to ht_record_close. */
bool ht_replay(ht_scope *s, const ht_record *r, ht_array *const *in, ht_array **out);
void ht_record_free(ht_record *r); /* closes an open record; NULL is fine */

#endif
