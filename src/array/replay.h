/* Call records: the library calls that a function makes of its arguments, replayed for arguments of other sizes without
 * calling the function.
 *
 * Sizes are part of nodes, and many compositions write them into views and constants. So what is kept is not the nodes but
 * the calls that chose the sizes: while a thread records, a function whose nodes depend on its operands' sizes in more than
 * its operation's shape rule hands itself to ht_record, and ht_apply every other node; what either calls on its way is not
 * recorded. Done again, the same code looks at the new sizes. Derivatives are one call (ht_backward): their rules are run
 * again on what was made before them.
 *
 * A thread records for one function at a time; a record that is finished is read-only. */
#ifndef HT_ARRAY_REPLAY_H
#define HT_ARRAY_REPLAY_H

#include "array/array.h"

/* Makes out[..] of `in`, as the call that `args` describes did. False when something failed. */
typedef bool ht_replay_fn(ht_scope *s, const void *args, ht_array *const *in, int n_in, ht_array **out);

typedef struct ht_record ht_record;

extern _Atomic int ht_records_open; /* on any thread */
bool ht_record_is_open(void);
/* Whether a call made now is to be recorded. */
static inline bool ht_recording(void) {
    return atomic_load_explicit(&ht_records_open, memory_order_relaxed) != 0 && ht_record_is_open();
}

/* Calls again(s, args, in, out), and records the call with a copy of `args` when one of `in` depends on an argument. Results
 * that are operands get a node of their own. `release`, if not NULL, is called with the copy when the record goes, or at
 * once. */
bool ht_record_call(ht_scope *s, ht_replay_fn *again, const void *args, size_t args_bytes, void (*release)(void *args),
                    ht_array *const *in, int n_in, ht_array **out, int n_out);
/* The same of a call that gives one array, which it returns. */
ht_array *ht_record_one(ht_scope *s, ht_replay_fn *again, const void *args, size_t args_bytes, ht_array *const *in,
                        int n_in);

/* Begins to record, on this thread, what is done with in[0 .. n_in). NULL when memory ran out. */
ht_record *ht_record_open(ht_array *const *in, int n_in);
/* Ends it; keeps what out[0 .. n_out) were made by. False, with an error in the scope, when memory ran out on the way. */
bool ht_record_close(ht_scope *s, ht_record *r, ht_array *const *out, int n_out);
/* Everything once more; out has room for as many as were given to ht_record_close. */
bool ht_replay(ht_scope *s, const ht_record *r, ht_array *const *in, ht_array **out);
void ht_record_free(ht_record *r); /* NULL is fine; one that is open is closed */

#endif
